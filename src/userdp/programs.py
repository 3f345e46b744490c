"""Functions compiled by JAX that do not gather programs without end.

JAX compiles a program for every shape of its arguments and for every static value, and keeps all of them. Each holds
dozens to hundreds of memory maps, of which Linux grants a process 65,530: one that fits a thousand tables of different
sizes would crash.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import jax

# Programs of one function; with more, all of them are forgotten and those in use compiled again.
MOST_PROGRAMS = 64

R = TypeVar("R")


def compiled(*static: int) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Return a decorator: ``jax.jit`` with these static arguments, and with at most ``MOST_PROGRAMS`` programs."""

    def decorate(function: Callable[..., R]) -> Callable[..., R]:
        programs = 0

        @wraps(function)
        def traced(*args: Any) -> R:
            nonlocal programs
            programs += 1  # Python runs only while JAX traces, once a program
            return function(*args)

        jitted: Any = jax.jit(traced, static_argnums=static)

        @wraps(function)
        def call(*args: Any) -> R:
            nonlocal programs
            if programs >= MOST_PROGRAMS:
                jitted.clear_cache()
                programs = 0
            found: R = jitted(*args)
            return found

        return call

    return decorate
