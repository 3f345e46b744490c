"""From a release to the page about it."""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import userdp
from userdp.cli.display import print_line
from userdp.errors import InvalidInputError, PrivacyWarning
from userdp.means import MeanRelease, certified
from userdp.privacy.budget import Budget
from userdp.privacy.statement import PrivacyStatement
from userdp.report import CurvePoint, ErrorCurve, Released, ReportContent, write_report

if TYPE_CHECKING:
    from userdp.estimators.linear_model import LinearModel

_USERS = (0.25, 0.5, 1.0, 2.0, 4.0)
_EPSILONS = (0.5, 1.0, 2.0)
# What other users and budgets may answer with instead of a number: there are too few or too many of them.
_NO_PREDICTION = (InvalidInputError, ArithmeticError)


def leave_report(make: Callable[[], ReportContent], path: Path) -> None:
    """Write the page about a release, whose budget is spent: without a page it still comes out."""
    try:
        write_report(make(), path)
    except OSError:  # a disk that is full has no room for the release either
        raise
    except Exception as error:
        print_line(
            "warning", f"no report could be made ({type(error).__name__}); the release is whole without it"
        )


@dataclass(frozen=True)
class Effect:
    """What one spread of a feature adds to the linear predictor, and the noise on that.

    Effects of different features can be compared; the coefficients of the model file depend on units.
    """

    name: str
    value: float
    noise_std: float | None


def effects(model: "LinearModel") -> tuple[Effect, ...]:
    """Return the effect of every feature, for every class where there are several."""
    measurable = np.isfinite(model.scale)
    spread = np.where(measurable, model.scale, 0.0)
    rows = zip(model.coefficients * spread, model.noise_std * spread, strict=True)
    several = len(model.coefficients) > 1 and model.classes is not None
    found = []
    for row, (values, noise) in enumerate(rows):
        prefix = f"{model.classes[row]}: " if several and model.classes is not None else ""
        for name, value, std, known in zip(model.feature_names, values, noise, measurable, strict=True):
            found.append(Effect(prefix + name, float(value), float(std) if known else None))
    return tuple(found)


def model_report(model: "LinearModel", statement: PrivacyStatement, title: str) -> ReportContent:
    """Return the report of a fitted model."""
    found = effects(model)
    dropped = sum(effect.noise_std is None for effect in found[: len(model.feature_names)])
    classes = () if model.classes is None else (("classes", ", ".join(map(str, model.classes))),)
    left_out = (("left out", f"{dropped} of them, too faint to measure"),) if dropped else ()
    return ReportContent(
        title=title,
        kind="model",
        released_at=str(model.details["released_at"]),
        released=tuple(Released(effect.name, effect.value, effect.noise_std) for effect in found),
        statement=statement,
        version=userdp.__version__,
        facts=(
            ("model", model.kind),
            ("predicts", str(model.details["label"])),
            *classes,
            ("users", f"{statement.n_users:,} ({statement.unit})"),
            ("features", f"{len(model.feature_names):,}"),
            *left_out,
            ("rounds", f"{model.details['rounds']:,}"),
            ("numbers shown", "effects of one spread of a feature"),
        ),
        error_curves=_curves(statement, lambda n, budget: _planned_risk(model, n, budget), here=1.0),
        error_label="expected error, this release = 1",
    )


def mean_report(release: MeanRelease, columns: tuple[str, ...], title: str) -> ReportContent:
    """Return the report of a private mean."""
    statement = release.privacy
    return ReportContent(
        title=title,
        kind="mean",
        released_at=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        released=tuple(
            Released(name, value, noise_std)
            for name, value, noise_std in zip(
                columns, release.value.tolist(), release.noise_std.tolist(), strict=True
            )
        ),
        statement=statement,
        version=userdp.__version__,
        facts=(
            ("released", f"{len(columns)} column means, every {statement.unit} counted once"),
            ("users", f"{statement.n_users:,} ({statement.unit})"),
            *_units_in_words(release, columns),
            ("radius", f"{release.radius:.4g}, {_radius_in_words(statement)}"),
        ),
        error_curves=_curves(statement, lambda n, budget: _noise_std(release, n, budget), here=1.0),
        error_label="noise on each mean, this release = 1",
    )


def _units_in_words(release: MeanRelease, columns: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Say in what units a radius holds, if columns have their own."""
    if (release.units == release.units[0]).all():
        return ()
    units = ", ".join(f"{name} {unit:.4g}" for name, unit in zip(columns, release.units, strict=True))
    return (("one unit", f"found privately: {units}"),)


def _radius_in_words(statement: PrivacyStatement) -> str:
    """Say what a mean's radius is: it was clipped around a centre if that radius was paid for."""
    if any(spend.name == "clip radius" for spend in statement.spent):
        return "around a private centre; whoever is further away counts as being there"
    return "within which most users' means lie of each other; whoever stands apart is left out"


def _planned_risk(model: "LinearModel", n_users: int, budget: Budget) -> float:
    """Return the planner's error; how many rows users have is private, so the declared minimum stands in."""
    plan = userdp.plan(
        n_users=n_users,
        items_per_user=int(model.details["min_items"]),
        n_features=len(model.feature_names),
        epsilon=budget.epsilon,
        delta=budget.delta,
    )
    return plan.excess_risk


def _noise_std(release: MeanRelease, n_users: int, budget: Budget) -> float:
    dimension = len(release.value)
    mean = certified.calibrate(release.radius, n_users, dimension, budget, gate="gaussian")
    return mean.noise_std(index=n_users)


def _curves(
    statement: PrivacyStatement, error: Callable[[int, Budget], float], here: float
) -> tuple[ErrorCurve, ...]:
    """Scale the predicted error so that the present release has its own, around its users and epsilon."""
    curves = []
    n, epsilon = statement.n_users, statement.epsilon
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        try:
            unit = here / error(n, Budget(epsilon, statement.delta))
        except _NO_PREDICTION:
            return ()
        for factor in _EPSILONS:
            points = []
            for share in _USERS:
                users = math.ceil(share * n)
                try:
                    predicted = unit * error(users, Budget(factor * epsilon, statement.delta))
                    points.append(CurvePoint(users, predicted, here=share == factor == 1))
                except _NO_PREDICTION:
                    continue
            if points:
                curves.append(ErrorCurve(factor * epsilon, tuple(points)))
    return tuple(curves)
