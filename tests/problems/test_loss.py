"""Losses of whole items: gradients, convexity, constants, composition."""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from userdp import problems
from userdp.errors import InvalidInputError

pytestmark = pytest.mark.usefixtures("x64")

COUNT = 64


def stacked(loss_case, rng):
    return jax.tree.map(jnp.asarray, loss_case.items(rng, COUNT))


@partial(jax.jit, static_argnums=0)
def values(loss, theta, items):
    return loss.per_item_values(theta, items)


@partial(jax.jit, static_argnums=0)
def gradients(loss, theta, items):
    return loss.per_item_gradients(theta, items)


def test_gradients_are_those_of_the_value(loss_case, rng):
    items, theta = stacked(loss_case, rng), jnp.asarray(rng.normal(size=loss_case.dimension))
    expected = jax.jit(jax.vmap(jax.grad(loss_case.loss.item_value), in_axes=(None, 0)))(theta, items)
    np.testing.assert_allclose(gradients(loss_case.loss, theta, items), expected, atol=1e-9)


def test_convex_along_segments_with_the_declared_strength(loss_case, rng):
    items = stacked(loss_case, rng)
    mu = loss_case.loss.constants(1.0).strong_convexity
    for _ in range(3):
        a, b = (jnp.asarray(rng.normal(scale=2, size=loss_case.dimension)) for _ in range(2))
        ends = (values(loss_case.loss, a, items) + values(loss_case.loss, b, items)) / 2
        middle = values(loss_case.loss, (a + b) / 2, items)
        assert np.all(middle + mu / 8 * float(jnp.vdot(a - b, a - b)) <= ends + 1e-10)


def test_gradients_obey_the_constants(loss_case, rng):
    items = stacked(loss_case, rng)
    a, b = (rng.normal(size=loss_case.dimension) for _ in range(2))
    a, b = jnp.asarray(2 * a / np.linalg.norm(a)), jnp.asarray(2 * b / np.linalg.norm(b))
    constants = loss_case.loss.constants(feature_bound=1.0, theta_bound=2.0)
    first, second = (np.asarray(gradients(loss_case.loss, theta, items)) for theta in (a, b))
    assert np.linalg.norm(first, axis=1).max() <= constants.lipschitz * (1 + 1e-12)
    assert (
        np.linalg.norm(first - second, axis=1).max()
        <= constants.smoothness * float(jnp.linalg.norm(a - b)) + 1e-12
    )


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_follows_the_floating_type_of_theta(loss_case, rng, dtype):
    items = jax.tree.map(
        lambda a: jnp.asarray(a, dtype) if a.ndim == 2 else jnp.asarray(a), stacked(loss_case, rng)
    )
    theta = jnp.ones(loss_case.dimension, dtype)
    for function in (loss_case.loss.per_item_values, loss_case.loss.per_item_gradients):
        assert jax.eval_shape(function, theta, items).dtype == dtype


def test_a_loss_can_be_a_static_argument(loss_case, rng):
    items, theta = stacked(loss_case, rng), jnp.ones(loss_case.dimension)
    expected = loss_case.loss.per_item_gradients(theta, items)
    np.testing.assert_allclose(gradients(loss_case.loss, theta, items), expected, atol=1e-12)


# Where the constants are attained, so that none can be cut by a tenth.


def curvature(loss, theta, direction, item):
    step = 1e-5 * direction / jnp.linalg.norm(direction)
    change = loss.item_gradient(theta + step, item) - loss.item_gradient(theta - step, item)
    return float(jnp.linalg.norm(change)) / 2e-5


def test_multinomial_constants_are_attained():
    loss = problems.Multinomial(3)
    constants = loss.constants(feature_bound=2.0)
    x = jnp.asarray([1.2, 1.6])
    sure = jnp.concatenate([9 * x, -9 * x, -9 * x])  # all mass on class 0, the label is 1
    assert float(jnp.linalg.norm(loss.item_gradient(sure, (x, 1)))) == pytest.approx(constants.lipschitz)
    shared = jnp.concatenate([x, x, -20 * x])  # classes 0 and 1 share all the mass
    towards = jnp.concatenate([x, -x, 0 * x])
    assert curvature(loss, shared, towards, (x, 0)) == pytest.approx(constants.smoothness, rel=1e-6)


def test_multinomial_with_two_classes_is_logistic(rng):
    w, x = jnp.asarray(rng.normal(size=4)), jnp.asarray(rng.normal(size=4))
    both = jnp.concatenate([jnp.zeros(4), w])
    for y in (0, 1):
        two, one = problems.Multinomial(2), problems.Logistic()
        assert float(two.item_value(both, (x, y))) == pytest.approx(float(one.item_value(w, (x, y))))
        np.testing.assert_allclose(two.item_gradient(both, (x, y))[4:], one.item_gradient(w, (x, y)))


def test_multinomial_survives_extreme_scores_and_unknown_classes():
    loss, x = problems.Multinomial(3), jnp.ones(2, jnp.float32)
    theta = jnp.asarray([1e4, 0, -1e4, 0, 0, 0], jnp.float32)
    for y in (0, 1, 2, 7):
        assert np.isfinite(loss.item_value(theta, (x, y)))
        gradient = loss.item_gradient(theta, (x, y))
        assert float(jnp.linalg.norm(gradient)) <= loss.constants(math.sqrt(2)).lipschitz * (1 + 1e-6)


def test_ridge_constants_are_attained():
    loss = problems.Regularized(problems.Linear(), 0.4)
    constants = loss.constants(feature_bound=3.0, theta_bound=2.0)
    z, theta = jnp.asarray([3.0, 0.0]), jnp.asarray([2.0, 0.0])
    assert float(jnp.linalg.norm(loss.item_gradient(theta, z))) == pytest.approx(constants.lipschitz)
    assert curvature(loss, theta, z, z) == pytest.approx(constants.smoothness, rel=1e-6)
    assert constants.strong_convexity == pytest.approx(0.4)


def test_ridge_adds_to_a_strongly_convex_loss_and_needs_a_bound_on_theta():
    loss = problems.Regularized(problems.SquaredDistance(), 0.5)
    assert loss.constants(1.0, 2.0) == problems.Constants(1 + 2 + 0.5 * 2, 1.5, 1.5)
    assert loss.constants(1.0).lipschitz == math.inf


def test_squared_distance_constants_are_attained():
    loss, z = problems.SquaredDistance(), jnp.asarray([-1.0, 0.0])
    gradient = loss.item_gradient(jnp.asarray([2.0, 0.0]), z)
    assert float(jnp.linalg.norm(gradient)) == loss.constants(1.0, 2.0).lipschitz
    assert curvature(loss, z, z, z) == pytest.approx(1.0)


def test_distance_has_a_unit_gradient_and_zero_at_its_kink():
    loss, z = problems.Distance(), jnp.asarray([1.0, 2.0])
    gradient = loss.item_gradient(jnp.asarray([4.0, 6.0]), z)
    np.testing.assert_allclose(gradient, [0.6, 0.8])
    np.testing.assert_array_equal(loss.item_gradient(z, z), [0.0, 0.0])
    assert curvature(loss, z, z, z) > 1e4


def test_smoothed_constants_of_a_vector_loss():
    constants = problems.smoothed_constants(problems.Distance().constants(), radius=0.5, dimension=1)
    assert constants.smoothness == pytest.approx(2.0)
    assert constants.lipschitz == 1.0


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: problems.Regularized(problems.Hinge(), 0.0), "strength must be a positive finite number"),
        (lambda: problems.Regularized(abs, 1.0), "wrap a plain function in JaxLoss"),
        (lambda: problems.JaxLoss("hinge"), "function must be callable"),
        (lambda: problems.JaxLoss(abs, lipschitz=-1.0), "lipschitz must be at least 0"),
        (lambda: problems.JaxLoss(abs, smoothness=1.0, strong_convexity=2.0), "must not exceed smoothness"),
        (
            lambda: problems.JaxLoss(lambda theta, z: theta - z).item_value(jnp.ones(2), jnp.ones(2)),
            r"must return a scalar, got shape \(2,\)",
        ),
        (lambda: problems.Multinomial(1), "n_classes must be an integer >= 2"),
        (
            lambda: problems.Multinomial(3).item_gradient(jnp.ones(4), (jnp.ones(2), 0)),
            r"theta must have shape \(6,\)",
        ),
        (lambda: problems.Linear().constants(feature_bound=math.nan), "feature_bound must be at least 0"),
    ],
)
def test_bad_input_says_what_to_do(build, message):
    with pytest.raises(InvalidInputError, match=message):
        build()
