"""Gated and pruned heads equal heads with output weights of zero."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nn
from minigrad import optim

CONFIG = nn.TransformerConfig(11, 13, 8, 4, 2, 2, 12, dropout=0.0, max_len=16, dtype="float64")
HEADS = {"encoder.layers.1.self_attention": [0, 2], "decoder.layers.0.cross_attention": [0, 1, 2]}


def make_attention(bias: bool = True) -> tuple[Any, dict[str, np.ndarray]]:
    """Return an attention with four heads of size 3, and its arguments by name."""
    rng = np.random.default_rng(0)
    sizes = {"query_size": 5, "key_size": 6, "value_size": 7}
    attention = nn.ExtendedAttention(12, 4, **sizes, bias=bias, dtype=float, generator=rng)
    arrays = [rng.standard_normal((2, *shape)) for shape in ((3, 5), (4, 6), (4, 7))]
    arguments = dict(zip(("query", "memory", "value"), arrays))
    return attention, arguments | {"mask": rng.random((2, 1, 1, 4)) < 0.7}


def set_heads_to_zero(attention: Any, heads: list[int]) -> None:
    """Set the output weights of heads to zero."""
    for head in heads:
        attention.out_proj.weight.data[:, head * attention.d_k : (head + 1) * attention.d_k] = 0


def test_pruned_attention_has_no_gradients_and_shows_its_sizes() -> None:
    attention, arguments = make_attention()
    attention(**arguments).sum().backward()
    nn.prune_heads(attention, [np.int64(1)])
    assert all(p.grad is None for p in attention.parameters())
    for name, sizes in {
        "q_proj": (5, 9),
        "k_proj": (6, 9),
        "v_proj": (7, 9),
        "out_proj": (9, 12),
    }.items():
        layer = getattr(attention, name)
        assert (layer.in_features, layer.out_features) == layer.weight.shape[::-1] == sizes
        assert layer.weight.data.flags.c_contiguous
    with pytest.raises(TypeError):
        nn.prune_heads(attention, [0.0])
    biased = nn.ExtendedAttention(12, 4, position_bias=nn.ALiBi(4))
    with pytest.raises(ValueError, match="and no position bias"):
        nn.prune_heads(biased, [0])
    assert biased.num_heads == 4


# -- one attention -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "parts", [[[3, 0]], [[2], [0, 1]], [[0], [3]], [[3], [0], [1]]], ids=str
)  # original indices
@pytest.mark.parametrize("bias", [True, False])
def test_prune_heads_equals_outputs_of_zero(parts: list[list[int]], bias: bool) -> None:
    attention, arguments = make_attention(bias)
    heads = [head for part in parts for head in part]
    set_heads_to_zero(attention, heads)
    y, weights = nn.with_weights(attention, **arguments)
    for part in parts:
        nn.prune_heads(attention, part)
    left = [head for head in range(4) if head not in heads]
    assert attention.pruned_heads == tuple(sorted(heads)) and attention.num_heads == len(left)
    z, weights_of_pruned = nn.with_weights(attention, **arguments)
    np.testing.assert_allclose(z.data, y.data, rtol=1e-10, atol=1e-11)
    np.testing.assert_allclose(weights_of_pruned, weights[:, left], rtol=1e-12)


def test_prune_heads_frees_memory_and_keeps_frozen_parameters_frozen() -> None:
    attention, arguments = make_attention()
    attention.k_proj.requires_grad_(False)
    attention(**arguments).sum().backward()
    early = optim.Adam([attention.q_proj.weight])
    nn.prune_heads(attention, [1])
    parameters = dict(attention.named_parameters())
    assert all(p.data.base is None and p.data.flags.c_contiguous for p in parameters.values())
    frozen = [name for name, p in parameters.items() if not p.requires_grad]
    assert frozen == ["k_proj.weight", "k_proj.bias"]
    assert attention.q_proj.weight.grad is None
    attention(**arguments).sum().backward()
    with pytest.raises(RuntimeError, match="had another shape or dtype when its optimizer"):
        early.step()


@pytest.mark.parametrize(
    ("heads", "error", "message"),
    [
        ([0, -1], IndexError, r"heads must be from 0 to 3, got \[-1\]"),
        ([4], IndexError, r"heads must be from 0 to 3, got \[4\]"),
        ([1], ValueError, r"heads must be some of \[0, 2, 3\], got \[1\], which are pruned already"),
        ([2, 2], ValueError, r"heads must be distinct, got \[2, 2\]"),
        ([3, 0, 2], ValueError, r"heads must leave at least one of \[0, 2, 3\], got"),
    ],
)  # fmt: skip
def test_prune_heads_bad_heads_change_nothing(heads: Any, error: Any, message: str) -> None:
    attention, _ = make_attention()
    nn.prune_heads(attention, [1])
    with pytest.raises(error, match=message):
        nn.prune_heads(attention, heads)
    assert attention.pruned_heads == (1,) and attention.q_proj.weight.shape == (9, 5)


# -- gates -----------------------------------------------------------------------------------------------


def test_gate_heads_keeps_the_dtype_and_refuses_other_shapes() -> None:
    attention, x = nn.MultiHeadAttention(8, 4), np.ones((2, 3, 8), np.float32)
    with nn.gate_heads(attention, {"": np.ones(4)}):
        assert attention(x).dtype == np.float32
    message = r"gate must have shape \(4,\) or \(2, 4\), got \(3, 4\)"
    with pytest.raises(ValueError, match=message), nn.gate_heads(attention, {"": np.ones((3, 4))}):
        attention(x)


def test_gate_heads_of_unknown_attention_raises() -> None:
    gated = nn.gate_heads(nn.Transformer(CONFIG), {"encoder": np.ones(4)})
    message = "gates must have names of attentions .decoder.layers.0.*, got encoder"
    with pytest.raises(KeyError, match=message), gated:
        pass


# -- a whole model ---------------------------------------------------------------------------------------


def test_pruned_model_decodes_and_is_saved(tmp_path: Path) -> None:
    model, path = nn.Transformer(CONFIG).eval(), tmp_path / "w.safetensors"
    for name, attention in model.named_modules():
        set_heads_to_zero(attention, HEADS.get(name, []))
    source, target = np.array([[4, 5, 6, 0]]), np.array([[4, 5, 7]])
    expected = model(source, target).data
    model.prune_heads({name: heads[-1:] for name, heads in HEADS.items()})
    model.prune_heads({name: heads[:-1] for name, heads in HEADS.items()})
    assert model.config.pruned_heads == HEADS
    nn.save_weights(path, model, config=model.config.to_dict())
    stored = json.loads(json.dumps(model.config.to_dict()))
    again = nn.Transformer(nn.EncoderDecoderConfig.from_dict(stored)).eval()
    nn.load_weights(path, again)
    assert again.config == model.config and hash(again.config) == hash(model.config)
    state = again.start(source)
    steps = [again.step(target[:, i : i + 1], state) for i in range(3)]
    np.testing.assert_allclose(np.stack(steps, 1), expected, rtol=1e-9, atol=1e-11)
    message = r"w.safetensors: the weights of another model: this one has pruned_heads=\{\}"
    with pytest.raises(ValueError, match=message):
        nn.load_weights(path, nn.Transformer(CONFIG))


FIRST, SECOND = (f"layers.layers.{i}.self_attention" for i in range(2))


@pytest.mark.parametrize(
    ("heads", "error", "message"),
    [
        ({FIRST: [1], SECOND: [0, 1, 2, 3]}, ValueError, "heads must leave at least one of"),
        ({FIRST: [1], "layers": [0]}, KeyError, "heads must have names of attentions .*, got layers'$"),
        ({"b": [0], FIRST: [1], "a": []}, KeyError, "heads must have names of attentions .*, got a, b'$"),
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


def test_heads_that_are_pruned_one_after_another_are_all_recorded() -> None:
    model = nn.LanguageModel(nn.LanguageModelConfig(13, 8, 4, 2, 12))
    for name, head, expected in (
        (FIRST, 2, {FIRST: [2]}),
        (SECOND, 0, {FIRST: [2], SECOND: [0]}),
        (FIRST, 1, {FIRST: [1, 2], SECOND: [0]}),
    ):
        model.prune_heads({name: [head]})
        assert model.config.pruned_heads == expected
        for again in expected[name]:
            with pytest.raises(ValueError, match=rf"got \[{again}\], which are pruned already"):
                model.prune_heads({name: [again]})
    assert model.config.pruned_heads == expected


def test_heads_of_a_model_can_be_an_iterator() -> None:
    model, listed = (nn.Transformer(CONFIG, np.random.default_rng(0)) for _ in range(2))
    model.prune_heads({name: iter(heads) for name, heads in HEADS.items()})
    listed.prune_heads(HEADS)
    assert model.config == listed.config and model.config.pruned_heads == HEADS
    for name, array in listed.state_dict().items():
        np.testing.assert_array_equal(model.state_dict()[name], array)
