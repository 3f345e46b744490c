"""Adaptive clipping of this library in the tuned descent: the tuned clip is where the radius starts.

The step is the tuned one until the radius outgrows the tuned clip; from there on step times radius, and so the reach of
the noise, stays the same. Step and clip were tuned together, and the median may be fifty times the tuned clip.
"""

import numpy as np

from benchmarks.peers.methods.interface import Array, Fit, Job, serve, timed
from userdp.means import AdaptiveClippedMean
from userdp.mechanisms import SeededNoise
from userdp.privacy import Budget


def fit(job: Job, seed: int) -> Fit:
    X, y, weights = job.padded()
    d = X.shape[2]
    budget = Budget(job.epsilon, job.delta)
    mean = AdaptiveClippedMean(radius=job.clip).calibrate(job.n_users, d, budget, job.rounds)

    def user_gradients(theta: Array) -> Array:
        z = X @ theta
        p = 1 / (1 + np.exp(-z)) if job.task == "classification" else z
        gradients: Array = np.einsum("umd,um->ud", X, weights * (p - y)).astype(np.float64)
        return gradients

    def descend() -> Array:
        theta, session = np.zeros(d), mean.start(SeededNoise(seed))
        for _ in range(job.rounds):
            answer = session.answer(user_gradients(theta.astype(np.float32)))
            theta = theta - job.step * min(1.0, job.clip / session.radius) * answer
        session.finish()
        return theta

    theta, seconds = timed(descend)
    return Fit(job.test_X @ theta, seconds, job.rounds)


if __name__ == "__main__":
    serve(fit)
