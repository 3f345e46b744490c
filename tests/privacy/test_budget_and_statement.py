import json
import math

import pytest

from userdp.errors import InvalidInputError, PrivacyWarning, UserDPError
from userdp.privacy import Budget, PrivacyStatement, Spend
from userdp.privacy.accounting import FailureEvent, GaussianEvent, PureEvent


@pytest.mark.parametrize("epsilon", [0, -1, math.nan, math.inf])
def test_epsilon_must_be_positive(epsilon):
    with pytest.raises(InvalidInputError, match="epsilon must be a positive number"):
        Budget(epsilon, 1e-6)


@pytest.mark.parametrize("delta", [0, 1, -1e-6, 2, math.nan])
def test_delta_must_be_a_probability(delta):
    with pytest.raises(InvalidInputError, match="strictly between 0 and 1"):
        Budget(1.0, delta)


def test_weak_budgets_warn():
    with pytest.warns(PrivacyWarning, match="promises next to nothing"):
        Budget(10.0, 1e-6)
    with pytest.warns(PrivacyWarning, match="publishes one random user"):
        Budget(1.0, 0.01).warn_if_weak_for(100)


def test_errors_are_value_errors_where_scikit_learn_expects_them():
    assert issubclass(InvalidInputError, UserDPError)
    assert issubclass(InvalidInputError, ValueError)


EVENTS = (
    GaussianEvent("mean", 200.0, 1000.0),
    PureEvent("radius", 0.1),
    FailureEvent("gate passes in error", 1e-8),
)


def test_a_statement_names_what_a_privacy_officer_asks_for():
    statement = PrivacyStatement.certify(Budget(1.0, 1e-6, "patient"), EVENTS, n_users=500, seeded=False)
    text = str(statement)
    for phrase in ("(1, 1e-06)", "each patient", "replace one user", "500", "certified", "radius", "assumes"):
        assert phrase in text
    assert statement.mu == pytest.approx(0.2, rel=1e-3)
    assert statement.spent[1] == Spend("radius", epsilon=0.1)
    assert json.loads(json.dumps(statement.to_dict()))["adjacency"] == "replace one user"


def test_a_seeded_or_unproven_release_says_so():
    seeded = PrivacyStatement.certify(Budget(1.0, 1e-6), EVENTS, n_users=500, seeded=True)
    assert "came from a seed" in str(seeded)
    claimed = PrivacyStatement.claim(Budget(1.0, 1e-6), (), n_users=500, seeded=False)
    assert not claimed.certified
    assert "NOT certified" in str(claimed)


def test_a_composition_over_its_budget_is_refused():
    with pytest.raises(InvalidInputError, match=r"not \(0.5, 1e-06\)-DP"):
        PrivacyStatement.certify(Budget(0.5, 1e-6), EVENTS, n_users=500, seeded=False)
