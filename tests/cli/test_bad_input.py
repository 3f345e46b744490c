"""Whatever is wrong with the input: one line, code 2, nothing written, nothing spent; the same from Python.

Each case is a row: what the command line is given, what Python is given instead, and a part of the sentence that
both answer with.
"""

import json
import shlex
import sqlite3
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import userdp
from tests.cli.conftest import run
from userdp import InvalidInputError, PrivacyWarning
from userdp.data import load_users
from userdp.estimators.linear_model import LinearModel
from userdp.privacy.ledger import Ledger

FIT = "fit {data} --user patient --label back --features age --epsilon 1 --delta 1e-6 --out {out}"
MEAN = "mean {data} --user patient --columns age,stay --epsilon 1 --delta 1e-6 --out {out}"
X, IDS = np.zeros((40, 2)), np.repeat(np.arange(20), 2)


@dataclass(frozen=True)
class Case:
    """One way to be wrong."""

    name: str
    command: str
    python: Callable[[dict[str, Any]], object]
    says: str


def load(files: dict[str, Any], source: str = "data", **more: Any) -> object:
    return load_users(files[source], **{"user": "patient", "features": ["age"], "label": "back", **more})


def mean(files: dict[str, Any], **more: Any) -> object:
    return userdp.mean(**{"X": X, "groups": IDS, "epsilon": 1.0, "delta": 1e-6, **more})


def fit(estimator: str = "LogisticRegression", **more: Any) -> object:
    return getattr(userdp, estimator)(**more).fit(X, np.zeros(40), groups=IDS)


def reserve(path: Path, dataset: str = "patients", epsilon: float = 1.0) -> object:
    with Ledger(path, create=False, timeout=0.1) as book:
        return book.reserve(dataset, epsilon, 1e-6)


def edit(command: str, old: str, new: str) -> str:
    assert old in command
    return command.replace(old, new)


CASES = [
    # whose row is whose
    Case(
        "no such user column",
        edit(FIT, "patient", "patent"),
        lambda f: load(f, user="patent"),
        "did you mean",
    ),
    Case("null ids", edit(FIT, "{data}", "{null_ids}"), lambda f: load(f, "null_ids"), "null ids"),
    Case(
        "one user", edit(FIT, "{data}", "{one_user}"), lambda f: fit_one_user(f["one_user"]), "only one user"
    ),
    # budget
    Case(
        "epsilon zero", edit(FIT, "--epsilon 1", "--epsilon 0"), lambda f: fit(epsilon=0), "epsilon must be"
    ),
    Case(
        "epsilon nan",
        edit(MEAN, "--epsilon 1", "--epsilon nan"),
        lambda f: mean(f, epsilon=np.nan),
        "epsilon must",
    ),
    Case("delta one", edit(FIT, "1e-6", "1"), lambda f: fit(delta=1), "delta must lie"),
    Case("delta zero", edit(MEAN, "1e-6", "0"), lambda f: mean(f, delta=0.0), "delta must lie"),
    Case("too few users", edit(MEAN, "{data}", "{few}"), mean, "users are too few"),
    # columns
    Case("no such label", edit(FIT, "back", "bakc"), lambda f: load(f, label="bakc"), "did you mean 'back'"),
    Case(
        "no such feature",
        edit(FIT, "age", "height"),
        lambda f: load(f, features=["height"]),
        "no column 'height'",
    ),
    Case(
        "text feature",
        edit(FIT, "age", "ward"),
        lambda f: load(f, features=["ward"]),
        "declare the categories",
    ),
    Case("text label", edit(FIT, "back", "ward"), lambda f: load(f, label="ward"), "declare text"),
    Case(
        "csv without features",
        edit(FIT, "{data} --user patient --label back --features age", "{csv} --user patient --label back"),
        lambda f: load(f, "csv", features=None),
        "name the features",
    ),
    Case("one class", FIT + " --classes 1", lambda f: load(f, classes=[1]), "at least two classes"),
    Case(
        "other without categories",
        FIT + " --other age",
        lambda f: load(f, other=["age"]),
        "no categories are declared",
    ),
    Case(
        "svc with three classes",
        FIT + " --model svc --classes 0,1,2",
        lambda f: fit("LinearSVC", classes=(0, 1, 2)),
        "two classes",
    ),
    # settings
    Case("min items", FIT + " --min-items 0", lambda f: fit(min_items=0), "min_items must be"),
    Case("max items", FIT + " --max-items 0", lambda f: fit(max_items=0), "max_items must be"),
    Case(
        "quantile",
        FIT + " --model quantile --quantile 2",
        lambda f: fit("QuantileRegressor", quantile=2.0),
        "quantile",
    ),
    Case(
        "radius",
        MEAN + " --radius -1",
        lambda f: mean(f, X=np.zeros((400, 2)), groups=np.arange(400), radius=-1.0),
        "radius",
    ),
    Case("seed", MEAN + " --seed -1", lambda f: mean(f, random_state=-1), "a seed must be a whole number"),
    Case(
        "seed of a fit", FIT + " --seed -1", lambda f: fit(random_state=-1), "a seed must be a whole number"
    ),
    # files
    Case("no file", edit(FIT, "{data}", "{absent}"), lambda f: load(f, "absent"), "there is no file"),
    Case("empty file", edit(FIT, "{data}", "{empty}"), lambda f: load(f, "empty"), "is empty"),
    Case("no rows", edit(FIT, "{data}", "{no_rows}"), lambda f: load(f, "no_rows"), "has no rows"),
    Case("truncated file", edit(FIT, "{data}", "{truncated}"), lambda f: load(f, "truncated"), "cut short"),
    Case("not UTF-8", edit(FIT, "{data}", "{latin}"), lambda f: load(f, "latin"), "not UTF-8"),
    Case("unknown kind", edit(FIT, "{data}", "{unknown}"), lambda f: load(f, "unknown"), "unknown kind"),
    # models
    Case(
        "no model",
        "predict {absent} {data} --out {scores}",
        lambda f: LinearModel.load(f["absent"]),
        "cannot read the model",
    ),
    Case(
        "damaged model",
        "predict {damaged} {data} --out {scores}",
        lambda f: LinearModel.load(f["damaged"]),
        "damaged",
    ),
    Case(
        "newer model",
        "predict {newer} {data} --out {scores}",
        lambda f: LinearModel.load(f["newer"]),
        "install a newer",
    ),
    # ledgers
    Case(
        "over the limit",
        FIT + " --epsilon 2 --ledger {ledger} --dataset patients",
        lambda f: reserve(f["ledger"], epsilon=2.0),
        "over its limit",
    ),
    Case(
        "no limit",
        FIT + " --ledger {ledger} --dataset nobody",
        lambda f: reserve(f["ledger"], "nobody"),
        "has no limit",
    ),
    Case(
        "no ledger",
        FIT + " --ledger {absent} --dataset patients",
        lambda f: reserve(f["absent"]),
        "no such file",
    ),
    Case(
        "not a ledger",
        FIT + " --ledger {damaged} --dataset patients",
        lambda f: reserve(f["damaged"]),
        "not a ledger",
    ),
    # planning
    Case(
        "no users to plan for",
        "plan --users 0 --items 1 --features 1 --epsilon 1 --delta 1e-6",
        lambda f: userdp.plan(n_users=0, items_per_user=1, n_features=1, epsilon=1, delta=1e-6),
        "integer >= 1",
    ),
    Case(
        "target",
        "plan --users 9999 --items 9 --features 1 --epsilon 1 --delta 1e-6 --target 0",
        lambda f: userdp.plan(n_users=9999, items_per_user=9, n_features=1, epsilon=1, delta=1e-6).users_for(
            0
        ),
        "must be positive",
    ),
]


def fit_one_user(path: Path) -> object:
    users = load_users(path, user="patient", features=["age"], label="back").users
    return userdp.LogisticRegression().fit(users.rows, users.targets, groups=np.zeros(len(users.rows)))


@pytest.fixture
def files(tmp_path: Path, data: Path, visits: pl.DataFrame, ledger: Path) -> dict[str, Path]:
    names = "out absent empty.parquet truncated.parquet latin.csv unknown.xlsx visits.csv null_ids.parquet few.parquet"
    paths = {name.partition(".")[0]: tmp_path / name for name in names.split()}
    paths |= {"csv": paths["visits"], "scores": tmp_path / "scores.parquet", "ledger": ledger, "data": data}
    paths |= {name: tmp_path / f"{name}.parquet" for name in ("one_user", "no_rows")}
    paths |= {name: tmp_path / f"{name}.json" for name in ("damaged", "newer")}
    paths["folder"] = tmp_path
    paths["empty"].touch()
    paths["unknown"].write_text("x")
    paths["truncated"].write_bytes(data.read_bytes()[:-100])
    paths["latin"].write_bytes("patient,age,back\nJos\u00e9,1,0\n".encode("latin-1"))
    paths["damaged"].write_text('{"format": "userdp-model", "ver')
    paths["newer"].write_text(json.dumps({"format": "userdp-model", "version": 99}))
    visits.write_csv(paths["csv"])
    visits.head(3).with_columns(patient=pl.Series(["a", None, "b"])).write_parquet(paths["null_ids"])
    visits.head(100).write_parquet(paths["few"])
    visits.head(5).write_parquet(paths["one_user"])
    visits.clear().write_parquet(paths["no_rows"])
    return paths


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_command_line(case: Case, files: dict[str, Path], tmp_path: Path, ledger: Path, spent: Any) -> None:
    before = sorted(path.name for path in tmp_path.iterdir())
    result = run(*shlex.split(case.command.format(**files)))
    assert result.exit_code == 2
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ")
    assert case.says in line
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    assert spent(ledger) == 0


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_python(case: Case, files: dict[str, Path], ledger: Path, spent: Any) -> None:
    with pytest.raises(InvalidInputError) as refusal:
        case.python(files)
    assert case.says in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert spent(ledger) == 0


# --- cases that only one side can have --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ("fit", "Missing argument 'DATA'"),
        ("fit x.parquet --label y", "Missing option '--user'"),
        ("fit {data} --model forest", "'forest' is not one of"),
        ("mean {data} --epsilon much", "should be a valid number"),
        ("fly", "No such command 'fly'"),
        ("ledger", "Missing command"),
        ("audit sleeping", "expected one of clipped"),
        ("audit clipped --trials 100 --seed -1", "a seed must be a whole number"),
        (FIT + " --ledger {ledger}", "go together"),
        (FIT + " --categories ward", "expected --categories COLUMN=A,B"),
        (FIT + " --categories ward=a,,b", "separated by commas"),
        (FIT + " --categories ward=a --categories ward=b", "twice"),
        (FIT + " --model linear --classes 0,1", "is for classifiers"),
        (edit(FIT, "age", "ward"), "as in --categories 'ward=A,B', or leave the column out: --features, "),
        (edit(FIT, "{data}", "{csv}").replace("--features age", ""), "with --features: "),
        (FIT + " --classes 1", "--classes no,yes, or choose --model linear"),
        (edit(FIT, "back", "ward") + " --model linear", "(--model logistic) and declare --classes"),
        (FIT + " --model linear --quantile 0.9", "--quantile is for --model quantile"),
        (FIT + " --quantile 0.5", "--quantile is for --model quantile"),
        (FIT + " --other age,ward", "other names 'age', 'ward', for which no categories"),
        (FIT + " --other age --other ward,age", "other names 'age', 'ward', for which no categories"),
        (edit(FIT, "{out}", "{absent}/model"), "create it first"),
        (edit(FIT, "{out}", "{folder}"), "exists already"),
        (edit(FIT, "{out}", "{empty}"), "is a file"),
        ("predict {damaged} {data} --out scores.xlsx", ".parquet or .csv"),
        ("predict {model} {data} --out {scores} --keep patient,age,patient", "keep names 'patient' twice"),
    ],
)
def test_usage(args: str, says: str, files: dict[str, Path], model: Path) -> None:
    result = run(*shlex.split(args.format(**files, model=model)))
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert says in line


def test_no_groups_in_python() -> None:
    with pytest.raises(InvalidInputError, match="groups is missing"):
        userdp.mean(X, groups=None, epsilon=1.0, delta=1e-6)
    with pytest.raises(InvalidInputError, match="groups is missing"):
        userdp.LogisticRegression().fit(X, np.zeros(40))


@pytest.mark.parametrize(("shape", "groups"), [((40,), IDS), ((40, 2), IDS[:-1]), ((0, 2), IDS[:0])])
def test_wrong_shapes_in_python(shape: tuple[int, ...], groups: Any) -> None:
    with pytest.raises(InvalidInputError):
        userdp.mean(np.zeros(shape), groups=groups, epsilon=1.0, delta=1e-6)


def test_a_locked_ledger(files: dict[str, Path], ledger: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ledger.__init__, "__kwdefaults__", {"create": True, "timeout": 0.1})
    other = sqlite3.connect(ledger, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(InvalidInputError, match="keeps it locked"):
        reserve(ledger)
    result = run(*shlex.split((FIT + " --ledger {ledger} --dataset patients").format(**files)))
    other.close()
    assert result.exit_code == 2
    assert "keeps it locked" in result.stderr
    assert not files["out"].exists()


@pytest.mark.parametrize(
    ("budget", "says"),
    [
        ("--epsilon 12 --delta 1e-6", "promises next to nothing"),
        ("--epsilon 1 --delta 0.5", "at least 1 / 400"),
    ],
)
def test_weak_budgets_get_one_line_of_warning(budget: str, says: str, data: Path) -> None:
    result = run("mean", data, "--user", "patient", "--columns", "age", *budget.split())
    assert result.exit_code == 0
    (line,) = result.stderr.splitlines()
    assert line.startswith("warning: ")
    assert says in line
    epsilon, delta = map(float, budget.split()[1::2])
    with pytest.warns(PrivacyWarning, match=says), warnings.catch_warnings():
        userdp.mean(np.zeros((400, 1)), groups=np.arange(400), epsilon=epsilon, delta=delta)
