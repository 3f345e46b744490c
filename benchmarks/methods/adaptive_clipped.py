"""Practice with a private adaptive clip (Andrew et al. 2021): the radius follows the median of the norms."""

import math

from benchmarks.methods.method import Method, dp_sgd
from benchmarks.tasks import DELTA, Task
from userdp.means import AdaptiveClippedMean
from userdp.mechanisms import SeededNoise
from userdp.optimizers import Solution
from userdp.privacy import Budget


def solve(task: Task, seed: int) -> Solution:
    size = task.size
    budget = Budget(size.epsilon, DELTA)
    mean = AdaptiveClippedMean(task.lipschitz, warmup=20 if task.rounds == 1 else 0)
    # The step is for the radius it is expected to find, not for the one it starts with.
    expected = min(1.0, 2 / math.sqrt(size.m))
    noise_std = mean.calibrate(size.n, size.d, budget, task.rounds).start(SeededNoise(0)).noise_std * expected
    return dp_sgd(task, mean, seed, noise_std=noise_std)


METHOD = Method("adaptive clipping", "—", solve)
