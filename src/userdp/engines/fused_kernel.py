"""The kernel of :mod:`userdp.engines.fused`, compiled by Numba when it is first needed and kept for the next time.

A user's numbers meet no other user's: one loop over users adds up each one's rows. Sixteen numbers of a row are taken
at a time, and four rows or more; what lies beyond a row's end or beyond the user's last row is read and thrown away, so
behind the rows there must be sixteen more. Rows come as float32, or as the sixteen bits of a half each.

All is written with pointers: Numba would count who holds an array, and look for negative indices.
"""

# mypy: ignore-errors

import numpy as np
from llvmlite import ir
from numba import cfunc, njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from userdp.engines.lanes import LANES, fma, fold, load, power_of_two, rint, spread, store, where_less

# What Numba keeps is made again only when this file changes, so this line says what the other one was (its CRC-32).
LANES_FILE = 3594680810
_LOGISTIC, _HINGE, _SQUARED_HINGE, _SQUARED, _ABSOLUTE, _PINBALL, _HUBER, _POISSON = range(8)

# Sixteen longer rows leave the nearer caches before they are added up, and XLA's kernels are as fast.
LONGEST_ROW = 1024
# So many rows are predicted and then added up while the first cache holds them; of long rows fewer.
_ROWS, _LONG, _FEW_ROWS = LANES, 256, 4

# Products may be fused with sums; infinities and NaN are respected.
_OPTIONS = {"fastmath": {"contract", "nsz"}, "error_model": "numpy"}
_inlined = njit(forceinline=True, **_OPTIONS)
_ZERO, _HALF, _ONE, _TWO, _INFINITY = np.float32([0.0, 0.5, 1.0, 2.0, np.inf])


def _pointer_to(kind):
    """Return what turns an address into a pointer."""

    @intrinsic
    def pointer(context, address):
        def build(context, builder, signature, arguments):
            return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

        return types.CPointer(kind)(types.int64), build

    return pointer


words, _integers = _pointer_to(types.int64), _pointer_to(types.int32)
floats, halves = _pointer_to(types.float32), _pointer_to(types.uint16)


@intrinsic(prefer_literal=True)
def _room(context, count):
    """Reserve float32 numbers on the stack."""

    def build(context, builder, signature, arguments):
        place = cgutils.alloca_once(builder, ir.FloatType(), size=count.literal_value)
        place.align = 64
        return place

    return types.CPointer(types.float32)(count), build


@_inlined
def _exp(x):
    """Return e^x in float32 within two units in the last place, and 0 below -87; x is at most 88 (after Cephes)."""
    k = rint(x * np.float32(1.44269504))
    r = x - k * np.float32(0.693359375) + k * np.float32(2.12194440e-4)
    e = np.float32(1.9875691500e-4) * r + np.float32(1.3981999507e-3)
    e = e * r + np.float32(8.3334519073e-3)
    e = e * r + np.float32(4.1665795894e-2)
    e = e * r + np.float32(1.6666665459e-1)
    e = e * r + np.float32(5.0000001201e-1)
    e = e * r * r + r + _ONE
    lowest = spread(np.float32(-87.0))
    # A power of NaN would be anything; e itself is NaN then.
    power = power_of_two(where_less(spread(np.float32(-127.0)), k, k, spread(_ZERO)))
    return where_less(x, lowest, spread(_ZERO), e * power)


@_inlined
def _step(u):
    """Return 0, 1/2, 1 for u below, at and above 0; NaN for NaN."""
    zero = spread(_ZERO)
    return where_less(zero, u, spread(_ONE), where_less(u, zero, zero, u + _HALF))


@_inlined
def _clip(u, low, high):
    low, high = spread(low), spread(high)
    return where_less(u, low, low, where_less(high, u, high, u))


@_inlined
def _logistic(p, y):
    zero = spread(_ZERO)
    e = _exp(where_less(p, zero, p, zero - p))
    large = _ONE / (_ONE + e)
    small = e * large
    up, down = where_less(p, zero, small, large), where_less(p, zero, large, small)
    return (_ONE - y) * up - y * down


@_inlined
def _slope(kind, p, y, a, b):
    """Compute the ``derivative`` of a loss."""
    if kind == _LOGISTIC:
        return _logistic(p, y)
    s = _TWO * y - _ONE
    if kind == _HINGE:
        return (_ZERO - s) * _step(_ONE - s * p)
    if kind == _SQUARED_HINGE:
        return (_ZERO - s) * _clip(_ONE - s * p, _ZERO, _INFINITY)
    if kind == _ABSOLUTE:
        return _TWO * _step(p - y) - _ONE
    if kind == _PINBALL:
        return _step(p - y) - a
    if kind == _HUBER:
        return _clip(p - y, -a, a)
    if kind == _POISSON:
        return _exp(_clip(p, -_INFINITY, a)) - _clip(y, _ZERO, b)
    return p - y


@_inlined
def _product(x, row, d, theta):
    """Return ``<x, theta>`` of a row in sixteen parts."""
    even = odd = spread(_ZERO)
    here, pairs = row * d, d - d % (2 * LANES)
    for j in range(0, pairs, 2 * LANES):
        even = fma(load(x, here + j, LANES), load(theta, j, LANES), even)
        odd = fma(load(x, here + j + LANES, LANES), load(theta, j + LANES, LANES), odd)
    for j in range(pairs, d, LANES):
        even = fma(load(x, here + j, d - j), load(theta, j, LANES), even)
    return even + odd


@_inlined
def _products(x, row, d, theta):
    """Return ``<x, theta>`` of four rows, each in four parts: row k's are in lanes k, k + 4, k + 8 and k + 12.

    One row after the other: memory delivers one stream of numbers faster than several.
    """
    p0, p1 = _product(x, row, d, theta), _product(x, row + 1, d, theta)
    p2, p3 = _product(x, row + 2, d, theta), _product(x, row + 3, d, theta)
    return fold(fold(p0, p1, 1), fold(p2, p3, 1), 2)


@_inlined
def _predict(x, first, count, d, theta):
    """Return ``<x, theta>`` of sixteen rows; of the last ones something else, if there are not so many."""
    zero = spread(_ZERO)
    p0 = _products(x, first, d, theta)
    p1 = _products(x, first + 4, d, theta) if count > 4 else zero
    p2 = _products(x, first + 8, d, theta) if count > 8 else zero
    p3 = _products(x, first + 12, d, theta) if count > 12 else zero
    return fold(fold(p0, p1, 4), fold(p2, p3, 4), 8)


@_inlined
def _add(x, first, count, d, slopes, j, total):
    """Return the total and ``sum_i slopes_i x_i`` over some rows, from place j on."""
    fours, left, odd = count - count % 4, d - j, spread(_ZERO)
    for i in range(0, fours, 4):
        here = (first + i) * d + j
        total = fma(spread(slopes[i]), load(x, here, left), total)
        odd = fma(spread(slopes[i + 1]), load(x, here + d, left), odd)
        total = fma(spread(slopes[i + 2]), load(x, here + 2 * d, left), total)
        odd = fma(spread(slopes[i + 3]), load(x, here + 3 * d, left), odd)
    for i in range(fours, count):
        total = fma(spread(slopes[i]), load(x, (first + i) * d + j, left), total)
    return total + odd


@njit(**_OPTIONS)
def sum_users(n, d, x, y, weights, theta, offsets, kind, a, b, gradients):
    """Set n users' gradients to ``sum_k weights_k slope_k x_k``; user u has rows offsets[u] to offsets[u + 1]."""
    slopes, total, point = _room(_ROWS), _room(LONGEST_ROW), _room(LONGEST_ROW)
    for j in range(d + -d % LANES):
        point[j] = theta[j] if j < d else _ZERO
    rows = _ROWS if d <= _LONG else _FEW_ROWS
    for user in range(n):
        start, end = offsets[user], offsets[user + 1]
        for first in range(start, max(end, start + 1), rows):  # once for a user without rows
            count = min(rows, end - first)
            slope = _slope(kind, _predict(x, first, count, d, point), load(y, first, LANES), a, b)
            store(slopes, 0, LANES, slope * load(weights, first, LANES))
            for j in range(0, d, LANES):
                before = spread(_ZERO) if first == start else load(total, j, LANES)
                after = _add(x, first, count, d, slopes, j, before)
                if first + count == end:
                    store(gradients, user * d + j, d - j, after)
                else:
                    store(total, j, LANES, after)


@cfunc(types.int64(types.int64), cache=True, **_OPTIONS)
def handler(frame):
    """Answer XLA by an XLA_FFI_Handler, version 0.1 of ``xla/ffi/api/c_api.h``; 0 stands for no error.

    Of XLA_FFI_CallFrame's words the second is asked for at registration (a structure whose fourth word points to the
    version), the tenth leads to the arguments and the fifteenth to the results. Of an XLA_FFI_Buffer's words the fourth
    points to the data, the sixth to the shape.
    """
    call = words(frame)
    if call[1] != 0:
        metadata = _integers(words(call[1])[3])
        metadata[6], metadata[7], metadata[8] = 0, 1, 0  # major, minor, no traits
        return 0
    arguments, result = words(call[9]), words(words(call[14])[0])
    x, y, weights = words(arguments[0])[3], floats(words(arguments[1])[3]), floats(words(arguments[2])[3])
    theta, constants = floats(words(arguments[3])[3]), floats(words(arguments[6])[3])
    question = _integers(words(arguments[5])[3])
    kind, first, is_half = question[0], np.int64(question[1]), question[2]
    offsets = words(words(arguments[4])[3] + 8 * first)
    shape, gradients, a, b = words(result[5]), floats(result[3]), constants[0], constants[1]
    if is_half:
        sum_users(shape[0], shape[1], halves(x), y, weights, theta, offsets, kind, a, b, gradients)
    else:
        sum_users(shape[0], shape[1], floats(x), y, weights, theta, offsets, kind, a, b, gradients)
    return 0
