"""Levy et al. (2021): range finding in a random rotation; phased ERM where more than one mean is needed."""

import math

import userdp
from benchmarks.methods.method import Method, dp_sgd
from benchmarks.tasks import DELTA, Task
from userdp.means import LevyMean
from userdp.mechanisms import SeededNoise
from userdp.optimizers import PhasedERM, Solution
from userdp.privacy import Budget

_ROUNDS = 20


def solve(task: Task, seed: int) -> Solution:
    size = task.size
    # Users within tau of their centre are sqrt(2) tau apart.
    tau = min(task.radius / math.sqrt(2), task.lipschitz)
    mean = LevyMean(tau, bound=task.lipschitz)
    if task.rounds == 1:
        return dp_sgd(task, mean, seed)
    half = mean.calibrate(size.n // 2, size.d, Budget(size.epsilon, DELTA), _ROUNDS).start(SeededNoise(0))
    # What noise of this size costs over the squared distance; more than the smoothness would forbid any step.
    pull = min(half.noise_std * math.sqrt(size.d / _ROUNDS) / task.distance, task.smoothness)
    return userdp.minimize(
        task.loss,
        task.users,
        optimizer=PhasedERM(_ROUNDS, max(task.smoothness, half.noise_std * math.sqrt(size.d)), pull, 2, task.domain),
        mean=mean,
        epsilon=size.epsilon,
        delta=DELTA,
        random_state=seed,
    )


METHOD = Method("Levy et al. 2021", "smooth", solve)
