"""``userdp predict``: a model and a table become scores, however long the table is."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from userdp.arrays import BoolArray, FloatArray
from userdp.cli import options
from userdp.cli.display import Display
from userdp.cli.fit import MODEL_FILE
from userdp.cli.output import new_file
from userdp.cli.reading import open_table, reading
from userdp.cli.tables import bold
from userdp.data import Table, stream_features
from userdp.errors import InvalidInputError

if TYPE_CHECKING:
    import polars as pl

    from userdp.estimators.linear_model import LinearModel

_ENCODING = {"features": list, "categories": dict, "other": list}


def predict(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="The folder that `userdp fit` made.")],
    data: options.Data,
    out: Annotated[
        Path,
        typer.Option(
            rich_help_panel="Output", show_default=False, help="New file for the scores, .parquet or .csv."
        ),
    ],
    keep: Annotated[
        str | None,
        typer.Option(
            rich_help_panel="Output",
            show_default=False,
            metavar="A,B,...",
            help="Columns to copy beside the scores, such as ids.",
        ),
    ] = None,
    overwrite: options.Overwrite = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Score the rows of a table with a fitted model; costs no budget.

    Rows are read and written in batches, so tables may be larger than memory. A row with a missing feature, or a
    category that was not declared, has no score (null). Columns written: *prediction*, and for classifiers
    *probability* (of the last class, or *probability=CLASS* of each of several) or *score* (svc).

    ```
    userdp predict model/ new.parquet --out scores.parquet --keep visit_id
    ```
    """
    from userdp.estimators.linear_model import LinearModel

    display = Display(as_json, quiet)
    writer = _writer(out)
    fitted = LinearModel.load(model / MODEL_FILE if model.is_dir() else model)
    kept = options.names_in(keep) if keep is not None else []
    table = open_table(data)
    if taken := set(kept) & set(score_columns(fitted)):
        raise InvalidInputError(
            f"--keep names {sorted(taken)}, which the scores are called; rename the column"
        )
    rows = 0
    with (
        new_file(out, overwrite=overwrite) as draft,
        reading(table, display) as watched,
        writer(draft / out.name) as sink,
    ):
        for frame in scored_batches(fitted, watched, kept):
            sink.write(frame)
            rows += len(frame)
    display.answer({"scores": str(out), "rows": rows}, f"{rows:,} rows scored in {bold(out)}")


def scored_batches(model: "LinearModel", table: Table, keep: list[str]) -> "Iterator[pl.DataFrame]":
    """Yield the kept columns with their scores, batch by batch."""
    import polars as pl

    batches: Iterable[tuple[pl.DataFrame, Any]] = stream_features(table, keep=keep, **encoding_of(model))
    empty = True
    for kept, X in batches:
        if X.shape[1] != len(model.feature_names):
            raise _damaged()
        empty = False
        yield pl.DataFrame([*kept.get_columns(), *scores(model, X)])
    if empty:  # columns without rows
        none = pl.DataFrame(schema={name: table.schema[name] for name in keep})
        yield pl.DataFrame([*none.get_columns(), *scores(model, np.empty((0, len(model.feature_names))))])


def encoding_of(model: "LinearModel") -> dict[str, Any]:
    """Return how the model's table was read, as the arguments of ``stream_features``.

    Raises
    ------
    InvalidInputError
        For a model file in which it is something else.
    """
    encoding = model.details.get("encoding", {"features": list(model.feature_names)})
    if not (isinstance(encoding, dict) and {"features"} <= encoding.keys() <= _ENCODING.keys()):
        raise _damaged()
    if not all(isinstance(value, _ENCODING[name]) for name, value in encoding.items()):
        raise _damaged()
    categories = encoding.get("categories", {})
    columns = [*encoding["features"], *encoding.get("other", [])]
    if not all(isinstance(name, str) for name in columns) or not all(
        isinstance(values, list) for values in categories.values()
    ):
        raise _damaged()
    return encoding


def _damaged() -> InvalidInputError:
    return InvalidInputError(
        "the model file is damaged: what it says of its columns (details, encoding) does not fit; "
        "take the file as `userdp fit` wrote it"
    )


def score_columns(model: "LinearModel") -> tuple[str, ...]:
    """Return the names of the columns that scores make."""
    if model.classes is None:
        return ("prediction",)
    if model.kind != "LogisticRegression":
        return ("prediction", "score")
    if len(model.classes) == 2:
        return ("prediction", "probability")
    return ("prediction", *(f"probability={value}" for value in model.classes))


def scores(model: "LinearModel", X: FloatArray) -> "list[pl.Series]":
    """Score rows; one with a value that is not finite has nulls."""
    import polars as pl

    known: BoolArray = np.logical_and.reduce(np.isfinite(X), axis=1)
    X = np.where(known[:, None], X, 0.0)
    shown = pl.Series(known)
    named = zip(score_columns(model), _raw_scores(model, X), strict=True)
    columns = [pl.Series(name, column) for name, column in named]
    return [column.zip_with(shown, pl.Series([None], dtype=column.dtype)) for column in columns]


def _raw_scores(model: "LinearModel", X: FloatArray) -> list[Any]:
    """Return one column per name of ``score_columns``."""
    import polars as pl

    decision = model.decision(X)
    if model.classes is None:
        return [decision[:, 0]]
    several = decision.shape[1] > 1
    places = decision.argmax(axis=1) if several else (decision[:, 0] > 0).astype(np.int64)
    predicted = pl.Series(list(model.classes)).gather(places)
    if model.kind != "LogisticRegression":
        return [predicted, decision[:, 0]]
    probabilities = model.probabilities(X).T
    return [predicted, *(probabilities if several else probabilities[1:])]


class CsvSink:
    """Appends to one file."""

    def __init__(self, path: Path) -> None:
        self._path, self._has_header = path, False

    def __enter__(self) -> "CsvSink":
        self._file = self._path.open("wb")
        return self

    def __exit__(self, *failure: object) -> None:
        self._file.close()

    def write(self, frame: "pl.DataFrame") -> None:
        """Append rows, under a header."""
        import polars as pl

        try:
            frame.write_csv(self._file, include_header=not self._has_header)
        except pl.exceptions.PolarsError:
            raise InvalidInputError(
                "a kept column cannot be written as CSV; write .parquet instead"
            ) from None
        self._has_header = True


class ParquetSink:
    """Writes parts, and streams them into one file at the end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._parts: list[Path] = []

    def __enter__(self) -> "ParquetSink":
        return self

    def __exit__(self, failed: type[BaseException] | None, *failure: object) -> None:
        import polars as pl

        if failed is None:
            pl.scan_parquet(self._parts, glob=False).sink_parquet(self._path)

    def write(self, frame: "pl.DataFrame") -> None:
        """Write a part."""
        part = self._path.with_name(f"part-{len(self._parts)}.parquet")
        frame.write_parquet(part)
        self._parts.append(part)


def _writer(out: Path) -> type[CsvSink] | type[ParquetSink]:
    match out.suffix:
        case ".csv":
            return CsvSink
        case ".parquet":
            return ParquetSink
    raise InvalidInputError(f"scores are written as .parquet or .csv, got {str(out)!r}")
