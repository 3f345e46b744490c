"""The same DP-SGD on exact means: what sampling alone costs."""

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.methods.method import Method
from benchmarks.tasks import Task
from userdp.engines.local import local_oracle
from userdp.optimizers import Solution
from userdp.privacy import Budget
from userdp.privacy.statement import PrivacyStatement


def solve(task: Task, seed: int) -> Solution:
    oracle, d, T = local_oracle(task.loss, task.users), task.size.d, 8 * task.rounds
    step = 1 / task.smoothness
    gradients = jax.jit(oracle.user_gradients)
    with jax.enable_x64(True):
        theta = jnp.zeros(d)
        for _ in range(T):
            theta = theta - step * gradients(oracle.data, theta, jax.random.key(0)).mean(axis=0)
            theta = task.domain.project(theta) if task.rounds > 1 else theta
        point = np.asarray(theta, dtype=np.float64)
    nothing = PrivacyStatement.claim(Budget(1e3, 0.5), (), n_users=task.size.n, seeded=True)
    return Solution(point, nothing)


METHOD = Method("no privacy", "—", solve, certified=False)
