r"""Algorithm 4 of Asi & Liu (2023): phases of DP-SGD on disjoint users, each starting where the last one ended.

A strongly convex loss pulls the answer of a phase close to the optimum, so the next phase may take smaller
steps. Phase i has its own users, so all phases together cost what one of them costs.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from userdp.arrays import FloatArray, IntArray
from userdp.engines.local import GradientOracle
from userdp.errors import InvalidInputError
from userdp.means.interface import CalibratedMean
from userdp.mechanisms.noise import NoiseSource
from userdp.optimizers.dp_sgd import DPSGD, Solution


@dataclass(frozen=True)
class Phase:
    """One phase: how many users it takes, its optimizer, and its private mean (calibrated for those users)."""

    n_users: int
    optimizer: DPSGD
    mean: CalibratedMean


@dataclass(frozen=True)
class Localization:
    """A sequence of phases on disjoint, randomly chosen users.

    **Guarantee**: the largest of its phases' guarantees: a user sits in one phase only, and what later phases do
    with its answer is post-processing (``docs/proofs/localization.md``).
    """

    phases: Sequence[Phase]

    def __post_init__(self) -> None:
        if not self.phases:
            raise InvalidInputError("Localization needs at least one phase")

    def run(
        self,
        oracle_of: Callable[[IntArray], GradientOracle],
        n_users: int,
        noise: NoiseSource,
        start: FloatArray | None = None,
    ) -> Solution:
        """Run the phases; ``oracle_of`` lays out a chosen set of users.

        Users beyond the phases' total are left out.
        """
        needed = sum(phase.n_users for phase in self.phases)
        if needed > n_users:
            raise InvalidInputError(f"the phases take {needed} users, there are {n_users}")
        order = noise.permutation(n_users)
        solution = None
        for phase in self.phases:
            chosen, order = order[: phase.n_users], order[phase.n_users :]
            point = start if solution is None else solution.point
            solution = phase.optimizer.run(oracle_of(chosen), phase.mean, noise, point)
            if solution.halted:
                break
        assert solution is not None
        return solution
