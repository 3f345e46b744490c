"""``userdp fit`` elsewhere than in memory, and after an interruption."""

import json

import numpy as np
import polars as pl
import pytest

from tests.cli.conftest import BUDGET, FIT, run
from userdp.cli.spending import spending
from userdp.privacy.budget import Budget
from userdp.privacy.ledger import Ledger


def fit(data, out, *more):
    return run("fit", data, *FIT, "--other", "ward", *BUDGET, "--out", out, *more)


class InterruptedRunError(Exception):
    pass


def test_an_interrupted_fit_goes_on_and_pays_once(data, tmp_path, ledger, monkeypatch):
    from userdp.optimizers.checkpoint import RoundFile

    arguments = ("--checkpoint", tmp_path / "run", "--ledger", ledger, "--dataset", "patients")
    with monkeypatch.context() as interruption:

        def save(self, done, carry):
            raise InterruptedRunError

        interruption.setattr(RoundFile, "save", save)
        with pytest.raises(InterruptedRunError):
            fit(data, tmp_path / "model", *arguments)
    assert (tmp_path / "run" / "SENSITIVE").exists()
    assert not (tmp_path / "model").exists()
    result = fit(data, tmp_path / "model", *arguments)
    assert result.exit_code == 0, result.stderr
    assert not (tmp_path / "run").exists()
    with Ledger(ledger, create=False) as book:
        (account,) = book.status("patients")
    (entry,) = account.entries
    assert entry.released_at is not None
    # The run is over: the same command again is another release, and over the limit.
    again = fit(data, tmp_path / "again", *arguments)
    assert again.exit_code == 2
    assert "over its limit" in again.stderr


def test_an_interrupted_fit_does_not_go_on_with_other_data(data, tmp_path, monkeypatch):
    from userdp.optimizers.checkpoint import RoundFile

    with monkeypatch.context() as interruption:

        def save(self, done, carry):
            raise InterruptedRunError

        interruption.setattr(RoundFile, "save", save)
        with pytest.raises(InterruptedRunError):
            fit(data, tmp_path / "model", "--checkpoint", tmp_path / "run")
    other = tmp_path / "other.parquet"
    pl.read_parquet(data).with_columns(age=pl.col("age") + 1e-6).write_parquet(other)
    result = fit(other, tmp_path / "model", "--checkpoint", tmp_path / "run")
    assert result.exit_code == 2
    assert "other data" in result.stderr


@pytest.mark.parametrize(
    "wrong",
    [
        ("--label", "nothing"),
        ("--epsilon", "2", "--ledger", "{ledger}", "--dataset", "patients"),
        ("--epsilon", "2", "--ledger", "{ledger}", "--dataset", "patients", "--max-items", "2"),
        ("--ledger", "{ledger}", "--dataset", "nobody"),
    ],
)
def test_a_fit_that_is_refused_leaves_no_checkpoint(data, tmp_path, ledger, wrong):
    before = sorted(path.name for path in tmp_path.iterdir())
    options = [option.format(ledger=ledger) for option in wrong]
    result = fit(data, tmp_path / "model", *options, "--checkpoint", tmp_path / "run")
    assert result.exit_code == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_a_refusal_keeps_the_folder_of_an_earlier_run(data, tmp_path):
    with spending(Budget(1.0, 1e-6), None, None, "fit", tmp_path / "run"):
        pass
    result = fit(tmp_path / "absent.parquet", tmp_path / "model", "--checkpoint", tmp_path / "run")
    assert result.exit_code == 2
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["run.npz"]


@pytest.mark.parametrize("more", [(), ("--max-items", "2"), ("--model", "linear", "--label", "stay")])
def test_a_table_sorted_on_disk_gives_the_same_model(data, tmp_path, more):
    scratch = tmp_path / "scratch"
    for name, where in (("here", ()), ("disk", ("--scratch", scratch))):
        result = fit(data, tmp_path / name, "--seed", "0", *where, *more)
        assert result.exit_code == 0, result.stderr
    one, two = (json.loads((tmp_path / name / "model.json").read_text()) for name in ("here", "disk"))
    for model in (one, two):
        model["details"].pop("released_at")
    assert one == two
    assert list(scratch.iterdir()) == []


def test_an_interrupted_fit_from_disk_goes_on_and_leaves_nothing(data, tmp_path, monkeypatch):
    from userdp.optimizers.checkpoint import RoundFile

    arguments = ("--checkpoint", tmp_path / "run", "--scratch", tmp_path / "scratch", "--seed", "0")
    with monkeypatch.context() as interruption:

        def save(self, done, carry):
            raise InterruptedRunError

        interruption.setattr(RoundFile, "save", save)
        with pytest.raises(InterruptedRunError):
            fit(data, tmp_path / "model", *arguments)
    assert list((tmp_path / "scratch").iterdir()) == []
    assert fit(data, tmp_path / "model", *arguments).exit_code == 0
    assert fit(data, tmp_path / "whole", "--seed", "0").exit_code == 0
    one, two = (json.loads((tmp_path / name / "model.json").read_text()) for name in ("model", "whole"))
    assert one["coefficients"] == two["coefficients"]


def test_a_named_device_gives_the_same_model(data, tmp_path):
    for name, more in (("here", ()), ("cpu", ("--device", "cpu"))):
        assert fit(data, tmp_path / name, "--seed", 1, *more).exit_code == 0
    models = [json.loads((tmp_path / name / "model.json").read_text()) for name in ("here", "cpu")]
    assert models[0]["coefficients"] == models[1]["coefficients"]


def test_rounded_features_give_nearly_the_same_model(data, tmp_path):
    for name in ("float32", "float16", "int8"):
        assert fit(data, tmp_path / name, "--seed", 1, "--storage", name).exit_code == 0
    exact, *rounded = (
        json.loads((tmp_path / name / "model.json").read_text())["coefficients"]
        for name in ("float32", "float16", "int8")
    )
    for coefficients in rounded:
        assert coefficients != exact
        np.testing.assert_allclose(coefficients, exact, atol=0.02 * np.abs(exact).max())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--engine", "ray", "--storage", "int8"), "--engine local"),
        (("--scratch", "somewhere", "--storage", "int8"), "users in memory"),
        (("--device", "gpu", "--storage", "int8"), "for a CPU"),
        (("--address", "auto"), "--engine ray"),
        (("--workers", "2"), "--workers goes with --engine ray"),
        (("--engine", "ray", "--device", "gpu"), "--engine local"),
        (("--engine", "ray", "--workers", "0"), "workers"),
        (("--checkpoint", "no/such/folder"), "cannot use"),
    ],
)
def test_bad_options(data, tmp_path, options, message):
    result = fit(data, tmp_path / "model", *options)
    assert result.exit_code == 2
    assert message in result.stderr
