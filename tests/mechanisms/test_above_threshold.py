"""Exact output probabilities of both AboveThresholds on small integer cases."""

import itertools
import math

import numpy as np
import pytest

from userdp.errors import InvalidInputError
from userdp.mechanisms.above_threshold import AboveThreshold, OneSidedAboveThreshold, paper_error
from userdp.mechanisms.noise import SeededNoise

REACH = 600
K = np.arange(-REACH, REACH + 1)
DEPTHS = (-4, -2, -1, 0, 1, 2, 4)


def laplace(scale):
    p = np.exp(-np.abs(K) / scale)
    return p / p.sum()


def geometric(scale):
    p = np.where(K >= 0, np.exp(-np.maximum(K, 0) / scale), 0.0)
    return p / p.sum()


def outcome_probabilities(queries, threshold_noise, query_noise):
    """Pr[halt at the first, second, ... query] and Pr[never]; query t passes iff q_t + nu >= -rho."""
    tail = np.cumsum(query_noise[::-1])[::-1]  # Pr[nu >= K]
    still = threshold_noise.copy()  # indexed by rho
    halting = []
    for q in queries:
        needed = np.clip(-K - q, -REACH, REACH)  # nu >= -rho - q
        passes = np.where(-K - q > REACH, 0.0, tail[needed + REACH])
        halting.append((still * (1 - passes)).sum())
        still = still * passes
    return np.array([*halting, still.sum()])


def worst_ratio(threshold_noise, query_noise, sensitivity=1):
    """Largest log ratio of any outcome over neighbouring triples of queries."""
    worst = 0.0
    moves = (-sensitivity, 0, sensitivity)
    for queries in itertools.product(DEPTHS, repeat=3):
        p = outcome_probabilities(queries, threshold_noise, query_noise)
        for move in itertools.product(moves, repeat=3):
            q = outcome_probabilities(np.add(queries, move), threshold_noise, query_noise)
            worst = max(worst, np.abs(np.log(p) - np.log(q)).max())
    return worst


def paper_noise(epsilon, sensitivity=1):
    return laplace(2 * sensitivity / epsilon), laplace(4 * sensitivity / epsilon)


def one_sided_noise(threshold_epsilon, query_epsilon):
    # "q - G_t >= -G_0" is "q + nu >= -rho" with nu = -G_t and rho = G_0.
    return geometric(1 / threshold_epsilon), geometric(2 / query_epsilon)[::-1]


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0])
def test_the_paper_s_above_threshold_keeps_its_promise_at_its_true_sensitivity(epsilon):
    assert worst_ratio(*paper_noise(epsilon)) <= epsilon * (1 + 1e-9)
    assert worst_ratio(*paper_noise(epsilon, sensitivity=2), sensitivity=2) <= epsilon * (1 + 1e-9)


def test_a_score_of_sensitivity_two_breaks_noise_for_sensitivity_one():
    assert worst_ratio(*paper_noise(1.0, sensitivity=1), sensitivity=2) > 1.2


@pytest.mark.parametrize(("a", "b"), [(0.5, 0.5), (0.3, 0.9), (1.0, 0.4)])
def test_one_sided_promise_is_kept_and_attained(a, b):
    worst = worst_ratio(*one_sided_noise(a, b))
    assert worst <= (a + b) * (1 + 1e-9)
    assert worst > 0.9 * (a + b)  # so that cutting the promise by a tenth would fail


def test_redrawing_the_threshold_noise_is_not_what_is_proven():
    """The class must draw its threshold once: fresh noise per round adds up over rounds."""
    p, q = (outcome_probabilities([x], *paper_noise(1.0))[-1] for x in (0, 1))
    assert 20 * math.log(q / p) > 1.0


@pytest.mark.parametrize("query", [-2, 0, 3])
@pytest.mark.parametrize(("rho", "nu"), [(0, 0), (2, -1), (-3, 3), (5, -8)])
def test_the_class_computes_what_the_probabilities_assume(scripted_noise, query, rho, nu):
    noise = scripted_noise(rho, nu)
    gate = AboveThreshold(epsilon=0.5, threshold=7, noise=noise, sensitivity=3)
    assert gate.is_above(7 + query) == (query + nu >= -rho)
    assert [law for law, _ in noise.asked] == ["laplace", "laplace"]
    assert [scale for _, scale in noise.asked] == pytest.approx([2 * 3 / 0.5, 4 * 3 / 0.5], rel=1e-12)

    noise = scripted_noise(abs(rho), abs(nu))
    one_sided = OneSidedAboveThreshold(0.5, 0.25, threshold=7, noise=noise)
    assert one_sided.is_above(7 + query) == (query - abs(nu) >= -abs(rho))
    assert [law for law, _ in noise.asked] == ["geometric", "geometric"]
    assert [scale for _, scale in noise.asked] == pytest.approx([1 / 0.5, 2 / 0.25], rel=1e-12)


def test_noise_scales_never_round_down(scripted_noise):
    for epsilon in np.random.default_rng(0).uniform(0.01, 5, 200):
        noise = scripted_noise(0, 0)
        AboveThreshold(epsilon, threshold=0, noise=noise).is_above(0)
        assert noise.asked[0][1] * epsilon >= 2
        assert noise.asked[1][1] * epsilon >= 4


def test_threshold_noise_is_drawn_once(scripted_noise):
    noise = scripted_noise(0, 0, 0, 0)
    gate = AboveThreshold(1.0, threshold=0, noise=noise)
    assert all(gate.is_above(5) for _ in range(3))
    assert noise.draws == []


@pytest.mark.parametrize(
    "make",
    [
        lambda: AboveThreshold(1.0, 0, SeededNoise(0)),
        lambda: OneSidedAboveThreshold(1.0, 1.0, 0, SeededNoise(0)),
    ],
)
def test_nothing_is_answered_after_halting(make):
    gate = make()
    assert not gate.is_above(-10_000)
    assert gate.halted
    with pytest.raises(InvalidInputError, match="has halted"):
        gate.is_above(10_000)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan])
def test_bad_arguments(bad):
    with pytest.raises(InvalidInputError, match="epsilon"):
        AboveThreshold(bad, 0, SeededNoise(0))
    with pytest.raises(InvalidInputError, match="epsilon"):
        OneSidedAboveThreshold(1.0, bad, 0, SeededNoise(0))
    with pytest.raises(InvalidInputError, match="sensitivity"):
        AboveThreshold(1.0, 0, SeededNoise(0), sensitivity=0)
    with pytest.raises(TypeError):
        AboveThreshold(1.0, 0, SeededNoise(0), sensitivity=1.5)
    with pytest.raises(TypeError):
        AboveThreshold(1.0, 0, SeededNoise(0)).is_above(0.5)


def test_accuracy_of_algorithm_1():
    """All passed queries are at least threshold - alpha, a halting one at most threshold + alpha."""
    rounds, epsilon, gamma = 20, 1.0, 0.1
    alpha = paper_error(rounds, epsilon, gamma)
    wrong = 0
    for seed in range(400):
        gate = AboveThreshold(epsilon, threshold=0, noise=SeededNoise(seed))
        for t in range(rounds):
            query = math.ceil(alpha) + 1 if t % 2 else math.floor(alpha)
            if not gate.is_above(query):
                wrong += query > alpha
                break
    assert wrong <= gamma * 400
