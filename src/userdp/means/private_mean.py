r"""``userdp.mean``: a table, a user column, a budget, and nothing else to know.

Locate, then clip. Each stage is one Gaussian mechanism; :mod:`userdp.means.mean_shares` says what it spends:

1. **radius**: the law of the distances between matched users, from a noisy histogram: no location and no bounds are
   needed for it;
2. **centre**: a concentrated mean, at the radius where that law expects its noise to be least: wherever the users are;
3. **second centre**: the mean of the users clipped around it, left out where the first is as good;
4. **clip radius**: the law of the users' distances to the centre, from a noisy histogram; the radius with the least
   noise^2 + bias^2 under it;
5. **mean** of the users clipped around the centre, for the rest of the budget.

Where N = n mu is small against sqrt(d) the concentrated mean is the answer, and gets the whole rest.
"""

import math
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from userdp.arrays import FloatArray
from userdp.data.users import Users
from userdp.errors import NotConcentratedError
from userdp.means import certified
from userdp.means.clipped import CalibratedClippedMean, ClippedSession
from userdp.means.interface import MeanRelease
from userdp.means.lattice import Lattice
from userdp.means.mean_shares import Shares, shares
from userdp.means.sensitivity import mean_sensitivity
from userdp.means.spread import (
    ALL_BINS,
    BINS_PER_OCTAVE,
    CERTAIN,
    DistanceLaw,
    distance_law,
    histogram_event,
)
from userdp.mechanisms.noise import NoiseSource, noise_source
from userdp.privacy.accounting import GaussianEvent, gaussian_scale
from userdp.privacy.budget import Budget
from userdp.privacy.calibration import INDEX_RESOLUTION, GaussianSetting

# Distances to the centre are looked for between 1/8 and 64 times what they are expected to be.
_CLIP_BINS = np.arange(-3 * BINS_PER_OCTAVE, 6 * BINS_PER_OCTAVE + 1)
# E (distance - radius)+ bounds the bias of clipping. Users on opposite sides cancel, so not all of it is counted,
# except in up to so many dimensions.
_BIAS_WEIGHT, _FEW_DIMENSIONS = 0.7, 4
# Friends are expected with this many standard deviations of the gate's noise to spare.
_GATE_LUCK = 2.0
# So many radii are looked at, from the median distance on.
_CANDIDATES = 7
# Users who agree up to this share of how far from zero they are agree: at a smaller radius there is no lattice there.
_FINEST = 2.0**-32
NO_RADIUS = (
    "how far apart the users are could not be told from noise, so nothing is released; the budget is spent. "
    "Use more users, a larger epsilon, or give a radius"
)


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
    small share of the budget finds where users are and how far from there, wherever that is: from 2^-64 to 2^64.

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
        If the users do not agree, or their distances could not be told from noise; the budget is then spent.

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
    if radius is not None:
        return _concentrated(vectors, certified.calibrate(radius, n, d, budget, gate="gaussian"), noise)
    split = shares(n, d, budget)
    pairs = histogram_event("radius", split.mu_of(split.pairs), 2 * len(ALL_BINS))
    if split.mean:
        return _located(vectors, budget, split, pairs, noise)
    # Calibrated at a stand-in radius first: whatever can be refused is refused before any noise is drawn.
    alone = certified.calibrate(1.0, n, d, budget, gate="gaussian", beside=(pairs,))
    apart = distances_apart(vectors, pairs, noise)
    return _concentrated(vectors, alone.with_radius(_friend_radius(apart, alone)), noise)


def _concentrated(vectors: FloatArray, mean: certified.CertifiedMean, noise: NoiseSource) -> MeanRelease:
    """Release a concentrated mean."""
    session = mean.start(noise)
    value = session.answer(vectors)
    return MeanRelease(value, session.noise_std, mean.lattice.radius, session.finish())


def _located(
    vectors: FloatArray, budget: Budget, split: Shares, pairs: GaussianEvent, noise: NoiseSource
) -> MeanRelease:
    """Locate the users by a concentrated mean, then clip around it."""
    n, d = vectors.shape
    second = (
        _clipping_event("second centre", n, d, split.mu_of(split.second_centre))
        if split.second_centre
        else None
    )
    clip = histogram_event("clip radius", split.mu_of(split.clip), len(_CLIP_BINS))
    last = _clipping_event("mean", n, d, split.mu_of(split.mean))
    beside = (pairs, clip, last) if second is None else (pairs, second, clip, last)
    # The first centre gets what is left beside the others; refused here if that is too little.
    locate = certified.calibrate(1.0, n, d, budget, gate="gaussian", beside=beside)

    apart = distances_apart(vectors, pairs, noise)
    around = apart.times(1 / math.sqrt(2))
    session = replace(locate.with_radius(_friend_radius(apart, locate)), purpose="centre").start(noise)
    centre, off = session.answer(vectors), math.sqrt(d) * session.noise_std
    if second is not None:
        radius = math.hypot(_clip_radius(around, n, second), off)
        clipped = _clipped_around(centre, radius, budget, n, second, noise)
        centre, off = clipped.answer(vectors), math.sqrt(d) * clipped.noise_std
    with np.errstate(all="ignore"):
        distances = np.sqrt(((vectors - centre) ** 2).sum(axis=1))
    expected = math.hypot(around.quantile(0.5), off)
    law = distance_law(distances, clip, noise, _CLIP_BINS, unit=expected, number=n)
    radius = _clip_radius(law, n, last)
    final = _clipped_around(centre, radius, budget, n, last, noise)
    value = final.answer(vectors)
    return MeanRelease(value, final.noise_std, radius, session.finish())


def _clipping_event(name: str, n_users: int, dimension: int, mu: float) -> GaussianEvent:
    """Cost of a clipped mean, the same at every radius."""
    sensitivity = 2.0 * Lattice.fine_enough(1.0, n_users, dimension).radius_units
    return GaussianEvent(name, sensitivity, gaussian_scale(sensitivity, mu), dimension)


def _clipped_around(
    centre: FloatArray, radius: float, budget: Budget, n_users: int, event: GaussianEvent, noise: NoiseSource
) -> ClippedSession:
    lattice = Lattice.fine_enough(radius, n_users, len(centre))
    return CalibratedClippedMean(centre, budget, n_users, lattice, event, beside=()).start(noise)


def distances_apart(vectors: FloatArray, event: GaussianEvent, noise: NoiseSource) -> DistanceLaw:
    """Find the law of the distances inside a secret random matching of the users.

    **Guarantee**: the event's: one user touches one pair, and the matching is uniform and never leaves
    (``docs/proofs/private_mean.md``).
    """
    order = noise.permutation(len(vectors))
    half = len(vectors) // 2
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        one, other = vectors[order[:half]], vectors[order[half : 2 * half]]
        distances = np.sqrt(((one - other) ** 2).sum(axis=1))
        finest = _FINEST * np.sqrt((one**2).sum(axis=1))
    law = distance_law(distances, event, noise, finest=finest)
    if law.certainty < CERTAIN:
        raise NotConcentratedError(NO_RADIUS)
    return law


def _friend_radius(apart: DistanceLaw, mean: certified.CertifiedMean) -> float:
    """Return the radius at which a concentrated mean is expected to have the least noise: the end of some bin."""
    n, gate = mean.n_users, mean.setting
    assert isinstance(gate, GaussianSetting)
    radii = apart.edges[apart.edges >= apart.quantile(0.5)][:_CANDIDATES] * (1 + 1e-12)
    indices = apart.share_within(radii) * n * INDEX_RESOLUTION - _GATE_LUCK * gate.scale
    noise = [mean_sensitivity(gate.index(int(i)), n, r) for i, r in zip(indices, radii, strict=True)]
    # Where none is expected to pass, the widest is the best guess.
    return float(radii[int(np.argmin(noise))] if math.isfinite(min(noise)) else radii[-1])


def _clip_radius(law: DistanceLaw, n_users: int, event: GaussianEvent) -> float:
    """Return the radius of least noise^2 + bias^2 for a clipped mean of that cost."""
    noise_over_radius = 2 * math.sqrt(event.coordinates) / (n_users * event.mu)
    octaves = len(law.edges) / BINS_PER_OCTAVE
    radii = law.edges[0] * 2.0 ** np.arange(0, octaves, 1 / 8)
    weight = _BIAS_WEIGHT + (1 - _BIAS_WEIGHT) * min(1.0, _FEW_DIMENSIONS / event.coordinates)
    cost = (noise_over_radius * radii) ** 2 + weight * law.mean_excess(radii) ** 2
    return float(radii[int(np.argmin(cost))])
