"""Algorithms 3 and 4: they take numbers and a private mean, and never see epsilon."""

from userdp.optimizers.checkpoint import Checkpoint
from userdp.optimizers.dp_sgd import DPSGD, Solution
from userdp.optimizers.localization import Localization, Phase

__all__ = ["DPSGD", "Checkpoint", "Localization", "Phase", "Solution"]
