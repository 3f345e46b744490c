"""Statistical tests run at a false alarm rate of 1e-6 and print what they saw."""

import math
import multiprocessing

import numpy as np
import pytest
from scipy.stats import chi2, norm

from userdp.errors import InvalidInputError
from userdp.mechanisms.noise import SecureNoise, SeededNoise, noise_source

ALPHA = 1e-6
DRAWS = 20_000
SOURCES = {"secure": SecureNoise, "seeded": lambda: SeededNoise(7)}


def pmf(law, scale, k):
    weights = {
        "discrete_gaussian": lambda: np.exp(-0.5 * (k / scale) ** 2),
        "discrete_laplace": lambda: np.exp(-np.abs(k) / scale),
        "geometric": lambda: np.where(k >= 0, np.exp(-k / scale), 0.0),
    }[law]()
    return weights / weights.sum()


def follows(draws, law, scale):
    """Pearson's test of the draws against a law, over bins of expected size 20 or more."""
    k = np.arange(-int(60 * scale) - 1, int(60 * scale) + 2)
    expected = pmf(law, scale, k) * len(draws)
    observed = np.array([np.count_nonzero(draws == value) for value in k])
    edges = np.searchsorted(np.cumsum(expected), np.arange(20, len(draws) - 20, 20 + len(draws) / 100))
    edges = np.unique(np.concatenate([[0], edges]))
    e, o = np.add.reduceat(expected, edges), np.add.reduceat(observed, edges)
    keep = e > 0
    statistic = ((o[keep] - e[keep]) ** 2 / e[keep]).sum()
    print(f"chi2 = {statistic:.1f} on {keep.sum() - 1} degrees of freedom")
    return statistic < chi2.isf(ALPHA, keep.sum() - 1)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("law", ["discrete_gaussian", "discrete_laplace", "geometric"])
@pytest.mark.parametrize("scale", [0.7, 3.0, 30.0])
def test_draws_follow_their_law(source, law, scale):
    draws = getattr(SOURCES[source](), law)(scale, DRAWS)
    assert draws.dtype == np.int64
    assert draws.shape == (DRAWS,)
    assert follows(draws, law, scale)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("law", ["discrete_gaussian", "discrete_laplace", "geometric"])
@pytest.mark.parametrize("wrong", [0.95, 1.05])
def test_the_test_rejects_a_scale_five_percent_off(source, law, wrong):
    many = 4 * DRAWS if law != "discrete_gaussian" else 2 * DRAWS
    scale = 30.0
    draws = getattr(SOURCES[source](), law)(scale, many)

    def is_rejected(claimed):
        k = np.arange(-3000, 3001)
        p = pmf(law, claimed, k)
        spread, fourth = (p * np.abs(k)).sum(), (p * k.astype(float) ** 2).sum()
        z = (np.abs(draws).mean() - spread) / math.sqrt((fourth - spread**2) / many)
        print(f"claimed {claimed}: z = {z:.1f}")
        return abs(z) > norm.isf(ALPHA / 2)

    assert not is_rejected(scale)
    assert is_rejected(scale * wrong)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("scale", [1e6, 2.0**40])
def test_wide_gaussians_have_the_right_spread(source, scale):
    draws = SOURCES[source]().discrete_gaussian(scale, DRAWS) / scale
    z = (np.var(draws) - 1) / math.sqrt(2 / DRAWS)
    print(f"z = {z:.1f}")
    assert abs(z) < norm.isf(ALPHA / 2)


def test_a_seed_repeats_and_entropy_does_not():
    first, second = (SeededNoise(3).discrete_gaussian(1e6, 10) for _ in range(2))
    assert first.tolist() == second.tolist()
    first, second = (SecureNoise().discrete_gaussian(1e6, 10) for _ in range(2))
    assert first.tolist() != second.tolist()
    assert SecureNoise().generator().random() != SecureNoise().generator().random()


def _draw_in_child(queue):
    queue.put((SecureNoise().discrete_gaussian(1e9, 4).tolist(), SecureNoise().generator().random()))


@pytest.mark.filterwarnings("ignore:os.fork", "ignore:This process")
def test_noise_is_fresh_after_a_fork():
    SecureNoise().discrete_gaussian(1e9, 4)
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    seen = []
    for _ in range(3):
        child = context.Process(target=_draw_in_child, args=(queue,))
        child.start()
        seen.append(queue.get())
        child.join()
    assert len({str(draws) for draws, _ in seen}) == 3
    assert len({coin for _, coin in seen}) == 3


@pytest.mark.parametrize("scale", [0.0, -1.0, math.nan, math.inf])
@pytest.mark.parametrize("source", SOURCES)
def test_a_scale_must_be_positive(source, scale):
    for law in ("discrete_gaussian", "discrete_laplace", "geometric"):
        with pytest.raises(InvalidInputError, match="noise scale"):
            getattr(SOURCES[source](), law)(scale, 1)


def test_random_state():
    assert not noise_source(None).seeded
    assert noise_source(np.int64(3)).seeded
    assert noise_source(np.random.default_rng(0)).seeded
    source = SeededNoise(0)
    assert noise_source(source) is source
    with pytest.raises(InvalidInputError, match="random_state"):
        noise_source("today")
    for seed in (-1, np.int64(-1), [0, -1], "today"):
        with pytest.raises(InvalidInputError, match="at least 0"):
            SeededNoise(seed)
    with pytest.raises(InvalidInputError, match="at least 0, got -1"):
        noise_source(-1)


@pytest.mark.parametrize("source", SOURCES)
def test_permutations_are_uniform(source):
    noise = SOURCES[source]()
    seen = np.array([noise.permutation(3) for _ in range(3_000)])
    codes = seen @ [9, 3, 1]
    counts = np.unique(codes, return_counts=True)[1]
    assert len(counts) == 6
    assert ((counts - 500) ** 2 / 500).sum() < chi2.isf(ALPHA, 5)


def test_no_draws():
    assert SecureNoise().discrete_gaussian(1.0, 0).size == 0
