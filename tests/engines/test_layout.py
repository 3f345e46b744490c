import warnings

import jax
import numpy as np
import pytest

from userdp.data import Users
from userdp.engines import fused, layout, local, quantized
from userdp.engines.layout import LANES, SMALL, Packed, blocks, packed, small_side_by_side, widths, zeros
from userdp.errors import InvalidInputError
from userdp.problems import Logistic, Multinomial


def ragged(items, d=3, seed=0, targets=True):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(sum(items), d))
    y = rng.integers(0, 2, size=len(rows)) if targets else None
    return Users.from_rows(rows, np.repeat(np.arange(len(items)), items), y)


def test_widths_grow_by_at_most_an_eighth():
    grid = widths(100_000)
    assert grid[0] == 1
    assert grid[-1] >= 100_000
    # The smallest number of items that needs a width is one more than the width before.
    assert (grid[1:] / (grid[:-1] + 1)).max() <= 1.125


@pytest.mark.parametrize("law", ["equal", "uniform", "heavy tails", "powers"])
@pytest.mark.parametrize("lay_out", [packed, small_side_by_side, blocks])
def test_memory_stays_within_one_and_a_half_times_the_data(law, lay_out):
    rng = np.random.default_rng(0)
    items = {
        "equal": np.full(300, 33),
        "uniform": rng.integers(1, 60, size=300),
        "heavy tails": np.ceil(rng.pareto(1.1, size=300)).astype(int).clip(1, 5_000),
        "powers": 2 ** rng.integers(0, 9, size=300) + 1,
    }[law]
    users = ragged(items, d=20)
    laid_out = sum(some.features.nbytes for some in lay_out(users))
    assert laid_out <= 1.5 * users.rows.astype(np.float32).nbytes


def test_every_item_is_there_once_and_padding_weighs_nothing():
    items = [1, 4, 9, 9, 2, 30, 1]
    users = ragged(items)
    seen = []
    for block in blocks(users, dtype=np.float64):
        assert int(block.count) == block.n_users
        assert (block.features[block.weights == 0] == 0).all()
        for place in range(block.n_users):
            j = block.positions[place]
            own = slice(users.offsets[j], users.offsets[j + 1])
            here = slice(place * block.width, place * block.width + items[j])
            assert np.array_equal(block.features[here], users.rows[own])
            assert np.array_equal(block.targets[here], users.targets[own])
            assert block.weights[here] == pytest.approx([1 / items[j]] * items[j])
            assert block.usable[place]
            seen.append(int(j))
        assert block.weights.sum() == pytest.approx(block.n_users)
    assert sorted(seen) == list(range(len(items)))


def test_users_with_few_items_or_bad_values_are_null_and_hold_nothing():
    users = ragged([1, 4, 4, 4])
    users.rows[2, 0], users.targets[6] = np.inf, np.nan
    laid_out = blocks(users, min_items=2)
    usable = {int(j): bool(ok) for b in laid_out for j, ok in zip(b.positions, b.usable, strict=True) if ok}
    assert usable == {3: True}
    for block in laid_out:
        null = np.repeat(~block.usable[: block.n_users], block.width)
        assert (block.features[: len(null)][null] == 0).all()
        assert (block.weights[: len(null)][null] == 0).all()


def test_small_users_lie_side_by_side_each_in_one_lane():
    items = [5, 1, 3] * 7 + [SMALL] * 3 + [2]
    users = ragged(items)
    users.rows[0, 0] = np.nan
    for few_shapes in (False, True):
        small, large = small_side_by_side(users, dtype=np.float64, first=100, few_shapes=few_shapes)
        assert isinstance(large, Packed)
        assert large.positions[:3].tolist() == [121, 122, 123]
        assert int(small.count) == 22
        assert len(small.usable) == len(small.positions) == 2 * LANES
        seen = 0
        for place in range(22):
            j, group, lane = small.positions[place] - 100, place // LANES, place % LANES
            here = slice(small.starts[group], small.starts[group + 1])
            assert small.usable[place] == (j != 0)
            own = slice(users.offsets[j], users.offsets[j + 1])
            expected = np.zeros((here.stop - here.start, 5))
            if j:
                expected[: items[j]] = np.column_stack(
                    [users.rows[own], users.targets[own], np.full(items[j], 1 / items[j])]
                )
            numbers = (
                small.features[here, :, lane],
                small.targets[here, lane],
                small.weights[here, lane],
            )
            assert np.array_equal(np.column_stack(numbers), expected)
            seen += items[j]
        assert seen == sum(items) - 3 * SMALL
        assert not small.usable[22:].any()
        assert small.weights.sum() == pytest.approx(21)


def test_a_value_beyond_float32_causes_no_warning():
    users = ragged([2, 2])
    users.rows[0, 0] = 1e300
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for lay_out in (packed, small_side_by_side, blocks):
            assert np.isinf(lay_out(users)[0].features[0, 0]).any()


@pytest.mark.parametrize("lay_out", [packed, small_side_by_side, blocks])
def test_min_items(lay_out):
    with pytest.raises(InvalidInputError, match="min_items"):
        lay_out(ragged([2, 2]), min_items=0)


def test_packed_users_lie_as_they_are_and_null_ones_hold_nothing():
    users = ragged([1, 4, 4, 3])
    users.rows[6, 1], users.targets[10] = np.nan, np.inf
    for few_shapes in (False, True):
        (laid_out,) = packed(users, min_items=2, dtype=np.float64, first=10, few_shapes=few_shapes)
        assert laid_out.usable[:4].tolist() == [False, True, False, False]
        assert int(laid_out.count) == 4
        assert laid_out.positions[:4].tolist() == [10, 11, 12, 13]
        assert laid_out.offsets[:5].tolist() == users.offsets.tolist()
        assert np.array_equal(laid_out.features[1:5], users.rows[1:5])
        assert np.array_equal(laid_out.targets[1:5], users.targets[1:5])
        assert laid_out.weights.tolist()[1:5] == [0.25] * 4
        for numbers in (laid_out.features, laid_out.targets, laid_out.weights):
            assert not np.delete(numbers, np.s_[1:5], axis=0).any()


@pytest.mark.parametrize("lay_out", [packed, small_side_by_side])
def test_users_of_other_sizes_have_the_same_shapes(lay_out):
    rng = np.random.default_rng(0)
    items = np.concatenate([rng.integers(1, 20, 90), [100, 200]])
    shapes = {
        tuple(array.shape for array in jax.tree.leaves(lay_out(ragged(rng.permutation(items) + extra))))
        for extra in (0, 0, rng.permutation(92) < 3)
    }
    assert len(shapes) == 1


@pytest.mark.parametrize("storage", ["float32", "float16", "int8"])
@pytest.mark.parametrize("loss", [Logistic(), Multinomial(3)])
def test_rows_are_used_where_they_are_laid_out(loss, storage, monkeypatch):
    """Else memory would hold them twice."""
    made = []

    def watched(shape, dtype):
        made.append(zeros(shape, dtype))
        return made[-1]

    monkeypatch.setattr(layout, "zeros", watched)
    monkeypatch.setattr(local, "zeros", watched)
    monkeypatch.setattr(quantized, "zeros", watched)
    oracle = local.local_oracle(loss, ragged([3, 40, 200]), storage=storage, device="cpu")
    places = {array.ctypes.data for array in made}
    if storage == "float32" or fused.serves(loss, 3, np.float32):
        assert all(some.features.unsafe_buffer_pointer() in places for some in oracle.data)
