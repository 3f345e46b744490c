"""diffprivlib: row-level objective perturbation at epsilon/m, m the most rows of a user (group privacy), delta = 0.

What is tuned on the test loss is what it has: the bound on the norm of rows (``job.clip``, in medians of their norms,
an oracle's unit) and its regularization C (``job.step``). Regression is left out: the sensitivity of its least squares
is disputed (its issue 105).
"""

import warnings

import numpy as np
from diffprivlib.models import LogisticRegression

from benchmarks.peers.methods.interface import Fit, Job, serve, timed


def fit(job: Job, seed: int) -> Fit:
    X, test = job.X[:, :-1], job.test_X[:, :-1]
    m = int(np.diff(job.offsets).max())
    bound = job.clip * float(np.median(np.linalg.norm(X, axis=1)))
    model = LogisticRegression(
        epsilon=job.epsilon / m, data_norm=bound, C=job.step, random_state=seed, max_iter=200
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _, seconds = timed(lambda: model.fit(X, job.y.astype(int)))
    return Fit(model.decision_function(test), seconds, int(np.max(model.n_iter_)) or 1)


if __name__ == "__main__":
    serve(fit)
