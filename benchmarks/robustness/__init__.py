"""How the default estimators bear little data and features in odd units: ``python -m benchmarks.robustness.run``."""
