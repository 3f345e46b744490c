"""Checks of public settings: what was expected, what came, what to do.

Each returns a plain Python number. JAX promotes those weakly, so that a setting never changes the floating
type of an answer; a NumPy scalar would.
"""

import math
from operator import index
from typing import Any

from userdp.errors import InvalidInputError


def settle(owner: object, **fields: object) -> None:
    """Store checked fields on a frozen dataclass, from its ``__post_init__`` only."""
    for name, value in fields.items():
        object.__setattr__(owner, name, value)


def positive(name: str, value: Any, remedy: str) -> float:
    """Return ``value`` as a float, or raise unless ``0 < value < inf``."""
    number = _number(value)
    if not 0 < number < math.inf:
        raise InvalidInputError(f"{name} must be a positive finite number, got {value!r}; {remedy}.")
    return number


def nonnegative(name: str, value: Any, remedy: str) -> float:
    """Return ``value`` as a float, or raise unless ``0 <= value <= inf``."""
    number = _number(value)
    if not number >= 0:
        raise InvalidInputError(f"{name} must be at least 0 (infinity is allowed), got {value!r}; {remedy}.")
    return number


def between(name: str, value: Any, low: float, high: float, remedy: str) -> float:
    """Return ``value`` as a float, or raise unless ``low < value < high``."""
    number = _number(value)
    if not low < number < high:
        raise InvalidInputError(
            f"{name} must lie strictly between {low:g} and {high:g}, got {value!r}; {remedy}."
        )
    return number


def count(name: str, value: Any, least: int, remedy: str) -> int:
    """Return ``value`` as an int, or raise unless it is an integer >= ``least``."""
    try:
        number = least - 1 if isinstance(value, bool) else index(value)
    except TypeError:
        number = least - 1
    if number < least:
        raise InvalidInputError(f"{name} must be an integer >= {least}, got {value!r}; {remedy}.")
    return number


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan
