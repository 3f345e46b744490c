"""Per-user gradients of a linear predictor on a CPU by one compiled kernel, which reads a user's features once.

XLA computes the predictions and the sum of slope times row by two kernels, each of which takes about as long as the
memory takes to deliver the rows. Here a few rows at a time are read, predicted and added up while they are in the
first cache. Numba (``userdp[fast]``) compiles :mod:`userdp.engines.fused_kernel`, and XLA calls it inside its own loops
and on its own threads. Without Numba, or with an XLA that refuses the kernel, XLA's own kernels do the work.

Users are computed apart from each other by the same instructions in one order, so here, too, a vector is bit for bit a
function of its user; it differs from that of XLA's kernels in the last bits, because the order of summation does. Which
kernel computes a user depends on what is installed, on the loss, and on the width and length of the user's rows.
"""

from dataclasses import astuple
from functools import cache
from itertools import pairwise
from types import ModuleType

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import DTypeLike

from userdp.engines.layout import Packed
from userdp.errors import InvalidInputError
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

_TARGET = "userdp_glm_gradients"
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
    kernel = _kernel()
    return kernel is not None and n_features <= kernel.LONGEST_ROW


def glm_gradients(loss: GLM, users: Packed, theta: Array) -> Array:
    """Return every user's weighted sum of ``derivative(<x, theta>, y) x``, shape ``(n_users, d)``."""
    kind, constants = LOSSES.index(type(loss)), np.zeros(2, np.float32)
    fields = astuple(loss)  # type: ignore[call-overload]
    constants[: len(fields)] = fields
    n, d = users.n_users, users.features.shape[1]
    if theta.shape != (d,):  # the kernel would read past the rows
        raise InvalidInputError(
            f"theta must have {d} coordinates, one for each feature, got shape {theta.shape}"
        )
    work = len(users.features) * max(d, 16) + n * _NUMBERS_PER_USER
    pieces = max(1, min(_MOST_PIECES, n, work // _PIECE))
    cuts = np.linspace(0, n, pieces + 1).astype(int)

    def of_users(first: int, last: int) -> Array:
        shape = jax.ShapeDtypeStruct((last - first, d), jnp.float32)  # type: ignore[no-untyped-call]
        question = np.array([kind, first, users.features.dtype == jnp.float16], np.int32)
        found: Array = jax.ffi.ffi_call(_TARGET, shape)(
            users.features, users.targets, users.weights, theta, users.offsets, question, constants
        )
        return found

    return jnp.concatenate([of_users(first, last) for first, last in pairwise(cuts)])


@cache
def _kernel() -> ModuleType | None:
    """Compile the kernel and hand it to XLA, once; None where that is not possible.

    There is no Numba, or none for this NumPy; Numba finds no place to keep what it compiled; XLA does not speak the
    version of its interface that the kernel states.
    """
    try:
        from userdp.engines import fused_kernel

        capsule = jax.ffi.pycapsule(fused_kernel.handler.ctypes)  # type: ignore[no-untyped-call]
        jax.devices("cpu")  # before XLA has started, it would refuse later, where nobody can do without
        jax.ffi.register_ffi_target(_TARGET, capsule, platform="cpu")
    except (ImportError, RuntimeError):
        return None
    return fused_kernel
