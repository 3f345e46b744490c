"""From public numbers to settings: the paper's (rates) and practical ones (plan). Reads no data."""

from userdp.planning.plan import PhasePlan, Plan, plan

__all__ = ["PhasePlan", "Plan", "plan"]
