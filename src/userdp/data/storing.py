"""Sort a table by user on disk, for tables that are larger than memory."""

import json
import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from userdp.arrays import IntArray, is_count
from userdp.data.encoding import Categories
from userdp.data.grouping import group_rows
from userdp.data.loading import TableReader
from userdp.data.parts import Part
from userdp.data.stored import FORMAT, VERSION, StoredUsers
from userdp.data.tables import quoted
from userdp.errors import InvalidInputError

# Of a batch of rows while it is read, in float64.
_BATCH_BYTES = 2**23
# Of a part, which training holds a few times; fewer parts where their number would slow the sorting down.
_PART_BYTES, _MOST_PARTS = 2**24, 1000
_NOTICE = "These files hold users' rows. They are as sensitive as the table they were made from.\n"


def store_users(
    source: Any,
    folder: str | os.PathLike[str],
    *,
    user: str | Sequence[str],
    features: str | Sequence[str] | None = None,
    label: str | None = None,
    classes: Sequence[Any] | None = (0, 1),
    categories: Categories | None = None,
    other: str | Sequence[str] = (),
    dtype: DTypeLike | None = None,
    part_bytes: int | None = None,
    groups_of: int = 1,
) -> StoredUsers:
    """Sort a table by user into a new folder, without ever holding it in memory.

    Memory holds the ids (one column of the table), 16 bytes a row for their order, and one part. The folder is as
    sensitive as the table; only its owner can read it.

    Parameters
    ----------
    source, user, features, label, classes, categories, other
        As for ``load_users``.
    folder : path
        A folder that does not exist yet.
    dtype : numpy.float64 or numpy.float32, optional
        Of the rows; by default float32 if it holds every number of the columns' types, and float64 otherwise.
        ``userdp.minimize`` computes in float32 anyway; estimators scale the numbers first.
    part_bytes : int, optional
        About how large a part is; by default 16 MB, or a thousandth of a table that is larger than 16 GB. A user is
        never cut in two.
    groups_of : int
        Put the users in random order and never cut so many of them apart, for a training in groups of users.

    Raises
    ------
    InvalidInputError
        As ``load_users``, and for a folder that exists.
    """
    reader = TableReader.of(source, user, features, label, classes, categories, other, dtype)
    target = Path(folder)
    if os.path.lexists(target):
        raise InvalidInputError(f"{target} exists; stored users need a new folder")
    if not target.absolute().parent.is_dir():
        raise InvalidInputError(f"the folder {target.absolute().parent} does not exist; create it first")
    if not ((part_bytes is None or is_count(part_bytes)) and is_count(groups_of)):
        raise InvalidInputError(
            f"part_bytes and groups_of must be at least 1, and whole numbers, got {part_bytes!r} and {groups_of!r}"
        )
    ids = reader.ids()
    if not len(ids):
        raise InvalidInputError(f"{reader.table.name} has no rows")
    order, offsets = group_rows(ids, len(ids), f"user column {quoted(reader.user)}")
    del ids
    if groups_of > 1:
        order, offsets = _shuffled(order, offsets)
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    del order
    row_bytes = reader.float_type().itemsize * len(reader.feature_names) + 8
    if part_bytes is None:
        part_bytes = max(_PART_BYTES, row_bytes * int(offsets[-1]) // _MOST_PARTS)
    parts = _cut(offsets, max(1, part_bytes // row_bytes), groups_of)
    try:
        # For its owner alone.
        draft = Path(tempfile.mkdtemp(dir=target.absolute().parent, prefix=f".{target.name}."))
    except OSError as error:
        raise InvalidInputError(f"cannot write in {target.absolute().parent}: {error.strerror}") from None
    try:
        (draft / "SENSITIVE").write_text(_NOTICE)
        stored = StoredUsers(
            draft,
            feature_names=reader.feature_names,
            has_targets=label is not None,
            booleans=reader.encoding.booleans,
            classes=None if reader.label is None else reader.label.classes,
            parts=parts,
            groups_of=groups_of,
        )
        # Rows are dealt out to the parts as they come, then each part is sorted: every byte is written twice.
        _deal_out(reader, stored, place, offsets)
        for number in range(len(parts)):
            _sort_part(stored, number, offsets, reader.float_type)
        record = {
            "format": FORMAT,
            "version": VERSION,
            "feature_names": list(stored.feature_names),
            "has_targets": stored.has_targets,
            "booleans": stored.booleans,
            "classes": stored.classes,
            "parts": [asdict(part) for part in parts],
            "groups_of": groups_of,
        }
        (draft / "users.json").write_text(json.dumps(record), encoding="utf-8")
        os.replace(draft, target)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    return StoredUsers.open(target)


def _shuffled(order: IntArray, offsets: IntArray) -> tuple[IntArray, IntArray]:
    """Put users in random order; a user's own rows keep theirs."""
    chosen = np.random.default_rng().permutation(len(offsets) - 1)
    items = np.diff(offsets)[chosen]
    moved = np.concatenate([[0], np.cumsum(items)])
    return order[np.repeat(offsets[chosen] - moved[:-1], items) + np.arange(moved[-1])], moved


def _cut(offsets: IntArray, rows: int, together: int) -> tuple[Part, ...]:
    """Cut users into parts of at most ``rows`` rows, or of the fewest users that must be together."""
    parts, first = [], 0
    while first < len(offsets) - 1:
        last = int(np.searchsorted(offsets, offsets[first] + rows, side="right")) - 1
        last = first + max((last - first) // together, 1) * together
        last = min(last, len(offsets) - 1)
        parts.append(Part(first, last - first, int(offsets[last] - offsets[first])))
        first = last
    return tuple(parts)


def _deal_out(reader: TableReader, stored: StoredUsers, place: IntArray, offsets: IntArray) -> None:
    """Append every batch's rows to the parts that they belong to, with their places there."""
    starts = offsets[[part.first_user for part in stored.parts]]
    done = 0
    size = max(1, _BATCH_BYTES // (8 * stored.n_features))
    for _, rows, targets in reader.batches(size):
        places = place[done : done + len(rows)]
        done += len(rows)
        owner = np.searchsorted(starts, places, side="right") - 1
        by_part = np.argsort(owner, kind="stable")
        borders = np.searchsorted(owner[by_part], np.arange(len(starts) + 1))
        for part in np.unique(owner):
            chosen = by_part[borders[part] : borders[part + 1]]
            _append(stored.folder, part, "places", places[chosen] - starts[part])
            _append(stored.folder, part, "rows", rows[chosen])
            if targets is not None:
                _append(stored.folder, part, "targets", targets[chosen])


def _append(folder: Path, part: int, name: str, values: NDArray[Any]) -> None:
    with (folder / f"{part}.{name}").open("ab") as file:
        file.write(np.ascontiguousarray(values).data)


def _sort_part(stored: StoredUsers, number: int, offsets: IntArray, dtype: DTypeLike) -> None:
    part = stored.parts[number]
    raw = {name: stored.folder / f"{number}.{name}" for name in ("places", "rows", "targets")}
    order = np.argsort(np.fromfile(raw["places"], np.int64))
    rows = np.fromfile(raw["rows"], dtype).reshape(-1, stored.n_features)
    np.save(stored.file(number, "rows"), rows[order])
    if stored.has_targets:
        np.save(stored.file(number, "targets"), np.fromfile(raw["targets"], np.float64)[order])
    own = offsets[part.first_user : part.first_user + part.n_users + 1]
    np.save(stored.file(number, "offsets"), own - own[0])
    for path in raw.values():
        path.unlink(missing_ok=True)
