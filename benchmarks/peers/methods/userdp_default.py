"""The estimators of this library with nothing given but the budget: raw features, no bounds, no clip, no rounds."""

import warnings

import polars as pl

from benchmarks.peers.methods.interface import Array, Fit, Job, serve, timed
from userdp import LinearRegression, LogisticRegression


def as_frame(job: Job, X: Array) -> pl.DataFrame:
    """Keep the types that the table declares: numbers and booleans."""
    types = [pl.Float32] * job.n_numbers + [pl.Boolean] * (X.shape[1] - job.n_numbers)
    columns = zip(job.names, X.T, types, strict=True)
    return pl.DataFrame([pl.Series(str(name), column).cast(type_) for name, column, type_ in columns])


def fit(job: Job, seed: int) -> Fit:
    classify = job.task == "classification"
    Estimator = LogisticRegression if classify else LinearRegression
    model = Estimator(epsilon=job.epsilon, delta=job.delta, random_state=seed)
    X, y = as_frame(job, job.X), job.y.astype(int) if classify else job.y
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _, seconds = timed(lambda: model.fit(X, y, groups=job.groups))
        test = as_frame(job, job.test_X)
        prediction = model.decision_function(test) if classify else model.predict(test)
    return Fit(prediction, seconds, model.n_iter_)


if __name__ == "__main__":
    serve(fit)
