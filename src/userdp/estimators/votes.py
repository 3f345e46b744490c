"""Private votes of users: each names one place a column, or shares one out among their rows.

Where the targets lie, what a unit of them is, how large a gradient is: each is found this way, by
:mod:`userdp.means.votes`. Proofs: ``docs/proofs/stages.md``.
"""

from collections.abc import Callable
from functools import partial

import numpy as np

from userdp.arrays import FloatArray, IntArray
from userdp.data.parts import AnyUsers
from userdp.data.users import Users
from userdp.estimators.per_user import Vectors, sum_over_parts, total
from userdp.means.votes import COUNT_RESOLUTION, NoisyCounts, count_votes, noisy_counts, votes_event
from userdp.mechanisms.noise import NoiseSource

# Magnitudes are powers of four in this range, which every float of a sane table lies in.
POWERS = np.arange(-20, 21)
# A vote that is shared out is this many parts.
_VOTE = 2**20


def private_counts(votes: Vectors, bins: IntArray, mu: float, name: str, noise: NoiseSource) -> NoisyCounts:
    """Count the users that vote for each bin, column by column; a vote for no bin abstains.

    **Guarantee**: the event's (``docs/proofs/stages.md``).
    """
    n, d = votes.shape
    counts = total(lambda some: count_votes(some, bins), votes)
    return noisy_counts(COUNT_RESOLUTION * counts, bins, n, votes_event(name, d, len(bins), mu), noise)


def private_row_counts(
    users: AnyUsers,
    bins_of: Callable[[Users], FloatArray],
    bins: IntArray,
    mu: float,
    name: str,
    noise: NoiseSource,
) -> NoisyCounts:
    """Count rows in bins, column by column: a user's one vote a column is shared out equally among their rows.

    ``bins_of`` returns the bins of rows; a row in none of ``bins`` counts for nothing.

    **Guarantee**: the event's (``docs/proofs/stages.md``): d columns move by at most sqrt(2 d) votes in L2.
    """
    parts = sum_over_parts(partial(_row_counts, bins_of=bins_of, bins=bins), users)
    event = votes_event(name, len(parts), len(bins), mu, _VOTE)
    return noisy_counts(parts, bins, users.n_users, event, noise, _VOTE)


def _row_counts(users: Users, bins_of: Callable[[Users], FloatArray], bins: IntArray) -> IntArray:
    """Add up what rows count for, whole numbers: a user's add up to no more than a vote."""
    return count_votes(bins_of(users), bins, np.repeat(_VOTE // users.items_per_user, users.items_per_user))
