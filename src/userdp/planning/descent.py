r"""How an estimator descends, from public numbers and what its stages released.

Everything follows from two ratios: users per coefficient, which decide how hard gradients are clipped, and the noise in
the coefficients, which decides ridge and time. The constants come from trials on four real tables (flights, retail,
jester, chem97) and their subsets.
"""

import math
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist

# Squared norm of the coefficients of scaled features to expect: in log odds, and in units of the target.
LOG_ODDS_SIGNAL, TARGET_SIGNAL = 2.5, 0.83
# The answer is the average of this last share of the iterates.
AVERAGED_SHARE = 0.75
# Users' gradient norms scatter by so many halves of a power of two (a log-normal law).
NORM_SPREAD = 1.5


@dataclass(frozen=True)
class Descent:
    """Rounds, step and ridge of a descent on clipped gradients.

    Attributes
    ----------
    rounds, step : int, float
        Of the gradient descent.
    ridge : float
        Towards the start, on the unclipped loss.
    noise_std : float
        Of each coefficient at the end, to first order.
    """

    rounds: int
    step: float
    ridge: float
    noise_std: float


def clip_ratio(effective_users: float, n_coefficients: int) -> float:
    """Clip radius over the typical norm.

    Few users a coefficient: every gradient is clipped, which costs the least noise; many: hardly any, the least bias.
    """
    return min(max(effective_users / (30 * n_coefficients), 0.1), 3.0)


@cache
def share_kept(ratio: float) -> float:
    """About how much of the mean gradient survives clipping at ``ratio`` times the typical norm."""
    normal, points = NormalDist(), 200
    halves = (NORM_SPREAD * normal.inv_cdf((i + 0.5) / points) for i in range(points))
    return sum(min(1.0, ratio * math.exp2(-half / 2)) for half in halves) / points


def descent(
    noise_std: float,
    n_coefficients: int,
    *,
    curvature: float,
    signal: float,
    kept: float,
    ridge: float = 0.0,
    rounds: int | None = None,
) -> Descent:
    """Choose ridge, time and step for the noise there is.

    Parameters
    ----------
    noise_std : float
        s, of the mean gradient per coordinate if all were spent on one round, over ``kept``.
    curvature, signal : float
        Of the loss along the predictor; squared norm of the coefficients to expect. The ridge s^2 k/(signal curvature)
        is the best one for coefficients of that norm in no particular direction.
    kept : float
        What clipping leaves of the mean gradient.
    ridge, rounds : float, int or None
        The caller's own: an additional ridge, and rounds in place of those that follow from the noise.
    """
    k = n_coefficients
    total = ridge + noise_std**2 * k / (signal * curvature)
    kappa = max(4.0, 1.5 * math.sqrt(k))
    # In units of 1/curvature: the less noise in the coefficients, the longer. Stopping early is a ridge of its own.
    time = 5 * (0.25 * curvature / (noise_std * math.sqrt(k))) ** 0.75
    chosen = rounds or _shared(kappa * min(max(time, 3.0), 60.0))
    step = 1 / (kappa * kept * (curvature + total))
    return Descent(chosen, step, total, noise_std / (curvature + total) / math.sqrt(AVERAGED_SHARE))


def _shared(rounds: float) -> int:
    """Round up to an eighth of a power of two, so that fits of one shape share a few compiled loops."""
    return math.ceil(2 ** (math.ceil(8 * math.log2(rounds)) / 8))
