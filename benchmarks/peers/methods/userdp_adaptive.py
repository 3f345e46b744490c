"""This library's adaptive clipping in the tuned descent: the tuned clip is where the radius starts."""

import warnings

import userdp
from benchmarks.peers.methods.interface import Fit, Job, serve, timed
from userdp.data import Users
from userdp.means import AdaptiveClippedMean
from userdp.optimizers import DPSGD
from userdp.problems import Logistic, Squared


def fit(job: Job, seed: int) -> Fit:
    users = Users.from_rows(job.X, job.groups, job.y)
    loss = Logistic() if job.task == "classification" else Squared()
    optimizer = DPSGD(job.rounds, job.step, averaged_share=1 / job.rounds)
    mean = AdaptiveClippedMean(radius=job.clip)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        solution, seconds = timed(
            lambda: userdp.minimize(
                loss, users, optimizer=optimizer, mean=mean,
                epsilon=job.epsilon, delta=job.delta, random_state=seed,
            )
        )  # fmt: skip
    return Fit(job.test_X @ solution.point, seconds, job.rounds)


if __name__ == "__main__":
    serve(fit)
