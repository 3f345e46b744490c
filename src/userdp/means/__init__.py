"""Private means of one vector per user, one estimator per file, all with the same interface."""

from userdp.means.clipped import ClippedMean
from userdp.means.concentrated import ConcentratedMean
from userdp.means.interface import MeanRelease
from userdp.means.private_mean import mean

__all__ = ["ClippedMean", "ConcentratedMean", "MeanRelease", "mean"]
