"""Rounds of a compiled loop against the sessions that answer the same queries with the same draws."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from userdp.errors import InvalidInputError, NotConcentratedError
from userdp.means import AdaptiveClippedMean, ClippedMean, ConcentratedMean
from userdp.means.loops import in_loop
from userdp.mechanisms.noise import SeededNoise
from userdp.privacy import Budget

BUDGET = Budget(4.0, 1e-6)
N, D, T = 301, 3, 4


class SeparateNoise:
    """One seeded stream per law: a loop draws ahead what a session draws in turns."""

    seeded = True

    def __init__(self, seed):
        self.sources = {law: SeededNoise(seed + i) for i, law in enumerate(("gaussian", "laplace", "other"))}

    def discrete_gaussian(self, scale, size):
        return self.sources["gaussian"].discrete_gaussian(scale, size)

    def discrete_laplace(self, scale, size):
        # One at a time: the sampler of a batch interleaves two streams.
        return np.concatenate([self.sources["laplace"].discrete_laplace(scale, 1) for _ in range(size)])

    def geometric(self, scale, size):
        return self.sources["other"].geometric(scale, size)

    def permutation(self, n):
        return np.arange(n)

    def generator(self):
        return np.random.default_rng(0)


@partial(jax.jit, static_argnums=0)
def run(private, queries, draws):
    steps = (queries, draws)
    return jax.lax.scan(
        lambda state, step: private.compiled.answer(state, private.compiled.exact(step[0]), step[1]),
        private.initial_state(),
        steps,
    )


def looped(mean, queries, noise):
    """Answers of the compiled loop and its final state."""
    private = in_loop(mean)
    with jax.enable_x64(True):
        state, answers = run(private, jnp.asarray(queries), private.draw(noise))
        return private, np.asarray(answers), state


def queries_on_a_lattice(step, spread=0.05, seed=0):
    """Half-way cases, nulls, an infinite value, outliers near, far and beyond the lattice's range."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(T, N, D)) * spread + 50.0
    x[0] = (np.rint(x[0] / step) + 0.5) * step
    x[1] = np.rint(x[1] / step) * step
    x[:, 3], x[:, 4, 1] = np.nan, np.inf
    x[2, 5], x[2, 6], x[3, 7] = 52.0, 1e9, 1e300
    return x


@pytest.mark.parametrize("radius", [0.7, np.pi])
def test_certified_rounds_equal_the_session_bit_for_bit(radius):
    mean = ConcentratedMean(radius, gate="deferred", agreement=0.97).calibrate(N, D, BUDGET, T)
    queries = queries_on_a_lattice(mean.lattice.step)
    loop, answers, state = looped(mean, queries, SeededNoise(1))
    session = mean.start(SeededNoise(1))
    expected = np.array([session.answer(x) for x in queries])
    assert answers.tobytes() == expected.tobytes()
    assert int(state) == session._gate._smallest
    noise = SeededNoise(2)
    assert loop.close(state, noise) == (False, session.finish())


def test_certified_rounds_take_float32_vectors_as_they_are():
    mean = ConcentratedMean(0.7, gate="deferred").calibrate(N, D, BUDGET, T)
    with np.errstate(over="ignore"):
        queries = queries_on_a_lattice(mean.lattice.step).astype(np.float32)
    _, answers, _ = looped(mean, queries, SeededNoise(1))
    session = mean.start(SeededNoise(1))
    assert answers.tobytes() == np.array([session.answer(x.astype(float)) for x in queries]).tobytes()


@pytest.mark.parametrize("radius", [0.7, np.pi])
def test_clipped_rounds_equal_the_session_bit_for_bit(radius):
    mean = ClippedMean(radius, centre=[50.0, 50.0, 50.1]).calibrate(N, D, BUDGET, T)
    queries = queries_on_a_lattice(mean.lattice.step)
    loop, answers, state = looped(mean, queries, SeededNoise(1))
    session = mean.start(SeededNoise(1))
    assert answers.tobytes() == np.array([session.answer(x) for x in queries]).tobytes()
    assert loop.close(state, SeededNoise(0)) == (False, session.finish())


@pytest.mark.parametrize("scattered_from", [None, 2])
def test_paper_rounds_decide_and_answer_as_the_session(scattered_from):
    """Nobody is on the ramp, so that no coin matters."""
    mean = ConcentratedMean(1.0, calibration="paper").calibrate(N, D, Budget(9.0, 1e-6), T)
    queries = queries_on_a_lattice(2**-12)
    queries[3, 7] = np.nan
    if scattered_from is not None:
        queries[scattered_from] = np.arange(N * D).reshape(N, D)
    loop, answers, state = looped(mean, queries, SeparateNoise(1))
    session = mean.start(SeparateNoise(1))
    expected = np.array([session.answer(x) for x in queries])
    np.testing.assert_allclose(answers, expected, rtol=1e-12, atol=1e-12)
    assert loop.close(state, SeededNoise(0)) == (session.halted, session.finish())
    assert session.halted == (scattered_from is not None)
    if scattered_from is not None:
        assert (answers[scattered_from:] == 0).all()


def test_paper_rounds_keep_users_on_the_ramp_as_often_as_it_says():
    """30 of 300 users have 165 friends at 2 tau: kept with probability (165 - 150)/50."""
    n, rounds = 300, 40
    mean = ConcentratedMean(30.0, calibration="paper").calibrate(n, 1, Budget(9.0, 1e-3), rounds)
    x = np.repeat([0.0, 25.0, 70.0], [135, 135, 30])[:, None]
    noise = SeparateNoise(3)
    noise.discrete_gaussian = lambda scale, size: np.zeros(size, np.int64)
    _, answers, halted = looped(mean, np.broadcast_to(x, (rounds, n, 1)), noise)
    assert not halted
    expected = (135 * 25 + 0.3 * 30 * 70) / (270 + 0.3 * 30)
    assert abs(answers.mean() - expected) < 0.5
    assert answers.std() > 0.1  # fresh coins in every round


def test_scattered_data_is_refused_and_one_bad_round_is_enough():
    mean = ConcentratedMean(1.0, gate="deferred").calibrate(N, D, BUDGET, T)
    good = np.random.default_rng(0).normal(size=(T, N, D)) * 0.1
    for bad_round in range(T):
        queries = good.copy()
        queries[bad_round, :60] += np.arange(60)[:, None] * 10
        loop, _, state = looped(mean, queries, SeededNoise(0))
        with pytest.raises(NotConcentratedError) as error:
            loop.close(state, SeededNoise(0))
        assert not any(character.isdigit() for character in str(error.value))
    loop, _, state = looped(mean, good, SeededNoise(0))
    assert loop.close(state, SeededNoise(0))[0] is False


def test_answers_below_the_index_are_not_zeroed(silent_noise):
    """At h = H - 1 on one side and H on the other, a zeroed answer would be an unbounded shift."""
    mean = ConcentratedMean(1.0, gate="deferred").calibrate(N, D, BUDGET, 1)
    x = np.full((1, N, D), 7.0)
    x[0, : N - mean.setting.index + 1] = np.nan
    _, answers, state = looped(mean, x, silent_noise)
    assert int(state) == mean.setting.index - 1
    assert answers[0] == pytest.approx([7.0] * D, abs=1e-3)


def test_nobody_has_weight(silent_noise):
    mean = ConcentratedMean(1.0, gate="deferred").calibrate(N, D, BUDGET, 1)
    for x in (np.full((1, N, D), np.nan), 100.0 * np.arange(N * D).reshape(1, N, D)):
        _, answers, state = looped(mean, x, silent_noise)
        assert answers.tolist() == [[0.0] * D]
        assert int(state) <= 1


@pytest.mark.parametrize("mean", [ConcentratedMean(1.0, gate="deferred"), ClippedMean(1.0)])
@pytest.mark.parametrize("shape", [(T, N + 1, D), (T, N, D + 1)])
def test_vectors_of_another_shape_are_refused(mean, shape):
    with pytest.raises(InvalidInputError, match="calibrated for vectors of shape"):
        looped(mean.calibrate(N, D, BUDGET, T), np.zeros(shape), SeededNoise(0))


class NoiseByScale:
    """One seeded stream per scale: a loop draws answers and counts apart, a session in turns."""

    seeded = True

    def __init__(self):
        self.sources = {}

    def discrete_gaussian(self, scale, size):
        return self.sources.setdefault(scale, SeededNoise(int(scale))).discrete_gaussian(scale, size)


@pytest.mark.parametrize(("warmup", "rounds"), [(0, T), (5, T), (0, 1), (3, 1)])
def test_adaptive_clipped_rounds_follow_the_session(warmup, rounds):
    """Up to the last bits of the radius, whose exponential two libraries round in their own ways."""
    estimator = AdaptiveClippedMean(3.0, warmup=warmup, learning_rate=0.7, centre=[50.0, 50.0, 50.1])
    mean = estimator.calibrate(N, D, BUDGET, rounds)
    queries = queries_on_a_lattice(2**-10, spread=0.3)[:rounds]
    loop, answers, state = looped(mean, queries, NoiseByScale())
    session = mean.start(NoiseByScale())
    expected = np.array([session.answer(x) for x in queries])
    np.testing.assert_allclose(answers, expected, rtol=1e-7)
    assert float(state[1]) == pytest.approx(session.radius, rel=1e-12)
    assert (session.radius != 3.0) == (warmup + rounds > 1)
    assert loop.close(state, SeededNoise(0)) == (False, session.finish())


def test_means_whose_answers_leave_one_by_one_have_no_loop():
    for gate in ("one-sided", "gaussian"):
        assert in_loop(ConcentratedMean(1.0, gate=gate).calibrate(2_000, D, BUDGET, T)) is None


def test_the_paper_s_threshold_noise_is_drawn_once(scripted_noise):
    """One draw serves all rounds; each round's query has its own."""
    mean = ConcentratedMean(1.0, calibration="paper").calibrate(N, D, Budget(9.0, 1e-2), T)
    noise = scripted_noise(7, *range(T), *[0] * (T * D))
    draws = in_loop(mean).draw(noise)
    assert len(set(draws["threshold"].tolist())) == 1
    assert draws["query"].tolist() == list(range(T))
    assert [law for law, _ in noise.asked] == ["laplace", "laplace", "gaussian"]
    assert noise.draws == []
    epsilon = 9.0 / 2
    assert [scale for _, scale in noise.asked[:2]] == pytest.approx([2 * N / epsilon, 4 * N / epsilon])
