"""This library: the certified concentrated mean behind the deferred gate, in DP-SGD."""

from benchmarks.methods.method import Method, dp_sgd
from userdp.means import ConcentratedMean

METHOD = Method(
    "concentrated mean, certified (here)",
    "n ≳ log(1/δ)/ε",
    lambda task, seed: dp_sgd(task, ConcentratedMean(task.radius, gate="deferred"), seed),
)
