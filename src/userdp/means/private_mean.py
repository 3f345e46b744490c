r"""``userdp.mean``: a table, a user column, a budget, and nothing else to know.

Locate, then clip. Each stage is one Gaussian mechanism; :mod:`userdp.means.mean_shares` says what it spends:

1. **units**: what one unit of each column is, a power of two; left out for a single column, and where there are too
   many columns for that. All that follows happens in units;
2. **radius**: the law of the distances between matched users, from a noisy histogram: no location and no bounds are
   needed for it;
3. **centre**: a concentrated mean, at the radius where that law expects its noise to be least: wherever the users are;
4. **second centre**: the mean of the users clipped around it, left out where the first is as good;
5. **clip radius**: the law of the users' distances to the centre, from a noisy histogram; the radius with the least
   noise^2 + bias^2 under it;
6. **mean** of the users clipped around the centre, for the rest of the budget.

Where N = n mu is small against sqrt(d) the concentrated mean is the answer, and gets the whole rest.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from userdp.arrays import FloatArray
from userdp.data.users import Users
from userdp.errors import NotConcentratedError
from userdp.means import certified
from userdp.means.clipped import CalibratedClippedMean, ClippedSession
from userdp.means.interface import MeanRelease
from userdp.means.lattice import Lattice
from userdp.means.matching import FINEST, matched
from userdp.means.mean_shares import shares
from userdp.means.sensitivity import mean_sensitivity
from userdp.means.spread import (
    ALL_BINS,
    BINS_PER_OCTAVE,
    CERTAIN,
    DistanceLaw,
    distance_law,
    histogram_event,
)
from userdp.means.units import private_units, units_event
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

    Every user counts once, whatever the number of their rows. No bounds are asked for: without ``radius`` a small share
    of the budget finds where users are and how far from there, wherever that is, from 2^-64 to 2^64. If users are many
    enough for it, it first finds what one unit of each column is, and the noise of each follows that.

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
        given = certified.calibrate(radius, n, d, budget, gate="gaussian")
        return _concentrated(vectors, given, noise, np.ones(d))
    stages = _stages(n, d, budget)
    units = np.ones(d) if stages.units is None else private_units(vectors, stages.units, noise)
    with np.errstate(over="ignore", under="ignore"):  # an infinity makes its user null
        vectors = vectors / units
    if stages.clipping is None:
        apart = distances_apart(vectors, stages.pairs, noise)
        alone = stages.concentrated.with_radius(_friend_radius(apart, stages.concentrated))
        return _concentrated(vectors, alone, noise, units)
    return _located(vectors, budget, stages, stages.clipping, noise, units)


@dataclass(frozen=True)
class _Clipping:
    """What it costs to clip around a centre: a better one, if that pays, a radius, and the mean."""

    second_centre: GaussianEvent | None
    radius: GaussianEvent
    mean: GaussianEvent


@dataclass(frozen=True)
class _Stages:
    """What every stage costs, and a concentrated mean at a stand-in radius, for what is left beside them."""

    units: GaussianEvent | None
    pairs: GaussianEvent
    clipping: _Clipping | None
    concentrated: certified.CertifiedMean


def _stages(n_users: int, dimension: int, budget: Budget) -> _Stages:
    """Fix all costs; whatever can be refused is refused here, before any noise is drawn."""
    split = shares(n_users, dimension, budget)
    units = units_event(dimension, split.mu_of(split.units)) if split.units else None
    pairs = histogram_event("radius", split.mu_of(split.pairs), 2 * len(ALL_BINS))
    clipping = None
    if split.mean:
        clipping = _Clipping(
            _clipping_event("second centre", n_users, dimension, split.mu_of(split.second_centre))
            if split.second_centre
            else None,
            histogram_event("clip radius", split.mu_of(split.clip), len(_CLIP_BINS)),
            _clipping_event("mean", n_users, dimension, split.mu_of(split.mean)),
        )
    later = (clipping.second_centre, clipping.radius, clipping.mean) if clipping else ()
    beside = tuple(event for event in (units, pairs, *later) if event is not None)
    concentrated = certified.calibrate(1.0, n_users, dimension, budget, gate="gaussian", beside=beside)
    return _Stages(units, pairs, clipping, concentrated)


def _concentrated(
    vectors: FloatArray, mean: certified.CertifiedMean, noise: NoiseSource, units: FloatArray
) -> MeanRelease:
    """Release a concentrated mean of vectors in units."""
    session = mean.start(noise)
    value = session.answer(vectors)
    return MeanRelease(value * units, session.noise_std * units, mean.lattice.radius, units, session.finish())


def _located(
    vectors: FloatArray,
    budget: Budget,
    stages: _Stages,
    clipping: _Clipping,
    noise: NoiseSource,
    units: FloatArray,
) -> MeanRelease:
    """Locate the users by a concentrated mean, then clip around it; vectors are in units."""
    n, d = vectors.shape
    locate, second = stages.concentrated, clipping.second_centre
    apart = distances_apart(vectors, stages.pairs, noise)
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
    law = distance_law(distances, clipping.radius, noise, _CLIP_BINS, unit=expected, number=n)
    radius = _clip_radius(law, n, clipping.mean)
    final = _clipped_around(centre, radius, budget, n, clipping.mean, noise)
    value = final.answer(vectors)
    return MeanRelease(value * units, final.noise_std * units, radius, units, session.finish())


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
    one, other = matched(vectors, noise)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        distances = np.sqrt(((one - other) ** 2).sum(axis=1))
        finest = FINEST * np.sqrt((one**2).sum(axis=1))
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
