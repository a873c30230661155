"""The example that fits differential equations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.commands import call
from support.environment import needs
from support.scripts import load

example = load("lotka_volterra")


@pytest.mark.slow
@pytest.mark.parametrize("solver", ["scipy", "Gauss-Newton"])
def test_fit_of_lotka_volterra_finds_rates(solver: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if solver == "scipy":
        needs("scipy")
    else:
        monkeypatch.setattr(example, "least_squares", None)
    out = call(example.main, "--intervals 8 --noise 0").out
    rows: dict[str, Any] = {line[:20].strip(): line[20:].split() for line in out}
    assert rows[""] == ["start", "found", "truth"] and len(rows) == 5
    assert all(rows[name][1] == rows[name][2] for name in example.NAMES)


def test_solver_of_lotka_volterra_conserves_its_invariant() -> None:
    prey, predators = example.solve(example.TRUTH, 10).T
    birth, catch, death, gain = example.TRUTH
    invariant = gain * prey - death * np.log(prey) + catch * predators - birth * np.log(predators)
    np.testing.assert_allclose(invariant, invariant[0], rtol=1e-5)
