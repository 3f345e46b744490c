"""pfl: users' gradients through its simulated backend and its central Gaussian mechanism, every user every round."""

import logging
from collections.abc import Callable
from functools import cache

import numpy as np
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByUser
from pfl.algorithm.base import FederatedAlgorithm
from pfl.common_types import Population
from pfl.context import CentralContext
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam.base import AlgorithmHyperParams
from pfl.metrics import Metrics
from pfl.model.base import Model
from pfl.privacy.gaussian_mechanism import GaussianMechanism
from pfl.privacy.privacy_accountant import PLDPrivacyAccountant
from pfl.privacy.privacy_mechanism import CentrallyAppliedPrivacyMechanism
from pfl.stats import MappedVectorStatistics

from benchmarks.peers.methods.interface import Fit, Job, serve, timed


class LinearModel(Model):
    """A linear predictor, moved against the mean gradient."""

    def __init__(self, dimension: int) -> None:
        self.theta, self.step = np.zeros(dimension, np.float32), 0.0

    def apply_model_update(self, statistics):
        statistics.average()
        self.theta = self.theta - self.step * statistics["gradient"]
        return self, Metrics()


class GradientDescent(FederatedAlgorithm):
    """Each round asks every user for the gradient of their mean loss."""

    def __init__(self, job: Job, step: Callable[[], float]) -> None:
        super().__init__()
        self.job, self.step = job, step

    def get_next_central_contexts(self, model, iteration, algorithm_params, train_params, eval_params=None):
        if iteration == self.job.rounds:
            return None, model, Metrics()
        model.step = self.step()
        context = CentralContext(
            current_central_iteration=iteration, do_evaluation=False, cohort_size=self.job.n_users,
            population=Population.TRAIN, algorithm_params=algorithm_params, model_train_params=train_params,
            model_eval_params=eval_params, seed=self._get_seed(),
        )  # fmt: skip
        return (context,), model, Metrics()

    def simulate_one_user(self, model, user_dataset, central_context):
        X, y = user_dataset.raw_data
        z = X @ model.theta
        p = 1 / (1 + np.exp(-z)) if self.job.task == "classification" else z
        return MappedVectorStatistics({"gradient": X.T @ (p - y) / len(y)}), Metrics()

    def process_aggregated_statistics(self, central_context, aggregate_metrics, model, statistics):
        return model.apply_model_update(statistics)


@cache
def noise_multiplier(epsilon: float, delta: float, rounds: int) -> float:
    """Calibrate for removing a user, and double: replacing one moves the sum twice as far."""
    accountant = PLDPrivacyAccountant(
        num_compositions=rounds, sampling_probability=1.0, mechanism="gaussian",
        epsilon=epsilon, delta=delta, max_bound_noise_parameter=1e5,
    )  # fmt: skip
    return 2 * accountant.cohort_noise_parameter


def fit(job: Job, seed: int) -> Fit:
    multiplier = noise_multiplier(job.epsilon, job.delta, job.rounds)
    mechanism = CentrallyAppliedPrivacyMechanism(GaussianMechanism(job.clip, multiplier))
    return descend(job, seed, mechanism, lambda: job.step)


def descend(job: Job, seed: int, mechanism, step: Callable[[], float]) -> Fit:
    """Descend with what ``step`` says at the beginning of each round."""
    logging.disable(logging.WARNING)
    np.random.seed(seed)  # noqa: NPY002  (pfl draws from the global generator)
    users = range(job.n_users)

    def user(u: int) -> Dataset:
        rows = slice(job.offsets[u], job.offsets[u + 1])
        return Dataset((job.X[rows], job.y[rows]), user_id=str(u))

    # Goes through the users in turn: a cohort of all of them holds each one once.
    data = FederatedDataset(user, get_user_sampler("minimize_reuse", users))
    backend = SimulatedBackend(data, data, postprocessors=[WeightByUser(), mechanism])
    model, seconds = timed(
        lambda: GradientDescent(job, step).run(
            AlgorithmHyperParams(), backend, LinearModel(job.X.shape[1]), None,
            send_metrics_to_platform=False,
        )
    )  # fmt: skip
    return Fit(job.test_X @ model.theta, seconds, job.rounds)


if __name__ == "__main__":
    serve(fit)
