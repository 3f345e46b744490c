r"""How widely rows differ, from users matched in secret.

How far a user's rows lie from each other says nothing of how far users do: a fare hardly changes within a route, a wage
little within a year. Two users tell both, wherever the targets lie: with rows x of one and y of the other,

    E (x - y)^2 / 2 = (variance of x + variance of y + (difference of their means)^2) / 2.

Users are matched at random, each at most once, so replacing a user changes one pair; who is matched with whom never
leaves. Proof: ``docs/proofs/stages.md``.
"""

import math
from dataclasses import replace

import numpy as np

from userdp.arrays import FloatArray
from userdp.data.parts import AnyUsers
from userdp.data.users import Users
from userdp.estimators.per_user import chosen_users, per_user
from userdp.mechanisms.noise import NoiseSource

# So many users tell enough, and their moments fit into memory.
MOST_MATCHED = 2**16
# Noise of a count, over the number of pairs, beyond which users' own deviations tell more.
_MOST_NOISE = 0.1


def are_worth_it(n_users: int, mu: float) -> bool:
    """Whether so many users, of whom each two vote once, tell more than each by their own rows; reads no data."""
    n_pairs = min(n_users, MOST_MATCHED) // 2
    return math.sqrt(2) <= _MOST_NOISE * mu * n_pairs


def pair_magnitudes(users: AnyUsers, noise: NoiseSource) -> FloatArray:
    """Match users in secret; return each pair's root mean square difference of every column, over sqrt(2).

    NaN where that is 0 or a user is null.
    """
    vectors = per_user(_moments, users)
    n, d = vectors.shape[0], users.n_features
    matched = noise.permutation(n)[: 2 * (min(n, MOST_MATCHED) // 2)]
    one, other = np.split(chosen_users(vectors, matched), 2)
    with np.errstate(all="ignore"):
        squares = (one[:, d:] + other[:, d:] + (one[:, :d] - other[:, :d]) ** 2) / 2
        magnitudes = np.sqrt(squares)
    return np.where(np.isfinite(magnitudes) & (magnitudes > 0), magnitudes, np.nan)


@np.errstate(all="ignore")
def _moments(users: Users) -> FloatArray:
    """Return each user's means, then variances, of every column; NaN for a null user."""
    means = users.means()
    deviations = users.rows - np.repeat(means, users.items_per_user, axis=0)
    return np.hstack([means, replace(users, rows=deviations**2).means()])
