r"""Algorithm 4 of Asi & Liu (2023): phases of DP-SGD on disjoint users, each starting where the last one ended.

A strongly convex loss pulls the answer of a phase close to the optimum, so the next phase may take smaller
steps. Phase i has its own users, so all phases together cost what one of them costs.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from userdp.arrays import FloatArray, IntArray
from userdp.engines.interface import Oracle
from userdp.errors import InvalidInputError
from userdp.means.interface import CalibratedMean
from userdp.mechanisms.noise import NoiseSource
from userdp.optimizers.dp_sgd import DPSGD, Solution
from userdp.optimizers.rounds import Progress
from userdp.privacy.statement import PrivacyStatement


@dataclass(frozen=True)
class Phase:
    """One phase: how many users it takes, its optimizer, and its private mean (calibrated for those users).

    A positive ``pull`` adds (pull/2)|theta - theta_0|^2 to the loss, theta_0 being where the phase starts.
    """

    n_users: int
    optimizer: DPSGD
    mean: CalibratedMean
    pull: float = 0.0


@dataclass(frozen=True)
class Localization:
    """A sequence of phases on disjoint, randomly chosen users.

    **Guarantee**: the largest of its phases' guarantees: a user sits in one phase only, and what later phases do
    with its answer is post-processing (``docs/proofs/localization.md``).
    **Assumes**: each phase's mean is calibrated for that phase's number of users.
    """

    phases: Sequence[Phase]

    def __post_init__(self) -> None:
        if not self.phases:
            raise InvalidInputError("Localization needs at least one phase")

    def run(
        self,
        oracle_of: Callable[[int, IntArray], Oracle],
        n_users: int,
        noise: NoiseSource,
        start: FloatArray | None = None,
        progress_of: Callable[[], Progress | None] = lambda: None,
    ) -> Solution:
        """Run the phases; ``oracle_of(i, chosen)`` lays out the users chosen for phase i (from 0).

        ``progress_of()`` says where the next phase keeps its rounds, if it does.

        Users beyond the phases' total are left out. A phase that halts ends the run: the answer is the point it
        started from. A phase whose gate refuses raises, and nothing is released.
        """
        needed = sum(phase.n_users for phase in self.phases)
        if needed > n_users:
            raise InvalidInputError(f"the phases take {needed} users, there are {n_users}")
        order = noise.permutation(n_users)
        statements: list[PrivacyStatement] = []
        point, halted = start, False
        for i, phase in enumerate(self.phases):
            chosen, order = order[: phase.n_users], order[phase.n_users :]
            oracle, progress = pulled(oracle_of(i, chosen), phase.pull, point), progress_of()
            solution = phase.optimizer.run(oracle, phase.mean, noise, point, progress)
            statements.append(solution.privacy)
            point, halted = solution.point, solution.halted
            if halted:
                break
        assert point is not None
        return Solution(point, _in_parallel(statements, n_users), halted)


def pulled(oracle: Oracle, pull: float, point: FloatArray | None) -> Oracle:
    """Add (pull/2)|theta - point|^2 to the oracle's public term; the origin where there is no point."""
    ridge = oracle.ridge + pull
    if pull == 0:
        return oracle
    old = np.zeros(oracle.dimension) if oracle.ridge_centre is None else oracle.ridge_centre
    new = np.zeros(oracle.dimension) if point is None else point
    return replace(oracle, ridge=ridge, ridge_centre=(oracle.ridge * old + pull * new) / ridge)


def _in_parallel(statements: Sequence[PrivacyStatement], n_users: int) -> PrivacyStatement:
    """State the guarantee of phases on disjoint users: the largest epsilon and the largest delta among them.

    What was spent is that of the phase with the largest epsilon, the last one among equals: nobody bears more.
    """
    costliest = max(reversed(statements), key=lambda statement: statement.epsilon)
    phases = f"{len(statements)} phases on disjoint users chosen at random, each user in at most one of them"
    return replace(
        costliest,
        delta=max(statement.delta for statement in statements),
        mu=max(statement.mu for statement in statements),
        assumptions=(*costliest.assumptions, phases) if len(statements) > 1 else costliest.assumptions,
        certified=all(statement.certified for statement in statements),
        n_users=n_users,
    )
