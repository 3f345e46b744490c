"""Estimators on users on disk: the model of the same users in memory, bit for bit, however they are cut into parts."""

from functools import partial

import numpy as np
import polars as pl
import pytest

from userdp import LinearRegression, LogisticRegression, QuantileRegressor
from userdp.data import load_users, store_users
from userdp.data.parts import capped, changed
from userdp.errors import InvalidInputError
from userdp.estimators.per_user import in_parts, mapped, per_user

ROLES = {"user": "id", "features": ["a", "far", "flag", "kind"], "categories": {"kind": ["x", "y"]}}


@pytest.fixture(scope="module")
def table():
    """Ragged users, a null one, a column that float32 would round away, a boolean and a category."""
    rng = np.random.default_rng(0)
    ids = rng.permutation(np.repeat(np.arange(300), rng.choice([1, 3, 40], size=300)))
    a = rng.normal(size=len(ids))
    a[ids == 17] = np.nan
    return pl.DataFrame(
        {
            "id": ids,
            "a": a,
            "far": 1.7e9 + rng.normal(size=len(ids)),
            "flag": rng.random(len(ids)) < 0.3,
            "kind": rng.choice(["x", "y"], len(ids)),
            "label": np.where(a > 0, "yes", "no"),
            "amount": 3 * a + rng.normal(size=len(ids)),
        }
    )


def in_memory(estimator, table, label, classes):
    found = load_users(table, label=label, classes=classes, **ROLES)
    columns = zip(found.feature_names, found.users.rows.T, found.booleans, strict=True)
    X = pl.DataFrame(
        [pl.Series(n, x, nan_to_null=True).cast(pl.Boolean if b else pl.Float64) for n, x, b in columns]
    )
    y = found.targets if classes is None else np.append(classes, "")[np.nan_to_num(found.targets).astype(int)]
    return estimator.fit(X, y, groups=np.repeat(np.arange(found.n_users), found.users.items_per_user))


@pytest.mark.parametrize("part_bytes", [1_000, 20_000, 2**26])
@pytest.mark.parametrize(
    ("make", "label", "classes"),
    [
        (lambda **kw: LogisticRegression(classes=("no", "yes"), **kw), "label", ("no", "yes")),
        (lambda **kw: LinearRegression(max_items=5, **kw), "amount", None),
        (lambda **kw: QuantileRegressor(fit_intercept=False, min_items=2, **kw), "amount", None),
    ],
    ids=["logistic", "linear, at most 5 rows", "quantile, no intercept, at least 2 rows"],
)
def test_the_model_is_that_of_users_in_memory(table, tmp_path, make, label, classes, part_bytes):
    stored = store_users(
        table, tmp_path / "users", label=label, classes=classes, part_bytes=part_bytes, **ROLES
    )
    options = {"epsilon": 8.0, "rounds": 5, "random_state": 0}
    one = make(**options).fit(stored)
    two = in_memory(make(**options), table, label, classes)
    assert np.abs(two.coef_).max() > 0
    for name in ("coef_", "intercept_", "feature_low_", "feature_high_", "feature_scale_", "noise_std_"):
        assert np.asarray(getattr(one, name)).tobytes() == np.asarray(getattr(two, name)).tobytes(), name
    assert one.privacy_ == two.privacy_
    assert one.to_model().feature_names == two.to_model().feature_names
    assert (part_bytes < 2**26) == (len(stored.parts) > 1)


def test_few_users_targets_are_looked_at_from_disk_as_well(table, tmp_path):
    far = table.with_columns(amount=pl.col("amount") + 30)
    stored = store_users(far, tmp_path / "users", label="amount", classes=None, part_bytes=5_000, **ROLES)
    make = partial(LinearRegression, epsilon=0.2, rounds=5, random_state=0)
    one, two = make().fit(stored), in_memory(make(), far, "amount", None)
    assert [spend.name for spend in one.privacy_.spent][:2] == ["target look", "target look 2"]
    assert one.intercept_ == two.intercept_ == pytest.approx(30, abs=20)
    assert one.privacy_ == two.privacy_


def test_a_part_s_rows_are_sampled_once_and_for_all(table, tmp_path):
    stored = store_users(table, tmp_path / "users", label="amount", classes=None, part_bytes=5_000, **ROLES)
    whole = load_users(table, label="amount", classes=None, **ROLES).users
    expected = capped(whole, 2, np.random.default_rng(1)).rows
    sampled = capped(stored, 2, np.random.default_rng(1))
    for _ in range(2):
        found = np.concatenate([sampled.read(part).rows for part in range(len(stored.parts))])
        assert np.array_equal(found, expected, equal_nan=True)


def test_vectors_are_computed_again_from_what_is_on_disk(table, tmp_path):
    stored = store_users(table, tmp_path / "users", label="amount", classes=None, part_bytes=5_000, **ROLES)
    whole = load_users(table, label="amount", classes=None, **ROLES).users
    shifted = changed(stored, shift)
    assert (shifted.n_users, shifted.n_features, shifted.has_targets) == (300, 5, False)
    vectors = mapped(side_by_side, per_user(means, shifted), per_user(means, stored))
    expected = mapped(side_by_side, per_user(means, changed(whole, shift)), per_user(means, whole))
    assert vectors.shape == expected.shape == (300, 10)
    for _ in range(2):
        assert np.array_equal(np.concatenate(list(in_parts(vectors))), expected, equal_nan=True)


def side_by_side(one, two):
    return np.hstack([one, two])


def means(users):
    return users.means()


def shift(users):
    return type(users)(users.rows + 1, users.offsets)


def test_what_is_refused(table, tmp_path):
    classes = ("no", "yes")
    labelled = store_users(table, tmp_path / "labelled", label="label", classes=classes, **ROLES)
    numbers = store_users(table, tmp_path / "numbers", label="amount", classes=None, **ROLES)
    plain = store_users(table, tmp_path / "plain", **ROLES)
    for estimator, users, message in [
        (LogisticRegression(), labelled, r"stored with classes=\('no', 'yes'\)"),
        (LogisticRegression(classes=("yes", "no")), labelled, "store them with classes"),
        (LinearRegression(), labelled, "predicts a number"),
        (LogisticRegression(), numbers, "stored with classes=None"),
        (LinearRegression(), plain, "without a label"),
    ]:
        with pytest.raises(InvalidInputError, match=message):
            estimator.fit(users)
    with pytest.raises(InvalidInputError, match="leave y and groups out"):
        LinearRegression().fit(numbers, groups=table["id"])
