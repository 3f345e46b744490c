"""The systems of Table 1, one file each: a ``METHOD`` that turns a task and a seed into a solution.

To add one, write a file with a ``METHOD`` and name it in ``NAMES``.
"""

from importlib import import_module

from benchmarks.methods.method import Method

NAMES = (
    "certified",
    "front_door",
    "paper",
    "bassily_sun",
    "levy",
    "friendly_core",
    "deletion_ptr",
    "item_dp_sgd",
    "localized_sgd",
    "clipped",
    "adaptive_clipped",
    "no_privacy",
)


def methods() -> dict[str, Method]:
    """Import every method by name, in the table's order."""
    return {name: import_module(f"benchmarks.methods.{name}").METHOD for name in NAMES}
