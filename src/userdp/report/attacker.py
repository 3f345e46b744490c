r"""What the best attacker can do against a release, from its statement alone.

The attacker knows everything but one user, who is one of two candidates, and has to tell which from the
release. An (epsilon, delta) guarantee for one epsilon, of either sign, bounds the attack by

    detection <= e^epsilon * false alarms + delta(epsilon),

and a certified statement gives a whole curve delta(epsilon) (:mod:`userdp.privacy.accounting`), of which the
best point counts. A statement that only claims its budget gives two points, (epsilon, delta) and its mirror
(-epsilon, 1 - e^-epsilon (1 - delta)). For a Gaussian mechanism alone the bound is the trade-off curve of
mu-GDP, Phi(mu + Phi^-1(false alarms)).

Every point of the curve is a valid bound, so the search below can only err towards claiming less privacy. The
discreteness of the noise costs less than 1e-30 and vanishes when the numbers are rounded up for display.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from userdp.arrays import FloatArray
from userdp.privacy.accounting import composed_delta
from userdp.privacy.statement import PrivacyStatement

_CURVE_POINTS = 2001


@dataclass(frozen=True)
class Attacker:
    """Bounds on an attacker, at each epsilon of a privacy curve.

    Examples
    --------
    >>> from userdp.privacy import Budget, Spend
    >>> claim = PrivacyStatement.claim(Budget(1.0, 1e-6), (), n_users=1000, seeded=False)
    >>> round(Attacker.against(claim).detection(0.05), 3)  # 0.05 e
    0.136
    """

    epsilons: FloatArray
    deltas: FloatArray

    @classmethod
    def against(cls, statement: PrivacyStatement) -> "Attacker":
        """Take all that a statement promises."""
        epsilon, delta = statement.epsilon, statement.delta
        epsilons = [epsilon, -epsilon]
        deltas = [delta, -math.expm1(-epsilon) + math.exp(-epsilon) * delta]
        if statement.certified:
            pure = math.fsum(spend.epsilon for spend in statement.spent)
            failure = math.fsum(spend.delta for spend in statement.spent)
            # Beyond this the curve only matters for false alarms below 1 in 30,000.
            reach = pure + statement.mu * (4 + statement.mu / 2) + 1e-3
            grid = np.linspace(-reach, reach, _CURVE_POINTS)
            epsilons += [float(e) for e in grid]
            deltas += [composed_delta(float(e), statement.mu, pure) + failure for e in grid]
        return cls(np.array(epsilons), np.array(deltas))

    def detection(self, false_alarms: float) -> float:
        """Bound how often the attacker sounds the alarm rightly, given how often falsely."""
        odds = np.exp(np.minimum(self.epsilons, 500.0))  # no overflow; it bounds nothing there anyway
        return min(1.0, float(np.min(odds * false_alarms + self.deltas)))

    def coin_flip(self) -> float:
        """Bound how often the attacker names the right one of two equally likely candidates.

        The bound and its mirror image meet where both mistakes are as likely, at a success rate of
        (e^epsilon + delta)/(e^epsilon + 1).
        """
        positive = self.epsilons >= 0
        epsilons, deltas = self.epsilons[positive], self.deltas[positive]
        return min(1.0, float(np.min(expit(epsilons) + deltas * expit(-epsilons))))
