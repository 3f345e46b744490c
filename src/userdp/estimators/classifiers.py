"""Private linear classifiers."""

import os
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import ClassifierMixin

from userdp.arrays import FloatArray
from userdp.data.stored import StoredUsers
from userdp.engines.interface import Engine
from userdp.errors import InvalidInputError
from userdp.estimators.base import PrivateLinearEstimator
from userdp.estimators.fitting import Task
from userdp.estimators.inputs import check_classes
from userdp.estimators.linear_model import probabilities_of
from userdp.problems import Hinge, Logistic, Multinomial


class PrivateClassifier(ClassifierMixin, PrivateLinearEstimator):  # type: ignore[misc]
    """What the classifiers share.

    Parameters
    ----------
    classes : sequence
        The labels that may occur, public knowledge; a row with another label makes its user null.
    epsilon, delta, fit_intercept, ridge, coefficient_bound, min_items, max_items, rounds
        See :class:`~userdp.estimators.base.PrivateLinearEstimator`.
    unit, random_state, engine, checkpoint
        See :class:`~userdp.estimators.base.PrivateLinearEstimator`.

    Attributes
    ----------
    classes_ : array
        The declared classes, sorted.
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        *,
        classes: ArrayLike = (0, 1),
        fit_intercept: bool = True,
        ridge: float = 0.0,
        coefficient_bound: float | None = None,
        min_items: int = 1,
        max_items: int | None = None,
        rounds: int | None = None,
        unit: str = "user",
        random_state: int | None = None,
        engine: Engine | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__(
            epsilon,
            delta,
            fit_intercept=fit_intercept,
            ridge=ridge,
            coefficient_bound=coefficient_bound,
            min_items=min_items,
            max_items=max_items,
            rounds=rounds,
            unit=unit,
            random_state=random_state,
            engine=engine,
            checkpoint=checkpoint,
        )
        self.classes = classes


class LogisticRegression(PrivateClassifier):
    """Logistic regression, binary or multinomial, that protects each whole user.

    No bounds are asked for: scales, centres and the clip radius are found privately within the budget.
    Parameters and attributes are those of :class:`PrivateClassifier`.

    **Guarantee**: (epsilon, delta)-DP for replacing all rows of one user (``docs/proofs/stages.md``).

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(20_000, 3))
    >>> y = (X[:, 0] + rng.normal(size=20_000) > 0).astype(int)
    >>> model = LogisticRegression(epsilon=1.0, delta=1e-6, random_state=0)
    >>> model = model.fit(X, y, groups=np.repeat(np.arange(2_000), 10))
    >>> model.score(X, y) > 0.7, model.privacy_.certified
    (True, True)
    """

    def fit(
        self, X: ArrayLike | StoredUsers, y: ArrayLike | None = None, groups: ArrayLike | None = None
    ) -> Self:
        """Fit to rows X with labels y; ``groups`` says whose row is whose. Stored users bring both along."""
        classes = check_classes(self.classes)
        k = len(classes)
        loss = Logistic() if k == 2 else Multinomial(k)
        # Of the softmax: p(1 - p) summed over classes; the logistic loss sees half of that.
        task = Task(loss, curvature=0.5 if k == 2 else 1.0 / k, n_classes=k)
        self._fit(X, y, groups, task, classes)
        self.classes_ = np.array(sorted(classes))
        return self

    def decision_function(self, X: ArrayLike) -> FloatArray:
        """Return the log odds, one column per class if there are more than two."""
        scores = self._predictor(X)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict_proba(self, X: ArrayLike) -> FloatArray:
        """Return the classes' probabilities, in the order of ``classes_``."""
        return probabilities_of(self._predictor(X))

    def predict(self, X: ArrayLike) -> Any:
        """Return the most likely class of each row."""
        scores = self._predictor(X)
        codes = scores.argmax(axis=1) if scores.shape[1] > 1 else (scores[:, 0] > 0).astype(int)
        return self.classes_[codes]


class LinearSVC(PrivateClassifier):
    """Linear support vector classification (hinge loss, two classes) that protects each whole user.

    Parameters and attributes are those of :class:`PrivateClassifier`.

    **Guarantee**: (epsilon, delta)-DP for replacing all rows of one user (``docs/proofs/stages.md``).
    """

    def fit(
        self, X: ArrayLike | StoredUsers, y: ArrayLike | None = None, groups: ArrayLike | None = None
    ) -> Self:
        """Fit to rows X with labels y; ``groups`` says whose row is whose. Stored users bring both along."""
        classes = check_classes(self.classes)
        if len(classes) != 2:
            raise InvalidInputError(
                f"LinearSVC takes two classes, got {len(classes)}; LogisticRegression takes more"
            )
        task = Task(Hinge(), curvature=0.5, n_classes=2)
        self._fit(X, y, groups, task, classes)
        self.classes_ = np.array(sorted(classes))
        return self

    def decision_function(self, X: ArrayLike) -> FloatArray:
        """Return the signed score of each row."""
        return self._predictor(X)[:, 0]

    def predict(self, X: ArrayLike) -> Any:
        """Return the class on whose side each row lies."""
        codes = (self.decision_function(X) > 0).astype(int)
        return self.classes_[codes]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags
