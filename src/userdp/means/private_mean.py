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
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from userdp.arrays import FloatArray
from userdp.data.users import Users
from userdp.errors import NotConcentratedError
from userdp.means import certified
from userdp.means.clipped import CalibratedClippedMean
from userdp.means.interface import MeanRelease
from userdp.means.lattice import Lattice
from userdp.means.sensitivity import mean_sensitivity
from userdp.means.spread import ALL_BINS, BINS_PER_OCTAVE, DistanceLaw, distance_law, histogram_event
from userdp.mechanisms.noise import NoiseSource, noise_source
from userdp.privacy.accounting import GaussianEvent, gaussian_scale, mu_beside
from userdp.privacy.budget import Budget
from userdp.privacy.calibration import INDEX_RESOLUTION

NO_SCALE = "the distances between users could not be told from noise, so nothing is released; the budget is spent"
# Share of mu^2 for a noisy histogram: N sqrt(share) at which its bell stands out (see docs/proofs/private_mean.md).
_PAIRS_SIGNAL, _PAIRS_NEEDED = 80.0, 50.0
_CLIP_SIGNAL = 80.0
_SHARE_RANGE = (0.01, 0.4)
# A bell lower than this, in standard deviations of its noise, is noise.
_CERTAIN = 4.5
# The centre's noise over that of a clipped mean, at equal mu.
_CENTRE_NOISE = 4.0
_GATE_SIGNAL = 40.0
# Clip radii are looked for between 1/8 and 64 typical distances.
_CLIP_BINS = np.arange(-6, 13)


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
        return _concentrated(vectors, radius, budget, noise)
    return _located(vectors, budget, noise)


def _concentrated(
    vectors: FloatArray, radius: float, budget: Budget, noise: NoiseSource
) -> MeanRelease:
    """Release the concentrated mean at a radius."""
    n, d = vectors.shape
    session = certified.calibrate(radius, n, d, budget, gate="gaussian").start(noise)
    value = session.answer(vectors)
    return MeanRelease(value, session.noise_std, radius, session.finish())


def _located(vectors: FloatArray, budget: Budget, noise: NoiseSource) -> MeanRelease:
    """Locate the users by a concentrated mean, then clip around it."""
    n, d = vectors.shape
    mu = mu_beside((), budget.epsilon, 0.99 * budget.delta)
    shares = Shares.of(n * mu, d)
    pairs = histogram_event("radius", mu * math.sqrt(shares.pairs), len(ALL_BINS))
    if not shares.clip:
        locate = certified.calibrate(1.0, n, d, budget, gate="gaussian", beside=(pairs,))
        apart = _distances_apart(vectors, pairs, noise)
        radius = _friend_radius(apart, n, locate)
        session = locate.with_radius(radius).start(noise)
        value = session.answer(vectors)
        return MeanRelease(value, session.noise_std, radius, session.finish())
    clip = histogram_event("clip radius", mu * math.sqrt(shares.clip), len(_CLIP_BINS))
    again = _clipping("second centre", n, d, mu * math.sqrt(shares.second)) if shares.second else None
    clipping = _clipping("mean", n, d, mu * math.sqrt(shares.mean))
    beside = (pairs, *((again,) if again else ()), clip, clipping)
    # The locating mean gets what is left beside the others; refused here if that is too little.
    locate = certified.calibrate(1.0, n, d, budget, gate="gaussian", beside=beside)

    apart = _distances_apart(vectors, pairs, noise)
    session = replace(locate.with_radius(_friend_radius(apart, n, locate)), purpose="centre").start(noise)
    centre, off = session.answer(vectors), math.sqrt(d) * session.noise_std
    around = apart.times(1 / math.sqrt(2))
    if again:
        radius = math.hypot(_clip_radius(around, 2 * math.sqrt(d) / (n * again.mu)), off)
        step = _ClippedStep(centre, radius, budget, n, again, noise)
        centre, off = step.answer(vectors), math.sqrt(d) * step.noise_std
    with np.errstate(all="ignore"):
        distances = np.sqrt(((vectors - centre) ** 2).sum(axis=1))
    typical = math.hypot(around.quantile(0.5), off)
    law = distance_law(distances, clip, noise, _CLIP_BINS, typical)
    radius = _clip_radius(law, 2 * math.sqrt(d) / (n * clipping.mu))
    final = _ClippedStep(centre, radius, budget, n, clipping, noise)
    value = final.answer(vectors)
    return MeanRelease(value, final.noise_std, radius, session.finish())


def _clipping(name, n, d, mu):
    sensitivity = 2.0 * Lattice.fine_enough(1.0, n, d).radius_units
    return GaussianEvent(name, sensitivity, gaussian_scale(sensitivity, mu), d)


def _ClippedStep(centre, radius, budget, n, event, noise):
    lattice = Lattice.fine_enough(radius, n, len(centre))
    return CalibratedClippedMean(centre, budget, n, lattice, event, beside=()).start(noise)


@dataclass(frozen=True)
class Shares:
    """Shares of mu^2."""

    pairs: float
    clip: float
    second: float
    mean: float

    @classmethod
    def of(cls, N: float, d: int) -> "Shares":
        low, high = _SHARE_RANGE
        pairs = min(max((_PAIRS_SIGNAL / N) ** 2, low), high)
        clip = min(max((_CLIP_SIGNAL / N) ** 2, low, 0.4 / d), 0.1)
        a = 2 * math.sqrt(d) / N
        best = (_CENTRE_NOISE**2 * a * a / (1 - pairs), cls(pairs, 0.0, 0.0, 0.0))
        grid = 0.5 ** np.arange(1, 8, 0.5)
        for first in grid:
            gated = first - (_GATE_SIGNAL / N) ** 2
            if gated <= 0:
                continue
            for second in (0.0, *grid):
                left = 1 - pairs - clip - first - second
                if left <= 0.05:
                    continue
                off = (_CENTRE_NOISE * a) ** 2 / gated
                if second:
                    off = (1 + off) * (1.3 * a) ** 2 / second
                var = a * a * (1 + off) ** 1.5 / left
                if var < best[0]:
                    best = var, cls(pairs, clip, second, left)
        return best[1]


def _distances_apart(vectors: FloatArray, event: GaussianEvent, noise: NoiseSource) -> DistanceLaw:
    """Find the law of the distances inside a secret random matching of the users.

    **Guarantee**: the event's: one user touches one pair, and the matching is uniform and never leaves
    (``docs/proofs/private_mean.md``).
    """
    order = noise.permutation(len(vectors))
    half = len(vectors) // 2
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        offsets = vectors[order[:half]] - vectors[order[half : 2 * half]]
        distances = np.sqrt((offsets**2).sum(axis=1))
    law = distance_law(distances, event, noise)
    if law.certainty < _CERTAIN:
        raise NotConcentratedError(NO_SCALE)
    return law


def _friend_radius(apart: DistanceLaw, n_users: int, locate: certified.CertifiedMean) -> float:
    """Radius at which the concentrated mean is expected to have the least noise."""
    radii = apart.quantile(0.5) * 2.0 ** (np.arange(0, 25) / 8)
    within = apart.share_within(radii)
    noise = [
        mean_sensitivity(locate.setting.index(int(share * n_users * INDEX_RESOLUTION - 2*locate.setting.scale)), n_users, radius)
        for share, radius in zip(within, radii, strict=True)
    ]
    return float(radii[int(np.argmin(noise))])


def _clip_radius(law: DistanceLaw, noise_over_radius: float) -> float:
    """Radius of the least noise^2 + bias^2, the bias bounded by the mean excess beyond the radius."""
    radii = law.edges[0] * 2.0 ** (np.arange(0, 8 * len(law.edges) // BINS_PER_OCTAVE) / 8)
    cost = (noise_over_radius * radii) ** 2 + law.mean_excess(radii) ** 2
    return float(radii[int(np.argmin(cost))])
