"""The recipe of examples/multi30k.py against PyTorch's own layers, with the same weights and the same batches."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is the truth here; it is not installed")

import minigrad as mg  # noqa: E402
import nn  # noqa: E402
from nn.text import PairBatches  # noqa: E402

VOCAB, WARMUP = 30, 20


@pytest.fixture(scope="module")
def recipe() -> ModuleType:
    """benchmarks/recipe.py."""
    path = Path(__file__).parent.parent.parent / "benchmarks" / "recipe.py"
    spec = importlib.util.spec_from_file_location("benchmark_recipe", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def made() -> tuple[nn.Transformer, PairBatches]:
    mg.manual_seed(0)
    config = nn.TransformerConfig(
        VOCAB,
        VOCAB,
        16,
        2,
        2,
        2,
        32,
        dropout=0.0,
        tie="all",
        output_bias=False,
        max_len=64,
        dtype="float64",
    )
    rng = np.random.default_rng(0)
    sides = [
        (rng.integers(4, VOCAB, rng.integers(2, 9)), rng.integers(4, VOCAB, rng.integers(2, 9)))
        for _ in range(90)
    ]
    pairs = [([*a.tolist(), 2], [1, *b.tolist(), 2]) for a, b in sides]
    return nn.Transformer(config), PairBatches(pairs, 120, seed=1)


@pytest.mark.filterwarnings("ignore:.*nested.*:UserWarning")
def test_the_first_updates_follow_the_curve_of_pytorch(recipe: ModuleType) -> None:
    ours, batches = made()
    steps = [
        recipe.our_step(ours, 0.005, WARMUP),
        recipe.torch_step(recipe.TorchTransformer(ours), 0.005, WARMUP),
    ]
    curve = np.array(
        [[step(*batch) for step in steps] for epoch in range(8) for batch in batches.epoch(epoch)]
    )
    assert len(curve) > 50 and curve[-8:].mean() < 0.95 * curve[:8].mean()
    np.testing.assert_allclose(curve[:, 0], curve[:, 1], rtol=1e-7)
