"""Excess losses of the defaults on other draws of users, as JSON: a process of :mod:`benchmarks.sensitivity`.

Needs NumPy, SciPy, scikit-learn and JAX alone.
"""

import json
import sys
import warnings

import numpy as np

from benchmarks.peers.objective import evaluate
from benchmarks.peers.problem import DELTA
from benchmarks.robustness.sample import Sample, draw
from userdp.data.users import Users
from userdp.estimators.fitting import Options, Task, fit
from userdp.mechanisms.noise import SeededNoise
from userdp.privacy.budget import Budget
from userdp.problems import Logistic, Squared

EPSILONS, SAMPLES, FITS = (0.3, 1.0, 3.0), 2, 4
# Other draws than those of the robustness suite.
FIRST_SAMPLE = 100
TASKS = {
    "classification": Task(Logistic(), curvature=0.5, n_classes=2),
    "regression": Task(Squared(), curvature=1.0),
}


def excess_losses(sample: Sample, reference: float, epsilon: float, seeds: range) -> list[float]:
    """Fit with every seed; return the test losses beyond the reference."""
    train, test = sample.train.rows, sample.test.rows
    users = Users(train.X.astype(np.float64), train.offsets, train.y.astype(np.float64))
    booleans = np.arange(train.X.shape[1]) >= sample.train.numbers.shape[1]
    options, losses = Options(booleans=tuple(booleans.tolist())), []
    for seed in seeds:
        model = fit(users, TASKS[sample.task], Budget(epsilon, DELTA), options, SeededNoise(seed))
        predicted = np.clip(test.X, model.low, model.high) @ model.coefficients[0] + model.intercepts[0]
        losses.append(evaluate(sample.task, test, predicted).loss - reference)
    return losses


def main() -> None:
    table, task, users = sys.argv[1], sys.argv[2], int(sys.argv[3])
    found: dict[float, list[float]] = {epsilon: [] for epsilon in EPSILONS}
    warnings.simplefilter("ignore")
    for number in range(SAMPLES):
        sample = draw(table, task, users, FIRST_SAMPLE + number)
        reference, seeds = sample.reference_loss(), range(FITS * number, FITS * (number + 1))
        for epsilon in EPSILONS:
            found[epsilon] += excess_losses(sample, reference, epsilon, seeds)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
