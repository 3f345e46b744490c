"""Parquet files are read once in a process of their own, before this one dares to.

On some damaged files the native reader panics, which prints pages to stderr, or asks for more memory than there is,
which ends the whole process: no exception to catch, a draft left behind, an exit code that nobody documented. A process
that exists only to read the file may die of it; what it printed is dropped, and one line says what is wrong.
"""

import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from userdp.cli import interrupts
from userdp.data.files import parquet_files, unreadable

_PANICKED = 86
# Errors that polars raises in good order are left to whoever reads the rows, and says it better.
_READER = f"""
import json, os, sys
try:
    import polars as pl
    columns, paths = json.load(sys.stdin)
    frame = pl.scan_parquet(paths, glob=False, hive_partitioning=False)
    known = frame.collect_schema().names()
    wanted = [name for name in known if name in columns] if columns else known
    for _ in frame.select(wanted).collect_batches(chunk_size=2**17, maintain_order=True):
        pass
except Exception:
    pass
except BaseException:
    os._exit({_PANICKED})
os._exit(0)
"""
_DEADLY = {_PANICKED, *(-number for number in (signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL))}


def rehearse(source: Path, columns: Sequence[str] | None = None) -> None:
    """Read some columns of a table's parquet files, or all, in another process.

    Raises
    ------
    InvalidInputError
        If that process did not survive it.
    """
    paths = [str(path) for path in parquet_files(source)]
    if not paths or not sys.executable:
        return
    # -P: a file called polars.py in the working folder is not what is meant.
    result = subprocess.run(
        [sys.executable, "-P", "-c", _READER],
        input=json.dumps([list(columns or ()), paths]).encode(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    interrupts.check()
    if result.returncode in _DEADLY:
        raise unreadable(str(source), "parquet", RuntimeError())
