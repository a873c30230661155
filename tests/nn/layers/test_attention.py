"""Attention, its masks and the Transformer: properties for random weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minigrad as mg
import nn

seeds = st.integers(0, 2**32 - 1)


def softmax(scores: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    """Return the softmax of the last axis over allowed scores; rows without one are zero."""
    e = np.exp(scores) * allowed
    return e / np.maximum(e.sum(-1, keepdims=True), 1e-300)


# -- multi-head attention ------------------------------------------------------------------------------


@given(seed=seeds, heads=st.sampled_from([1, 2, 4]), lengths=st.tuples(*[st.integers(1, 5)] * 2))
def test_attention_equals_its_definition(seed: int, heads: int, lengths: tuple[int, int]) -> None:
    rng = np.random.default_rng(seed)
    attention = nn.MultiHeadAttention(8, heads, dtype=float, generator=rng)
    query, key = (rng.standard_normal((2, length, 8)) for length in lengths)
    value, mask = rng.standard_normal(key.shape), rng.random((2, 1, *lengths)) < 0.7
    projections = (attention.q_proj, attention.k_proj, attention.v_proj)
    q, k, v = (
        (x @ p.weight.data.T + p.bias.data).reshape(2, -1, heads, 8 // heads)
        for p, x in zip(projections, (query, key, value))
    )
    scores = np.einsum("nihd,njhd->nhij", q, k) / np.sqrt(8 // heads)
    expected = softmax(scores, mask)
    heads_out = np.einsum("nhij,njhd->nihd", expected, v).reshape(query.shape)
    out = attention.out_proj
    y, weights = nn.with_weights(attention, query, key, value, mask)
    np.testing.assert_allclose(weights, expected, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(y.data, heads_out @ out.weight.data.T + out.bias.data, atol=1e-11)


def test_attention_dropout_is_seeded_and_stops_in_evaluation() -> None:
    attention = nn.MultiHeadSelfAttention(8, 2, dropout=0.5)
    x = np.random.default_rng(0).standard_normal((2, 6, 8))
    mg.manual_seed(0)
    first, second = attention(x).data, attention(x).data
    assert not np.array_equal(first, second)
    mg.manual_seed(0)
    np.testing.assert_array_equal(attention(x).data, first)
    attention.eval()
    np.testing.assert_array_equal(attention(x).data, attention(x).data)


def test_self_and_cross_attention_equal_the_general_form() -> None:
    rng = np.random.default_rng(0)
    x, memory = rng.standard_normal((2, 3, 8)), rng.standard_normal((2, 5, 8))
    attend = nn.MultiHeadAttention.forward
    own, cross = (
        kind(8, 2, dtype=float) for kind in (nn.MultiHeadSelfAttention, nn.MultiHeadCrossAttention)
    )
    expected = attend(own, x, x, x, mask=nn.causal_mask(3)).data
    np.testing.assert_array_equal(own(x, is_causal=True).data, expected)
    np.testing.assert_array_equal(cross(x, memory).data, attend(cross, x, memory, memory).data)


def attend(mask: Any = None, size: int = 8, keys: int = 3, **options: Any) -> Any:
    """Call an attention of size 8 and two heads with two sequences of three queries."""
    query, key = np.ones((2, 3, size), np.float32), np.ones((2, keys, size), np.float32)
    return nn.MultiHeadAttention(8, 2)(query, key, mask=mask, **options)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: nn.MultiHeadAttention(8, 3), ValueError, "divisible by num_heads, got d_model=8 and num_heads=3"),
        (lambda: attend(np.ones((3, 3), int)), TypeError, "mask must be booleans, True = may attend, got dtype int64"),
        (lambda: attend(np.ones((2, 3, 3), bool)), ValueError, r"mask must have two axes .* got shape \(2, 3, 3\)\. Write mask\[:, None\] for"),
        (lambda: attend(np.ones((4, 4), bool)), ValueError, r"mask must broadcast to \(N, h, L_q, L_kv\), \(2, 2, 3, 3\), got \(4, 4\)"),
        (lambda: attend(keys=2, is_causal=True), ValueError, r"is_causal: keys must be at least as many as queries \(3\), got 2"),
        (lambda: attend(size=7), ValueError, r"linear: x and weight must have shapes .* x \(2, 3, 7\)"),
        (lambda: nn.valid_lens_mask([1, 4], (2, 2, 3)), ValueError, "valid_lens must be from 0 to 3, got 1 to 4"),
        (lambda: nn.valid_lens_mask([1] * 3, (2, 2, 3)), ValueError, r"valid_lens must be integers of shape \(2,\) or \(2, 2\), got int64 \(3,\)"),
    ],
)  # fmt: skip
def test_attention_bad_argument_is_named(call: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        call()


def test_masks_equal_their_definitions() -> None:
    np.testing.assert_array_equal(nn.causal_mask(2, start=1), [[1, 1, 0], [1, 1, 1]])
    np.testing.assert_array_equal(nn.padding_mask_of([[5, 0], [0, 7]]), [[1, 0], [0, 1]])
    np.testing.assert_array_equal(nn.valid_lens_mask([1, 3], (2, 2, 3)), [[[1, 0, 0]], [[1, 1, 1]]])
    np.testing.assert_array_equal(nn.valid_lens_mask([[1, 2]], (1, 2, 3)), [[[1, 0, 0], [1, 1, 0]]])


@given(window=st.integers(1, 6), start=st.integers(0, 4))
def test_causal_mask_with_window_is_a_band(window: int, start: int) -> None:
    i, j = np.indices((5, 5))[:, start:]
    expected = (j <= i) & (i - j < window)
    np.testing.assert_array_equal(nn.causal_mask(5 - start, start, window), expected)


# -- attention of one head -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["dot", "additive"])
@given(seed=seeds)
def test_scored_attention_equals_its_definition(kind: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    q, k, v = (rng.standard_normal((2, *shape)) for shape in ((3, 4), (5, 4), (5, 3)))
    lens = rng.integers(0, 6, 2)
    attention: Any = nn.DotProductAttention()
    scores = q @ k.swapaxes(1, 2) / 2
    if kind == "additive":
        attention = nn.AdditiveAttention(4, 4, 6, dtype=float, generator=rng)
        of_query, of_key, w = (p.data for p in attention.parameters())
        scores = np.tanh((q @ of_query.T)[:, :, None] + (k @ of_key.T)[:, None]) @ w[0]
    expected = softmax(scores, np.arange(5) < lens[:, None, None])
    np.testing.assert_allclose(attention(q, k, v, lens).data, expected @ v, atol=1e-12)
    np.testing.assert_allclose(attention.weights.data, expected, atol=1e-12)


# -- the Transformer -----------------------------------------------------------------------------------


def transformer(**changes: Any) -> nn.Transformer:
    sizes = {
        "source_vocab_size": 11,
        "target_vocab_size": 13,
        "d_model": 8,
        "num_heads": 2,
        "d_ff": 12,
    }
    layers = {"num_encoder_layers": 2, "num_decoder_layers": 2}
    options = {"dropout": 0.0, "max_len": 16, "dtype": "float64"}
    return nn.Transformer(nn.TransformerConfig(**{**sizes, **layers, **options, **changes}))  # fmt: skip


VARIANTS: list[dict[str, Any]] = [
    {}, {"norm_first": True}, {"norm": "rms", "norm_first": True, "gated": True, "activation": "silu"},
    {"positions": "learned"}, {"positions": "sinusoidal_halves", "tie": "target", "bias": False},
    {"positions": "none", "activation": "gelu", "final_norm": True, "output_bias": False},
    {"tie": "all", "source_vocab_size": 13}, {"embeddings": nn.EmbeddingConfig(scale=False), "num_encoder_layers": 1},
]  # fmt: skip
variants = pytest.mark.parametrize(
    "changes", VARIANTS, ids=lambda c: ",".join(f"{k}={v}" for k, v in c.items()) or "paper"
)


def ids(seed: int, vocab: int, length: int, n: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).integers(4, vocab, (n, length))


@variants
def test_transformer_ignores_source_padding(changes: dict[str, Any]) -> None:
    model = transformer(**changes).eval()
    source, target = ids(0, 11, 5), ids(1, 13, 4)
    source[1, 3:] = 0
    y = model(source, target).data
    longer = np.pad(source, ((0, 0), (0, 4)))
    np.testing.assert_allclose(model(longer, target).data, y, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(model(source[1:2, :3], target[1:2]).data[0], y[1], atol=1e-12)


@variants
def test_transformer_step_with_cache_equals_full_pass(changes: dict[str, Any]) -> None:
    """Each step reads the tokens before it only, so the full pass is causal too."""
    model = transformer(**changes).eval()
    source, target = ids(0, 11, 5), ids(1, 13, 7)
    source[0, 2:] = 0
    full = model(source, target).data
    state = model.start(source)
    for i in range(7):
        step = model.step(target[:, i : i + 1], state)
        np.testing.assert_allclose(step, full[:, i], rtol=1e-9, atol=1e-11)
    assert state.length == 7
    state, rows = model.start(source), np.array([2, 0, 0])
    model.step(target[:, :3], state)  # several tokens at once
    state.select(rows)
    step = model.step(target[rows, 3:4], state)
    np.testing.assert_allclose(step, full[rows, 3], rtol=1e-9, atol=1e-11)


@variants
def test_transformer_loss_equals_cross_entropy_of_logits(changes: dict[str, Any]) -> None:
    model = transformer(**changes)
    source, target = ids(0, 11, 5), ids(1, 13, 6)
    target[:, 0], target[:, 5], target[1, 4:] = 1, 2, [2, 0]
    logits = model(source, target[:, :-1])
    expected = mg.cross_entropy(logits, target[:, 1:], ignore_index=0, label_smoothing=0.1)
    loss = model.loss(source, target, 0.1)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-12)
    parameters = list(model.parameters())
    for a, b in zip(mg.gradients(loss, parameters), mg.gradients(expected, parameters)):
        np.testing.assert_allclose(a.data, b.data, rtol=1e-9, atol=1e-12)


def test_transformer_tie_all_shares_one_table() -> None:
    model, untied = transformer(tie="all", source_vocab_size=13), transformer(source_vocab_size=13)
    table = model.source_embedding.tokens.weight
    assert model.target_embedding.tokens.weight is table is model.output.weight
    assert "output.weight" not in model.state_dict()
    assert untied.num_parameters() - model.num_parameters() == 2 * 13 * 8


@pytest.mark.parametrize("value", [None, 0.0, 0.25])
def test_transformer_dropouts_override_dropout(value: float | None) -> None:
    expected = 0.5 if value is None else value
    attention = transformer(
        dropout=0.5, attention=nn.AttentionConfig(dropout=value)
    ).encoder.layers[0]
    assert (attention.self_attention.dropout, attention.feed_forward.dropout) == (expected, 0.5)
    feed_forward = transformer(dropout=0.5, activation_dropout=value).decoder.layers[1]
    assert (feed_forward.cross_attention.dropout, feed_forward.feed_forward.dropout) == (0.5, expected)  # fmt: skip


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ([[4, 11]], [[4]], "indices must be from 0 to 10, got 4 to 11"),
        ([[4]], [[-1, 4]], "indices must be from 0 to 12, got -1 to 4"),
        (np.zeros((1, 0), int), [[4]], r"source must have at least one token in each sequence, got shape \(1, 0\)"),
        ([4, 5], [[4]], r"source must be integer token ids \(N, L\), got int64 \(2,\)"),
        ([[4]], [[4] * 17], "x must have at most 16 positions, got 17"),
    ],
)  # fmt: skip
def test_transformer_bad_ids_raise(source: Any, target: Any, message: str) -> None:
    with pytest.raises((ValueError, IndexError), match=message):
        transformer()(source, target)


def test_record_attention_records_calls_inside_its_block() -> None:
    model, source, target = transformer().eval(), ids(0, 11, 5, 1), ids(1, 13, 4, 1)
    with nn.record_attention(model) as recorded:
        y = model(source, target).data
    np.testing.assert_array_equal(model(source, target).data, y)
    assert [len(calls) for calls in recorded.values()] == [1] * 6
    assert recorded["decoder.layers.1.cross_attention"][0].shape == (1, 2, 4, 5)
    assert not np.triu(recorded["decoder.layers.0.self_attention"][0], 1).any()
    maps = nn.attention_maps(model, source[0], target[0])
    assert [len(maps[kind]) for kind in ("encoder", "decoder", "cross")] == [2, 2, 2]
    expected = recorded["encoder.layers.1.self_attention"][0][0]
    np.testing.assert_allclose(maps["encoder"][1], expected)
