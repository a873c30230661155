"""Attention and layers of `minigrad.torch.nn` beside their formulas, one head and one sequence at a time."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.environment import max_examples
from support.properties import normal, perturb, seeds

import minigrad.torch.nn as nn

sizes = st.integers(1, 3)


def added(mask: Any, padding: Any, *shape: Any) -> np.ndarray:
    """Return what is added to the scores (N, heads, L, S)."""
    n, heads, length, s = shape
    forms = [(mask, (1, 1, length, s)), (padding, (n, 1, 1, s))]
    if mask is not None and mask.ndim == 3:
        forms[0] = mask, shape
    return sum(
        [
            (np.where(x, -np.inf, 0.0) if x.dtype == bool else x).reshape(form)
            for x, form in forms
            if x is not None
        ],
        np.zeros(shape),
    )


def attention(m: Any, query: Any, key: Any, value: Any, scores: np.ndarray) -> Any:
    """Return the output (N, L, d) and the weights (N, heads, L, S); `scores` are added."""
    bias = np.zeros(3 * m.embed_dim) if m.in_proj_bias is None else m.in_proj_bias.data
    parts = zip((query, key, value), np.split(m.in_proj_weight.data, 3), np.split(bias, 3))
    q, k, v = (x @ w.T + b for x, w, b in parts)
    d = m.embed_dim // m.num_heads
    y, weights = np.zeros_like(q), np.zeros_like(scores)
    for i in range(len(q)):
        for h in range(m.num_heads):
            part = slice(h * d, (h + 1) * d)
            w = np.exp(q[i, :, part] @ k[i, :, part].T / math.sqrt(d) + scores[i, h])
            weights[i, h] = w / w.sum(-1, keepdims=True)
            y[i, :, part] = weights[i, h] @ v[i, :, part]
    return linear(m.out_proj, y), weights


def linear(m: Any, x: np.ndarray) -> np.ndarray:
    return x @ m.weight.data.T + (0 if m.bias is None else m.bias.data)


def norm(m: Any, x: np.ndarray) -> np.ndarray:
    y = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + m.eps)
    return y * m.weight.data + (0 if m.bias is None else m.bias.data)


@st.composite
def masks(draw: Any, *shapes: tuple[int, ...]) -> np.ndarray | None:
    """Draw a mask of booleans or numbers that leaves the first key, or None."""
    shape, kind = draw(st.sampled_from(shapes)), draw(st.sampled_from(["none", "bool", "float"]))
    values = np.random.default_rng(draw(seeds)).random(shape)
    values[..., 0] = 0
    return {"none": None, "bool": values > 0.5, "float": values}[kind]


FORMS: dict[str, Any] = {
    "batch first": lambda x: x,
    "batch second": lambda x: x.swapaxes(0, 1),
    "single": lambda x: x[0],
}


@max_examples(15)
@given(counts=st.tuples(st.sampled_from([3, 1, 2, 0]), sizes, sizes), heads=st.sampled_from([2, 1, 3]), form=st.sampled_from([*FORMS]), flags=st.tuples(*[st.booleans()] * 3), seed=seeds, data=st.data())  # fmt: skip
def test_attention_equals_its_formula(
    counts: tuple[int, ...], heads: int, form: str, flags: Any, seed: int, data: st.DataObject
) -> None:
    (n, length, s), (need_weights, average, bias), d = counts, flags, 2 * heads
    n, change = 1 if form == "single" else n, FORMS[form]
    options = {"bias": bias, "batch_first": form == "batch first", "dtype": float}
    m = perturb(nn.MultiheadAttention(d, heads, **options), seed)
    mask = data.draw(masks((length, s), (n * heads, length, s)), "attn_mask")
    padding = data.draw(masks((n, s)), "key_padding_mask")
    operands = [normal([seed, i], n, k, d) for i, k in enumerate((length, s, s))]
    expected, weights = attention(m, *operands, added(mask, padding, n, heads, length, s))
    shown = padding[0] if form == "single" and padding is not None else padding
    y, found = m(*map(change, operands), shown, need_weights, mask, average)
    np.testing.assert_allclose(y.data, change(expected), rtol=1e-10, atol=1e-12)
    assert (found is not None) == need_weights
    if need_weights:
        weights = weights.mean(1) if average else weights
        weights = weights[0] if form == "single" else weights
        np.testing.assert_allclose(found.data, weights, rtol=1e-10, atol=1e-12)


OPTIONS = {
    **dict.fromkeys(("norm_first", "bias", "batch_first"), st.booleans()),
    "activation": st.sampled_from(["relu", "gelu"]),
}


@max_examples(12)
@given(lengths=st.tuples(sizes, sizes), options=st.fixed_dictionaries(OPTIONS), seed=seeds, data=st.data())  # fmt: skip
def test_transformer_equals_its_formula(
    lengths: tuple[int, int], options: dict[str, Any], seed: int, data: st.DataObject
) -> None:
    (s, length), n, heads, d = lengths, 2, 2, 4
    m = perturb(nn.Transformer(d, heads, 1, 2, 3, 0.0, dtype=float, **options), seed)
    shapes = {"src": (s, s), "tgt": (length, length), "memory": (length, s)}
    pairs = {k: [data.draw(masks(x), k) for x in (shape, (n, shape[1]))] for k, shape in shapes.items()}  # fmt: skip
    src, tgt = normal([seed, 1], n, s, d), normal([seed, 2], n, length, d)
    activation = getattr(nn.functional, options["activation"])

    def attend(m: Any, kind: str, x: np.ndarray, keys: np.ndarray) -> np.ndarray:
        return attention(m, x, keys, keys, added(*pairs[kind], n, heads, *shapes[kind]))[0]

    def layer(m: Any, x: np.ndarray, kind: str, memory: Any) -> np.ndarray:
        sublayers: list[Any] = [lambda x: attend(m.self_attn, kind, x, x)]
        if memory is not None:
            sublayers.append(lambda x: attend(m.multihead_attn, "memory", x, memory))
        sublayers.append(lambda x: linear(m.linear2, activation(linear(m.linear1, x)).data))
        for i, sublayer in enumerate(sublayers):
            one = getattr(m, f"norm{i + 1}")
            before = options["norm_first"]
            x = x + sublayer(norm(one, x)) if before else norm(one, x + sublayer(x))
        return x

    memory, expected = src, tgt
    for one in m.encoder.layers:
        memory = layer(one, memory, "src", None)
    memory = norm(m.encoder.norm, memory)
    for one in m.decoder.layers:
        expected = layer(one, expected, "tgt", memory)
    change = FORMS["batch first" if options["batch_first"] else "batch second"]
    y = m(change(src), change(tgt), *[pairs[k][i] for i in (0, 1) for k in shapes])
    expected = change(norm(m.decoder.norm, expected))
    np.testing.assert_allclose(y.data, expected, rtol=1e-9, atol=1e-11)


def test_attention_refuses_sizes_and_masks_that_do_not_fit() -> None:
    m = nn.MultiheadAttention(4, 2)
    x, y = np.zeros((3, 1, 4), np.float32), np.zeros((2, 1, 4), np.float32)
    for shape in ((2, 3), (1, 3, 2), (3, 2, 2)):
        with pytest.raises(ValueError, match=r"attn_mask must have shape \(3, 2\) or \(2, 3, 2\)"):
            m(x, y, y, attn_mask=np.zeros(shape))
    with pytest.raises(ValueError, match="num_heads must divide embed_dim"):
        nn.MultiheadAttention(4, 3)
    with pytest.raises(ValueError, match="attn_mask must be given with is_causal"):
        m(x, y, y, is_causal=True)
    for sizes in ({"kdim": 3}, {"vdim": 3}):
        with pytest.raises(ValueError, match="kdim and vdim must equal embed_dim"):
            nn.MultiheadAttention(4, 2, **sizes)


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", [nn.TransformerEncoderLayer, nn.TransformerDecoderLayer])
def test_layer_has_the_parameters_and_dropouts_of_pytorch(
    kind: Any, bias: bool, norm_first: bool
) -> None:
    """Dropout is inside attention, inside the feed-forward network, and after each sublayer."""
    layer = kind(4, 2, 3, 0.5, bias=bias, norm_first=norm_first)
    attentions = ["self_attn", "multihead_attn"][: 1 + layer.has_memory]
    names = [f"{name}.out_proj" for name in attentions]
    names += ["linear1", "linear2", *(f"norm{i + 1}" for i in range(len(attentions) + 1))]
    ends = ["weight", "bias"] if bias else ["weight"]
    expected = {f"{name}.{end}" for name in names for end in ends}
    expected |= {f"{name}.in_proj_{end}" for name in attentions for end in ends}
    assert layer.state_dict().keys() == expected
    assert [getattr(layer, name).dropout for name in attentions] == [0.5] * len(attentions)
    shapes: list[Any] = []
    layer.dropout.register_forward_hook(lambda module, args, y: shapes.append(y.shape))
    layer(*[np.ones((3, 2, 4), np.float32)] * (1 + layer.has_memory))
    assert shapes == [(3, 2, 4)] * len(attentions) + [(3, 2, 3), (3, 2, 4)]


@pytest.mark.parametrize("need_weights", [True, False])
def test_attention_drops_weights_in_training_only(need_weights: bool) -> None:
    """Attend to one key, whose weight is 1, so that each head is dropped or doubled."""
    m = perturb(nn.MultiheadAttention(4, 2, 0.5, bias=False, dtype=float), 0)
    m.out_proj.weight.data[...] = np.eye(4)
    x = normal(1, 1, 50, 4)
    kept = m.eval()(x, x, x, need_weights=need_weights)[0].data
    factors = m.train()(x, x, x, need_weights=need_weights)[0].data / kept
    np.testing.assert_allclose(factors, np.round(factors), atol=1e-9)
    assert {*np.round(factors[..., [0, 2]]).ravel()} == {0.0, 2.0}


def test_masks_can_be_lists() -> None:
    m, x = nn.MultiheadAttention(4, 2), np.ones((2, 1, 4), np.float32)
    for mask in ([[False, True], [False, False]], [[0.0, -1.0], [0.0, 0.0]]):
        for name in ("attn_mask", "key_padding_mask"):
            rows = mask if name == "attn_mask" else mask[:1]
            listed, array = (m(x, x, x, **{name: r})[1] for r in (rows, np.array(rows)))
            np.testing.assert_array_equal(listed.data, array.data)
    with pytest.raises(TypeError, match="attn_mask must be boolean .* or float, got int"):
        m(x, x, x, attn_mask=[[0, 1], [0, 0]])


def test_causal_flag_needs_a_mask_at_every_place_and_changes_nothing_else() -> None:
    x = normal(0, 3, 1, 4)
    mask = nn.Transformer.generate_square_subsequent_mask(3, dtype=float)
    np.testing.assert_array_equal(mask.data, np.where(np.tri(3, dtype=bool), 0, -np.inf))
    assert mask.dtype == float
    assert nn.Transformer.generate_square_subsequent_mask(2).dtype == np.float32
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 3, 0.0, dtype=float), 1)
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(4, 2, 3, 0.0, dtype=float), 1)
    calls: list[Any] = [
        (lambda **options: encoder(x, **options), "is_causal", "mask"),
        (lambda **options: encoder.layers[0](x, **options), "is_causal", "src_mask"),
        (lambda **options: decoder(x, x, **options), "tgt_is_causal", "tgt_mask"),
        (lambda **options: decoder(x, x, **options), "memory_is_causal", "memory_mask"),
    ]
    for call, flag, name in calls:
        with pytest.raises(ValueError, match="attn_mask must be given with is_causal"):
            call(**{flag: True})
        y, other = call(**{flag: True, name: mask}), call(**{name: mask})
        np.testing.assert_array_equal(y.data, other.data)
        assert not np.allclose(y.data, call().data)


def test_stacks_have_layers_of_their_own_by_xaviers_rule() -> None:
    weight = nn.MultiheadAttention(50, 2).in_proj_weight.data
    assert 0.95 < np.abs(weight).max() / np.sqrt(6 / 200) <= 1 and abs(weight.mean()) < 0.01
    model = nn.Transformer(8, 2, 2, 2, 16)
    parameters = list(model.parameters())
    assert len(parameters) == len(model.state_dict()) == 2 * 12 + 2 * 18 + 4
    for name, p in model.state_dict().items():
        if p.ndim > 1:
            bound = np.sqrt(6 / sum(p.shape))
            assert 0.8 * bound < np.abs(p).max() <= bound
        elif "in_proj" in name or "out_proj" in name:
            assert not p.any()
    with pytest.raises(
        ValueError, match="activation must be 'relu', 'gelu' or a function, got 'no'"
    ):
        nn.TransformerEncoderLayer(4, 2, activation="no")
    layer = nn.TransformerEncoderLayer(4, 2, activation=nn.functional.silu, layer_norm_eps=0.1)
    assert layer.activation is nn.functional.silu and layer.norm2.eps == 0.1


def test_stacks_take_arguments_by_the_names_of_pytorch() -> None:
    encoder, decoder = nn.TransformerEncoderLayer(8, 2, 16), nn.TransformerDecoderLayer(8, 2, 16)
    stack = nn.TransformerEncoder(
        encoder_layer=encoder, num_layers=2, enable_nested_tensor=False, mask_check=False
    )
    assert len(stack.layers) == 2
    assert len(nn.TransformerDecoder(decoder_layer=decoder, num_layers=1).layers) == 1
