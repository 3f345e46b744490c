"""Item-level DP-SGD under group privacy: noise for m rows on the sum of clipped rows."""

import math

import userdp
from benchmarks.methods.method import Method
from benchmarks.tasks import DELTA, Task
from userdp.optimizers import ItemDPSGD, Solution
from userdp.optimizers.dp_sgd import EVERYWHERE
from userdp.privacy import mu_from_budget


def solve(task: Task, seed: int) -> Solution:
    size, T, G = task.size, task.rounds, task.lipschitz
    noise_std = 2 * G * math.sqrt(T) / (size.n * mu_from_budget(size.epsilon, DELTA))
    step = min(1 / task.smoothness, task.distance / (noise_std * math.sqrt(size.d * T)))
    optimizer = ItemDPSGD(T, step if T > 1 else 1 / task.smoothness, G, task.domain if T > 1 else EVERYWHERE)
    return userdp.minimize(
        task.loss,
        task.users,
        optimizer=optimizer,
        epsilon=size.epsilon,
        delta=DELTA,
        max_items=size.m,
        random_state=seed,
    )


METHOD = Method("item-level DP-SGD, group privacy", "—", solve)
