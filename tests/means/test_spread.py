import numpy as np
import pytest

from userdp.means.spread import ALL_BINS, BINS_PER_OCTAVE, CERTAIN, distance_law, histogram_event
from userdp.mechanisms.noise import SeededNoise

QUIET = histogram_event("radius", 1.0, len(ALL_BINS))


@pytest.mark.parametrize("other", [0.0, 1e-300, 3.0, 2.0**64, 1e300, np.inf, np.nan])
def test_one_distance_moves_the_histogram_by_what_its_event_says(other):
    """In L2, at most the event's sensitivity; reached when both distances vote, and for different bins."""
    x = np.abs(np.random.default_rng(0).normal(size=50))
    y = x.copy()
    y[7] = other
    moved = np.sqrt(((integers_of(x) - integers_of(y)).astype(float) ** 2).sum())
    assert moved <= QUIET.sensitivity
    if np.isfinite(other) and other <= 2.0**64:
        assert moved == pytest.approx(QUIET.sensitivity)


@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize("other", [0.0, 1e-300, 5e-9, 3.0, 1e300, np.inf, np.nan])
@pytest.mark.parametrize("finest", [0.0, 1e-8, 4.0, np.inf, np.nan])
def test_one_distance_and_its_finest_move_the_counts_by_the_sensitivity(place, other, finest):
    x, fine = np.array([0.1, 0.0, np.nan, 1e-9]), np.full(4, 1e-8)
    y, finer = x.copy(), fine.copy()
    y[place], finer[place] = other, finest
    difference = (integers_of(x, fine) - integers_of(y, finer)).astype(float)
    assert np.sqrt((difference**2).sum()) <= QUIET.sensitivity


def integers_of(distances, finest=None):
    """Return the integers that the noise is added to."""

    class Adds:
        def __init__(self):
            self.seen = None

        def __radd__(self, counts):
            self.seen = counts
            return counts

        __array_ufunc__ = None

    adds = Adds()

    class Source(SeededNoise):
        def discrete_gaussian(self, scale, size):
            return adds

    distance_law(distances, QUIET, Source(0), finest=finest)
    return adds.seen


@pytest.mark.parametrize("d", [1, 4, 100])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e9])
def test_the_law_is_found_at_every_scale(d, scale):
    distances = scale * np.linalg.norm(np.random.default_rng(0).normal(size=(5_000, d)), axis=1)
    law = distance_law(distances, histogram_event("radius", 0.02, len(ALL_BINS)), SeededNoise(1))
    assert law.certainty > CERTAIN
    assert law.shares.sum() == pytest.approx(1)
    assert law.quantile(0.5) == pytest.approx(np.median(distances), rel=0.15)
    within = law.share_within(law.quantile(0.5) * np.array([0.1, 1.0, 10.0]))
    assert within == pytest.approx([np.mean(distances < 0.1 * np.median(distances)), 0.5, 1.0], abs=0.1)
    assert law.times(2.0).quantile(0.5) == pytest.approx(2 * law.quantile(0.5))


@pytest.mark.parametrize("finest", [None, np.full(10, np.nan)])
def test_noise_alone_does_not_stand_out(finest):
    certain = [
        distance_law(np.full(10, np.nan), QUIET, SeededNoise(seed), finest=finest).certainty >= CERTAIN
        for seed in range(200)
    ]
    assert np.mean(certain) < 0.05


def test_mean_excess_is_that_of_the_tail():
    distances = np.abs(np.random.default_rng(0).standard_t(3, size=20_000))
    law = distance_law(distances, QUIET, SeededNoise(0))
    radii = np.quantile(distances, [0.5, 0.9])
    exact = np.maximum(distances - radii[:, None], 0).mean(axis=1)
    assert law.mean_excess(radii) == pytest.approx(exact, rel=0.2)


def test_mean_excess_inside_a_bin_is_that_of_distances_spread_over_it():
    law = distance_law(np.full(10_000, 1.0), QUIET, SeededNoise(0), number=10_000)
    start = 2 ** (-1 / BINS_PER_OCTAVE)
    radii = np.array([start / 2, start, (1 + start) / 2, 1.0])
    expected = [(1 + start) / 2 - start / 2, (1 - start) / 2, (1 - start) / 8, 0.0]
    assert law.mean_excess(radii) == pytest.approx(expected, abs=2e-3)


def test_a_minority_that_no_shape_expects_is_believed_if_it_stands_out():
    """Nine in ten close by and one in ten a hundred times as far: far more than any tail has there."""
    distances = np.append(np.full(9_000, 0.01), np.full(1_000, 1.0))
    law = distance_law(distances, histogram_event("clip radius", 0.05, 19), SeededNoise(0), ALL_BINS[110:140])
    assert 1 - law.share_within(np.array([0.5]))[0] == pytest.approx(0.1, abs=0.02)


def test_what_no_bin_counts_is_zero_where_the_number_is_known():
    distances = np.append(np.zeros(900), np.full(300, 5.0))
    law = distance_law(distances, QUIET, SeededNoise(0), number=1_200)
    assert law.shares.sum() == pytest.approx(0.25, abs=0.02)


def test_zeros_count_only_where_nothing_else_stands_out():
    mixed = np.append(np.zeros(900), np.full(300, 5.0))
    assert distance_law(mixed, QUIET, SeededNoise(0)).quantile(0.5) == pytest.approx(5.0, rel=0.3)
    lowest = 2.0 ** (ALL_BINS[0] / BINS_PER_OCTAVE)
    assert distance_law(np.zeros(900), QUIET, SeededNoise(0)).quantile(0.5) < 4 * lowest
