"""Fuzz one kind of input with atheris, which steers by the code that a case reaches; an optional tool.

    pip install ".[fuzz]"
    python -m benchmarks.fuzz_coverage "model files" -atheris_runs=100000

The cases and checks are those of :mod:`benchmarks.fuzzing`; Hypothesis turns atheris' bytes into cases.
"""

import sys
import warnings

import atheris
from hypothesis import HealthCheck, given, settings

with atheris.instrument_imports(include=["userdp"]):
    from benchmarks.fuzzing import FUZZERS


def main() -> None:
    """Fuzz the kind named first; the other arguments are atheris' own."""
    warnings.simplefilter("ignore")
    kind, *rest = sys.argv[1:] or [""]
    if kind not in FUZZERS:
        raise SystemExit(f"give one of {', '.join(FUZZERS)}")
    fuzzer = FUZZERS[kind]

    @settings(deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(fuzzer.cases)
    def attack(case: object) -> None:
        fuzzer.check(case)

    atheris.Setup([sys.argv[0], *rest], attack.hypothesis.fuzz_one_input)  # type: ignore[attr-defined]
    atheris.Fuzz()


if __name__ == "__main__":
    main()
