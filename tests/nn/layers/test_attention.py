"""Attention and Transformer: properties for random weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minigrad as mg
import nn
from minigrad import Tensor

shapes = st.fixed_dictionaries(
    {
        "n": st.integers(1, 3),
        "lq": st.integers(1, 4),
        "lk": st.integers(1, 5),
        "heads": st.sampled_from([1, 2, 4]),
        "seed": st.integers(0, 2**32 - 1),
    }
)


def made(
    d: dict[str, int], dtype: Any = float, **sizes: int
) -> tuple[nn.MultiHeadAttention, list[np.ndarray], Any]:
    rng = np.random.default_rng(d["seed"])
    attention = nn.MultiHeadAttention(8, d["heads"], **sizes, dtype=dtype, generator=rng)
    lengths = (d["lq"], d["lk"], d["lk"])
    widths = [sizes.get(f"{name}_size", 8) for name in ("query", "key", "value")]
    arrays = [
        rng.standard_normal((d["n"], length, width)).astype(dtype)
        for length, width in zip(lengths, widths)
    ]
    return attention, arrays, rng


def masks(rng: Any, d: dict[str, int]) -> tuple[np.ndarray, np.ndarray]:
    """Return masks of padding, (N, L_kv), and of queries and keys, (N, 1, L_q, L_kv)."""
    padding = rng.random((d["n"], d["lk"])) < 0.7
    return padding, padding[:, None, None] & (rng.random((d["lq"], d["lk"])) < 0.7)


def weighed(
    attention: nn.MultiHeadAttention, *arguments: Any, **options: Any
) -> tuple[Tensor, np.ndarray]:
    """Return the result and the weights (N, h, L_q, L_kv)."""
    with nn.record_attention(attention) as recorded:
        return attention(*arguments, **options), recorded[""][-1]


# -- multi-head attention ------------------------------------------------------------------------------


@given(d=shapes)
def test_attention_gradients_equal_finite_differences(d: dict[str, int]) -> None:
    attention, arrays, rng = made(d)
    _, mask = masks(rng, d)
    weights = list(attention.parameters())

    def f(q: Any, k: Any, v: Any, *parameters: Any) -> Tensor:
        for p, new in zip(weights, parameters):
            p._array, p._node = new.data, new._node
        return attention(q, k, v, mask)

    leaves = [Tensor(x, requires_grad=True) for x in [*arrays, *[p.data.copy() for p in weights]]]
    assert mg.gradcheck(f, leaves, elementwise=False)


@given(d=shapes)
def test_attention_equals_the_definition_by_einsum(d: dict[str, int]) -> None:
    attention, (q, k, v), rng = made(d)
    _, mask = masks(rng, d)
    split = lambda layer, x: (x @ layer.weight.data.T + layer.bias.data).reshape(
        *x.shape[:2], d["heads"], -1
    )
    score = np.einsum("nihd,njhd->nijh", split(attention.q_proj, q), split(attention.k_proj, k))
    score /= np.sqrt(8 // d["heads"])
    allowed = mask.transpose(0, 2, 3, 1)
    e = np.exp(score - score.max(2, keepdims=True)) * allowed
    weight = np.divide(
        e, e.sum(2, keepdims=True), out=np.zeros_like(e), where=e.sum(2, keepdims=True) > 0
    )
    value = np.einsum("nijh,njhd->nihd", weight, split(attention.v_proj, v)).reshape(
        d["n"], d["lq"], 8
    )
    expected = value @ attention.out_proj.weight.data.T + attention.out_proj.bias.data
    got, weights = weighed(attention, q, k, v, mask)
    np.testing.assert_allclose(got.data, expected, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(weights, weight.transpose(0, 3, 1, 2), rtol=1e-9, atol=1e-11)


@given(d=shapes)
def test_attention_of_masked_rows_is_the_bias_without_gradient(d: dict[str, int]) -> None:
    attention, arrays, _ = made(d)
    mask = np.ones((d["lq"], d["lk"]), bool)
    mask[0] = False
    leaves = [Tensor(x, requires_grad=True) for x in arrays]
    y = attention(*leaves, mask=mask)
    np.testing.assert_allclose(
        y.data[:, 0], np.broadcast_to(attention.out_proj.bias.data, y.data[:, 0].shape)
    )
    y[:, 0].sum().backward()
    assert all(np.isfinite(x.grad.data).all() and not x.grad.data.any() for x in leaves)


def test_attention_dropout_in_evaluation_has_no_effect() -> None:
    d = {"n": 2, "lq": 3, "lk": 6, "heads": 2, "seed": 0}
    attention, arrays, _ = made(d)
    attention.dropout, attention.generator = 0.5, None
    mg.manual_seed(0)
    a, b = attention(*arrays).data, attention(*arrays).data
    assert not np.array_equal(a, b)
    mg.manual_seed(0)
    np.testing.assert_array_equal(attention(*arrays).data, a)
    np.testing.assert_array_equal(attention.eval()(*arrays).data, attention(*arrays).data)


def test_self_and_cross_attention_equal_the_general_form() -> None:
    rng = np.random.default_rng(0)
    x, memory = rng.standard_normal((2, 3, 8)), rng.standard_normal((2, 5, 8))
    own = nn.MultiHeadSelfAttention(8, 2, dtype=float)
    np.testing.assert_array_equal(
        own(x, is_causal=True).data,
        nn.MultiHeadAttention.forward(own, x, x, x, mask=nn.causal_mask(3)).data,
    )
    cross = nn.MultiHeadCrossAttention(8, 2, dtype=float)
    np.testing.assert_array_equal(
        cross(x, memory).data, nn.MultiHeadAttention.forward(cross, x, memory, memory).data
    )


def test_attention_bad_arguments_raise() -> None:
    with pytest.raises(
        ValueError, match="d_model must be divisible by num_heads, got d_model=8 and num_heads=3"
    ):
        nn.MultiHeadAttention(8, 3)
    x = np.ones((2, 3, 8), np.float32)
    attention = nn.MultiHeadSelfAttention(8, 2)
    with pytest.raises(
        TypeError, match="mask must be booleans, True = may attend, got dtype int64"
    ):
        attention(x, np.ones((3, 3), int))
    with pytest.raises(
        ValueError,
        match=r"mask must have two axes .* got shape \(2, 3, 3\)\. Write mask\[:, None\] for",
    ):
        attention(x, np.ones((2, 3, 3), bool))
    with pytest.raises(
        ValueError,
        match=r"mask must broadcast to \(N, h, L_q, L_kv\), \(2, 2, 3, 3\), got \(4, 4\)",
    ):
        attention(x, np.ones((4, 4), bool))
    with pytest.raises(
        ValueError, match="is_causal: keys must be at least as many as queries \\(3\\), got 2"
    ):
        nn.MultiHeadAttention(8, 2)(x, x[:, :2], is_causal=True)
    with pytest.raises(ValueError, match=r"linear: x and weight must have shapes .* x \(2, 3, 7\)"):
        attention(np.ones((2, 3, 7), np.float32))


def test_masks_equal_their_definitions() -> None:
    np.testing.assert_array_equal(nn.causal_mask(3), [[1, 0, 0], [1, 1, 0], [1, 1, 1]])
    np.testing.assert_array_equal(nn.causal_mask(2, start=1), [[1, 1, 0], [1, 1, 1]])
    np.testing.assert_array_equal(nn.padding_mask_of([[5, 0], [0, 7]]), [[1, 0], [0, 1]])
    np.testing.assert_array_equal(nn.valid_lens_mask([1, 3], (2, 2, 3)), [[[1, 0, 0]], [[1, 1, 1]]])
    np.testing.assert_array_equal(nn.valid_lens_mask([[1, 2]], (1, 2, 3)), [[[1, 0, 0], [1, 1, 0]]])
    with pytest.raises(ValueError, match="valid_lens must be from 0 to 3, got 1 to 4"):
        nn.valid_lens_mask([1, 4], (2, 2, 3))
    with pytest.raises(
        ValueError,
        match=r"valid_lens must be integers of shape \(2,\) or \(2, 2\), got int64 \(3,\)",
    ):
        nn.valid_lens_mask([1, 1, 1], (2, 2, 3))


# -- attention with valid_lens ---------------------------------------------------------------------------


@given(d=shapes, kind=st.sampled_from(["dot", "additive"]))
def test_scored_attention_equals_its_definition(d: dict[str, int], kind: str) -> None:
    rng = np.random.default_rng(d["seed"])
    q, k, v = (
        rng.standard_normal((d["n"], length, width))
        for length, width in ((d["lq"], 4), (d["lk"], 4), (d["lk"], 3))
    )
    lens = rng.integers(0, d["lk"] + 1, d["n"])
    if kind == "dot":
        attention: Any = nn.DotProductAttention()
        score = np.einsum("nid,njd->nij", q, k) / 2
    else:
        attention = nn.AdditiveAttention(4, 4, 6, dtype=float, generator=rng)
        parts = [
            layer.weight.data
            for layer in (attention.query_proj, attention.key_proj, attention.score_proj)
        ]
        score = np.tanh((q @ parts[0].T)[:, :, None] + (k @ parts[1].T)[:, None]) @ parts[2][0]
    y = attention(q, k, v, lens).data
    for n in range(d["n"]):
        for i in range(d["lq"]):
            seen = score[n, i, : lens[n]]
            e = np.exp(seen)
            expected = (e / e.sum()) @ v[n, : lens[n]] if len(seen) else np.zeros(3)
            np.testing.assert_allclose(y[n, i], expected, rtol=1e-9, atol=1e-12)
    assert attention.weights.shape == (d["n"], d["lq"], d["lk"])
    assert mg.gradcheck(lambda q, k, v: attention(q, k, v, lens), [q, k, v], elementwise=False)


# -- norms and feed-forward ------------------------------------------------------------------------------


@given(seed=st.integers(0, 1000), shape=st.lists(st.integers(1, 3), min_size=1, max_size=3))
def test_norms_and_feed_forward_gradients_equal_finite_differences(
    seed: int, shape: list[int]
) -> None:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((*shape, 4)) + np.arange(4)
    for layer in (
        nn.LayerNorm(4, dtype=float),
        nn.RMSNorm(4, dtype=float),
        nn.FeedForward(4, 6, activation="silu", dtype=float, generator=rng),
        nn.FeedForward(4, 6, activation="gelu", gated=True, dtype=float, generator=rng),
    ):
        for p in layer.parameters():
            p.data += 0.1 * rng.standard_normal(p.shape)
        assert mg.gradcheck(layer, [x], elementwise=False)
        assert mg.gradgradcheck(layer, [x], elementwise=False, rtol=1e-5)


# -- the Transformer -----------------------------------------------------------------------------------


def config(**changes: Any) -> nn.TransformerConfig:
    base = {"source_vocab_size": 11, "target_vocab_size": 13, "d_model": 8, "num_heads": 2, "num_encoder_layers": 2, "num_decoder_layers": 2, "d_ff": 12, "dropout": 0.0, "max_len": 16, "dtype": "float64"}  # fmt: skip
    return nn.TransformerConfig(**{**base, **changes})


VARIANTS: list[dict[str, Any]] = [
    {}, {"norm_first": True}, {"norm": "rms", "norm_first": True, "gated": True, "activation": "silu"},
    {"positions": "learned"}, {"positions": "sinusoidal_halves", "tie": "target", "bias": False},
    {"positions": "none", "activation": "gelu", "final_norm": True, "output_bias": False},
    {"tie": "all", "source_vocab_size": 13}, {"embeddings": nn.EmbeddingConfig(scale=False), "num_encoder_layers": 1},
]  # fmt: skip
variants = pytest.mark.parametrize(
    "changes", VARIANTS, ids=lambda c: ",".join(f"{k}={v}" for k, v in c.items()) or "paper"
)


def ids(rng: Any, vocab: int, n: int, length: int) -> np.ndarray:
    return rng.integers(4, vocab, (n, length))


@variants
def test_transformer_ignores_later_target_tokens(changes: dict[str, Any]) -> None:
    rng = np.random.default_rng(0)
    model = nn.Transformer(config(**changes)).eval()
    source, target = ids(rng, 11, 2, 5), ids(rng, 13, 2, 6)
    y = model(source, target).data
    other = target.copy()
    other[:, 4:] = ids(rng, 13, 2, 2)
    np.testing.assert_allclose(model(source, other).data[:, :4], y[:, :4], rtol=1e-12)
    assert not np.allclose(model(source, other).data[:, 4:], y[:, 4:])


@variants
def test_transformer_ignores_source_padding(changes: dict[str, Any]) -> None:
    rng = np.random.default_rng(1)
    model = nn.Transformer(config(**changes)).eval()
    source, target = ids(rng, 11, 2, 5), ids(rng, 13, 2, 4)
    source[1, 3:] = 0
    y = model(source, target).data
    longer = np.concatenate([source, np.zeros((2, 4), int)], 1)
    np.testing.assert_allclose(model(longer, target).data, y, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(model(source[1:, :3], target[1:]).data, y[1:], rtol=1e-9, atol=1e-12)
    model.source_embedding.tokens.weight.data[0] = 100.0  # whatever stands where padding is
    if changes.get("tie") != "all":
        np.testing.assert_allclose(model(source, target).data, y, rtol=1e-9, atol=1e-12)


@variants
def test_transformer_step_with_cache_equals_full_pass(changes: dict[str, Any]) -> None:
    rng = np.random.default_rng(2)
    model = nn.Transformer(config(**changes)).eval()
    source, target = ids(rng, 11, 3, 5), ids(rng, 13, 3, 7)
    source[0, 2:] = 0
    full = model(source, target).data
    with mg.no_grad():
        state = model.start(source)
        for i in range(7):
            np.testing.assert_allclose(
                model.step(target[:, i : i + 1], state), full[:, i], rtol=1e-9, atol=1e-11
            )
            assert state.length == i + 1
        state = model.start(source)  # several at once, and rows picked and repeated
        model.step(target[:, :3], state)
        state.select(np.array([2, 0, 0]))
        np.testing.assert_allclose(
            model.step(target[[2, 0, 0], 3:4], state), full[[2, 0, 0], 3], rtol=1e-9, atol=1e-11
        )


@variants
def test_transformer_loss_equals_cross_entropy_of_logits(changes: dict[str, Any]) -> None:
    rng = np.random.default_rng(3)
    model = nn.Transformer(config(**changes))
    source, target = (
        ids(rng, 11, 2, 5),
        np.concatenate([np.ones((2, 1), int), ids(rng, 13, 2, 4), np.full((2, 1), 2)], 1),
    )
    target[1, 4:] = [2, 0]
    expected = mg.cross_entropy(
        model(source, target[:, :-1]), target[:, 1:], ignore_index=0, label_smoothing=0.1
    )
    loss = model.loss(source, target, 0.1)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-12)
    parameters = list(model.parameters())
    for a, b in zip(mg.gradients(loss, parameters), mg.gradients(expected, parameters)):
        np.testing.assert_allclose(a.data, b.data, rtol=1e-9, atol=1e-12)


def test_transformer_tie_shares_memory_and_gradients() -> None:
    model = nn.Transformer(config(tie="all", source_vocab_size=13))
    assert (
        model.output.weight
        is model.target_embedding.tokens.weight
        is model.source_embedding.tokens.weight
    )
    assert "output.weight" not in model.state_dict()
    untied = nn.Transformer(config(source_vocab_size=13))
    assert untied.num_parameters() - model.num_parameters() == 2 * 13 * 8
    again = nn.Transformer(config(tie="all", source_vocab_size=13))
    again.load_state_dict(model.state_dict())
    rng = np.random.default_rng(0)
    s, t = ids(rng, 13, 2, 3), ids(rng, 13, 2, 3)
    np.testing.assert_array_equal(model.eval()(s, t).data, again.eval()(s, t).data)


@pytest.mark.parametrize("field", ["attention", "activation_dropout"])
def test_config_dropouts_override_dropout(field: str) -> None:
    found = {}
    for value in (None, 0.0, 0.25):
        setting = nn.AttentionConfig(dropout=value) if field == "attention" else value
        model = nn.Transformer(config(dropout=0.5, **{field: setting}))
        places = [
            m for m in model.modules() if type(m) in (nn.FeedForward, nn.MultiHeadSelfAttention)
        ]
        kind = nn.FeedForward if field == "activation_dropout" else nn.MultiHeadSelfAttention
        found[value] = {(type(m) is kind, m.dropout) for m in places}
    assert found == {v: {(True, 0.5 if v is None else v), (False, 0.5)} for v in found}


def test_transformer_bad_ids_raise() -> None:
    model = nn.Transformer(config())
    ok = np.array([[4, 5]])
    for source, target, message in [
        (np.array([[4, 11]]), ok, "indices must be from 0 to 10, got 4 to 11"),
        (ok, np.array([[-1, 4]]), "indices must be from 0 to 12, got -1 to 4"),
        (
            np.zeros((1, 0), int),
            ok,
            r"source must have at least one token in each sequence, got shape \(1, 0\)",
        ),
        (np.array([4, 5]), ok, r"source must be integer token ids \(N, L\), got int64 \(2,\)"),
        (ok, np.full((1, 17), 4), "x must have at most 16 positions, got 17"),
    ]:
        with pytest.raises((ValueError, IndexError), match=message):
            model(source, target)


def test_record_attention_records_each_call() -> None:
    rng = np.random.default_rng(0)
    model = nn.Transformer(config()).eval()
    source, target = ids(rng, 11, 1, 5), ids(rng, 13, 1, 4)
    y = model(source, target).data
    with nn.record_attention(model) as recorded:
        np.testing.assert_allclose(model(source, target).data, y, rtol=1e-10)
    assert recorded["decoder.layers.1.cross_attention"][0].shape == (1, 2, 4, 5)
    assert not np.triu(recorded["decoder.layers.0.self_attention"][0][0, 0], 1).any()
    model(source, target)
    assert len(recorded["encoder.layers.0.self_attention"]) == 1
    maps = nn.attention_maps(model, source[0], target[0])
    assert [len(maps[kind]) for kind in ("encoder", "decoder", "cross")] == [2, 2, 2]
    np.testing.assert_allclose(
        maps["encoder"][1], recorded["encoder.layers.1.self_attention"][0][0]
    )
