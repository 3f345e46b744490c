import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from userdp.errors import InvalidInputError
from userdp.means.lattice import COORDINATE_LIMIT, Lattice


def exact_mean(units, weights):
    """The weighted mean in rational arithmetic."""
    kept = [j for j, w in enumerate(weights) if w]
    total = sum(int(weights[j]) for j in kept)
    return [
        Fraction(sum(int(weights[j]) * int(units[j][i]) for j in kept), total) for i in range(len(units[0]))
    ]


@pytest.mark.parametrize("origin", [0, 12_345, -(2**51)])
@pytest.mark.parametrize("n", [5, 200])
def test_mean_is_the_rational_mean_rounded_once(origin, n):
    rng = np.random.default_rng(n)
    lattice = Lattice.fine_enough(1.0, n, 3)
    units = origin + rng.integers(-lattice.radius_units, lattice.radius_units, (n, 3)).astype(float)
    weights = rng.integers(0, n // 2 + 1, n)
    units[weights == 0] = np.nan
    whole, fraction = lattice.mean(units, weights)
    scale = 2**lattice.answer_bits
    for i, exact in enumerate(
        exact_mean(units.tolist() if weights.all() else np.nan_to_num(units).tolist(), weights)
    ):
        assert abs(Fraction(int(whole[i]) * scale + int(fraction[i])) - exact * scale) <= Fraction(1, 2)


def test_mean_of_a_million_users_is_exact():
    """Partial sums exceed 2^53; chunks keep them exact."""
    n = 1_000_000
    lattice = Lattice.fine_enough(1.0, n, 1)
    rng = np.random.default_rng(0)
    units = rng.integers(-lattice.radius_units, lattice.radius_units, (n, 1)).astype(float)
    weights = rng.integers(n // 2 - 1000, n // 2, n)
    total = sum(int(w) * int(u) for w, u in zip(weights, units[:, 0], strict=True))
    whole, fraction = lattice.mean(units, weights)
    exact = Fraction(total, int(weights.sum())) * 2**lattice.answer_bits
    assert abs(int(whole[0]) * 2**lattice.answer_bits + int(fraction[0]) - exact) <= Fraction(1, 2)
    order = rng.permutation(n)
    assert all(
        (a == b).all()
        for a, b in zip(lattice.mean(units[order], weights[order]), (whole, fraction), strict=True)
    )


def test_no_weight_is_zero():
    lattice = Lattice.fine_enough(1.0, 10, 2)
    whole, fraction = lattice.mean(np.full((10, 2), np.nan), np.zeros(10, np.int64))
    assert not whole.any()
    assert not fraction.any()


@given(st.integers(-(2**52), 2**52), st.integers(-(2**60), 2**60), st.integers(-(2**30), 2**30))
def test_value_is_a_function_of_the_noisy_integer_alone(whole, units, carry):
    """Two ways of writing one integer as whole and answer units give the same float."""
    lattice = Lattice.fine_enough(0.3, 100, 1)
    scale = 2**lattice.answer_bits
    first = lattice.value(np.array([whole]), np.array([units]))
    second = lattice.value(np.array([whole - carry]), np.array([units + carry * scale]))
    assert first == second


def test_rows_are_rounded_by_themselves():
    lattice = Lattice.fine_enough(0.7, 50, 4)
    x = np.random.default_rng(0).normal(size=(50, 4)) * 1e3
    together = lattice.round(x)
    assert (together == np.rint(together)).all()
    assert np.abs(together * lattice.step - x).max() <= lattice.step * 0.5000001
    order = np.random.default_rng(1).permutation(50)
    assert (lattice.round(x[order]) == together[order]).all()
    assert all((lattice.round(x[j : j + 1])[0] == together[j]).all() for j in range(50))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e300])
def test_a_value_out_of_range_makes_its_user_null(bad):
    lattice = Lattice.fine_enough(1.0, 4, 2)
    rounded = lattice.round(np.array([[1.0, 2.0], [1.0, bad]]))
    assert np.isfinite(rounded[0]).all()
    assert np.isnan(rounded[1]).all()


def test_subnormals_and_signed_zeros():
    lattice = Lattice.fine_enough(1.0, 4, 2)
    assert not lattice.round(np.array([[5e-324, -0.0]])).any()


def test_range_limit_is_inclusive():
    lattice = Lattice.fine_enough(1.0, 4, 1)
    edge = COORDINATE_LIMIT * lattice.step
    assert np.isfinite(lattice.round(np.array([[edge], [-edge]]))).all()
    assert np.isnan(lattice.round(np.array([[edge * 1.001]]))).all()


@pytest.mark.parametrize("dimension", [1, 100, 10_000, 1_000_000])
@pytest.mark.parametrize("n", [4, 1_000, 1_000_000])
def test_rounding_costs_next_to_nothing(n, dimension):
    lattice = Lattice.fine_enough(1.0, n, dimension)
    ideal = 2.0 / n
    in_radii = lattice.answer_sensitivity(ideal) * lattice.answer_step / lattice.radius
    assert ideal < in_radii < ideal * 1.001
    assert np.sqrt(dimension) * lattice.step / 2 <= lattice.radius / 2**13


@pytest.mark.parametrize("radius", [0.0, -1.0, np.nan, np.inf, 1e-200, 1e200])
def test_bad_radius(radius):
    with pytest.raises(InvalidInputError, match="radius"):
        Lattice.fine_enough(radius, 100, 3)


def test_limits_of_exactness_are_refused():
    with pytest.raises(InvalidInputError, match="groups of users"):
        Lattice.fine_enough(1.0, 10**9, 10)
    with pytest.raises(InvalidInputError, match="groups of users"):
        Lattice.fine_enough(1.0, 100, 2**27)
    with pytest.raises(InvalidInputError, match="coordinate"):
        Lattice.fine_enough(1.0, 100, 0)


@pytest.mark.parametrize("dimension", [1, 4, 9])
def test_rounding_the_answer_can_move_it_by_one_unit_in_every_coordinate(dimension):
    """Two means a hair apart, on either side of half a unit: that is what sqrt(dimension) pays for."""
    lattice = Lattice.fine_enough(1.0, 100, dimension)
    units = np.array([np.zeros(dimension), np.ones(dimension)])
    half = 2 ** (lattice.answer_bits + 1)
    one, other = (lattice.mean(units, np.array([weight - 1, 1])) for weight in (half, half + 1))
    moved = float(np.linalg.norm(one[1] - other[1]))
    apart = math.sqrt(dimension) * 2**lattice.answer_bits * (1 / half - 1 / (half + 1))
    assert moved == pytest.approx(math.sqrt(dimension))
    in_radii = math.ldexp(apart, -lattice.radius_bits - lattice.answer_bits)
    assert apart < 1e-6
    assert lattice.answer_sensitivity(in_radii) >= moved
