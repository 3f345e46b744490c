"""Scikit-learn estimators that protect each whole user."""

from userdp.estimators.classifiers import LinearSVC, LogisticRegression
from userdp.estimators.linear_model import LinearModel
from userdp.estimators.regressors import HuberRegressor, LinearRegression, QuantileRegressor

__all__ = [
    "HuberRegressor",
    "LinearModel",
    "LinearRegression",
    "LinearSVC",
    "LogisticRegression",
    "QuantileRegressor",
]
