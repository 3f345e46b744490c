"""Gradients of users whose rows are float32, or the sixteen bits of a half each.

A user's numbers meet no other user's: one loop over users adds up each one's rows. Sixteen numbers of a row are taken
at a time, and four rows or more; what lies beyond a row's end or beyond the user's last row is read and thrown away, so
behind the rows there must be sixteen more.

All is written with pointers: Numba would count who holds an array, and look for negative indices.
"""

# mypy: ignore-errors

import numpy as np
from numba import njit

from userdp.kernels.lanes import LANES, fma, fold, load, room, spread, store
from userdp.kernels.slopes import OPTIONS, inlined, slope_of

# Sixteen longer rows leave the nearer caches before they are added up, and XLA's kernels are as fast.
LONGEST_ROW = 1024
# So many rows are predicted and then added up while the first cache holds them; of long rows fewer.
_ROWS, _LONG, _FEW_ROWS = LANES, 256, 4
_ZERO = np.float32(0.0)


@inlined
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


@inlined
def _products(x, row, d, theta):
    """Return ``<x, theta>`` of four rows, each in four parts: row k's are in lanes k, k + 4, k + 8 and k + 12.

    One row after the other: memory delivers one stream of numbers faster than several.
    """
    p0, p1 = _product(x, row, d, theta), _product(x, row + 1, d, theta)
    p2, p3 = _product(x, row + 2, d, theta), _product(x, row + 3, d, theta)
    return fold(fold(p0, p1, 1), fold(p2, p3, 1), 2)


@inlined
def _predict(x, first, count, d, theta):
    """Return ``<x, theta>`` of sixteen rows; of the last ones something else, if there are not so many."""
    zero = spread(_ZERO)
    p0 = _products(x, first, d, theta)
    p1 = _products(x, first + 4, d, theta) if count > 4 else zero
    p2 = _products(x, first + 8, d, theta) if count > 8 else zero
    p3 = _products(x, first + 12, d, theta) if count > 12 else zero
    return fold(fold(p0, p1, 4), fold(p2, p3, 4), 8)


@inlined
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


@njit(**OPTIONS)
def sum_users(n, d, x, y, weights, theta, offsets, kind, a, b, gradients):
    """Set n users' gradients to ``sum_k weights_k slope_k x_k``; user u has rows offsets[u] to offsets[u + 1]."""
    slopes, total, point = room(_ROWS), room(LONGEST_ROW), room(LONGEST_ROW)
    for j in range(d + -d % LANES):
        point[j] = theta[j] if j < d else _ZERO
    rows = _ROWS if d <= _LONG else _FEW_ROWS
    for user in range(n):
        start, end = offsets[user], offsets[user + 1]
        for first in range(start, max(end, start + 1), rows):  # once for a user without rows
            count = min(rows, end - first)
            slope = slope_of(kind, _predict(x, first, count, d, point), load(y, first, LANES), a, b)
            store(slopes, 0, LANES, slope * load(weights, first, LANES))
            for j in range(0, d, LANES):
                before = spread(_ZERO) if first == start else load(total, j, LANES)
                after = _add(x, first, count, d, slopes, j, before)
                if first + count == end:
                    store(gradients, user * d + j, d - j, after)
                else:
                    store(total, j, LANES, after)
