"""How a fit sorts its coefficients before it descends."""

import numpy as np
import pytest

from userdp.data.users import Users
from userdp.estimators import descending, fitting
from userdp.estimators.descending import coordinates_of
from userdp.estimators.fitting import Options, Task
from userdp.estimators.rows import Columns
from userdp.mechanisms.noise import SeededNoise
from userdp.privacy.budget import Budget
from userdp.problems import Squared


def columns(*scales):
    return Columns(
        np.zeros(len(scales)), np.array(scales), np.ones(len(scales)), np.linspace(1.0, 2.0, len(scales))
    )


def test_numbers_and_booleans_are_of_different_kinds():
    parts, importance, _ = coordinates_of(
        columns(1.0, 2.0, np.inf, 1.0), np.array([False, True, True, True]), True, 1
    )
    assert parts.tolist() == [[True, False, False, False, True], [False, True, False, True, False]]
    assert importance == pytest.approx([1.0, 4 / 3, 5 / 3, 2.0, 1.0])


def test_less_is_expected_of_a_kind_whose_columns_were_dropped():
    """Else the signal of all numbers would be looked for in the intercept, where nothing but noise is."""
    booleans = np.array([False, False, False, True])
    for scale, shares in ((1.0, [0.5, 0.5]), (np.inf, [0.5 / (1 + 1 + 4 / 3 + 5 / 3), 0.5])):
        found = coordinates_of(columns(scale, scale, scale, 1.0), booleans, True, 2)[2]
        assert found == pytest.approx(shares)
    assert coordinates_of(columns(np.inf, np.inf, np.inf, 1.0), booleans, False, 1)[2] == pytest.approx([0.5])
    assert coordinates_of(columns(1.0, 1.0), booleans[:2], True, 1)[2] == pytest.approx([1.0])


@pytest.mark.parametrize("is_boolean", [False, True])
def test_a_kind_that_does_not_occur_has_no_part(is_boolean):
    parts, _, _ = coordinates_of(columns(1.0, 1.0), np.full(2, is_boolean), False, 3)
    assert parts.tolist() == [[True] * 6]
    dropped, *_ = coordinates_of(columns(np.inf, np.inf), np.full(2, is_boolean), False, 3)
    assert dropped.shape == (0, 6)


def test_booleans_that_say_nothing_are_not_believed_because_numbers_say_much(monkeypatch):
    """Else a handful of rare indicators would be fitted to noise."""
    rng, learned = np.random.default_rng(0), []
    numbers, rare = rng.normal(size=(20_000, 3)), rng.random(size=(20_000, 3)) < 0.05
    y = 2 * numbers[:, 0] + rng.normal(size=20_000)
    users = Users(np.hstack([numbers, rare]), np.arange(0, 20_001, 4), y)
    descent = descending.descent

    def watched(groups, *arguments, **options):
        learned.append([group.variance for group in groups])
        return descent(groups, *arguments, **options)

    monkeypatch.setattr(descending, "descent", watched)
    options = Options(booleans=(False,) * 3 + (True,) * 3)
    fitting.fit(users, Task(Squared(), curvature=1.0), Budget(2.0, 1e-6), options, SeededNoise(0))
    of_numbers, of_booleans = learned[0]
    assert of_booleans < 0.1 * of_numbers


def test_strong_coefficients_are_led_to_their_end_and_the_intercept_is_not(monkeypatch):
    """A ridge and little time take a third of the way here; what is left of the noise says that it was there."""
    rng, seen = np.random.default_rng(0), []
    numbers = rng.normal(size=(2_000, 3))
    users = Users(numbers, np.arange(0, 2_001, 4), numbers @ [1.0, -1.0, 1.0] + 0.1 * rng.normal(size=2_000))
    calibrate, minimum = descending.calibrate, descending.descent

    def hurried(groups, noise, **options):
        return minimum(groups, noise, **options | {"rounds": 12})

    def watched(adjustable, oracle, start, point, *rest, **options):
        seen.append(point)
        return calibrate(adjustable, oracle, start, point, *rest, **options)

    monkeypatch.setattr(descending, "descent", hurried)
    monkeypatch.setattr(descending, "calibrate", watched)
    run = descending.DPSGD.run

    def noted(self, *arguments, **options):
        solution = run(self, *arguments, **options)
        seen.append(solution.point)
        return solution

    monkeypatch.setattr(descending.DPSGD, "run", noted)
    fitting.fit(users, Task(Squared(), curvature=1.0), Budget(8.0, 1e-6), Options(), SeededNoise(0))
    found, longer = seen
    assert np.all(longer[:3] / found[:3] > 1.05)
    assert longer[3] == found[3]
