"""``userdp demo``: the embedded table from end to end."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.console import Group

import userdp
from userdp.cli import options
from userdp.cli.columns import Columns
from userdp.cli.display import Display
from userdp.cli.fit import MODEL_FILE, REPORT_FILE, Model, fit_table, write_model
from userdp.cli.output import new_folder
from userdp.cli.spending import spending
from userdp.cli.tables import bold, effects_table, plain_table, statement_text, titled
from userdp.data import Users, UserTable, load_flights, read_table
from userdp.privacy.budget import Budget
from userdp.report.numbers import measured

if TYPE_CHECKING:
    import polars as pl

    from userdp.estimators.linear_model import LinearModel

BUDGET = Budget(epsilon=1.0, delta=1e-6, unit="aircraft")
MEANS = {
    "dep_delay": "minutes",
    "arr_delay": "minutes",
    "hour": "of scheduled departure",
    "plane_age": "years",
}
_MIN_FLIGHTS = 5
# Timetables are public, so their values can be declared.
CATEGORIES: dict[str, list[Any]] = {
    "origin": ["EWR", "JFK", "LGA"],
    "month": list(range(1, 13)),
    "weekday": list(range(1, 8)),
    "hour": list(range(5, 24)),
    "carrier": [
        "UA",
        "B6",
        "EV",
        "DL",
        "AA",
        "MQ",
        "US",
        "9E",
        "WN",
        "VX",
        "FL",
        "AS",
        "F9",
        "YV",
        "HA",
        "OO",
    ],
}
NUMBERS = ["distance", "plane_age", "temp", "humid", "wind_speed", "precip", "visib"]
COLUMNS = Columns(
    user=["tailnum"],
    label="late",
    features=[*CATEGORIES, *NUMBERS],
    categories=CATEGORIES,
    other=[],
    classes=(0, 1),
)


@dataclass(frozen=True)
class Comparison:
    """How well the private model and an ordinary one rank the flights of aircraft that neither has seen."""

    private_auc: float
    ordinary_auc: float


def demo(
    out: Annotated[
        Path, typer.Option(rich_help_panel="Output", help="New folder for the model and its report.")
    ] = Path("userdp-demo"),
    overwrite: options.Overwrite = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Run the whole way on an embedded table: 327,346 flights of 4,037 aircraft, each aircraft a user.

    A private mean, then a private logistic regression of late arrivals beside scikit-learn's, tested on aircraft that
    neither has seen; the model and its report stay in a folder. Takes seconds.
    """
    display = Display(as_json, quiet)
    start = time.perf_counter()
    flights = load_flights()
    with new_folder(out, overwrite=overwrite) as draft:
        display.show(private_means(flights, display), "")
        train, test = split_by_user(flights)
        with spending(BUDGET, None, None, what="demo") as spend:
            model, statement = fit_table(
                read_table(train), COLUMNS, Model.logistic, BUDGET, {}, spend, None, display
            )
            write_model(draft, model, statement, "Late flights out of New York City, 2013")
        with display.stage("Fitting scikit-learn's model, which is not private"):
            compared = compare(model, COLUMNS.load(read_table(train)), COLUMNS.load(read_table(test)))
    seconds = time.perf_counter() - start
    record = {
        "private_auc": compared.private_auc,
        "ordinary_auc": compared.ordinary_auc,
        "seconds": round(seconds, 1),
        "model": str(out / MODEL_FILE),
        "report": str(out / REPORT_FILE),
        "privacy": model.privacy,
    }
    display.answer(
        record,
        effects_table(model, statement),
        "",
        _comparison_table(compared),
        "",
        statement_text(statement),
        "\nMean and model are two releases: together they cost epsilon = 2, delta = 2e-06.",
        f"{bold(out / MODEL_FILE)} and {bold(out / REPORT_FILE)} (open it in a browser), "
        f"after {seconds:.0f} seconds.",
    )


def private_means(flights: "pl.DataFrame", display: Display) -> Group:
    """Release some column means, and show them beside the exact ones: this table is public."""
    X, ids = flights.select(MEANS.keys()).to_numpy(), flights["tailnum"]
    with display.stage("Releasing private means"):
        release = userdp.mean(
            X,
            groups=ids,
            epsilon=BUDGET.epsilon,
            delta=BUDGET.delta,
            min_items=_MIN_FLIGHTS,
            unit=BUDGET.unit,
        )
    exact = np.nanmean(Users.from_rows(X, ids).means(_MIN_FLIGHTS), axis=0)
    promise = f"epsilon = {BUDGET.epsilon:g}, delta = {BUDGET.delta:g}"
    table = plain_table("column", "private mean", "noise (std)", "exact mean", "unit")
    columns = zip(MEANS.items(), release.value, release.noise_std.tolist(), exact, strict=True)
    for (name, unit), private, noise, truth in columns:
        table.add_row(
            name, measured(float(private), noise), f"{noise:.2g}", measured(float(truth), noise), unit
        )
    table.columns[-1].justify = "left"
    return titled(f"Means over aircraft with at least {_MIN_FLIGHTS} flights, {promise}", table)


def split_by_user(flights: "pl.DataFrame") -> "tuple[pl.DataFrame, pl.DataFrame]":
    """Set every fourth aircraft aside for the test, by the order of their tail numbers."""
    import polars as pl

    is_test = pl.col("tailnum").rank("dense") % 4 == 0
    return flights.filter(~is_test), flights.filter(is_test)


def compare(model: "LinearModel", train: UserTable, test: UserTable) -> Comparison:
    """Fit scikit-learn's logistic regression to the same rows; compare both on the test's."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    ordinary = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1_000))
    ordinary.fit(train.users.rows, train.targets)
    rows = test.users.rows
    return Comparison(
        private_auc=float(roc_auc_score(test.targets, model.decision(rows)[:, 0])),
        ordinary_auc=float(roc_auc_score(test.targets, ordinary.decision_function(rows))),
    )


def _comparison_table(compared: Comparison) -> Group:
    table = plain_table("model", "test AUC")
    table.add_row("userdp, private", f"[bold]{compared.private_auc:.3f}[/bold]")
    table.add_row("scikit-learn, not private", f"{compared.ordinary_auc:.3f}")
    return titled(
        "How well late flights are told from others (AUC; 0.5 is blind), on aircraft never seen before", table
    )
