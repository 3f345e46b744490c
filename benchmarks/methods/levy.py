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
    noise = half.noise_std * math.sqrt(size.d)
    # Steps as in dp_sgd, min(1/beta, R/(noise sqrt(T))); the leash is what such noise costs over the distance squared.
    smoothness = max(task.smoothness, noise * math.sqrt(_ROUNDS) / task.distance)
    pull = min(noise / math.sqrt(_ROUNDS) / task.distance, smoothness)
    return userdp.minimize(
        task.loss,
        task.users,
        optimizer=PhasedERM(_ROUNDS, smoothness, pull, phases=2, domain=task.domain),
        mean=mean,
        epsilon=size.epsilon,
        delta=DELTA,
        random_state=seed,
    )


METHOD = Method("Levy et al. 2021", "smooth", solve)
