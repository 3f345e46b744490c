"""All users of a round as one crowd: whether they are all seen to be friends, and then the sum behind their mean."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from userdp.kernels import xla
from userdp.means.in_loop import in_steps
from userdp.means.in_loop_friends import Survey, rounding_slack, survey
from userdp.means.lattice import COORDINATE_LIMIT, Lattice
from userdp.means.lattice_sums import round_to_lattice

# The users are cut into calls of at least so many numbers, which XLA hands to its threads.
_PIECE, _MOST_PIECES = 2**14, 32
# The average of so many users will do.
_SAMPLE = 1024


def crowd_of(vectors: Array, lattice: Lattice) -> Survey:
    """Look at users' vectors as one crowd, by the compiled loop where it serves.

    Both ways agree on the sum and the number where both see that all are friends; one may see it where the other, whose
    centre is another, does not. That changes the time, never the answer.
    """
    if not serves(vectors):
        return _by_xla(vectors, lattice)

    found: Survey = jax.lax.platform_dependent(
        vectors,
        cpu=lambda vectors: _by_kernel(vectors, lattice),
        default=lambda vectors: _by_xla(vectors, lattice),
    )
    return found


def serves(vectors: Array) -> bool:
    """Whether the compiled loop is there and made for such vectors, on a CPU."""
    handlers = xla.loaded()
    # Without float64 the loop would be handed numbers of another size than it reads and writes.
    has_doubles = jnp.zeros(()).dtype == np.float64
    is_short = handlers is not None and vectors.shape[1] <= handlers.LONGEST_VECTOR
    return is_short and has_doubles and vectors.dtype == np.float32


def look_around(vectors: Array, centre: Array, lattice: Lattice) -> tuple[Array, Array, Array]:
    """Return how many users there are, how far the farthest is from the centre, and the sum of the u_j - centre.

    The compiled loop's numbers; the sum is exact if all lie within a radius.
    """
    n, d = vectors.shape
    cuts = np.linspace(0, n, max(1, min(_MOST_PIECES, n, n * d // _PIECE)) + 1).astype(np.int64)
    numbers, shape = np.array([lattice.step, COORDINATE_LIMIT]), jax.ShapeDtypeStruct((d + 2,), jnp.float64)  # type: ignore[no-untyped-call]
    call = jax.ffi.ffi_call(xla.CROWD, shape)
    parts = jnp.stack([call(vectors, centre, numbers, np.array(cut)) for cut in pairwise(cuts)])
    number, farthest = jnp.sum(parts[:, d]).astype(jnp.int64), jnp.sqrt(jnp.max(parts[:, d + 1]))
    return number, farthest, jnp.sum(parts[:, :d], axis=0)


def _by_xla(vectors: Array, lattice: Lattice) -> Survey:
    return survey(round_to_lattice(vectors, lattice), lattice.radius_units)


def _by_kernel(vectors: Array, lattice: Lattice) -> Survey:
    """Look once, around the average of some users: all within half a radius of any centre are friends."""
    some = vectors[:: max(1, len(vectors) // _SAMPLE)]
    about = jnp.mean(jnp.where(jnp.isfinite(some), some, 0.0), axis=0).astype(jnp.float64)
    centre = jnp.clip(jnp.rint(in_steps(about, lattice.step)), -COORDINATE_LIMIT, COORDINATE_LIMIT)
    centre = jnp.where(jnp.isfinite(about), centre, 0.0)
    number, farthest, total = look_around(vectors, centre, lattice)
    all_friends = 2 * farthest * (1 + rounding_slack(vectors.shape[1])) <= lattice.radius_units
    return Survey(number, all_friends, centre, total)
