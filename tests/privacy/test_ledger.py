"""The ledger never admits more than its limit and never forgets what it admitted."""

import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from userdp.errors import BudgetExceededError, InvalidInputError
from userdp.privacy.ledger import Account, Amount, Entry, Ledger, Limit, Reservation


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@pytest.fixture
def ledger(path: Path) -> Iterator[Ledger]:
    with Ledger(path) as ledger:
        yield ledger


def start(script: str, *arguments: object) -> subprocess.Popen[str]:
    """Run `script` in a process of its own."""
    command = [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def output_of(process: subprocess.Popen[str]) -> str:
    output, errors = process.communicate()
    assert process.returncode == 0, errors
    return output.strip()


def spent(ledger: Ledger, dataset: str = "a") -> Amount:
    return ledger.status(dataset)[0].spent


# --- accounts ---------------------------------------------------------------------------------------------


def test_a_reservation_is_recorded(ledger: Ledger) -> None:
    ledger.limit("a", 1, 1e-6)
    reservation = ledger.reserve("a", 0.25, 1e-7, what="mean of x", mu=0.1)
    (account,) = ledger.status("a")
    (entry,) = account.entries
    assert reservation == Reservation(1, "a", Decimal("0.25"), Decimal("1e-7"))
    assert (entry.reservation, entry.what, entry.mu, entry.released_at) == (
        reservation,
        "mean of x",
        0.1,
        None,
    )
    assert account.limit == Amount(Decimal(1), Decimal("1e-6"))
    assert account.spent == Amount(Decimal("0.25"), Decimal("1e-7"))
    assert account.remaining == Amount(Decimal("0.75"), Decimal("9e-7"))


def test_entries_outlive_the_process_that_made_them(path: Path) -> None:
    with Ledger(path) as ledger:
        ledger.limit("a", 1, 1e-6)
        ledger.reserve("a", 0.25, 1e-7)
        before = ledger.status()
    with Ledger(path, create=False) as ledger:
        assert ledger.status() == before


def test_a_release_counts_the_same_as_a_reservation(ledger: Ledger) -> None:
    ledger.limit("a", 1, 1e-6)
    reservation = ledger.reserve("a", 0.25, 1e-7)
    before = spent(ledger)
    ledger.mark_released(reservation, "model/model.json")
    (entry,) = ledger.status("a")[0].entries
    assert spent(ledger) == before
    assert entry.released_at is not None
    assert entry.reference == "model/model.json"


def test_only_an_open_reservation_of_this_ledger_is_marked(ledger: Ledger) -> None:
    ledger.limit("a", 1, 1e-6)
    reservation = ledger.reserve("a", 0.25, 1e-7)
    with pytest.raises(InvalidInputError, match="of this ledger"):
        ledger.mark_released(Reservation(reservation.id, "b", reservation.epsilon, reservation.delta))
    ledger.mark_released(reservation, "first")
    with pytest.raises(InvalidInputError, match="not yet marked"):
        ledger.mark_released(reservation, "second")
    assert ledger.status("a")[0].entries[0].reference == "first"


def test_data_sets_have_separate_accounts(ledger: Ledger) -> None:
    ledger.limit("b", 2, 1e-5)
    ledger.limit("a", 1, 1e-6)
    ledger.reserve("b", 2, 1e-6)
    first, second = ledger.status()
    assert (first.dataset, first.spent.epsilon) == ("a", 0)
    assert (second.dataset, second.spent.epsilon) == ("b", 2)


# --- limits -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("epsilon", "delta"), [(0.76, 1e-9), (0.01, 9.1e-7)], ids=["epsilon", "delta"])
def test_over_the_limit_is_refused_and_costs_nothing(ledger: Ledger, epsilon: float, delta: float) -> None:
    ledger.limit("a", 1, 1e-6)
    ledger.reserve("a", 0.25, 1e-7)
    before = ledger.status()
    with pytest.raises(BudgetExceededError) as refusal:
        ledger.reserve("a", epsilon, delta)
    assert ledger.status() == before
    for part in (
        f"epsilon {epsilon}",
        "limit (epsilon 1,",
        "0.25",
        "0.75",
        " a --epsilon",
    ):
        assert part in str(refusal.value)
    assert "\n" not in str(refusal.value)
    ledger.reserve("a", 0.75, 9e-7)


def test_ten_times_a_tenth_is_one(ledger: Ledger) -> None:
    ledger.limit("a", 1, 1e-6)
    for _ in range(10):
        ledger.reserve("a", 0.1, 1e-7)
    assert spent(ledger) == ledger.status("a")[0].limit
    with pytest.raises(BudgetExceededError):
        ledger.reserve("a", 5e-324, 5e-324)


def test_what_cannot_be_summed_exactly_is_refused(ledger: Ledger) -> None:
    ledger.limit("a", Decimal(1) + Decimal("1e-20"), 0.5)
    ledger.reserve("a", 1, 0.25)
    with pytest.raises(BudgetExceededError):
        ledger.reserve("a", Decimal("1.00000000000000000001e-20"), 0.1)
    ledger.reserve("a", Decimal("1e-5000"), 0.1)
    assert spent(ledger).epsilon > 1
    assert ledger.status("a")[0].remaining.epsilon < Decimal("1e-20")


def test_without_a_limit_nothing_is_reserved(ledger: Ledger) -> None:
    with pytest.raises(
        InvalidInputError, match=r"userdp ledger limit .*ledger.db 'my data' --epsilon E --delta D"
    ):
        ledger.reserve("my data", 0.1, 1e-9)
    with pytest.raises(InvalidInputError, match="no limit"):
        ledger.status("my data")
    assert ledger.status() == ()


def test_limits_go_up_and_down_and_leave_a_history(ledger: Ledger) -> None:
    for epsilon in (1, 3, 3, 2):
        ledger.limit("a", epsilon, 1e-6)
    (account,) = ledger.status("a")
    assert [limit.amount.epsilon for limit in account.limits] == [1, 3, 2]
    assert account.limit.epsilon == 2


def test_a_limit_below_what_is_spent_stops_everything(ledger: Ledger) -> None:
    ledger.limit("a", 1, 1e-6)
    ledger.reserve("a", 1, 1e-7)
    ledger.limit("a", 0.5, 1e-6)
    assert ledger.status("a")[0].remaining.epsilon == 0
    with pytest.raises(BudgetExceededError):
        ledger.reserve("a", 1e-9, 1e-9)


# --- values -----------------------------------------------------------------------------------------------

NOT_POSITIVE = [0, -1, -0.0, float("nan"), float("inf"), Decimal("sNaN"), Decimal("1e400"), 10**5000]
NOT_A_NUMBER = [True, None, "1", 1j, Fraction(1, 3), np.float32(0.1), np.longdouble(1)]


@pytest.mark.parametrize("bad", [*NOT_POSITIVE, *NOT_A_NUMBER], ids=lambda value: type(value).__name__)
def test_bad_amounts_change_nothing(ledger: Ledger, bad: float) -> None:
    ledger.limit("a", 1, 1e-6)
    before = ledger.status()
    for call in (
        lambda: ledger.limit("a", bad, 1e-6),
        lambda: ledger.limit("a", 1, bad),
        lambda: ledger.reserve("a", bad, 1e-7),
        lambda: ledger.reserve("a", 0.1, bad),
    ):
        with pytest.raises(InvalidInputError, match="Expected"):
            call()
    assert ledger.status() == before


@pytest.mark.parametrize("delta", [1, 1.0, 1.5, Decimal("1.00000000000000000000000000000000001")])
def test_delta_stays_below_one(ledger: Ledger, delta: float) -> None:
    with pytest.raises(InvalidInputError, match="between 0 and 1"):
        ledger.limit("a", 1, delta)


@pytest.mark.parametrize("mu", [0, float("nan"), "0.5"])
def test_bad_mu_changes_nothing(ledger: Ledger, mu: float) -> None:
    ledger.limit("a", 1, 1e-6)
    with pytest.raises(InvalidInputError, match="mu"):
        ledger.reserve("a", 0.1, 1e-7, mu=mu)
    assert spent(ledger).epsilon == 0


def test_numpy_scalars_count_as_what_they_print(ledger: Ledger) -> None:
    ledger.limit("a", np.int64(1), np.float64(1e-6))
    ledger.reserve("a", np.float64(0.1), 1e-7)
    assert spent(ledger).epsilon == Decimal("0.1")


@pytest.mark.parametrize("name", ["", " ", " a", "a ", "a\nb", "a\x1b[31m", "a\0b", "\ud800", None, 7])
def test_bad_names_are_refused(ledger: Ledger, name: str) -> None:
    for call in (lambda: ledger.limit(name, 1, 1e-6), lambda: ledger.reserve(name, 1, 1e-6)):
        with pytest.raises(InvalidInputError, match="name"):
            call()


def test_names_are_data_not_sql(ledger: Ledger) -> None:
    name = "'); DROP TABLE entries; --é漢"
    ledger.limit(name, 1, 1e-6)
    ledger.reserve(name, 1, 1e-7)
    assert spent(ledger, name).epsilon == 1


@pytest.mark.parametrize("line", ["two\nlines", "\x1b[31m", None])
def test_descriptions_are_one_printable_line(ledger: Ledger, line: str) -> None:
    ledger.limit("a", 1, 1e-6)
    with pytest.raises(InvalidInputError, match="what"):
        ledger.reserve("a", 0.1, 1e-7, what=line)
    with pytest.raises(InvalidInputError, match="reference"):
        ledger.mark_released(ledger.reserve("a", 0.1, 1e-7), line)


# --- properties -------------------------------------------------------------------------------------------

epsilons = st.floats(min_value=0, exclude_min=True, allow_infinity=False)
deltas = st.floats(min_value=0, max_value=1, exclude_min=True, exclude_max=True)


@given(st.lists(st.tuples(epsilons, deltas), max_size=20), epsilons, deltas)
def test_sums_of_floats_are_exact(pairs: list[tuple[float, float]], epsilon: float, delta: float) -> None:
    def exact(value: float) -> Fraction:
        return Fraction(repr(value))

    def amount(epsilon: float, delta: float) -> Amount:
        return Amount(Decimal(repr(epsilon)), Decimal(repr(delta)))

    entries = []
    for pair in pairs:
        reservation = Reservation(1, "a", amount(*pair).epsilon, amount(*pair).delta)
        entries.append(Entry(reservation, "", None, "", None, ""))
    account = Account("a", (Limit(amount(epsilon, delta), ""),), tuple(entries))

    total_epsilon = sum((exact(e) for e, _ in pairs), Fraction(0))
    total_delta = sum((exact(d) for _, d in pairs), Fraction(0))
    assert Fraction(account.spent.epsilon) == total_epsilon
    assert Fraction(account.spent.delta) == total_delta
    assert Fraction(account.remaining.epsilon) == max(Fraction(0), exact(epsilon) - total_epsilon)
    if account.remaining.epsilon > 0 and account.remaining.delta > 0:
        assert account.admits(account.remaining)


tenths = st.integers(1, 12).map(lambda k: k / 10)


class LedgerModel(RuleBasedStateMachine):
    """Any sequence of calls against a dictionary that adds fractions."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.ledger = Ledger(self.folder / "ledger.db")
        self.limits: dict[str, tuple[Fraction, Fraction]] = {}
        self.spent: dict[str, tuple[Fraction, Fraction]] = {}
        self.open: list[Reservation] = []

    def teardown(self) -> None:
        self.ledger.close()
        shutil.rmtree(self.folder)

    @rule(name=st.sampled_from("ab"), epsilon=tenths, delta=tenths.map(lambda tenth: tenth / 20))
    def limit(self, name: str, epsilon: float, delta: float) -> None:
        self.ledger.limit(name, epsilon, delta)
        self.limits[name] = (Fraction(repr(epsilon)), Fraction(repr(delta)))
        self.spent.setdefault(name, (Fraction(0), Fraction(0)))

    @rule(name=st.sampled_from("ab"), epsilon=tenths, delta=st.sampled_from([0.001, 0.01, 0.1]))
    def reserve(self, name: str, epsilon: float, delta: float) -> None:
        spent = self.spent.get(name, (Fraction(0), Fraction(0)))
        after = (spent[0] + Fraction(repr(epsilon)), spent[1] + Fraction(repr(delta)))
        limit = self.limits.get(name)
        if limit is None or after[0] > limit[0] or after[1] > limit[1]:
            with pytest.raises(InvalidInputError if limit is None else BudgetExceededError):
                self.ledger.reserve(name, epsilon, delta)
        else:
            self.open.append(self.ledger.reserve(name, epsilon, delta))
            self.spent[name] = after
            assert self.ledger.status(name)[0].admits(Amount(Decimal(0), Decimal(0)))

    @rule()
    def release(self) -> None:
        if self.open:
            self.ledger.mark_released(self.open.pop())

    @rule()
    def reopen(self) -> None:
        self.ledger.close()
        self.ledger = Ledger(self.folder / "ledger.db", create=False)

    @invariant()
    def spent_is_the_sum(self) -> None:
        recorded = {
            account.dataset: (Fraction(account.spent.epsilon), Fraction(account.spent.delta))
            for account in self.ledger.status()
        }
        assert recorded == self.spent


LedgerModel.TestCase.settings = settings(max_examples=15, stateful_step_count=20, deadline=None)
TestLedgerModel = LedgerModel.TestCase


# --- many processes, and their deaths ---------------------------------------------------------------------


def test_racing_processes_share_one_limit(path: Path) -> None:
    racer = """
        import sys
        from userdp.errors import BudgetExceededError
        from userdp.privacy.ledger import Ledger

        won = 0
        with Ledger(sys.argv[1], timeout=60) as ledger:
            for _ in range(25):
                try:
                    ledger.reserve("a", 0.1, 1e-8)
                    won += 1
                except BudgetExceededError:
                    pass
        print(won)
    """
    with Ledger(path) as ledger:
        ledger.limit("a", 6, 1e-6)
        racers = [start(racer, path) for _ in range(4)]
        assert sum(int(output_of(process)) for process in racers) == 60
        assert len(ledger.status("a")[0].entries) == 60
        assert spent(ledger).epsilon == 6


def test_racing_processes_start_one_ledger(path: Path) -> None:
    starter = """
        import sys
        from userdp.privacy.ledger import Ledger

        with Ledger(sys.argv[1], timeout=60) as ledger:
            ledger.limit(sys.argv[2], 1, 1e-6)
    """
    for process in [start(starter, path, name) for name in "abcd"]:
        output_of(process)
    with Ledger(path, create=False) as ledger:
        assert [account.dataset for account in ledger.status()] == list("abcd")


def test_kill_9_never_unspends(path: Path, tmp_path: Path) -> None:
    releaser = """
        import os, sys
        from userdp.privacy.ledger import Ledger

        answers = os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        with Ledger(sys.argv[1]) as ledger:
            while True:
                reservation = ledger.reserve("a", 0.001, 1e-9)
                os.write(answers, f"{reservation.id}\\n".encode())
                os.fsync(answers)
    """
    answers, rounds, rng = tmp_path / "answers", 15, random.Random()
    answers.touch()
    with Ledger(path) as ledger:
        ledger.limit("a", 1000, 1e-3)
    for _ in range(rounds):
        seen = answers.stat().st_size
        process = start(releaser, path, answers)
        while answers.stat().st_size == seen:
            assert process.poll() is None, output_of(process)
        time.sleep(rng.uniform(0, 0.05))
        process.kill()
        process.communicate()
        released = [int(line) for line in answers.read_text().splitlines()]
        with Ledger(path, create=False) as ledger:
            recorded = [entry.reservation.id for entry in ledger.status("a")[0].entries]
        assert set(released) <= set(recorded)
        assert len(recorded) <= len(released) + rounds  # at most the one in flight is lost per death
    assert len(released) == len(set(released))


def test_a_death_inside_a_transaction_is_rolled_back(path: Path) -> None:
    half_a_commit = """
        import os, signal, sqlite3, sys

        db = sqlite3.connect(sys.argv[1], isolation_level=None)
        db.execute("PRAGMA cache_size = 1")  # spills: the file itself changes before the commit
        db.execute("BEGIN IMMEDIATE")
        for _ in range(500):
            db.execute("INSERT INTO entries (dataset, epsilon, delta, what, reserved_at) "
                       "VALUES ('a', '0.1', '1E-9', hex(randomblob(500)), '')")
        os.kill(os.getpid(), signal.SIGKILL)
    """
    with Ledger(path) as ledger:
        ledger.limit("a", 1, 1e-6)
        ledger.reserve("a", 0.1, 1e-9)
        before = ledger.status()
    size = path.stat().st_size
    start(half_a_commit, path).communicate()
    assert path.stat().st_size > size
    assert path.with_name("ledger.db-journal").exists()
    with Ledger(path, create=False) as ledger:
        assert ledger.status() == before
    assert not path.with_name("ledger.db-journal").exists()


def test_a_death_while_the_ledger_is_made(path: Path) -> None:
    half_a_ledger = """
        import os, signal, sqlite3, sys

        db = sqlite3.connect(sys.argv[1], isolation_level=None)
        db.execute("PRAGMA cache_size = 1")
        db.execute("BEGIN IMMEDIATE")
        db.execute("CREATE TABLE limits (what TEXT)")
        for _ in range(500):
            db.execute("INSERT INTO limits VALUES (hex(randomblob(500)))")
        os.kill(os.getpid(), signal.SIGKILL)
    """
    start(half_a_ledger, path).communicate()
    assert path.stat().st_size > 0
    with Ledger(path) as ledger:
        assert ledger.status() == ()
        ledger.limit("a", 1, 1e-6)


def test_reservations_are_synced_to_disk_and_folder(ledger: Ledger) -> None:
    extra = 3
    assert ledger._pragma("synchronous") == extra
    assert ledger._pragma("journal_mode") == "delete"


# --- files ------------------------------------------------------------------------------------------------


def assert_refused(path: Path | str, match: str) -> None:
    with pytest.raises(InvalidInputError, match=match) as refusal:
        Ledger(path)
    assert "\n" not in str(refusal.value)
    assert "nothing was recorded" in str(refusal.value)


@pytest.mark.parametrize("content", [b"epsilon,delta\n1,1e-6\n" * 100, b"\0" * 5000, b"x"])
def test_a_file_that_is_not_sqlite(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    assert_refused(path, "not a ledger")
    assert path.read_bytes() == content


def test_an_empty_file_is_a_ledger_without_limits(path: Path) -> None:
    path.touch()
    with Ledger(path) as ledger, pytest.raises(InvalidInputError, match="no limit"):
        ledger.reserve("a", 0.1, 1e-7)


def filled(path: Path) -> None:
    with Ledger(path) as ledger:
        ledger.limit("a", 100, 1e-3)
        for _ in range(40):
            ledger.reserve("a", 0.1, 1e-9, what="x" * 300)


def test_a_truncated_ledger(path: Path, tmp_path: Path) -> None:
    filled(path)
    content = path.read_bytes()
    for length in [*range(1, len(content), 509), len(content) - 1]:
        cut = tmp_path / f"cut-{length}.db"
        cut.write_bytes(content[:length])
        assert_refused(cut, "damaged|not a ledger")
        assert cut.read_bytes() == content[:length]


def test_a_ledger_with_wiped_pages(path: Path, tmp_path: Path) -> None:
    filled(path)
    content = path.read_bytes()
    for page in range(len(content) // 4096):
        wiped = tmp_path / f"wiped-{page}.db"
        wiped.write_bytes(content[: page * 4096] + b"\xff" * 4096 + content[(page + 1) * 4096 :])
        assert_refused(wiped, "damaged")


@pytest.mark.parametrize("value", ["zero", "-5", "NaN", "0", b"\xff"])
@pytest.mark.parametrize("table", ["limits", "entries"])
def test_an_amount_that_nobody_reserved(path: Path, table: str, value: object) -> None:
    filled(path)
    unseal(path)
    alter(path, f"UPDATE {table} SET epsilon = ? WHERE id = 1", value)
    with Ledger(path) as ledger:
        for call in (lambda: ledger.reserve("a", 0.1, 1e-9), ledger.status):
            with pytest.raises(InvalidInputError, match="damaged"):
                call()


_CHANGES = (
    "UPDATE entries SET epsilon = '0.001' WHERE id = 7",
    "UPDATE entries SET delta = '1e-9' WHERE id = 7",
    "UPDATE entries SET dataset = 'b' WHERE id = 7",
    "UPDATE entries SET mu = 0.5 WHERE id = 7",
    "UPDATE entries SET mu = 1.0, epsilon = CAST(1 AS BLOB) WHERE id = 7",
    "UPDATE entries SET reserved_at = '2001-01-01T00:00:00+00:00' WHERE id = 7",
    "UPDATE entries SET released_at = '2001-01-01T00:00:00+00:00' WHERE id = 7",
    "UPDATE entries SET reference = 'elsewhere' WHERE id = 7",
    "UPDATE entries SET id = 1000 WHERE id = 7",
    "DELETE FROM entries WHERE id = 7",
    "DELETE FROM entries WHERE id = (SELECT max(id) FROM entries)",
    "DELETE FROM entries",
    "UPDATE limits SET epsilon = '99'",
    "UPDATE limits SET dataset = 'b'",
    "INSERT INTO limits (dataset, epsilon, delta, set_at) VALUES ('a', '99', '0.5', '')",
    "UPDATE seal SET digest = 'x' || digest",
    "INSERT INTO seal SELECT digest FROM seal",
    "DELETE FROM seal",
    "DROP TABLE seal",
    "PRAGMA user_version = 1",
)


@pytest.mark.parametrize("change", _CHANGES)
def test_a_change_inside_a_sound_database_is_noticed(path: Path, change: str) -> None:
    """When it is opened, and also by a ledger that was open before."""
    filled(path)
    with Ledger(path) as ledger:
        alter(path, change)
        for call in (
            lambda: ledger.reserve("a", 0.1, 1e-9),
            lambda: ledger.limit("a", 1, 0.1),
            ledger.status,
        ):
            with pytest.raises(InvalidInputError, match="damaged"):
                call()
    assert_refused(path, "damaged")


def test_no_flipped_bit_lowers_what_is_spent(path: Path) -> None:
    """A bit of every byte in use, one at a time: refused, or read as it was."""
    with Ledger(path) as ledger:
        ledger.limit("people", 1, 1e-5)
        ledger.reserve("people", 0.25, 1e-6, what="a mean")
        before = ledger.status()
    content = path.read_bytes()
    used = [at for at in range(100, len(content)) if content[at]]
    refused = 0
    for at in used:
        bit = 1 << (at % 8)
        path.write_bytes(content[:at] + bytes([content[at] ^ bit]) + content[at + 1 :])
        try:
            with Ledger(path, create=False) as ledger:
                assert ledger.status() == before
        except InvalidInputError:
            refused += 1
    assert refused > len(used) // 2


def test_what_changes_nothing_writes_nothing(path: Path) -> None:
    filled(path)
    with Ledger(path) as ledger:
        limit, before = ledger.status("a")[0].limit, path.read_bytes()
        ledger.limit("a", limit.epsilon, limit.delta)
    assert path.read_bytes() == before


def unseal(path: Path) -> None:
    """Turn a ledger into one of format 1, which had no seal."""
    alter(path, "DROP TABLE seal")
    alter(path, "PRAGMA user_version = 1")


def test_a_ledger_without_a_seal_is_read_and_sealed_by_the_next_entry(path: Path) -> None:
    filled(path)
    unseal(path)
    with Ledger(path) as ledger:
        before = spent(ledger)
        ledger.reserve("a", 0.1, 1e-9)
        assert spent(ledger).epsilon == before.epsilon + Decimal("0.1")
    alter(path, "UPDATE entries SET epsilon = '0.001' WHERE id = 7")
    assert_refused(path, "damaged")


def test_a_ledger_without_a_seal_is_not_written_by_reading(path: Path) -> None:
    filled(path)
    unseal(path)
    before = path.read_bytes()
    with Ledger(path) as ledger:
        ledger.status()
    assert path.read_bytes() == before


def alter(path: Path, statement: str, *values: object) -> None:
    db = sqlite3.connect(path)
    with db:
        db.execute(statement, values)
    db.close()


def test_another_programs_sqlite_file(path: Path) -> None:
    alter(path, "CREATE TABLE songs (title TEXT)")
    before = path.read_bytes()
    assert_refused(path, "not a ledger")
    assert path.read_bytes() == before


def test_a_ledger_from_a_newer_version(path: Path) -> None:
    filled(path)
    alter(path, "PRAGMA user_version = 3")
    assert_refused(path, "format 3, this userdp reads 2; upgrade")


@pytest.mark.parametrize("where", ["/dev/null", "/proc/ledger.db", ".", "", "/nowhere/ledger.db"])
def test_places_that_cannot_hold_a_ledger(where: str) -> None:
    assert_refused(where, "not a file|cannot be opened")


def test_memory_is_only_a_file_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with Ledger(":memory:") as ledger:
        ledger.limit("a", 1, 1e-6)
    assert (tmp_path / ":memory:").stat().st_size > 0


def test_a_mistyped_path_is_not_created(path: Path) -> None:
    with pytest.raises(InvalidInputError, match="no such file"):
        Ledger(path, create=False)
    assert not path.exists()


def test_a_read_only_ledger_can_be_read(path: Path) -> None:
    # Root may write anywhere, so the process steps down; it reads a folder that everybody may enter.
    reader = """
        import os, sys
        from userdp.errors import InvalidInputError
        from userdp.privacy.ledger import Ledger

        if os.geteuid() == 0:
            os.setuid(65534)
        with Ledger(sys.argv[1]) as ledger:
            try:
                ledger.reserve("a", 0.1, 1e-9)
            except InvalidInputError as error:
                print(error)
            print(len(ledger.status("a")[0].entries))
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.db"
        filled(path)
        path.chmod(0o444)
        os.chmod(folder, 0o555)
        error, entries = output_of(start(reader, path)).splitlines()
        os.chmod(folder, 0o755)
    assert "not written" in error
    assert entries == "40"


def test_a_ledger_locked_by_another(path: Path) -> None:
    filled(path)
    with Ledger(path, timeout=0.1) as ledger:
        before = ledger.status()
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(InvalidInputError, match="locked"):
            ledger.reserve("a", 0.1, 1e-9)
        other.execute("ROLLBACK")
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(InvalidInputError, match="locked"):
            Ledger(path, timeout=0.1)
        other.close()
        assert ledger.status() == before
        ledger.reserve("a", 0.1, 1e-9)


def test_a_reader_that_blocks_the_commit(path: Path) -> None:
    filled(path)
    with Ledger(path, timeout=0.1) as ledger:
        before = ledger.status()
        reader = sqlite3.connect(path, isolation_level=None)
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM entries").fetchone()
        with pytest.raises(InvalidInputError, match="locked"):
            ledger.reserve("a", 0.1, 1e-9)
        reader.close()
        assert ledger.status() == before


def test_a_full_disk(path: Path) -> None:
    filled(path)
    with Ledger(path) as ledger:
        before = ledger.status()
        ledger._db.execute(f"PRAGMA max_page_count = {ledger._pragma('page_count')}")
        with pytest.raises(InvalidInputError, match="disk is full"):
            ledger.reserve("a", 0.1, 1e-9, what="x" * 10_000)
        assert ledger.status() == before


def test_a_write_that_fails_midway(path: Path) -> None:
    spender = """
        import resource, sys
        from pathlib import Path
        from userdp.errors import InvalidInputError
        from userdp.privacy.ledger import Ledger

        with Ledger(sys.argv[1]) as ledger:
            size = Path(sys.argv[1]).stat().st_size
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
            try:
                ledger.reserve("a", 0.1, 1e-9, what="x" * 10_000)
            except InvalidInputError as error:
                print(error)
    """
    filled(path)
    assert "disk cannot be read or written" in output_of(start(spender, path))
    with Ledger(path) as ledger:
        assert len(ledger.status("a")[0].entries) == 40


@pytest.mark.parametrize("fate", ["deleted", "replaced"])
def test_a_file_taken_away_under_an_open_ledger(path: Path, fate: str) -> None:
    filled(path)
    with Ledger(path) as ledger:
        path.rename(path.with_name("elsewhere.db"))
        if fate == "replaced":
            filled(path)
        with pytest.raises(InvalidInputError, match="Cannot use the ledger"):
            ledger.reserve("a", 0.1, 1e-9)


def test_a_closed_ledger_says_so(path: Path) -> None:
    with Ledger(path) as ledger:
        pass
    with pytest.raises(InvalidInputError, match="closed"):
        ledger.status()


def test_the_balance_is_read_under_the_write_lock(ledger: Ledger) -> None:
    """Between reading what is spent and adding to it no other process may come."""
    ledger.limit("d", 1, 0.5)
    statements: list[str] = []
    ledger._db.set_trace_callback(statements.append)
    ledger.reserve("d", 0.1, 1e-6)
    ledger._db.set_trace_callback(None)
    words = [statement.split()[:2] for statement in statements]
    assert words[0] == ["BEGIN", "IMMEDIATE"]
    inside = [first for first, *_ in words[1:]]
    assert set(inside) == {"PRAGMA", "SELECT", "INSERT", "DELETE", "COMMIT"}
    assert inside.index("INSERT") > inside.index("SELECT")
    assert inside[-1] == "COMMIT"
    assert inside.count("COMMIT") == 1


@pytest.mark.parametrize("splinter", [b"\x80", b"\n\x80", b"\xff\n"])
def test_damaged_text_is_refused_in_one_line(path: Path, splinter: bytes) -> None:
    """Wherever it stands: in the schema, in a name, in a time."""
    with Ledger(path) as book:
        book.limit("people", 1, 1e-5)
        book.reserve("people", 0.25, 1e-6, what="a mean")
    content = path.read_bytes()
    used = [at for at in range(0, len(content), 5) if content[at : at + 2].strip(b"\0")]
    refusals = []
    for at in used:
        path.write_bytes(content[:at] + splinter + content[at + len(splinter) :])
        try:
            with Ledger(path, create=False) as book:
                book.status()
        except InvalidInputError as error:
            refusals.append(str(error))
    assert len(refusals) > len(used) // 2
    assert all(refusal.isprintable() for refusal in refusals)
