"""Sixty-four bytes at a time, and sums of their products, as values of code that Numba compiles.

``Octets`` are four rows of sixteen columns: byte 16 g + 4 r + c is row r's column 4 g + c. ``Sums`` are sixteen
integers of 32 bits, which wrap around. All of it is integers, so no order of summation and no instruction can change a
bit. Where the processor multiplies and adds bytes by one instruction (AVX-512 VNNI), that one is used.
"""

# mypy: ignore-errors

from llvmlite import ir
from llvmlite.binding import get_host_cpu_features
from numba import config, types
from numba.extending import intrinsic, models, register_model

from userdp.kernels.lanes import LANES, Lanes, call, repeated

OCTETS = 64
_BYTE, _INT32 = ir.IntType(8), ir.IntType(32)
_OCTETS, _SUMS, _FLOATS = (
    ir.VectorType(_BYTE, OCTETS),
    ir.VectorType(_INT32, LANES),
    ir.VectorType(ir.FloatType(), LANES),
)
# Numba can be told to compile for another processor, or without some of its instructions.
_IS_PLAIN = config.CPU_NAME is None and config.CPU_FEATURES is None and config.ENABLE_AVX
_HAS_DOT = bool(_IS_PLAIN and get_host_cpu_features().get("avx512vnni", False))


class Octets(types.Type):
    """Numba's name for sixty-four bytes in a register of the vector unit."""


class Sums(types.Type):
    """Numba's name for sixteen integers in a register of the vector unit."""


_octets, _sums, _lanes = Octets("octets"), Sums("sums"), Lanes("lanes")


@register_model(Octets)
class _OctetsModel(models.PrimitiveModel):
    def __init__(self, manager, kind):
        super().__init__(manager, kind, _OCTETS)


@register_model(Sums)
class _SumsModel(models.PrimitiveModel):
    def __init__(self, manager, kind):
        super().__init__(manager, kind, _SUMS)


def _shuffled(builder, x, y, places):
    return builder.shuffle_vector(x, y, ir.Constant(ir.VectorType(_INT32, len(places)), places))


def _loaded(builder, pointer, index, kind, align):
    found = builder.load(builder.bitcast(builder.gep(pointer, [index]), kind.as_pointer()))
    found.align = align
    return found


@intrinsic
def octets_at(context, numbers, first):
    """Take sixty-four bytes at a multiple of sixty-four."""

    def build(context, builder, signature, arguments):
        return _loaded(builder, *arguments, _OCTETS, OCTETS)

    return _octets(numbers, types.int64), build


@intrinsic
def rows_at(context, numbers, first):
    """Take four bytes, one for each row, for all columns."""

    def build(context, builder, signature, arguments):
        return builder.bitcast(repeated(builder, _loaded(builder, *arguments, _INT32, 4), _SUMS), _OCTETS)

    return _octets(numbers, types.int64), build


@intrinsic
def columns_at(context, numbers, first):
    """Take sixteen bytes, one for each column, for all rows."""
    places = [4 * g + c for g in range(4) for _ in range(4) for c in range(4)]

    def build(context, builder, signature, arguments):
        found = _loaded(builder, *arguments, ir.VectorType(_BYTE, LANES), LANES)
        return _shuffled(builder, found, found, places)

    return _octets(numbers, types.int64), build


@intrinsic
def put_octets(context, numbers, first, x):
    """Put sixty-four bytes at a multiple of sixty-four."""

    def build(context, builder, signature, arguments):
        pointer, index, value = arguments
        builder.store(
            value, builder.bitcast(builder.gep(pointer, [index]), _OCTETS.as_pointer())
        ).align = OCTETS
        return context.get_dummy_value()

    return types.void(numbers, types.int64, _octets), build


@intrinsic
def by_column(context, x):
    """Bring each column's four rows together, for :func:`dot`: byte 16 g + 4 c + r is then row r's column 4 g + c."""
    places = [16 * g + 4 * r + c for g in range(4) for c in range(4) for r in range(4)]

    def build(context, builder, signature, arguments):
        return _shuffled(builder, arguments[0], arguments[0], places)

    return _octets(_octets), build


@intrinsic
def no_sums(context):
    """Return sixteen zeros."""

    def build(context, builder, signature, arguments):
        return ir.Constant(_SUMS, [0] * LANES)

    return _sums(), build


@intrinsic
def dot(context, x, y, sums):
    """Add the products of four bytes each, of x from 0 to 255 and of y from -128 to 127."""

    def build(context, builder, signature, arguments):
        x, y, sums = arguments
        if _HAS_DOT:
            kind = ir.FunctionType(_SUMS, [_SUMS, _OCTETS, _OCTETS])
            return call(builder, "llvm.x86.avx512.vpdpbusd.512", kind, [sums, x, y])
        wide = ir.VectorType(_INT32, OCTETS)
        products = builder.mul(builder.zext(x, wide), builder.sext(y, wide))
        for count in (OCTETS, OCTETS // 2):
            halves = (_shuffled(builder, products, products, list(range(odd, count, 2))) for odd in (0, 1))
            products = builder.add(*halves)
        return builder.add(products, sums)

    return _sums(_octets, _octets, _sums), build


@intrinsic
def joined(context, high, low):
    """Return 256 times one sum and the other."""

    def build(context, builder, signature, arguments):
        return builder.add(builder.shl(arguments[0], ir.Constant(_SUMS, [8] * LANES)), arguments[1])

    return _sums(_sums, _sums), build


@intrinsic
def less(context, sums, number):
    """Subtract one number from all sums."""

    def build(context, builder, signature, arguments):
        return builder.sub(arguments[0], repeated(builder, arguments[1], _SUMS))

    return _sums(_sums, types.int32), build


@intrinsic
def over_columns(context, a, b, c, d):
    """Of four sums by group of columns and row, return those of the sixteen rows over all columns."""

    def build(context, builder, signature, arguments):
        def add(x, y):
            """Add neighbouring quarters of x, then of y."""
            sides = (
                [
                    16 * side + 8 * half + 4 * odd + row
                    for side in (0, 1)
                    for half in (0, 1)
                    for row in range(4)
                ]
                for odd in (0, 1)
            )
            return builder.add(*(_shuffled(builder, x, y, places) for places in sides))

        a, b, c, d = arguments
        return add(add(a, b), add(c, d))

    return _sums(_sums, _sums, _sums, _sums), build


@intrinsic
def as_lanes(context, sums):
    """Convert sums to the nearest float32."""

    def build(context, builder, signature, arguments):
        return builder.sitofp(arguments[0], _FLOATS)

    return _lanes(_sums), build


@intrinsic
def split(context, high, low, first, x):
    """Round sixteen numbers to integers of -32,512 to 32,512, and put each down as 256 times one byte and another.

    Returns the sum of the integers.
    """

    def build(context, builder, signature, arguments):
        high, low, index, x = arguments
        top, bottom = (ir.Constant(_FLOATS, [sign * 32512.0] * LANES) for sign in (1, -1))
        x = call(builder, f"llvm.rint.v{LANES}f32", ir.FunctionType(_FLOATS, [_FLOATS]), [x])
        x = builder.select(builder.fcmp_ordered("<", x, top), x, top)
        x = builder.select(builder.fcmp_ordered("<", bottom, x), x, bottom)
        numbers, kind = builder.fptosi(x, _SUMS), ir.VectorType(_BYTE, LANES)
        lows = builder.trunc(numbers, kind)
        rest = builder.sub(numbers, builder.sext(lows, _SUMS))
        highs = builder.trunc(builder.ashr(rest, ir.Constant(_SUMS, [8] * LANES)), kind)
        for pointer, value in ((high, highs), (low, lows)):
            builder.store(
                value, builder.bitcast(builder.gep(pointer, [index]), kind.as_pointer())
            ).align = LANES
        return call(
            builder, f"llvm.vector.reduce.add.v{LANES}i32", ir.FunctionType(_INT32, [_SUMS]), [numbers]
        )

    return types.int32(high, low, types.int64, _lanes), build
