"""Algorithms 3 and 4, which take numbers and a private mean and never see epsilon; and what they are compared with."""

from userdp.optimizers.checkpoint import Checkpoint
from userdp.optimizers.dp_sgd import DPSGD, Solution
from userdp.optimizers.item_dp_sgd import ItemDPSGD
from userdp.optimizers.localization import Localization, Phase
from userdp.optimizers.localized_sgd import LocalizedSGD
from userdp.optimizers.phased_erm import PhasedERM

__all__ = [
    "DPSGD",
    "Checkpoint",
    "ItemDPSGD",
    "Localization",
    "LocalizedSGD",
    "Phase",
    "PhasedERM",
    "Solution",
]
