"""Friends: how many users lie within a radius of each user, exactly.

Two users are friends when ``sqrt(sum((x - y)**2)) <= radius`` in float64; a user is its own friend. On a
lattice (integers carried in float64, :mod:`userdp.means.lattice`) that comparison is exact. The functions
here return what the plain double loop over all pairs would, without ever holding an n x n matrix:

* with e_j = |x_j - c| for any common centre c, blocks of users with e_i + e_j <= radius are all friends and
  blocks with |e_i - e_j| > radius are all strangers (triangle inequality, with a margin for rounding);
* the other blocks take one matrix product each, and pairs too close to the radius for its rounding error are
  compared again by the plain formula.

A null user (a row that is not finite) has no friends and is nobody's friend.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from userdp.arrays import BoolArray, FloatArray, IntArray, SmallIntArray, is_finite
from userdp.errors import InvalidInputError

BLOCK = 1024
# Squares of numbers outside this range overflow or lose digits in float64.
_SAFE_RANGE = (1e-140, 1e140)
# Integers up to this squared norm have exact Gram products: (|x| + |y|)^2 <= 2^52.
_EXACT_SQUARED_NORM = 2.0**50


def friend_counts(vectors: ArrayLike, radius: float) -> IntArray:
    """Count each user's friends, itself included; exact, null users count 0.

    Parameters
    ----------
    vectors : array of shape (n_users, dimension)
        One row per user; a row with a NaN or an infinity is a null user.
    radius : float
        Friends lie at most this far apart; ties count.

    Examples
    --------
    >>> friend_counts([[0.0, 0.0], [3.0, 4.0], [6.0, 8.0], [float("nan"), 0.0]], radius=5.0)
    array([2, 3, 2, 0])
    """
    x = np.asarray(vectors, dtype=np.float64)
    if x.ndim != 2:
        raise InvalidInputError(f"vectors must have shape (n_users, dimension), got {x.shape}")
    if not (is_finite(radius) and radius >= 0):
        raise InvalidInputError(f"radius must be a non-negative number, got {radius!r}")
    present = np.isfinite(x).all(axis=1)
    counts = np.zeros(len(x), np.int64)
    counts[present] = _count(x[present] if not present.all() else x, float(radius))
    return counts


def ramp_numerators(counts: IntArray, lo: int, hi: int) -> IntArray:
    """Return clip(f_j - lo, 0, hi - lo): the ramp weights times hi - lo, as exact integers."""
    if not hi > lo:
        raise InvalidInputError(f"the ramp needs hi > lo, got lo = {lo}, hi = {hi}")
    return np.clip(np.asarray(counts, dtype=np.int64) - lo, 0, hi - lo)


def ramp_weights(counts: IntArray, lo: int, hi: int) -> FloatArray:
    """Return w_j = clip((f_j - lo)/(hi - lo), 0, 1).

    Examples
    --------
    >>> ramp_weights(np.array([4, 5, 6, 7, 8]), lo=5, hi=7)
    array([0. , 0. , 0.5, 1. , 1. ])
    """
    return ramp_numerators(counts, lo, hi) / (hi - lo)


def concentration_index(counts: IntArray) -> int:
    """Return h = max{k : at least k users have at least k friends}, the h-index of the counts.

    **Guarantee**: replacing one user changes h by at most 1 (``docs/proofs/concentrated_mean.md``).

    Examples
    --------
    >>> concentration_index(np.array([4, 4, 3, 3, 0]))
    3
    """
    descending = np.sort(counts)[::-1]
    return int(np.count_nonzero(descending >= np.arange(1, len(descending) + 1)))


def weighted_mean(vectors: ArrayLike, weights: ArrayLike) -> FloatArray:
    """Return sum_j w_j x_j / sum_j w_j, not private; zero where no weight is positive.

    Rows of weight zero are left out, not multiplied, so a null row never reaches the sum.
    """
    x = np.asarray(vectors, dtype=np.float64)
    w = np.asarray(weights, dtype=np.float64)
    kept = w > 0
    total = w[kept].sum()
    return w[kept] @ x[kept] / total if total > 0 else np.zeros(x.shape[1])


def _count(points: FloatArray, radius: float) -> IntArray:
    low, high = _SAFE_RANGE
    with np.errstate(over="ignore", under="ignore"):
        centred = points - _centre(points)
        norms = np.sqrt((centred**2).sum(axis=1))
    if not low < radius < high:
        return _count_plain(points, points, radius)
    near = norms < high
    if near.all():
        return _count_near(points, centred, norms, radius)
    counts = np.empty(len(points), np.int64)
    counts[~near] = _count_plain(points[~near], points, radius)
    counts[near] = _count_near(points[near], centred[near], norms[near], radius)
    counts[near] += _count_plain(points[near], points[~near], radius)
    return counts


def _centre(points: FloatArray) -> FloatArray:
    """Any point near most users will do; the counts do not depend on it."""
    if not len(points):
        return np.zeros(points.shape[1])
    sample = points[:: max(1, len(points) // 128)]
    median: FloatArray = np.partition(sample, len(sample) // 2, axis=0)[len(sample) // 2]
    return median


def _count_plain(rows: FloatArray, columns: FloatArray, radius: float) -> IntArray:
    """Count by the definition, for inputs too extreme for a matrix product."""
    counts = np.zeros(len(rows), np.int64)
    for i, row in enumerate(rows):
        for block in _blocks(len(columns)):
            counts[i] += np.count_nonzero(_are_friends(row, columns[block], radius))
    return counts


def _are_friends(x: FloatArray, y: FloatArray, radius: float) -> BoolArray:
    """Apply the definition of friendship, row by row."""
    with np.errstate(over="ignore", under="ignore"):
        close: BoolArray = np.sqrt(((x - y) ** 2).sum(axis=-1)) <= radius
    return close


def _count_near(points: FloatArray, centred: FloatArray, norms: FloatArray, radius: float) -> IntArray:
    """Count block by block in the order of the norms, using symmetry."""
    n, d = points.shape
    # Bounds the relative rounding error of a norm, of a squared distance, and of the definition itself.
    slack = 8 * (d + 8) * np.finfo(np.float64).eps
    if n == 0 or 2 * norms.max() * (1 + slack) <= radius * (1 - slack):
        return np.full(n, n)

    order = np.argsort(norms, kind="stable")
    norms = norms[order]
    block = _BlockComparison.prepare(points[order], centred[order], norms, radius, slack)
    counts = np.zeros(n, np.int64)
    for rows in _blocks(n):
        for columns in _blocks(n, start=rows.start):
            farthest = norms[rows.stop - 1] + norms[columns.stop - 1]
            gap = norms[columns.start] * (1 - slack) - norms[rows.stop - 1] * (1 + slack)
            if gap > radius * (1 + slack):
                break  # this block and all later ones are strangers
            if farthest * (1 + slack) <= radius * (1 - slack):
                in_rows, in_columns = columns.stop - columns.start, rows.stop - rows.start
            else:
                in_rows, in_columns = block.friends(rows, columns, farthest)
            counts[rows] += in_rows
            if columns.start > rows.start:
                counts[columns] += in_columns
    unsorted = np.empty_like(counts)
    unsorted[order] = counts
    return unsorted


@dataclass(frozen=True)
class _BlockComparison:
    """Friend counts inside a block of pairs by one matrix product.

    left @ right.T = 2<y_i, y_j> - |y_i|^2 - |y_j|^2 = -|y_i - y_j|^2 for centred rows y.
    """

    points: FloatArray
    left: FloatArray
    right: FloatArray
    radius: float
    relative_margin: float

    @classmethod
    def prepare(
        cls, points: FloatArray, centred: FloatArray, norms: FloatArray, radius: float, slack: float
    ) -> "_BlockComparison":
        squares = (centred**2).sum(axis=1, keepdims=True)
        ones = np.ones_like(squares)
        is_exact = (
            norms[-1] ** 2 <= _EXACT_SQUARED_NORM
            and bool((np.abs(points) <= 2.0**53).all())
            and bool((points == np.rint(points)).all())
        )
        return cls(
            points=points,
            left=np.hstack([2 * centred, -squares, ones]),
            right=np.hstack([centred, ones, -squares]),
            radius=radius,
            relative_margin=0.0 if is_exact else slack,
        )

    def friends(self, rows: slice, columns: slice, farthest: float) -> tuple[SmallIntArray, SmallIntArray]:
        """Count friends per row and per column of the block."""
        negated = self.left[rows] @ self.right[columns].T
        limit = _largest_square(self.radius)
        if not self.relative_margin:
            friends = negated >= -limit
        else:
            margin = self.relative_margin * (farthest**2 + limit) + 1e-290
            friends = negated >= margin - limit
            i, j = np.nonzero(~friends & (negated >= -limit - margin))
            for part in _blocks(len(i), size=65536):
                pair = self.points[rows][i[part]], self.points[columns][j[part]]
                friends[i[part], j[part]] = _are_friends(*pair, self.radius)
        # Summed as small integers: five times faster than summing booleans.
        bits = friends.view(np.uint8)
        return bits.sum(axis=1, dtype=np.uint16), bits.sum(axis=0, dtype=np.uint16)


def _largest_square(radius: float) -> float:
    """Return the largest float s with sqrt(s) <= radius, so that squares compare like distances."""
    square = radius * radius
    while math.sqrt(square) > radius:
        square = math.nextafter(square, 0.0)
    while math.sqrt(math.nextafter(square, math.inf)) <= radius:
        square = math.nextafter(square, math.inf)
    return square


def _blocks(n: int, start: int = 0, size: int = BLOCK) -> Iterator[slice]:
    return (slice(i, min(i + size, n)) for i in range(start, n, size))
