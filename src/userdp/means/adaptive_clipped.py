r"""Clipping as it is practised: the radius follows a private quantile of the users' norms.

Andrew, Thakkar, McMahan & Ramaswamy (2021). In round t, with the public radius C_t,

    answer = centre + (1/n) (sum_j clip(x_j - centre, C_t) + noise),
    C_(t+1) = C_t exp(-learning_rate (b_t - quantile)),

where b_t is the share of the users within C_t, released with Gaussian noise of its own. Both noises compose
as Gaussian parts; the radius is a function of what was released. Where b_t is mostly noise the learning rate shrinks
with it, or the radius would walk at random.

**Guarantee**: (epsilon, delta)-DP for replacing one user; ``docs/proofs/adaptive_clipped_mean.md``.
"""

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from userdp.arrays import BoolArray, FloatArray, is_finite
from userdp.errors import InvalidInputError
from userdp.means.clipped import clip_to_lattice_ball
from userdp.means.interface import (
    MeanRelease,
    as_centre,
    as_vectors,
    check_positive_rounds,
    check_query,
    check_rounds,
)
from userdp.means.lattice import Lattice
from userdp.mechanisms.noise import NoiseSource, noise_source
from userdp.privacy.accounting import Event, GaussianEvent, gaussian_scale, mu_beside
from userdp.privacy.budget import Budget
from userdp.privacy.statement import PrivacyStatement

# One user is this many units in the count: fine enough for its noise, and for nulls that pull nowhere.
COUNT_RESOLUTION = 2**10
# The paper's noise on the count is n/20 users.
_PAPER_COUNT_SHARE = 1 / 20
# Without a given count_noise, the counts cost at most this share of mu^2.
_LARGEST_COUNT_COST = 0.1
_PAPER_LEARNING_RATE = 0.2
# The radius stays in this range, and changes by at most this factor's exponential.
RADIUS_RANGE = (1e-100, 1e100)
LARGEST_STEP = 50.0


@dataclass(frozen=True)
class AdaptiveClippedMean:
    """Mean of the users' vectors clipped to a radius that follows a quantile of their norms.

    Parameters
    ----------
    radius : float
        Initial radius; public.
    quantile : float
        Share of the users that should lie within the radius; the paper's gamma.
    learning_rate : float, optional
        How fast the logarithm of the radius follows the share of users within it; the paper's eta_C. By default the
        paper's 0.2, divided by 1 + s^2 where s is the standard deviation of the noise on that share.
    count_noise : float, optional
        Standard deviation of the noise on each count, in users. By default the paper's n/20, or more where
        that would cost over a tenth of mu^2.
    warmup : int
        Counts made on the first query before it is answered, so that a single round can adapt too.
    centre : array of shape (dimension,), optional
        Where the norms are measured from; public. The origin by default.

    Examples
    --------
    >>> x = np.random.default_rng(0).normal(0.0, 1.0, size=(20000, 3))
    >>> mean = AdaptiveClippedMean(radius=50.0, warmup=40)
    >>> release = mean.release(x, epsilon=1, delta=1e-6, random_state=0)
    >>> 1 < release.radius < 3, release.privacy.certified
    (True, True)
    """

    radius: float
    quantile: float = 0.5
    learning_rate: float | None = None
    count_noise: float | None = None
    warmup: int = 0
    centre: ArrayLike | None = None

    def calibrate(
        self, n_users: int, dimension: int, budget: Budget, rounds: int = 1, beside: tuple[Event, ...] = ()
    ) -> "CalibratedAdaptiveClippedMean":
        """Set the noise of answers and counts for ``rounds`` adaptive queries; reads no data."""
        check_positive_rounds(rounds)
        self._check()
        centre = as_centre(self.centre, dimension)
        mu = mu_beside(beside, budget.epsilon, budget.delta)
        counts = self.warmup + rounds - 1  # nothing follows the last answer
        count = self._count_event(n_users, counts, mu) if counts and mu else None
        count_mu = count.mu if count else 0.0
        if not mu > count_mu:
            raise InvalidInputError(
                "the counts and the other parts of the release leave no budget for the clipped mean; "
                "use a larger count_noise or fewer rounds"
            )
        lattice = Lattice.fine_enough(self.radius, n_users, dimension)
        # In lattice units the radius is the same number whatever it is in data units.
        sensitivity = 2.0 * lattice.radius_units
        scale = gaussian_scale(sensitivity, math.sqrt(mu**2 - count_mu**2) * (1 - 1e-12), rounds)
        event = GaussianEvent("clipped mean", sensitivity, scale, dimension, rounds)
        return CalibratedAdaptiveClippedMean(self, centre, budget, n_users, event, count, beside)

    def _check(self) -> None:
        if not 0 < self.quantile < 1:
            raise InvalidInputError(f"quantile must lie strictly between 0 and 1, got {self.quantile!r}")
        if self.warmup < 0:
            raise InvalidInputError(f"warmup must not be negative, got {self.warmup}")
        for name in ("learning_rate", "count_noise"):
            value = getattr(self, name)
            if value is not None and not (is_finite(value) and value > 0):
                raise InvalidInputError(f"{name} must be a positive number, got {value!r}")

    def _count_event(self, n_users: int, counts: int, mu: float) -> GaussianEvent:
        if self.count_noise is None:
            affordable = gaussian_scale(COUNT_RESOLUTION, mu * math.sqrt(_LARGEST_COUNT_COST), counts)
            scale = max(_PAPER_COUNT_SHARE * n_users * COUNT_RESOLUTION, affordable)
        else:
            scale = self.count_noise * COUNT_RESOLUTION
        return GaussianEvent("clipped count", COUNT_RESOLUTION, scale, rounds=counts)

    def release(
        self,
        vectors: ArrayLike,
        *,
        epsilon: float,
        delta: float,
        unit: str = "user",
        random_state: int | np.random.Generator | None = None,
    ) -> MeanRelease:
        """Release one mean of ``vectors``, a row per user; its ``radius`` is the one that was found."""
        x = as_vectors(vectors)
        noise = noise_source(random_state)
        budget = Budget(epsilon, delta, unit)
        budget.warn_if_weak_for(len(x))
        session = self.calibrate(len(x), x.shape[1], budget).start(noise)
        value = session.answer(x)
        privacy = session.finish()
        ones = np.ones(len(value))
        return MeanRelease(value, session.noise_std * ones, session.radius, ones, privacy)


@dataclass(frozen=True)
class CalibratedAdaptiveClippedMean:
    """An adaptive clipped mean with its noises set; ``count`` is None where no count is made."""

    estimator: AdaptiveClippedMean
    centre: FloatArray
    budget: Budget
    n_users: int
    event: GaussianEvent
    count: GaussianEvent | None
    beside: tuple[Event, ...]

    @property
    def rounds(self) -> int:
        """How many queries are paid for."""
        return self.event.rounds

    @property
    def learning_rate(self) -> float:
        """How fast the radius moves: as given, or the paper's 0.2, less where the counts are mostly noise.

        With noise of standard deviation s on the share of users within the radius, the logarithm of the radius spreads
        around its quantile with variance about learning_rate s^2/(2 f), f the density of that logarithm there; divided
        by 1 + s^2 the rate bounds that by 0.1/f for every s. It depends on public numbers alone.
        """
        if self.estimator.learning_rate is not None:
            return self.estimator.learning_rate
        s = self.count.scale / (COUNT_RESOLUTION * self.n_users) if self.count else 0.0
        return _PAPER_LEARNING_RATE / (1 + s**2)

    def statement(self, *, seeded: bool) -> PrivacyStatement:
        """State the guarantee of a whole session."""
        events = (*self.beside, self.event, *((self.count,) if self.count else ()))
        return PrivacyStatement.certify(self.budget, events, n_users=self.n_users, seeded=seeded)

    def start(self, noise: NoiseSource) -> "AdaptiveClippedSession":
        """Open a session of the calibrated rounds."""
        return AdaptiveClippedSession(self, noise)

    def lattice(self, radius: float) -> Lattice:
        """Return the lattice for a radius; its bits, and so all costs, are the same for every radius."""
        return Lattice.fine_enough(radius, self.n_users, self.event.coordinates)


@dataclass
class AdaptiveClippedSession:
    """One run over adaptive queries; ``radius`` is public at any time and is that of the last answer."""

    mean: CalibratedAdaptiveClippedMean
    noise: NoiseSource
    halted: bool = field(default=False, init=False)
    radius: float = field(init=False)
    _answered: int = field(default=0, init=False)
    _closed: bool = field(default=False, init=False)
    _next_radius: float = field(init=False)

    def __post_init__(self) -> None:
        self.radius = self._next_radius = self.mean.estimator.radius

    @property
    def noise_std(self) -> float:
        """Standard deviation of the last answer's noise, per coordinate."""
        return self.mean.event.scale * self.mean.lattice(self.radius).step / self.mean.n_users

    def answer(self, vectors: FloatArray) -> FloatArray:
        """Answer one query, then update the radius for the next."""
        mean = self.mean
        if self._closed:
            raise InvalidInputError("this session is over; a new one costs its budget again")
        check_rounds(self._answered, mean.event.rounds)
        x = check_query(vectors, mean.n_users, mean.event.coordinates)
        if self._answered == 0:
            for _ in range(mean.estimator.warmup):
                self._update_radius(x)
        self._answered += 1
        self.radius = self._next_radius
        lattice = mean.lattice(self.radius)
        total = clip_to_lattice_ball(x, mean.centre, lattice).sum(axis=0)
        noisy = total + self.noise.discrete_gaussian(mean.event.scale, lattice.dimension)
        if self._answered < mean.event.rounds:
            self._update_radius(x)
        offset: FloatArray = noisy * (lattice.step / mean.n_users)
        return mean.centre + offset

    def _update_radius(self, x: FloatArray) -> None:
        """Release a noisy count of the users within the radius and move the radius towards the quantile."""
        mean, options = self.mean, self.mean.estimator
        assert mean.count is not None
        units = count_units(x, mean.centre, self._next_radius, options.quantile)
        noisy = units + int(self.noise.discrete_gaussian(mean.count.scale, 1)[0])
        share = noisy / (COUNT_RESOLUTION * mean.n_users)
        low, high = RADIUS_RANGE
        step = -mean.learning_rate * (share - options.quantile)
        self._next_radius = min(
            max(self._next_radius * math.exp(min(max(step, -LARGEST_STEP), LARGEST_STEP)), low), high
        )

    def finish(self) -> PrivacyStatement:
        """Close the session and state the guarantee."""
        self._closed = True
        return self.mean.statement(seeded=self.noise.seeded)


def count_units(vectors: FloatArray, centre: FloatArray, radius: float, quantile: float) -> int:
    """Count the users within the radius, in units of 1/COUNT_RESOLUTION; a null user counts ``quantile``.

    **Guarantee**: replacing one user changes the count by at most COUNT_RESOLUTION.
    """
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        offsets = (vectors - centre) / radius
        present = np.asarray(np.isfinite(offsets).all(axis=1))
        within: BoolArray = present & ((offsets**2).sum(axis=1) <= 1)
    nulls = len(vectors) - int(present.sum())
    return COUNT_RESOLUTION * int(within.sum()) + round(COUNT_RESOLUTION * quantile) * nulls
