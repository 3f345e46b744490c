"""Asi & Liu (2023): Algorithm 2 with the paper's noise formula inside DP-SGD.

Its own number of rounds, m^2 n^2 + m n sqrt(d), is out of reach, and its own tau exceeds G: it is given our rounds and
radius.
"""

from benchmarks.methods.method import Method, dp_sgd
from benchmarks.tasks import DELTA, Task
from userdp.means import ConcentratedMean
from userdp.means.paper import users_needed
from userdp.optimizers import Solution


def solve(task: Task, seed: int) -> Solution:
    return dp_sgd(task, ConcentratedMean(task.radius, calibration="paper"), seed)


METHOD = Method(
    "Asi & Liu 2023, its constants",
    "n ≥ 40 log(4T/δ)/ε, ε < 10",
    solve,
    certified=False,
    claimed=lambda n, epsilon, rounds: n >= users_needed(rounds, epsilon, DELTA) and epsilon < 10,
)
