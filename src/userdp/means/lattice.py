"""The public lattice on which users' vectors and answers live, so that sums are exact.

A user's vector is rounded to multiples of ``step`` by itself, so it is bit for bit a function of that user
alone. From there on everything is integer arithmetic: distances, friend counts and the weighted sum carry
no rounding error. The mean, a ratio of integers, is rounded once to a lattice ``2**answer_bits`` times finer,
which adds sqrt(dimension) answer units to its sensitivity. Proofs: ``docs/proofs/lattice.md``.
"""

import math
from dataclasses import dataclass

import numpy as np

from userdp.arrays import FloatArray, IntArray, is_finite
from userdp.errors import InvalidInputError

COORDINATE_LIMIT = 2.0**52
# The radius is at least 2^12 sqrt(dimension) steps: rounding moves a vector by no more than radius / 2^13.
_RADIUS_BITS = 12
# Squared distances up to four radii stay below 2^53.
_MAX_RADIUS_BITS = 25
_ANSWER_BITS = 24
_MIN_ANSWER_BITS = 14
_INT64_BITS = 62


@dataclass(frozen=True)
class Lattice:
    """Integer coordinates for vectors whose friends lie within ``radius``.

    Use :meth:`fine_enough` to choose the bits.

    Parameters
    ----------
    radius : float
        The friend radius; exactly ``2**radius_bits`` steps.
    dimension : int
        Coordinates per vector.
    radius_bits, answer_bits : int
        Resolution of the users' vectors, and the further refinement of the answer.
    """

    radius: float
    dimension: int
    radius_bits: int
    answer_bits: int

    @classmethod
    def fine_enough(cls, radius: float, n_users: int, dimension: int) -> "Lattice":
        """Choose a lattice whose rounding is negligible and whose integer sums fit 64 bits."""
        if not (is_finite(radius) and 1e-140 < radius < 1e140):
            raise InvalidInputError(f"radius must be a positive number (1e-140 to 1e140), got {radius!r}")
        if dimension < 1:
            raise InvalidInputError(f"vectors need at least one coordinate, got {dimension}")
        radius_bits = _RADIUS_BITS + math.ceil(math.log2(dimension) / 2)
        total_weight_bits = (n_users * n_users // 2).bit_length()
        answer_bits = min(_ANSWER_BITS, _INT64_BITS - total_weight_bits)
        too_fine = radius_bits > _MAX_RADIUS_BITS or radius_bits + 1 + total_weight_bits > _INT64_BITS
        if too_fine or answer_bits < _MIN_ANSWER_BITS:
            raise InvalidInputError(
                f"{n_users:,} users in dimension {dimension:,} do not fit exact 64-bit sums; "
                "average fixed random groups of users first"
            )
        return cls(radius, dimension, radius_bits, answer_bits)

    @property
    def step(self) -> float:
        """Distance between neighbouring values of a coordinate."""
        return math.ldexp(self.radius, -self.radius_bits)

    @property
    def radius_units(self) -> int:
        """The friend radius in steps."""
        return 1 << self.radius_bits

    @property
    def answer_step(self) -> float:
        """Distance between neighbouring values of an answer's coordinate."""
        return math.ldexp(self.step, -self.answer_bits)

    def answer_sensitivity(self, sensitivity_over_radius: float) -> float:
        """Sensitivity of the rounded answer, in answer units, from that of the exact mean in radii."""
        exact = math.ldexp(sensitivity_over_radius, self.radius_bits + self.answer_bits)
        return (exact + math.sqrt(self.dimension)) * (1 + 1e-12)

    def round(self, vectors: FloatArray) -> FloatArray:
        """Round to integers carried in float64; a row that is not finite or out of range becomes NaN."""
        with np.errstate(all="ignore"):
            units = np.rint(vectors / self.step)
            usable = (np.abs(units) <= COORDINATE_LIMIT).all(axis=1, keepdims=True)
        return np.where(usable, units, np.nan)

    def mean(self, units: FloatArray, weights: IntArray) -> tuple[IntArray, IntArray]:
        """Return the weighted mean as (whole units, answer units beyond them); zero for zero weight.

        Rows of positive weight must lie within two radii of each other, as friends of a majority do.
        """
        kept = np.flatnonzero(weights)
        if not kept.size:
            return np.zeros(self.dimension, np.int64), np.zeros(self.dimension, np.int64)
        origin = units[kept[0]]
        largest = int(weights.max())
        # Partial sums stay below 2^53, so float64 products are exact in any order.
        rows = max(1, 2**53 // (largest * 2 * self.radius_units))
        total = np.zeros(self.dimension, np.int64)
        for part in (kept[i : i + rows] for i in range(0, kept.size, rows)):
            total += (weights[part].astype(np.float64) @ (units[part] - origin)).astype(np.int64)
        return self.ratio(origin.astype(np.int64), total, int(weights[kept].sum()))

    def ratio(self, origin: IntArray, total: IntArray, weight: int) -> tuple[IntArray, IntArray]:
        """Return origin + total/weight as (whole units, answer units beyond them), the same for any origin."""
        whole, rest = np.divmod(total, weight)
        fraction = ((rest << self.answer_bits) + weight // 2) // weight
        return origin + whole, fraction

    def value(self, whole: IntArray, answer_units: IntArray) -> FloatArray:
        """Turn a noisy integer answer into floats: a function of whole * 2^answer_bits + answer_units alone.

        Whole units are carried first, so both terms are exact in float64 and their sum is the correctly
        rounded value of that integer.
        """
        carry, rest = np.divmod(answer_units, 1 << self.answer_bits)
        return ((whole + carry) + rest / 2.0**self.answer_bits) * self.step
