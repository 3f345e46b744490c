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
class Adjustable:
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

    def directions(
        self, way: FloatArray, gradient: FloatArray, curvature: float
    ) -> tuple[FloatArray, FloatArray]:
        """Return a row for each number, where it leads, and by how much of each the ``way`` went.

        A length leads along the way apart from intercepts. Where features are correlated the loss is steeper there than
        its ``curvature`` along the predictor says: the ``gradient`` at the start tells by how much, if the way ends
        about where it should, and the direction is the shorter for it, so that all have the same curvature.
        """
        places = np.flatnonzero(self.intercepts)
        rows = np.zeros((len(places), len(way)))
        rows[np.arange(len(places)), places] = 1.0
        if not self.is_classification:
            return rows, way[places]
        slopes = np.where(self.intercepts, 0.0, way)
        squares = max(float(slopes @ slopes), 1e-100)
        steepness = max(-float(gradient @ slopes) / (squares * curvature), 1.0)
        size = float(np.sqrt(squares * steepness))
        return np.vstack([slopes / size, rows]), np.append(size, way[places])


def calibrate(
    adjustable: Adjustable,
    oracle: Oracle,
    start: FloatArray,
    point: FloatArray,
    gradient: FloatArray,
    *,
    effective_users: float,
    ratio: float,
    typical: float,
    curvature: float,
    mu: float,
    noise: NoiseSource,
) -> tuple[FloatArray, float]:
    """Return the point with length and intercepts as they are believed to be best; and its length over the one before.

    Parameters
    ----------
    start, point : array of shape (k,)
        Where the descent began, and where it led.
    gradient : array of shape (k,)
        The mean gradient at the start, up to noise.
    ratio : float
        Where it clipped gradients, over their typical norm.
    typical : float
        Size of a typical gradient by coordinate.
    mu : float
        Of each time that users are asked; 0 if they are not.

    **Guarantee**: that of TIMES_ASKED events :func:`~userdp.estimators.gradients.slopes_event`.
    """
    directions, along = adjustable.directions(point - start, gradient, curvature)
    size = float(along[0]) if adjustable.is_classification else None
    rest = point - along @ directions
    belief = Belief.before(
        size, along[int(adjustable.is_classification) :], ratio, adjustable.is_classification
    )
    radius = calibration_radius(
        effective_users, typical, adjustable.count, adjustable.is_classification, adjustable.log_odds
    )
    for _ in range(TIMES_ASKED if mu else 0):
        there = rest + belief.point @ directions
        found = private_slopes(oracle, there, directions, radius, mu, noise)
        belief = belief.after(belief.point - found.value / curvature, found.noise_std / curvature)
    length = float(belief.point[0]) / size if size else 1.0
    return rest + belief.point @ directions, length
