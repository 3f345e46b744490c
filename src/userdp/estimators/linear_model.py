"""A released linear model: what a model file holds, and how it predicts."""

import json
import math
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from userdp.arrays import FloatArray
from userdp.errors import InvalidInputError

FORMAT, VERSION = "userdp-model", 2
_ARRAYS = ("coefficients", "intercepts", "low", "high", "scale", "noise_std")
# Files of format 1 have no scale: all features were let in so many units to either side.
_BOUND_OF_FORMAT_1 = 8.0


@dataclass(frozen=True)
class LinearModel:
    """Everything about a fitted model that was released privately.

    Attributes
    ----------
    kind : str
        The estimator's name, for example ``"LogisticRegression"``.
    feature_names : tuple of str
        In the order of the coefficients.
    coefficients, intercepts : arrays of shape (k, n_features) and (k,)
        One row, or one per class.
    low, high : arrays of shape (n_features,)
        Features are clipped here before the linear predictor.
    scale : array of shape (n_features,)
        One unit of each feature, about a standard deviation; infinite for those that were left out.
    noise_std : array of shape (k, n_features)
        Standard deviation of the noise on each coefficient, to first order.
    classes : tuple or None
        The declared classes; None for regression.
    privacy : dict
        The privacy statement as plain types.
    details : dict
        Further public facts: how columns were encoded, rounds, versions.
    """

    kind: str
    feature_names: tuple[str, ...]
    coefficients: FloatArray
    intercepts: FloatArray
    low: FloatArray
    high: FloatArray
    scale: FloatArray
    noise_std: FloatArray
    classes: tuple[Any, ...] | None
    privacy: dict[str, Any]
    details: dict[str, Any]

    def decision(self, X: FloatArray) -> FloatArray:
        """Return the linear predictor of each row, shape (n_rows, k)."""
        if np.ndim(X) != 2 or np.shape(X)[1] != len(self.feature_names):
            raise InvalidInputError(
                f"X must have {len(self.feature_names)} columns, those of feature_names, got shape {np.shape(X)}"
            )
        return np.clip(X, self.low, self.high) @ self.coefficients.T + self.intercepts

    def probabilities(self, X: FloatArray) -> FloatArray:
        """Return the classes' probabilities of each row, for a logistic model."""
        if self.kind == "LinearSVC" or self.classes is None:
            raise InvalidInputError(f"{self.kind} has no probabilities; use decision")
        return probabilities_of(self.decision(X))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write readable JSON; the file appears by rename, whole or not at all.

        Raises
        ------
        InvalidInputError
            If the file cannot be written there.
        """
        record = {
            "format": FORMAT,
            "version": VERSION,
            "kind": self.kind,
            "feature_names": list(self.feature_names),
            "classes": None if self.classes is None else list(self.classes),
            **{name: _to_json(getattr(self, name)) for name in _ARRAYS},
            "privacy": self.privacy,
            "details": self.details,
        }
        text = json.dumps(record, indent=2, allow_nan=False) + "\n"
        try:
            write_atomically(Path(path), text)
        except OSError as error:
            raise InvalidInputError(f"cannot write the model file {path}: {error.strerror}") from None

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "LinearModel":
        """Read a model file.

        Raises
        ------
        InvalidInputError
            For a file that is missing, damaged, not a model, or from a newer version.
        """
        try:
            record = json.loads(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise InvalidInputError(f"cannot read the model file {path}: {error.strerror}") from None
        except (ValueError, RecursionError):  # not UTF-8, not JSON, an absurd number
            raise InvalidInputError(f"{path} is damaged or is not a userdp model file") from None
        if not isinstance(record, dict) or record.get("format") != FORMAT:
            raise InvalidInputError(f"{path} is not a userdp model file")
        version = record.get("version")
        if type(version) is not int or version < 1:
            raise InvalidInputError(f"{path} is damaged: it has no format version")
        if version > VERSION:
            raise InvalidInputError(
                f"{path} has model format {version}; this userdp reads up to {VERSION}: install a newer userdp"
            )
        try:
            return cls._from_record(record)
        except (KeyError, TypeError, ValueError, OverflowError):
            raise InvalidInputError(f"{path} is damaged: its fields do not fit together") from None

    @classmethod
    def _from_record(cls, record: dict[str, Any]) -> "LinearModel":
        missing = {"scale"} if record["version"] == 1 else set()
        arrays = {name: _from_json(record[name]) for name in _ARRAYS if name not in missing}
        if missing:
            arrays["scale"] = (arrays["high"] - arrays["low"]) / (2 * _BOUND_OF_FORMAT_1)
        names, classes, kind = record["feature_names"], record["classes"], record["kind"]
        k, d = arrays["coefficients"].shape
        each = dict.fromkeys(("low", "high", "scale"), (d,))
        shapes = {"coefficients": (k, d), "intercepts": (k,), "noise_std": (k, d)} | each
        fits = (
            all(arrays[name].shape == shape for name, shape in shapes.items())
            and all(np.isfinite(arrays[name]).all() for name in ("coefficients", "intercepts", "noise_std"))
            and bool((arrays["low"] <= arrays["high"]).all())
            and bool((arrays["scale"] >= 0).all())
            and _is_list_of(names, str, length=d)
            and (classes is None or _is_list_of(classes, str | int | float, length=max(k, 2)))
            and isinstance(kind, str)
            and isinstance(record["privacy"], dict)
            and isinstance(record["details"], dict)
        )
        if not fits:
            raise ValueError
        return cls(
            kind=kind,
            feature_names=tuple(names),
            classes=None if classes is None else tuple(classes),
            privacy=record["privacy"],
            details=record["details"],
            **arrays,
        )


def probabilities_of(scores: FloatArray) -> FloatArray:
    """Return the classes' probabilities for log odds of shape (n_rows, 1), or scores of shape (n_rows, k)."""
    if scores.shape[1] == 1:
        scores = np.hstack([np.zeros_like(scores), scores])
    weights: FloatArray = np.exp(scores - scores.max(axis=1, keepdims=True))
    total: FloatArray = weights.sum(axis=1, keepdims=True)
    return weights / total


def write_atomically(path: Path, text: str) -> None:
    """Write a file beside its place and move it there."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _to_json(array: FloatArray) -> Any:
    """Nested lists, with "inf" and "-inf" as text because JSON has no infinities."""

    def plain(value: Any) -> Any:
        if isinstance(value, list):
            return [plain(item) for item in value]
        return value if math.isfinite(value) else str(value)

    return plain(array.tolist())


def _from_json(value: Any) -> FloatArray:
    array = np.array(value, dtype=object)
    return array.astype(np.float64)


def _is_list_of(value: Any, kind: Any, length: int) -> bool:
    return isinstance(value, list) and len(value) == length and all(isinstance(item, kind) for item in value)
