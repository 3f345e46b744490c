r"""``userdp.mean``: a table, a user column, a budget, and nothing else to know.

Locate, then clip (N = n mu is the effective number of users):

1. **radius**: the median distance p between matched users, privately: no location and no bounds are needed for it;
2. **centre**: a concentrated mean at radius 2.5 p, for a small share of the budget: wherever the users are;
3. **clip radius**: a private 90% quantile q of the users' distances to the centre, extended by how far it lies beyond
   a typical distance, 2 q - p/sqrt(2): generous for heavy tails, tight in high dimension;
4. the mean of the users clipped around the centre, for the rest of the budget.

Where N is small against sqrt(d) the centre's own noise would spoil the clipping, and the concentrated mean alone gets
the whole budget.
"""

import math
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from userdp.arrays import FloatArray
from userdp.data.users import Users
from userdp.means import certified
from userdp.means.clipped import CalibratedClippedMean
from userdp.means.interface import MeanRelease
from userdp.means.lattice import Lattice
from userdp.mechanisms.noise import NoiseSource, noise_source
from userdp.mechanisms.quantile import private_quantile
from userdp.privacy.accounting import GaussianEvent, PureEvent, gaussian_scale, mu_beside
from userdp.privacy.budget import Budget
from userdp.privacy.gdp import mu_from_budget

# Friends lie within this many median distances of each other.
RADIUS_FACTOR = 2.5
CLIP_QUANTILE = 0.9
# Clip radii are looked for between 1/4 and 16 median distances.
_CLIP_CANDIDATES = 2.0 ** (np.arange(-8, 17) / 4)
# Pure epsilons times users: a wrong winner of the noisy comparisons is then unlikely (below 1e-3).
_RADIUS_EPSILON_TIMES_USERS, _CLIP_EPSILON_TIMES_USERS = 200.0, 180.0
_EPSILON_SHARES = (0.02, 0.2)


def mean(
    X: ArrayLike,
    *,
    groups: ArrayLike | None,
    epsilon: float,
    delta: float,
    radius: float | None = None,
    min_items: int = 1,
    unit: str = "user",
    random_state: int | np.random.Generator | None = None,
) -> MeanRelease:
    """Release the mean over users of their own means, protecting each whole user.

    Every user counts once, whatever the number of their rows. No bounds are asked for: without ``radius`` a
    small share of the budget finds one from the distances between matched users, wherever they are.

    **Guarantee**: (epsilon, delta)-DP for replacing all rows of one user (``docs/proofs/private_mean.md``).

    Parameters
    ----------
    X : array of shape (n_rows, n_features)
        Numbers; a user with a NaN or an infinity is null: counted in n, absent from the mean.
    groups : array of shape (n_rows,)
        Whose row it is.
    epsilon, delta : float
        The budget.
    radius : float, optional
        Distance within which users' means are expected to lie of each other, if it is public knowledge.
    min_items : int
        Users with fewer rows are null.
    unit : str
        What a user is, for the statement.
    random_state : int, optional
        A seed makes the result repeatable, for experiments only, and the statement says so.

    Raises
    ------
    InvalidInputError, TooFewUsersError
        Before anything is spent.
    NotConcentratedError
        If the users do not agree; the budget is then spent.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> ids = np.repeat(np.arange(2000), 10)
    >>> X = rng.normal(170.0, 8.0, size=(20000, 1))
    >>> release = mean(X, groups=ids, epsilon=1.0, delta=1e-6, random_state=0)
    >>> bool(abs(release.value[0] - 170) < 0.5)
    True
    """
    budget = Budget(epsilon, delta, unit)
    noise = noise_source(random_state)
    users = Users.from_rows(X, groups)
    budget.warn_if_weak_for(users.n_users)
    vectors = users.means(min_items)
    if radius is not None:
        return _concentrated(vectors, radius, budget, (), noise)
    n, d = vectors.shape
    if _locating_pays(n, d, budget):
        return _located(vectors, budget, noise)
    cost = PureEvent("radius", radius_epsilon(n, epsilon))
    # Calibrated at a stand-in radius first: whatever can be refused is refused before any noise is drawn.
    certified.calibrate(1.0, n, d, budget, gate="gaussian", beside=(cost,))
    found = RADIUS_FACTOR * typical_distance(vectors, cost.epsilon, noise)
    return _concentrated(vectors, found, budget, (cost,), noise)


def _concentrated(
    vectors: FloatArray, radius: float, budget: Budget, beside: tuple[PureEvent, ...], noise: NoiseSource
) -> MeanRelease:
    """Release the concentrated mean at a radius."""
    n, d = vectors.shape
    session = certified.calibrate(radius, n, d, budget, gate="gaussian", beside=beside).start(noise)
    value = session.answer(vectors)
    return MeanRelease(value, session.noise_std, radius, session.finish())


def _located(vectors: FloatArray, budget: Budget, noise: NoiseSource) -> MeanRelease:
    """Locate the users by a concentrated mean, then clip around it."""
    n, d = vectors.shape
    pure = (
        PureEvent("radius", radius_epsilon(n, budget.epsilon)),
        PureEvent("clip radius", _pure_epsilon(_CLIP_EPSILON_TIMES_USERS, n, budget.epsilon)),
    )
    share = _centre_share(n, d, budget)
    clip_mu = math.sqrt(1 - share) * mu_beside(pure, budget.epsilon, 0.99 * budget.delta)
    sensitivity = 2.0 * Lattice.fine_enough(1.0, n, d).radius_units
    clipping = GaussianEvent("mean", sensitivity, gaussian_scale(sensitivity, clip_mu), d)
    # The locating mean gets what is left beside the others; refused here if that is too little.
    locate = certified.calibrate(1.0, n, d, budget, gate="gaussian", beside=(*pure, clipping))

    typical = typical_distance(vectors, pure[0].epsilon, noise)
    session = replace(locate.with_radius(RADIUS_FACTOR * typical), purpose="centre").start(noise)
    centre = session.answer(vectors)
    with np.errstate(all="ignore"):
        distances = np.sqrt(((vectors - centre) ** 2).sum(axis=1))
    q = private_quantile(distances, CLIP_QUANTILE, pure[1].epsilon, noise, typical * _CLIP_CANDIDATES)
    radius = max(q, 2 * q - typical / math.sqrt(2))
    lattice = Lattice.fine_enough(radius, n, d)
    final = CalibratedClippedMean(centre, budget, n, lattice, clipping, beside=()).start(noise)
    value = final.answer(vectors)
    return MeanRelease(value, final.noise_std, radius, session.finish())


def _centre_share(n_users: int, dimension: int, budget: Budget) -> float:
    """Share of mu^2 for locating: its error, about 5 sqrt(d)/(N sqrt(share)) radii, should stay near a fifth."""
    N = n_users * mu_from_budget(budget.epsilon, budget.delta)
    return max(0.05, (25 * math.sqrt(dimension) / N) ** 2)


def _locating_pays(n_users: int, dimension: int, budget: Budget) -> bool:
    return _centre_share(n_users, dimension, budget) <= 0.4 and n_users * budget.epsilon >= 1_000


def radius_epsilon(n_users: int, epsilon: float) -> float:
    """Return the pure epsilon that finding a radius gets."""
    return _pure_epsilon(_RADIUS_EPSILON_TIMES_USERS, n_users, epsilon)


def _pure_epsilon(times_users: float, n_users: int, epsilon: float) -> float:
    low, high = (share * epsilon for share in _EPSILON_SHARES)
    return min(max(times_users / n_users, low), high)


def typical_distance(vectors: FloatArray, epsilon: float, noise: NoiseSource) -> float:
    """Find the median of the distances inside a secret random matching of the users.

    **Guarantee**: (epsilon, 0)-DP: one user touches one pair, and the matching is uniform and never leaves
    (``docs/proofs/private_mean.md``).
    """
    order = noise.permutation(len(vectors))
    half = len(vectors) // 2
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        offsets = vectors[order[:half]] - vectors[order[half : 2 * half]]
        distances = np.sqrt((offsets**2).sum(axis=1))
    return private_quantile(distances, 0.5, epsilon, noise)
