r"""Phased ERM, the driver of Levy et al. (2021) after Feldman, Koren & Talwar (2020).

Phase i = 1, ..., k has n_i = floor(n/2^i) users of its own and minimises, by DP-SGD on their private mean gradients,

    average loss of its users + (lambda_i/2) |theta - theta_(i-1)|^2,     lambda_i = 8^(i-1) lambda_1,

which is the paper's 1/(eta_i n_i) |theta - theta_(i-1)|^2 with eta_i = eta/4^i. Its steps are 1/(beta + lambda_i).
"""

from dataclasses import dataclass

from userdp.errors import TooFewUsersError
from userdp.means.interface import MeanEstimator
from userdp.optimizers.dp_sgd import DPSGD, EVERYWHERE
from userdp.optimizers.localization import Localization, Phase
from userdp.privacy.budget import Budget
from userdp.problems import Domain
from userdp.problems._checks import count, nonnegative, positive, settle


@dataclass(frozen=True)
class PhasedERM:
    """Phases of regularised DP-SGD on disjoint users, with any private mean.

    **Guarantee**: that of a phase, since a user sits in one phase only (``docs/proofs/localization.md``).

    Parameters
    ----------
    rounds : int
        Private means in each phase.
    smoothness : float
        beta of the loss.
    pull : float
        lambda_1; of the order of the excess risk hoped for over the squared distance to the optimum.
    phases : int
        k. The paper takes log2(n); a private mean soon refuses so few users, and its noise needs no more than a few.
    domain : Domain
        Where theta may lie.

    Examples
    --------
    >>> import numpy as np, userdp
    >>> from userdp.data import Users
    >>> z = np.random.default_rng(0).normal(0.5, 0.1, size=(4000, 2))
    >>> solution = userdp.minimize(
    ...     userdp.problems.SquaredDistance(), Users.from_rows(z, np.arange(4000)),
    ...     optimizer=PhasedERM(rounds=5, smoothness=1.0, pull=0.1),
    ...     mean=userdp.means.LevyMean(radius=1.0, bound=4.0), epsilon=4.0, delta=1e-6, random_state=0,
    ... )
    >>> bool(abs(solution.point - 0.5).max() < 0.3), solution.privacy.certified
    (True, True)
    """

    rounds: int
    smoothness: float
    pull: float
    phases: int = 2
    domain: Domain = EVERYWHERE

    def __post_init__(self) -> None:
        settle(
            self,
            rounds=count("rounds", self.rounds, 1, "say how many private means a phase asks for"),
            phases=count("phases", self.phases, 1, "one phase is DP-SGD on half of the users"),
            smoothness=nonnegative("smoothness", self.smoothness, "phased ERM needs a smooth loss"),
            pull=positive("pull", self.pull, "give lambda_1"),
        )
        positive("smoothness + pull", self.smoothness + self.pull, "phased ERM needs a smooth loss")

    def localization(self, mean: MeanEstimator, n_users: int, dimension: int, budget: Budget) -> Localization:
        """Calibrate the mean of each phase for its users; reads no data.

        Raises
        ------
        TooFewUsersError
            From the last phase, which has the fewest users.
        """
        if n_users < 2**self.phases:
            raise TooFewUsersError(
                f"{n_users} users cannot be halved {self.phases} times; use at least {2**self.phases}, or fewer phases"
            )
        phases = []
        for i in range(1, self.phases + 1):
            n, pull = n_users // 2**i, self.pull * 8 ** (i - 1)
            optimizer = DPSGD(self.rounds, 1 / (self.smoothness + pull), self.domain, averaged_share=0.5)
            calibrated = mean.calibrate(n, dimension, budget, self.rounds)
            phases.append(Phase(n, optimizer, calibrated, pull))
        return Localization(phases)
