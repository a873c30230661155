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
         "decoder.layers.0.cross_attention": [1, 0, 2], "decoder.layers.1.cross_attention": [2]}  # fmt: skip


def made(
    seed: int, bias: bool = True
) -> tuple[nn.MultiHeadAttention, list[np.ndarray], np.ndarray]:
    """Return an attention with four heads of size 3, its arguments and a mask."""
    rng = np.random.default_rng(seed)
    attention = nn.MultiHeadAttention(12, 4, query_size=5, key_size=6, value_size=7, bias=bias, dtype=float, generator=rng)  # fmt: skip
    arrays = [rng.standard_normal((2, length, width)) for length, width in ((3, 5), (4, 6), (4, 7))]
    return attention, arrays, rng.random((2, 1, 1, 4)) < 0.7


def weighed(attention: nn.MultiHeadAttention, *arguments: Any) -> tuple[Tensor, np.ndarray]:
    """Return the result and the weights (N, h, L_q, L_kv)."""
    with nn.record_attention(attention) as recorded:
        return attention(*arguments), recorded[""][-1]


def zeroed(attention: nn.MultiHeadAttention, heads: Any) -> None:
    """Set the output weights of these heads to zero."""
    for head in heads:
        attention.out_proj.weight.data[:, head * attention.d_k : (head + 1) * attention.d_k] = 0


def copied(model: nn.Transformer) -> nn.Transformer:
    other = nn.Transformer(model.config)
    other.load_state_dict(model.state_dict())
    return other.eval()


def ids(seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    source, target = rng.integers(4, 11, (3, 5)), rng.integers(4, 13, (3, 6))
    source[0, 3:] = 0
    return source, target


# -- one attention -------------------------------------------------------------------------------------


@given(
    seed=st.integers(0, 1000),
    heads=st.lists(st.integers(0, 3), max_size=3, unique=True),
    bias=st.booleans(),
    one_by_one=st.booleans(),
)
def test_prune_heads_equals_zero_outputs(
    seed: int, heads: list[int], bias: bool, one_by_one: bool
) -> None:
    whole, arrays, mask = made(seed, bias)
    pruned, _, _ = made(seed, bias)
    zeroed(whole, heads)
    for some in (
        [[head] for head in heads] if one_by_one else [heads]
    ):  # numbers do not move as heads go
        nn.prune_heads(pruned, some)
    left = [head for head in range(4) if head not in heads]
    assert pruned.pruned_heads == tuple(sorted(heads)) and pruned.num_heads == len(left)

    leaves = [[Tensor(x, requires_grad=True) for x in arrays] for _ in range(2)]
    y, weights = weighed(whole, *leaves[0], mask)
    z, fewer = weighed(pruned, *leaves[1], mask)
    np.testing.assert_allclose(z.data, y.data, rtol=1e-10, atol=1e-12)
    np.testing.assert_array_equal(fewer, weights[:, left])

    g = np.random.default_rng(seed).standard_normal(y.shape)
    y.backward(g)
    z.backward(g)
    for a, b in zip(leaves[1], leaves[0]):
        np.testing.assert_allclose(a.grad.data, b.grad.data, rtol=1e-9, atol=1e-12)
    rows = [3 * head + i for head in left for i in range(3)]
    for (
        name,
        p,
    ) in pruned.named_parameters():  # each gradient is the part of the whole one that was kept
        full = dict(whole.named_parameters())[name].grad.data
        part = (
            full[:, rows]
            if name == "out_proj.weight"
            else full
            if name == "out_proj.bias"
            else full[rows]
        )
        np.testing.assert_allclose(p.grad.data, part, rtol=1e-9, atol=1e-12)


def test_prune_heads_shrinks_parameters() -> None:
    attention, _, _ = made(0)
    before = attention.num_parameters()
    nn.prune_heads(attention, [1])
    shapes = {name: array.shape for name, array in attention.state_dict().items()}
    assert shapes == {
        "q_proj.weight": (9, 5), "q_proj.bias": (9,), "k_proj.weight": (9, 6), "k_proj.bias": (9,),
        "v_proj.weight": (9, 7), "v_proj.bias": (9,), "out_proj.weight": (12, 9), "out_proj.bias": (12,),
    }  # fmt: skip
    assert before - attention.num_parameters() == 3 * (5 + 6 + 7) + 3 * 3 + 12 * 3
    assert all(
        p.data.base is None and p.data.flags.c_contiguous for p in attention.parameters()
    )  # nothing is held on to
    assert (attention.num_heads, attention.d_k, attention.d_model) == (3, 3, 12)
    assert (attention.q_proj.out_features, attention.out_proj.in_features) == (9, 9)
    assert repr(attention).startswith(
        "MultiHeadAttention(d_model=12, num_heads=3, pruned_heads=(1,)\n"
    )


def test_prune_heads_bad_heads_change_nothing() -> None:
    attention, _, _ = made(0)
    nn.prune_heads(attention, [1])
    before = {name: array.copy() for name, array in attention.state_dict().items()}
    for heads, kind, message in [
        ([4], IndexError, r"prune_heads: heads must be from 0 to 3, got \[4\]"),
        ([0, -1], IndexError, r"heads must be from 0 to 3, got \[-1\]"),
        (
            [1],
            ValueError,
            r"heads must be some of \[0, 2, 3\], got \[1\], which are pruned already",
        ),
        ([2, 2], ValueError, r"heads must be distinct, got \[2, 2\]"),
        ([0, 2, 3], ValueError, r"heads must leave at least one of \[0, 2, 3\], got"),
        ([0.5], TypeError, "cannot be interpreted as an integer"),
    ]:
        with pytest.raises(kind, match=message):
            nn.prune_heads(attention, heads)
    assert attention.pruned_heads == (1,) and attention.num_heads == 3
    for name, array in attention.state_dict().items():
        np.testing.assert_array_equal(array, before[name])


def test_prune_heads_invalidates_earlier_optimizers() -> None:
    attention, arrays, mask = made(0)
    early = optim.Adam(attention.parameters(), lr=0.01)
    loss = lambda: mg.mean(attention(*arrays, mask) ** 2)
    loss().backward()
    nn.prune_heads(attention, [0, 3])
    assert all(p.grad is None for p in attention.parameters())
    loss().backward()
    with pytest.raises(
        RuntimeError,
        match="other memory than when its optimizer was made; make the optimizer after",
    ):
        early.step()
    optimizer = optim.Adam(attention.parameters(), lr=0.01)
    first = loss().item()
    for _ in range(20):
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()
    assert loss().item() < 0.7 * first


def test_prune_heads_keeps_frozen_parameters_frozen() -> None:
    attention, _, _ = made(0)
    attention.k_proj.requires_grad_(False)
    nn.prune_heads(attention, [0])
    assert [name for name, p in attention.named_parameters() if not p.requires_grad] == [
        "k_proj.weight",
        "k_proj.bias",
    ]


# -- gates -----------------------------------------------------------------------------------------------


@given(seed=st.integers(0, 1000), head=st.integers(0, 3), recorded=st.booleans())
def test_gate_heads_of_zero_equals_prune_heads(seed: int, head: int, recorded: bool) -> None:
    attention, arrays, mask = made(seed)
    run = (
        (lambda: weighed(attention, *arrays, mask)[0])
        if recorded
        else (lambda: attention(*arrays, mask))
    )
    result = lambda: run().data
    plain = result()
    with nn.gate_heads(attention, {"": np.ones(4)}):
        np.testing.assert_allclose(result(), plain, rtol=1e-12)
    with nn.gate_heads(attention, {"": np.arange(4) != head}):
        gated = result()
    np.testing.assert_array_equal(result(), plain)
    nn.prune_heads(attention, [head])
    np.testing.assert_allclose(gated, result(), rtol=1e-10, atol=1e-12)


def test_gate_heads_gradients_equal_finite_differences() -> None:
    attention, arrays, mask = made(1)

    def f(gate: Any, query: Any) -> Tensor:
        with nn.gate_heads(attention, {"": gate}):
            return attention(query, *arrays[1:], mask)

    rng = np.random.default_rng(0)
    for shape in ((4,), (2, 4)):
        assert mg.gradcheck(f, [rng.standard_normal(shape), arrays[0]], elementwise=False)
    each, both = (Tensor(np.ones(shape), requires_grad=True) for shape in ((2, 4), (4,)))
    for gate in (each, both):
        mg.sum(f(gate, arrays[0]) ** 3).backward()
    np.testing.assert_allclose(each.grad.data.sum(0), both.grad.data, rtol=1e-10)


def test_gate_heads_keeps_the_dtype_and_checks_shapes() -> None:
    model = nn.Transformer(CONFIG)
    single = nn.MultiHeadSelfAttention(8, 4)
    x = np.ones((2, 3, 8), np.float32)
    with nn.gate_heads(single, {"": np.ones(4)}):
        assert single(x).dtype == np.float32
    for shape in ((3,), (3, 4), (4, 1), ()):
        with pytest.raises(
            ValueError, match=r"gate_heads: a gate must have shape \(4,\) or \(2, 4\), got "
        ):
            with nn.gate_heads(single, {"": np.ones(shape)}):
                single(x)
    with pytest.raises(
        KeyError,
        match=r"gates must have names of attentions .decoder.layers.0.*, got encoder",
    ):
        with nn.gate_heads(model, {"encoder": np.ones(4)}):
            pass


# -- a whole model ---------------------------------------------------------------------------------------


def test_pruned_transformer_decodes_with_its_cache() -> None:
    model = nn.Transformer(CONFIG).eval()
    other = copied(model)
    modules = dict(other.named_modules())
    for name, heads in HEADS.items():
        zeroed(modules[name], heads)
    model.prune_heads(HEADS)
    source, target = ids(0)
    full = other(source, target).data
    np.testing.assert_allclose(model(source, target).data, full, rtol=1e-10, atol=1e-12)
    with mg.no_grad():
        state = model.start(source)
        for i in range(6):
            step = model.step(target[:, i : i + 1], state)
            np.testing.assert_allclose(step, full[:, i], rtol=1e-9, atol=1e-11)
    greedy, whole = (nn.greedy_search(m, source, max_len=8) for m in (model, other))
    assert [h.tokens for h in greedy] == [h.tokens for h in whole]
    beams, whole = (nn.beam_search(m, source, max_len=8) for m in (model, other))
    assert [h.tokens for [h] in beams] == [h.tokens for [h] in whole]
    with nn.record_attention(model) as recorded:
        model(source, target)
    assert [recorded[name][0].shape[1] for name in HEADS] == [2, 3, 1, 3]


def test_pruned_model_save_and_load_is_equal(tmp_path: Path) -> None:
    model = nn.Transformer(CONFIG)
    model.prune_heads({"encoder.layers.1.self_attention": [2]})
    model.prune_heads(
        {"encoder.layers.1.self_attention": [0], "decoder.layers.0.cross_attention": [1, 3]}
    )
    assert model.config.pruned_heads == {"encoder.layers.1.self_attention": [0, 2], "decoder.layers.0.cross_attention": [1, 3]}  # fmt: skip
    nn.save_weights(tmp_path / "w.safetensors", model, config=model.config.to_dict())
    stored = json.loads(json.dumps(model.config.to_dict()))
    again = nn.Transformer(nn.TransformerConfig.from_dict(stored))
    nn.load_weights(tmp_path / "w.safetensors", again)
    source, target = ids(1)
    np.testing.assert_array_equal(
        again.eval()(source, target).data, model.eval()(source, target).data
    )
    assert again.config == model.config and hash(again.config) == hash(model.config)
    with pytest.raises(
        ValueError,
        match=r"w.safetensors: the weights of another model: this one has pruned_heads=\{\}",
    ):
        nn.load_weights(tmp_path / "w.safetensors", nn.Transformer(CONFIG))


def test_model_prune_heads_with_an_error_changes_nothing() -> None:
    config = nn.LanguageModelConfig(13, 8, 4, 2, 12)
    model = nn.LanguageModel(config)
    with pytest.raises(ValueError, match="heads must leave at least one of"):
        model.prune_heads(
            {"layers.layers.0.self_attention": [1], "layers.layers.1.self_attention": [0, 1, 2, 3]}
        )
    with pytest.raises(
        KeyError,
        match=r"heads must have names of attentions .layers.layers.0.s.*, got layers",
    ):
        model.prune_heads({"layers.layers.0.self_attention": [1], "layers": [0]})
    assert model.config is config and not any(m.pruned_heads for m in model.modules() if isinstance(m, nn.MultiHeadAttention))  # fmt: skip
    model.prune_heads({"layers.layers.1.self_attention": iter([0])})
    assert model.config.pruned_heads == {"layers.layers.1.self_attention": [0]}
    assert not config.pruned_heads
    nn.EncoderClassifier(nn.EncoderConfig(11, 8, 4, 1, 12, num_classes=3)).prune_heads(
        {"encoder.layers.0.self_attention": [3]}
    )
