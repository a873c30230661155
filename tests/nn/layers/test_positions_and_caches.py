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

SCALINGS: list[dict[str, Any]] = [
    {"rope_type": "linear", "factor": 2.5},
    {"type": "linear", "factor": 2.0},
    {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
     "original_max_position_embeddings": 64},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "beta_fast": 16, "beta_slow": 2,
     "mscale": 0.7, "mscale_all_dim": 0.9, "truncate": False},
]  # fmt: skip


@given(seed=seeds, start=st.integers(0, 50))
def test_rotary_is_a_complex_product(seed: int, start: int) -> None:
    rotary = nn.RotaryPositions(8, base=100.0, rotary_dim=6)
    x = np.random.default_rng(seed).standard_normal((2, 3, 4, 8))
    positions = start + np.arange(4)
    angles = positions[:, None] * 100.0 ** (-np.arange(3) / 3)
    rotated = (x[..., :3] + 1j * x[..., 3:6]) * np.exp(1j * angles)
    expected = np.concatenate([rotated.real, rotated.imag, x[..., 6:]], -1)
    np.testing.assert_allclose(rotary(x, start).data, expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(rotary(x, positions).data, rotary(x, start).data)
    assert mg.gradcheck(lambda x: rotary(x, start), [x], elementwise=False)
    assert mg.gradgradcheck(lambda x: rotary(x, start), [x], elementwise=False)


def test_rotary_with_linear_scaling_divides_positions() -> None:
    x = np.random.default_rng(0).standard_normal((1, 1, 4, 6))
    scaled = nn.RotaryPositions(6, scaling={"rope_type": "linear", "factor": 2.0})
    expected = nn.RotaryPositions(6)(x, np.arange(4)).data
    np.testing.assert_allclose(scaled(x, 2 * np.arange(4)).data, expected, rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("scaling", SCALINGS, ids=str)
def test_rotary_scaling_equals_transformers(scaling: dict[str, Any]) -> None:
    transformers = pytest.importorskip("transformers", reason="the oracle of published scalings")
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    settings = {"rope_type": scaling.get("type"), **scaling}
    config = transformers.LlamaConfig(
        hidden_size=64,
        num_attention_heads=4,
        max_position_embeddings=256,
        rope_parameters={"rope_theta": 5000.0, **settings},
    )
    inv_freq, factor = ROPE_INIT_FUNCTIONS[settings["rope_type"]](config, "cpu")
    ours = nn.RotaryPositions(16, base=5000.0, scaling=scaling)
    np.testing.assert_allclose(ours.inv_freq, inv_freq.numpy(), rtol=1e-6)
    assert ours.factor == pytest.approx(factor)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scaling": {"rope_type": "dynamic", "factor": 2.0}}, "rope_type must be 'default', 'linear', 'llama3' or 'yarn', got 'dynamic'"),
        ({"scaling": {"rope_type": "llama3", "factor": 2.0}}, "rope_type 'llama3' needs 'low_freq_factor'"),
        *(({"rotary_dim": d}, f"rotary_dim must be even and from 2 to 8, got {d}") for d in (0, 3, 10)),
    ],
)  # fmt: skip
def test_rotary_bad_option_raises(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        nn.RotaryPositions(8, **options)


def test_config_with_bad_rotary_scaling_raises() -> None:
    positions = nn.PositionConfig(kind="rotary", rotary_scaling={"rope_type": "dynamic"})
    with pytest.raises(ValueError, match="rope_type must be 'default', .*, got 'dynamic'"):
        nn.LanguageModelConfig(9, 8, 1, positions=positions)


def test_parallel_layer_equals_its_formula() -> None:
    """Attention and feed-forward layer read the same x."""
    layer = nn.TransformerEncoderLayer(
        8, 2, 12, norm_first=True, parallel=True, dropout=0.0, dtype="float64"
    )
    x = np.random.default_rng(0).standard_normal((2, 3, 8))
    attended = layer.self_attention(layer.norm1(x)).data
    expected = x + attended + layer.feed_forward(layer.norm2(x)).data
    np.testing.assert_allclose(layer(x).data, expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("layer", "norm_first"), [(nn.TransformerEncoderLayer, False), (nn.TransformerDecoderLayer, True)]
)  # fmt: skip
def test_parallel_of_another_layer_raises(layer: Any, norm_first: bool) -> None:
    message = (
        f"{layer.__name__}: parallel must be False, except in encoder layers with norm_first=True"
    )
    with pytest.raises(ValueError, match=message):
        layer(8, 2, 12, norm_first=norm_first, parallel=True)


# -- grouped keys and values, and caches ---------------------------------------------------------------------


OPTIONS: list[dict[str, Any]] = [
    {}, {"rotary": nn.RotaryPositions(6)}, {"qk_norm": 1e-6}, {"window": 2}, {"scale": 0.7},
    {"position_bias": nn.ALiBi(4, float)},
]  # fmt: skip
options_of_attention = pytest.mark.parametrize(
    "options", OPTIONS, ids=lambda o: "".join(o) or "plain"
)


@options_of_attention
@given(seed=seeds, kv=st.sampled_from([1, 2]))
def test_grouped_heads_equal_repeated_keys_and_values(
    options: dict[str, Any], seed: int, kv: int
) -> None:
    rng = np.random.default_rng(seed)
    sizes = {"head_dim": 6, "dtype": float, "generator": rng}
    grouped = nn.MultiHeadSelfAttention(8, 4, num_kv_heads=kv, **sizes, **options)
    whole = nn.MultiHeadSelfAttention(8, 4, **sizes, **options)
    state = grouped.state_dict()
    for name in ("k_proj.weight", "k_proj.bias", "v_proj.weight", "v_proj.bias"):
        heads = state[name].reshape(kv, 6, -1)
        shape = whole.state_dict()[name].shape
        state[name] = np.repeat(heads, 4 // kv, 0).reshape(shape)
    whole.load_state_dict(state)
    x = rng.standard_normal((2, 5, 8))
    y, z = (attention(x, is_causal=True).data for attention in (grouped, whole))
    np.testing.assert_allclose(y, z, rtol=1e-9, atol=1e-12)


@options_of_attention
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
    full, cache = attention(x, is_causal=True).data, nn.AttentionCache()
    with mg.no_grad():
        for step in steps:
            rows = slice(cache.length, cache.length + step)
            part = attention(x[:, rows], is_causal=True, cache=cache).data
            np.testing.assert_allclose(part, full[:, rows], rtol=1e-9, atol=1e-12)


def test_cache_with_gradients_raises() -> None:
    attention = nn.MultiHeadSelfAttention(8, 2)
    x = np.ones((1, 2, 8), np.float32)
    message = r"a cache keeps no graph for gradients: decode inside `with mg.no_grad\(\):`"
    with pytest.raises(RuntimeError, match=message):
        attention(x, cache=nn.AttentionCache())
    attention.requires_grad_(False)
    attention(x, cache=nn.AttentionCache())


# -- biases of the scores ----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("buckets", "furthest"), [(32, 128), (8, 20), (16, 100)])
def test_relative_buckets_equal_t5(buckets: int, furthest: int, bidirectional: bool) -> None:
    torch = pytest.importorskip("torch", reason="the oracle of T5's buckets")
    t5 = pytest.importorskip(
        "transformers.models.t5.modeling_t5", reason="the oracle of T5's buckets"
    )
    distance = np.arange(-400, 401)
    options = {"num_buckets": buckets, "max_distance": furthest, "bidirectional": bidirectional}
    ours = nn.RelativePositionBias(3, **options).buckets(distance)
    theirs = t5.T5Attention._relative_position_bucket(torch.tensor(distance), **options)
    np.testing.assert_array_equal(ours, theirs.numpy())


def test_alibi_slopes_equal_the_paper() -> None:
    np.testing.assert_allclose(nn.ALiBi(8).slopes, 2.0 ** -np.arange(1, 9))
    np.testing.assert_allclose(nn.ALiBi(12).slopes[8:], 2.0 ** (-np.arange(1, 8, 2) / 2))
    distances = [[2, 1, 0, 1], [3, 2, 1, 0]]
    np.testing.assert_allclose(nn.ALiBi(1, float)(2, 4)[0], np.multiply(-(2.0**-8), distances))


def assert_gradient_equals_finite_differences(model: nn.LanguageModel, name: str) -> None:
    """Check the gradient of the loss for one parameter, given by its name."""
    parameter = dict(model.named_parameters())[name]
    ids = np.random.default_rng(1).integers(0, 9, (2, 6))

    def loss(value: Tensor) -> Tensor:
        parameter._array, parameter._node = value.data, value._node
        return model.loss(ids)

    assert mg.gradcheck(loss, [parameter.data.copy()], elementwise=False)


def small_model(kind: str) -> nn.LanguageModel:
    config = nn.LanguageModelConfig(9, 8, 2, 2, 12, positions=kind, dropout=0.0, dtype="float64")
    return nn.LanguageModel(config, np.random.default_rng(0))


def test_relative_bias_of_a_stack_is_one_trained_table() -> None:
    model = small_model("relative")
    names = [name for name in model.state_dict() if "position_bias" in name]
    assert names == ["layers.layers.0.self_attention.position_bias.weight"]
    assert_gradient_equals_finite_differences(model, names[0])


def test_position_bias_of_a_user_trains_and_decodes(monkeypatch: pytest.MonkeyPatch) -> None:
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
    model = small_model("decay")
    assert_gradient_equals_finite_differences(
        model, "layers.layers.0.self_attention.position_bias.rate"
    )
    assert model.config.positions.is_unlimited
    ids = np.random.default_rng(2).integers(0, 9, (2, 6))
    expected, state = model.eval()(ids).data, model.start()
    steps = [model.step(ids[:, i : i + 1], state) for i in range(6)]
    np.testing.assert_allclose(np.stack(steps, 1), expected, rtol=1e-9, atol=1e-12)
