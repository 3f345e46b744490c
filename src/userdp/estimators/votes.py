r"""Private votes on a line: every user names one place, and public bells are fitted to the noisy counts.

Where the targets lie, what a unit of a feature is, how large a gradient is: each is found this way. A vote bounds what
a user can do whatever their values are, so nobody has to know a range beforehand. Proofs: ``docs/proofs/stages.md``.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from userdp.arrays import BoolArray, FloatArray, IntArray
from userdp.estimators.per_user import Vectors, total
from userdp.mechanisms.noise import NoiseSource
from userdp.privacy.accounting import GaussianEvent, gaussian_scale

# Counts are integers; the noise lives on a lattice this much finer.
COUNT_RESOLUTION = 2**10
# Magnitudes are powers of four in this range, which every float of a sane table lies in.
POWERS = np.arange(-20, 21)
_ABSTAINS = 10_000
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
    width : array of shape (columns,)
        How widely users scatter, in bins.
    support, evidence : array of shape (columns,)
        About which share of the users is there; log odds of its being anywhere against counts that are mere noise.
    """

    place: FloatArray
    certainty: FloatArray
    variance: FloatArray
    width: FloatArray
    support: FloatArray
    evidence: FloatArray

    @property
    def is_found(self) -> BoolArray:
        """Whether a place is certain, supported by enough users, and no mere noise."""
        found: BoolArray = (self.certainty >= CERTAIN) & (self.support >= LEAST_SHARE) & (self.evidence >= 0)
        return found

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

    def within(self, reach: int) -> "NoisyCounts":
        """Leave out the bins further than ``reach`` from zero."""
        inside = np.abs(self.bins) <= reach
        return replace(self, bins=self.bins[inside], counts=self.counts[:, inside])

    @np.errstate(under="ignore")
    def places(
        self,
        widths: Sequence[float],
        log_prior: Callable[[FloatArray], FloatArray],
        *,
        pooled: bool = False,
        narrow: bool = False,
    ) -> Places:
        """Find where each column's users are, if they scatter with a standard deviation of one of ``widths`` bins.

        A place is where a quarter of the users are, or more. The likeliest width is taken, or, if ``narrow``, the first
        one at which a place is found, if it is the same place. ``pooled`` lets columns learn from each other which
        places are common.
        """
        n, steps = self.n_users, round((self.bins[-1] - self.bins[0]) / _STEP)
        places = self.bins[0] + _STEP * np.arange(steps + 1)
        found: Places | None = None
        for width in widths:
            bells = self._fit(places, width, pooled)
            score = bells.score + _normalized(log_prior(places) + bells.log_common)
            evidence = np.logaddexp.reduce(score, axis=1)
            posterior = np.exp(score - evidence[:, None])
            columns, best = np.arange(len(score)), posterior.argmax(axis=1)
            near = posterior * (np.abs(places - places[best, None]) <= max(1.0, width))
            certainty: FloatArray = near.sum(axis=1)
            place: FloatArray = near @ places / certainty
            variance: FloatArray = (posterior * (places - place[:, None]) ** 2).sum(axis=1)
            support = bells.matched[columns, best] / (n * bells.energy)
            new = Places(place, certainty, variance, np.full(len(score), width), support, evidence)
            if found is None:
                found = new
            else:
                # A wider bell somewhere else is no answer to a doubt about this one.
                is_elsewhere = np.abs(found.place - new.place) > 2 * width
                is_better = found.is_found | is_elsewhere if narrow else found.evidence >= new.evidence
                found = found.where(is_better, new)
        assert found is not None
        return found

    def _fit(self, places: FloatArray, width: float, pooled: bool) -> "_Fit":
        """Fit one bell at every place."""
        n = self.n_users
        bells: FloatArray = np.exp(-0.5 * ((self.bins - places[:, None]) / width) ** 2)
        bells /= bells.sum(axis=1, keepdims=True)
        matched: FloatArray = self.counts @ bells.T
        # One energy for all bells: a column that few users have must not go where the bells are lowest.
        energy = float((bells**2).sum(axis=1).mean())
        common = np.maximum(matched.mean(axis=0), 0) + 0.001 * n if pooled else np.ones(len(places))
        return _Fit(self._score(matched, energy), np.log(common), matched, energy)

    def _score(self, matched: FloatArray, energy: float) -> FloatArray:
        """Log likelihood of bells over that of mere noise, each with as many users as fit best."""
        n = self.n_users
        voters = n * np.clip(matched / (n * energy), LEAST_SHARE, 1.0)
        score: FloatArray = (voters * matched - voters**2 * energy / 2) / self.noise_std**2
        return score

    def score_of_ends(self) -> FloatArray:
        """Log likelihood, over that of mere noise, of most users being in the first or in the last bin."""
        ends: FloatArray = self._score(self.counts[:, [0, -1]], 1.0).max(axis=1)
        return ends


@dataclass(frozen=True)
class _Fit:
    """Bells of one width, at every place: their log likelihood, how common the place is, counts, and energy."""

    score: FloatArray
    log_common: FloatArray
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
    sensitivity = math.sqrt(2 * len(counts)) * COUNT_RESOLUTION * (1 + 1e-12)
    event = GaussianEvent(name, sensitivity, gaussian_scale(sensitivity, mu), counts.size)
    draws = noise.discrete_gaussian(event.scale, counts.size).reshape(counts.shape)
    return NoisyCounts(
        bins, counts + draws / COUNT_RESOLUTION, event.scale / COUNT_RESOLUTION, votes.shape[0], event
    )


def _counts(votes: FloatArray | IntArray, bins: IntArray) -> IntArray:
    """Count the rows of each column that are in each bin, one integer after the other."""
    n_bins, d = len(bins), votes.shape[1]
    # What is in no bin, NaN too, is counted behind the last one and left out.
    place = np.where((votes >= bins[0]) & (votes <= bins[-1]), votes - bins[0], n_bins).astype(np.int64)
    found = np.bincount((place + (n_bins + 1) * np.arange(d)).ravel(), minlength=(n_bins + 1) * d)
    return found.reshape(d, n_bins + 1)[:, :n_bins]


def nearest_powers_of_four(magnitudes: FloatArray) -> IntArray:
    """Round log4 of positive numbers, by their bits alone; NaN abstains by a power that is no bin.

    Half an odd power of two is where rounding turns: with x = f 2^e, 1/2 <= f < 1, the answer is floor(e/2).
    """
    _, exponent = np.frexp(magnitudes)
    return np.where(np.isnan(magnitudes), _ABSTAINS, exponent // 2)


def usual_units(powers: FloatArray) -> FloatArray:
    """Log prior of magnitudes: most tables are in units people use, but a million of them is no reason to give up."""
    return -0.15 * np.abs(powers)


def near_zero(places: FloatArray) -> FloatArray:
    """Log prior of locations: close to zero, with tails heavy enough for any other place."""
    return -np.log1p((places / 2) ** 2)


def anywhere(places: FloatArray) -> FloatArray:
    """Log prior of locations that may be anywhere."""
    return np.zeros(len(places))
