"""Tables larger than memory: sorted on disk as in memory, and trained from there to the same answer."""

import stat

import numpy as np
import polars as pl
import pytest

import userdp
from userdp.data import StoredUsers, Users, load_users, store_users
from userdp.data.parts import taken
from userdp.engines.groups import users_of
from userdp.errors import InvalidInputError
from userdp.means import ClippedMean, ConcentratedMean
from userdp.optimizers import DPSGD, ItemDPSGD, PhasedERM
from userdp.planning import Plan
from userdp.problems import Distance, Logistic
from userdp.training import minimize

COLUMNS = {"user": "id", "label": "y"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Several files whose rows are in no order."""
    path = tmp_path_factory.mktemp("table")
    rng = np.random.default_rng(0)
    ids = rng.permutation(np.repeat(np.arange(200), rng.choice([2, 6], size=200)))
    x = rng.normal(size=(len(ids), 3))
    x[5, 1], x[ids == 17] = np.nan, 1e300
    table = pl.DataFrame({"id": [f"u{j}" for j in ids], "y": (x[:, 0] > 0).astype(int), "a": x[:, 0]})
    table = table.with_columns(b=pl.Series(x[:, 1]), c=pl.Series(x[:, 2]))
    for k, part in enumerate(table.iter_slices(300)):
        part.write_parquet(path / f"{k}.parquet")
    return path


@pytest.mark.parametrize("part_bytes", [1, 2_000, 2**20])
def test_parts_hold_the_users_of_the_table(folder, tmp_path, part_bytes):
    stored = store_users(folder, tmp_path / "users", part_bytes=part_bytes, **COLUMNS)
    expected = load_users(folder, **COLUMNS)
    parts = [stored.read(i) for i in range(len(stored.parts))]
    assert np.array_equal(np.concatenate([p.rows for p in parts]), expected.users.rows, equal_nan=True)
    assert np.array_equal(np.concatenate([p.targets for p in parts]), expected.users.targets)
    items = np.concatenate([p.items_per_user for p in parts])
    assert np.array_equal(items, expected.users.items_per_user)
    assert (stored.n_users, stored.feature_names) == (200, expected.feature_names)
    assert len(parts) == {1: 200, 2_000: len(parts), 2**20: 1}[part_bytes]
    assert all(part.rows.nbytes <= max(part_bytes, 6 * 24) for part in parts)
    assert StoredUsers.open(tmp_path / "users") == stored


@pytest.mark.parametrize(
    ("types", "dtype", "expected"),
    [
        ([pl.Float32, pl.Int16, pl.Boolean], None, np.float32),
        ([pl.Float32, pl.Int16, pl.Int32], None, np.float64),
        ([pl.Float64, pl.Int16, pl.Boolean], None, np.float64),
        ([pl.Float64, pl.Int16, pl.Int32], np.float32, np.float32),
    ],
)
def test_rows_are_stored_in_the_smallest_type_that_holds_them(tmp_path, types, dtype, expected):
    table = pl.DataFrame({"id": [1, 2], "y": [0, 1]}).with_columns(
        pl.Series(f"x{i}", [0, 1]).cast(type_) for i, type_ in enumerate(types)
    )
    stored = store_users(table, tmp_path / "users", dtype=dtype, **COLUMNS)
    assert stored.read(0).rows.dtype == expected
    assert stored.booleans == tuple(type_ == pl.Boolean for type_ in types)


@pytest.mark.parametrize("mean", [ConcentratedMean(3.0, gate="deferred", agreement=0.9), ClippedMean(0.3)])
def test_a_training_from_disk_is_that_in_memory_bit_for_bit(folder, tmp_path, mean):
    stored = store_users(folder, tmp_path / "users", part_bytes=8_000, **COLUMNS)
    assert len(stored.parts) > 1

    def point(users):
        solution = minimize(
            Logistic(), users, optimizer=DPSGD(4, 0.5), mean=mean, epsilon=8.0, delta=1e-6, random_state=0
        )
        return solution.point.tobytes()

    assert point(stored) == point(load_users(folder, **COLUMNS).users)


@pytest.mark.parametrize("part_bytes", [1, 8_000])
@pytest.mark.parametrize(
    "options",
    [
        {"optimizer": DPSGD(3, 0.5), "max_items": 2},
        {"optimizer": PhasedERM(3, 0.5, 0.1, phases=3)},
        {"optimizer": PhasedERM(3, 0.5, 0.1, phases=2), "max_items": 3, "min_items": 3},
    ],
)
def test_phases_and_capped_users_come_from_disk_as_well(folder, tmp_path, options, part_bytes):
    stored = store_users(folder, tmp_path / "users", part_bytes=part_bytes, **COLUMNS)

    def point(users):
        solution = minimize(
            Logistic(), users, mean=ClippedMean(0.3), epsilon=8.0, delta=1e-6, random_state=0, **options
        )
        return solution.point.tobytes()

    assert point(stored) == point(load_users(folder, **COLUMNS).users)


def test_a_plan_of_phases_is_run_from_disk_as_in_memory(tmp_path, monkeypatch):
    """Also where rounds smooth by sampling, of which every user has a sample of their own."""
    rng = np.random.default_rng(0)
    x = 0.1 * rng.normal(size=(600, 2))
    table = pl.DataFrame({"id": np.repeat(np.arange(300), 2), "a": x[:, 0], "b": x[:, 1]})
    plan = userdp.plan(
        n_users=300, items_per_user=2, n_features=2, epsilon=8.0, delta=1e-6, smoothness=np.inf,
        strong_convexity=1.0, max_rounds=2,
    )  # fmt: skip
    assert [phase.n_users for phase in plan.phases] == [75, 150]
    stored = store_users(table, tmp_path / "users", part_bytes=6_000, user="id")
    assert len(stored.parts) == 3
    monkeypatch.setattr(Plan, "mean", lambda *_: ClippedMean(0.3))  # which compiles faster
    in_memory = load_users(table, user="id").users
    points = [minimize(Distance(), users, plan=plan, random_state=0).point for users in (stored, in_memory)]
    assert points[0].tobytes() == points[1].tobytes()


def test_some_users_of_parts_are_those_of_the_whole(folder, tmp_path):
    whole = load_users(folder, **COLUMNS).users
    stored = store_users(folder, tmp_path / "users", part_bytes=2_000, **COLUMNS)
    for chosen in ([199, 3, 0, 100, 101], [57], list(range(200))):
        some, expected = taken(stored, np.array(chosen)), taken(whole, np.array(chosen))
        parts = [some.read(i) for i in range(len(some.parts))]
        assert np.array_equal(np.concatenate([p.rows for p in parts]), expected.rows, equal_nan=True)
        assert [part.n_users for part in some.parts] == [part.n_users for part in parts]
        borders = np.cumsum([0, *(part.n_users for part in parts)])
        assert [part.first_user for part in some.parts] == borders[:-1].tolist()
        assert (some.n_users, some.n_features, some.has_targets) == (len(chosen), 3, True)


def test_phases_take_whole_groups_from_disk(folder, tmp_path, monkeypatch):
    """The answer is that of the users in memory, in the secret order in which they were stored."""
    stored = store_users(folder, tmp_path / "users", part_bytes=2_000, groups_of=3, **COLUMNS)
    parts = [stored.read(i) for i in range(len(stored.parts))]
    items = np.concatenate([part.items_per_user for part in parts])
    assert len(parts) > 5
    assert len(items) % 3
    in_memory = Users(
        np.concatenate([part.rows for part in parts]),
        np.concatenate([[0], np.cumsum(items)]),
        np.concatenate([part.targets for part in parts]),
    )
    some = taken(stored, users_of(np.array([40, 66, 3, 4]), 3, 200))
    assert all(part.first_user % 3 == 0 for part in some.parts)
    plan = userdp.plan(
        n_users=67, items_per_user=12, n_features=3, epsilon=8.0, delta=1e-3, smoothness=1.0,
        strong_convexity=1.0, max_rounds=2,
    )  # fmt: skip
    assert plan.phases[0].n_users < 67
    monkeypatch.setattr("userdp.training._Run.in_groups", lambda run, group_size: run.users)
    monkeypatch.setattr(Plan, "mean", lambda *_: ClippedMean(0.3))  # which needs fewer users
    solutions = [
        minimize(Logistic(), users, plan=plan, group_size=3, random_state=0) for users in (stored, in_memory)
    ]
    assert solutions[0].point.tobytes() == solutions[1].point.tobytes()
    assert solutions[0].privacy.n_users == 200


def test_the_folder_says_that_it_is_sensitive_and_is_its_owner_s(folder, tmp_path):
    stored = store_users(folder, tmp_path / "users", **COLUMNS)
    assert "as sensitive as the table" in (stored.folder / "SENSITIVE").read_text()
    assert stat.S_IMODE(stored.folder.stat().st_mode) == 0o700


def in_groups(users, group_size):
    return minimize(
        Logistic(),
        users,
        optimizer=DPSGD(2, 0.5),
        mean=ClippedMean(0.3),
        epsilon=8.0,
        delta=1e-6,
        random_state=0,
        group_size=group_size,
    )


@pytest.mark.parametrize("part_bytes", [2_000, 2**20])
def test_users_are_trained_in_groups_only_in_the_random_order_made_for_it(folder, tmp_path, part_bytes):
    """In the order of the ids, a user under another id would move everybody to another group."""
    sorted_by_id = store_users(folder, tmp_path / "sorted", part_bytes=part_bytes, **COLUMNS)
    shuffled = store_users(folder, tmp_path / "shuffled", part_bytes=part_bytes, groups_of=5, **COLUMNS)
    for users, size in ((sorted_by_id, 5), (shuffled, 2), (shuffled, 10)):
        with pytest.raises(InvalidInputError, match=f"groups_of={size}"):
            in_groups(users, size)
    assert in_groups(shuffled, 5).privacy.n_users == 200
    first, second = (users.read(0).items_per_user[:30] for users in (sorted_by_id, shuffled))
    assert not np.array_equal(first, second)
    again = store_users(folder, tmp_path / "again", part_bytes=part_bytes, groups_of=5, **COLUMNS)
    assert not np.array_equal(again.read(0).items_per_user[:30], second)


@pytest.mark.parametrize("name", ["rows", "offsets", "targets"])
def test_a_part_that_is_missing_or_damaged(folder, tmp_path, name):
    stored = store_users(folder, tmp_path / "users", part_bytes=2_000, **COLUMNS)
    file = stored.file(1, name)
    file.write_bytes(file.read_bytes()[:20])
    with pytest.raises(InvalidInputError, match="store them again"):
        stored.read(1)
    file.unlink()
    for read in (lambda: stored.read(1), lambda: StoredUsers.open(tmp_path / "users")):
        with pytest.raises(InvalidInputError, match="are not whole"):
            read()


def test_what_is_refused(folder, tmp_path):
    store_users(folder, tmp_path / "users", **COLUMNS)
    with pytest.raises(InvalidInputError, match="exists"):
        store_users(folder, tmp_path / "users", **COLUMNS)
    with pytest.raises(InvalidInputError, match="no column"):
        store_users(folder, tmp_path / "other", user="nobody")
    with pytest.raises(InvalidInputError, match="part_bytes"):
        store_users(folder, tmp_path / "other", part_bytes=0, **COLUMNS)
    for sizes in ({"part_bytes": "1"}, {"groups_of": 1.5}):
        with pytest.raises(InvalidInputError, match="whole numbers"):
            store_users(folder, tmp_path / "other", **sizes, **COLUMNS)
    with pytest.raises(InvalidInputError, match="create it first"):
        store_users(folder, tmp_path / "nope" / "users", **COLUMNS)
    with pytest.raises(InvalidInputError, match="cannot read"):
        StoredUsers.open(tmp_path / "other")
    (tmp_path / "users.json").write_text("{}")
    with pytest.raises(InvalidInputError, match="no users"):
        StoredUsers.open(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["users", "users.json"]
    stored = StoredUsers.open(tmp_path / "users")
    with pytest.raises(InvalidInputError, match="in memory"):
        minimize(
            Logistic(), stored, optimizer=ItemDPSGD(4, 0.5, clip=1.0), epsilon=1.0, delta=1e-6, max_items=2
        )
