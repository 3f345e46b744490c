"""Budget on the command line: reserved before the first noisy answer, spent from then on."""

import contextlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from userdp.arrays import IntArray
from userdp.cli.display import print_line
from userdp.errors import InvalidInputError, NotConcentratedError, UserDPError
from userdp.mechanisms.noise import SecureNoise, SeededNoise
from userdp.optimizers.checkpoint import Checkpoint, run_name
from userdp.privacy.budget import Budget
from userdp.privacy.ledger import Ledger, Reservation


class BudgetSpentError(Exception):
    """A command failed after its first noisy answer: the budget is spent and nothing was released."""

    def __init__(self, message: str, *, interrupted: bool = False) -> None:
        super().__init__(message)
        self.interrupted = interrupted


class Spending:
    """The budget of one release; ``spending`` opens it."""

    def __init__(self, budget: Budget, ledger: Ledger | None, dataset: str, what: str) -> None:
        self.is_spent = False
        self.reservation: Reservation | None = None
        self._budget, self._ledger, self._dataset, self._what = budget, ledger, dataset, what

    def noise(self, seed: int | None) -> Any:
        """Return a source of noise that spends the budget before its first draw."""
        return _SpendingNoise(self) if seed is None else _SpendingSeededNoise(self, seed)

    def spend(self) -> None:
        """Reserve the budget, once; a refusal comes out here, before any noise is drawn."""
        if not self.is_spent and self._ledger is not None:
            self.reservation = self._ledger.reserve(
                self._dataset, tidy(self._budget.epsilon), self._budget.delta, what=self._what
            )
        self.is_spent = True

    @contextmanager
    def printing(self, out: Path | None) -> Iterator[None]:
        """Print a release; where that fails, say what became of it: its budget is spent all the same."""
        try:
            yield
            if sys.stdout is not None:
                sys.stdout.flush()
        except (OSError, SystemExit) as error:  # the second is how a table ends when nobody reads it
            problem = error.strerror if isinstance(error, OSError) else "nobody reads it"
            where = "it is lost" if out is None else f"it is in {out}"
            raise BudgetSpentError(
                f"cannot print the release: {problem}; {where}; the budget is spent"
            ) from None

    def resume(self) -> None:
        """Take over the reservation that this run made before it was interrupted, if it did."""
        if self._ledger is None:
            return
        amount = Decimal(str(tidy(self._budget.epsilon))), Decimal(str(self._budget.delta))
        (account,) = self._ledger.status(self._dataset)
        for entry in account.entries:
            found = entry.reservation
            if entry.what == self._what and (found.epsilon, found.delta) == amount:
                self.reservation, self.is_spent = found, True

    def released(self, reference: Path | None) -> None:
        """Note in the ledger that the release came out, and where; the sums are right without the note."""
        if self._ledger is None or self.reservation is None:
            return
        place = str(reference.absolute()) if reference is not None else "printed"
        try:
            self._ledger.mark_released(self.reservation, place if place.isprintable() else "")
        except UserDPError as error:
            print_line("warning", f"the release is out, but the ledger does not say so: {error}")


@contextmanager
def spending(
    budget: Budget, file: Path | None, dataset: str | None, what: str, checkpoint: Path | None = None
) -> Iterator[Spending]:
    """Open the ledger, if there is one, and tell failures before the first noise from those after.

    ``checkpoint`` is the folder of a run that may be interrupted: however often it goes on, it pays once. A run that
    ends before its first noise leaves no folder.
    """
    if (file is None) != (dataset is None):
        raise InvalidInputError("--ledger FILE and --dataset NAME go together; give both or neither")
    ledger = None
    if file is not None:
        ledger = Ledger(file, create=False)
    is_new = checkpoint is not None and not os.path.lexists(checkpoint)
    # A run that may be interrupted has a name of its own, under which it finds its reservation again.
    named = what if checkpoint is None else f"{what}, run {run_name(checkpoint)}"
    spend = Spending(budget, ledger, dataset or "", named)
    try:
        if ledger is not None:
            ledger.status(dataset)  # a data set without a limit is refused before anything is read
            if checkpoint is not None:
                spend.resume()
        yield spend
        is_new = False
    except (UserDPError, OSError) as error:
        if not spend.is_spent:
            raise
        remark = "" if isinstance(error, NotConcentratedError) else "; the budget is spent"
        raise BudgetSpentError(f"{error}{remark}") from error
    except KeyboardInterrupt:
        if not spend.is_spent:
            raise
        raise BudgetSpentError("interrupted; the budget is spent", interrupted=True) from None
    finally:
        if checkpoint is not None and is_new and not spend.is_spent:
            _forget(checkpoint)
        if ledger is not None:
            ledger.close()


def _forget(checkpoint: Path) -> None:
    """Remove the folder of a run that has drawn nothing, unless another process has taken it up."""
    with contextlib.suppress(InvalidInputError), Checkpoint(checkpoint) as run:
        run.finish()


def tidy(epsilon: float) -> float:
    """Write whole numbers without a point in the ledger."""
    return int(epsilon) if epsilon.is_integer() else epsilon


class _SpendsFirst:
    """Spends the budget before the first draw of whichever source comes next in line."""

    _spending: Spending

    def discrete_gaussian(self, scale: float, size: int) -> IntArray:
        self._spending.spend()
        return super().discrete_gaussian(scale, size)  # type: ignore[misc,no-any-return]

    def discrete_laplace(self, scale: float, size: int) -> IntArray:
        self._spending.spend()
        return super().discrete_laplace(scale, size)  # type: ignore[misc,no-any-return]

    def geometric(self, scale: float, size: int) -> IntArray:
        self._spending.spend()
        return super().geometric(scale, size)  # type: ignore[misc,no-any-return]

    def permutation(self, n: int) -> IntArray:
        self._spending.spend()
        return super().permutation(n)  # type: ignore[misc,no-any-return]


class _SpendingNoise(_SpendsFirst, SecureNoise):
    def __init__(self, spending: Spending) -> None:
        self._spending = spending


class _SpendingSeededNoise(_SpendsFirst, SeededNoise):
    def __init__(self, spending: Spending, seed: int | np.random.Generator) -> None:
        super().__init__(seed)
        self._spending = spending
