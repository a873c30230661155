"""Attention, its masks and the Transformer: properties for random weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minigrad as mg
import nn

RNG = np.random.default_rng(0)


def softmax(scores: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    """Return the softmax of the last axis over allowed scores; rows without one are zero."""
    e = np.exp(scores) * allowed
    return e / np.maximum(e.sum(-1, keepdims=True), 1e-300)


# -- layers of attention -------------------------------------------------------------------------------


@pytest.mark.parametrize("heads", [1, 2])
def test_attention_equals_its_definition(heads: int) -> None:
    attention = nn.MultiHeadAttention(8, heads, dtype=float)
    query, key, value = (RNG.standard_normal((2, length, 8)) for length in (3, 5, 5))
    mask = RNG.random((2, 1, 3, 5)) < 0.7
    mask[0, 0, 1] = False
    projections = (attention.q_proj, query), (attention.k_proj, key), (attention.v_proj, value)
    q, k, v = (p(x).data.reshape(2, -1, heads, 8 // heads) for p, x in projections)
    expected = softmax(np.einsum("nihd,njhd->nhij", q, k) / np.sqrt(8 // heads), mask)
    joined = np.einsum("nhij,njhd->nihd", expected, v).reshape(query.shape)
    y, weights = nn.with_weights(attention, query, key, value, mask)
    np.testing.assert_allclose(weights, expected, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(y.data, attention.out_proj(joined).data, atol=1e-11)


def test_attention_dropout_is_drawn_in_training_only() -> None:
    attention, x = nn.MultiHeadSelfAttention(8, 2, dropout=0.5), RNG.standard_normal((2, 6, 8))
    assert not np.array_equal(attention(x).data, attention(x).data)
    evaluated = attention.eval()(x).data
    attention.dropout = 0.0
    np.testing.assert_array_equal(attention.train()(x).data, evaluated)


def test_additive_attention_equals_its_definition() -> None:
    q, k, v = (RNG.standard_normal((2, *shape)) for shape in ((3, 4), (5, 4), (5, 3)))
    attention = nn.AdditiveAttention(4, 4, 6, dtype=float)
    of_query, of_key, w = (p.data.T for p in attention.parameters())
    scores = (np.tanh((q @ of_query)[:, :, None] + (k @ of_key)[:, None]) @ w)[..., 0]
    expected = softmax(scores, np.arange(5) < np.array([0, 3])[:, None, None])
    np.testing.assert_allclose(attention(q, k, v, [0, 3]).data, expected @ v, atol=1e-12)
    np.testing.assert_allclose(attention.weights.data, expected, atol=1e-12)


def attend(keys: int, mask: Any = None, **options: Any) -> Any:
    """Run attention of two heads from three queries to `keys` positions."""
    query, key = np.ones((2, 3, 8), np.float32), np.ones((2, keys, 8), np.float32)
    return nn.MultiHeadAttention(8, 2)(query, key, mask=mask, **options)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: nn.MultiHeadAttention(8, 3), ValueError, "divisible by num_heads, got d_model=8 and num_heads=3"),
        (lambda: attend(3, np.ones((3, 3), int)), TypeError, "mask must be booleans, True = may attend, got"),
        (lambda: attend(3, np.ones((2, 3, 3), bool)), ValueError, r"mask must have two axes .*Write mask\[:, None\]"),
        (lambda: attend(2, is_causal=True), ValueError, r"keys must be at least as many as queries \(3\), got 2"),
        (lambda: nn.MultiHeadAttention(8, 2, bias={"q": True}), ValueError, "a mapping with the keys q, k, v and out, got {'q': True}"),
        (lambda: nn.MultiHeadAttention(8, 2, bias=None), ValueError, "bias must be True, False, or a mapping .* got None"),
        (
            lambda: nn.functional.scaled_dot_product_attention(*(np.ones((1, h, 3, 4)) for h in (4, 2, 2))), ValueError,
            r"query, key and value .* broadcast, got \(1, 4, 3, 4\), \(1, 2, 3, 4\), \(1, 2, 3, 4\); minigrad\.",
        ),
        (lambda: nn.valid_lens_mask([1, 4], (2, 2, 3)), ValueError, "valid_lens must be from 0 to 3, got 1 to 4"),
    ],
)  # fmt: skip
def test_attention_bad_argument_is_named(call: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        (nn.causal_mask(2, start=1), [[1, 1, 0], [1, 1, 1]]),
        (nn.causal_mask(2, 2, window=2), [[0, 1, 1, 0], [0, 0, 1, 1]]),
        (nn.padding_mask_of([[5, 0], [0, 7]]), [[1, 0], [0, 1]]),
        (nn.valid_lens_mask([1, 3], (2, 2, 3)), [[[1, 0, 0]], [[1, 1, 1]]]),
        (nn.valid_lens_mask([[1, 2]], (1, 2, 3)), [[[1, 0, 0], [1, 1, 0]]]),
    ],
)
def test_mask_equals_its_definition(mask: np.ndarray, expected: Any) -> None:
    np.testing.assert_array_equal(mask, expected)


# -- the Transformer -----------------------------------------------------------------------------------


def transformer(**changes: Any) -> nn.Transformer:
    """Return a Transformer of two small layers in float64."""
    options = {"source_vocab_size": 11, "dropout": 0.0, "max_len": 16, "dtype": "float64"}
    sizes = {"target_vocab_size": 13, "d_model": 8, "num_heads": 2, "d_ff": 12}
    layers = {"num_encoder_layers": 2, "num_decoder_layers": 2}
    return nn.Transformer(nn.TransformerConfig(**{**options, **sizes, **layers, **changes}))


VARIANTS: list[dict[str, Any]] = [
    {}, {"norm": "rms", "norm_first": True, "gated": True, "activation": "silu"}, {"positions": "learned"},
    {"positions": "sinusoidal_halves", "tie": "target", "bias": False},
    {"positions": "none", "activation": "gelu", "final_norm": True, "output_bias": False},
    {"tie": "all", "source_vocab_size": 13, "embeddings": nn.EmbeddingConfig(scale=False)},
]  # fmt: skip
variants = pytest.mark.parametrize("changes", VARIANTS, ids=str)
SOURCE, TARGET = RNG.integers(4, 11, (3, 5)), RNG.integers(4, 13, (3, 6))
SOURCE[1, 3:] = 0


@variants
def test_transformer_ignores_source_padding(changes: dict[str, Any]) -> None:
    model = transformer(**changes).eval()
    alone = model(SOURCE[1:2, :3], TARGET[1:2]).data
    np.testing.assert_allclose(model(SOURCE, TARGET).data[1:2], alone, atol=1e-12)


@variants
def test_transformer_step_with_cache_equals_full_pass(changes: dict[str, Any]) -> None:
    """Each step reads the tokens before it only, so the full pass is causal too."""
    model = transformer(**changes).eval()
    full, state = model(SOURCE, TARGET).data, model.start(SOURCE)
    for i in range(6):
        step = model.step(TARGET[:, i : i + 1], state)
        np.testing.assert_allclose(step, full[:, i], rtol=1e-9, atol=1e-11)


@variants
def test_transformer_loss_equals_cross_entropy_of_logits(changes: dict[str, Any]) -> None:
    model, target = transformer(**changes), TARGET.copy()
    target[1, 4:] = 2, 0
    logits = model(SOURCE, target[:, :-1])
    expected = mg.cross_entropy(logits, target[:, 1:], ignore_index=0, label_smoothing=0.1)
    loss, parameters = model.loss(SOURCE, target, 0.1), list(model.parameters())
    assert loss.item() == pytest.approx(expected.item(), rel=1e-12)
    for a, b in zip(mg.gradients(loss, parameters), mg.gradients(expected, parameters)):
        np.testing.assert_allclose(a.data, b.data, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("attention", "inner"), [(None, None), (0.0, None), (None, 0.25)])
def test_transformer_dropouts_override_dropout(attention: Any, inner: float | None) -> None:
    options = {"attention": nn.AttentionConfig(dropout=attention), "activation_dropout": inner}
    layer = transformer(dropout=0.5, **options).decoder.layers[1]
    found = [layer.self_attention.dropout, layer.feed_forward.dropout, layer.dropout.p]
    assert found == [0.5 if p is None else p for p in (attention, inner, 0.5)]


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ([[4, 11]], [[4]], "indices must be from 0 to 10, got 4 to 11"),
        (np.zeros((1, 0), int), [[4]], "source must have at least one token in each sequence, got"),
        ([4, 5], [[4]], r"source must be integer token ids \(N, L\), got int64 \(2,\)"),
        ([[4]], [[4] * 17], "x must have at most 16 positions, got 17"),
    ],
)
def test_transformer_bad_ids_raise(source: Any, target: Any, message: str) -> None:
    with pytest.raises((ValueError, IndexError), match=message):
        transformer()(source, target)


def test_record_attention_records_calls_inside_its_block() -> None:
    model = transformer().eval()
    with nn.record_attention(model) as recorded:
        model(SOURCE, TARGET)
    model(SOURCE, TARGET)
    assert [len(calls) for calls in recorded.values()] == [1] * 6
