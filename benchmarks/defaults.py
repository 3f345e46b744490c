"""Test losses of the default estimators by way of the numerical core: NumPy, SciPy, scikit-learn and JAX alone."""

import warnings

import numpy as np

from benchmarks.peers.objective import evaluate
from benchmarks.peers.problem import DELTA, Rows
from userdp.data.users import Users
from userdp.estimators.fitting import Options, Task, fit
from userdp.mechanisms.noise import SeededNoise
from userdp.privacy.budget import Budget
from userdp.problems import Logistic, Squared

TASKS = {
    "classification": Task(Logistic(), curvature=0.5, n_classes=2),
    "regression": Task(Squared(), curvature=1.0),
}


def default_losses(
    task: str, train: Rows, test: Rows, n_numbers: int, epsilon: float, seeds: range
) -> list[float]:
    """Fit with every seed; the features after the first ``n_numbers`` are boolean."""
    users = Users(train.X.astype(np.float64), train.offsets, train.y.astype(np.float64))
    booleans = np.arange(train.X.shape[1]) >= n_numbers
    options, losses = Options(booleans=tuple(booleans.tolist())), []
    for seed in seeds:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = fit(users, TASKS[task], Budget(epsilon, DELTA), options, SeededNoise(seed))
        predicted = np.clip(test.X, model.low, model.high) @ model.coefficients[0] + model.intercepts[0]
        losses.append(evaluate(task, test, predicted).loss)
    return losses
