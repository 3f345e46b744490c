"""``userdp mean``: the mean over users of their own means."""

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

import userdp
from userdp.cli import options
from userdp.cli.display import Display
from userdp.cli.fit import REPORT_FILE
from userdp.cli.output import new_folder
from userdp.cli.reading import open_table, reading
from userdp.cli.reports import leave_report, mean_report
from userdp.cli.spending import spending
from userdp.cli.tables import bold, means_table, statement_text
from userdp.data import load_users
from userdp.privacy.budget import Budget

MEAN_FILE = "mean.json"


def mean(
    data: options.Data,
    user: options.User,
    columns: Annotated[
        str,
        typer.Option(
            rich_help_panel="Table", show_default=False, metavar="A,B,...", help="Columns to average."
        ),
    ],
    epsilon: options.Epsilon,
    delta: options.Delta,
    radius: Annotated[
        float | None,
        typer.Option(
            rich_help_panel="Table",
            show_default=False,
            help="Distance within which users' means lie of each other, if it is public; else found privately.",
        ),
    ] = None,
    categories: options.Categories = None,
    other: options.Other = None,
    min_items: options.MinItems = 1,
    unit: options.Unit = "user",
    seed: options.Seed = None,
    ledger: options.LedgerFile = None,
    dataset: options.Dataset = None,
    out: Annotated[
        Path | None,
        typer.Option(
            rich_help_panel="Output",
            show_default=False,
            help=f"New folder for {MEAN_FILE} and {REPORT_FILE}.",
        ),
    ] = None,
    overwrite: options.Overwrite = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Release the mean over users of their own means; every user counts once.

    Ends with code 3 if the users do not agree enough for a release; the budget is then spent.

    ```
    userdp mean visits.parquet --user patient --columns stay,cost --epsilon 1 --delta 1e-6
    ```
    """
    display = Display(as_json, quiet)
    budget = Budget(epsilon, delta, unit)
    with spending(budget, ledger, dataset, what=options.purpose("mean", seed)) as spend:
        with ExitStack() as stack:
            draft = None if out is None else stack.enter_context(new_folder(out, overwrite=overwrite))
            people, wanted = options.names_in(user), options.names_in(columns)
            with reading(open_table(data, [*people, *wanted]), display) as table:
                loaded = load_users(
                    table,
                    user=people,
                    features=wanted,
                    categories=options.categories_in(categories or (), table),
                    other=options.others_in(other),
                )
            users = loaded.users
            with display.stage(f"Averaging {users.n_users:,} users"):
                release = userdp.mean(
                    users.rows,
                    groups=np.repeat(np.arange(users.n_users), users.items_per_user),
                    epsilon=epsilon,
                    delta=delta,
                    radius=radius,
                    min_items=min_items,
                    unit=unit,
                    random_state=spend.noise(seed),
                )
            record = {
                "mean": dict(zip(loaded.feature_names, release.value.tolist(), strict=True)),
                "noise_std": dict(zip(loaded.feature_names, release.noise_std.tolist(), strict=True)),
                "radius": release.radius,
                "units": dict(zip(loaded.feature_names, release.units.tolist(), strict=True)),
                "privacy": release.privacy.to_dict(),
            }
            if draft is not None:
                (draft / MEAN_FILE).write_text(
                    json.dumps(record, indent=2, allow_nan=False) + "\n", encoding="utf-8"
                )
                title = f"Means of {columns}"
                leave_report(lambda: mean_report(release, loaded.feature_names, title), draft / REPORT_FILE)
        spend.released(out)
    title = f"Mean over {release.privacy.n_users:,} users"
    with spend.printing(out):
        display.answer(
            record,
            means_table(title, loaded.feature_names, release.value, release.noise_std),
            statement_text(release.privacy),
        )
        if out is not None:
            display.show(f"\n{bold(out / MEAN_FILE)}, {bold(out / REPORT_FILE)}")
