"""The library's own means under attack."""

from collections.abc import Callable
from dataclasses import dataclass

from userdp.audit.attack import lower_bound, neighbours, outputs
from userdp.errors import InvalidInputError
from userdp.means import ClippedMean, ConcentratedMean
from userdp.means.interface import MeanEstimator
from userdp.mechanisms.noise import SeededNoise
from userdp.privacy.budget import Budget

N_USERS = 300

MECHANISMS: dict[str, MeanEstimator] = {
    "clipped mean": ClippedMean(1.0),
    "certified mean, Gaussian gate": ConcentratedMean(1.0, gate="gaussian"),
    "certified mean, deferred gate": ConcentratedMean(1.0, gate="deferred"),
    "certified mean, one-sided gate": ConcentratedMean(1.0, gate="one-sided"),
}


@dataclass(frozen=True)
class Audit:
    """What an attack could prove about one mechanism.

    Attributes
    ----------
    mechanism : str
        A name of ``MECHANISMS``.
    claimed, proven : float
        The mechanism's epsilon, and the lower bound that the attack found.
    """

    mechanism: str
    claimed: float
    proven: float

    @property
    def holds(self) -> bool:
        """Whether the attack stayed below the claim."""
        return self.proven <= self.claimed


def audit(
    mechanism: str,
    budget: Budget,
    trials: int,
    *,
    n_users: int = N_USERS,
    seed: int = 0,
    after_trial: Callable[[], None] = lambda: None,
) -> Audit:
    """Attack one mechanism on its worst neighbours, ``trials`` times a side.

    Examples
    --------
    >>> audit("clipped mean", Budget(1.0, 1e-3), trials=500).holds
    True
    """
    if mechanism not in MECHANISMS:
        raise InvalidInputError(f"there is no mechanism {mechanism!r}; expected one of {list(MECHANISMS)}")
    if trials < 2:
        raise InvalidInputError(f"an attack needs at least 2 trials a side, got {trials}")
    calibrated = MECHANISMS[mechanism].calibrate(n_users, 1, budget)
    one, other = (
        outputs(calibrated, vectors, trials, SeededNoise(seed + side), after_trial)
        for side, vectors in enumerate(neighbours(n_users))
    )
    return Audit(mechanism, budget.epsilon, lower_bound(one, other, budget.delta))
