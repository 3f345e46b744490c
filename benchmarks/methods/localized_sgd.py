"""Item-level localized SGD (Feldman, Koren & Talwar 2020) under group privacy."""

import userdp
from benchmarks.methods.method import Method
from benchmarks.tasks import DELTA, Task
from userdp.optimizers import LocalizedSGD, Solution
from userdp.problems import LinearPredictorLoss


def solve(task: Task, seed: int) -> Solution:
    size = task.size
    # Features of a GLM lie on the unit sphere; a row's gradient elsewhere in the ball is longer by its radius.
    glm = isinstance(task.loss, LinearPredictorLoss)
    optimizer = LocalizedSGD(
        task.lipschitz if glm else task.lipschitz + task.domain.radius,
        task.domain,
        feature_bound=1.0 if glm else float("inf"),
    )
    return userdp.minimize(
        task.loss,
        task.users,
        optimizer=optimizer,
        epsilon=size.epsilon,
        delta=DELTA,
        max_items=size.m,
        random_state=seed,
    )


METHOD = Method("item-level localized SGD, group privacy", "smooth", solve)
