r"""Votes on a line: public bells fitted to noisy counts, one row of counts for each column.

A vote bounds what a user, or a pair of users, can do whatever their values are, so nobody has to know a range
beforehand. Proofs: ``docs/proofs/stages.md``, ``docs/proofs/private_mean.md``.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

import numpy as np

from userdp.arrays import BoolArray, FloatArray, IntArray
from userdp.mechanisms.noise import NoiseSource
from userdp.privacy.accounting import GaussianEvent, gaussian_scale

# Counts are integers; the noise lives on a lattice this much finer.
COUNT_RESOLUTION = 2**10
ABSTAINS = 10_000
# Places are looked for between the bins, too.
_STEP = 0.25
# Fewer voters than this share do not make a place, and below this posterior probability one is a guess.
LEAST_SHARE, CERTAIN = 0.25, 0.7


@dataclass(frozen=True)
class Places:
    """Most likely places, one per column, in bins.

    Attributes
    ----------
    place : array of shape (columns,)
        Posterior mean within one bin of the most likely place.
    certainty : array of shape (columns,)
        Posterior probability of lying within one bin of it, or within one width where votes scatter more widely.
    variance : array of shape (columns,)
        Posterior mean square distance from it.
    support, evidence : array of shape (columns,)
        About which share of the voters is there; log odds of its being anywhere against counts that are mere noise.
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
    n_voters: int
    event: GaussianEvent

    @np.errstate(under="ignore")
    def places(
        self,
        widths: Sequence[float],
        log_prior: Callable[[FloatArray], FloatArray],
        least_share: float = LEAST_SHARE,
    ) -> Places:
        """Find where each column's voters are, if they scatter with a standard deviation of one of ``widths`` bins.

        A place is where at least ``least_share`` of them are, a quarter by default. The likeliest width is taken.
        """
        n, steps = self.n_voters, round((self.bins[-1] - self.bins[0]) / _STEP)
        places = self.bins[0] + _STEP * np.arange(steps + 1)
        found: Places | None = None
        for width in widths:
            bells = self._fit(places, width, least_share)
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

    def _fit(self, places: FloatArray, width: float, least_share: float) -> "_Fit":
        """Fit one bell at every place."""
        n = self.n_voters
        bells: FloatArray = np.exp(-0.5 * ((self.bins - places[:, None]) / width) ** 2)
        bells /= bells.sum(axis=1, keepdims=True)
        matched: FloatArray = self.counts @ bells.T
        # One energy for all bells: a column that few vote in must not go where the bells are lowest.
        energy = float((bells**2).sum(axis=1).mean())
        voters = n * np.clip(matched / (n * energy), least_share, 1.0)
        score = (voters * matched - voters**2 * energy / 2) / self.noise_std**2
        return _Fit(score, matched, energy)


@dataclass(frozen=True)
class _Fit:
    """Bells of one width, at every place: log likelihood over that of mere noise, with as many voters as fit best.

    ``matched`` are the counts under a bell, ``energy`` what they would be for one voter there.
    """

    score: FloatArray
    matched: FloatArray
    energy: float


def _normalized(log_prior: FloatArray) -> FloatArray:
    normalized: FloatArray = log_prior - np.logaddexp.reduce(log_prior)
    return normalized


def votes_event(
    name: str, n_columns: int, n_bins: int, mu: float, vote: int = COUNT_RESOLUTION
) -> GaussianEvent:
    """Return the cost of noisy counts in which a voter has one vote a column, of ``vote`` parts.

    Replacing a voter takes at most one vote of each of the d columns from one bin to another: sqrt(2 d) in L2.
    """
    sensitivity = math.sqrt(2 * n_columns) * vote * (1 + 1e-12)
    return GaussianEvent(name, sensitivity, gaussian_scale(sensitivity, mu), n_columns * n_bins)


def noisy_counts(
    parts: IntArray,
    bins: IntArray,
    n_voters: int,
    event: GaussianEvent,
    noise: NoiseSource,
    vote: int = COUNT_RESOLUTION,
) -> NoisyCounts:
    """Add noise to histograms, one row per column, whose every vote is ``vote`` parts.

    **Guarantee**: the event's.
    """
    draws = noise.discrete_gaussian(event.scale, parts.size).reshape(parts.shape)
    return NoisyCounts(bins, (parts + draws) / vote, event.scale / vote, n_voters, event)


def count_votes(votes: FloatArray | IntArray, bins: IntArray, parts: IntArray | None = None) -> IntArray:
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

    Odd powers of two are where rounding turns: with x = f 2^e, 1/2 <= f < 1, the answer is floor(e/2).
    """
    _, exponent = np.frexp(magnitudes)
    return np.where(np.isnan(magnitudes), ABSTAINS, exponent // 2)


def usual_units(powers: FloatArray) -> FloatArray:
    """Log prior of magnitudes: most tables are in units people use, but a million of them is no reason to give up."""
    return -0.15 * np.abs(powers)


def near_zero(places: FloatArray) -> FloatArray:
    """Log prior of locations: close to zero, with tails heavy enough for any other place."""
    return -np.log1p((places / 2) ** 2)
