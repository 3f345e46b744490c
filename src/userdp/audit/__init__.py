"""Attacks that bound epsilon from below: what an attacker could prove against a mechanism's claim."""

from userdp.audit.attack import CONFIDENCE, lower_bound, neighbours, outputs
from userdp.audit.mechanisms import MECHANISMS, Audit, audit

__all__ = ["CONFIDENCE", "MECHANISMS", "Audit", "audit", "lower_bound", "neighbours", "outputs"]
