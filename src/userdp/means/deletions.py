r"""How many deletions leave a set of users whose mean no further deletion moves: a search over subsets.

With n users, a depth R and a step Delta = radius/(n - R + 1), a set A of at least n - R + 1 users is *calm*
if deleting any one user of A moves its mean by at most Delta, and *stable* if A and all its subsets down to
n - R + 1 users are calm. r* is the smallest number of deletions that leaves a stable set. It has
sensitivity 1, and the means of two neighbours' stable sets are close: ``docs/proofs/deletion_ptr.md``.
"""

import math
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from userdp.arrays import BoolArray, FloatArray, IntArray
from userdp.means.lattice import Lattice

# Users who all agree pass the test of a round with at least this probability.
PASS_PROBABILITY = 0.95
# Sets are bit masks in 64-bit integers, looked at this many at a time.
MAX_USERS = 60
_CHUNK = 2**14


@dataclass(frozen=True)
class DeletionTest:
    """Pass iff r* + Lap_Z(1/epsilon) <= threshold.

    ``limit`` is rho: the sensitivity of the mean holds while one of two neighbours has r* <= rho.
    """

    epsilon: float
    n_users: int
    limit: int
    threshold: int

    @classmethod
    def for_budget(cls, epsilon: float, failure: float, n_users: int) -> "DeletionTest":
        """Choose the smallest rho whose test errs with probability ``failure`` and passes calm data."""
        log_normal = math.log1p(math.exp(-epsilon))
        threshold = max(0, math.ceil((-math.log(1 - PASS_PROBABILITY) - log_normal) / epsilon - 1))
        # Pr[Lap_Z <= -A] = e^(-epsilon A)/(1 + e^(-epsilon)) for A >= 0
        margin = max(1, math.ceil((-math.log(failure) - log_normal) / epsilon * (1 + 1e-12)))
        return cls(epsilon, n_users, threshold + margin - 1, threshold)

    @property
    def depth(self) -> int:
        """R = 2 rho + 2, the number of deletions that stability covers."""
        return 2 * self.limit + 2

    @property
    def smallest(self) -> int:
        """Size n - R + 1 of the smallest sets that must be calm."""
        return self.n_users - self.depth + 1

    @property
    def subsets(self) -> int:
        """How many sets the test looks at."""
        return sum(math.comb(self.n_users, i) for i in range(self.depth))

    def mean_sensitivity(self, radius: float) -> float:
        """Bound on |f(S) - f(S')| between neighbours that may pass: 2 rho + 3 deletions of calm sets."""
        return (2 * self.limit + 3) * radius / self.smallest * (1 + 1e-12)


def farthest_in_calm_set(test: DeletionTest, lattice: Lattice) -> int:
    """Return a distance that no two users of a calm set exceed, in lattice units."""
    return -(-2 * lattice.radius_units * test.n_users // test.smallest)


def fewest_deletions(units: FloatArray, test: DeletionTest, lattice: Lattice) -> tuple[int, IntArray]:
    """Return min(r*, rho + 1) and 0/1 weights of the stable set, all 0 where rho + 1 deletions do not do.

    **Guarantee**: the first changes by at most 1 when a user is replaced; while one of two neighbours has
    r* <= rho, the weighted means are at most ``test.mean_sensitivity`` apart.
    """
    calm = CalmSets.of_users(units, test, lattice)
    users = np.arange(test.n_users)
    # Sets are bit masks of who is deleted.
    found, unstable = None, np.empty(0, np.int64)
    for deletions in reversed(range(test.depth)):
        chosen = np.array(list(combinations(users, deletions)), dtype=np.int64)
        sets = (np.int64(1) << chosen).sum(axis=1, dtype=np.int64)
        # A set is unstable if it is not calm, or if one more deletion makes it unstable.
        deleted = (unstable[:, None] >> users) & 1 == 1
        above = (unstable[:, None] ^ (np.int64(1) << users))[deleted]
        unstable = np.union1d(above, sets[~calm.are_calm(sets)])
        stable = np.setdiff1d(sets, unstable)
        if deletions <= test.limit + 1 and stable.size:
            found = deletions, stable[0]
    if found is None:
        return test.limit + 1, np.zeros(test.n_users, np.int64)
    fewest, mask = found
    return fewest, (((mask >> users) & 1 == 0) & calm.present).astype(np.int64)


@dataclass(frozen=True)
class CalmSets:
    """Which sets are calm, in exact integers.

    For u in a set A of a users with sum s_A, deleting u moves the mean by |a x_u - s_A| / (a (a - 1)), and
    |a x_u - s_A|^2 = a sum_v |x_u - x_v|^2 - (1/2) sum_(v,w) |x_v - x_w|^2 over A.
    """

    present: BoolArray
    squares: IntArray
    far_apart: IntArray
    radius_units: int
    smallest: int

    @classmethod
    def of_users(cls, units: FloatArray, test: DeletionTest, lattice: Lattice) -> "CalmSets":
        """Compare all pairs of users, rows of lattice units; null users are in no set."""
        present = np.asarray(np.isfinite(units).all(axis=1))
        far = farthest_in_calm_set(test, lattice)
        x = np.where(present[:, None], units, 0.0)
        squares = np.zeros((len(x), len(x)), np.int64)
        for i, row in enumerate(x):
            offsets = np.clip(x - row, -far - 1, far + 1).astype(np.int64)
            squares[i] = (offsets**2).sum(axis=1)
        both = present[:, None] & present
        too_far = (squares > far**2) & both
        squares[too_far | ~both] = 0
        return cls(present, squares, too_far.astype(np.int64), lattice.radius_units, test.smallest)

    def are_calm(self, sets: IntArray) -> BoolArray:
        """Decide for each set, given as the bit mask of who is deleted."""
        parts = (sets[i : i + _CHUNK] for i in range(0, len(sets), _CHUNK))
        return np.concatenate([self._are_calm(part) for part in parts])

    def _are_calm(self, sets: IntArray) -> BoolArray:
        kept = ((sets[:, None] >> np.arange(len(self.present))) & 1 == 0) & self.present
        members = kept.astype(np.int64)
        a = members.sum(axis=1, keepdims=True)
        to_each = members @ self.squares
        in_all = (to_each * members).sum(axis=1, keepdims=True)
        moves = (2 * a * to_each - in_all) * self.smallest**2
        still = (moves <= 2 * (self.radius_units * a * (a - 1)) ** 2) | ~kept
        close = ((members @ self.far_apart) * members).sum(axis=1) == 0
        calm: BoolArray = still.all(axis=1) & close & (a[:, 0] >= 2)
        return calm
