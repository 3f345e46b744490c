"""Hands the loops that Numba compiles (``userdp[fast]``) to XLA, for its own programs and on its own threads.

They compute what XLA would, in fewer passes over memory. Without Numba, or with an XLA that refuses them, XLA's own
loops do the work; whoever asks for :func:`loaded` has such a way.
"""

from functools import cache
from types import ModuleType

import jax

GRADIENTS, CROWD = "userdp_glm_gradients", "userdp_crowd"


@cache
def loaded() -> ModuleType | None:
    """Compile the loops and hand them to XLA, once; None where that is not possible.

    There is no Numba, or none for this NumPy; Numba finds no place to keep what it compiled; XLA does not speak the
    version of its interface that the handlers state.
    """
    try:
        from userdp.kernels import handlers

        jax.devices("cpu")  # before XLA has started, it would refuse later, where nobody can do without
        for target, handler in ((GRADIENTS, handlers.glm_gradients), (CROWD, handlers.crowd)):
            capsule = jax.ffi.pycapsule(handler.ctypes)  # type: ignore[no-untyped-call]
            jax.ffi.register_ffi_target(target, capsule, platform="cpu")
    except (ImportError, RuntimeError):
        return None
    return handlers
