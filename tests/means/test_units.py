"""Units of columns: what one user moves, which units are found, and what columns that say nothing get."""

import math

import numpy as np
import pytest

import userdp
from userdp.means import mean_shares, units
from userdp.means.units import private_units, units_event
from userdp.mechanisms.noise import SeededNoise
from userdp.privacy.budget import Budget

MU = 0.05


def found(x, seed=0, mu=MU):
    return private_units(x, units_event(x.shape[1], mu), SeededNoise(seed))


def counts_of(x, seed, monkeypatch):
    """Return the exact counts that get noise."""
    seen = []
    noisy = units.noisy_counts

    def watched(counts, *rest):
        seen.append(counts)
        return noisy(counts, *rest)

    with monkeypatch.context() as watch:
        watch.setattr(units, "noisy_counts", watched)
        found(x, seed)
    return seen[0]


WILD = [0.0, -0.0, 5.0, 1e-300, 5e-324, 1e308, -1e308, np.nan, np.inf, -np.inf]


@pytest.mark.parametrize("d", [1, 2, 7])
def test_one_user_moves_the_counts_by_no_more_than_the_event_s_sensitivity(d, monkeypatch):
    rng = np.random.default_rng(0)
    furthest = 0.0
    for seed in range(60):
        x = rng.choice([*WILD, *rng.normal(size=10)], size=(11, d))
        y = x.copy()
        y[seed % 11] = rng.choice(WILD, size=d) if seed % 2 else 2.0 ** rng.integers(-60, 60, size=d)
        one, other = (counts_of(table, seed, monkeypatch) for table in (x, y))
        furthest = max(furthest, float(np.linalg.norm(one - other)))
        assert furthest <= units_event(d, MU).sensitivity
        assert one.sum(axis=1).max() <= 5 * units.COUNT_RESOLUTION
    plain = rng.normal(size=(11, d))
    for seed in range(20):  # and that much is reached
        y = plain.copy()
        y[seed % 11] = 1e9
        furthest = max(
            furthest,
            float(np.linalg.norm(counts_of(plain, seed, monkeypatch) - counts_of(y, seed, monkeypatch))),
        )
    assert furthest == pytest.approx(units_event(d, MU).sensitivity)


def test_units_follow_each_column_wherever_it_lies():
    """Narrow columns have the root of five times their width for a unit, the widest its own."""
    rng = np.random.default_rng(0)
    widths = np.array([1e-9, 0.3, 15.0, 2e4, 1e12])
    expected = np.array([2.2, 2.2, 2.2, 2.2, 1.0]) * widths
    for seed, places in enumerate([np.zeros(5), 100 * widths, -1e6 * widths]):
        x = places + widths * rng.normal(size=(4_000, 5))
        over = found(x, seed) / expected
        assert ((over > 0.4) & (over < 2)).all()


@pytest.mark.parametrize("share", [0.2, 0.35, 0.5])
@pytest.mark.parametrize("apart", [100.0, 1e5])
def test_a_column_of_two_crowds_is_as_wide_as_they_are_apart(share, apart):
    rng = np.random.default_rng(0)
    crowds = np.where(rng.random(4_000) < share, 0.0, apart) + 0.1 * rng.normal(size=4_000)
    x = np.column_stack([crowds, 1e9 * rng.normal(size=4_000)])
    for seed in range(10):
        assert 0.4 < found(x, seed)[0] / (math.sqrt(2) * apart) < 2


def test_two_cities_do_not_drown_the_incomes_beside_them():
    n, rng = 3_000, np.random.default_rng(0)
    longitudes = np.where(rng.random(n) < 0.8, -74.0, -118.0) + 0.1 * rng.normal(size=n)
    x = np.column_stack([longitudes, rng.lognormal(10.3, 0.5, n)])
    errors = [
        (
            userdp.mean(x, groups=np.arange(n), epsilon=1.0, delta=1e-6, random_state=seed).value
            - x.mean(axis=0)
        )
        / x.std(axis=0)
        for seed in range(8)
    ]
    assert np.sqrt(np.mean(np.square(errors), axis=0)).max() < 0.1


def test_columns_of_comparable_width_share_a_unit():
    x = np.random.default_rng(0).normal(size=(4_000, 4)) * [1.0, 1.2, 3.0, 2.0]
    for seed in range(10):
        assert np.ptp(found(x, seed)) == 0


def test_units_are_powers_of_two():
    x = np.random.default_rng(0).normal(size=(4_000, 3)) * [1.0, 37.0, 1e-3]
    mantissas, _ = np.frexp(found(x))
    assert (mantissas == 0.5).all()


@pytest.mark.parametrize(
    "column",
    [
        np.full(4_000, 5.0),
        np.full(4_000, 1e9) + np.random.default_rng(1).normal(size=4_000) * 1e-3,
        (np.arange(4_000) % 50 == 0) * 1.0,
    ],
    ids=["constant", "constant up to rounding", "a rare flag"],
)
def test_a_column_that_says_nothing_takes_the_largest_unit(column):
    rng = np.random.default_rng(0)
    x = np.column_stack([rng.normal(size=4_000), column, 1000 * rng.normal(size=4_000)])
    for seed in range(30):
        one, silent, large = found(x, seed)
        assert one < 16
        assert silent == large > 300


def test_without_any_signal_all_units_are_one():
    for x in (np.zeros((500, 3)), np.full((500, 3), np.nan), np.zeros((2, 3))):
        assert (found(x) == 1).all()


def test_noise_makes_no_column_wider_than_the_widest():
    """Many columns have many bins far out, of which some will stand out."""
    x = np.random.default_rng(0).normal(size=(2_000, 200))
    for seed in range(30):
        assert found(x, seed, mu=1.0).max() <= 2


def test_noise_invents_no_unit():
    """A unit that noise picked would bias every column: less than once in a thousand."""
    x = np.zeros((2_000, 8))
    assert sum((found(x, seed) != 1).any() for seed in range(1_000)) <= 1


def test_age_income_and_a_flag_have_a_noise_of_their_own():
    n, rng = 3_000, np.random.default_rng(0)
    x = np.column_stack([rng.normal(44.0, 15.0, n), rng.lognormal(10.3, 0.5, n), rng.random(n) < 0.4])
    truth, spread = x.mean(axis=0), x.std(axis=0)
    errors = []
    for seed in range(8):
        release = userdp.mean(x, groups=np.arange(n), epsilon=1.0, delta=1e-6, random_state=seed)
        assert release.privacy.spent[0].name == "units"
        assert (release.noise_std < 0.1 * spread).all()
        errors.append((release.value - truth) / spread)
    assert np.sqrt(np.mean(np.square(errors), axis=0)).max() < 0.12


@pytest.mark.parametrize(("n", "d"), [(2_000, 1), (500, 4), (2_000, 64)])
def test_a_single_column_and_too_many_for_so_few_users_are_not_asked(n, d):
    assert mean_shares.shares(n, d, Budget(1.0, 1e-6)).units == 0
    x = np.random.default_rng(0).normal(7.0, 1.0, size=(n, d))
    release = userdp.mean(x, groups=np.arange(n), epsilon=1.0, delta=1e-6, random_state=0)
    assert "units" not in [spend.name for spend in release.privacy.spent]
    assert (release.units == 1).all()


def test_next_to_no_budget_finds_nothing():
    x = np.random.default_rng(0).normal(size=(2_000, 2)) * [1.0, 1e6]
    assert all((found(x, seed, mu=1e-5) == 1).all() for seed in range(20))


def test_units_are_paid_for_as_often_as_there_are_columns():
    for d in (2, 9):
        event = units_event(d, MU)
        assert event.sensitivity == pytest.approx(math.sqrt(2 * d) * 1024)
        assert event.mu == pytest.approx(MU, rel=1e-3)


def test_values_beyond_the_range_of_floats_make_their_user_null():
    x = np.random.default_rng(0).normal(0.0, 1e-12, size=(3_000, 2))
    x[0] = 1e308  # in units it is infinite
    release = userdp.mean(x, groups=np.arange(3_000), epsilon=1.0, delta=1e-6, random_state=0)
    assert (np.abs(release.value) < 1e-11).all()
