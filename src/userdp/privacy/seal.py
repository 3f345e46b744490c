"""The seal of a ledger: one digest over all of its rows, renewed by every transaction that changes one.

SQLite notices pages that make no sense, and not a digit that a failing disk turned into another digit. The seal does:
whatever changes, adds, removes or swaps a row, or a part of one, leaves rows that do not match it.

**Guarantee.** Rows that are not those of the last committed transaction are noticed, but for a chance of 2^-256 that
two contents share their SHA-256. **Assumes** accidents: whoever can write the file can also seal it, and an older copy
of the whole file carries its own valid seal.
"""

import json
import sqlite3
from hashlib import sha256

CREATE_SEAL = "CREATE TABLE seal (digest TEXT NOT NULL)"

_ROWS = (
    "SELECT 'limit', id, dataset, epsilon, delta, set_at FROM limits ORDER BY id",
    "SELECT 'entry', id, dataset, epsilon, delta, what, mu, reserved_at, released_at, reference "
    "FROM entries ORDER BY id",
)


def digest(db: sqlite3.Connection) -> str:
    """Return the SHA-256 of all rows, a line of JSON each: text, numbers and nulls are told apart.

    Raises
    ------
    TypeError
        If a cell holds bytes, which no ledger writes.
    """
    found = sha256()
    for query in _ROWS:
        for row in db.execute(query):
            found.update(json.dumps(row).encode("ascii") + b"\n")
    return found.hexdigest()


def has_seal(db: sqlite3.Connection) -> bool:
    """Whether there is a place for a seal; ledgers of format 1 have none."""
    return db.execute("SELECT 1 FROM sqlite_schema WHERE name = 'seal'").fetchone() is not None


def is_intact(db: sqlite3.Connection) -> bool:
    """Whether the rows are those that were sealed."""
    try:
        return db.execute("SELECT digest FROM seal").fetchall() == [(digest(db),)]
    except TypeError:
        return False


def renew(db: sqlite3.Connection) -> None:
    """Seal the rows as they are, inside the transaction that changed them."""
    db.execute("DELETE FROM seal")
    db.execute("INSERT INTO seal (digest) VALUES (?)", (digest(db),))
