"""The paper's settings, written out a second time."""

from math import ceil, e, log, sqrt

import pytest

from userdp.errors import InvalidInputError, TooFewUsersError
from userdp.planning import rates

SIZES = [(150, 2, 5, 9.0, 1e-6), (1_000, 100, 10, 1.0, 1e-6), (10_000, 3, 10_000, 0.1, 1e-9)]


@pytest.mark.parametrize(("n", "m", "d", "eps", "delta"), SIZES)
@pytest.mark.parametrize(("G", "R"), [(1.0, 1.0), (3.0, 0.25)])
def test_the_convex_setting(n, m, d, eps, delta, G, R):
    s = rates.convex(n, m, d, eps, delta, lipschitz=G, distance=R)
    T = ceil(m**2 * n**2 + m * n * sqrt(d))
    assert s.rounds == T
    assert s.radius == pytest.approx(G * log(n * d * m * e**eps * T / delta) / sqrt(m))
    assert s.smoothing_radius == pytest.approx(d**0.25 * R / sqrt(T))
    steps = sqrt(m) * n * eps / (T * sqrt(d) * log(m * n * d / delta)), T**-0.75, sqrt(n * m) / T
    assert s.step_size == pytest.approx(R / G * min(steps))
    assert s.mean_delta == pytest.approx(delta / (2 * T * m * n * d))


def test_each_of_the_three_steps_can_be_the_smallest():
    def terms(n, m, d, eps):
        s = rates.convex(n, m, d, eps, 1e-6, rounds=(T := 10_000))
        candidates = [sqrt(m) * n * eps / (T * sqrt(d) * log(m * n * d / 1e-6)), T**-0.75, sqrt(n * m) / T]
        return candidates.index(min(candidates)), s.step_size == pytest.approx(min(candidates))

    assert [terms(10, 1, 100, 0.1), terms(10**6, 100, 1, 9.0), terms(100, 10**2, 1, 9.0 * 10**3)] == [
        (0, True),
        (1, True),
        (1, True),
    ]
    assert terms(2, 1, 1, 9.0 * 10**3) == (2, True)


def test_constants_are_exposed():
    one, ten = (rates.convex(100, 2, 5, 1.0, 1e-6, rounds_constant=c).rounds for c in (1.0, 10.0))
    assert ten == pytest.approx(10 * one, rel=1e-3)
    fixed = rates.convex(100, 2, 5, 1.0, 1e-6, rounds=50)
    assert fixed.rounds == 50
    assert fixed.smoothing_radius == pytest.approx(5**0.25 / sqrt(50))


@pytest.mark.parametrize(("n", "m", "d", "eps", "delta"), SIZES)
@pytest.mark.parametrize(("G", "mu", "C"), [(1.0, 1.0, 1.0), (2.0, 0.5, 3.0)])
def test_the_strongly_convex_setting(n, m, d, eps, delta, G, mu, C):
    phases = rates.strongly_convex(n, m, d, eps, delta, lipschitz=G, strong_convexity=mu, risk_constant=C)
    k = ceil(log(log(m * n)))
    assert [phase.n_users for phase in phases] == [int(n / 2 ** (k + 1 - i)) for i in range(1, k + 1)]

    def E(users):
        return (
            4
            * C**2
            * G**2
            / mu
            * (1 / (users * m) + d * log(users * d * m / delta) ** 2 / (users**2 * eps**2 * m))
        )

    n_0 = phases[0].n_users / 2
    D = 2 * G**2 / mu
    assert phases[0].distance == pytest.approx(2 * G / mu)
    for i, phase in enumerate(phases, start=1):
        assert phase.distance == pytest.approx(sqrt(2 * D / mu))
        assert phase.setting == rates.convex(
            phase.n_users, m, d, eps, delta, lipschitz=G, distance=phase.distance
        )
        D = 16 * E(phase.n_users) * (2 * G**2 / (16 * mu * E(n_0))) ** (1 / 2**i)


def test_rates():
    assert rates.convex_rate(100, 4, 9, 0.5, lipschitz=2, distance=3) == pytest.approx(
        6 * (1 / 20 + 3 / (100 * 2 * 0.5))
    )
    assert rates.strongly_convex_rate(100, 4, 9, 0.5, lipschitz=2, strong_convexity=8) == pytest.approx(
        0.5 * (1 / 400 + 9 / (100**2 * 4 * 0.25))
    )


def test_too_little_to_split():
    with pytest.raises(TooFewUsersError, match="at least 4"):
        rates.phase_sizes(3, 100)
    for bad in ((0, 1, 1), (1, 0, 1), (1, 1, 0)):
        with pytest.raises(InvalidInputError, match="at least 1"):
            rates.convex(*bad, 1.0, 1e-6)
