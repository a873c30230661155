"""Attention, Transformer layers and a whole model beside PyTorch's, with the same weights.

`test_module_db.py` compares all other layers.
"""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.torch_databases import assert_same_with_gradients, torch

import minigrad as mg
import nn
from minigrad import Tensor
from nn.text.batches import PairBatches

rng = np.random.default_rng(0)
PADDING = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], bool)[:, None, None]
IS_PADDING = torch.tensor(~PADDING[:, 0, 0])
IS_LATER = torch.tensor(~nn.causal_mask(5))


def names_of(name: str) -> list[str]:
    """Return our names of the parameters that one parameter of PyTorch joins."""
    for theirs, ours in (
        ("self_attn", "self_attention"), ("multihead_attn", "cross_attention"),
        ("linear", "feed_forward.linear"), ("_proj_weight", "_proj.weight"),
    ):  # fmt: skip
        name = name.replace(theirs, ours)
    for kind in ("weight", "bias"):
        for joined in (f"in_proj_{kind}", f"in_proj.{kind}"):
            if name.endswith(joined):
                return [f"{name.removesuffix(joined)}{x}_proj.{kind}" for x in "qkv"]
    return [name]


def compare(
    ours: nn.Module,
    theirs: Any,
    arrays: list[np.ndarray],
    options: dict[str, Any],
    their_options: dict[str, Any],
) -> None:
    """Compare results and all gradients of two layers with our weights."""
    inputs = [torch.tensor(x, requires_grad=True) for x in arrays]
    leaves = {x: Tensor(x.detach().numpy(), requires_grad=True) for x in inputs}
    weights = {}
    for name, p in ours.named_parameters():
        weights[name] = torch.tensor(p.data, requires_grad=True)
        leaves[weights[name]] = p
    joined = {
        name: torch.cat([weights[part] for part in names_of(name)])
        for name, _ in theirs.named_parameters()
    }
    expected = torch.func.functional_call(theirs, joined, tuple(inputs), their_options)
    y = ours(*[leaves[x] for x in inputs], **options)
    expected = expected[0] if isinstance(expected, tuple) else expected
    assert_same_with_gradients(y, expected, leaves)


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("norm_first", [False, True], ids=["post-norm", "pre-norm"])
@pytest.mark.parametrize("kind", ["TransformerEncoderLayer", "TransformerDecoderLayer"])
def test_transformer_layer_equals_pytorch(kind: str, norm_first: bool, activation: str) -> None:
    options = {"dropout": 0.0, "norm_first": norm_first, "activation": activation}
    ours = getattr(nn, kind)(8, 2, 12, **options, dtype=float)
    theirs = getattr(torch.nn, kind)(8, 2, 12, **options, batch_first=True).double()
    arrays = [*rng.standard_normal((2, 2, 5, 8))]
    masks, their_masks = (
        {"memory_mask": PADDING},
        {"memory_key_padding_mask": IS_PADDING, "tgt_mask": IS_LATER},
    )
    if kind == "TransformerEncoderLayer":
        arrays, masks, their_masks = (
            arrays[:1],
            {"mask": PADDING},
            {"src_key_padding_mask": IS_PADDING},
        )
    compare(ours, theirs, arrays, masks, their_masks)


class OfThree(nn.ExtendedAttention):
    """Attention with PyTorch's order of arguments."""

    def forward(self, query: Any, key: Any, value: Any, **options: Any) -> Any:  # type: ignore[override]
        return super().forward(query, key, value=value, **options)


MASKS: list[tuple[Any, dict[str, Any]]] = [  # PyTorch's have the opposite polarity
    (None, {}),
    (PADDING, {"key_padding_mask": IS_PADDING}),
    (nn.causal_mask(5), {"attn_mask": IS_LATER}),
]


@pytest.mark.parametrize("sizes", [(8, 8), (5, 7)])
@pytest.mark.parametrize(("mask", "their_mask"), MASKS)
def test_multi_head_attention_equals_pytorch(
    mask: Any, their_mask: dict[str, Any], sizes: tuple[int, int]
) -> None:
    key, value = sizes
    ours = OfThree(8, 4, key_size=key, value_size=value, dtype=float)
    theirs = torch.nn.MultiheadAttention(8, 4, kdim=key, vdim=value, batch_first=True).double()
    arrays = [rng.standard_normal((2, 5, size)) for size in (8, *sizes)]
    compare(ours, theirs, arrays, {"mask": mask}, their_mask)


def test_training_of_transformer_follows_pytorch() -> None:
    """Train by `benchmarks/recipe.py`: label smoothing, clipping, Adam and warmup."""
    recipe = SimpleNamespace(
        **runpy.run_path(str(Path(__file__).parents[2] / "benchmarks/recipe.py"))
    )
    mg.manual_seed(0)
    options = {
        "dropout": 0.0,
        "tie": "all",
        "output_bias": False,
        "max_len": 64,
        "dtype": "float64",
    }
    config = nn.EncoderDecoderConfig(30, 30, 16, 2, 2, 2, 32, **options)
    ours, draw = nn.Transformer(config), np.random.default_rng(0)
    sentence = lambda: draw.integers(4, 30, draw.integers(2, 9)).tolist()
    batches = PairBatches([([*sentence(), 2], [1, *sentence(), 2]) for _ in range(90)], 120, seed=1)
    step = recipe.our_step(ours, 0.005, 20)
    their_step = recipe.torch_step(recipe.TorchTransformer(ours), 0.005, 20)
    losses = [
        (step(*batch), their_step(*batch)) for epoch in range(5) for batch in batches.epoch(epoch)
    ]
    ours_losses, their_losses = np.transpose(losses)
    assert ours_losses[-8:].mean() < 0.97 * ours_losses[:8].mean()
    np.testing.assert_allclose(ours_losses, their_losses, rtol=1e-7)
