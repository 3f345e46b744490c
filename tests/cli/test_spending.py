"""No noise is drawn before its budget is in the ledger."""

from pathlib import Path
from typing import Any

import pytest

from userdp.cli.spending import spending
from userdp.mechanisms.noise import SecureNoise, SeededNoise
from userdp.privacy.budget import Budget

DRAWS = {
    "discrete_gaussian": (1.0, 1),
    "discrete_laplace": (1.0, 1),
    "geometric": (1.0, 1),
    "permutation": (3,),
}


@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize(("seed", "source"), [(None, SecureNoise), (0, SeededNoise)])
def test_the_budget_is_on_the_disk_when_the_first_noise_is_drawn(
    draw: str, seed: int | None, source: type, ledger: Path, spent: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, plain = [], getattr(source, draw)

    def watched(self: Any, *args: Any) -> Any:
        found.append(spent(ledger))
        return plain(self, *args)

    monkeypatch.setattr(source, draw, watched)
    with spending(Budget(0.5, 1e-6), ledger, "patients", what="test") as spend:
        noise = spend.noise(seed)
        assert spent(ledger) == 0
        getattr(noise, draw)(*DRAWS[draw])
        getattr(noise, draw)(*DRAWS[draw])
    assert found
    assert set(found) == {0.5}


def test_a_resumed_run_draws_under_the_reservation_it_has_and_another_run_under_its_own(
    tmp_path: Path, ledger: Path, spent: Any
) -> None:
    budget = Budget(0.5, 1e-6)
    for folder, expected in (("run", 0.5), ("run", 0.5), ("other", 1.0)):
        with spending(budget, ledger, "patients", "fit", tmp_path / folder) as spend:
            spend.noise(0).discrete_gaussian(1.0, 1)
        assert spent(ledger) == expected
