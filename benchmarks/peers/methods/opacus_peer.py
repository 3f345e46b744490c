"""opacus: one item of the data set is one user of shape (m, d), so that ``grad_sample`` is a user's mean gradient."""

import warnings
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import torch
from opacus import PrivacyEngine
from opacus.accountants.utils import get_noise_multiplier
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.peers.methods.interface import Fit, Job, serve, timed


@cache
def noise_multiplier(epsilon: float, delta: float, rounds: int) -> float:
    # With its default errors of 0.01 in epsilon the noise at epsilon = 0.1 would be a fifth larger than needed.
    return get_noise_multiplier(
        target_epsilon=epsilon, target_delta=delta, sample_rate=1.0, steps=rounds, accountant="prv",
        epsilon_tolerance=epsilon / 1_000, eps_error=epsilon / 100,
    )  # fmt: skip


def private(job: Job, seed: int, **clipping: Any) -> tuple[Any, Any, Any]:
    """Return what opacus makes of model, optimizer and data; ``clipping`` are its options."""
    warnings.simplefilter("ignore")
    torch.manual_seed(seed)
    X, y, weights = map(torch.from_numpy, job.padded())
    model = torch.nn.Linear(X.shape[2], 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    loader = DataLoader(TensorDataset(X, y, weights), batch_size=job.n_users)
    return PrivacyEngine().make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=job.step),
        data_loader=loader,
        # Calibrated for removing a user; replacing one moves the sum twice as far.
        noise_multiplier=2 * noise_multiplier(job.epsilon, job.delta, job.rounds),
        max_grad_norm=job.clip,
        poisson_sampling=False,
        **clipping,
    )


def descend(
    job: Job, model: Any, optimizer: Any, batches: Iterable[Any], change_step: Callable[[], None]
) -> Fit:
    """Go through the rounds; ``batches`` are gone through in every one, and ``change_step`` is called before it."""

    def one_round() -> None:
        for X, y, weights in batches:
            change_step()
            optimizer.zero_grad()
            z = model(X)[..., 0]
            if job.task == "classification":
                loss = torch.nn.functional.binary_cross_entropy_with_logits(z, y, reduction="none")
            else:
                loss = (z - y) ** 2 / 2
            (weights * loss).sum(dim=1).mean().backward()
            optimizer.step()

    _, seconds = timed(lambda: [one_round() for _ in range(job.rounds)])
    theta = model._module.weight.detach().numpy()[0]
    return Fit(job.test_X @ theta, seconds, job.rounds)


def fit(job: Job, seed: int) -> Fit:
    model, optimizer, loader = private(job, seed)
    return descend(job, model, optimizer, loader, lambda: None)


if __name__ == "__main__":
    serve(fit)
