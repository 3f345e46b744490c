"""The kernel of :mod:`userdp.engines.fused`, compiled by Numba when it is first needed and kept for the next time.

A user's numbers meet no other user's: one loop over users calls :func:`_sum_user` on each one's rows.
"""

# mypy: ignore-errors

import numpy as np
from llvmlite import ir
from numba import carray, cfunc, njit, types
from numba.core import cgutils
from numba.extending import intrinsic

# Everything that is compiled in stands in this file: what Numba keeps is made again only when this file changes.
_LOGISTIC, _HINGE, _SQUARED_HINGE, _SQUARED, _ABSOLUTE, _PINBALL, _HUBER, _POISSON = range(8)

# Four longer rows and their sum leave the first cache, and XLA's kernels are as fast.
LONGEST_ROW = 1024
# Rows are taken 4 to 64 at a time, about so many numbers: they stay in the first cache while the next ones come.
_CACHED, _MOST_ROWS = 2**10, 64

# Sums may be taken in the vector unit's order, products fused with them; infinities and NaN are respected.
_OPTIONS = {"fastmath": {"reassoc", "contract", "nsz"}, "error_model": "numpy"}
_ZERO, _HALF, _ONE, _TWO, _INFINITY = np.float32([0.0, 0.5, 1.0, 2.0, np.inf])


@intrinsic
def _pointer(context, address):
    """Turn an address into a pointer."""

    def build(context, builder, signature, arguments):
        return builder.inttoptr(arguments[0], context.get_value_type(types.voidptr))

    return types.voidptr(types.int64), build


@intrinsic
def _room(context, count):
    """Reserve float32 numbers on the stack: a compiler knows that no other array overlaps them.

    For arrays that might, it keeps a second way of computing, and where they lie in memory would decide which one runs.
    """

    def build(context, builder, signature, arguments):
        return cgutils.alloca_once(builder, ir.FloatType(), size=count.literal_value)

    if isinstance(count, types.IntegerLiteral):
        return types.CPointer(types.float32)(count), build
    return None


@intrinsic
def _as_float(context, bits):
    """Return the float32 of these 32 bits."""

    def build(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.int32), build


@njit(fastmath={"contract"}, error_model="numpy")
def _exp(x):
    """Return e^x in float32 within two units in the last place, and 0 below -87; x is at most 88 (after Cephes).

    Unlike a library's function, it is computed for many rows at a time.
    """
    k = np.rint(x * np.float32(1.44269504))
    r = x - k * np.float32(0.693359375) + k * np.float32(2.12194440e-4)
    e = np.float32(1.9875691500e-4) * r + np.float32(1.3981999507e-3)
    e = e * r + np.float32(8.3334519073e-3)
    e = e * r + np.float32(4.1665795894e-2)
    e = e * r + np.float32(1.6666665459e-1)
    e = e * r + np.float32(5.0000001201e-1)
    e = e * r * r + r + _ONE
    if x < np.float32(-87.0):
        return _ZERO
    if x != x:
        return x
    return e * _as_float(np.int32(np.int32(k) + np.int32(127)) << np.int32(23))


@njit(**_OPTIONS)
def _step(u):
    """Return 0, 1/2, 1 for u below, at and above 0; NaN for NaN."""
    if u > _ZERO:
        return _ONE
    if u < _ZERO:
        return _ZERO
    return _HALF + u


@njit(**_OPTIONS)
def _clip(u, low, high):
    if u < low:
        return low
    return high if u > high else u


@njit(**_OPTIONS)
def _logistic(p, y):
    e = _exp(-abs(p))
    large = _ONE / (_ONE + e)
    small = e * large
    up = small if p < _ZERO else large
    down = large if p < _ZERO else small
    return (_ONE - y) * up - y * down


@njit(**_OPTIONS)
def _slope(kind, p, y, a, b):
    """Compute the ``derivative`` of any loss but the logistic one."""
    s = _TWO * y - _ONE
    if kind == _HINGE:
        return -s * _step(_ONE - s * p)
    if kind == _SQUARED_HINGE:
        return -s * _clip(_ONE - s * p, _ZERO, _INFINITY)
    if kind == _ABSOLUTE:
        return _TWO * _step(p - y) - _ONE
    if kind == _PINBALL:
        return _step(p - y) - a
    if kind == _HUBER:
        return _clip(p - y, -a, a)
    if kind == _POISSON:
        return _exp(_clip(p, -_INFINITY, a)) - _clip(y, _ZERO, b)
    return p - y


@njit(**_OPTIONS)
def _predict(x, theta, p):
    """Set p to ``x @ theta``, row by row: memory delivers one stream of numbers faster than several."""
    m, d = x.shape
    for i in range(m):
        row, total = x[i], _ZERO
        for j in range(d):
            total += row[j] * theta[j]
        p[i] = total


@njit(**_OPTIONS)
def _sum_user(x, y, weights, theta, kind, a, b, gradient):
    """Set the gradient to ``sum_k weights_k slope_k x_k``."""
    m, d = x.shape
    rows = min(_MOST_ROWS, max(4, _CACHED // d // 4 * 4))
    slopes, total = carray(_room(_MOST_ROWS), (_MOST_ROWS,)), carray(_room(LONGEST_ROW), (LONGEST_ROW,))
    total[:d] = _ZERO
    for first in range(0, m, rows):
        count = min(rows, m - first)
        fours = count - count % 4
        some = x[first : first + count]
        _predict(some, theta, slopes)
        if kind == _LOGISTIC:
            for i in range(count):
                slopes[i] = _logistic(slopes[i], y[first + i]) * weights[first + i]
        else:
            for i in range(count):
                slopes[i] = _slope(kind, slopes[i], y[first + i], a, b) * weights[first + i]
        for i in range(0, fours, 4):
            x0, x1, x2, x3 = some[i], some[i + 1], some[i + 2], some[i + 3]
            s0, s1, s2, s3 = slopes[i], slopes[i + 1], slopes[i + 2], slopes[i + 3]
            for j in range(d):
                total[j] += (s0 * x0[j] + s1 * x1[j]) + (s2 * x2[j] + s3 * x3[j])
        for i in range(fours, count):
            x0, s0 = some[i], slopes[i]
            for j in range(d):
                total[j] += s0 * x0[j]
    for j in range(d):
        gradient[j] = total[j]


@njit
def _words(address, count):
    """Read a C structure as words of eight bytes."""
    return carray(_pointer(address), (count,), np.int64)


@njit
def _floats(buffer, count):
    """Return the data of an XLA_FFI_Buffer (data is its fourth word, the shape its sixth)."""
    return carray(_pointer(_words(buffer, 6)[3]), (count,), np.float32)


@cfunc(types.int64(types.int64), cache=True, **_OPTIONS)
def handler(frame):
    """Answer XLA by an XLA_FFI_Handler, version 0.1 of ``xla/ffi/api/c_api.h``; 0 stands for no error.

    Of XLA_FFI_CallFrame's words the second is asked for at registration (a structure whose fourth word points to the
    version), the tenth leads to the arguments and the fifteenth to the results.
    """
    call = _words(frame, 15)
    if call[1] != 0:
        metadata = carray(_pointer(_words(call[1], 4)[3]), (9,), np.int32)
        metadata[6], metadata[7], metadata[8] = 0, 1, 0  # major, minor, no traits
        return 0
    arguments, result = _words(call[9], 7), _words(call[14], 1)[0]
    shape = _words(_words(arguments[0], 6)[5], 2)
    rows, d = shape[0], shape[1]
    features = _floats(arguments[0], rows * d).reshape(rows, d)
    targets, weights = _floats(arguments[1], rows), _floats(arguments[2], rows)
    theta, constants = _floats(arguments[3], d), _floats(arguments[6], 2)
    question = carray(_pointer(_words(arguments[5], 6)[3]), (2,), np.int32)
    kind, first = question[0], np.int64(question[1])
    n = _words(_words(result, 6)[5], 2)[0]
    offsets = _words(_words(arguments[4], 6)[3], first + n + 1)
    gradients = _floats(result, n * d).reshape(n, d)
    for user in range(n):
        own = slice(offsets[first + user], offsets[first + user + 1])
        _sum_user(
            features[own],
            targets[own],
            weights[own],
            theta,
            kind,
            constants[0],
            constants[1],
            gradients[user],
        )
    return 0
