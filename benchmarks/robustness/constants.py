"""The answers to beat: one private number for everybody, bought with the whole budget.

Test losses of constant predictions, each an average over noise.
"""

import warnings

import numpy as np

import userdp
from benchmarks.peers.problem import DELTA, Array
from benchmarks.peers.tune import gdp_mu
from benchmarks.robustness.sample import Part, Sample
from userdp.estimators.stages import private_base_rate
from userdp.mechanisms import SeededNoise

DRAWS, MEANS = 200, 5
_RADII = 200


def user_means(part: Part) -> Array:
    means: Array = np.add.reduceat(part.y, part.offsets[:-1]) / np.diff(part.offsets)
    return means


def base_rate_loss(sample: Sample, epsilon: float, seed: int) -> float:
    """Log loss of the private base rate, which is clipped away from 0 and 1 by the size of its noise."""
    rates = user_means(sample.train)
    both = np.column_stack([1 - rates, rates])
    noise = SeededNoise([seed, 1])
    found = [private_base_rate(both, gdp_mu(epsilon), noise)[0] for _ in range(DRAWS)]
    truth = user_means(sample.test).mean()
    return float(np.mean([-(1 - truth) * np.log(q) - truth * np.log(p) for q, p in found]))


def mean_loss(sample: Sample, epsilon: float, seed: int) -> float | None:
    """Squared error of ``userdp.mean`` of the targets; None if it ever refuses."""
    rows = sample.train.rows
    found = []
    for draw in range(MEANS):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                release = userdp.mean(
                    rows.y[:, None],
                    groups=rows.groups,
                    epsilon=epsilon,
                    delta=DELTA,
                    random_state=seed * MEANS + draw,
                )
        except userdp.UserDPError:
            return None
        found.append(float(release.value[0]))
    return squared_error(sample, np.asarray(found))


def bounded_loss(sample: Sample, epsilon: float) -> float:
    """Squared error of a mean clipped into good bounds, given for free: they hold all but a twentieth of the users."""
    return float(_clipped_losses(sample, epsilon, np.quantile(np.abs(user_means(sample.train)), [0.95]))[0])


def oracle_loss(sample: Sample, epsilon: float) -> float:
    """Squared error of the same with the bounds of the least error on the test users, which nobody knows."""
    radii = np.quantile(np.abs(user_means(sample.train)), np.linspace(0, 1, _RADII))
    return float(_clipped_losses(sample, epsilon, np.append(0.0, radii)).min())


def _clipped_losses(sample: Sample, epsilon: float, radii: Array) -> Array:
    """Return the expected loss of a mean clipped into [-R, R] for every R; replacing a user moves it by 2 R/n."""
    means = user_means(sample.train)
    centres = np.array([np.clip(means, -R, R).mean() for R in radii])
    noise = (2 * radii / (sample.users * gdp_mu(epsilon))) ** 2
    losses: Array = 1 + ((centres - user_means(sample.test).mean()) ** 2 + noise) / _variance(sample.test)
    return losses


def squared_error(sample: Sample, constants: Array) -> float:
    """Mean squared error of constant predictions, over the variance of the test targets."""
    test = sample.test
    truth = user_means(test).mean()
    return float(1 + np.mean((constants - truth) ** 2) / _variance(test))


def _variance(part: Part) -> float:
    w, y = part.rows.weights, part.y
    return float(w @ (y - w @ y) ** 2)
