r"""What one unit of each column is: a power of two, found privately.

Age, income and a flag have nothing in common but their users: in one ball, all of them would get the noise of the
largest. Users are matched at random, in secret, and each pair votes, column by column, for the power of four next to
how far its two lie apart: no location and no bounds are needed. Means are then taken of columns in units, and each has
a noise of its own size.

A unit too large costs its column noise, which the release tells; one too small costs all columns a wide ball, or a bias
that nobody sees. So a column is as wide as the farthest differences that stand out from noise, not as most of them
(two cities, a few heavy users), and one whose pairs could not be told from noise, because most users agree in it, takes
the largest unit. The widest column is the one in which most differences are largest: of all the bins far out in many
columns, some will stand out by noise alone.

Columns of comparable width, no less than the widest one's over 2 sqrt(d), share its unit: widths are known up to a
factor only, and one ball is best for them. The unit of a narrow column is sqrt(d) times its width, so that all narrow
columns together add about as much to the squared distances between users as the widest column does.

Powers of two make the way there and back exact.

Proof: ``docs/proofs/private_mean.md``.
"""

import math

import numpy as np

from userdp.arrays import FloatArray
from userdp.means.matching import FINEST, matched
from userdp.means.votes import (
    CERTAIN,
    COUNT_RESOLUTION,
    NoisyCounts,
    count_votes,
    nearest_powers_of_four,
    noisy_counts,
    usual_units,
    votes_event,
)
from userdp.mechanisms.noise import NoiseSource
from userdp.privacy.accounting import GaussianEvent

# Powers of four: differences from 2^-64 to 2^64.
_POWERS = np.arange(-32, 33)
# How differences scatter around the typical one, in powers of four: those between flags hardly do.
_SPREADS = (0.3, 0.65, 2.0)
# A unit is where this share of the pairs is, or more; with log odds of so much, or more, against its being noise.
_LEAST_SHARE, _LEAST_EVIDENCE = 0.05, 10.0
# Differences so many powers of four farther out than most are another crowd's, if their counts, or those of two bins
# together, stand out by so much more than the largest of all bins' noises.
_FARTHER, _STANDING_OUT = 2, 1.0
# Widths within this multiple of the root of the dimension are comparable.
_COMPARABLE = 2.0


def units_event(dimension: int, mu: float) -> GaussianEvent:
    """Return what :func:`private_units` costs."""
    return votes_event("units", dimension, len(_POWERS), mu)


def private_units(vectors: FloatArray, event: GaussianEvent, noise: NoiseSource) -> FloatArray:
    """Find a unit for each column of the users' vectors; all are 1 if none is found.

    **Guarantee**: the event's: one user touches one pair, which votes once a column, and the matching is uniform and
    never leaves (``docs/proofs/private_mean.md``).
    """
    one, other = matched(vectors, noise)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        apart = np.abs(one - other)
        differ = np.isfinite(apart) & (apart > FINEST * np.abs(one))
    votes = nearest_powers_of_four(np.where(differ, apart, np.nan))
    counts = COUNT_RESOLUTION * count_votes(votes, _POWERS)
    noisy = noisy_counts(counts, _POWERS, len(one), event, noise)
    places = noisy.places(_SPREADS, usual_units, _LEAST_SHARE)
    found = (places.evidence >= _LEAST_EVIDENCE) & (places.certainty >= CERTAIN)
    if not found.any():
        return np.ones(vectors.shape[1])
    root, widest = math.sqrt(vectors.shape[1]), 4.0 ** places.place[found].max()
    widths = 4.0 ** _farthest(noisy, places.place)
    is_narrow = found & (_COMPARABLE * root * widths < widest)
    return np.exp2(np.rint(np.log2(np.where(is_narrow, root * widths, widest))))


def _farthest(noisy: NoisyCounts, places: FloatArray) -> FloatArray:
    """Return the highest power where counts stand out, well above the place of most of them; else that place."""
    alone = noisy.counts / noisy.noise_std
    with_the_next = (alone + np.pad(alone[:, 1:], ((0, 0), (0, 1)))) / math.sqrt(2)
    least = math.sqrt(2 * math.log(len(noisy.bins))) + _STANDING_OUT
    stands_out = np.maximum(alone, with_the_next) >= least
    is_far = stands_out & (noisy.bins >= places[:, None] + _FARTHER)
    farthest: FloatArray = np.where(is_far, noisy.bins, places[:, None]).max(axis=1)
    return farthest
