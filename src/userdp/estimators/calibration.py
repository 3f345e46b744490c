"""The last stage of a fit: how long its coefficients ought to be, and where its intercepts.

Proof: ``docs/proofs/stages.md``.
"""

from dataclasses import dataclass

import numpy as np

from userdp.arrays import BoolArray, FloatArray
from userdp.engines.interface import Oracle
from userdp.estimators.gradients import private_slopes
from userdp.mechanisms.noise import NoiseSource
from userdp.planning.calibration import TIMES_ASKED, Belief, calibration_radius


@dataclass(frozen=True)
class Numbers:
    """What is calibrated: the intercepts, and of a classifier the length of all other coefficients.

    Attributes
    ----------
    intercepts : array of bool of shape (k,)
        Which coordinates are intercepts.
    is_classification : bool
    log_odds : float
        Of two classes at the start; else 0.
    """

    intercepts: BoolArray
    is_classification: bool
    log_odds: float = 0.0

    @property
    def count(self) -> int:
        """How many numbers there are."""
        return int(self.intercepts.sum()) + self.is_classification

    def directions(self, way: FloatArray) -> FloatArray:
        """Return a row for each number: where it leads; a length leads along the ``way`` apart from intercepts."""
        rows = np.eye(len(way))[self.intercepts]
        if not self.is_classification:
            return rows
        slopes = np.where(self.intercepts, 0.0, way)
        size = float(np.sqrt(slopes @ slopes))
        return np.vstack([slopes / size if size else slopes, rows])


def calibrate(
    numbers: Numbers,
    oracle: Oracle,
    start: FloatArray,
    point: FloatArray,
    *,
    effective_users: float,
    ratio: float,
    typical: float,
    curvature: float,
    mu: float,
    noise: NoiseSource,
) -> FloatArray:
    """Return the point with its length and intercepts as they are believed to be best.

    Parameters
    ----------
    start, point : array of shape (k,)
        Where the descent began, and where it led.
    ratio : float
        Where it clipped gradients, over their typical norm.
    typical : float
        Size of a typical gradient by coordinate.
    mu : float
        Of all times that users are asked; 0 if they are not.

    **Guarantee**: that of TIMES_ASKED events :func:`~userdp.estimators.gradients.slopes_event`.
    """
    way = point - start
    directions = numbers.directions(way)
    along = directions @ way
    size = float(along[0]) if numbers.is_classification else None
    rest = point - along @ directions
    belief = Belief.before(size, along[int(numbers.is_classification) :], ratio, numbers.is_classification)
    radius = calibration_radius(
        effective_users, typical, numbers.count, numbers.is_classification, numbers.log_odds
    )
    for _ in range(TIMES_ASKED if mu else 0):
        there = rest + belief.point @ directions
        found = private_slopes(oracle, there, directions, radius, mu / TIMES_ASKED**0.5, noise)
        belief = belief.after(belief.point - found.value / curvature, found.noise_std / curvature)
    answer: FloatArray = rest + belief.point @ directions
    return answer
