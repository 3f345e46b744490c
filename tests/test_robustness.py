"""The yardstick of robustness is checked: constants cost what they claim, and a change leaves the problem as it was."""

import json

import numpy as np
import pytest

from benchmarks.measure import RESULTS
from benchmarks.peers.objective import FLOOR
from benchmarks.peers.problem import Table
from benchmarks.peers.tune import gdp_mu
from benchmarks.robustness import constants, run, sample
from benchmarks.robustness.changes import CHANGES, EXPONENTIAL, changed, reference_of
from benchmarks.robustness.publish import ORACLE, add_ratios, page, ratio_of_excess, ratios_to_constants


@pytest.fixture(autouse=True)
def small_table(monkeypatch):
    rng = np.random.default_rng(0)
    items = rng.integers(1, 9, 2_600)
    rows = items.sum()
    # Times 1e-6 their spread is still above 1e-6, below which the fit without privacy takes a column for constant.
    numbers = rng.normal(15.0, 5.0, size=(rows, 2)).astype(np.float32)
    booleans = (rng.random((rows, 1)) < 0.4).astype(np.int8)
    target = (numbers[:, 1] / 5 + booleans[:, 0] + rng.normal(size=rows)).astype(np.float32)
    table = Table(
        "small",
        numbers,
        booleans,
        np.array(["a", "b", "c"]),
        np.concatenate([[0], np.cumsum(items)]),
        (target > 4).astype(np.float32),
        target,
    )
    monkeypatch.setattr(sample, "load", lambda name: table)


def rows_as_set(part):
    return set(map(tuple, part.numbers))


def test_samples_differ_and_never_hold_a_test_user():
    first, second = (sample.draw("small", "regression", 300, seed) for seed in (0, 1))
    assert first.users == 300
    assert not rows_as_set(first.train) & rows_as_set(first.test)
    assert rows_as_set(first.test) == rows_as_set(second.test)
    assert len(rows_as_set(first.train) & rows_as_set(second.train)) < len(first.train.y) / 2


@pytest.mark.parametrize("change", [change for change in CHANGES if change != EXPONENTIAL])
def test_a_model_without_privacy_does_not_care(change):
    plain = sample.draw("small", "regression", 2_000, 0)
    odd = changed(plain, change)
    loss = changed(plain, reference_of(change)).reference_loss()
    assert odd.reference_loss() == pytest.approx(loss, abs=FLOOR)
    assert np.isfinite(odd.train.numbers).all()
    same = np.array_equal(odd.train.rows.X, plain.train.rows.X)
    assert same == (change == "as it is")


def test_the_changed_number_is_the_one_that_matters():
    plain = sample.draw("small", "regression", 500, 0)
    far = changed(plain, "a number plus 1e6")
    np.testing.assert_array_equal(far.train.numbers[:, 0], plain.train.numbers[:, 0])
    np.testing.assert_allclose(far.test.numbers[:, 1] - 1e6, plain.test.numbers[:, 1], atol=1e-9)


def test_users_means_are_constant_within_users():
    odd = changed(sample.draw("small", "classification", 500, 0), "users' means added")
    part = odd.test
    column = part.numbers[:, 2]
    first = np.repeat(column[part.offsets[:-1]], np.diff(part.offsets))
    np.testing.assert_array_equal(column, first)
    np.testing.assert_allclose(
        column[part.offsets[:-1]], np.add.reduceat(part.numbers[:, 1], part.offsets[:-1]) / part.rows.items
    )


def test_a_mean_in_bounds_loses_what_its_noise_costs():
    drawn, epsilon = sample.draw("small", "regression", 500, 0), 0.3
    means = constants.user_means(drawn.train)
    R = np.quantile(np.abs(means), 0.95)
    noise = np.random.default_rng(0).normal(size=20_000) * 2 * R / (500 * gdp_mu(epsilon))
    simulated = constants.squared_error(drawn, np.clip(means, -R, R).mean() + noise)
    assert constants.bounded_loss(drawn, epsilon) == pytest.approx(simulated, rel=0.02)
    assert constants.oracle_loss(drawn, epsilon) < constants.bounded_loss(drawn, epsilon)


def test_constants_approach_the_truth_and_a_mean_of_few_users_is_none():
    for task, loss in (("classification", constants.base_rate_loss), ("regression", constants.mean_loss)):
        drawn = sample.draw("small", task, 2_000, 0)
        truth = constants.user_means(drawn.test).mean()
        best = -truth * np.log(truth) - (1 - truth) * np.log1p(-truth) if task == "classification" else 1.0
        assert loss(drawn, 30.0, 0) == pytest.approx(best, abs=0.01)
    assert constants.mean_loss(sample.draw("small", "regression", 200, 0), 0.05, 0) is None


def test_ratios_are_to_what_answers_and_floored():
    found = ratios_to_constants([1.0, 3.0], {"mean": [0.1, None], "bounds": [1.0, 1.0], ORACLE: [0.5, 0.5]})
    assert found == {"ratio": 2.0, "ratio_to_oracle": 4.0}
    assert ratio_of_excess([-1.0, -1.0], [FLOOR / 2, 0.0]) == (1.0, 0.0)
    ratio, error = ratio_of_excess([0.3, 0.5], [0.1, 0.3])
    assert ratio == pytest.approx(2.0)
    assert error == pytest.approx(2 * np.hypot(0.1 / 0.4, 0.1 / 0.2))


def test_the_committed_page_is_made_from_the_rows_and_says_what_is_missing():
    rows = json.loads((RESULTS / "robustness.json").read_text())["rows"]
    add_ratios(rows)
    measured, every = {run.key(row) for row in rows}, list(run.experiments())
    assert measured <= set(every)
    missing = [key for key in every if key not in measured]
    assert (RESULTS / "robustness.md").read_text().startswith("\n".join(page(rows, missing)).rstrip())
