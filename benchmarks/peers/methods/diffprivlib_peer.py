"""diffprivlib: row-level objective perturbation at epsilon/m, m the most rows of a user (group privacy), delta = 0.

What is tuned on the test loss is what it has: the bound on the norm of rows (``job.clip``, in medians of their norms,
an oracle's unit), its regularization C (``job.step``), and whether the intercept is its own, which it does not
regularize (noise may then carry it away to infinity), or the coefficient of the constant. Regression is left out: the
sensitivity of its least squares is disputed (its issue 105).
"""

import warnings

import numpy as np
from diffprivlib.models import LogisticRegression

from benchmarks.peers.methods.interface import Fit, Job, serve, timed


def fit(job: Job, seed: int) -> Fit:
    X, test = (job.X[:, :-1], job.test_X[:, :-1]) if job.intercept else (job.X, job.test_X)
    model = LogisticRegression(
        epsilon=job.epsilon / int(np.diff(job.offsets).max()),
        data_norm=job.clip * float(np.median(np.linalg.norm(X, axis=1))),
        C=job.step,
        fit_intercept=job.intercept,
        random_state=seed,
        max_iter=200,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _, seconds = timed(lambda: model.fit(X, job.y.astype(int)))
    return Fit(model.decision_function(test), seconds, int(np.max(model.n_iter_)) or 1)


if __name__ == "__main__":
    serve(fit)
