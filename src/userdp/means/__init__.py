"""Private means of one vector per user, one estimator per file, all with the same interface."""

from userdp.means.adaptive_clipped import AdaptiveClippedMean
from userdp.means.bassily_sun import BassilySunMean
from userdp.means.clipped import ClippedMean
from userdp.means.concentrated import ConcentratedMean
from userdp.means.deletion_ptr import DeletionPTR
from userdp.means.friendly_core import FriendlyCoreMean
from userdp.means.interface import MeanRelease
from userdp.means.levy import LevyMean
from userdp.means.private_mean import mean

__all__ = [
    "AdaptiveClippedMean",
    "BassilySunMean",
    "ClippedMean",
    "ConcentratedMean",
    "DeletionPTR",
    "FriendlyCoreMean",
    "LevyMean",
    "MeanRelease",
    "mean",
]
