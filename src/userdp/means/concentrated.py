"""The mean of concentrated data, certified or as the paper wrote it."""

from dataclasses import dataclass
from typing import Literal

from userdp.errors import InvalidInputError
from userdp.means import certified, paper
from userdp.means.certified import GateName
from userdp.means.interface import CalibratedMean, ReleasesOnce
from userdp.privacy.accounting import Event
from userdp.privacy.budget import Budget


@dataclass(frozen=True)
class ConcentratedMean(ReleasesOnce):
    """Outlier-removal mean: the noise follows how close users are to each other, not where they are.

    Parameters
    ----------
    radius : float
        Users within this distance of each other are friends (the certified mean); the paper's tau, which
        it uses once for its score and doubled for its friends (``calibration="paper"``). Public.
    calibration : {"certified", "paper"}
        ``"certified"``: every constant proven (:mod:`userdp.means.certified`). ``"paper"``: Algorithm 2 to
        the letter (:mod:`userdp.means.paper`); its results say that they are not certified.
    gate : {"deferred", "one-sided", "gaussian"}
        Certified only. ``"deferred"``: nothing leaves before the last round, any number of rounds costs
        the same. ``"one-sided"``: every answer leaves at once. ``"gaussian"``: likewise, and the noise
        adapts to the concentration it finds; cheapest for a single round.
    agreement : float
        Certified only: the share of the users expected to be within ``radius`` of as large a share.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(1e6, 0.1, size=(1000, 3))   # far away, and close together
    >>> release = ConcentratedMean(radius=1.0).release(x, epsilon=1.0, delta=1e-6, random_state=0)
    >>> bool(abs(release.value - 1e6).max() < 0.05), release.privacy.certified
    (True, True)
    """

    radius: float
    calibration: Literal["certified", "paper"] = "certified"
    gate: GateName = "gaussian"
    agreement: float = 1.0

    def calibrate(
        self, n_users: int, dimension: int, budget: Budget, rounds: int = 1, beside: tuple[Event, ...] = ()
    ) -> CalibratedMean:
        """Set gate and noise for ``rounds`` adaptive queries; reads no data."""
        match self.calibration:
            case "certified":
                return certified.calibrate(
                    self.radius,
                    n_users,
                    dimension,
                    budget,
                    gate=self.gate,
                    rounds=rounds,
                    agreement=self.agreement,
                    beside=beside,
                )
            case "paper":
                if beside:
                    raise InvalidInputError("the paper's calibration does not compose with other parts")
                return paper.calibrate(self.radius, n_users, dimension, budget, rounds)
        raise InvalidInputError(f'calibration must be "certified" or "paper", got {self.calibration!r}')
