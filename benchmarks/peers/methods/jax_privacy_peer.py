"""jax-privacy: ``clipped_grad`` of each user's mean loss, PLD accounting, every user in every round."""

from functools import cache

import dp_accounting
import jax
import jax.numpy as jnp
import numpy as np
from dp_accounting import NeighboringRelation, pld
from jax_privacy import clipping, noise_addition
from jax_privacy.experimental import accounting

from benchmarks.peers.methods.interface import Fit, Job, serve, timed


def user_loss(theta, X, y, weights, task):
    z = X @ theta
    loss = jnp.logaddexp(0, z) - y * z if task == "classification" else (z - y) ** 2 / 2
    return weights @ loss


@cache
def noise_multiplier(epsilon: float, delta: float, rounds: int) -> float:
    return dp_accounting.calibrate_dp_mechanism(
        lambda: pld.PLDAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE),
        lambda noise: accounting.dpsgd_event(noise_multiplier=noise, iterations=rounds, sampling_prob=1.0),
        epsilon,
        delta,
    )


def fit(job: Job, seed: int) -> Fit:
    gradient = clipping.clipped_grad(
        lambda theta, X, y, w: user_loss(theta, X, y, w, job.task),
        l2_clip_norm=job.clip, batch_argnums=(1, 2, 3), keep_batch_dim=False, normalize_by=job.n_users,
    )  # fmt: skip
    # Replacing a user moves the mean twice as far as removing one.
    multiplier = noise_multiplier(job.epsilon, job.delta, job.rounds)
    stddev = multiplier * gradient.sensitivity(NeighboringRelation.REPLACE_ONE)
    privatizer = noise_addition.gaussian_privatizer(stddev=stddev, prng_key=jax.random.key(seed))
    X, y, weights = map(jnp.asarray, job.padded())

    @jax.jit
    def one_round(theta, state):
        noisy, state = privatizer.update(gradient(theta, X, y, weights), state)
        return theta - job.step * noisy, state

    theta = jnp.zeros(X.shape[2])
    state = privatizer.init(theta)
    one_round(theta, state)[0].block_until_ready()

    def descend():
        now, noise = theta, state
        for _ in range(job.rounds):
            now, noise = one_round(now, noise)
        return np.asarray(now)

    found, seconds = timed(descend)
    return Fit(job.test_X @ found, seconds, job.rounds)


if __name__ == "__main__":
    serve(fit)
