"""A tiny run, for the tests of what trains."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import minigrad as mg
import nn
from minigrad import optim
from nn.text.batches import PairBatches


class SumOfRows(nn.Objective):
    """The mean loss of a function over rows, times their number, which processes can share."""

    def __init__(self, function: Callable[[Any, Any], Any]) -> None:
        self.function = function

    def total(self, model: Any, batch: Any) -> Any:
        return self.function(model, batch) * len(batch[0])


def copying(n: int = 120, seed: int = 0) -> list[tuple[list[int], list[int]]]:
    """Return pairs of a random sequence and its copy."""
    rng = np.random.default_rng(seed)
    words = [rng.integers(4, 9, rng.integers(1, 6)).tolist() for _ in range(n)]
    return [(w, [1, *w, 2]) for w in words]


def trainer(run_dir: Path | None = None, seed: int = 0, **options: Any) -> nn.Trainer:
    """Return a trainer that learns to copy with a small Transformer."""
    mg.manual_seed(seed)
    c = nn.TransformerConfig(9, 9, 16, 2, 1, 1, 32, dropout=0.1, max_len=16)
    model = nn.Transformer(c)
    adam = optim.Adam(model.parameters(), lr=5e-3, clip_norm=1.0)
    schedule = optim.Schedule(adam, optim.inverse_sqrt_schedule(10))
    settings = {"max_epochs": 3, "progress": False, "log_every": 5, **options}
    return nn.Trainer(
        model,
        adam,
        PairBatches(copying(), 80, seed=seed),
        valid=PairBatches(copying(30, 1), 80, shuffle=False),
        schedule=schedule,
        objective=nn.ModelLoss(label_smoothing=0.05),
        run_dir=run_dir,
        **settings,
    )


def at_step(t: nn.Trainer, step: int, action: Callable[[], Any], training: bool = True) -> None:
    """Call `action` before a forward pass after `step` steps, in training or in validation."""
    total = t.objective.total

    def acts(*args: Any) -> Any:
        if t.step == step and t.model.training == training:
            action()
        return total(*args)

    t.objective.total = acts


def weights(t: nn.Trainer) -> dict[str, np.ndarray]:
    """Return copies of the weights of a trainer's model."""
    return {name: array.copy() for name, array in t.model.state_dict().items()}


def timeless(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a history without times."""
    return [{k: v for k, v in entry.items() if "second" not in k} for entry in history]


def assert_same_run(whole: nn.Trainer, again: nn.Trainer) -> None:
    """Assert that two runs have the same weights, optimizer, best weights and history, bit for bit."""
    np.testing.assert_equal(weights(again), weights(whole))
    one, two = whole.optimizer.state_dict(), again.optimizer.state_dict()
    assert json.loads(json.dumps(one["groups"])) == json.loads(json.dumps(two["groups"]))
    np.testing.assert_equal(two["arrays"], one["arrays"])
    assert timeless(whole.history) == timeless(again.history)
    assert whole.state.counters == again.state.counters
    if whole.run is not None and again.run is not None:
        assert whole.run.best.read_bytes() == again.run.best.read_bytes()
        lines = [path.read_text().splitlines() for path in (whole.run.metrics, again.run.metrics)]
        assert timeless([json.loads(line) for line in lines[0]]) == timeless(
            [json.loads(line) for line in lines[1]]
        )
