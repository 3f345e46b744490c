"""Loops that Numba compiles and XLA calls: ``userdp[fast]``."""
