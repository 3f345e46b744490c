"""Randomized smoothing: the closed forms against integrals and draws, and the four promised properties."""

import math
from functools import partial
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

from userdp import problems
from userdp.errors import InvalidInputError

WIDTHS = (0.05, 0.8, 4.0)
FORMS = ("value", "derivative")


def plain(loss, form):
    return {"value": loss.value, "derivative": loss.derivative}[form]


def smoothed(loss, form):
    return {"value": loss.smoothed_value, "derivative": loss.smoothed_derivative}[form]


def triples(case, predictions):
    """Bends, and predictions with targets, each with one of the widths."""
    p, y = case.pairs(predictions)
    return p, y, np.resize(WIDTHS, p.shape)


def integral(case, form, p, y, width, dimension):
    """E phi(p + width B, y): Gauss-Legendre over a = arcsin B, on panels that end at the bends."""
    reach = min(1.0, 12 / math.sqrt(dimension))
    targets, bends = (np.array([pair[i] for pair in case.bends]) for i in (1, 0))
    cuts = [
        np.where(y == t, np.clip((b - p) / width, -reach, reach), 0)
        for b, t in zip(bends, targets, strict=True)
    ]
    fixed = [np.full(p.shape, reach * share) for share in (-1, -0.3, 0, 0.3, 1)]
    edges = np.arcsin(np.sort(np.stack([*fixed, *cuts]), axis=0))
    nodes, weights = np.polynomial.legendre.leggauss(30)
    total = np.zeros(p.shape)
    for left, right in pairwise(edges):
        half = (right - left)[:, None] / 2
        a = (left + right)[:, None] / 2 + half * nodes
        heights = np.asarray(plain(case.loss, form)(p[:, None] + width[:, None] * np.sin(a), y[:, None]))
        total += np.sum(half * weights * heights * np.cos(a) ** dimension, axis=1)
    return total * problems.BallMarginal(dimension).peak


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dimension", [1, 6, 10_000])
def test_closed_forms_are_the_one_dimensional_integrals(case, form, dimension, x64):
    p, y, w = triples(case, np.linspace(-4, 4, 61))
    expected = integral(case, form, p, y, w, dimension)
    answer = smoothed(case.loss, form)(p, y, w, problems.BallMarginal(dimension))
    np.testing.assert_allclose(answer, expected, rtol=1e-8, atol=1e-8)


def test_the_reference_integral_agrees_with_scipy(case, x64):
    law = stats.beta(2.5, 2.5, loc=-1, scale=2)
    bend, y = (case.bends or ((0.0, case.targets[0]),))[0]
    p, width = bend + 0.1, 0.8
    for form in FORMS:
        expected, _ = integrate.quad(
            lambda b, form=form: float(plain(case.loss, form)(p + width * b, y)) * law.pdf(b),
            *(-1, 1),
            points=[(bend - p) / width],
            epsabs=1e-8,
            limit=20,
        )
        reference = integral(case, form, np.array([p]), np.array([y]), np.array([width]), 4)
        assert float(reference[0]) == pytest.approx(expected, abs=1e-7)


@pytest.fixture(scope="module")
def million_draws():
    """A million uniform points of the unit ball of R^3, seen along one direction."""
    rng = np.random.default_rng(7)
    points = rng.normal(size=(1_000_000, 3))
    points *= (rng.random(1_000_000) ** (1 / 3) / np.linalg.norm(points, axis=1))[:, None]
    return points @ np.array([2.0, -1.0, 2.0]) / 3.0


@pytest.mark.parametrize("form", FORMS)
def test_closed_forms_are_the_means_of_a_million_draws(case, form, million_draws, x64):
    bend, y = (case.bends or ((0.0, case.targets[-1]),))[-1]
    p, width = bend + 0.3, 0.9
    draws = np.asarray(plain(case.loss, form)(p + width * million_draws, y))
    error = draws.std() / 1000
    exact = float(smoothed(case.loss, form)(p, y, width, problems.BallMarginal(3)))
    z = (draws.mean() - exact) / error
    assert abs(z) < 4.9
    if form == "derivative" and case.bends:
        wrong = float(smoothed(case.loss, form)(p, y, 1.3 * width, problems.BallMarginal(3)))
        if abs(wrong - exact) > 1e-6:
            assert abs(draws.mean() - wrong) / error > 4.9


def test_smoothed_derivative_is_the_gradient_of_the_smoothed_value(case, grid, x64):
    law = problems.BallMarginal(6)
    p, y, w = triples(case, grid)
    gradient = jax.grad(lambda p: case.loss.smoothed_value(p, y, w, law).sum())(jnp.asarray(p))
    np.testing.assert_allclose(gradient, case.loss.smoothed_derivative(p, y, w, law), atol=1e-9)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dimension", [1, 10_000])
def test_single_precision_agrees_with_double(case, form, dimension):
    law = problems.BallMarginal(dimension)
    p, y, w = triples(case, np.linspace(-4, 4, 61))
    with jax.enable_x64():
        exact = np.asarray(smoothed(case.loss, form)(p, y, w, law))
    single = smoothed(case.loss, form)(p.astype(np.float32), y, w, law)
    assert single.dtype == jnp.float32
    np.testing.assert_allclose(single, exact, atol=5e-6 * (1 + np.abs(exact).max()))


def test_single_precision_survives_where_double_is_enabled(case, x64):
    p = jnp.zeros(5, jnp.float32)
    for form in FORMS:
        function = partial(smoothed(case.loss, form), marginal=problems.BallMarginal(4))
        assert jax.eval_shape(function, p, np.ones(5), np.full(5, 0.5)).dtype == jnp.float32


@pytest.mark.parametrize("dimension", [1, 10_000])
def test_extreme_predictions_and_their_gradients_stay_finite(case, dimension):
    law = problems.BallMarginal(dimension)
    p, y = (jnp.asarray(a, jnp.float32) for a in case.pairs(np.array([-1e4, -1.0, 0.0, 1.0, 1e4])))
    w = jnp.resize(jnp.asarray([0.0, 1e-6, 1.0, 50.0]), p.shape)
    total = jax.grad(lambda p: case.loss.smoothed_value(p, y, w, law).sum())
    for answer in (*(smoothed(case.loss, form)(p, y, w, law) for form in FORMS), total(p)):
        assert np.isfinite(answer).all()


@pytest.mark.parametrize("form", FORMS)
def test_no_width_is_no_smoothing_also_at_kinks(case, form, grid, x64):
    p, y = case.pairs(grid)
    answer = smoothed(case.loss, form)(p, y, np.zeros(p.shape), problems.BallMarginal(5))
    np.testing.assert_allclose(answer, plain(case.loss, form)(p, y), atol=1e-10)


# The four properties, for theta in R^d.

RADIUS = 0.6


def items(case, rng, d):
    """Items of norm <= 2, as many as the tables above have rows, so that kernels are reused."""
    features = rng.normal(size=(1024, d))
    features *= 2 * rng.random((1024, 1)) / np.linalg.norm(features, axis=1, keepdims=True)
    return jnp.asarray(features), jnp.asarray(rng.choice(case.targets, 1024))


def test_smoothed_loss_is_convex(case, rng, x64):
    smooth = problems.SmoothedGLM(case.loss, RADIUS, 4)
    features, targets = items(case, rng, 4)
    a, b = (jnp.asarray(rng.normal(size=4)) for _ in range(2))
    chord = (smooth.values(a, features, targets) + smooth.values(b, features, targets)) / 2
    assert np.all(smooth.values((a + b) / 2, features, targets) <= chord + 1e-10)


def test_smoothed_loss_keeps_the_lipschitz_constant(case, rng, x64):
    smooth = problems.SmoothedGLM(case.loss, RADIUS, 4)
    features, targets = items(case, rng, 4)
    slopes = smooth.slopes(jnp.asarray(3 * rng.normal(size=4)), features, targets)
    constants = smooth.constants(feature_bound=2.0)
    assert constants.lipschitz == case.loss.constants(feature_bound=2.0).lipschitz
    assert np.max(np.abs(slopes) * np.linalg.norm(features, axis=1)) <= constants.lipschitz * (1 + 1e-9)


def test_smoothed_loss_is_close_from_above(case, rng, x64):
    smooth = problems.SmoothedGLM(case.loss, RADIUS, 500)
    features, targets = items(case, rng, 500)
    theta = jnp.asarray(rng.normal(size=500))
    gap = np.asarray(smooth.values(theta, features, targets) - case.loss.values(theta, features, targets))
    G = case.loss.constants(feature_bound=2.0).lipschitz
    assert gap.min() >= -1e-10
    assert gap.max() <= smooth.approximation_error(2.0) <= G * RADIUS


def test_the_approximation_error_is_attained_at_the_kink_of_the_absolute_loss(dimension, x64):
    smooth = problems.SmoothedGLM(problems.Absolute(), RADIUS, dimension)
    x = jnp.zeros(dimension).at[0].set(2.0)
    gap = float(smooth.values(jnp.zeros(dimension), x, 0.0))
    assert gap == pytest.approx(smooth.approximation_error(2.0), rel=1e-9)


@pytest.mark.parametrize("d", [1, 4, 500])
def test_smoothed_gradient_obeys_the_smoothness_constant(case, rng, d, x64):
    """Along x, where the gradient of an item changes most: a step h moves the prediction by |x| h."""
    norms, h = 2 * rng.random(1024), 1e-3
    p, y = case.pairs(np.linspace(-3, 3, 203))
    slope = partial(case.loss.smoothed_derivative, marginal=problems.BallMarginal(d))
    change = np.asarray(slope(p + norms * h, y, RADIUS * norms) - slope(p, y, RADIUS * norms)) * norms / h
    constants = problems.SmoothedGLM(case.loss, RADIUS, d).constants(feature_bound=2.0)
    plain_constants = case.loss.constants(feature_bound=2.0)
    assert change.min() >= -1e-8
    assert change.max() <= constants.smoothness * (1 + 1e-6)
    assert constants.smoothness <= plain_constants.smoothness
    assert constants.smoothness <= plain_constants.lipschitz * math.sqrt(d) / RADIUS * (1 + 1e-12)


def test_the_smoothness_constant_cannot_be_cut(dimension, x64):
    smooth = problems.SmoothedGLM(problems.Absolute(), RADIUS, dimension)
    x = jnp.zeros(dimension).at[0].set(2.0)
    step = x * 1e-5
    change = smooth.item_gradient(step, (x, 0.0)) - smooth.item_gradient(-step, (x, 0.0))
    curvature = np.linalg.norm(change) / np.linalg.norm(2 * step)
    assert curvature == pytest.approx(smooth.constants(feature_bound=2.0).smoothness, rel=1e-3)


def test_smoothing_the_squared_loss_adds_a_constant(x64):
    smooth = problems.SmoothedGLM(problems.Squared(), RADIUS, 3)
    x = jnp.asarray([1.0, 2.0, -2.0])
    theta = jnp.asarray([0.3, 0.1, 0.5])
    gap = smooth.values(theta, x, 1.0) - problems.Squared().values(theta, x, 1.0)
    assert float(gap) == pytest.approx(9 * RADIUS**2 / (2 * 5))


# Sampled smoothing.


def z_scores(samples, mean):
    return (samples.mean(axis=0) - mean) / (samples.std(axis=0) / math.sqrt(len(samples)))


def test_sampled_gradients_average_to_the_closed_form(rng, x64):
    loss, theta = problems.Hinge(), jnp.asarray([0.5, 0.2, -0.1])
    x, y = jnp.asarray([1.0, 0.4, -0.3]), jnp.asarray(1)
    sampled = problems.SampledSmoothing(loss, 0.8)
    keys = jax.random.split(jax.random.key(3), 50_000)
    gradients = np.asarray(jax.vmap(lambda key: sampled.item_gradient(theta, (x, y), key))(keys))
    exact = np.asarray(problems.SmoothedGLM(loss, 0.8, 3).item_gradient(theta, (x, y)))
    assert np.abs(z_scores(gradients, exact)).max() < 4.9
    assert np.abs(z_scores(gradients, 1.1 * exact)).min() > 4.9
    values = np.asarray(jax.vmap(lambda key: sampled.item_value(theta, (x, y), key))(keys))
    assert abs(z_scores(values, float(problems.SmoothedGLM(loss, 0.8, 3).item_value(theta, (x, y))))) < 4.9


def test_sampled_slopes_average_to_the_closed_form(x64):
    loss, theta = problems.Absolute(), jnp.asarray([0.5, 0.2, -0.1])
    x, y = jnp.asarray([1.0, 0.4, -0.3]), 0.4
    sampled = problems.SampledGLM(loss, 0.8, 3)
    features = jnp.broadcast_to(x, (50_000, 3))
    slopes = np.asarray(jax.jit(sampled.slopes)(theta, features, jnp.full(50_000, y), jax.random.key(4)))
    exact = float(problems.SmoothedGLM(loss, 0.8, 3).slopes(theta, x, y))
    assert abs(z_scores(slopes, exact)) < 4.9
    assert abs(z_scores(slopes, exact + 0.05)) > 4.9


def test_a_vector_loss_is_smoothed_by_sampling(x64):
    sampled = problems.SampledSmoothing(problems.Distance(), 1.0)
    keys = jax.random.split(jax.random.key(9), 20_000)
    values = np.asarray(jax.vmap(lambda key: sampled.item_value(jnp.zeros(4), jnp.zeros(4), key))(keys))
    assert abs(z_scores(values, 4 / 5)) < 4.9  # E|y| = d/(d + 1): the bound l + G r d/(d + 1) is attained


def test_an_item_draws_the_same_whatever_stands_after_it(rng):
    key, theta = jax.random.key(1), jnp.zeros(3)
    features, targets = jnp.asarray(rng.normal(size=(8, 3)), jnp.float32), jnp.ones(8)
    vector = problems.SampledSmoothing(problems.SquaredDistance(), 0.5)
    scalar = problems.SampledGLM(problems.Squared(), 0.5, 3)
    np.testing.assert_array_equal(
        vector.per_item_gradients(theta, features, key)[:5],
        vector.per_item_gradients(theta, features[:5], key),
    )
    slopes = jax.jit(scalar.slopes)
    np.testing.assert_array_equal(
        slopes(theta, features, targets, key)[:5], slopes(theta, features[:5], targets[:5], key)
    )
    moved = vector.per_item_gradients(theta, jnp.zeros((8, 3)), key)
    assert len(np.unique(np.asarray(moved), axis=0)) == 8


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: problems.SmoothedGLM(problems.Hinge(), 0.0, 3), "radius must be a positive finite number"),
        (lambda: problems.SmoothedGLM(problems.Hinge(), 1.0, 0), "dimension must be an integer >= 1"),
        (lambda: problems.SmoothedGLM(problems.Distance(), 1.0, 3), "use SampledSmoothing"),
        (lambda: problems.SampledGLM(problems.Distance(), 1.0, 3), "use SampledSmoothing"),
        (lambda: problems.SampledSmoothing(abs, 1.0), "wrap a plain function in JaxLoss"),
        (
            lambda: problems.SmoothedGLM(problems.Hinge(), 1.0, 3).slopes(jnp.zeros(2), jnp.zeros(2), 1),
            r"theta must have shape \(3,\)",
        ),
    ],
)
def test_bad_settings_say_what_to_do(build, message):
    with pytest.raises(InvalidInputError, match=message):
        build()
