"""The estimators inside scikit-learn: its own checks, routing, cross-validation, pipelines, frames."""

import warnings

import numpy as np
import pandas as pd
import pytest
import sklearn
from scipy.sparse import issparse
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import BaggingClassifier, VotingClassifier
from sklearn.exceptions import DataConversionWarning, NotFittedError
from sklearn.feature_selection import RFECV, SelectFromModel
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_validate
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator
from sklearn.utils.multiclass import check_classification_targets

import userdp
from tests.estimators.tables import table
from userdp.errors import InvalidInputError, PrivacyWarning

ESTIMATORS = [
    userdp.LogisticRegression,
    userdp.LinearSVC,
    userdp.LinearRegression,
    userdp.HuberRegressor,
    userdp.QuantileRegressor,
]


class RowsAreUsers:
    """What scikit-learn's checks cannot know: every row is a user, and the classes are those of y (tests only)."""

    def fit(self, X, y, groups=None):
        if groups is None and (issparse(X) or np.asarray(X).ndim == 2):
            groups = np.arange(X.shape[0] if issparse(X) else len(np.asarray(X)))
        if "classes" not in self.get_params() or y is None:
            return super().fit(X, y, groups=groups)
        check_classification_targets(np.asarray(y))
        found, declared = np.unique(np.asarray(y)), self.classes
        if len(found) > 1:
            self.classes = found
        try:
            return super().fit(X, y, groups=groups)
        finally:
            self.classes = declared


class GroupedLogisticRegression(RowsAreUsers, userdp.LogisticRegression):
    pass


class GroupedLinearRegression(RowsAreUsers, userdp.LinearRegression):
    pass


NULL_USER = "a value out of place makes its user null; an error would tell that somebody has it"
CHECKED = (GroupedLogisticRegression, GroupedLinearRegression)
NOT_APPLICABLE = {
    "check_dtype_object": (CHECKED, f"a dict in a cell: {NULL_USER}"),
    "check_estimators_nan_inf": (CHECKED, f"NaN and infinity in X (predict does refuse them): {NULL_USER}"),
    "check_supervised_y_no_nan": ((GroupedLinearRegression,), f"infinity in y: {NULL_USER}"),
}


def checks():
    for estimator in CHECKED:
        for made, check in estimator_checks_generator(estimator(5.0, random_state=0)):
            name = check.func.__name__
            where, reason = NOT_APPLICABLE.get(name, ((), ""))
            marks = [pytest.mark.xfail(reason=reason)] if estimator in where else []
            yield pytest.param(made, check, id=f"{estimator.__name__}-{name}", marks=marks)


@pytest.mark.parametrize(("estimator", "check"), list(checks()))
@pytest.mark.filterwarnings("ignore")  # these tables have as many users as rows: few, for a delta of 1e-6
def test_scikit_learn_s_own_checks(estimator, check):
    check(estimator)


def fast(estimator, **params):
    return estimator(**{"epsilon": 3.0, "rounds": 10, "random_state": 0, **params})


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_clone_and_parameters(estimator):
    made = estimator(epsilon=0.7, delta=1e-7, rounds=4)
    assert clone(made).get_params() == made.get_params()
    assert made.set_params(epsilon=2.0).epsilon == 2.0
    assert "epsilon=0.7" in repr(clone(made).set_params(epsilon=0.7))


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_unfitted(estimator):
    with pytest.raises(NotFittedError):
        estimator().predict(np.zeros((2, 2)))
    with pytest.raises(NotFittedError):
        estimator().to_model()


def test_unfitted_after_a_refused_fit():
    model = userdp.LogisticRegression()
    with pytest.raises(InvalidInputError):
        model.fit(np.zeros((4, 2)), [0, 1, 0, 1], groups=[1, 1, 1, 1])
    with pytest.raises(NotFittedError):
        model.predict(np.zeros((2, 2)))


def test_groups_are_routed_to_a_cross_validation():
    t = table()
    with sklearn.config_context(enable_metadata_routing=True):
        model = fast(userdp.LogisticRegression).set_fit_request(groups=True)
        with pytest.warns(PrivacyWarning, match="not accounted"):
            scores = cross_validate(
                model, t.X, t.labels, cv=GroupKFold(2), params={"groups": t.groups}, error_score="raise"
            )
    assert scores["test_score"].min() > 0.8


def test_groups_are_routed_through_a_pipeline():
    t = table()
    with sklearn.config_context(enable_metadata_routing=True):
        model = make_pipeline(
            StandardScaler(with_mean=False, with_std=False),
            fast(userdp.LogisticRegression).set_fit_request(groups=True),
        )
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model.fit(t.X, t.labels, groups=t.groups)
    assert model.score(t.X, t.labels) > 0.8
    assert model[-1].privacy_.n_users == len(np.unique(t.groups))


def test_a_pipeline_without_routing_names_its_step():
    t = table()
    model = make_pipeline(fast(userdp.LogisticRegression))
    assert model.fit(t.X, t.labels, logisticregression__groups=t.groups).score(t.X, t.labels) > 0.8


def test_a_search_warns_that_it_is_not_accounted():
    t = table()
    with sklearn.config_context(enable_metadata_routing=True):
        search = GridSearchCV(
            fast(userdp.LogisticRegression).set_fit_request(groups=True),
            {"ridge": [0.0]},
            cv=GroupKFold(2),
            error_score="raise",
        )
        with pytest.warns(PrivacyWarning, match="tune on public data"):
            search.fit(t.X, t.labels, groups=t.groups)


@pytest.mark.parametrize(
    "several",
    [
        lambda model: RFECV(model, cv=2),
        lambda model: CalibratedClassifierCV(model, cv=2, ensemble=False),
        lambda model: BaggingClassifier(model, n_estimators=2, random_state=0),
        lambda model: VotingClassifier([("a", model), ("b", model)]),
        lambda model: OneVsRestClassifier(model),
        lambda model: make_pipeline(
            StandardScaler(), BaggingClassifier(model, n_estimators=2, random_state=0)
        ),
    ],
    ids=["RFECV", "calibration", "bagging", "voting", "one versus rest", "in a pipeline"],
)
def test_whatever_fits_several_times_warns(several):
    t = table()
    with pytest.warns(PrivacyWarning, match="not accounted"):
        several(fast(GroupedLogisticRegression)).fit(t.X, t.labels)


@pytest.mark.parametrize(
    "once",
    [
        lambda model: model,
        lambda model: make_pipeline(StandardScaler(), model),
        lambda model: SelectFromModel(model),
    ],
    ids=["alone", "pipeline", "selection"],
)
def test_one_fit_does_not_warn(once):
    t = table()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        once(fast(GroupedLogisticRegression)).fit(t.X, t.labels)


def test_frames_keep_their_names():
    t = table()
    frame = pd.DataFrame(t.X, columns=["age", "dose", "weight"])
    ids = pd.Series(t.groups, name="patient")
    model = fast(userdp.LogisticRegression).fit(frame, pd.Series(t.labels), groups=ids)
    assert model.feature_names_in_.tolist() == ["age", "dose", "weight"]
    assert model.to_model().feature_names == ("age", "dose", "weight")
    plain = fast(userdp.LogisticRegression).fit(t.X, t.labels, groups=t.groups)
    assert plain.coef_.tobytes() == model.coef_.tobytes()
    assert plain.to_model().feature_names == ("x0", "x1", "x2")
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame.rename(columns={"age": "length"}))


def test_a_column_of_labels_is_taken_with_scikit_learn_s_warning():
    t = table()
    with pytest.warns(DataConversionWarning):
        fast(userdp.LinearRegression).fit(t.X, t.y[:, None], groups=t.groups)
