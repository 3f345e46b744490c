"""This library's front door, which is told nothing about the data: ``userdp.mean``."""

import numpy as np

import userdp
from benchmarks.methods.method import Method, only_for
from benchmarks.tasks import DELTA, Task
from userdp.optimizers import Solution


def solve(task: Task, seed: int) -> Solution:
    only_for(task, "mean")
    size = task.size
    groups = np.repeat(np.arange(size.n), size.m)
    release = userdp.mean(
        task.users.rows, groups, epsilon=size.epsilon, delta=DELTA, random_state=seed
    )
    return Solution(release.value, release.privacy)


METHOD = Method("userdp.mean, told nothing (here)", "n ≳ log(1/δ)/ε", solve)
