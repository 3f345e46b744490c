"""The application: its commands, and one line for whatever goes wrong."""

import contextlib
import os
import re
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import userdp
from userdp.cli import interrupts
from userdp.cli.audit import audit
from userdp.cli.demo import demo
from userdp.cli.display import print_line, warnings_as_lines
from userdp.cli.fit import fit
from userdp.cli.ledger import ledger
from userdp.cli.mean import mean
from userdp.cli.plan import plan
from userdp.cli.predict import predict
from userdp.cli.spending import BudgetSpentError
from userdp.errors import UserDPError

BAD_INPUT, BUDGET_SPENT, INTERRUPTED = 2, 3, 130

# Typer carries its own copy of click; whichever it is, this is the base of its usage errors.
UsageError: Any = typer.BadParameter.__bases__[0]


# Errors are the library's own; what they advise is an option here.
_AS_OPTIONS = tuple(
    (re.compile(python), option)
    for python, option in (
        (r'categories=\{"(.+?)": \["A", "B"\]\}', r"--categories '\1=A,B'"),
        (
            r"leave the column out of features",
            "leave the column out: --features, or --columns of a mean, name those to take",
        ),
        (r"name the features among", "name the features among these with --features:"),
        (
            r"declare at least two classes, or classes=None",
            "declare at least two classes, as in --classes no,yes, or choose --model linear",
        ),
        (
            r"is not a number; declare classes$",
            "is not a number; choose a classifier (--model logistic) and declare --classes",
        ),
        (r"for example classes=\(.*?\)", "for example --classes no,yes"),
    )
)


class OneLineErrors(TyperGroup):
    """Ends every foreseen failure with one line on stderr and its exit code."""

    def main(self, *args: Any, **options: Any) -> Any:
        """Run a command line; the exit code says whether budget was spent."""
        try:
            with warnings_as_lines(), interrupts.remembered():
                # Without standalone mode, Typer returns the code of an exit instead of raising it.
                code = super().main(*args, **{**options, "standalone_mode": False})
        except UsageError as error:
            _fail(_usage(error), BAD_INPUT)
        except BudgetSpentError as error:
            _fail(str(error), INTERRUPTED if error.interrupted else BUDGET_SPENT)
        except (UserDPError, OSError) as error:
            _fail(in_options(str(error)), BAD_INPUT)
        else:
            if code == INTERRUPTED:
                _fail("interrupted; nothing was written and no budget was spent", INTERRUPTED)
            raise SystemExit(code or 0)


def in_options(message: str) -> str:
    """Say an error's advice in this command line's options, where it is written as Python.

    Examples
    --------
    >>> in_options('declare its categories, as in categories={"by": ["A", "B"]}')
    "declare its categories, as in --categories 'by=A,B'"
    """
    for python, option in _AS_OPTIONS:
        message = python.sub(option, message)
    return message


def _fail(message: str, code: int) -> None:
    with contextlib.suppress(OSError):  # where stderr cannot be written either, the code still tells
        print_line("error", message)
    _abandon_stdout()
    raise SystemExit(code)


def _abandon_stdout() -> None:
    """Drop what could not be printed: Python would try again at its end, and end with a code of its own."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _usage(error: Any) -> str:
    problem = error.format_message().replace("Value error, ", "").rstrip(".")
    return problem if error.ctx is None else f"{problem}. See: {error.ctx.command_path} --help"


app = typer.Typer(
    name="userdp",
    cls=OneLineErrors,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (fit, predict, mean, plan, audit, demo):
    app.command()(command)
app.add_typer(ledger, name="ledger")


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(userdp.__version__)
        raise typer.Exit


@app.callback(invoke_without_command=True)
def about(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Learn from tables in which one person owns many rows, and protect each whole person.

    Exit codes: **0** done; **2** bad input, nothing written and no budget spent; **3** the budget is spent and
    nothing was released; **1** an audit that went over a claim; **130** interrupted.
    """
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main() -> None:
    """Run the command line of this process."""
    app(prog_name="userdp")
