"""Attacks that bound epsilon from below: what an attacker could prove against a mechanism's claim."""

from userdp.audit.attack import CONFIDENCE, clopper_pearson, lower_bound, outputs
from userdp.audit.auditing import Audit, attack, audit
from userdp.audit.exact import exact_epsilon
from userdp.audit.mechanisms import MECHANISMS
from userdp.audit.pairs import Pair, library, neighbours, search, switching
from userdp.audit.target import Target

__all__ = [
    "CONFIDENCE",
    "MECHANISMS",
    "Audit",
    "Pair",
    "Target",
    "attack",
    "audit",
    "clopper_pearson",
    "exact_epsilon",
    "library",
    "lower_bound",
    "neighbours",
    "outputs",
    "search",
    "switching",
]
