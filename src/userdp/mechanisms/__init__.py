"""Noise on a lattice, thresholds, gates and private quantiles: what a guarantee is made of."""

from userdp.mechanisms.above_threshold import AboveThreshold, OneSidedAboveThreshold
from userdp.mechanisms.gates import DeferredGate, GaussianGate
from userdp.mechanisms.noise import NoiseSource, SecureNoise, SeededNoise
from userdp.mechanisms.quantile import private_quantile

__all__ = [
    "AboveThreshold",
    "DeferredGate",
    "GaussianGate",
    "NoiseSource",
    "OneSidedAboveThreshold",
    "SecureNoise",
    "SeededNoise",
    "private_quantile",
]
