"""What most people call, told nothing about the data: ``userdp.mean``, ``userdp.LogisticRegression``."""

import numpy as np

import userdp
from benchmarks.methods.method import Method
from benchmarks.tasks import DELTA, Task
from userdp.optimizers import Solution


def solve(task: Task, seed: int) -> Solution:
    size, users = task.size, task.users
    groups = np.repeat(np.arange(size.n), size.m)
    if task.problem == "mean":
        release = userdp.mean(users.rows, groups=groups, epsilon=size.epsilon, delta=DELTA, random_state=seed)
        return Solution(release.value, release.privacy)
    model = userdp.LogisticRegression(size.epsilon, DELTA, fit_intercept=False, random_state=seed)
    assert users.targets is not None
    model.fit(users.rows, users.targets, groups=groups)
    # Into the ball in which the others look for theta.
    coefficients = np.ravel(model.coef_)
    return Solution(coefficients / max(1.0, float(np.linalg.norm(coefficients))), model.privacy_)


METHOD = Method("userdp.mean, LogisticRegression (here)", "n ≳ log(1/δ)/ε", solve)
