import warnings

import numpy as np
import pytest

from userdp.data import Users
from userdp.engines.layout import LANES, SMALL, blocks, packed, widths
from userdp.errors import InvalidInputError


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
def test_memory_stays_within_one_and_a_half_times_the_data(law):
    rng = np.random.default_rng(0)
    items = {
        "equal": np.full(300, 33),
        "uniform": rng.integers(1, 60, size=300),
        "heavy tails": np.ceil(rng.pareto(1.1, size=300)).astype(int).clip(1, 5_000),
        "powers": 2 ** rng.integers(0, 9, size=300) + 1,
    }[law]
    users = ragged(items, d=20)
    laid_out = sum(block.features.nbytes for block in blocks(users))
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


def test_small_users_come_in_full_groups_of_nobody_else():
    users = ragged([5] * 17 + [SMALL] * 3)
    small, large = blocks(users)
    assert (small.lanes, large.lanes) == (LANES, 1)
    assert len(small.features) == 2 * LANES * small.width
    assert len(small.usable) == len(small.positions) == 2 * LANES
    assert not small.usable[17:].any()
    assert not small.weights[17 * small.width :].any()


def test_a_value_beyond_float32_causes_no_warning():
    users = ragged([2, 2])
    users.rows[0, 0] = 1e300
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        block = blocks(users)[0]
    assert np.isinf(block.features[0, 0])


def test_min_items():
    with pytest.raises(InvalidInputError, match="min_items"):
        blocks(ragged([2, 2]), min_items=0)


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


def test_packed_users_have_few_shapes():
    """Users of other sizes compile nothing again; an eighth more rows may."""
    rng = np.random.default_rng(0)
    shapes = set()
    for _ in range(20):
        items = rng.multinomial(980 + rng.integers(20), np.ones(90) / 90) + 1
        (one,) = packed(ragged(items[: 80 + rng.integers(3)]), few_shapes=True)
        shapes.add((one.features.shape, one.n_users, len(one.offsets)))
    assert len(shapes) <= 4
