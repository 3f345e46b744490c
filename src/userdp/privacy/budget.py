"""What a release may spend, and on whose behalf."""

import warnings
from dataclasses import dataclass
from numbers import Real

from userdp.errors import InvalidInputError, PrivacyWarning

LARGE_EPSILON = 10.0
# Beyond these the accounting loses its digits, or overflows.
SMALLEST_EPSILON, LARGEST_EPSILON, SMALLEST_DELTA = 1e-5, 1e6, 1e-290


@dataclass(frozen=True)
class Budget:
    """A user-level (epsilon, delta) budget under replace-one adjacency.

    **Guarantee** meant by it: for every pair of tables with the same public number of users that differ
    in all rows of one user, and every event O, ``Pr[M(D) in O] <= exp(epsilon) Pr[M(D') in O] + delta``.
    The user may be replaced by any other, also by one without usable rows.

    Parameters
    ----------
    epsilon : float
        Positive, at least 1e-5; from 10 on it is accepted with a :class:`~userdp.errors.PrivacyWarning`.
    delta : float
        Strictly between 0 and 1.
    unit : str
        What one user is, in words for the statement ("user", "patient", "aircraft").

    Examples
    --------
    >>> Budget(epsilon=1.0, delta=1e-6)
    Budget(epsilon=1.0, delta=1e-06, unit='user')
    """

    epsilon: float
    delta: float
    unit: str = "user"

    adjacency = "replace one user"

    def __post_init__(self) -> None:
        numbers: dict[str, object] = {"epsilon": self.epsilon, "delta": self.delta}
        for name, value in numbers.items():
            if not isinstance(value, Real):
                raise InvalidInputError(f"{name} must be a number, got {value!r}")
        if not SMALLEST_EPSILON <= self.epsilon <= LARGEST_EPSILON:
            raise InvalidInputError(
                f"epsilon must be a positive number (from {SMALLEST_EPSILON:g} to {LARGEST_EPSILON:g}), "
                f"got {self.epsilon!r}; 1.0 is a common choice"
            )
        if not SMALLEST_DELTA <= self.delta < 1:
            raise InvalidInputError(
                f"delta must lie strictly between 0 and 1 (at least {SMALLEST_DELTA:g}), got {self.delta!r}; "
                "choose it well below 1 / number of users, for example 1e-6"
            )
        if self.epsilon >= LARGE_EPSILON:
            warnings.warn(
                f"epsilon = {self.epsilon:g} promises next to nothing: one user may change the odds of "
                f"an outcome by a factor exp({self.epsilon:g})",
                PrivacyWarning,
                stacklevel=3,
            )

    def warn_if_weak_for(self, n_users: int) -> None:
        """Warn when delta allows publishing a randomly chosen user outright (delta >= 1/n)."""
        if self.delta >= 1 / n_users:
            warnings.warn(
                f"delta = {self.delta:g} is at least 1 / {n_users} users: a mechanism that publishes one "
                "random user's rows would satisfy it; choose a much smaller delta",
                PrivacyWarning,
                stacklevel=3,
            )
