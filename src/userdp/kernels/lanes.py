"""Sixteen float32 numbers at a time, as values of code that Numba compiles.

``Lanes`` are added, subtracted, multiplied and divided like numbers, and with numbers. A compiler makes one instruction
of each operation where the processor has vectors of 512 bits, and a few elsewhere. Unlike a loop that it might or might
not turn into such instructions, they are computed the same way whatever stands around them.
"""

# mypy: ignore-errors

import operator

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, models, overload, register_model

LANES = 16
_INT32 = ir.IntType(32)
_VECTOR, _PLACES, _MASK = (ir.VectorType(kind, LANES) for kind in (ir.FloatType(), _INT32, ir.IntType(1)))


class Lanes(types.Type):
    """Numba's name for sixteen numbers in the registers of the vector unit."""


_lanes = Lanes("lanes")


@register_model(Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager, kind):
        super().__init__(manager, kind, _VECTOR)


def repeated(builder, number, vector):
    """Build a vector of one number."""
    one = builder.insert_element(ir.Constant(vector, ir.Undefined), number, ir.Constant(_INT32, 0))
    return builder.shuffle_vector(one, one, ir.Constant(_PLACES, [0] * LANES))


def _before(builder, count):
    """Which lanes come before ``count``."""
    limit = repeated(builder, builder.trunc(count, _INT32), _PLACES)
    return builder.icmp_signed("<", ir.Constant(_PLACES, list(range(LANES))), limit)


def call(builder, name, kind, arguments):
    """Build a call of one of LLVM's functions."""
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), arguments)


def _room_for(kind):
    """Return what reserves so many numbers on the stack."""

    @intrinsic(prefer_literal=True)
    def room(context, count):
        def build(context, builder, signature, arguments):
            size = count.literal_value
            place = cgutils.alloca_once(builder, context.get_data_type(kind), size=size)
            place.align = 64
            return place

        return types.CPointer(kind)(count), build

    return room


room, doubles_room, bytes_room = (_room_for(kind) for kind in (types.float32, types.float64, types.uint8))


@intrinsic
def spread(context, number):
    """Return sixteen times the same number."""

    def build(context, builder, signature, arguments):
        return repeated(builder, arguments[0], _VECTOR)

    return _lanes(types.float32), build


@intrinsic
def load(context, numbers, first, count):
    """Take sixteen numbers at a pointer to float32, or to the bits of halves; those from ``count`` on become zero.

    They are read, whatever they are.
    """
    stored = ir.FloatType() if numbers.dtype == types.float32 else ir.HalfType()

    def build(context, builder, signature, arguments):
        pointer, index, left = arguments
        place = builder.bitcast(builder.gep(pointer, [index]), ir.VectorType(stored, LANES).as_pointer())
        found = builder.load(place)
        found.align = numbers.dtype.bitwidth // 8
        if numbers.dtype != types.float32:
            found = builder.fpext(found, _VECTOR)
        return builder.select(_before(builder, left), found, ir.Constant(_VECTOR, [0.0] * LANES))

    return _lanes(numbers, types.int64, types.int64), build


@intrinsic
def fetch(context, numbers, first):
    """Ask memory for numbers around a place that will be read later; the place need not exist."""

    def build(context, builder, signature, arguments):
        place = builder.bitcast(builder.gep(arguments[0], [arguments[1]]), ir.IntType(8).as_pointer())
        kind = ir.FunctionType(ir.VoidType(), [place.type, _INT32, _INT32, _INT32])
        to_read, into_second_cache, data = (ir.Constant(_INT32, number) for number in (0, 2, 1))
        call(builder, "llvm.prefetch.p0", kind, [place, to_read, into_second_cache, data])
        return context.get_dummy_value()

    return types.void(numbers, types.int64), build


@intrinsic
def kept(context, lanes, count):
    """Return the lanes, those from ``count`` on zero, whatever they were."""

    def build(context, builder, signature, arguments):
        value, left = arguments
        return builder.select(_before(builder, left), value, ir.Constant(_VECTOR, [0.0] * LANES))

    return _lanes(_lanes, types.int64), build


@intrinsic
def store(context, numbers, first, count, lanes):
    """Put sixteen numbers at a pointer, or as many as ``count``."""

    def build(context, builder, signature, arguments):
        pointer, index, left, value = arguments
        place = builder.bitcast(builder.gep(pointer, [index]), _VECTOR.as_pointer())
        kind = ir.FunctionType(ir.VoidType(), [_VECTOR, place.type, _INT32, _MASK])
        mask = _before(builder, left)
        call(builder, f"llvm.masked.store.v{LANES}f32.p0", kind, [value, place, ir.Constant(_INT32, 4), mask])
        return context.get_dummy_value()

    return types.void(numbers, types.int64, types.int64, _lanes), build


def _arithmetic(symbol, name):
    """Let lanes be combined with lanes and with numbers; products may be fused with sums."""

    @intrinsic
    def combine(context, x, y):
        def build(context, builder, signature, arguments):
            return getattr(builder, name)(*arguments, flags=("contract", "nsz"))

        return _lanes(_lanes, _lanes), build

    @overload(symbol)
    def of_kinds(x, y):
        match isinstance(x, Lanes), isinstance(y, Lanes):
            case True, True:
                return lambda x, y: combine(x, y)
            case True, False:
                return lambda x, y: combine(x, spread(y))
            case False, True:
                return lambda x, y: combine(spread(x), y)
        return None


for _symbol, _name in (
    (operator.add, "fadd"),
    (operator.sub, "fsub"),
    (operator.mul, "fmul"),
    (operator.truediv, "fdiv"),
):
    _arithmetic(_symbol, _name)


@intrinsic
def fma(context, x, y, z):
    """Return x y + z, rounded once where the processor can."""

    def build(context, builder, signature, arguments):
        kind = ir.FunctionType(_VECTOR, [_VECTOR] * 3)
        return call(builder, f"llvm.fmuladd.v{LANES}f32", kind, arguments)

    return _lanes(_lanes, _lanes, _lanes), build


@intrinsic
def rint(context, x):
    """Round to the nearest whole numbers."""

    def build(context, builder, signature, arguments):
        return call(builder, f"llvm.rint.v{LANES}f32", ir.FunctionType(_VECTOR, [_VECTOR]), arguments)

    return _lanes(_lanes), build


@intrinsic
def power_of_two(context, k):
    """Return 2^k for whole numbers k from -126 to 127; anything for others."""

    def build(context, builder, signature, arguments):
        number = builder.fptosi(arguments[0], _PLACES)
        bits = builder.add(number, ir.Constant(_PLACES, [127] * LANES))
        return builder.bitcast(builder.shl(bits, ir.Constant(_PLACES, [23] * LANES)), _VECTOR)

    return _lanes(_lanes), build


@intrinsic
def where_less(context, u, v, x, y):
    """Return x where u < v, and y elsewhere, also where u or v is NaN."""

    def build(context, builder, signature, arguments):
        u, v, x, y = arguments
        return builder.select(builder.fcmp_ordered("<", u, v), x, y)

    return _lanes(_lanes, _lanes, _lanes, _lanes), build


@intrinsic(prefer_literal=True)
def fold(context, x, y, step):
    """Add every lane to the one a power of two away: of x where that bit of a lane's number is 0, of y where it is 1.

    Sixteen vectors that are folded in pairs by steps of 1, in pairs again by 2, by 4 and by 8, leave the sum of the
    k-th vector's lanes in lane k.
    """
    size = step.literal_value

    def build(context, builder, signature, arguments):
        low = [(lane & ~size) + (LANES if lane & size else 0) for lane in range(LANES)]
        high = [place + size for place in low]
        return builder.fadd(
            *(builder.shuffle_vector(*arguments[:2], ir.Constant(_PLACES, places)) for places in (low, high))
        )

    return _lanes(_lanes, _lanes, step), build


@intrinsic
def magnitude(context, x):
    """Return |x|."""

    def build(context, builder, signature, arguments):
        return call(builder, f"llvm.fabs.v{LANES}f32", ir.FunctionType(_VECTOR, [_VECTOR]), arguments)

    return _lanes(_lanes), build


def _reduced(combine):
    """Return what combines all lanes, in pairs a power of two apart; each lane has the answer then."""

    @intrinsic
    def reduce(context, x):
        def build(context, builder, signature, arguments):
            found = arguments[0]
            for size in (8, 4, 2, 1):
                places = ir.Constant(_PLACES, [lane ^ size for lane in range(LANES)])
                found = combine(builder, found, builder.shuffle_vector(found, found, places))
            return found

        return _lanes(_lanes), build

    return reduce


def _larger(builder, x, y):
    return builder.select(builder.fcmp_ordered("<", x, y), y, x)


@intrinsic
def larger(context, x, y):
    """Return the larger ones; x where either is NaN."""

    def build(context, builder, signature, arguments):
        return _larger(builder, *arguments)

    return _lanes(_lanes, _lanes), build


largest, total = _reduced(_larger), _reduced(lambda builder, x, y: builder.fadd(x, y))


@intrinsic
def first_lane(context, x):
    """Return the number in the first lane."""

    def build(context, builder, signature, arguments):
        return builder.extract_element(arguments[0], ir.Constant(_INT32, 0))

    return types.float32(_lanes), build
