"""What a guarantee is: budgets, accounting, calibration, statements. No data in here."""

from userdp.privacy.budget import Budget
from userdp.privacy.gdp import delta_from_mu, epsilon_from_mu, mu_from_budget
from userdp.privacy.statement import PrivacyStatement, Spend

__all__ = ["Budget", "PrivacyStatement", "Spend", "delta_from_mu", "epsilon_from_mu", "mu_from_budget"]
