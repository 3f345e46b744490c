r"""Private votes on a line: every user names one place, and public bells are fitted to the noisy counts.

Where the targets lie, what a unit of them is, how large a gradient is: each is found this way. A vote bounds what
a user can do whatever their values are, so nobody has to know a range beforehand. Proofs: ``docs/proofs/stages.md``.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import partial

import numpy as np

from userdp.arrays import BoolArray, FloatArray, IntArray
from userdp.data.parts import AnyUsers
from userdp.data.users import Users
from userdp.estimators.per_user import Vectors, sum_over_parts, total
from userdp.mechanisms.noise import NoiseSource
from userdp.privacy.accounting import GaussianEvent, gaussian_scale

# Counts are integers; the noise lives on a lattice this much finer. A vote that is shared out is this many parts.
COUNT_RESOLUTION, _VOTE = 2**10, 2**20
# Magnitudes are powers of four in this range, which every float of a sane table lies in.
POWERS = np.arange(-20, 21)
ABSTAINS = 10_000
# Places are looked for between the bins, too.
_STEP = 0.25
# Fewer users than this share do not make a place, and below this posterior probability one is a guess.
LEAST_SHARE, CERTAIN = 0.25, 0.7


@dataclass(frozen=True)
class Places:
    """Most likely places, one per column, in bins.

    Attributes
    ----------
    place : array of shape (columns,)
        Posterior mean within one bin of the most likely place.
    certainty : array of shape (columns,)
        Posterior probability of lying within one bin of it, or within one width where users scatter more widely.
    variance : array of shape (columns,)
        Posterior mean square distance from it.
    support, evidence : array of shape (columns,)
        About which share of the users is there; log odds of its being anywhere against counts that are mere noise.
    """

    place: FloatArray
    certainty: FloatArray
    variance: FloatArray
    support: FloatArray
    evidence: FloatArray

    def where(self, is_better: BoolArray, others: "Places") -> "Places":
        """Return these places for some columns, others for the rest."""
        chosen = {
            field.name: np.where(is_better, getattr(self, field.name), getattr(others, field.name))
            for field in fields(self)
        }
        return Places(**chosen)


@dataclass(frozen=True)
class NoisyCounts:
    """Private histograms over integer bins, one row per column, the noise of each count, and their cost."""

    bins: IntArray
    counts: FloatArray
    noise_std: float
    n_users: int
    event: GaussianEvent

    @np.errstate(under="ignore")
    def places(self, widths: Sequence[float], log_prior: Callable[[FloatArray], FloatArray]) -> Places:
        """Find where each column's users are, if they scatter with a standard deviation of one of ``widths`` bins.

        A place is where a quarter of the users are, or more. The likeliest width is taken.
        """
        n, steps = self.n_users, round((self.bins[-1] - self.bins[0]) / _STEP)
        places = self.bins[0] + _STEP * np.arange(steps + 1)
        found: Places | None = None
        for width in widths:
            bells = self._fit(places, width)
            score = bells.score + _normalized(log_prior(places))
            evidence = np.logaddexp.reduce(score, axis=1)
            posterior = np.exp(score - evidence[:, None])
            columns, best = np.arange(len(score)), posterior.argmax(axis=1)
            near = posterior * (np.abs(places - places[best, None]) <= max(1.0, width))
            certainty: FloatArray = near.sum(axis=1)
            place: FloatArray = near @ places / certainty
            variance: FloatArray = (posterior * (places - place[:, None]) ** 2).sum(axis=1)
            support = bells.matched[columns, best] / (n * bells.energy)
            new = Places(place, certainty, variance, support, evidence)
            found = new if found is None else found.where(found.evidence >= new.evidence, new)
        assert found is not None
        return found

    def _fit(self, places: FloatArray, width: float) -> "_Fit":
        """Fit one bell at every place."""
        n = self.n_users
        bells: FloatArray = np.exp(-0.5 * ((self.bins - places[:, None]) / width) ** 2)
        bells /= bells.sum(axis=1, keepdims=True)
        matched: FloatArray = self.counts @ bells.T
        # One energy for all bells: a column that few users have must not go where the bells are lowest.
        energy = float((bells**2).sum(axis=1).mean())
        voters = n * np.clip(matched / (n * energy), LEAST_SHARE, 1.0)
        score = (voters * matched - voters**2 * energy / 2) / self.noise_std**2
        return _Fit(score, matched, energy)


@dataclass(frozen=True)
class _Fit:
    """Bells of one width, at every place: log likelihood over that of mere noise, with as many users as fit best.

    ``matched`` are the counts under a bell, ``energy`` what they would be for one user there.
    """

    score: FloatArray
    matched: FloatArray
    energy: float


def _normalized(log_prior: FloatArray) -> FloatArray:
    normalized: FloatArray = log_prior - np.logaddexp.reduce(log_prior)
    return normalized


def private_counts(votes: Vectors, bins: IntArray, mu: float, name: str, noise: NoiseSource) -> NoisyCounts:
    """Count the users that vote for each bin, column by column; a vote for no bin abstains.

    Replacing a user takes at most one vote of each of the d columns from one bin to another: sqrt(2 d) in L2.

    **Guarantee**: the event's (``docs/proofs/stages.md``).
    """
    counts = total(lambda some: _counts(some, bins), votes)
    return _noisy(COUNT_RESOLUTION * counts, COUNT_RESOLUTION, bins, votes.shape[0], mu, name, noise)


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
    return _noisy(parts, _VOTE, bins, users.n_users, mu, name, noise)


def _noisy(
    parts: IntArray, vote: int, bins: IntArray, n_users: int, mu: float, name: str, noise: NoiseSource
) -> NoisyCounts:
    """Add noise to histograms, one row per column, in which a user has one vote a column, of ``vote`` parts."""
    sensitivity = math.sqrt(2 * len(parts)) * vote * (1 + 1e-12)
    event = GaussianEvent(name, sensitivity, gaussian_scale(sensitivity, mu), parts.size)
    draws = noise.discrete_gaussian(event.scale, parts.size).reshape(parts.shape)
    return NoisyCounts(bins, (parts + draws) / vote, event.scale / vote, n_users, event)


def _row_counts(users: Users, bins_of: Callable[[Users], FloatArray], bins: IntArray) -> IntArray:
    """Add up what rows count for, whole numbers: a user's add up to no more than a vote."""
    return _counts(bins_of(users), bins, np.repeat(_VOTE // users.items_per_user, users.items_per_user))


def _counts(votes: FloatArray | IntArray, bins: IntArray, parts: IntArray | None = None) -> IntArray:
    """Count the rows of each column that are in each bin, one integer after the other; each as so many parts."""
    n_bins, d = len(bins), votes.shape[1]
    # What is in no bin, NaN too, is counted behind the last one and left out.
    place = np.where((votes >= bins[0]) & (votes <= bins[-1]), votes - bins[0], n_bins).astype(np.int64)
    place = (place + (n_bins + 1) * np.arange(d)).ravel()
    # Sums of whole numbers below 2^53, so exact in floating point: `fit` refuses more than 2^32 users.
    weights = None if parts is None else np.repeat(parts, d)
    found = np.bincount(place, weights, minlength=(n_bins + 1) * d).astype(np.int64)
    return found.reshape(d, n_bins + 1)[:, :n_bins]


def nearest_powers_of_four(magnitudes: FloatArray) -> IntArray:
    """Round log4 of positive numbers, by their bits alone; NaN abstains by a power that is no bin.

    Half an odd power of two is where rounding turns: with x = f 2^e, 1/2 <= f < 1, the answer is floor(e/2).
    """
    _, exponent = np.frexp(magnitudes)
    return np.where(np.isnan(magnitudes), ABSTAINS, exponent // 2)


def usual_units(powers: FloatArray) -> FloatArray:
    """Log prior of magnitudes: most tables are in units people use, but a million of them is no reason to give up."""
    return -0.15 * np.abs(powers)


def near_zero(places: FloatArray) -> FloatArray:
    """Log prior of locations: close to zero, with tails heavy enough for any other place."""
    return -np.log1p((places / 2) ** 2)
