"""Ghazi et al. (2023): propose-test-release on deletions, by looking at all subsets."""

from benchmarks.methods.method import Method, dp_sgd
from userdp.means import DeletionPTR

METHOD = Method(
    "Ghazi et al. 2023",
    "time super-polynomial in n",
    lambda task, seed: dp_sgd(task, DeletionPTR(task.radius), seed),
)
