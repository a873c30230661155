"""Rotary positions, grouped keys, windows and biases of attention, by definition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minigrad as mg
import nn
from minigrad import Tensor
from nn.layers import position_bias

seeds = st.integers(0, 2**32 - 1)

SCALINGS: list[dict[str, Any] | None] = [
    None,
    {"rope_type": "linear", "factor": 2.5},
    {"type": "linear", "factor": 2.0},
    {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
     "original_max_position_embeddings": 64},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "beta_fast": 16, "beta_slow": 2,
     "mscale": 0.7, "mscale_all_dim": 0.9, "truncate": False},
]  # fmt: skip


@given(seed=seeds, start=st.integers(0, 50))
def test_rotary_is_a_complex_product_and_scores_depend_on_distance(seed: int, start: int) -> None:
    rng = np.random.default_rng(seed)
    rotary = nn.RotaryPositions(6, base=100.0)
    x = rng.standard_normal((2, 3, 4, 6))
    y = rotary(x, start).data
    angles = (start + np.arange(4))[:, None] * 100.0 ** (-np.arange(3) / 3)
    turned = (x[..., :3] + 1j * x[..., 3:]) * np.exp(1j * angles)
    np.testing.assert_allclose(
        y, np.concatenate([turned.real, turned.imag], -1), rtol=1e-9, atol=1e-12
    )
    np.testing.assert_allclose(
        rotary(x, start + np.arange(4)).data, rotary(x, start).data, rtol=1e-12
    )
    score = lambda shift: (
        rotary(x, start + shift).data[0, 0, 0] @ rotary(x, start + 7 + shift).data[0, 1, 0]
    )
    assert score(0) == pytest.approx(score(5), rel=1e-9, abs=1e-9)
    assert mg.gradcheck(lambda x: rotary(x, start), [x], elementwise=False)
    assert mg.gradgradcheck(lambda x: rotary(x, start), [x], elementwise=False)


@pytest.mark.slow
@pytest.mark.parametrize("scaling", SCALINGS, ids=str)
def test_rotary_scalings_equal_transformers(scaling: dict[str, Any] | None) -> None:
    transformers = pytest.importorskip("transformers", reason="the oracle of published scalings")
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    ours = nn.RotaryPositions(16, base=5000.0, scaling=scaling)
    given_ = {**(scaling or {})}
    kind = given_.pop("type", given_.pop("rope_type", "default"))
    config = transformers.LlamaConfig(
        hidden_size=64,
        num_attention_heads=4,
        max_position_embeddings=256,
        rope_parameters={"rope_theta": 5000.0, "rope_type": kind, **given_},
    )
    if kind == "default":
        np.testing.assert_allclose(ours.inv_freq, 5000.0 ** (-np.arange(8) / 8))
        return
    inv_freq, factor = ROPE_INIT_FUNCTIONS[kind](config, "cpu")
    np.testing.assert_allclose(ours.inv_freq, inv_freq.numpy(), rtol=1e-6)
    assert ours.factor == pytest.approx(factor)


def test_rotary_bad_scalings_raise() -> None:
    for scaling, message in [
        (
            {"rope_type": "dynamic", "factor": 2.0},
            "rope_type must be 'default', 'linear', 'llama3' or 'yarn', got 'dynamic'",
        ),
        ({"rope_type": "llama3", "factor": 2.0}, "rope_type 'llama3' needs 'low_freq_factor'"),
    ]:
        with pytest.raises(ValueError, match=message):
            nn.RotaryPositions(8, scaling=scaling)
        with pytest.raises(ValueError, match=message):
            nn.LanguageModelConfig(
                9, 8, 1, positions=nn.PositionConfig(kind="rotary", rotary_scaling=scaling)
            )
    with pytest.raises(ValueError, match="head_dim must be even and from 2 to 3, got 3"):
        nn.RotaryPositions(3)
    for count in (0, 3, 10):
        with pytest.raises(
            ValueError, match=f"rotary_dim must be even and from 2 to 8, got {count}"
        ):
            nn.RotaryPositions(8, rotary_dim=count)
    with pytest.raises(ValueError, match="positions.rotary_dim must be at least 1, got 0"):
        nn.PositionConfig(kind="rotary", rotary_dim=0)


def test_rotary_dim_rotates_a_part_of_each_head() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 3, 4, 8))
    y = nn.RotaryPositions(8, rotary_dim=6)(x, 5).data
    turned = nn.RotaryPositions(6)(x[..., :6], 5).data
    np.testing.assert_array_equal(y, np.concatenate([turned, x[..., 6:]], -1))
    assert mg.gradcheck(lambda x: nn.RotaryPositions(8, rotary_dim=6)(x, 5), [x], elementwise=False)


def test_parallel_layer_equals_its_formula() -> None:
    """Attention and feed-forward layer read the same x."""
    layer = nn.TransformerEncoderLayer(
        8, 2, 12, norm_first=True, parallel=True, dtype="float64"
    ).eval()
    x = np.random.default_rng(0).standard_normal((2, 3, 8))
    expected = (
        x + layer.self_attention(layer.norm1(x)).data + layer.feed_forward(layer.norm2(x)).data
    )
    np.testing.assert_allclose(layer(x).data, expected, rtol=1e-12)
    for kind, first in ((nn.TransformerEncoderLayer, False), (nn.TransformerDecoderLayer, True)):
        with pytest.raises(
            ValueError,
            match=f"{kind.__name__}: parallel must be False but in encoder layers with norm_first=True",
        ):
            kind(8, 2, 12, norm_first=first, parallel=True)


# -- grouped keys and values ---------------------------------------------------------------------------------


def repeated(grouped: nn.MultiHeadAttention, options: dict[str, Any]) -> nn.MultiHeadAttention:
    """Return an attention in which each head has its own copy of shared keys and values."""
    whole = nn.MultiHeadSelfAttention(8, 4, head_dim=6, dtype=float, **options)
    state = grouped.state_dict()
    for name in ("k_proj", "v_proj"):
        for kind in ("weight", "bias"):
            parts = state[f"{name}.{kind}"].reshape(grouped.num_kv_heads, 6, -1)
            state[f"{name}.{kind}"] = np.repeat(parts, 4 // grouped.num_kv_heads, 0).reshape(
                whole.state_dict()[f"{name}.{kind}"].shape
            )
    whole.load_state_dict(state)
    return whole


OPTIONS: list[dict[str, Any]] = [
    {}, {"rotary": nn.RotaryPositions(6)}, {"qk_norm": 1e-6}, {"window": 2}, {"scale": 0.7},
    {"position_bias": nn.ALiBi(4, float)},
]  # fmt: skip


@pytest.mark.parametrize("options", OPTIONS, ids=lambda o: "".join(o) or "plain")
@given(
    seed=seeds,
    kv=st.sampled_from([1, 2, 4]),
    kind=st.sampled_from(["none", "causal", "padding", "heads"]),
)
def test_grouped_heads_equal_repeated_keys(
    options: dict[str, Any], seed: int, kv: int, kind: str
) -> None:
    rng = np.random.default_rng(seed)
    grouped = nn.MultiHeadSelfAttention(
        8, 4, num_kv_heads=kv, head_dim=6, dtype=float, generator=rng, **options
    )
    whole = repeated(grouped, options)
    x = Tensor(rng.standard_normal((2, 5, 8)), requires_grad=True)
    mask = {"padding": rng.random((2, 1, 1, 5)) < 0.7, "heads": rng.random((2, 4, 5, 5)) < 0.7}.get(
        kind
    )
    causal = kind != "none"
    y, z = grouped(x, mask, is_causal=causal), whole(x, mask, is_causal=causal)
    np.testing.assert_allclose(y.data, z.data, rtol=1e-9, atol=1e-12)
    g = rng.standard_normal(y.shape)
    leaves = [x, grouped.q_proj.weight], [x, whole.q_proj.weight]
    for a, b in zip(mg.gradients(y, leaves[0], g), mg.gradients(z, leaves[1], g)):
        np.testing.assert_allclose(a.data, b.data, rtol=1e-8, atol=1e-11)
    got, expected = (nn.with_weights(m, x, mask, is_causal=causal)[1] for m in (grouped, whole))
    np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("options", OPTIONS, ids=lambda o: "".join(o) or "plain")
@given(
    seed=seeds,
    kv=st.sampled_from([1, 2]),
    steps=st.lists(st.integers(1, 3), min_size=1, max_size=4),
)
def test_attention_with_cache_equals_full_pass(
    options: dict[str, Any], seed: int, kv: int, steps: list[int]
) -> None:
    rng = np.random.default_rng(seed)
    attention = nn.MultiHeadSelfAttention(
        8, 4, num_kv_heads=kv, head_dim=6, dtype=float, generator=rng, **options
    )
    x = rng.standard_normal((2, sum(steps), 8))
    full = attention(x, is_causal=True).data
    cache, start = nn.AttentionCache(), 0
    with mg.no_grad():
        for step in steps:
            part = attention(x[:, start : start + step], is_causal=True, cache=cache).data
            np.testing.assert_allclose(part, full[:, start : start + step], rtol=1e-9, atol=1e-12)
            start += step
    assert cache.length == start


def test_cache_with_gradients_raises() -> None:
    attention = nn.MultiHeadSelfAttention(8, 2)
    x = np.ones((1, 2, 8), np.float32)
    with pytest.raises(
        RuntimeError,
        match=r"a cache keeps no graph for gradients: decode inside `with mg.no_grad\(\):`",
    ):
        attention(x, is_causal=True, cache=nn.AttentionCache())
    attention.requires_grad_(False)
    attention(x, is_causal=True, cache=nn.AttentionCache())


@given(seed=seeds, window=st.integers(1, 6))
def test_window_masks_a_band(seed: int, window: int) -> None:
    i, j = np.indices((5, 5))
    np.testing.assert_array_equal(nn.causal_mask(5, window=window), (j <= i) & (i - j < window))
    np.testing.assert_array_equal(nn.causal_mask(2, 3, window), ((j <= i) & (i - j < window))[3:])


# -- biases of the scores ----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("bidirectional", [True, False])
def test_relative_buckets_equal_t5(bidirectional: bool) -> None:
    torch = pytest.importorskip("torch", reason="the oracle of T5's buckets")
    t5 = pytest.importorskip(
        "transformers.models.t5.modeling_t5", reason="the oracle of T5's buckets"
    )
    distance = np.arange(-400, 401)
    for buckets, furthest in ((32, 128), (8, 20), (16, 100)):
        ours = nn.RelativePositionBias(
            3, num_buckets=buckets, max_distance=furthest, bidirectional=bidirectional
        )
        theirs = t5.T5Attention._relative_position_bucket(
            torch.tensor(distance), bidirectional, buckets, furthest
        )
        np.testing.assert_array_equal(ours.buckets(distance), theirs.numpy())


def test_relative_bias_in_a_stack_is_one_trained_table() -> None:
    config = nn.EncoderConfig(
        9,
        8,
        2,
        3,
        12,
        positions="relative",
        dropout=0.0,
        dtype="float64",
        attention=nn.AttentionConfig(scale=1.0),
    )
    model = nn.EncoderModel(config, np.random.default_rng(0))
    names = [name for name in model.state_dict() if "position_bias" in name]
    assert names == ["encoder.layers.0.self_attention.position_bias.weight"]
    ids = np.random.default_rng(1).integers(1, 9, (2, 6))
    table = dict(model.named_parameters())[names[0]]
    start = table.data.copy()

    def f(weight: Tensor) -> Tensor:
        table._array, table._node = weight.data, weight._node
        return model(ids)

    assert mg.gradcheck(f, [start], elementwise=False)


def test_alibi_slopes_equal_the_paper() -> None:
    np.testing.assert_allclose(nn.ALiBi(8).slopes, 2.0 ** -np.arange(1, 9))
    np.testing.assert_allclose(nn.ALiBi(12).slopes[8:], 2.0 ** (-np.arange(1, 8, 2) / 2))
    np.testing.assert_allclose(
        nn.ALiBi(1, float)(2, 4)[0], -(2.0**-8) * np.abs([[-2, -1, 0, 1], [-3, -2, -1, 0]])
    )


def test_position_bias_of_a_user_trains_as_its_formula(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An additive bias of the user needs a class and an entry of the table."""

    class DecayBias(nn.Module):
        def __init__(self, num_heads: int) -> None:
            self.rate = nn.Parameter(np.linspace(0.1, 0.7, num_heads))

        def forward(self, query_length: int, key_length: int) -> Tensor:
            i = np.arange(key_length - query_length, key_length)[:, None]
            distance = np.abs(np.arange(key_length) - i)
            return mg.reshape(self.rate, -1, 1, 1) * -distance.astype(float)

    entry = lambda config, bidirectional, generator: DecayBias(config.num_heads)
    monkeypatch.setitem(position_bias.POSITION_BIASES, "decay", entry)
    config = nn.LanguageModelConfig(
        9, 8, 2, 2, 12, positions=nn.PositionConfig(kind="decay"), dropout=0.0, dtype="float64"
    )
    model = nn.LanguageModel(config, np.random.default_rng(0))
    ids = np.random.default_rng(1).integers(0, 9, (2, 6))
    for name in (
        "layers.layers.0.self_attention.position_bias.rate",
        "layers.layers.1.self_attention.q_proj.weight",
    ):
        weight = dict(model.named_parameters())[name]

        def loss(value: Any, weight: Any = weight) -> Tensor:
            weight._array, weight._node = value.data, value._node
            return model.loss(ids)

        assert mg.gradcheck(loss, [weight.data.copy()], elementwise=False)
    with mg.use_definitions("attention"):
        expected = model(ids).data
    np.testing.assert_allclose(model(ids).data, expected, rtol=1e-10)
    state = model.eval().start()
    steps = [model.step(ids[:, i : i + 1], state) for i in range(6)]
    np.testing.assert_allclose(np.stack(steps, 1), expected, rtol=1e-9, atol=1e-12)
