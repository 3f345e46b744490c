"""A whole fit: what it pays is what it draws, and nobody's values show anywhere else."""

import math
import warnings
from dataclasses import fields, is_dataclass

import numpy as np
import pytest

import userdp
from tests.conftest import SilentNoise
from tests.estimators.tables import FEATURES, ITEMS, N_USERS, WILD, ragged, replaced, table
from userdp.data.users import Users
from userdp.estimators import descending, fitting
from userdp.estimators.balls import BallMean
from userdp.estimators.fitting import Options, Task
from userdp.estimators.rows import Columns, null_by_value
from userdp.estimators.targets import Target
from userdp.mechanisms.noise import SeededNoise
from userdp.optimizers import DPSGD
from userdp.planning.calibration import TIMES_ASKED
from userdp.privacy.accounting import SMOOTHING_WIDTH, GaussianEvent
from userdp.privacy.budget import Budget
from userdp.problems import Logistic, Multinomial, Squared

TASKS = {
    "logistic": Task(Logistic(), 0.5, n_classes=2),
    "multinomial": Task(Multinomial(3), 1 / 3, n_classes=3),
    "least squares": Task(Squared(), 1.0),
}


class Recording(SeededNoise):
    """Seeded noise that writes down what it was asked for."""

    def __init__(self, seed):
        super().__init__(seed)
        self.asked = []

    def discrete_gaussian(self, scale, size):
        self.asked.append((scale, size))
        return super().discrete_gaussian(scale, size)

    def geometric(self, scale, size):
        raise AssertionError("every part of a fit is Gaussian")


def users_of(t):
    return Users.from_rows(t.X, t.groups, t.labels.astype(float))


def ball_units(d):
    return 2.0 * 2 ** (12 + math.ceil(math.log2(d) / 2))


@pytest.mark.parametrize("name", TASKS)
def test_every_draw_is_in_the_statement_at_the_scale_it_pays_for(name):
    """Gaussian by Gaussian: mu^2 = rounds sensitivity^2/(scale^2 - s^2), sensitivities as on the proof page."""
    task, noise, rounds = TASKS[name], Recording(0), 5
    budget = Budget(3.0, 1e-6)
    users = users_of(table())
    users.rows[:, 0] += 3.0
    fitted = fitting.fit(users, task, budget, Options(rounds=rounds), noise)
    d = FEATURES
    k = (FEATURES + 1) * (3 if name == "multinomial" else 1)
    one_vote = math.sqrt(2) * 2**10
    if task.n_classes:
        expected = {"base rate": (ball_units(task.n_classes), task.n_classes)}
    else:
        expected = {
            "target scale": (one_vote, 41),
            "target location": (one_vote, 513),
            "target mean": (ball_units(1), 1),
        }
    expected |= {"feature scales": (one_vote * math.sqrt(d), 83 * d)}
    expected |= {"look 2": (2**10 * one_vote, 51)}  # of the column that is far from zero
    expected |= {"centre": (ball_units(d), d), "second moments": (ball_units(d), d)}
    q = {"multinomial": 4, "logistic": 2}.get(name, 1)  # intercepts, and a classifier's length
    expected |= {"gradient norms": (one_vote, 21)}
    parts = [*expected.items(), *[("calibration", (ball_units(q), q))] * TIMES_ASKED]
    parts += [("pilot gradient", (ball_units(k), k))]
    parts += [("clipped mean", (ball_units(k) * math.sqrt(rounds), rounds * k))]

    spent, asked = fitted.privacy.spent, list(noise.asked)
    ahead = len(asked) - 2 - TIMES_ASKED  # calibration is paid for ahead and drawn at the end
    asked = asked[:ahead] + asked[-TIMES_ASKED:] + asked[ahead:-TIMES_ASKED]
    assert [spend.name for spend in spent] == [name for name, _ in parts]
    assert [size for _, size in asked] == [size for _, (_, size) in parts]
    for spend, (scale, _), (_, (sensitivity, _)) in zip(spent, asked, parts, strict=True):
        assert spend.mu == pytest.approx(sensitivity / math.sqrt(scale**2 - SMOOTHING_WIDTH**2), rel=1e-9)
    assert fitted.privacy.mu == pytest.approx(math.sqrt(sum(spend.mu**2 for spend in spent)))
    assert fitted.privacy.certified


@pytest.mark.parametrize(("n", "mean_too"), [(30, False), (70, True)])
def test_a_regression_of_few_users_is_about_as_large_as_its_targets(n, mean_too):
    """Far from zero, where a model that says 0 is off by ten times their spread; every draw is in the statement."""
    rng = np.random.default_rng(0)
    users = Users(rng.normal(size=(3 * n, 2)), np.arange(0, 3 * n + 1, 3), rng.normal(100.0, 10.0, 3 * n))
    errors = []
    for seed in range(20):
        noise = Recording(seed)
        fitted = fitting.fit(users, TASKS["least squares"], Budget(1.0, 1e-6), Options(), noise)
        names = [spend.name for spend in fitted.privacy.spent]
        assert fitted.privacy.certified
        assert names[0] == "target look"
        assert ("target mean" in names) <= mean_too
        asked = dict(zip(names, noise.asked, strict=False))
        assert asked["target look"][1] == 83
        errors.append(abs(float(fitted.intercepts[0]) - 100.0))
    assert np.median(errors) < 50


def rare_class(n=1_500, seed=0):
    """Users of one class each, one in twelve of the rarer one."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(2 * n, FEATURES))
    y = (np.repeat(rng.normal(size=n), 2) + 0.3 * X[:, 0] > 1.45).astype(float)
    return Users(X, np.arange(0, 2 * n + 1, 2), y)


def test_a_rare_class_is_predicted_as_often_as_it_occurs():
    """Clipping takes most from the users of a rare class: without a remedy the model all but forgets them."""
    users, rates = rare_class(), []
    for seed in range(4):
        fitted = fitting.fit(users, TASKS["logistic"], Budget(3.0, 1e-6), Options(), SeededNoise(seed))
        z = np.clip(users.rows, fitted.low, fitted.high) @ fitted.coefficients[0] + fitted.intercepts[0]
        rates.append(float((1 / (1 + np.exp(-z))).mean()))
    assert np.mean(rates) == pytest.approx(users.targets.mean(), rel=0.2)


@pytest.mark.parametrize("name", ["logistic", "least squares"])
def test_without_intercept_and_features_nothing_is_fitted(name):
    """Few users: no unit can be paid for. The model is 0, and says what it cost."""
    rng = np.random.default_rng(0)
    users = Users(rng.normal(size=(40, 3)), np.arange(41), rng.integers(0, 2, 40).astype(float))
    fitted = fitting.fit(users, TASKS[name], Budget(0.3, 1e-6), Options(fit_intercept=False), SeededNoise(0))
    assert not fitted.coefficients.any()
    assert fitted.rounds == 0
    assert fitted.privacy.certified


@pytest.mark.parametrize("offset", [0.0, 100.0])
def test_targets_that_hardly_change_within_a_user_are_found(offset):
    """Their unit is what users differ by, and their middle is in sight."""
    rng = np.random.default_rng(0)
    means = offset + rng.normal(size=1_000)
    y = np.repeat(means, 3) + 0.01 * rng.normal(size=3_000)
    users = Users(rng.normal(size=(3_000, 2)), np.arange(0, 3_001, 3), y)
    for seed in range(3):
        fitted = fitting.fit(users, TASKS["least squares"], Budget(1.0, 1e-6), Options(), SeededNoise(seed))
        assert fitted.intercepts[0] == pytest.approx(offset, abs=0.5)


@pytest.mark.parametrize(("n", "d"), [(2, 1), (85, 1), (100, 2), (50, 30)])
def test_small_tables_are_fitted_not_refused(n, d):
    """Here the stages used to eat the whole budget before the descent."""
    rng = np.random.default_rng(0)
    users = Users(rng.normal(size=(n, d)), np.arange(n + 1), rng.integers(0, 2, n).astype(float))
    fitted = fitting.fit(users, TASKS["logistic"], Budget(1.0, 1e-6), Options(rounds=2), SeededNoise(0))
    assert np.isfinite(fitted.coefficients).all()


def test_null_users_are_null_in_every_stage():
    users = ragged(
        [[1.0, np.inf]], [[1.0, 2.0]], [[3.0, 4.0]] * 2, [[5.0, 6.0]], targets=[[0], [1], [1, 0], [np.nan]]
    )
    rows = null_by_value(users, min_items=1).rows
    assert np.isnan(rows).all(axis=1).tolist() == [True, False, False, False, True]
    assert np.isnan(null_by_value(users, min_items=2).rows).all(axis=1).tolist() == [
        True,
        True,
        False,
        False,
        True,
    ]


def test_an_infinite_value_and_no_value_are_the_same_user():
    """Without noise to hide a difference: clipping must not turn an infinite value into a large one."""
    users = users_of(table())
    fits = [
        fitting.fit(
            replaced(users, np.array([[value, 0.0, 0.0]] * ITEMS), np.ones(ITEMS)),
            TASKS["logistic"],
            Budget(3.0, 1e-6),
            Options(rounds=3),
            SilentNoise(),
        )
        for value in (np.nan, np.inf, -np.inf)
    ]
    assert len({fit.coefficients.tobytes() for fit in fits}) == 1


@pytest.mark.parametrize(
    "task", [TASKS["logistic"], TASKS["least squares"]], ids=["logistic", "least squares"]
)
def test_no_user_can_cause_a_warning(task):
    users = users_of(table())
    for place, rows in enumerate(WILD.values()):
        users = replaced(users, np.array(rows), np.resize([1.0, 0.0], len(rows)), place)
    users = replaced(users, np.zeros((2, FEATURES)), np.array([np.inf, 1e308]), place=50)
    with np.errstate(all="raise"), warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted = fitting.fit(users, task, Budget(3.0, 1e-6), Options(rounds=3), SeededNoise(0))
    assert np.isfinite(fitted.coefficients).all()


def test_all_null_users_and_constant_columns():
    t = table()
    users = users_of(t)
    for rows in (np.full_like(t.X, np.nan), np.zeros_like(t.X), np.full_like(t.X, 7.0)):
        fitted = fitting.fit(
            Users(rows, users.offsets, users.targets),
            TASKS["logistic"],
            Budget(3.0, 1e-6),
            Options(rounds=3),
            SeededNoise(0),
        )
        assert np.isfinite(fitted.coefficients).all()
        assert np.isfinite(fitted.intercepts).all()


@pytest.mark.parametrize("name", TASKS)
def test_one_user_moves_one_gradient(name):
    """Norms for the clip radius and vectors of the descent: bit for bit those of the neighbour, but for one."""
    users = users_of(table())
    other = replaced(users, np.array(WILD["far"]), np.zeros(2), place=7)
    both = []
    for data in (users, replaced(other, np.array(WILD["far"]), np.zeros(2), place=8)):
        oracle = fitting.HERE.oracle(
            TASKS[name].loss, data, dimension=FEATURES * (3 if name == "multinomial" else 1)
        )
        both.append({row.tobytes() for row in oracle.evaluate(np.linspace(-1, 1, oracle.dimension))})
    assert len(both[0] - both[1]) == 2


def test_capping_uses_a_user_s_own_rows():
    t = table()
    model = userdp.LogisticRegression(3.0, max_items=2, min_items=2, rounds=3, random_state=0)
    model.fit(t.X, t.labels, groups=t.groups)
    assert model.privacy_.n_users == N_USERS


def arrays_in(value, path=""):
    """Walk through everything an object holds."""
    if isinstance(value, np.ndarray):
        yield path, value.shape
    elif is_dataclass(value):
        for field in fields(value):
            yield from arrays_in(getattr(value, field.name), f"{path}.{field.name}")
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from arrays_in(item, f"{path}[{key}]")
    elif isinstance(value, list | tuple):
        yield path, (len(value),)
        for item in value:
            yield from arrays_in(item, path)
    else:
        assert isinstance(value, str | int | float | bool | None), (path, type(value))


@pytest.mark.parametrize(
    "estimator",
    [
        userdp.LogisticRegression,
        userdp.LinearSVC,
        userdp.LinearRegression,
        userdp.HuberRegressor,
        userdp.QuantileRegressor,
    ],
)
def test_nothing_unreleased_is_stored(estimator):
    t = table()
    model = estimator(3.0, rounds=3, random_state=0).fit(t.X, t.labels, groups=t.groups)
    assert set(vars(model)) - set(model.get_params()) <= {
        "coef_",
        "intercept_",
        "classes_",
        "feature_low_",
        "feature_high_",
        "feature_scale_",
        "noise_std_",
        "n_users_",
        "n_features_in_",
        "n_iter_",
        "plan_",
        "privacy_",
    }
    sizes = [max(shape, default=1) for _, shape in arrays_in(vars(model))]
    assert max(sizes) < 20 < N_USERS
    assert model.n_users_ == N_USERS
    assert all(
        array.base is None or array.base.size < 20
        for array in vars(model).values()
        if isinstance(array, np.ndarray)
    )


@pytest.mark.parametrize("shift", [0.0, 40.0, 1e6])
@pytest.mark.parametrize("factor", [1.0, 1e6])
def test_the_unit_and_the_place_of_a_feature_do_not_matter(shift, factor):
    """Same users, same noise: predictions of a column in other units are about the same."""
    t = table()
    moved = t.X.copy()
    moved[:, 0] = factor * (moved[:, 0] + shift)
    predictions = []
    for X in (t.X, moved):
        fitted = fitting.fit(
            Users.from_rows(X, t.groups, t.y),
            TASKS["least squares"],
            Budget(3.0, 1e-6),
            Options(),
            SeededNoise(0),
        )
        rows = np.clip(X, fitted.low, fitted.high)
        predictions.append((rows @ fitted.coefficients.T + fitted.intercepts)[:, 0])
    errors = [float(np.mean((p - t.y) ** 2) / t.y.var()) for p in predictions]
    assert errors[0] < 0.4
    assert errors[1] < 1.2 * errors[0] + 0.02


@pytest.mark.parametrize("filled", [0.0, 0.002])
def test_columns_that_hardly_anybody_has_do_not_matter(filled):
    """Most are left out, and neither their noise nor their number reaches the others' coefficients."""
    t, rng = table(), np.random.default_rng(1)
    rare = rng.random((len(t.X), 20)) < filled
    errors = []
    for X in (t.X, np.hstack([t.X, rare])):
        fits = (
            fitting.fit(
                Users.from_rows(X, t.groups, t.y),
                TASKS["least squares"],
                Budget(3.0, 1e-6),
                Options(),
                SeededNoise(seed),
            )
            for seed in range(3)
        )
        predictions = [
            np.clip(X, fitted.low, fitted.high) @ fitted.coefficients[0] + fitted.intercepts[0]
            for fitted in fits
        ]
        errors.append(np.mean([np.mean((p - t.y) ** 2) for p in predictions]) / t.y.var())
    assert errors[1] < 1.2 * errors[0] + 0.02


def test_a_descent_begins_where_released_numbers_say(monkeypatch):
    """Whoever the users are: the same released numbers, the same first point."""
    t, starts = table(), []

    def run(optimizer, oracle, mean, noise, start, progress=None):
        starts.append(start)
        return plain(optimizer, oracle, mean, noise, start, progress)

    event = GaussianEvent("part", 1.0, 100.0, 1)
    columns = Columns(np.zeros(FEATURES), *np.ones((3, FEATURES)))
    pilot = BallMean(np.linspace(-1, 1, FEATURES + 1), 0.1, event)
    monkeypatch.setattr(fitting, "private_target", lambda *_: (Target(0.0, 1.0), (event,)))
    monkeypatch.setattr(fitting, "standardize", lambda *_, **__: (columns, (event,)))
    monkeypatch.setattr(descending, "private_norm", lambda *_: (1.0, event))
    monkeypatch.setattr(descending, "private_gradient", lambda *_: pilot)
    plain = DPSGD.run
    monkeypatch.setattr(DPSGD, "run", run)
    for targets in (t.y, np.zeros_like(t.y), -3 * t.y):
        users = Users.from_rows(t.X, t.groups, targets)
        fitting.fit(users, TASKS["least squares"], Budget(3.0, 1e-6), Options(), SeededNoise(0))
    assert np.any(starts[0] != 0)
    assert starts[0].tolist() == starts[1].tolist() == starts[2].tolist()


def test_a_dropped_column_stays_where_it_starts(monkeypatch):
    """Or the noise in its coordinate would count as a part of the coefficients' length."""
    t, found = table(), []
    scale = np.append(np.inf, np.ones(FEATURES - 1))
    columns = Columns(np.zeros(FEATURES), scale, *np.ones((2, FEATURES)))
    monkeypatch.setattr(fitting, "standardize", lambda *_, **__: (columns, ()))
    descend = fitting.descend
    monkeypatch.setattr(fitting, "descend", lambda *args: found.append(descend(*args)) or found[-1])
    fitting.fit(users_of(t), TASKS["logistic"], Budget(3.0, 1e-6), Options(), SeededNoise(0))
    assert found[0].point[0] == 0
    assert np.all(found[0].point[1:] != 0)
