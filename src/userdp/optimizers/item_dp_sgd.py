r"""Item-level DP-SGD under group privacy: clip every row's gradient, average over rows, add noise for m rows.

    g_t         = (1/(n m)) (sum over slots of clip(grad l(theta_t; z), C) + noise),
    theta_(t+1) = Proj(theta_t - eta (g_t + ridge theta_t)).

One row moves the sum by 2C, a user's m rows by 2Cm: the noise on the mean is that of sensitivity 2C/n, however many
rows a user has. All rows are used in every round; sampling them would need another analysis.

**Guarantee**: (epsilon, delta)-DP for replacing one user of at most m rows; ``docs/proofs/group_privacy.md``.
"""

from dataclasses import dataclass, replace

import numpy as np

from userdp.arrays import FloatArray
from userdp.data.users import Users
from userdp.engines.local import Objective, local_oracle
from userdp.means.clipped import CalibratedClippedMean
from userdp.means.lattice import Lattice
from userdp.mechanisms.noise import NoiseSource
from userdp.optimizers.dp_sgd import DPSGD, EVERYWHERE, Solution
from userdp.optimizers.items import group_assumption, item_slots
from userdp.privacy.accounting import GaussianEvent, gaussian_scale
from userdp.privacy.budget import Budget
from userdp.privacy.gdp import mu_from_budget
from userdp.problems import Domain
from userdp.problems._checks import count, positive, settle


@dataclass(frozen=True)
class ItemDPSGD:
    """DP-SGD on clipped gradients of single rows; see the module.

    Parameters
    ----------
    rounds, step_size : int, float
        T and eta.
    clip : float
        C, the norm to which a row's gradient is clipped.
    domain : Domain
        Where theta may lie.
    """

    rounds: int
    step_size: float
    clip: float
    domain: Domain = EVERYWHERE

    def __post_init__(self) -> None:
        settle(self, clip=positive("clip", self.clip, "give the norm to clip a row's gradient to"))
        settle(self, rounds=self.sgd.rounds, step_size=self.sgd.step_size)

    @property
    def sgd(self) -> DPSGD:
        """The loop it runs."""
        return DPSGD(self.rounds, self.step_size, self.domain)

    def run(
        self,
        loss: Objective,
        users: Users,
        *,
        max_items: int,
        budget: Budget,
        noise: NoiseSource,
        start: FloatArray | None = None,
        dimension: int | None = None,
    ) -> Solution:
        """Run all rounds; ``max_items`` is m."""
        m = count("max_items", max_items, 1, "declare how many rows a user may have")
        oracle = local_oracle(loss, item_slots(users, m, noise), dimension=dimension)
        mean = grouped_clipped_mean(self.clip, users.n_users, m, oracle.dimension, budget, self.rounds)
        solution = self.sgd.run(oracle, mean, noise, start)
        statement = replace(
            solution.privacy,
            n_users=users.n_users,
            assumptions=(*solution.privacy.assumptions, group_assumption(m)),
        )
        return replace(solution, privacy=statement)


def grouped_clipped_mean(
    clip: float, n_users: int, max_items: int, dimension: int, budget: Budget, rounds: int
) -> CalibratedClippedMean:
    """Return a clipped mean over n m rows whose noise hides any m of them; reads no data."""
    slots = n_users * max_items
    lattice = Lattice.fine_enough(clip, slots, dimension)
    sensitivity = 2.0 * lattice.radius_units * max_items
    scale = gaussian_scale(sensitivity, mu_from_budget(budget.epsilon, budget.delta) * (1 - 1e-12), rounds)
    event = GaussianEvent("clipped rows", sensitivity, scale, dimension, rounds)
    return CalibratedClippedMean(np.zeros(dimension), budget, slots, lattice, event, ())
