"""What a method is, and the DP-SGD that all private means share."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import userdp
from benchmarks.tasks import DELTA, Task
from userdp.means.interface import MeanEstimator
from userdp.mechanisms import SeededNoise
from userdp.optimizers import DPSGD, Solution
from userdp.privacy import Budget


@dataclass(frozen=True)
class Method:
    """One system: its name in tables, what it needs by its authors' word, and how it solves a task.

    ``certified`` says whether its guarantee is proven here with every constant; ``claimed`` whether its authors' own
    conditions on n and epsilon hold for so many rounds, where they name any.
    """

    label: str
    needs: str
    solve: Callable[[Task, int], Solution]
    certified: bool = True
    claimed: Callable[[int, float, int], bool] = lambda n, epsilon, rounds: True


def dp_sgd(task: Task, mean: MeanEstimator, seed: int, noise_std: float | None = None) -> Solution:
    """Run DP-SGD with a private mean; the step is the same formula of public numbers for every mean.

    eta = min(1/beta, R/(sigma sqrt(d T))), sigma the noise of one answer per coordinate. One round takes a full step.
    """
    size, T = task.size, task.rounds
    if T == 1:
        optimizer = DPSGD(1, 1 / task.smoothness)
    else:
        if noise_std is None:
            calibrated = mean.calibrate(size.n, size.d, Budget(size.epsilon, DELTA), T)
            noise_std = calibrated.start(SeededNoise(0)).noise_std
        step = min(1 / task.smoothness, task.distance / (noise_std * math.sqrt(size.d * T)))
        optimizer = DPSGD(T, step, task.domain)
    return userdp.minimize(
        task.loss,
        task.users,
        optimizer=optimizer,
        mean=mean,
        epsilon=size.epsilon,
        delta=DELTA,
        random_state=seed,
    )
