"""What ``userdp plan`` expects a default fit to lose against what it loses, on tables that fit its model.

Standard normal features, log odds with coefficients of norm 1 in a random direction; the excess loss is that over the
true probabilities, on 200,000 fresh rows.
"""

import warnings

import numpy as np

import userdp
from benchmarks.measure import write_result
from userdp.planning.expected import expected_excess_loss
from userdp.privacy import Budget

SEEDS, TEST_ROWS, DELTA = 16, 200_000, 1e-6
# Users, rows of each, features, epsilon.
SETTINGS = (
    (300, 20, 5, 1.0),
    (500, 20, 10, 1.0),
    (500, 20, 10, 3.0),
    (2_000, 20, 3, 3.0),
    (2_000, 5, 10, 1.0),
    (2_000, 20, 10, 0.3),
    (2_000, 20, 10, 1.0),
    (2_000, 20, 40, 1.0),
    (5_000, 20, 10, 1.0),
    (5_000, 50, 40, 3.0),
)


def measured(n: int, m: int, d: int, epsilon: float, seed: int) -> float:
    """Excess loss of one default fit."""
    rng = np.random.default_rng([n, m, d, seed])
    theta = rng.normal(size=d)
    theta /= np.linalg.norm(theta)
    X = rng.normal(size=(n * m, d))
    y = (rng.random(n * m) < 1 / (1 + np.exp(-X @ theta))).astype(int)
    model = userdp.LogisticRegression(epsilon=epsilon, delta=DELTA, random_state=seed)
    fresh = rng.normal(size=(TEST_ROWS, d))
    found, true = model.fit(X, y, groups=np.repeat(np.arange(n), m)).decision_function(fresh), fresh @ theta
    p = 1 / (1 + np.exp(-true))
    return float(np.mean(np.logaddexp(0, found) - np.logaddexp(0, true) - p * (found - true)))


def main() -> None:
    warnings.simplefilter("ignore", userdp.PrivacyWarning)
    rows = []
    for n, m, d, epsilon in SETTINGS:
        losses = [measured(n, m, d, epsilon, seed) for seed in range(SEEDS)]
        expected = expected_excess_loss(n, m, d, Budget(epsilon, DELTA))
        rows.append(
            {"users": n, "items": m, "features": d, "epsilon": epsilon, "expected": expected}
            | {"measured": float(np.mean(losses)), "ratio": round(expected / float(np.mean(losses)), 2)}
        )
        print(rows[-1], flush=True)
    table = "\n".join(
        f"| {row['users']:,} | {row['items']} | {row['features']} | {row['epsilon']:g} | {row['expected']:.5f} "
        f"| {row['measured']:.5f} | {row['ratio']:.2f} |"
        for row in rows
    )
    write_result(
        "expected",
        "make bench-expected",
        {"seeds": SEEDS, "rows": rows},
        "# What a plan expects, and what a fit loses\n\n"
        "Excess logistic loss of the default `LogisticRegression`: expected by `userdp plan` from public numbers, and "
        f"measured, mean over {SEEDS} tables (standard normal features, coefficients of norm 1, delta = 1e-6).\n\n"
        "| users | rows each | features | epsilon | expected | measured | ratio |\n|---|---|---|---|---|---|---|\n"
        f"{table}\n",
    )


if __name__ == "__main__":
    main()
