"""``userdp.mean``: a table, a user column, a budget, and nothing else to know."""

import numpy as np
from numpy.typing import ArrayLike

from userdp.arrays import FloatArray
from userdp.data.users import Users
from userdp.means import certified
from userdp.means.interface import MeanRelease
from userdp.mechanisms.noise import NoiseSource, noise_source
from userdp.mechanisms.quantile import private_quantile
from userdp.privacy.accounting import PureEvent
from userdp.privacy.budget import Budget

# The radius is this quantile of the distances between matched users, times this factor.
RADIUS_QUANTILE = 0.75
RADIUS_FACTOR = 2.5
# Ranks are right within about 18/epsilon, which should be a tenth of the n/2 matched pairs.
_RADIUS_EPSILON_TIMES_USERS = 360.0
_RADIUS_SHARE = (0.02, 0.4)


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
    n, d = vectors.shape

    if radius is None:
        radius_cost = PureEvent("radius", radius_epsilon(n, epsilon))
        # Calibrated at a stand-in radius first: whatever can be refused is refused before any noise is drawn.
        calibrated = certified.calibrate(1.0, n, d, budget, gate="gaussian", beside=(radius_cost,))
        radius = private_radius(vectors, radius_cost.epsilon, noise)
        calibrated = calibrated.with_radius(radius)
    else:
        calibrated = certified.calibrate(radius, n, d, budget, gate="gaussian")
    session = calibrated.start(noise)
    value = session.answer(vectors)
    privacy = session.finish()
    return MeanRelease(value, session.noise_std, radius, privacy)


def radius_epsilon(n_users: int, epsilon: float) -> float:
    """Return the pure epsilon that finding a radius gets."""
    low, high = (share * epsilon for share in _RADIUS_SHARE)
    return min(max(_RADIUS_EPSILON_TIMES_USERS / n_users, low), high)


def private_radius(vectors: FloatArray, epsilon: float, noise: NoiseSource) -> float:
    """Find a radius from the distances inside a secret random matching of the users.

    **Guarantee**: (epsilon, 0)-DP: one user touches one pair, and the matching is uniform and never leaves
    (``docs/proofs/private_mean.md``).
    """
    order = noise.permutation(len(vectors))
    half = len(vectors) // 2
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        offsets = vectors[order[:half]] - vectors[order[half : 2 * half]]
        distances = np.sqrt((offsets**2).sum(axis=1))
    return RADIUS_FACTOR * private_quantile(distances, RADIUS_QUANTILE, epsilon, noise)
