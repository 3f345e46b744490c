"""Compiled functions forget programs once there are many."""

from pathlib import Path

import numpy as np
import pytest

from userdp import programs

MAPS = Path("/proc/self/maps")


@pytest.fixture
def doubled(monkeypatch):
    """A compiled function, and how often it was traced, if three programs are many."""
    monkeypatch.setattr(programs, "MOST_PROGRAMS", 3)
    traces = []

    @programs.compiled(0)
    def scaled(factor, x):
        traces.append(x.shape)
        return factor * x

    return scaled, traces


def test_a_program_serves_all_arguments_of_its_shape(doubled):
    scaled, traces = doubled
    for x in (np.ones(4), np.arange(4.0)):
        np.testing.assert_array_equal(scaled(2, x), 2 * x)
    assert traces == [(4,)]


def test_more_than_that_are_forgotten_and_compiled_again(doubled):
    scaled, traces = doubled
    for size in (1, 2, 3, 1, 4, 1):
        np.testing.assert_array_equal(scaled(3, np.ones(size)), np.full(size, 3.0))
    assert traces == [(1,), (2,), (3,), (1,), (4,)]


@pytest.mark.skipif(not MAPS.exists(), reason="Linux tells a process its memory maps")
def test_programs_give_their_memory_back(doubled):
    scaled, _ = doubled

    counts = []
    for size in range(1, 61):
        scaled(2, np.ones(size))
        counts.append(len(MAPS.read_text().splitlines()))
    assert max(counts[30:]) <= max(counts[:30]) + 10
