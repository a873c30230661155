"""Importance of heads by gradient and by ablation, and the order of their removal."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
from scripts import EXAMPLES

import minigrad as mg

FILE = Path(__file__).parent / "statements" / "pruning_heads.py"
sys.path.insert(0, str(EXAMPLES / "course"))
spec = importlib.util.spec_from_file_location("state_pruning_heads", FILE)
script = importlib.util.module_from_spec(spec)
spec.loader.exec_module(script)
sys.path.pop(0)


def small() -> tuple[object, np.ndarray, np.ndarray]:
    """Return an untrained model of the same shape, and some sentences."""
    model = script.Resolver(script.settings(16, script.HEADS, script.LAYERS), seed=3).eval()
    sentences, nouns, _ = script.corpus()
    return model, script.encode(sentences[::500]), nouns[::500]


def test_importance_by_gradient_equals_finite_differences() -> None:
    model, ids, nouns = small()
    model.astype(float)
    found = script.importance_by_gradient(model, ids, nouns)
    losses = lambda gates: (
        mg.cross_entropy(script.gated(model, gates, ids), nouns, reduction="none").data
    )
    for layer, head in [(0, 0), (1, 5)]:
        up, down = (np.ones((script.LAYERS, script.HEADS)) for _ in range(2))
        up[layer, head] += 1e-4
        down[layer, head] -= 1e-4
        expected = np.abs(losses(up) - losses(down)).mean() / 2e-4
        assert found[layer, head] == pytest.approx(expected, rel=1e-4)


def test_importance_by_ablation_equals_a_pruned_model() -> None:
    model, ids, nouns = small()
    found = script.importance_by_ablation(model, ids, nouns)
    with mg.no_grad():
        whole = mg.cross_entropy(model(ids), nouns).item()
        for layer, head in [(0, 2), (1, 7)]:
            pruned = script.copied(model)
            pruned.prune_heads({script.NAMES[layer]: [head]})
            assert mg.cross_entropy(pruned(ids), nouns).item() - whole == pytest.approx(
                found[layer, head], abs=1e-5
            )


def test_removal_order_leaves_a_head_in_each_layer() -> None:
    importance = np.arange(16.0).reshape(2, 8)
    assert script.removal_order(importance) == [(0, h) for h in range(7)] + [
        (1, h) for h in range(7)
    ]
    assert script.removal_order(-importance)[0] == (1, 7)
    assert script.without([(1, 2)]).sum() == 15 and script.without([(1, 2)])[1, 2] == 0
    assert script.ranks_agree(importance, importance**3) == pytest.approx(1)
    assert script.ranks_agree(importance, -importance) == pytest.approx(-1)
