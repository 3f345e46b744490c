"""What the fitted models say: scale, intercept, classes, targets, seeds."""

import numpy as np
import pytest
from sklearn.metrics import get_scorer

import userdp
from tests.estimators.tables import table
from userdp.errors import PrivacyWarning
from userdp.mechanisms.noise import SecureNoise


def fast(estimator, **params):
    return estimator(**{"epsilon": 8.0, "random_state": 0, **params})


@pytest.fixture(scope="module")
def t():
    return table()


@pytest.fixture(scope="module")
def logistic(t):
    return fast(userdp.LogisticRegression).fit(t.X, t.labels, groups=t.groups)


@pytest.fixture(scope="module")
def linear(t):
    return fast(userdp.LinearRegression).fit(t.X, t.y, groups=t.groups)


def test_least_squares_recovers_a_line(linear):
    assert linear.coef_ == pytest.approx([2.0, -1.0, 0.0], abs=0.3)
    assert linear.intercept_ == pytest.approx(5.0, abs=0.3)
    assert linear.coef_.shape == linear.noise_std_.shape == (3,)


def test_logistic_regression_finds_the_direction(logistic, t):
    assert logistic.score(t.X, t.labels) > 0.9
    direction = logistic.coef_[0] / np.linalg.norm(logistic.coef_[0])
    assert direction == pytest.approx(np.array([2, -1, 0]) / np.sqrt(5), abs=0.15)
    proba = logistic.predict_proba(t.X)
    assert proba.sum(axis=1) == pytest.approx(1)
    assert proba[:, 1] == pytest.approx(1 / (1 + np.exp(-logistic.decision_function(t.X))))
    assert ((proba[:, 1] > 0.5) == logistic.predict(t.X)).all()


@pytest.mark.parametrize("model", ["logistic", "linear"])
def test_coefficients_are_on_the_original_scale(model, t, request):
    """A column in other units: the coefficient follows, predictions stay, up to the power of two of the scale."""
    plain = request.getfixturevalue(model)
    units = np.array([1e3, 1.0, 1e-4])
    y = t.labels if model == "logistic" else t.y
    scaled = fast(type(plain)).fit(t.X * units, y, groups=t.groups)
    assert scaled.coef_ * units == pytest.approx(plain.coef_, rel=0.25, abs=0.15)
    one, two = plain._predictor(t.X)[:, 0], scaled._predictor(t.X * units)[:, 0]
    assert np.corrcoef(one, two)[0, 1] > 0.99
    assert scaled.feature_high_ / units == pytest.approx(plain.feature_high_, rel=0.5)


def test_features_far_out_are_clipped(linear):
    far = linear.predict([[1e6, 0.0, 0.0], [1e9, 0.0, 0.0]])
    assert far[0] == far[1]


def test_without_an_intercept_there_is_none(t):
    for estimator, y in ((userdp.LogisticRegression, t.labels), (userdp.LinearRegression, t.z)):
        model = fast(estimator, fit_intercept=False).fit(t.X, y, groups=t.groups)
        assert np.all(model.intercept_ == 0)
        assert not any(spend.name.startswith("centre") for spend in model.privacy_.spent)
        assert model.score(t.X, y) > 0.8


def test_three_text_classes(t):
    thirds = np.array(["low", "mid", "high"])[np.digitize(t.z, [-1, 1])]
    model = fast(userdp.LogisticRegression, classes=("low", "mid", "high")).fit(t.X, thirds, groups=t.groups)
    assert model.classes_.tolist() == ["high", "low", "mid"]
    assert model.coef_.shape == (3, 3)
    assert model.score(t.X, thirds) > 0.75
    proba = model.predict_proba(t.X)
    assert proba.shape == (len(t.X), 3)
    assert (model.classes_[proba.argmax(axis=1)] == model.predict(t.X)).all()


def test_classes_are_declared_not_found(t):
    """A third class that nobody has stays; a label that was not declared makes its user null, no more."""
    model = fast(userdp.LogisticRegression, classes=(0, 1, 2), rounds=5).fit(t.X, t.labels, groups=t.groups)
    assert model.classes_.tolist() == [0, 1, 2]
    labels = t.labels.copy()
    labels[:30] = 17
    null = t.X.copy()
    null[:30] = np.nan
    one = fast(userdp.LogisticRegression, rounds=5).fit(t.X, labels, groups=t.groups)
    two = fast(userdp.LogisticRegression, rounds=5).fit(null, t.labels, groups=t.groups)
    assert one.coef_.tobytes() == two.coef_.tobytes()


def test_support_vectors(t):
    model = fast(userdp.LinearSVC, classes=("no", "yes")).fit(
        t.X, np.where(t.labels, "yes", "no"), groups=t.groups
    )
    assert model.score(t.X, np.where(t.labels, "yes", "no")) > 0.9


def test_huber_and_median_shrug_at_outliers(t, linear):
    """Every tenth user's targets are far too high."""
    y = t.y + np.where(t.groups % 10 == 0, 100.0, 0.0)
    for estimator in (userdp.HuberRegressor, userdp.QuantileRegressor):
        model = fast(estimator).fit(t.X, y, groups=t.groups)
        assert np.abs(model.predict(t.X) - (t.y)).mean() < 2.5
        assert model.coef_[0] > 0.5
    least_squares = fast(userdp.LinearRegression).fit(t.X, y, groups=t.groups)
    assert np.abs(least_squares.predict(t.X) - t.y).mean() < 12


def test_quantiles_are_ordered(t):
    low, high = (
        fast(userdp.QuantileRegressor, quantile=q).fit(t.X, t.y, groups=t.groups) for q in (0.1, 0.9)
    )
    assert 0.0 < (t.y < low.predict(t.X)).mean() < 0.3
    assert 0.7 < (t.y < high.predict(t.X)).mean() < 1.0


def test_users_count_alike_however_many_rows_they_have(t):
    """One user with a third of all rows does not get a third of the say."""
    X = np.vstack([t.X, np.tile([[1.0, 1.0, 1.0]], (600, 1))])
    y = np.concatenate([t.y, np.full(600, -1e3)])
    model = fast(userdp.LinearRegression).fit(X, y, groups=np.concatenate([t.groups, np.full(600, 10**6)]))
    assert model.coef_ == pytest.approx([2.0, -1.0, 0.0], abs=0.4)


def test_a_seed_repeats_and_is_named(t, logistic):
    again = fast(userdp.LogisticRegression).fit(t.X, t.labels, groups=t.groups)
    assert again.coef_.tobytes() == logistic.coef_.tobytes()
    assert again.privacy_ == logistic.privacy_
    assert again.privacy_.seeded
    assert "for experiments only" in str(again.privacy_)


def test_noise_is_secure_by_default(t, monkeypatch):
    calls = []
    plain = SecureNoise.discrete_gaussian
    monkeypatch.setattr(SecureNoise, "discrete_gaussian", lambda self, *a: calls.append(a) or plain(self, *a))
    one, two = (
        userdp.LogisticRegression(3.0, rounds=3).fit(t.X, t.labels, groups=t.groups) for _ in range(2)
    )
    assert not one.privacy_.seeded
    assert calls
    assert (one.coef_ != two.coef_).all()


def test_the_order_of_rows_of_different_users_does_not_matter(t):
    order = np.argsort(t.groups % 7, kind="stable")
    one, two = (
        fast(userdp.LogisticRegression, rounds=5).fit(t.X[rows], t.labels[rows], groups=t.groups[rows])
        for rows in (slice(None), order)
    )
    assert one.coef_.tobytes() == two.coef_.tobytes()


def test_a_weak_budget_warns(t):
    with pytest.warns(PrivacyWarning, match="delta"):
        fast(userdp.LogisticRegression, delta=0.1, rounds=3).fit(t.X, t.labels, groups=t.groups)


def test_the_coefficients_stay_in_their_bound(t):
    bounded = fast(userdp.LogisticRegression, coefficient_bound=0.1, rounds=5).fit(
        t.X, t.labels, groups=t.groups
    )
    assert np.linalg.norm(bounded.coef_ * bounded.feature_scale_) <= 0.1 * (1 + 1e-6)


@pytest.mark.parametrize("estimator", [userdp.LogisticRegression, userdp.LinearSVC])
def test_classes_are_sorted_as_scikit_learn_expects(estimator, t):
    names = np.array(["malignant", "benign"])[t.labels]
    declared = fast(estimator, classes=("malignant", "benign")).fit(t.X, names, groups=t.groups)
    in_order = fast(estimator, classes=("benign", "malignant")).fit(t.X, names, groups=t.groups)
    assert declared.classes_.tolist() == in_order.classes_.tolist() == ["benign", "malignant"]
    assert declared.score(t.X, names) > 0.9
    assert get_scorer("roc_auc")(declared, t.X, names) > 0.9
    assert get_scorer("roc_auc")(in_order, t.X, names) > 0.9


@pytest.mark.parametrize("value", [0.0, 3.0])
def test_constant_targets_leave_nothing_to_say(value, t):
    """No unit can be found, and the highest count of mere noise must not become one."""
    for seed in range(6):
        model = userdp.LinearRegression(random_state=seed).fit(t.X, np.full(len(t.X), value), groups=t.groups)
        assert np.abs(model.predict(t.X)).max() <= abs(value) + 1
