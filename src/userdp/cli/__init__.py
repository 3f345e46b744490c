"""The command line: ``userdp fit``, ``predict``, ``mean``, ``plan``, ``audit``, ``demo`` and ``ledger``."""

from userdp.cli.app import app, main

__all__ = ["app", "main"]
