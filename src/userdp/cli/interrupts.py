"""Ctrl-C that is never lost.

Python raises an interrupt wherever it stands. Inside a callback that a compiled library calls, and inside a
destructor, the exception is reported and dropped, and the program would go on to write its files.
"""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_asked = threading.Event()


@contextmanager
def remembered() -> Iterator[None]:
    """Note interrupts besides raising them, for ``check`` to find."""
    before, report = signal.getsignal(signal.SIGINT), sys.unraisablehook
    if before is signal.SIG_IGN or threading.current_thread() is not threading.main_thread():
        yield
        return

    def note(*_: object) -> None:
        _asked.set()
        raise KeyboardInterrupt

    def report_others(dropped: Any) -> None:
        if not isinstance(dropped.exc_value, KeyboardInterrupt):
            report(dropped)

    signal.signal(signal.SIGINT, note)
    sys.unraisablehook = report_others
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        sys.unraisablehook = report
        _asked.clear()


def check() -> None:
    """Raise an interrupt that was dropped on its way; called before anything is written."""
    if _asked.is_set():
        raise KeyboardInterrupt
