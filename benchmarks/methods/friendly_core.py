"""FriendlyCore (Tsfadia et al. 2022): a core of friends and a noisy count in every round."""

from benchmarks.methods.method import Method, dp_sgd
from userdp.means import FriendlyCoreMean

METHOD = Method(
    "FriendlyCore 2022",
    "one query; over T rounds n ≳ √T/ε",
    lambda task, seed: dp_sgd(task, FriendlyCoreMean(task.radius), seed),
)
