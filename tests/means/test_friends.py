import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from userdp.errors import InvalidInputError
from userdp.means import friends
from userdp.means.friends import concentration_index, friend_counts, ramp_weights, weighted_mean


def plain_counts(vectors, radius):
    """The double loop over all pairs."""
    x = np.asarray(vectors, dtype=float)
    with np.errstate(all="ignore"):
        return [
            sum(bool(np.sqrt(((a - b) ** 2).sum()) <= radius) for b in x if np.isfinite(b).all())
            if np.isfinite(a).all()
            else 0
            for a in x
        ]


coordinates = st.one_of(
    st.integers(-6, 6).map(float),
    st.sampled_from([0.1, 0.2, 0.3, -0.1, math.nan, math.inf, 0.0, -0.0]),
    st.floats(-10, 10),
)
tables = hnp.arrays(float, st.tuples(st.integers(0, 12), st.integers(1, 4)), elements=coordinates)
radii = st.one_of(
    st.integers(0, 8).map(float), st.sampled_from([0.1, 0.3, math.sqrt(2), math.sqrt(3)]), st.floats(0, 20)
)


@given(tables, radii)
@settings(max_examples=500)
def test_counts_equal_the_double_loop(vectors, radius):
    assert friend_counts(vectors, radius).tolist() == plain_counts(vectors, radius)


wild = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False), st.sampled_from([1e200, -1e200, 5e-324, 1e-170, 1e154])
)


@given(
    hnp.arrays(float, st.tuples(st.integers(1, 6), st.integers(1, 3)), elements=wild),
    st.one_of(st.floats(0, 1e308), st.sampled_from([1e-200, 1e-150, 1e200, 5e-324])),
)
def test_counts_equal_the_double_loop_on_extreme_values(vectors, radius):
    assert friend_counts(vectors, radius).tolist() == plain_counts(vectors, radius)


@pytest.mark.parametrize("block", [1, 3, 7])
@pytest.mark.parametrize("spread", [0.2, 0.5, 1.0, 3.0])
@pytest.mark.parametrize("kind", ["float", "lattice", "shifted"])
def test_every_block_path_agrees(monkeypatch, block, spread, kind):
    monkeypatch.setattr(friends._blocks, "__defaults__", (0, block))
    rng = np.random.default_rng(block)
    x = rng.normal(size=(40, 3)) * spread
    x[::9] *= 5
    x[3] = x[4]
    x[7] = np.nan
    radius = 1.0
    if kind == "lattice":
        x, radius = np.rint(x * 8), 8.0
    elif kind == "shifted":
        x = x + 1e9
    assert friend_counts(x, radius).tolist() == plain_counts(x, radius)


def test_exact_integer_ties_far_from_the_origin():
    base = np.array([[0.0, 0.0], [3.0, 4.0], [-3.0, -4.0], [0.0, 5.0], [5.0, 1.0]])
    for shift in (0.0, 2.0**40, -(2.0**51)):
        assert friend_counts(base + shift, 5.0).tolist() == [4, 4, 2, 3, 2]


def test_an_almost_integer_table_is_not_taken_for_a_lattice():
    x = np.array([[0.3], [1.3], [2.3]])  # 1.3 - 0.3 == 1.0 but 2.3 - 1.3 < 1.0
    for radius in (1.0, np.nextafter(1.0, 0.0), 2.3 - 1.3):
        assert friend_counts(x, radius).tolist() == plain_counts(x, radius)


def test_settled_data_computes_no_pairs(monkeypatch):
    monkeypatch.setattr(friends._BlockComparison, "friends", lambda *_: pytest.fail("a pair was computed"))
    x = np.random.default_rng(0).normal(size=(3000, 5))
    x *= 0.49 / np.linalg.norm(x, axis=1).max()
    assert (friend_counts(x, 1.0) == 3000).all()


def test_order_does_not_matter():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2500, 4))
    order = rng.permutation(2500)
    assert (friend_counts(x[order], 2.0) == friend_counts(x, 2.0)[order]).all()


@given(st.lists(st.integers(0, 12), max_size=12))
def test_concentration_index_is_the_h_index(counts):
    counts = np.array(counts, dtype=np.int64)
    expected = max(k for k in range(len(counts) + 1) if (counts >= k).sum() >= k)
    assert concentration_index(counts) == expected


def test_ramp():
    counts = np.arange(11)
    expected = [min(max((f - 4) / 3, 0), 1) for f in counts]
    assert ramp_weights(counts, lo=4, hi=7) == pytest.approx(expected)
    with pytest.raises(InvalidInputError, match="hi > lo"):
        ramp_weights(counts, lo=4, hi=4)


def test_weighted_mean_never_touches_a_row_of_weight_zero():
    x = np.array([[1.0, 2.0], [np.nan, np.inf], [3.0, 6.0]])
    assert weighted_mean(x, [1.0, 0.0, 3.0]).tolist() == [2.5, 5.0]
    assert weighted_mean(x, [0.0, 0.0, 0.0]).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("radius", [-1.0, math.nan, math.inf])
def test_bad_radius(radius):
    with pytest.raises(InvalidInputError, match="radius"):
        friend_counts(np.zeros((3, 1)), radius)


def test_bad_shape():
    with pytest.raises(InvalidInputError, match="shape"):
        friend_counts(np.zeros(3), 1.0)
