"""Tables shared by the tests of losses: every loss meets every property."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import jax
import numpy as np
import pytest

from userdp import problems


@dataclass(frozen=True)
class GLMCase:
    """A loss, targets to try, where phi' jumps or bends, and where its constants are attained."""

    loss: problems.GLM
    targets: tuple[float, ...]
    bends: tuple[tuple[float, float], ...] = ()  # (prediction, target)
    steepest: tuple[float, float] | None = None  # |phi'| = lipschitz, up to 0.1%
    most_curved: tuple[float, float] | None = None  # phi'' = smoothness, up to 0.1%

    def pairs(self, predictions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Every bend, and every prediction with every target; of one length, so that kernels are reused."""
        p, y = (a.ravel() for a in np.meshgrid(predictions, np.asarray(self.targets)))
        bends = np.asarray(self.bends).reshape(-1, 2)
        p, y = np.concatenate([bends[:, 0], p]), np.concatenate([bends[:, 1], y])
        return np.resize(p, PAIRS), np.resize(y, PAIRS)

    def bend_distance(self, p: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Distance of each prediction to the nearest bend of its target."""
        distances = [np.where(y == target, np.abs(p - bend), np.inf) for bend, target in self.bends]
        return np.min([np.full(p.shape, np.inf), *distances], axis=0)


PAIRS = 1024
BINARY = (0.0, 1.0)
REAL = (-1.3, 0.0, 2.0)
HINGE_BENDS = ((1.0, 1.0), (-1.0, 0.0))
RESIDUAL_BENDS = tuple((y, y) for y in REAL)

GLM_CASES = {
    "logistic": GLMCase(problems.Logistic(), (0.0, 0.3, 1.0), steepest=(-9.0, 1.0), most_curved=(0.0, 1.0)),
    "squared": GLMCase(problems.Squared(), REAL, most_curved=(0.7, 2.0)),
    "absolute": GLMCase(problems.Absolute(), REAL, RESIDUAL_BENDS, steepest=(1.0, 0.0)),
    "pinball": GLMCase(problems.Pinball(0.8), REAL, RESIDUAL_BENDS, steepest=(-1.0, 0.0)),
    "huber": GLMCase(
        problems.Huber(0.7),
        REAL,
        tuple((y + c, y) for y in REAL for c in (-0.7, 0.7)),
        steepest=(3.0, 0.0),
        most_curved=(0.1, 0.0),
    ),
    "hinge": GLMCase(problems.Hinge(), BINARY, HINGE_BENDS, steepest=(0.0, 1.0)),
    "squared hinge": GLMCase(problems.SquaredHinge(), BINARY, HINGE_BENDS, most_curved=(0.0, 1.0)),
    "poisson": GLMCase(
        problems.Poisson(max_log_rate=1.5, max_count=3.0),
        (0.0, 1.0, 3.0, 7.0),
        tuple((1.5, y) for y in (0.0, 1.0, 3.0, 7.0)),
        steepest=(2.0, 0.0),
        most_curved=(1.4999, 1.0),
    ),
}


@pytest.fixture(params=GLM_CASES.values(), ids=GLM_CASES.keys())
def case(request: pytest.FixtureRequest) -> GLMCase:
    return request.param  # type: ignore[no-any-return]


@dataclass(frozen=True)
class LossCase:
    """A loss of whole items: how to draw items of norm <= 1, and its dimension."""

    loss: problems.Loss
    dimension: int
    kind: str  # "labelled", "class" or "vector"

    def items(self, rng: np.random.Generator, count: int) -> object:
        features = rng.normal(size=(count, self.dimension if self.kind != "class" else self.dimension // 3))
        features /= np.maximum(np.linalg.norm(features, axis=1, keepdims=True), 1.0)
        if self.kind == "labelled":
            return features, rng.integers(0, 2, count)
        if self.kind == "class":
            return features, rng.integers(0, 3, count)
        return features


def _softplus_of_product(theta: jax.Array, item: jax.Array) -> jax.Array:
    return jax.nn.softplus(theta @ item)


def loss_cases() -> dict[str, LossCase]:
    table = {
        "logistic": LossCase(problems.Logistic(), 5, "labelled"),
        "hinge": LossCase(problems.Hinge(), 5, "labelled"),
        "smoothed hinge": LossCase(problems.SmoothedGLM(problems.Hinge(), 0.4, 5), 5, "labelled"),
        "multinomial": LossCase(problems.Multinomial(3), 6, "class"),
        "linear": LossCase(problems.Linear(), 4, "vector"),
        "distance": LossCase(problems.Distance(), 4, "vector"),
        "squared distance": LossCase(problems.SquaredDistance(), 4, "vector"),
        "jax function": LossCase(problems.JaxLoss(_softplus_of_product, 1.0, 0.25), 4, "vector"),
    }
    ridge = {
        f"{name} + ridge": LossCase(
            problems.Regularized(table[name].loss, 0.3), table[name].dimension, table[name].kind
        )
        for name in ("hinge", "multinomial", "squared distance")
    }
    return table | ridge


LOSS_CASES = loss_cases()


@pytest.fixture(params=LOSS_CASES.values(), ids=LOSS_CASES.keys())
def loss_case(request: pytest.FixtureRequest) -> LossCase:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(scope="package", autouse=True)
def quick_compilation() -> Iterator[None]:
    """Skip the compiler's costly passes: these tests run hundreds of small kernels once each."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


@pytest.fixture
def x64() -> Iterator[None]:
    with jax.enable_x64():
        yield


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20231)


@pytest.fixture(params=[1, 2, 3, 99, 10_000])
def dimension(request: pytest.FixtureRequest) -> int:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def grid() -> np.ndarray:
    """Predictions on both sides of every bend, none of them on one."""
    return np.linspace(-4.0, 4.0, 203) + math.pi * 1e-3
