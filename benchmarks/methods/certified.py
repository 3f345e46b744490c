"""The certified concentrated mean in DP-SGD: behind the deferred gate, and for one query behind the Gaussian one."""

from benchmarks.methods.method import Method, dp_sgd
from benchmarks.tasks import Task
from userdp.means import ConcentratedMean
from userdp.optimizers import Solution


def solve(task: Task, seed: int) -> Solution:
    return dp_sgd(
        task, ConcentratedMean(task.radius, gate="gaussian" if task.rounds == 1 else "deferred"), seed
    )


METHOD = Method("concentrated mean, certified (here)", "n ≳ log(1/δ)/ε", solve)
