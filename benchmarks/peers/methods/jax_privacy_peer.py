"""jax-privacy: ``clipped_grad`` of each user's mean loss, PLD accounting, every user in every round."""

from functools import cache, partial

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


def gradient_of(task: str, clip, n_users: int):
    return clipping.clipped_grad(
        lambda theta, X, y, w: user_loss(theta, X, y, w, task),
        l2_clip_norm=clip, batch_argnums=(1, 2, 3), keep_batch_dim=False, normalize_by=n_users,
    )  # fmt: skip


@partial(jax.jit, static_argnames="task")
def one_round(theta, state, data, clip, stddev, step, *, task):
    """Descend once; everything but the task is an argument, so that a shape is compiled once in a process."""
    gradient = gradient_of(task, clip, len(data[0]))
    # The state holds the key that draws the noise; the privatizer's own is only where a state begins.
    privatizer = noise_addition.gaussian_privatizer(stddev=stddev, prng_key=0)
    noisy, state = privatizer.update(gradient(theta, *data), state)
    return theta - step * noisy, state


def fit(job: Job, seed: int) -> Fit:
    # Replacing a user moves the mean twice as far as removing one.
    sensitivity = gradient_of(job.task, job.clip, job.n_users).sensitivity(NeighboringRelation.REPLACE_ONE)
    stddev = noise_multiplier(job.epsilon, job.delta, job.rounds) * sensitivity
    data = tuple(map(jnp.asarray, job.padded()))
    theta = jnp.zeros(job.X.shape[1])
    state = noise_addition.gaussian_privatizer(stddev=stddev, prng_key=jax.random.key(seed)).init(theta)
    descend_once = partial(one_round, data=data, clip=job.clip, stddev=stddev, step=job.step, task=job.task)
    descend_once(theta, state)[0].block_until_ready()

    def descend():
        now, noise = theta, state
        for _ in range(job.rounds):
            now, noise = descend_once(now, noise)
        return np.asarray(now)

    found, seconds = timed(descend)
    return Fit(job.test_X @ found, seconds, job.rounds)


if __name__ == "__main__":
    serve(fit)
