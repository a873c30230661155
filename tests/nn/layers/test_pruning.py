"""Gated and pruned heads equal heads with output weights of zero."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minigrad as mg
import nn
from minigrad import Tensor, optim

CONFIG = nn.TransformerConfig(
    11,
    13,
    d_model=8,
    num_heads=4,
    num_encoder_layers=2,
    num_decoder_layers=2,
    d_ff=12,
    dropout=0.0,
    max_len=16,
    dtype="float64",
)
HEADS = {"encoder.layers.1.self_attention": [0, 2], "decoder.layers.0.self_attention": [3],
         "decoder.layers.0.cross_attention": [0, 1, 2], "decoder.layers.1.cross_attention": [2]}  # fmt: skip


def made(
    seed: int, bias: bool = True
) -> tuple[nn.MultiHeadAttention, list[np.ndarray], np.ndarray]:
    """Return an attention with four heads of size 3, its arguments and a mask."""
    rng = np.random.default_rng(seed)
    attention = nn.MultiHeadAttention(12, 4, query_size=5, key_size=6, value_size=7, bias=bias, dtype=float, generator=rng)  # fmt: skip
    arrays = [rng.standard_normal((2, length, width)) for length, width in ((3, 5), (4, 6), (4, 7))]
    return attention, arrays, rng.random((2, 1, 1, 4)) < 0.7


def set_heads_to_zero(attention: Any, heads: list[int]) -> None:
    """Set the output weights of heads to zero."""
    for head in heads:
        attention.out_proj.weight.data[:, head * attention.d_k : (head + 1) * attention.d_k] = 0


def ids(seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    source, target = rng.integers(4, 11, (3, 5)), rng.integers(4, 13, (3, 6))
    source[0, 3:] = 0
    return source, target


# -- one attention -------------------------------------------------------------------------------------


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    "parts", [[[]], [[1]], [[3, 0]], [[3], [0]], [[2], [0, 1]]], ids=str
)  # which go one after the other, by their original indices
def test_prune_heads_equals_outputs_of_zero(parts: list[list[int]], bias: bool) -> None:
    whole, arrays, mask = made(0, bias)
    pruned, _, _ = made(0, bias)
    heads = [head for part in parts for head in part]
    set_heads_to_zero(whole, heads)
    for part in parts:
        nn.prune_heads(pruned, part)
    left = [head for head in range(4) if head not in heads]
    assert pruned.pruned_heads == tuple(sorted(heads)) and pruned.num_heads == len(left)
    y, weights = nn.with_weights(whole, *arrays, mask)
    z, weights_of_pruned = nn.with_weights(pruned, *arrays, mask)
    np.testing.assert_allclose(z.data, y.data, rtol=1e-10, atol=1e-12)
    np.testing.assert_array_equal(weights_of_pruned, weights[:, left])
    g = np.random.default_rng(0).standard_normal(y.shape)
    rows = [3 * head + i for head in left for i in range(3)]
    kept = {"out_proj.weight": np.s_[:, rows], "out_proj.bias": np.s_[:]}
    names = [name for name, _ in whole.named_parameters()]
    gradients = (
        mg.gradients(result, [*m.parameters()], g) for result, m in ((z, pruned), (y, whole))
    )
    for name, part, full in zip(names, *gradients):
        expected = full.data[kept.get(name, rows)]
        np.testing.assert_allclose(part.data, expected, rtol=1e-9, atol=1e-12)


def test_prune_heads_frees_memory_and_keeps_frozen_parameters_frozen() -> None:
    attention, _, _ = made(0)
    attention.k_proj.requires_grad_(False)
    nn.prune_heads(attention, [1])
    assert repr(attention) == (
        "MultiHeadAttention(d_model=12, num_heads=3, pruned_heads=(1,)\n  (q_proj): Linear(5, 9)\n"
        "  (k_proj): Linear(6, 9)\n  (v_proj): Linear(7, 9)\n  (out_proj): Linear(9, 12)\n)"
    )
    parameters = dict(attention.named_parameters())
    assert all(p.data.base is None and p.data.flags.c_contiguous for p in parameters.values())
    frozen = [name for name, p in parameters.items() if not p.requires_grad]
    assert frozen == ["k_proj.weight", "k_proj.bias"]


@pytest.mark.parametrize(
    ("heads", "error", "message"),
    [
        ([4], IndexError, r"prune_heads: heads must be from 0 to 3, got \[4\]"),
        ([0, -1], IndexError, r"heads must be from 0 to 3, got \[-1\]"),
        ([1], ValueError, r"heads must be some of \[0, 2, 3\], got \[1\], which are pruned already"),
        ([2, 2], ValueError, r"heads must be distinct, got \[2, 2\]"),
        ([0, 2, 3], ValueError, r"heads must leave at least one of \[0, 2, 3\], got"),
        ([0.5], TypeError, "cannot be interpreted as an integer"),
    ],
)  # fmt: skip
def test_prune_heads_bad_heads_change_nothing(heads: Any, error: Any, message: str) -> None:
    attention, arrays, _ = made(0)
    nn.prune_heads(attention, [1])
    before = attention(*arrays).data
    with pytest.raises(error, match=message):
        nn.prune_heads(attention, heads)
    assert attention.pruned_heads == (1,)
    np.testing.assert_array_equal(attention(*arrays).data, before)


def test_prune_heads_invalidates_earlier_optimizers() -> None:
    attention, arrays, mask = made(0)
    early = optim.Adam(attention.parameters(), lr=0.01)
    loss = lambda: mg.mean(attention(*arrays, mask) ** 2)
    loss().backward()
    nn.prune_heads(attention, [0, 3])
    assert all(p.grad is None for p in attention.parameters())
    loss().backward()
    message = "other memory than when its optimizer was made; make the optimizer after"
    with pytest.raises(RuntimeError, match=message):
        early.step()


# -- gates -----------------------------------------------------------------------------------------------


@given(seed=st.integers(0, 1000), head=st.integers(0, 3), recorded=st.booleans())
def test_gate_heads_of_zero_equals_prune_heads(seed: int, head: int, recorded: bool) -> None:
    attention, arrays, mask = made(seed)

    def result() -> np.ndarray:
        if recorded:
            return nn.with_weights(attention, *arrays, mask)[0].data
        return attention(*arrays, mask).data

    plain = result()
    with nn.gate_heads(attention, {"": np.arange(4) != head}):
        gated = result()
    np.testing.assert_array_equal(result(), plain)
    nn.prune_heads(attention, [head])
    np.testing.assert_allclose(gated, result(), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("shape", [(4,), (2, 4)])
def test_gate_heads_gradients_equal_finite_differences(shape: tuple[int, ...]) -> None:
    attention, (query, *others), mask = made(1)

    def f(gate: Any, query: Any) -> Tensor:
        with nn.gate_heads(attention, {"": gate}):
            return attention(query, *others, mask)

    gate = np.random.default_rng(0).standard_normal(shape)
    assert mg.gradcheck(f, [gate, query], elementwise=False)


def test_gate_heads_keeps_the_dtype() -> None:
    attention = nn.MultiHeadSelfAttention(8, 4)
    with nn.gate_heads(attention, {"": np.ones(4)}):
        assert attention(np.ones((2, 3, 8), np.float32)).dtype == np.float32


@pytest.mark.parametrize("shape", [(3,), (3, 4), (4, 1), ()])
def test_gate_heads_of_another_shape_raises(shape: tuple[int, ...]) -> None:
    attention = nn.MultiHeadSelfAttention(8, 4)
    message = r"gate_heads: a gate must have shape \(4,\) or \(2, 4\), got "
    with pytest.raises(ValueError, match=message), nn.gate_heads(attention, {"": np.ones(shape)}):
        attention(np.ones((2, 3, 8), np.float32))


def test_gate_heads_of_unknown_attention_raises() -> None:
    gated = nn.gate_heads(nn.Transformer(CONFIG), {"encoder": np.ones(4)})
    message = "gates must have names of attentions .decoder.layers.0.*, got encoder"
    with pytest.raises(KeyError, match=message), gated:
        pass


# -- a whole model ---------------------------------------------------------------------------------------


def test_pruned_transformer_decodes_with_its_cache() -> None:
    model, whole = (nn.Transformer(CONFIG).eval() for _ in range(2))
    whole.load_state_dict(model.state_dict())
    for name, attention in whole.named_modules():
        set_heads_to_zero(attention, HEADS.get(name, []))
    model.prune_heads(HEADS)
    source, target = ids(0)
    full = whole(source, target).data
    np.testing.assert_allclose(model(source, target).data, full, rtol=1e-10, atol=1e-12)
    state = model.start(source)
    for i in range(6):
        step = model.step(target[:, i : i + 1], state)
        np.testing.assert_allclose(step, full[:, i], rtol=1e-9, atol=1e-11)


def test_pruned_model_save_and_load_is_equal(tmp_path: Path) -> None:
    model, path = nn.Transformer(CONFIG).eval(), tmp_path / "w.safetensors"
    model.prune_heads({name: heads[-1:] for name, heads in HEADS.items()})
    model.prune_heads({name: heads[:-1] for name, heads in HEADS.items()})
    assert model.config.pruned_heads == HEADS
    nn.save_weights(path, model, config=model.config.to_dict())
    stored = json.loads(json.dumps(model.config.to_dict()))
    again = nn.Transformer(nn.TransformerConfig.from_dict(stored)).eval()
    nn.load_weights(path, again)
    batch = ids(1)
    np.testing.assert_array_equal(again(*batch).data, model(*batch).data)
    assert again.config == model.config and hash(again.config) == hash(model.config)
    message = r"w.safetensors: the weights of another model: this one has pruned_heads=\{\}"
    with pytest.raises(ValueError, match=message):
        nn.load_weights(path, nn.Transformer(CONFIG))


FIRST, SECOND = (f"layers.layers.{i}.self_attention" for i in range(2))


@pytest.mark.parametrize(
    ("heads", "error", "message"),
    [
        ({FIRST: [1], SECOND: [0, 1, 2, 3]}, ValueError, "heads must leave at least one of"),
        ({FIRST: [1], "layers": [0]}, KeyError, "heads must have names of attentions .layers.layers.0.s.*, got layers"),
    ],
)  # fmt: skip
def test_model_prune_heads_with_an_error_changes_nothing(
    heads: Any, error: Any, message: str
) -> None:
    config = nn.LanguageModelConfig(13, 8, 4, 2, 12)
    model = nn.LanguageModel(config)
    with pytest.raises(error, match=message):
        model.prune_heads(heads)
    assert model.config is config and model.layers.layers[0].self_attention.num_heads == 4
    model.prune_heads({SECOND: iter([0])})
    assert model.config.pruned_heads == {SECOND: [0]} and not config.pruned_heads
