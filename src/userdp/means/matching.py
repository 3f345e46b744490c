"""Users matched at random, in secret: how far two lie apart needs no location and no bounds.

Everybody is in at most one pair, so replacing a user changes one of them; who is matched with whom never leaves. Proof:
``docs/proofs/private_mean.md``.
"""

from userdp.arrays import FloatArray
from userdp.mechanisms.noise import NoiseSource

# Users who differ by no more than this share of how far from zero they are agree: there is no finer lattice there.
FINEST = 2.0**-32


def matched(vectors: FloatArray, noise: NoiseSource) -> tuple[FloatArray, FloatArray]:
    """Return the vectors of the first and of the second user of every pair; one user is left over if n is odd."""
    order, half = noise.permutation(len(vectors)), len(vectors) // 2
    return vectors[order[:half]], vectors[order[half : 2 * half]]
