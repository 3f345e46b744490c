"""What a report says: plain values that were released or are public, and nothing else.

Whoever makes a release fills in a :class:`ReportContent`; the page is a function of it alone. Nothing here
reads data, so a report cannot leak more than the release it describes.
"""

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from userdp.errors import InvalidInputError
from userdp.privacy.statement import PrivacyStatement

Kind: TypeAlias = Literal["model", "mean"]


@dataclass(frozen=True)
class Released:
    """One released number: a coefficient or a column's mean.

    Attributes
    ----------
    name : str
        Any text; it is escaped wherever it is shown.
    value : float
        The number as it was released.
    noise_std : float or None
        Standard deviation of the noise on it, where that is a single Gaussian's; None where it is not known
        (a model fitted over many noisy rounds).
    """

    name: str
    value: float
    noise_std: float | None = None

    def __post_init__(self) -> None:
        if not math.isfinite(self.value):
            raise InvalidInputError(f"the value of {self.name!r} must be a finite number, got {self.value!r}")
        if self.noise_std is not None and not (math.isfinite(self.noise_std) and self.noise_std >= 0):
            raise InvalidInputError(
                f"the noise of {self.name!r} must be a standard deviation or None, got {self.noise_std!r}"
            )


@dataclass(frozen=True)
class CurvePoint:
    """The error that the planner predicts for a number of users; ``here`` marks the present release."""

    n_users: int
    error: float
    here: bool = False

    def __post_init__(self) -> None:
        if not (self.n_users > 0 and math.isfinite(self.error) and self.error > 0):
            raise InvalidInputError(
                "a point of an error curve needs a positive number of users and a positive finite error, "
                f"got {self.n_users!r} and {self.error!r}; leave out what cannot be planned"
            )


@dataclass(frozen=True)
class ErrorCurve:
    """Predicted error against the number of users, at one epsilon."""

    epsilon: float
    points: tuple[CurvePoint, ...]

    def __post_init__(self) -> None:
        if not self.points:
            raise InvalidInputError(f"the error curve at epsilon = {self.epsilon:g} has no points")


@dataclass(frozen=True)
class ReportContent:
    """Everything that one page shows.

    Attributes
    ----------
    title : str
        What the release is about.
    kind : "model" or "mean"
        What was released; coefficients are drawn around zero, means are not.
    released_at : str
        When, as text that the caller has chosen (date, time, zone).
    released : tuple of Released
        The numbers that left.
    statement : PrivacyStatement
        The guarantee. A seeded or uncertified one puts a banner on the page, whatever ``warnings`` says.
    version : str
        The version of userdp that made the release.
    facts : tuple of (str, str)
        Public facts in the order to show them, such as ("model", "logistic regression").
    error_curves : tuple of ErrorCurve
        From the planner; empty where there is no plan.
    error_label : str
        What the planner's error is, in words.
    warnings : tuple of str
        Further sentences for the banner.
    """

    title: str
    kind: Kind
    released_at: str
    released: tuple[Released, ...]
    statement: PrivacyStatement
    version: str
    facts: tuple[tuple[str, str], ...] = ()
    error_curves: tuple[ErrorCurve, ...] = ()
    error_label: str = "predicted error"
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise InvalidInputError(f'kind must be "model" or "mean", got {self.kind!r}')
        if not self.released:
            raise InvalidInputError("a report needs at least one released number, got none")
