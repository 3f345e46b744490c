r"""Item-level localized SGD under group privacy: Phased SGD of Feldman, Koren & Talwar (2020).

The N = n m slots in a uniform order; phase i = 1, ..., k takes the next N_i = floor(N/2^i) of them, once each:

    theta <- Proj(theta - eta_i (clip(grad l(theta; z), G) + ridge theta)),     eta_i = eta/4^i,
    theta_i = average of these iterates + Gaussian noise.

No step of a convex, beta-smooth loss with eta_i <= 2/beta drives two runs apart, so one row moves the average by
2 G eta_i and the noise is that of m rows, once a phase instead of once a step.

**Guarantee**: (epsilon, delta)-DP for replacing one user of at most m rows, whatever the rows;
``docs/proofs/group_privacy.md``, with the rounding errors of the steps.
**Assumes**: the loss's slope is computed within 64 units in the last place.
"""

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from userdp.arrays import FloatArray
from userdp.data.users import Users
from userdp.engines.local import Objective, check_targets, n_parameters, without_ridge
from userdp.errors import InvalidInputError
from userdp.mechanisms.noise import NoiseSource
from userdp.optimizers.dp_sgd import Solution, starting_point
from userdp.optimizers.items import group_assumption, item_slots
from userdp.privacy.accounting import GaussianEvent, gaussian_scale
from userdp.privacy.budget import Budget
from userdp.privacy.gdp import mu_from_budget
from userdp.privacy.statement import PrivacyStatement
from userdp.problems import L2Ball, Linear, LinearPredictorLoss, Loss, SquaredDistance
from userdp.problems._checks import count, nonnegative, positive, settle
from userdp.programs import compiled

# An average is put on a lattice of 2^12 sqrt(d) points to its sensitivity; its coordinates stay exact integers.
_BITS = 12
_LARGEST_UNITS = 2.0**51
_ULP = 2.0**-53
# Rows with a larger value are empty slots, so that nothing overflows.
_LARGEST_VALUE = 1e100


@dataclass(frozen=True)
class LocalizedSGD:
    """One pass over the rows in phases of halving length, noise on each phase's average; see the module.

    Parameters
    ----------
    lipschitz : float
        G, the norm to which a row's gradient is clipped.
    domain : L2Ball
        Where theta may lie; bounded, so that rounding errors are.
    feature_bound : float
        Rows of a larger norm are scaled down to it, which bounds the smoothness of a GLM whatever the rows.
    step_size : float, optional
        eta. By default (R/G) min{4/sqrt(N), mu/(2 m sqrt(d))}, R the domain's radius, and never over 8/beta.

    Examples
    --------
    >>> import numpy as np, userdp
    >>> from userdp.data import Users
    >>> z = np.random.default_rng(0).normal(0.3, 0.1, size=(8000, 2))
    >>> solution = userdp.minimize(
    ...     userdp.problems.SquaredDistance(), Users.from_rows(z, np.repeat(np.arange(4000), 2)),
    ...     optimizer=LocalizedSGD(lipschitz=2.0, domain=userdp.problems.L2Ball(1.0)),
    ...     epsilon=4.0, delta=1e-6, max_items=2, random_state=0,
    ... )
    >>> bool(abs(solution.point - 0.3).max() < 0.1), solution.privacy.certified
    (True, True)
    """

    lipschitz: float
    domain: L2Ball
    feature_bound: float = math.inf
    step_size: float | None = None

    def __post_init__(self) -> None:
        settle(
            self,
            lipschitz=positive("lipschitz", self.lipschitz, "give the norm to clip a row's gradient to"),
            feature_bound=nonnegative("feature_bound", self.feature_bound, "declare a bound on |x|"),
        )
        if self.step_size is not None:
            settle(self, step_size=positive("step_size", self.step_size, "give eta, or leave it out"))
        if not isinstance(self.domain, L2Ball):
            raise InvalidInputError(
                f"domain must be a userdp.problems.L2Ball, got {type(self.domain).__name__}"
            )

    def run(
        self,
        loss: Objective,
        users: Users,
        *,
        max_items: int,
        budget: Budget,
        noise: NoiseSource,
        start: FloatArray | None = None,
        dimension: int | None = None,
    ) -> Solution:
        """Run all phases; ``max_items`` is m."""
        m = count("max_items", max_items, 1, "declare how many rows a user may have")
        plain, ridge = _nonexpansive(loss)
        check_targets(plain, users.has_targets)
        d = n_parameters(loss, users.n_features, dimension)
        N, mu = users.n_users * m, mu_from_budget(budget.epsilon, budget.delta)
        eta = self._first_step(
            plain.constants(self.feature_bound).smoothness + ridge, N, m * math.sqrt(d) / mu
        )
        units = 2.0**_BITS * math.sqrt(d)
        sensitivity = m * (units + math.sqrt(d)) * (1 + 1e-12)
        scale = gaussian_scale(sensitivity, mu * (1 - 1e-12))
        phases = self._phases(N, eta, d)
        with jax.enable_x64(True):
            rows = _items(item_slots(users, m, noise), noise.permutation(N), self.feature_bound)
            theta = self.domain.project(jnp.asarray(starting_point(start, d)))
            first = 0
            for size, step in phases:
                average = _one_pass(self, plain, rows, first, size, step, ridge, theta)
                width = self.row_sensitivity(step, size, d) / units
                whole = np.rint(np.asarray(average) / width).astype(np.int64)
                theta = self.domain.project(jnp.asarray((whole + noise.discrete_gaussian(scale, d)) * width))
                first += size
        event = GaussianEvent("averages of phases", sensitivity, scale, d * len(phases))
        statement = PrivacyStatement.certify(
            budget, (event,), n_users=users.n_users, seeded=noise.seeded, assumptions=(group_assumption(m),)
        )
        return Solution(np.asarray(theta), statement)

    def _phases(self, n_slots: int, eta: float, dimension: int) -> list[tuple[int, float]]:
        """Return the phases' lengths and steps: log2(N) of them, or as many as the lattice can tell apart."""
        phases = [(n_slots // 2**i, eta / 4**i) for i in range(1, max(2, n_slots.bit_length()))]
        phases = [(max(1, size), step) for size, step in phases]
        units = 2.0**_BITS * math.sqrt(dimension)
        fine = [
            (size, step)
            for size, step in phases
            if self._farthest(dimension) * units
            <= _LARGEST_UNITS * self.row_sensitivity(step, size, dimension)
        ]
        if not fine:
            raise InvalidInputError(f"a step size of {eta:g} moves nothing in a domain of this size")
        return fine

    def _first_step(self, smoothness: float, n_slots: int, noise_factor: float) -> float:
        """Return eta; no step of a phase may exceed 2/beta, with a margin for rounding."""
        if not math.isfinite(smoothness):
            raise InvalidInputError(
                "localized SGD needs a smooth loss; give feature_bound for a GLM, or smooth the loss first"
            )
        largest = 8 / smoothness * (1 - 1e-6) if smoothness > 0 else math.inf
        if self.step_size is None:
            best = min(4 / math.sqrt(n_slots), 1 / (2 * noise_factor))
            return min(self.domain.radius / self.lipschitz * best, largest)
        if self.step_size > largest:
            raise InvalidInputError(
                f"step_size must be at most 8/smoothness = {largest:g}, got {self.step_size:g}"
            )
        return self.step_size

    def row_sensitivity(self, step: float, size: int, dimension: int) -> float:
        """Bound how far replacing one row moves a computed average: 2 G eta and the rounding errors of two runs."""
        error = (8 * dimension + 256) * _ULP * (self._farthest(dimension) + step * self.lipschitz)
        return 2 * self.lipschitz * step * (1 + 1e-6) + 2 * (2 * size + 8) * error

    def _farthest(self, dimension: int) -> float:
        """Return the norm of the farthest point of the domain."""
        return float(np.linalg.norm(np.broadcast_to(self.domain.center, dimension))) + self.domain.radius


def _nonexpansive(loss: Objective) -> tuple[Loss, float]:
    """Split off the ridge; accept only losses whose clipped gradient is the gradient of a convex function."""
    plain, ridge = without_ridge(loss)
    match plain:
        case LinearPredictorLoss() | SquaredDistance() | Linear():
            return plain, ridge
    raise InvalidInputError(
        f"localized SGD takes a loss of a linear predictor, SquaredDistance or Linear, got {type(plain).__name__}: "
        "of other losses a clipped gradient need not be that of a convex function"
    )


def _items(slots: Users, order: Any, feature_bound: float) -> tuple[Array, Array, Array]:
    """Return features scaled into the bound, targets, and which slots are usable, in the phases' order."""
    with np.errstate(invalid="ignore"):
        usable = slots.usable() & (np.abs(slots.rows) <= _LARGEST_VALUE).all(axis=1)
        if slots.targets is not None:
            usable &= np.abs(slots.targets) <= _LARGEST_VALUE
    with np.errstate(under="ignore"):
        x = np.where(usable[:, None], slots.rows, 0.0)
        largest = np.maximum(np.abs(x).max(axis=1, keepdims=True), 1e-300)
        norms = largest * np.sqrt(((x / largest) ** 2).sum(axis=1, keepdims=True))
        x = x * np.minimum(1.0, feature_bound / np.maximum(norms, 1e-300))
    y = np.zeros(len(x)) if slots.targets is None else np.where(usable, slots.targets, 0.0)
    return jnp.asarray(x[order]), jnp.asarray(y[order]), jnp.asarray(usable[order])


@compiled(0, 1)
def _one_pass(
    optimizer: LocalizedSGD,
    loss: Loss,
    rows: tuple[Array, Array, Array],
    first: int,
    size: int,
    step: float,
    ridge: float,
    start: Array,
) -> Array:
    """Take one step per row and return the average iterate."""
    features, targets, usable = rows
    clip = optimizer.lipschitz

    def one(i: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        theta, total = carry
        x, y = features[i], targets[i]
        gradient = loss.item_gradient(theta, (x, y) if isinstance(loss, LinearPredictorLoss) else x)
        largest = jnp.maximum(jnp.abs(gradient).max(), 1e-300)
        norm = largest * jnp.linalg.norm(gradient / largest)
        kept = jnp.where(usable[i], gradient * (clip / jnp.maximum(norm, clip)), 0.0)
        theta = optimizer.domain.project(theta - step * (kept + ridge * theta))
        return theta, total + theta

    total: Array
    _, total = jax.lax.fori_loop(first, first + size, one, (start, jnp.zeros_like(start)))
    return total / size
