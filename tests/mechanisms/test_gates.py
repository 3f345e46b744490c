"""The gates' decisions, and exact divergences of small gated mechanisms."""

import math

import numpy as np
import pytest
from scipy.stats import norm

from userdp.errors import InvalidInputError
from userdp.mechanisms.gates import DeferredGate, GaussianGate
from userdp.mechanisms.noise import SeededNoise
from userdp.privacy.accounting import FailureEvent, GaussianEvent, delta_of


def test_deferred_gate_compares_the_smallest_index_once(scripted_noise):
    noise = scripted_noise(-30)
    gate = DeferredGate(resolution=10, scale=5.0, threshold=20, noise=noise)
    for index in (9, 5, 7):
        gate.observe(index)
    assert noise.asked == []
    assert gate.passes()  # 10 * 5 - 30 >= 20: a tie passes
    assert noise.asked == [("gaussian", 5.0)]
    with pytest.raises(InvalidInputError, match="has decided"):
        gate.passes()
    with pytest.raises(InvalidInputError, match="has decided"):
        gate.observe(9)


def test_deferred_gate_refuses_below_the_threshold(scripted_noise):
    gate = DeferredGate(resolution=10, scale=5.0, threshold=20, noise=scripted_noise(-31))
    gate.observe(5)
    assert not gate.passes()


@pytest.mark.parametrize("indices", [(5, 9, 9), (9, 5, 9), (9, 9, 5)])
def test_one_bad_round_is_enough_whichever_it_is(scripted_noise, indices):
    gate = DeferredGate(resolution=10, scale=5.0, threshold=51, noise=scripted_noise(0))
    for index in indices:
        gate.observe(index)
    assert not gate.passes()


def test_deferred_gate_needs_a_round():
    with pytest.raises(InvalidInputError, match="no round"):
        DeferredGate(1, 1.0, 0, SeededNoise(0)).passes()


def test_gaussian_gate_releases_the_index_in_lattice_units(scripted_noise):
    noise = scripted_noise(-7)
    assert GaussianGate(resolution=10, scale=5.0, noise=noise).noisy_index(4) == 33
    assert noise.asked == [("gaussian", 5.0)]


def gated_delta(epsilon, index, index_2, shift, threshold, gate_scale, mean_scale):
    """Exact delta of one Gaussian answer that leaves iff index + N(0, gate_scale^2) >= threshold."""
    p, p_2 = (norm.sf((threshold - h) / gate_scale) for h in (index, index_2))
    grid = np.linspace(-12 * mean_scale, 12 * mean_scale + shift, 400_001)
    step = grid[1] - grid[0]
    density, density_2 = norm.pdf(grid, 0, mean_scale), norm.pdf(grid, shift, mean_scale)
    passing = np.maximum(p * density - math.exp(epsilon) * p_2 * density_2, 0).sum() * step
    refusing = max((1 - p) - math.exp(epsilon) * (1 - p_2), 0)
    return passing + refusing


@pytest.mark.parametrize(("index", "index_2"), [(10, 11), (11, 10), (9, 10), (10, 9), (9, 8), (8, 9), (5, 4)])
def test_deferred_gate_with_one_answer_stays_within_its_accounting(index, index_2):
    """H = 10: where both indices are below H the answer may move arbitrarily (here: by 1000 Delta)."""
    H, delta_H, gate_scale, mean_scale, z = 10, 1.0, 4.0, 5.0, 3.0
    threshold = H - 1 + z * gate_scale
    shift = delta_H if max(index, index_2) >= H else 1000 * delta_H
    units = 1e6  # lattice units: fine enough that the discrete accounting equals the continuous one
    events = (
        GaussianEvent("mean", delta_H * units, mean_scale * units),
        GaussianEvent("gate", units, gate_scale * units),
        FailureEvent("bad", norm.sf(z)),
    )
    for epsilon in (0.1, 0.3, 0.6, 1.0):
        exact = gated_delta(epsilon, index, index_2, shift, threshold, gate_scale, mean_scale)
        assert exact <= delta_of(events, epsilon) * (1 + 1e-6) + 1e-9


def test_without_its_failure_term_the_accounting_would_be_broken():
    H, gate_scale, mean_scale, z = 10, 4.0, 50.0, 2.0
    exact = gated_delta(1.0, H - 1, H - 1, 1e5, H - 1 + z * gate_scale, gate_scale, mean_scale)
    events = (GaussianEvent("mean", 1e6, 50e6), GaussianEvent("gate", 1e6, 4e6))
    assert exact > delta_of(events, 1.0) + 0.9 * norm.sf(z)
