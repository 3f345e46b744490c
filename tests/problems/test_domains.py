"""Projections as what they are: nearest points of closed convex sets."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import optimize

from userdp import problems
from userdp.errors import InvalidInputError

D = 4
CENTER = np.array([0.5, -1.0, 0.0, 2.0])
LOWER, UPPER = np.array([-1.0, 0.0, -np.inf, 0.3]), np.array([1.0, 0.5, 0.2, np.inf])
ROWS, OFFSETS = (
    np.array([[1.0, 2.0, 0.0, -1.0], [0.0, 1.0, 1.0, 1.0], [1.0, 3.0, 1.0, 0.0]]),
    np.array([1.0, 2.0, 3.0]),
)


def constraint(kind, function):
    return {"type": kind, "fun": function}


# Each domain with the constraints that define it, as scipy.optimize takes them.
DOMAINS = {
    "whole space": (problems.WholeSpace(), []),
    "ball": (problems.L2Ball(1.5), [constraint("ineq", lambda z: 1.5**2 - z @ z)]),
    "ball elsewhere": (
        problems.L2Ball(0.7, CENTER),
        [constraint("ineq", lambda z: 0.7**2 - (z - CENTER) @ (z - CENTER))],
    ),
    "box": (
        problems.Box(LOWER, UPPER),
        [
            constraint("ineq", lambda z: (z - LOWER)[np.isfinite(LOWER)]),
            constraint("ineq", lambda z: (UPPER - z)[np.isfinite(UPPER)]),
        ],
    ),
    "simplex": (
        problems.Simplex(2.0),
        [constraint("ineq", lambda z: z), constraint("eq", lambda z: z.sum() - 2.0)],
    ),
    "l1 ball": (
        problems.L1Ball(1.2),
        [constraint("ineq", lambda z, signs=signs: 1.2 - signs @ z) for signs in
         np.array(np.meshgrid(*[[-1.0, 1.0]] * D)).reshape(D, -1).T],
    ),
    "affine subspace": (
        problems.AffineSubspace(ROWS, OFFSETS),  # the third row is the sum of the others
        [constraint("eq", lambda z: ROWS[:2] @ z - OFFSETS[:2])],
    ),
}  # fmt: skip


@pytest.fixture(params=DOMAINS.values(), ids=DOMAINS.keys())
def domain(request):
    return request.param[0]


@pytest.fixture(params=DOMAINS.values(), ids=DOMAINS.keys())
def constrained(request):
    return request.param


def points(rng, count=200):
    return rng.normal(size=(count, D)) * 10 ** rng.uniform(-1, 1.5, size=(count, 1))


def projected(domain, x):
    return np.asarray(jax.vmap(domain.project)(jnp.asarray(x)))


def test_projection_satisfies_the_constraints(constrained, rng, x64):
    domain, constraints = constrained
    for z in projected(domain, points(rng)):
        for item in constraints:
            slack = np.asarray(item["fun"](z))
            assert np.all(np.abs(slack) < 1e-9 if item["type"] == "eq" else slack > -1e-9)


def test_projection_is_the_argmin(constrained, rng, x64):
    domain, constraints = constrained
    for x in points(rng, 6):
        nearest = projected(domain, x[None])[0]
        found = optimize.minimize(
            lambda z, x=x: (z - x) @ (z - x) / 2,
            projected(domain, np.zeros((1, D)))[0],
            jac=lambda z, x=x: z - x,
            constraints=constraints,
            method="SLSQP",
            options={"ftol": 1e-14, "maxiter": 500},
        )
        np.testing.assert_allclose(nearest, found.x, atol=2e-5 * (1 + np.linalg.norm(x)))


def test_variational_inequality(domain, rng, x64):
    """``<x - P x, z - P x> <= 0`` for all z of the set: the projection, and nothing else, has it."""
    x, z = points(rng), projected(domain, points(rng))
    nearest = projected(domain, x)
    products = (x - nearest) @ z.T - np.sum((x - nearest) * nearest, axis=1, keepdims=True)
    assert products.max() <= 1e-9 * (1 + np.abs(x).max() ** 2)


def test_variational_inequality_rejects_a_point_that_is_not_nearest(rng):
    ball = problems.L2Ball(1.0)
    x, wrong = np.array([3.0, 0.0]), np.array([0.8, 0.6])
    z = projected(ball, x[None])[0]
    assert (x - wrong) @ (z - wrong) > 1e-3


def test_idempotent(domain, rng, x64):
    once = projected(domain, points(rng))
    np.testing.assert_allclose(projected(domain, once), once, atol=1e-12)


def test_non_expansive(domain, rng, x64):
    a, b = points(rng), points(rng)
    moved = np.linalg.norm(projected(domain, a) - projected(domain, b), axis=1)
    assert np.all(moved <= np.linalg.norm(a - b, axis=1) * (1 + 1e-12) + 1e-12)


def test_diameter_bounds_every_distance(domain, rng, x64):
    z = projected(domain, points(rng))
    distances = np.linalg.norm(z[:, None] - z[None], axis=-1)
    assert distances.max() <= domain.diameter * (1 + 1e-12)


@pytest.mark.parametrize(
    ("domain", "a", "b"),
    [
        (problems.L2Ball(1.5), [1.5, 0, 0, 0], [-1.5, 0, 0, 0]),
        (problems.Box(np.zeros(4), np.arange(4.0)), [0, 0, 0, 0], [0, 1, 2, 3]),
        (problems.Simplex(2.0), [2.0, 0, 0, 0], [0, 2.0, 0, 0]),
        (problems.L1Ball(1.2), [0, 1.2, 0, 0], [0, -1.2, 0, 0]),
        (problems.AffineSubspace(np.eye(4), np.ones(4)), [1, 1, 1, 1], [1, 1, 1, 1]),
    ],
)
def test_diameter_is_attained(domain, a, b):
    a, b = jnp.asarray(a, jnp.float32), jnp.asarray(b, jnp.float32)
    assert domain.contains(a)
    assert domain.contains(b)
    assert float(jnp.linalg.norm(a - b)) == pytest.approx(domain.diameter)


def test_contains_its_projections_and_not_what_moved(domain, rng, x64):
    x = points(rng, 50)
    nearest = projected(domain, x)
    assert np.all(jax.vmap(domain.contains)(nearest))
    far = np.linalg.norm(x - nearest, axis=1) > 1e-3 * (1 + np.linalg.norm(x, axis=1))
    assert not np.any(np.asarray(jax.vmap(domain.contains)(x))[far])


def test_unbounded_sets_have_infinite_diameter():
    assert problems.WholeSpace().diameter == math.inf
    assert problems.Box(LOWER, UPPER).diameter == math.inf
    assert problems.AffineSubspace(ROWS, OFFSETS).diameter == math.inf


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_keeps_shape_and_floating_type(domain, dtype, x64):
    answer = jax.eval_shape(domain.project, jnp.ones(D, dtype))
    assert answer.shape == (D,)
    assert answer.dtype == dtype


def test_single_precision_agrees_with_double(domain, rng):
    x = points(rng)
    single = projected(domain, x.astype(np.float32))
    with jax.enable_x64():
        np.testing.assert_allclose(single, projected(domain, x), atol=2e-5)


def test_a_domain_can_be_a_static_argument(domain):
    project = jax.jit(lambda where, x: where.project(x), static_argnums=0)
    np.testing.assert_allclose(project(domain, jnp.ones(D)), domain.project(jnp.ones(D)), atol=1e-6)


def test_domains_compare_by_value():
    def build(center=(0.0, 1.0)):
        return [
            problems.WholeSpace(),
            problems.L2Ball(1.5),
            problems.L2Ball(1.5, center),
            problems.L1Ball(1.5),
            problems.Simplex(1.5),
            problems.Box(center, (2.0, 2.0)),
            problems.AffineSubspace([[1.0, 0.0]], [0.5]),
        ]

    one, other = build(), build(np.array([0.0, 1.0]))
    assert one == other
    assert len({*one, *other}) == len(one)
    assert build((0.0, 1.25))[2] != one[2]
    assert problems.L2Ball(1.25) != one[1]
    assert one[1] != "a ball"


@settings(max_examples=60, deadline=None)
@given(hnp.arrays(np.float64, 7, elements=st.floats(-1e6, 1e6)), st.floats(1e-2, 1e3))
def test_simplex_and_l1_projections_at_every_scale(x, total):
    """The optimality conditions: what is kept was shifted by one number, what was cut lay below it."""
    with jax.enable_x64():
        nearest = np.asarray(problems.Simplex(total).project(jnp.asarray(x)))
        scale = total + np.ptp(x)
        assert nearest.min() >= 0
        assert nearest.sum() == pytest.approx(total, abs=1e-9 * scale)
        shift = (x - nearest)[nearest > 0]
        assert np.ptp(shift) <= 1e-9 * scale + 1e-15 * np.abs(x).max()
        assert np.all(x[nearest == 0] <= shift.max() + 1e-9 * scale)
        inside = np.asarray(problems.L1Ball(total).project(jnp.asarray(x)))
        assert np.abs(inside).sum() <= total + 1e-9 * (total + np.abs(x).max())
        assert np.all(inside * x >= 0)


def test_points_inside_stay_bit_for_bit():
    x = jnp.asarray([0.1, -0.2, 0.1, 0.4], jnp.float32)
    for domain in (problems.L2Ball(1.0), problems.L1Ball(1.0), problems.Box(-np.ones(4), np.ones(4))):
        np.testing.assert_array_equal(domain.project(x), x)


def test_a_domain_does_not_follow_later_changes_of_its_arrays():
    lower = np.zeros(2)
    box = problems.Box(lower, np.ones(2))
    lower[:] = 0.5
    np.testing.assert_array_equal(box.project(jnp.asarray([0.2, 0.2])), jnp.asarray([0.2, 0.2]))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: problems.L2Ball(0.0), "radius must be a positive finite number"),
        (lambda: problems.L2Ball(1.0, np.array([np.nan])), "center must be finite"),
        (lambda: problems.L2Ball(1.0, np.zeros(3)).project(jnp.zeros(2)), r"center, \(3,\), got \(2,\)"),
        (lambda: problems.L1Ball(math.inf), "radius must be a positive finite number"),
        (lambda: problems.Simplex(-1.0), "total must be a positive finite number"),
        (lambda: problems.Box(np.zeros(2), np.zeros(3)), "vectors of one length"),
        (lambda: problems.Box(0.0, 1.0), "write numpy.full"),
        (lambda: problems.Box(np.ones(2), np.zeros(2)), "got 2 coordinates"),
        (lambda: problems.Box(np.full(2, np.nan), np.zeros(2)), "got 2 coordinates"),
        (lambda: problems.Box(np.full(1, np.inf), np.full(1, np.inf)), "got 1 coordinates"),
        (lambda: problems.AffineSubspace(np.eye(2), np.zeros(3)), r"offset \(k,\)"),
        (lambda: problems.AffineSubspace(np.ones((2, 2)), [0.0, 1.0]), "remove contradictory rows"),
        (lambda: problems.AffineSubspace([[np.inf]], [0.0]), "matrix must be finite"),
    ],
)
def test_bad_settings_say_what_to_do(build, message):
    with pytest.raises(InvalidInputError, match=message):
        build()
