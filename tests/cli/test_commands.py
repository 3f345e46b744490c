"""What each command prints and leaves behind."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import userdp
from tests.cli.conftest import BUDGET, FIT, N_USERS, run
from userdp.cli.demo import split_by_user
from userdp.data import load_flights
from userdp.estimators.linear_model import LinearModel
from userdp.planning.expected import expected_excess_loss, users_for
from userdp.privacy import Budget

WARDS = ("north", "south", "east")


def test_fit_leaves_a_model_and_a_report(model: Path) -> None:
    assert sorted(path.name for path in model.iterdir()) == ["model.json", "report.html"]
    fitted = LinearModel.load(model / "model.json")
    assert fitted.feature_names == ("age", "ward=north", "ward=south", "ward=(other)")
    assert fitted.classes == (0, 1)
    assert fitted.privacy["certified"]
    assert not fitted.privacy["seeded"]
    page = (model / "report.html").read_text(encoding="utf-8")
    assert "ward=(other)" in page
    assert "protects nobody" not in page
    assert "What more users would bring" in page


def test_the_model_has_learned_what_the_data_say(model: Path, data: Path, tmp_path: Path) -> None:
    assert run("predict", model, data, "--out", tmp_path / "s.parquet", "--keep", "back").exit_code == 0
    scores = pl.read_parquet(tmp_path / "s.parquet")
    assert scores.columns == ["back", "prediction", "probability"]
    assert (scores["prediction"] == scores["back"]).mean() > 0.8


def test_a_row_with_a_missing_feature_has_no_score(model: Path, visits: pl.DataFrame, tmp_path: Path) -> None:
    rows = visits.head(4).with_columns(age=pl.Series([50.0, None, np.inf, np.nan]))
    rows.write_parquet(tmp_path / "new.parquet")
    for name in ("s.csv", "s.parquet"):
        result = run("predict", model, tmp_path / "new.parquet", "--out", tmp_path / name, "--json")
        assert json.loads(result.stdout) == {"scores": str(tmp_path / name), "rows": 4}
    written = pl.read_parquet(tmp_path / "s.parquet")
    assert written["probability"].is_null().to_list() == [False, True, True, True]
    assert written["prediction"].is_null().to_list() == [False, True, True, True]
    assert pl.read_csv(tmp_path / "s.csv")["probability"].is_null().to_list() == [False, True, True, True]


def test_predictions_come_in_batches_and_in_order(model: Path, tmp_path: Path) -> None:
    n = 3 * 2**16
    rows = pl.DataFrame({"id": range(n), "age": np.linspace(0, 100, n), "ward": ["east"] * n})
    rows.write_parquet(tmp_path / "long.parquet")
    for name in ("s.csv", "s.parquet"):
        args = ("--out", tmp_path / name, "--keep", "id", "--quiet")
        result = run("predict", model, tmp_path / "long.parquet", *args)
        assert (result.exit_code, result.output) == (0, "")
    parquet, csv = pl.read_parquet(tmp_path / "s.parquet"), pl.read_csv(tmp_path / "s.csv")
    assert parquet["id"].to_list() == csv["id"].to_list() == list(range(n))
    assert np.allclose(parquet["probability"], csv["probability"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["long.parquet", "s.csv", "s.parquet"]


def test_scores_do_not_replace_a_kept_column(model: Path, data: Path, tmp_path: Path) -> None:
    pl.read_parquet(data).with_columns(prediction=0).write_parquet(tmp_path / "new.parquet")
    result = run(
        "predict", model, tmp_path / "new.parquet", "--out", tmp_path / "s.csv", "--keep", "prediction"
    )
    assert result.exit_code == 2
    assert "rename the column" in result.stderr


@pytest.mark.parametrize("classes", ["0,1", "0,1,2"])
def test_a_table_without_rows_gets_columns_without_rows(
    classes: str, data: Path, visits: pl.DataFrame, tmp_path: Path
) -> None:
    model = tmp_path / "model"
    assert run("fit", data, *FIT, "--classes", classes, *BUDGET, "--out", model).exit_code == 0
    visits.clear().write_parquet(tmp_path / "none.parquet")
    visits.clear().write_csv(tmp_path / "none.csv")
    for source in ("none.parquet", "none.csv"):
        for name in ("s.csv", "s.parquet"):
            more = ("--out", tmp_path / name, "--keep", "patient,stay", "--overwrite", "--json")
            result = run("predict", model, tmp_path / source, *more)
            assert json.loads(result.stdout)["rows"] == 0
        written = pl.read_parquet(tmp_path / "s.parquet")
        assert written.columns[:3] == ["patient", "stay", "prediction"]
        assert len(written.columns) == (4 if classes == "0,1" else 6)
        assert written.is_empty()
        assert pl.read_csv(tmp_path / "s.csv").columns == written.columns


@pytest.mark.parametrize(
    "encoding",
    [
        None,
        [],
        {},
        {"features": ["age"], "speed": 1},
        {"features": "age"},
        {"features": [1, 2]},
        {"features": ["age"], "categories": ["a"]},
        {"features": ["age"], "categories": {"age": 3}},
        {"features": ["age", "stay"]},
    ],
)
def test_a_model_file_that_misreads_its_columns(
    encoding: Any, model: Path, data: Path, tmp_path: Path
) -> None:
    record = json.loads((model / "model.json").read_text())
    record["details"]["encoding"] = encoding
    (tmp_path / "model.json").write_text(json.dumps(record))
    result = run("predict", tmp_path / "model.json", data, "--out", tmp_path / "s.csv")
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert "the model file is damaged" in line
    assert not (tmp_path / "s.csv").exists()


@pytest.mark.parametrize(
    ("options", "columns"),
    [
        (("--label", "ward", "--classes", "north,south,east"), [f"probability={w}" for w in WARDS]),
        (("--label", "back", "--model", "svc"), ["score"]),
        (("--label", "stay", "--model", "quantile", "--quantile", "0.9"), []),
    ],
    ids=["three classes", "svc", "quantile"],
)  # fmt: skip
def test_other_models(options: tuple[str, ...], columns: list[str], data: Path, tmp_path: Path) -> None:
    out = tmp_path / "model"
    args = ("--user", "patient", "--features", "age", *BUDGET, "--out", out, "--seed", "0", "--json")
    result = run("fit", data, *options, *args)
    assert result.exit_code == 0, result.stderr
    record = json.loads(result.stdout)
    assert record["privacy"]["seeded"]
    assert "protects nobody" in (out / "report.html").read_text(encoding="utf-8")
    assert run("predict", out, data, "--out", tmp_path / "s.parquet").exit_code == 0
    assert pl.read_parquet(tmp_path / "s.parquet").columns == ["prediction", *columns]


def test_a_csv_file_gives_the_same_model(visits: pl.DataFrame, data: Path, tmp_path: Path) -> None:
    csv = tmp_path / "visits.csv"
    visits.sort("patient", maintain_order=True).write_csv(csv)
    for source, out in ((data, tmp_path / "a"), (csv, tmp_path / "b")):
        assert run("fit", source, *FIT, "--other", "ward", *BUDGET, "--seed", 1, "--out", out).exit_code == 0
    one, other = (LinearModel.load(tmp_path / name / "model.json") for name in "ab")
    assert np.array_equal(one.coefficients, other.coefficients)


def test_an_existing_folder_is_only_overwritten_on_request(model: Path, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "model"
    out.mkdir()
    (out / "notes.txt").write_text("mine")
    args = ("mean", data, "--user", "patient", "--columns", "age", *BUDGET, "--seed", 0, "--out", out)
    assert run(*args).exit_code == 2
    assert run(*args, "--overwrite").exit_code == 0
    assert sorted(path.name for path in out.iterdir()) == ["mean.json", "notes.txt", "report.html"]


def test_mean(data: Path, visits: pl.DataFrame, tmp_path: Path) -> None:
    args = ("mean", data, "--user", "patient", "--columns", "age,stay", "--seed", 0, *BUDGET)
    result = run(*args, "--json", "--out", tmp_path / "out")
    record = json.loads(result.stdout)
    assert record == json.loads((tmp_path / "out" / "mean.json").read_text())
    assert abs(record["mean"]["age"] - visits["age"].mean()) < 6 * record["noise_std"]["age"]  # type: ignore[operator]
    shown = run(*args)
    assert "private mean" in shown.stdout
    assert f"{N_USERS} in all" in shown.stdout


def test_a_mean_of_users_who_do_not_agree(tmp_path: Path, ledger: Path, spent: Any) -> None:
    wide = pl.DataFrame({"patient": range(N_USERS), "x": 10.0 ** np.arange(N_USERS).clip(0, 300)})
    wide.write_parquet(tmp_path / "wide.parquet")
    args = ("--user", "patient", "--columns", "x", *BUDGET, "--radius", "1e-3", "--out", tmp_path / "out")
    result = run("mean", tmp_path / "wide.parquet", *args, "--ledger", ledger, "--dataset", "patients")
    assert result.exit_code == 3
    (line,) = result.stderr.splitlines()
    assert "not concentrated" in line
    assert line.count("the budget is spent") == 1
    assert not (tmp_path / "out").exists()
    assert spent(ledger) == 1


def test_the_ledger_follows_a_release(data: Path, ledger: Path, spent: Any) -> None:
    args = (
        "mean",
        data,
        "--user",
        "patient",
        "--columns",
        "age",
        "--radius",
        "80",
        "--epsilon",
        "0.7",
        "--delta",
        "1e-6",
    )
    booked = ("--ledger", ledger, "--dataset", "patients")
    assert run(*args, *booked).exit_code == 0
    assert spent(ledger) == 0.7
    refused = run(*args, *booked)
    assert refused.exit_code == 2
    assert f"userdp ledger limit {ledger} patients --epsilon E --delta D" in refused.stderr
    assert spent(ledger) == 0.7
    (account,) = json.loads(run("ledger", "show", ledger, "--json").stdout)["datasets"]
    assert account["remaining"]["epsilon"] == "0.3"
    (release,) = account["releases"]
    assert release["what"] == "mean"
    assert release["released_at"]
    assert "0.7, 0.000001" in run("ledger", "show", ledger, "patients").stdout


def test_plan() -> None:
    args = ("plan", "--users", 10_000, "--items", 100, "--features", 50, *BUDGET)
    record = json.loads(run(*args, "--target", "0.001", "--json").stdout)
    budget = Budget(1.0, 1e-6)
    assert record["expected_error"] == expected_excess_loss(10_000, 100, 50, budget)
    assert record["users_for_target"] == users_for(0.001, 100, 50, budget)
    assert record["finds_units"]
    shown = run(*args).stdout
    assert "█" in shown
    assert max(map(len, shown.splitlines())) <= 100
    assert "expect a base rate" in run("plan", "--users", 50, "--items", 9, "--features", 50, *BUDGET).stdout
    assert run("plan", "--users", 0, "--items", 9, "--features", 50, *BUDGET).exit_code != 0


def test_audit() -> None:
    record = json.loads(run("audit", "clipped", "--trials", 400, "--json").stdout)
    (found,) = record["audits"]
    assert found["mechanism"] == "clipped mean"
    assert 0 <= found["proven"] <= found["claimed"] == 1


def test_an_audit_that_goes_over_a_claim_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("userdp.audit.auditing.lower_bound", lambda *args: 1.5)
    result = run("audit", "clipped", "--trials", 100)
    assert result.exit_code == 1
    assert "NO" in result.stdout


def test_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    aircraft = load_flights().filter(pl.col("tailnum").rank("dense") % 5 == 0)
    sample = aircraft.group_by("tailnum", maintain_order=True).head(16)  # one length: one compilation
    monkeypatch.setattr("userdp.cli.demo.load_flights", lambda: sample)
    result = run("demo", "--out", tmp_path / "demo", "--json")
    assert result.exit_code == 0, result.stderr
    record = json.loads(result.stdout)
    assert 0 < record["private_auc"] < 0.75
    assert 0.6 < record["ordinary_auc"] < 0.75
    assert sorted(path.name for path in (tmp_path / "demo").iterdir()) == ["model.json", "report.html"]


def test_the_demo_tests_on_aircraft_it_has_not_seen() -> None:
    train, test = (set(part["tailnum"]) for part in split_by_user(load_flights()))
    assert not train & test
    assert len(train | test) == 4037


def test_help_and_version() -> None:
    assert run("--version").stdout.strip() == userdp.__version__
    assert run().stdout == run("--help").stdout
    for command in ("fit", "predict", "mean", "plan", "audit", "demo"):
        result = run(command, "--help")
        assert result.exit_code == 0
        assert f"userdp {command}" in result.stdout
