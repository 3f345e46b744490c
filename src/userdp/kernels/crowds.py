"""How far users lie from a centre, and the sum of their offsets, on a lattice (:mod:`userdp.means.in_loop_friends`).

Plain loops, which the compiler turns into vector instructions: sums of squares may be added in any order, since their
rounding is allowed for, and quotients are rounded as they should be.
"""

# mypy: ignore-errors

import numpy as np
from numba import njit

from userdp.kernels.lanes import doubles_room

# The offsets of a longer vector would not fit into the nearest cache.
LONGEST_VECTOR = 2048
_OPTIONS = {"fastmath": {"contract", "reassoc"}, "error_model": "numpy"}


@njit(**_OPTIONS)
def survey(n, d, x, step, limit, centre, found):
    """Set ``found`` to the sum of n users' offsets, how many users there are, and their largest squared distance.

    A user whose coordinates are not all within the limit is null and counts for nothing.
    """
    offsets = doubles_room(LONGEST_VECTOR)
    for j in range(d + 2):
        found[j] = 0.0
    number, farthest = 0, 0.0
    for user in range(n):
        first, within, squared = user * d, 0, 0.0
        for j in range(d):
            unit = np.rint(np.float64(x[first + j]) / step)
            within += abs(unit) <= limit
            offsets[j] = unit - centre[j]
            squared += offsets[j] * offsets[j]
        if within == d:
            number += 1
            farthest = max(farthest, squared)
            for j in range(d):
                found[j] += offsets[j]
    found[d], found[d + 1] = number, farthest
