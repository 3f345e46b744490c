"""Reports are made after the budget is spent: nothing about them may cost the release."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import userdp
from tests.cli.conftest import BUDGET, run
from userdp.cli.reports import mean_report
from userdp.errors import InvalidInputError
from userdp.means import MeanRelease, certified
from userdp.privacy import Budget


def release(n_users: int, epsilon: float = 1.0) -> MeanRelease:
    """Return what a mean of that many users would be, without having them."""
    mean = certified.calibrate(1.0, n_users, 2, Budget(epsilon, 1e-9), gate="gaussian")
    statement = mean.statement(n_users, seeded=False)
    return MeanRelease(np.zeros(2), np.full(2, mean.noise_std(n_users)), 1.0, np.ones(2), statement)


@pytest.mark.parametrize("n_users", [6_000_000, 12_000_000])
def test_more_users_than_the_lattice_holds_are_left_out_of_the_curve(n_users: int) -> None:
    with pytest.raises(InvalidInputError, match="exact 64-bit sums"):
        release(4 * n_users)
    curves = mean_report(release(n_users), ("a", "b"), "title").error_curves
    assert len(curves) == 3
    for curve in curves:
        assert max(point.n_users for point in curve.points) < 4 * n_users
        assert n_users in [point.n_users for point in curve.points]


def test_a_budget_that_cannot_be_doubled_is_left_out() -> None:
    small = release(1_000)
    statement = dataclasses.replace(small.privacy, epsilon=1.2e308)
    mean_report(dataclasses.replace(small, privacy=statement), ("a", "b"), "title")


def test_a_report_that_cannot_be_made_does_not_cost_the_release(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError

    monkeypatch.setattr("userdp.cli.mean.mean_report", broken)
    monkeypatch.setattr("userdp.cli.fit.model_report", broken)
    mean = ("mean", data, "--user", "patient", "--columns", "age", "--seed", 0, *BUDGET)
    fit = ("fit", data, "--user", "patient", "--label", "back", "--features", "age", *BUDGET)
    for command, file in ((mean, "mean.json"), (fit, "model.json")):
        out = tmp_path / str(command[0])
        result = run(*command, "--out", out)
        assert result.exit_code == 0
        assert "no report could be made (RuntimeError)" in result.stderr
        assert [path.name for path in out.iterdir()] == [file]
        assert json.loads((out / file).read_text())["privacy"]


def test_the_radius_is_called_what_it_is(visits: pl.DataFrame) -> None:
    X, ids = visits.select("age", "stay").to_numpy(), visits["patient"]
    for radius, words in ((None, "around a private centre"), (60.0, "lie of each other")):
        found = userdp.mean(X, groups=ids, epsilon=4.0, delta=1e-6, radius=radius, random_state=0)
        facts = dict(mean_report(found, ("age", "stay"), "title").facts)
        assert words in facts["radius"]
