"""The privacy ledger: what each data set may spend in all, and what it has spent.

A release reserves its budget before its first noisy answer. The reservation is on the disk when
`Ledger.reserve` returns, so a crash may leave budget spent that nothing came of, never the reverse.

**Guarantee.** Basic composition: if each reservation covers a release that is (epsilon_i, delta_i)-DP
whatever the earlier answers were, all releases of a data set together are (sum epsilon_i, sum delta_i)-DP,
and both sums stay within the limit. This holds also when mechanisms, budgets and the moment to stop are
chosen after seeing earlier answers (Rogers, Roth, Ullman and Vadhan, "Privacy Odometers and Filters", 2016).

**Assumes.** One unit and one neighbouring relation throughout; one name per group of people; a limit that
is not raised in reaction to answers.
"""

import os
import shlex
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from functools import reduce
from math import isfinite
from numbers import Integral
from pathlib import Path
from typing import Any, Literal, Self

from userdp.errors import BudgetExceededError, InvalidInputError
from userdp.privacy import seal

__all__ = ["Account", "Amount", "Entry", "Ledger", "Limit", "Reservation"]

# Sums of floats are exact in a thousand digits; longer Decimals are rounded towards refusal.
_UP = Context(prec=1000, rounding=ROUND_CEILING)
_DOWN = Context(prec=1000, rounding=ROUND_FLOOR)

_APPLICATION_ID = int.from_bytes(b"usdp", "big")
_FORMAT = 2
# Without a seal: read as it is, and sealed by the first transaction that writes to it.
_UNSEALED_FORMAT = 1
# Amounts are decimal text: SQLite's own numbers are binary and cannot hold 0.1.
_SCHEMA = (
    """CREATE TABLE limits (
        id INTEGER PRIMARY KEY, dataset TEXT NOT NULL,
        epsilon TEXT NOT NULL, delta TEXT NOT NULL, set_at TEXT NOT NULL)""",
    """CREATE TABLE entries (
        id INTEGER PRIMARY KEY, dataset TEXT NOT NULL,
        epsilon TEXT NOT NULL, delta TEXT NOT NULL, what TEXT NOT NULL, mu REAL,
        reserved_at TEXT NOT NULL, released_at TEXT, reference TEXT NOT NULL DEFAULT '')""",
    seal.CREATE_SEAL,
    f"PRAGMA application_id = {_APPLICATION_ID}",
    f"PRAGMA user_version = {_FORMAT}",
)

_DAMAGED = "it is damaged; restore a copy and make up for what was released since"
_FILE_PROBLEMS = {
    sqlite3.SQLITE_BUSY: "another process keeps it locked; try again when that one is done",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened; check that its folder exists and can be written",
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_FULL: "the disk is full; make room and try again",
    sqlite3.SQLITE_IOERR: "the disk cannot be read or written; check its space and its health",
    sqlite3.SQLITE_NOTADB: "it is not a ledger, or its beginning is damaged; check the path",
    sqlite3.SQLITE_READONLY: "it can be read but not written; check the rights on it and on its folder",
}


@dataclass(frozen=True)
class Amount:
    """A privacy budget in exact decimals."""

    epsilon: Decimal
    delta: Decimal

    def __str__(self) -> str:
        return f"(epsilon {self.epsilon:g}, delta {self.delta:g})"


@dataclass(frozen=True)
class Limit:
    """What a data set may spend in all; times are ISO 8601 in UTC."""

    amount: Amount
    set_at: str


@dataclass(frozen=True)
class Reservation:
    """Budget that is spent, whether or not its release ever comes out."""

    id: int
    dataset: str
    epsilon: Decimal
    delta: Decimal


@dataclass(frozen=True)
class Entry:
    """A reservation and what became of it; `mu` is for information and enters no sum."""

    reservation: Reservation
    what: str
    mu: float | None
    reserved_at: str
    released_at: str | None
    reference: str


@dataclass(frozen=True)
class Account:
    """One data set's page in the ledger: every limit it has had and every entry, oldest first."""

    dataset: str
    limits: tuple[Limit, ...]
    entries: tuple[Entry, ...]

    @property
    def limit(self) -> Amount:
        """The limit in force: the last one set."""
        return self.limits[-1].amount

    @property
    def spent(self) -> Amount:
        """The sum over all entries, released or not."""
        reserved = [entry.reservation for entry in self.entries]
        return Amount(_total(r.epsilon for r in reserved), _total(r.delta for r in reserved))

    @property
    def remaining(self) -> Amount:
        """What may still be reserved; zero where a lowered limit is below what was spent."""
        limit, spent = self.limit, self.spent
        return Amount(
            max(Decimal(0), _DOWN.subtract(limit.epsilon, spent.epsilon)),
            max(Decimal(0), _DOWN.subtract(limit.delta, spent.delta)),
        )

    def admits(self, amount: Amount) -> bool:
        """Whether `amount` fits under the limit on top of what is spent; reaching the limit is allowed."""
        limit, spent = self.limit, self.spent
        return (
            _UP.add(spent.epsilon, amount.epsilon) <= limit.epsilon
            and _UP.add(spent.delta, amount.delta) <= limit.delta
        )


class Ledger:
    """A file of limits and reservations that many processes may use at once.

    Parameters
    ----------
    path
        The SQLite file.
    create
        Whether to start a new ledger where there is no file; an empty file always becomes one. A new
        ledger has no limits, so it refuses every reservation until `limit` is called.
    timeout
        How many seconds to wait while another process writes.

    Raises
    ------
    InvalidInputError
        From every method, when the file is missing, damaged, locked, not writable or not a ledger, or
        when a value cannot be used. Nothing is recorded then.

    Notes
    -----
    Amounts are ints, floats or Decimals. A float counts as the shortest decimal that denotes it, which is
    how it prints: ten times 0.1 is exactly 1.
    """

    def __init__(self, path: str | os.PathLike[str], *, create: bool = True, timeout: float = 10.0) -> None:
        self.path = Path(path).absolute()
        # A device such as /dev/null would take reservations and forget them.
        if os.path.exists(self.path) and not os.path.isfile(self.path):
            raise self._unusable("it is not a file; check the path")
        if not create and not os.path.exists(self.path):
            raise self._unusable("there is no such file; check the path, or set a limit to start a ledger")
        with self._file_problems_explained():
            self._db = sqlite3.connect(self.path, timeout=timeout, isolation_level=None)
        try:
            self._prepare()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; everything recorded is already on the disk."""
        self._db.close()

    def limit(self, dataset: str, epsilon: float | Decimal, delta: float | Decimal) -> None:
        """Set, raise or lower what `dataset` may spend in all; earlier limits stay in the history.

        A limit below what is spent is allowed: it refuses every further reservation.
        """
        _require_name(dataset)
        amount = _amount(epsilon, delta)
        with self._writing():
            row = (dataset, str(amount.epsilon), str(amount.delta))
            last = self._db.execute(
                "SELECT dataset, epsilon, delta FROM limits WHERE dataset = ? ORDER BY id DESC", (dataset,)
            ).fetchone()
            if row != last:
                self._db.execute(
                    "INSERT INTO limits (dataset, epsilon, delta, set_at) VALUES (?, ?, ?, ?)", (*row, _now())
                )

    def reserve(
        self,
        dataset: str,
        epsilon: float | Decimal,
        delta: float | Decimal,
        *,
        what: str = "",
        mu: float | None = None,
    ) -> Reservation:
        """Spend (epsilon, delta) of `dataset`; on the disk when this returns.

        Parameters
        ----------
        dataset
            A name that has a limit.
        epsilon, delta
            The guarantee of the release to come.
        what
            One line for the reader of the ledger.
        mu
            The Gaussian-DP parameter of the release, if it has one: recorded, never summed.

        Raises
        ------
        BudgetExceededError
            The sum would go over the limit; nothing was spent.
        """
        _require_name(dataset)
        _require_line("what", what)
        amount = _amount(epsilon, delta)
        mu = None if mu is None else float(_positive("mu", mu))
        with self._writing():
            account = self._account(dataset)
            if not account.admits(amount):
                raise BudgetExceededError(
                    f"A release at {amount} would take data set {dataset!r} over its limit {account.limit}: "
                    f"{account.spent} is spent, {account.remaining} remains; nothing was spent. "
                    f"Ask for less, or raise the limit: {self._limit_command(dataset)}"
                )
            cursor = self._db.execute(
                "INSERT INTO entries (dataset, epsilon, delta, what, mu, reserved_at) "
                "VALUES (?, ?, ?, ?, ?, ?)",
                (dataset, str(amount.epsilon), str(amount.delta), what, mu, _now()),
            )
        assert cursor.lastrowid is not None
        return Reservation(cursor.lastrowid, dataset, amount.epsilon, amount.delta)

    def mark_released(self, reservation: Reservation, reference: str = "") -> None:
        """Note that the release came out, and in one line where it is; it counts the same either way."""
        _require_line("reference", reference)
        row = (reservation.id, reservation.dataset, str(reservation.epsilon), str(reservation.delta))
        with self._writing():
            cursor = self._db.execute(
                "UPDATE entries SET released_at = ?, reference = ? "
                "WHERE (id, dataset, epsilon, delta) = (?, ?, ?, ?) AND released_at IS NULL",
                (_now(), reference, *row),
            )
            if cursor.rowcount != 1:
                raise InvalidInputError(
                    f"Expected a reservation of this ledger that is not yet marked as released, got {row}"
                )

    def status(self, dataset: str | None = None) -> tuple[Account, ...]:
        """Return the account of `dataset`, or all accounts by name, as they stand at one moment."""
        if dataset is not None:
            _require_name(dataset)
        with self._reading():
            names = self._db.execute("SELECT DISTINCT dataset FROM limits ORDER BY dataset").fetchall()
            wanted = [name for (name,) in names] if dataset is None else [dataset]
            return tuple(self._account(name) for name in wanted)

    def _account(self, dataset: str) -> Account:
        limits = self._db.execute(
            "SELECT epsilon, delta, set_at FROM limits WHERE dataset = ? ORDER BY id", (dataset,)
        ).fetchall()
        entries = self._db.execute(
            "SELECT id, epsilon, delta, what, mu, reserved_at, released_at, reference "
            "FROM entries WHERE dataset = ? ORDER BY id",
            (dataset,),
        ).fetchall()
        if not limits:
            raise InvalidInputError(
                f"Data set {dataset!r} has no limit in the ledger {str(self.path)!r}, so nothing can be "
                f"reserved. Set one: {self._limit_command(dataset)}"
            )
        try:
            return Account(
                dataset,
                tuple(Limit(Amount(_stored(epsilon), _stored(delta)), at) for epsilon, delta, at in limits),
                tuple(
                    Entry(Reservation(id, dataset, _stored(epsilon), _stored(delta)), *rest)
                    for id, epsilon, delta, *rest in entries
                ),
            )
        except (ArithmeticError, TypeError, ValueError) as error:
            raise self._unusable(_DAMAGED) from error

    def _prepare(self) -> None:
        with self._file_problems_explained():
            # A rollback journal, not WAL: at rest the ledger is one file that can be copied, and WAL needs
            # shared memory, which network file systems lack. Removing the journal is what commits, and
            # only EXTRA syncs the folder after that; under FULL a power cut could bring the journal back
            # and unspend. A killed process leaves a journal that the next one rolls back.
            self._db.execute("PRAGMA journal_mode = DELETE")
            self._db.execute("PRAGMA synchronous = EXTRA")
            self._db.execute("PRAGMA fullfsync = ON")  # plain fsync on macOS stops at the drive's cache
            if self._is_blank():
                with self._transaction("IMMEDIATE"):
                    if self._is_blank():  # still: another process may have come first
                        for statement in _SCHEMA:
                            self._db.execute(statement)
                        seal.renew(self._db)
            with self._transaction("DEFERRED"):
                self._check()

    def _check(self) -> None:
        if self._pragma("application_id") != _APPLICATION_ID:
            raise self._unusable("it is not a ledger; check the path")
        if (found := self._pragma("user_version")) not in (_FORMAT, _UNSEALED_FORMAT):
            raise self._unusable(f"it has format {found}, this userdp reads {_FORMAT}; upgrade userdp")
        # SQLite reads the missing end of a cut last page as zeros and finds nothing wrong.
        complete = os.path.getsize(self.path) >= self._pragma("page_count") * self._pragma("page_size")
        if not complete or self._pragma("integrity_check(1)") != "ok":
            raise self._unusable(_DAMAGED)
        self._check_seal()

    def _check_seal(self) -> None:
        sealed = self._pragma("user_version") != _UNSEALED_FORMAT
        if sealed != seal.has_seal(self._db) or (sealed and not seal.is_intact(self._db)):
            raise self._unusable(_DAMAGED)

    def _is_blank(self) -> bool:
        # The read comes first: it rolls back what a killed process left half-written. The size, because
        # SQLite takes any file of a few bytes for an empty database and would write over it.
        return self._pragma("application_id") == 0 and os.path.getsize(self.path) == 0

    def _pragma(self, name: str) -> Any:
        ((value,),) = self._db.execute(f"PRAGMA {name}").fetchall()
        return value

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """See the rows of one moment, and only if they are those that were sealed."""
        with self._transaction("DEFERRED"):
            self._check_seal()
            yield

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Change sealed rows and seal them again, all or nothing."""
        with self._transaction("IMMEDIATE"):
            self._check_seal()
            before = self._db.total_changes
            yield
            if self._db.total_changes == before:
                return
            if not seal.has_seal(self._db):
                self._db.execute(seal.CREATE_SEAL)
                self._db.execute(f"PRAGMA user_version = {_FORMAT}")
            seal.renew(self._db)

    @contextmanager
    def _transaction(self, kind: Literal["DEFERRED", "IMMEDIATE"]) -> Iterator[None]:
        """All or nothing; IMMEDIATE takes the write lock before the balance is read."""
        with self._file_problems_explained():
            self._db.execute(f"BEGIN {kind}")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:  # SQLite itself rolls back on some errors
                    self._db.execute("ROLLBACK")
                raise

    @contextmanager
    def _file_problems_explained(self) -> Iterator[None]:
        try:
            yield
        except UnicodeDecodeError as error:  # SQLite's own messages may quote damaged text
            raise self._unusable(_DAMAGED) from error
        except sqlite3.Error as error:
            family = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
            words = str(error) if str(error).isprintable() else _DAMAGED
            raise self._unusable(_FILE_PROBLEMS.get(family, words)) from error

    def _limit_command(self, dataset: str) -> str:
        file, name = shlex.quote(str(self.path)), shlex.quote(dataset)
        return f"userdp ledger limit {file} {name} --epsilon E --delta D"

    def _unusable(self, why: str) -> InvalidInputError:
        return InvalidInputError(f"Cannot use the ledger {str(self.path)!r}: {why}; nothing was recorded")


def _amount(epsilon: object, delta: object) -> Amount:
    amount = Amount(_positive("epsilon", epsilon), _positive("delta", delta))
    if amount.delta >= 1:
        raise InvalidInputError(f"Expected delta between 0 and 1, got {delta}")
    return amount


def _positive(name: str, value: object) -> Decimal:
    """Read a number without rounding it, which is why fractions and long doubles are refused."""
    if isinstance(value, bool) or not isinstance(value, Decimal | float | Integral):
        raise InvalidInputError(f"Expected {name} as an int, a float or a Decimal, got {value!r}")
    if isinstance(value, float):
        number = Decimal(float.__repr__(value))
    else:
        number = value if isinstance(value, Decimal) else Decimal(int(value))
    if not (number.is_finite() and number > 0 and isfinite(float(number))):
        raise InvalidInputError(f"Expected {name} positive and finite, got {number:.6g}")
    return number


def _stored(text: str) -> Decimal:
    return _positive("a stored amount", Decimal(text))


def _require_name(dataset: str) -> None:
    _require_line("the data set's name", dataset)
    if not dataset or dataset != dataset.strip():
        raise InvalidInputError(f"Expected a data set's name without blanks around it, got {dataset!r}")


def _require_line(name: str, text: object) -> None:
    if not (isinstance(text, str) and text.isprintable()):
        raise InvalidInputError(f"Expected {name} as one line of printable text, got {text!r}")


def _total(amounts: Iterable[Decimal]) -> Decimal:
    return reduce(_UP.add, amounts, Decimal(0))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
