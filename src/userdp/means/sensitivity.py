"""How far one user can move the weighted mean of friends (Lemma C)."""

import math


def ramp_start(n_users: int) -> int:
    """Return lo = ceil(n/2): a user with at most this many friends has weight 0."""
    return (n_users + 1) // 2


def mean_sensitivity(index: int, n_users: int, radius: float) -> float:
    r"""Bound |g - g'| between neighbours of which at least one has concentration index >= ``index``.

    With H the index, lo = ceil(n/2) and the ramp ending at hi = H - 1,

        Delta_H = r [2 + (1 + q) (n - H)/(H - 1 - lo)] / H,     q = min(1, (n - lo)/(H - 1)).

    Infinite where the lemma does not apply: fewer than 4 users, H - 1 <= lo, or H > n.

    **Guarantee**: rounded up; proof in ``docs/proofs/concentrated_mean.md``.

    Examples
    --------
    >>> mean_sensitivity(index=1000, n_users=1000, radius=1.0)   # perfect concentration: 2 r / n
    0.002...
    >>> mean_sensitivity(index=500, n_users=1000, radius=1.0)
    inf
    """
    n, H, lo = n_users, index, ramp_start(n_users)
    if n < 4 or H > n or H - 1 <= lo:
        return math.inf
    q = min(1.0, (n - lo) / (H - 1))
    return radius * (2 + (1 + q) * (n - H) / (H - 1 - lo)) / H * (1 + 1e-15 * 8)
