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
@given(counts=st.tuples(sizes, sizes, sizes), heads=st.integers(1, 2), form=st.sampled_from([*FORMS]), flags=st.tuples(*[st.booleans()] * 3), seed=seeds, data=st.data())  # fmt: skip
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
