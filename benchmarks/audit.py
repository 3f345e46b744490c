"""Attack released means on worst-case neighbours: a lower bound on epsilon at 99.9% confidence."""

from benchmarks.measure import write_result
from userdp.audit import CONFIDENCE, MECHANISMS, audit
from userdp.privacy import Budget

TRIALS = 20_000
N_USERS = 300
BUDGET = Budget(1.0, 1e-3)


def main() -> None:
    audits = [audit(name, BUDGET, TRIALS, n_users=N_USERS) for name in MECHANISMS]
    rows = [f"| {found.mechanism} | {found.claimed:g} | {found.proven:.3f} |" for found in audits]
    table = (
        "# Audit: empirical lower bounds on epsilon\n\n| mechanism | claimed epsilon | proven by attack |\n"
    )
    table += "|---|---|---|\n" + "\n".join(rows)
    table += (
        f"\n\ndelta = {BUDGET.delta:g}, {TRIALS:,} trials a side, {CONFIDENCE:.1%} confidence, n = {N_USERS}."
    )
    result = {
        "epsilon": BUDGET.epsilon,
        "delta": BUDGET.delta,
        "trials": TRIALS,
        "n_users": N_USERS,
        "bounds": {found.mechanism: found.proven for found in audits},
    }
    write_result("audit", "make audit", result, table)
    if not all(found.holds for found in audits):
        raise SystemExit("an attack went over a claim")


if __name__ == "__main__":
    main()
