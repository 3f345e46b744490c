"""``userdp fit``: a table becomes a private model and its report."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import userdp
from userdp.cli import options
from userdp.cli.columns import Columns, fit_users, users_of
from userdp.cli.display import Display
from userdp.cli.engines import (
    Address,
    CheckpointFolder,
    DeviceOption,
    EngineName,
    EngineOption,
    Scratch,
    StorageName,
    StorageOption,
    Workers,
    engine_of,
)
from userdp.cli.output import new_folder
from userdp.cli.reading import open_table
from userdp.cli.reports import leave_report, model_report
from userdp.cli.spending import Spending, spending
from userdp.cli.tables import bold, effects_table, statement_text
from userdp.data import Table
from userdp.errors import InvalidInputError
from userdp.privacy.budget import Budget
from userdp.privacy.statement import PrivacyStatement

if TYPE_CHECKING:
    from userdp.estimators.linear_model import LinearModel

MODEL_FILE, REPORT_FILE = "model.json", "report.html"


class Model(StrEnum):
    """What ``--model`` may say."""

    logistic = "logistic"
    linear = "linear"
    svc = "svc"
    huber = "huber"
    quantile = "quantile"

    @property
    def estimator(self) -> str:
        """The name of the estimator in ``userdp``."""
        return _ESTIMATORS[self]

    @property
    def is_classifier(self) -> bool:
        """Whether the label is a class, and not a number."""
        return self in (Model.logistic, Model.svc)


_ESTIMATORS = {
    Model.logistic: "LogisticRegression",
    Model.linear: "LinearRegression",
    Model.svc: "LinearSVC",
    Model.huber: "HuberRegressor",
    Model.quantile: "QuantileRegressor",
}


def fit(
    data: options.Data,
    user: options.User,
    label: Annotated[
        str, typer.Option(rich_help_panel="Table", show_default=False, help="Column to predict.")
    ],
    epsilon: options.Epsilon,
    delta: options.Delta,
    out: Annotated[
        Path,
        typer.Option(
            rich_help_panel="Output",
            show_default=False,
            help=f"New folder for {MODEL_FILE} and {REPORT_FILE}.",
        ),
    ],
    model: Annotated[Model, typer.Option(rich_help_panel="Model", help="What to fit.")] = Model.logistic,
    features: Annotated[
        str | None,
        typer.Option(
            rich_help_panel="Table",
            show_default=False,
            metavar="A,B,...",
            help="Columns to predict from; all but user and label by default. CSV files need it.",
        ),
    ] = None,
    categories: options.Categories = None,
    other: options.Other = None,
    classes: Annotated[
        str | None,
        typer.Option(
            rich_help_panel="Table",
            show_default="0,1",
            metavar="A,B,...",
            help="The label's classes: declared, never read off the data.",
        ),
    ] = None,
    min_items: options.MinItems = 1,
    max_items: Annotated[
        int | None,
        typer.Option(
            rich_help_panel="Table", show_default=False, help="Of more rows of a user, use a random sample."
        ),
    ] = None,
    quantile: Annotated[
        float | None,
        typer.Option(
            rich_help_panel="Model", show_default="0.5", help="Which quantile --model quantile predicts."
        ),
    ] = None,
    no_intercept: Annotated[
        bool, typer.Option("--no-intercept", rich_help_panel="Model", help="Fit no constant term.")
    ] = False,
    engine: EngineOption = EngineName.local,
    address: Address = None,
    workers: Workers = None,
    device: DeviceOption = None,
    storage: StorageOption = StorageName.float32,
    checkpoint: CheckpointFolder = None,
    scratch: Scratch = None,
    unit: options.Unit = "user",
    seed: options.Seed = None,
    ledger: options.LedgerFile = None,
    dataset: options.Dataset = None,
    overwrite: options.Overwrite = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Fit a private model: a folder with the model and a report.

    No bounds, scales or clipping norms are asked for; they are found within the budget.

    ```
    userdp fit visits.parquet --user patient --label readmitted
        --epsilon 1 --delta 1e-6 --out model/

    userdp fit trips.csv --user rider --label fare --model huber
        --features km,hour,by --categories by=bus,car --other by
        --ledger budget.db --dataset riders
        --epsilon 1 --delta 1e-6 --out model/
    ```
    """
    display = Display(as_json, quiet)
    budget = Budget(epsilon, delta, unit)
    chosen: dict[str, Any] = {
        "fit_intercept": not no_intercept,
        "min_items": min_items,
        "max_items": max_items,
        "engine": engine_of(engine, address, workers, device, storage, scratch),
        "checkpoint": checkpoint,
        **_quantile(model, quantile),
    }
    what = options.purpose(f"fit {model.value}", seed)
    with spending(budget, ledger, dataset, what, checkpoint) as spend:
        with new_folder(out, overwrite=overwrite) as draft:
            users, wanted = (
                options.names_in(user),
                options.names_in(features) if features is not None else None,
            )
            table = open_table(data, None if wanted is None else [*users, label, *wanted])
            columns = Columns(
                user=users,
                label=label,
                features=wanted,
                categories=options.categories_in(categories or (), table),
                other=options.others_in(other),
                classes=_classes(model, classes, table, label),
            )
            released, statement = fit_table(
                table, columns, model, budget, chosen, spend, seed, display, scratch
            )
            write_model(draft, released, statement, f"{model.estimator} of {label}")
        spend.released(out)
    record = {
        "model": str(out / MODEL_FILE),
        "report": str(out / REPORT_FILE),
        "kind": released.kind,
        "features": len(released.feature_names),
        "privacy": released.privacy,
    }
    with spend.printing(out):
        display.answer(
            record,
            effects_table(released, statement),
            statement_text(statement),
            f"\n{bold(out / MODEL_FILE)}   score other tables with: userdp predict MODEL DATA --out FILE",
            f"{bold(out / REPORT_FILE)}  open it in a browser",
        )


def fit_table(
    table: Table,
    columns: Columns,
    model: Model,
    budget: Budget,
    chosen: dict[str, Any],
    spend: Spending,
    seed: int | None,
    display: Display,
    scratch: Path | None = None,
) -> "tuple[LinearModel, PrivacyStatement]":
    """Read and fit; return what was released, ready to be saved, and its guarantee.

    With ``scratch``, a folder, the table is sorted there and never held in memory.
    """
    with users_of(table, columns, scratch, display) as users:
        named = f"Fitting {len(users.feature_names)} features of {users.n_users:,} users"
        with display.stage(named):
            estimator = getattr(userdp, model.estimator)(
                budget.epsilon, budget.delta, unit=budget.unit, random_state=spend.noise(seed), **chosen
            )
            fit_users(estimator, users, columns.classes)
    fitted: LinearModel = estimator.to_model()
    details = {
        **fitted.details,
        "label": columns.label,
        "min_items": chosen.get("min_items", 1),
        "released_at": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "encoding": columns.encoding(table),
    }
    classes = None if columns.classes is None else tuple(columns.classes)
    named_model = replace(fitted, feature_names=users.feature_names, classes=classes, details=details)
    return named_model, estimator.privacy_


def write_model(folder: Path, model: "LinearModel", statement: PrivacyStatement, title: str) -> None:
    """Write the model and its report."""
    model.save(folder / MODEL_FILE)
    leave_report(lambda: model_report(model, statement, title), folder / REPORT_FILE)


def _quantile(model: Model, chosen: float | None) -> dict[str, float]:
    if chosen is None:
        return {}
    if model is not Model.quantile:
        raise InvalidInputError(
            f"--quantile is for --model quantile; leave it out with --model {model.value}, which has none"
        )
    return {"quantile": chosen}


def _classes(model: Model, declared: str | None, table: Table, label: str) -> Sequence[Any] | None:
    if model.is_classifier:
        return (0, 1) if declared is None else options.values_in(declared, table, label)
    if declared is not None:
        raise InvalidInputError(f"--classes is for classifiers; --model {model.value} predicts a number")
    return None
