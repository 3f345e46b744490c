"""Attack a mechanism: choose its worst pair, run it many times on both tables, bound epsilon from below."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass

from userdp.audit.attack import lower_bound, outputs
from userdp.audit.mechanisms import MECHANISMS, N_USERS
from userdp.audit.pairs import Pair
from userdp.audit.target import Target
from userdp.errors import InvalidInputError, PrivacyWarning
from userdp.mechanisms.noise import SeededNoise
from userdp.privacy.budget import Budget

# Where the exact epsilon of a pair is not known, so many of the trials are spent on choosing one.
_PILOT_SHARE = 10
_FEWEST_TRIALS = 2


@dataclass(frozen=True)
class Audit:
    """What an attack could prove about one mechanism.

    Attributes
    ----------
    mechanism : str
        A name of ``MECHANISMS``.
    pair : str
        The neighbouring inputs it was attacked on, the worst of those tried.
    claimed, delta : float
        The mechanism's epsilon and delta.
    proven : float
        The lower bound on epsilon that the attack found.
    exact : float or None
        The exact epsilon on that pair, where it can be computed.
    trials : int
        Runs a side.
    certified : bool
        Whether the library stands for the claim; the paper's own are studied, not promised.
    """

    mechanism: str
    pair: str
    claimed: float
    delta: float
    proven: float
    exact: float | None
    trials: int
    certified: bool = True

    @property
    def holds(self) -> bool:
        """Whether the attack, and the exact epsilon where it is known, stayed below the claim."""
        return max(self.proven, self.exact or 0.0) <= self.claimed


def audit(
    mechanism: str,
    budget: Budget,
    trials: int,
    *,
    n_users: int = N_USERS,
    seed: int = 0,
    after_trial: Callable[[], None] = lambda: None,
) -> Audit:
    """Attack one mechanism on its worst neighbours, ``trials`` times a side (fewer for slow mechanisms).

    Examples
    --------
    >>> audit("clipped mean", Budget(1.0, 1e-3), trials=500).holds
    True
    """
    if mechanism not in MECHANISMS:
        raise InvalidInputError(f"there is no mechanism {mechanism!r}; expected one of {list(MECHANISMS)}")
    if trials < _FEWEST_TRIALS:
        raise InvalidInputError(f"an attack needs at least 2 trials a side, got {trials}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)  # a weak claim is easier to attack, on purpose
        target = MECHANISMS[mechanism](budget, n_users)
        pair = worst_pair(target, trials, seed)
        return attack(mechanism, target, pair, trials, seed, after_trial)


def attack(
    name: str,
    target: Target,
    pair: Pair,
    trials: int,
    seed: int,
    after_trial: Callable[[], None] = lambda: None,
) -> Audit:
    """Attack a mechanism on one pair."""
    runs = runs_of(target, trials)
    one, other = (
        outputs(target.once, side, runs, SeededNoise([seed, number]), after_trial)
        for number, side in enumerate((pair.one, pair.other))
    )
    if target.evidence is not None:
        one, other = target.evidence(pair, one), target.evidence(pair, other)
    exact = None if target.exact is None else target.exact(pair)
    proven = lower_bound(one, other, target.delta)
    return Audit(name, pair.name, target.epsilon, target.delta, proven, exact, runs, target.certified)


def runs_of(target: Target, trials: int) -> int:
    """How many runs a side an attack makes."""
    return max(_FEWEST_TRIALS, trials // target.cost)


def worst_pair(target: Target, trials: int, seed: int) -> Pair:
    """Return the pair with the largest exact epsilon, or the one on which a short attack proves most."""
    if len(target.pairs) == 1:
        return target.pairs[0]
    if target.exact is not None:
        return max(target.pairs, key=target.exact)
    runs = max(_FEWEST_TRIALS, runs_of(target, trials) // _PILOT_SHARE)

    def found(number: int) -> float:
        sides = [
            outputs(target.once, side, runs, SeededNoise([seed, 2 + number, k]))
            for k, side in enumerate((target.pairs[number].one, target.pairs[number].other))
        ]
        return lower_bound(sides[0], sides[1], target.delta, confidence=0.5)

    return target.pairs[max(range(len(target.pairs)), key=found)]
