"""Derivatives of the losses that the compiled kernels serve, of sixteen predictions at a time."""

# mypy: ignore-errors

import numpy as np
from numba import njit

from userdp.kernels.lanes import power_of_two, rint, spread, where_less

_LOGISTIC, _HINGE, _SQUARED_HINGE, _SQUARED, _ABSOLUTE, _PINBALL, _HUBER, _POISSON = range(8)

# Products may be fused with sums; infinities and NaN are respected.
OPTIONS = {"fastmath": {"contract", "nsz"}, "error_model": "numpy"}
inlined = njit(forceinline=True, **OPTIONS)
_ZERO, _HALF, _ONE, _TWO, _INFINITY = np.float32([0.0, 0.5, 1.0, 2.0, np.inf])


@inlined
def exp(x):
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


@inlined
def _step(u):
    """Return 0, 1/2, 1 for u below, at and above 0; NaN for NaN."""
    zero = spread(_ZERO)
    return where_less(zero, u, spread(_ONE), where_less(u, zero, zero, u + _HALF))


@inlined
def _clip(u, low, high):
    low, high = spread(low), spread(high)
    return where_less(u, low, low, where_less(high, u, high, u))


@inlined
def _logistic(p, y):
    zero = spread(_ZERO)
    e = exp(where_less(p, zero, p, zero - p))
    large = _ONE / (_ONE + e)
    small = e * large
    up, down = where_less(p, zero, small, large), where_less(p, zero, large, small)
    return (_ONE - y) * up - y * down


@inlined
def slope_of(kind, p, y, a, b):
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
        return exp(_clip(p, -_INFINITY, a)) - _clip(y, _ZERO, b)
    return p - y
