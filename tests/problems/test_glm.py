"""Every GLM loss against every property that it claims."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from userdp import problems
from userdp.errors import InvalidInputError

pytestmark = pytest.mark.usefixtures("x64")

STEP = 1e-6


def grad(loss):
    return jax.jit(jax.vmap(jax.grad(loss.value)))


def test_derivative_is_the_slope_of_the_value(case, grid):
    p, y = case.pairs(grid)
    slope = (case.loss.value(p + STEP, y) - case.loss.value(p - STEP, y)) / (2 * STEP)
    gap = np.abs(slope - case.loss.derivative(p, y))[case.bend_distance(p, y) > 1e-3]
    assert gap.max() < 1e-7


def test_derivative_is_what_jax_differentiates_also_at_kinks(case, grid):
    p, y = case.pairs(grid)
    np.testing.assert_allclose(case.loss.derivative(p, y), grad(case.loss)(p, y), atol=1e-12)


def test_derivative_at_a_kink_is_the_middle_of_the_subdifferential(case):
    for bend, y in case.bends:
        left, middle, right = (float(case.loss.derivative(bend + side, y)) for side in (-1e-9, 0, 1e-9))
        assert middle == pytest.approx((left + right) / 2, abs=1e-8)


def test_subgradient_inequality_holds_at_kinks_and_elsewhere(case, grid):
    p, y = case.pairs(grid)
    value, slope = case.loss.value(p, y), case.loss.derivative(p, y)
    for other in (-30.0, -1.1, 0.4, 1.0, 1.5, 25.0):
        tangent = value + slope * (other - p)
        assert np.all(case.loss.value(np.full_like(p, other), y) >= tangent - 1e-10 * (1 + np.abs(tangent)))


@settings(max_examples=25, deadline=None)
@given(
    a=st.floats(-50, 50),
    b=st.floats(-50, 50),
    mix=st.floats(0, 1),
    name=st.sampled_from(["logistic", "huber", "hinge", "pinball", "poisson", "squared hinge", "absolute"]),
)
def test_convex_along_segments(a, b, mix, name):
    losses = {
        "logistic": problems.Logistic(),
        "huber": problems.Huber(1.3),
        "hinge": problems.Hinge(),
        "pinball": problems.Pinball(0.1),
        "poisson": problems.Poisson(2.0, 5.0),
        "squared hinge": problems.SquaredHinge(),
        "absolute": problems.Absolute(),
    }
    value = losses[name].value
    chord = (1 - mix) * value(a, 1.0) + mix * value(b, 1.0)
    assert value((1 - mix) * a + mix * b, 1.0) <= chord + 1e-9 * (1 + abs(chord))


def test_derivative_never_exceeds_the_lipschitz_constant(case):
    p, y = case.pairs(np.linspace(-60, 60, 203))
    assert np.abs(case.loss.derivative(p, y)).max() <= case.loss.lipschitz * (1 + 1e-12)


def test_lipschitz_constant_cannot_be_cut(case):
    if math.isinf(case.loss.lipschitz):
        assert max(abs(float(case.loss.derivative(p, 1.0))) for p in (-1e7, 1e7)) > 1e6
    elif case.steepest is not None:
        assert abs(float(case.loss.derivative(*case.steepest))) > 0.999 * case.loss.lipschitz


def test_curvature_lies_between_strong_convexity_and_smoothness(case, rng):
    a, b = rng.normal(scale=3, size=(2, 1024))
    y = rng.choice(case.targets, 1024)
    slope = np.asarray(case.loss.derivative(b, y) - case.loss.derivative(a, y)) / (b - a)
    assert slope.max() <= case.loss.smoothness * (1 + 1e-9)
    assert slope.min() >= case.loss.strong_convexity * (1 - 1e-9) - 1e-12


def test_smoothness_constant_cannot_be_cut(case):
    if math.isinf(case.loss.smoothness):
        bend, y = case.bends[0]
        jump = case.loss.derivative(bend + 1e-9, y) - case.loss.derivative(bend - 1e-9, y)
        assert float(jump) / 2e-9 > 1e6
    else:
        p, y = case.most_curved
        curvature = (case.loss.derivative(p + STEP, y) - case.loss.derivative(p - STEP, y)) / (2 * STEP)
        assert float(curvature) > 0.999 * case.loss.smoothness


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize("target_dtype", [np.int32, np.float64, bool])
def test_follows_the_floating_type_of_the_prediction(case, dtype, target_dtype):
    p, y = jnp.zeros(7, dtype), np.ones(7, dtype=target_dtype)
    for function in (case.loss.value, case.loss.derivative, jax.vmap(jax.grad(case.loss.value))):
        assert jax.eval_shape(function, p, y).dtype == dtype


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_extreme_predictions_stay_finite(case, dtype):
    p, y = (jnp.asarray(a, dtype) for a in case.pairs(np.array([-1e4, -100.0, -0.0, 0.0, 100.0, 1e4])))
    functions = (case.loss.value, case.loss.derivative, grad(case.loss))
    for answer in jax.jit(lambda p, y: [function(p, y) for function in functions])(p, y):
        assert np.isfinite(answer).all()


def test_logistic_tails_keep_their_relative_precision():
    p = jnp.asarray([30.0, -30.0], jnp.float32)
    y = jnp.asarray([1.0, 0.0])
    np.testing.assert_allclose(problems.Logistic().value(p, y), math.exp(-30), rtol=1e-5)
    np.testing.assert_allclose(
        problems.Logistic().derivative(p, y), [-math.exp(-30), math.exp(-30)], rtol=1e-5
    )


def test_huber_keeps_its_precision_at_large_residuals():
    assert float(problems.Huber(1.0).value(jnp.float32(1e4), 0.0)) == 9999.5


def test_poisson_is_the_likelihood_below_its_bound_and_linear_beyond():
    loss = problems.Poisson(max_log_rate=2.0, max_count=10.0)
    p = np.linspace(-3, 2, 11)
    np.testing.assert_allclose(loss.value(p, 4.0), np.exp(p) - 4 * p, rtol=1e-12)
    beyond = np.asarray(loss.value(np.array([2.0, 3.0, 4.0]), 4.0))
    assert beyond[2] - beyond[1] == pytest.approx(beyond[1] - beyond[0])
    assert float(loss.derivative(0.0, 99.0)) == pytest.approx(1 - 10)


@pytest.mark.parametrize(("quantile", "p", "constant"), [(0.1, 1.0, 0.9), (0.9, -1.0, 0.9), (0.5, 1.0, 0.5)])
def test_pinball_is_as_steep_as_its_heavier_side(quantile, p, constant):
    loss = problems.Pinball(quantile)
    assert loss.lipschitz == constant
    assert abs(float(loss.derivative(p, 0.0))) == pytest.approx(constant)


def test_poisson_slope_reaches_its_largest_count():
    loss = problems.Poisson(max_log_rate=0.5, max_count=4.0)
    assert loss.lipschitz == 4.0
    assert abs(float(loss.derivative(-9.0, 4.0))) > 0.999 * loss.lipschitz


def test_jit_and_vmap_change_nothing(case, grid):
    p, y = case.pairs(grid)
    for function in (case.loss.value, case.loss.derivative):
        compiled = jax.jit(jax.vmap(function))(p, y)
        np.testing.assert_allclose(compiled, function(p, y), rtol=1e-12, atol=1e-15)


def test_a_loss_can_be_a_static_argument(case):
    slopes = jax.jit(lambda loss, p, y: loss.derivative(p, y), static_argnums=0)
    y = case.targets[0]
    assert float(slopes(case.loss, 0.3, y)) == pytest.approx(float(case.loss.derivative(0.3, y)))


def test_slopes_give_the_average_gradient_in_two_products(case, rng):
    theta, features = jnp.asarray(rng.normal(size=6)), jnp.asarray(rng.normal(size=(20, 6)))
    targets = jnp.asarray(rng.choice(case.targets, 20))

    @jax.jit
    def three_ways(theta):
        average = features.T @ case.loss.slopes(theta, features, targets) / 20
        stacked = case.loss.per_item_gradients(theta, (features, targets)).mean(axis=0)
        return average, stacked, jax.grad(lambda t: case.loss.values(t, features, targets).mean())(theta)

    average, stacked, differentiated = three_ways(theta)
    np.testing.assert_allclose(average, stacked, atol=1e-12)
    np.testing.assert_allclose(average, differentiated, atol=1e-12)


@pytest.mark.parametrize("bound", [0.5, 3.0])
def test_constants_scale_with_the_feature_bound_and_are_attained(case, bound):
    constants = case.loss.constants(feature_bound=bound)
    x = jnp.asarray([0.6, 0.8]) * bound
    if case.steepest is not None:
        p, y = case.steepest
        gradient = case.loss.item_gradient(x * p / bound**2, (x, jnp.asarray(y)))
        assert 0.999 * constants.lipschitz < np.linalg.norm(gradient) <= constants.lipschitz * (1 + 1e-12)
    if case.most_curved is not None:
        p, y = case.most_curved
        theta, step = x * p / bound**2, x * STEP / bound
        change = case.loss.item_gradient(theta + step, (x, y)) - case.loss.item_gradient(theta - step, (x, y))
        curvature = np.linalg.norm(change) / np.linalg.norm(2 * step)
        assert 0.999 * constants.smoothness < curvature <= constants.smoothness * (1 + 1e-6)
    assert constants.strong_convexity == 0


def test_without_a_feature_bound_the_constants_are_infinite(case):
    assert case.loss.constants().lipschitz == math.inf
    assert case.loss.constants(feature_bound=0.0) == problems.Constants(0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: problems.Huber(0.0), "threshold must be a positive finite number, got 0.0"),
        (lambda: problems.Huber("wide"), "got 'wide'"),
        (lambda: problems.Pinball(1.0), "quantile must lie strictly between 0 and 1, got 1.0"),
        (lambda: problems.Pinball(math.nan), "got nan"),
        (lambda: problems.Poisson(90.0, 5.0), "max_log_rate must lie strictly between -80 and 80"),
        (lambda: problems.Poisson(1.0, -5.0), "max_count must be a positive finite number"),
        (lambda: problems.Logistic().constants(feature_bound=-1.0), "feature_bound must be at least 0"),
    ],
)
def test_bad_settings_say_what_to_do(build, message):
    with pytest.raises(InvalidInputError, match=message) as caught:
        build()
    assert ";" in str(caught.value)


def test_mismatched_shapes_are_refused():
    with pytest.raises(InvalidInputError, match=r"got \(3,\) and \(5, 2\)"):
        problems.Logistic().slopes(jnp.zeros(3), jnp.zeros((5, 2)), jnp.zeros(5))


def test_settings_become_plain_numbers_so_that_float32_stays():
    loss = problems.Huber(np.float64(0.5))
    assert type(loss.threshold) is float
    assert loss.derivative(jnp.ones(2, jnp.float32), 0).dtype == jnp.float32
