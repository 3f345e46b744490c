"""What a round of the same training takes in other libraries, each in the environment that `make bench-peers` builds.

Every library clips every user's mean gradient in every round, as its file under ``peers/methods`` says, and adds noise.
"""

import json
import math
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.peers.run import METHODS, ROOT
from userdp.data.users import Users

# So many rounds are measured, after as many that are not: all of a training where a round is fast.
ROUNDS = {"jax_privacy_peer": 200, "opacus_peer": 5, "opacus_adaptive": 20, "pfl_peer": 2}


def milliseconds_per_round(users: Users) -> dict[str, float]:
    """Time each peer on logistic regression; one without an environment is left out, with a line that says so."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data.npz"
        assert users.targets is not None
        np.savez(
            data, X=users.rows, y=users.targets.astype(np.float32), offsets=users.offsets, test_X=users.rows[:1],
            names=np.arange(users.n_features).astype(str), n_numbers=users.n_features,
        )  # fmt: skip
        for name, rounds in ROUNDS.items():
            if not Path(METHODS[name].python()).exists():
                print(f"{name}: no environment; `make bench-peers` builds it", flush=True)
                continue
            found[name] = _measure(name, rounds, data)
            print(name, found[name], flush=True)
    return found


def _measure(name: str, rounds: int, data: Path) -> float:
    job = {
        "task": "classification", "epsilon": 1.0, "delta": 1e-6, "clip": 1.0, "step": 1.0, "rounds": rounds,
    }  # fmt: skip
    jobs, out = data.with_name("jobs.json"), data.with_name("out.npz")
    jobs.write_text(json.dumps({"jobs": [job], "seeds": 2, "first_seed": 0}))
    command = [METHODS[name].python(), "-m", f"benchmarks.peers.methods.{name}", *map(str, (data, jobs, out))]
    subprocess.run(command, check=True, cwd=ROOT, timeout=3_600)
    with np.load(out) as result:
        seconds = float(result["seconds_per_round"][0])
    assert math.isfinite(seconds)
    return 1e3 * seconds
