"""The law of a uniform point of the ball along one direction."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, special, stats

from userdp import problems
from userdp.errors import InvalidInputError


def beta(dimension):
    shape = (dimension + 1) / 2
    return stats.beta(shape, shape, loc=-1, scale=2)


def window(dimension, count=401):
    """Points where the law has its mass, and both ends."""
    reach = min(1.0, 8 / math.sqrt(dimension))
    return np.concatenate([[-1.0], np.linspace(-reach, reach, count), [1.0]])


def test_distribution_function_in_double_precision(dimension, x64):
    z = window(dimension)
    expected = special.betainc((dimension + 1) / 2, (dimension + 1) / 2, (1 + z) / 2)
    np.testing.assert_allclose(problems.BallMarginal(dimension).cdf(jnp.asarray(z)), expected, atol=1e-11)


def test_distribution_function_in_single_precision(dimension):
    z = window(dimension).astype(np.float32)
    expected = special.betainc((dimension + 1) / 2, (dimension + 1) / 2, (1 + z.astype(float)) / 2)
    answer = problems.BallMarginal(dimension).cdf(jnp.asarray(z))
    assert answer.dtype == jnp.float32
    np.testing.assert_allclose(answer, expected, atol=5e-7)


def test_upper_moments_are_the_integrals(dimension, x64):
    law = beta(dimension)
    reach = min(1.0, 12 / math.sqrt(dimension))
    for z in np.array([-0.9, -0.3, 0.0, 0.2, 0.7]) * reach:
        moments = problems.BallMarginal(dimension).upper_moments(jnp.asarray(z))
        for k, moment in enumerate(moments):
            expected, _ = integrate.quad(lambda b, k=k: b**k * law.pdf(b), -z, reach, epsabs=1e-13)
            assert float(moment) == pytest.approx(expected, abs=1e-11)


def test_beyond_the_ends_the_moments_are_those_of_everything_or_nothing(dimension, x64):
    law = problems.BallMarginal(dimension)
    moments = np.asarray(law.upper_moments(jnp.asarray([-7.0, -1.0, 1.0, 7.0])))
    np.testing.assert_allclose(moments[0], [0, 0, 1, 1], atol=1e-15)
    np.testing.assert_allclose(moments[1], 0, atol=1e-15)
    np.testing.assert_allclose(moments[2], [0, 0, law.variance, law.variance], atol=1e-15)


def test_peak_is_the_density_at_zero_and_at_most_half_the_root_of_the_dimension(dimension):
    law = problems.BallMarginal(dimension)
    assert law.peak == pytest.approx(beta(dimension).pdf(0.0), rel=1e-9)
    assert 2 * law.peak <= math.sqrt(dimension) * (1 + 1e-12)


def test_mean_size_and_variance(dimension):
    law = problems.BallMarginal(dimension)
    assert law.variance == pytest.approx(beta(dimension).var(), rel=1e-9)
    size, _ = integrate.quad(lambda b: 2 * b * beta(dimension).pdf(b), 0, min(1.0, 12 / math.sqrt(dimension)))
    assert law.mean_size == pytest.approx(size, rel=1e-8)


def test_quadrature_is_exact_for_polynomials(dimension, x64):
    law = problems.BallMarginal(dimension)
    for power in (0, 1, 2, 8, 9):
        expected = float(law.mean(lambda b, k=power: b**k, jnp.float64))
        # E B^2k is the moment of Beta(1/2, (d+1)/2), and odd moments vanish.
        k = power / 2
        even = special.beta(0.5 + k, (dimension + 1) / 2) / special.beta(0.5, (dimension + 1) / 2)
        assert expected == pytest.approx(0.0 if power % 2 else even, rel=1e-9, abs=1e-15)


def test_lower_mean_is_the_integral(dimension, x64):
    law, density = problems.BallMarginal(dimension), beta(dimension).pdf
    reach = min(1.0, 12 / math.sqrt(dimension))
    for z in (-0.4 * reach, 0.1 * reach, 1.0):
        expected, _ = integrate.quad(
            lambda b: math.exp(3 * b) * density(b), -reach, min(z, reach), epsabs=1e-13
        )
        assert float(law.lower_mean(lambda b: jnp.exp(3 * b), jnp.asarray(z))) == pytest.approx(
            expected, abs=1e-10
        )


def p_value(draws, dimension):
    return stats.kstest(np.asarray(draws, dtype=float), beta(dimension).cdf).pvalue


def test_scalar_draws_follow_the_law_and_no_other(dimension):
    draws = problems.BallMarginal(dimension).sample(jax.random.key(5), (20_000,), jnp.float32)
    assert draws.dtype == jnp.float32
    assert p_value(draws, dimension) > 1e-6
    assert p_value(1.1 * draws, dimension) < 1e-6
    assert p_value(draws, dimension + max(2, dimension // 5)) < 1e-6


@pytest.mark.parametrize("dimension", [1, 3, 30])
def test_vector_draws_are_uniform_in_the_ball(dimension, x64):
    keys = jax.random.split(jax.random.key(11), 20_000)
    draws = np.asarray(jax.vmap(lambda key: problems.sample_ball(key, dimension, 2.5))(keys))
    lengths = np.linalg.norm(draws, axis=1) / 2.5
    assert lengths.max() <= 1 + 1e-12
    assert stats.kstest(lengths**dimension, "uniform").pvalue > 1e-6
    assert stats.kstest(lengths ** (1.1 * dimension), "uniform").pvalue < 1e-6
    direction = np.linspace(1, 2, dimension) / np.linalg.norm(np.linspace(1, 2, dimension))
    assert p_value(draws @ direction / 2.5, dimension) > 1e-6


@pytest.mark.parametrize("dimension", [0, -1, 2.5, True, None])
def test_a_dimension_that_is_no_count_is_refused(dimension):
    with pytest.raises(InvalidInputError, match="dimension must be an integer >= 1"):
        problems.BallMarginal(dimension)
