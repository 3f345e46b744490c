"""The measure: user-averaged test loss beyond that of a fit without privacy on the same users.

Classification: logistic loss, and AUC. Regression: squared error over the variance of the test targets, so that an
excess is a loss of R2. Every test user counts once.
"""

from dataclasses import dataclass

import numpy as np

from benchmarks.peers.problem import Array, Problem, Rows

# Excess losses below this are equal: it is what a ratio is taken over.
FLOOR = 0.002
_RIDGES = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2)


@dataclass(frozen=True)
class Score:
    """Test loss, and AUC or R2."""

    loss: float
    quality: float


def evaluate(task: str, test: Rows, prediction: Array) -> Score:
    """Score log odds or predicted targets of the test rows."""
    w, y = test.weights, test.y.astype(np.float64)
    z = np.nan_to_num(prediction.astype(np.float64), nan=0.0, posinf=1e6, neginf=-1e6)
    if task == "classification":
        return Score(float(w @ (np.logaddexp(0, z) - y * z)), weighted_auc(y, z, w))
    loss = float(w @ (y - z) ** 2 / (w @ (y - w @ y) ** 2))
    return Score(loss, 1 - loss)


def weighted_auc(y: Array, score: Array, weights: Array) -> float:
    """Probability that a positive row scores above a negative one, ties a half."""
    values, place = np.unique(score, return_inverse=True)
    positive = np.bincount(place, weights * y, len(values))
    negative = np.bincount(place, weights * (1 - y), len(values))
    below = np.cumsum(negative) - negative / 2
    return float(positive @ below / (positive.sum() * negative.sum()))


def reference(problem: Problem) -> Score:
    """Score the fit without privacy on the same users, its ridge chosen on the test loss."""
    data = problem.standardized()
    fits = (fit_exactly(problem.task, data.train, ridge) for ridge in _RIDGES)
    scores = [evaluate(problem.task, data.test, data.test.X @ theta) for theta in fits]
    return min(scores, key=lambda score: score.loss)


def fit_exactly(task: str, rows: Rows, ridge: float) -> Array:
    """Minimize the user-averaged loss by Newton's method."""
    X, y, w = rows.X, rows.y, rows.weights.astype(np.float32)
    theta = np.zeros(X.shape[1])
    for _ in range(1 if task == "regression" else 12):
        z = X @ theta.astype(np.float32)
        p, h = (z, np.ones_like(z)) if task == "regression" else _logistic(z)
        gradient = X.T @ (w * (p - y)) + ridge * theta
        hessian = (X.T * (w * h)) @ X + ridge * np.eye(len(theta))
        theta = theta - np.linalg.solve(hessian, gradient)
    return theta


def _logistic(z: Array) -> tuple[Array, Array]:
    p = 1 / (1 + np.exp(-np.clip(z, -30, 30)))
    return p, p * (1 - p)


def constant(problem: Problem) -> Score:
    """Score the best constant of the training users."""
    rate = float(problem.train.weights @ problem.train.y)
    value = np.log(rate / (1 - rate)) if problem.task == "classification" else rate
    return evaluate(problem.task, problem.test, np.full(len(problem.test.y), value))
