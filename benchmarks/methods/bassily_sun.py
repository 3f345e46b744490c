"""Bassily & Sun (2023): every round a concentrated mean at its own epsilon, about epsilon/sqrt(T)."""

from benchmarks.methods.method import Method, dp_sgd
from benchmarks.tasks import DELTA, Task
from userdp.means import BassilySunMean
from userdp.optimizers import Solution
from userdp.privacy import Budget


def solve(task: Task, seed: int) -> Solution:
    size, mean = task.size, BassilySunMean(task.radius)
    calibrated = mean.calibrate(size.n, size.d, Budget(size.epsilon, DELTA), task.rounds)
    return dp_sgd(task, mean, seed, noise_std=calibrated.mean.noise_std(size.n))


METHOD = Method("Bassily & Sun 2023", "smooth, n ≳ √T/ε", solve)
