"""Per-user gradients of a linear predictor on a CPU by one compiled kernel, which reads a user's features once.

XLA computes the predictions and the sum of slope times row by two kernels, each of which takes about as long as the
memory takes to deliver the rows. Here a few rows at a time are read, predicted and added up while they are in the
first cache. Numba (``userdp[fast]``) compiles :mod:`userdp.kernels`, and XLA calls them inside its own loops
and on its own threads. Without Numba, or with an XLA that refuses the kernel, XLA's own kernels do the work.

Users are computed apart from each other by the same instructions in one order, so here, too, a vector is bit for bit a
function of its user; it differs from that of XLA's kernels in the last bits, because the order of summation does. Which
kernel computes a user depends on what is installed, on the loss, and on the width and length of the user's rows.
"""

from dataclasses import astuple
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import DTypeLike

from userdp.engines.layout import Packed
from userdp.engines.quantized import Quantized
from userdp.errors import InvalidInputError
from userdp.kernels import xla
from userdp.problems import (
    GLM,
    Absolute,
    Hinge,
    Huber,
    Logistic,
    Pinball,
    Poisson,
    Squared,
    SquaredHinge,
)

# In the order of the kernel's numbers for them. Their fields, at most two, are the constants of the derivative.
LOSSES = (Logistic, Hinge, SquaredHinge, Squared, Absolute, Pinball, Huber, Poisson)
# The users are cut into calls of at least so many numbers, which XLA hands to its threads: a row counts as sixteen or
# more, a user as so many. Of fewer than about ten calls XLA uses one thread alone.
_PIECE = 2**15
_NUMBERS_PER_USER = 256
_MOST_PIECES = 32


def serves(loss: object, n_features: int, dtype: DTypeLike) -> bool:
    """Whether the kernel is there and made for this loss and for rows of this type and length."""
    if type(loss) not in LOSSES or np.dtype(dtype) != np.float32:
        return False
    handlers = xla.loaded()
    return handlers is not None and n_features <= handlers.LONGEST_ROW


def glm_gradients(loss: GLM, users: Packed | Quantized, theta: Array) -> Array:
    """Return every user's weighted sum of ``derivative(<x, theta>, y) x``, shape ``(n_users, d)``."""
    kind, constants = LOSSES.index(type(loss)), np.zeros(2, np.float32)
    fields = astuple(loss)  # type: ignore[call-overload]
    constants[: len(fields)] = fields
    n, d = users.n_users, users.n_features
    if theta.shape != (d,):  # the kernel would read past the rows
        raise InvalidInputError(
            f"theta must have {d} coordinates, one for each feature, got shape {theta.shape}"
        )
    work = len(users.targets) * max(d, 16) + n * _NUMBERS_PER_USER
    pieces = max(1, min(_MOST_PIECES, n, work // _PIECE))
    cuts = np.linspace(0, n, pieces + 1).astype(int)

    handlers = xla.loaded()
    assert handlers is not None  # it serves
    storage = {np.uint8: handlers.BYTES, np.float16: handlers.HALVES, np.float32: handlers.FLOATS}
    weights, units = (users.items, (users.units,)) if isinstance(users, Quantized) else (users.weights, ())

    def of_users(first: int, last: int) -> Array:
        shape = jax.ShapeDtypeStruct((last - first, d), jnp.float32)  # type: ignore[no-untyped-call]
        question = np.array([kind, first, storage[users.features.dtype.type]], np.int32)
        found: Array = jax.ffi.ffi_call(xla.GRADIENTS, shape)(
            users.features, users.targets, weights, theta, users.offsets, question, constants, *units
        )
        return found

    return jnp.concatenate([of_users(first, last) for first, last in pairwise(cuts)])
