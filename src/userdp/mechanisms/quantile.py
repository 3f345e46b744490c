"""A private quantile over public candidates."""

import math

import numpy as np

from userdp.arrays import FloatArray
from userdp.errors import InvalidInputError
from userdp.mechanisms.noise import NoiseSource, laplace_scale

# Powers of 2^(1/4) from 2^-64 to 2^64: wide enough that nobody has to give a range.
GEOMETRIC_GRID = 2.0 ** (np.arange(-256, 257) / 4)


def private_quantile(
    values: FloatArray,
    quantile: float,
    epsilon: float,
    noise: NoiseSource,
    candidates: FloatArray = GEOMETRIC_GRID,
) -> float:
    """Pick the candidate whose bin holds the value of a rank; the bin of c_i is (c_(i-1), c_i].

    With F(c) = #{v <= c} and rank = ceil(quantile * number of values), NaN left out of both, candidate c_i
    scores minus the distance of rank from the interval [F(c_(i-1)), F(c_i)]: integers of sensitivity 1 when
    one value is replaced, also by or from a NaN. The winner has the largest score + G, with fresh geometric
    G of scale 2/epsilon; ties go to the smallest candidate (report-noisy-max with one-sided noise:
    ``docs/proofs/quantile.md``).

    **Guarantee**: (epsilon, 0)-DP when neighbours differ in one value, whatever the values (NaN is null).
    **Error**: with probability 1 - beta the rank is off by at most (2/epsilon) log(candidates/beta), plus the
    best candidate's own error.

    Examples
    --------
    >>> from userdp.mechanisms.noise import SeededNoise
    >>> private_quantile(np.full(1000, 4.0), quantile=0.5, epsilon=1.0, noise=SeededNoise(0))
    4.0
    """
    if not 0 <= quantile <= 1:
        raise InvalidInputError(f"quantile must lie in [0, 1], got {quantile!r}")
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise InvalidInputError(f"epsilon must be a positive number, got {epsilon!r}")
    ordered = np.sort(values[~np.isnan(values)])
    at_or_below = np.searchsorted(ordered, candidates, side="right")
    below = np.concatenate([[0], at_or_below[:-1]])
    rank = math.ceil(quantile * len(ordered))
    score = -np.maximum(below - rank, 0) - np.maximum(rank - at_or_below, 0)
    return float(candidates[np.argmax(score + noise.geometric(laplace_scale(2, epsilon), len(candidates)))])
