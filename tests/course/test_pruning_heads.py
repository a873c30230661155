"""08_pruning_heads: importance by gradient and by ablation, and a model with fewer heads."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scripts import load

import minigrad as mg

script = load("08_pruning_heads")


def test_the_lesson(lesson: Callable[[str], tuple[int, str, Path]]) -> None:
    checked, text, out = lesson("08_pruning_heads")
    assert checked >= 11
    rows = {name: [float(n.replace(",", "")) for n in re.findall(r"[\d.,]+", line)]
            for line in text.splitlines() for name in ("as trained", "pruned") if re.match(rf"  {name}  .*%$", line)}  # fmt: skip
    (before, heads, *_, right), (after, fewer, *_, still) = rows["as trained"], rows["pruned"]
    assert (heads, fewer) == (16, 6) and before - after == 10 * (4 * 8 * 64 + 3 * 8)
    assert right > 97 and still > 97
    curve = lambda name: [int(n) for n in re.findall(r"(\d+)%", next(line for line in text.splitlines() if name in line))]  # fmt: skip
    assert curve("least by gradient first ")[3] > 90 > curve("most by gradient first ")[4]
    image = pytest.importorskip("matplotlib.image").imread(out / "heads.png")
    assert image.shape[1] > 1200 and image[..., :3].std() > 0.05


def small() -> tuple[object, np.ndarray, np.ndarray]:
    """An untrained model of the same shape, and some sentences."""
    model = script.course.Resolver(
        script.course.settings(16, script.HEADS, script.LAYERS), seed=3
    ).eval()
    sentences, nouns, _ = script.course.corpus()
    return model, script.course.encode(sentences[::500]), nouns[::500]


def test_importance_by_gradient_is_that_of_each_sentence_by_differences() -> None:
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


def test_importance_by_ablation_is_that_of_a_pruned_model() -> None:
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


def test_the_order_of_removal_leaves_a_head_in_each_layer() -> None:
    importance = np.arange(16.0).reshape(2, 8)
    assert script.removal_order(importance) == [(0, h) for h in range(7)] + [
        (1, h) for h in range(7)
    ]
    assert script.removal_order(-importance)[0] == (1, 7)
    assert script.without([(1, 2)]).sum() == 15 and script.without([(1, 2)])[1, 2] == 0
    assert script.ranks_agree(importance, importance**3) == pytest.approx(1)
    assert script.ranks_agree(importance, -importance) == pytest.approx(-1)
