"""A small table, the command line as a function, and one model that several tests read."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner, Result

from userdp.cli import app

N_USERS, ITEMS = 400, 5
BUDGET = ("--epsilon", "1", "--delta", "1e-6")


@pytest.fixture(scope="session")
def visits() -> pl.DataFrame:
    rng = np.random.default_rng(0)
    n = N_USERS * ITEMS
    age, ward = rng.normal(5.0, 10.0, n), rng.choice(["north", "south", "east"], n)
    return pl.DataFrame(
        {
            "patient": np.repeat([f"p{j}" for j in range(N_USERS)], ITEMS),
            "age": age,
            "ward": ward,
            "stay": 3 + 0.1 * age + rng.normal(size=n),
            "back": (age + rng.normal(0.0, 5.0, n) > 5).astype(np.int64),
        }
    )


@pytest.fixture(scope="session")
def data(visits: pl.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "visits.parquet"
    visits.write_parquet(path)
    return path


def run(*args: object) -> Result:
    return CliRunner().invoke(app, [str(arg) for arg in args], prog_name="userdp", catch_exceptions=False)


FIT = ("--user", "patient", "--label", "back", "--features", "age,ward", "--categories", "ward=north,south")


@pytest.fixture(scope="session")
def model(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("fitted") / "model"
    result = run("fit", data, *FIT, "--other", "ward", *BUDGET, "--out", out)
    assert result.exit_code == 0, result.stderr
    return out


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    path = tmp_path / "budget.db"
    assert run("ledger", "limit", path, "patients", "--epsilon", "1", "--delta", "1e-5").exit_code == 0
    return path


@pytest.fixture
def spent() -> Callable[[Path], float]:
    from userdp.privacy.ledger import Ledger

    def of(path: Path) -> float:
        with Ledger(path, create=False) as book:
            return float(book.status("patients")[0].spent.epsilon)

    return of
