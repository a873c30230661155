"""Rotary positions, caches and biases of attention, by definition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minigrad as mg
import nn
from minigrad import Tensor
from nn.layers import position_bias

RNG = np.random.default_rng(0)


def test_rotary_is_a_complex_product() -> None:
    rotary, x = nn.RotaryPositions(8, base=100.0, rotary_dim=6), RNG.standard_normal((2, 3, 4, 8))
    angles = np.arange(5, 9)[:, None] * 100.0 ** (-np.arange(3) / 3)
    rotated = (x[..., :3] + 1j * x[..., 3:6]) * np.exp(1j * angles)
    expected = np.concatenate([rotated.real, rotated.imag, x[..., 6:]], -1)
    np.testing.assert_allclose(rotary(x, 5).data, expected, rtol=1e-9, atol=1e-12)
    assert mg.gradcheck(lambda x: rotary(x, 5), [x], elementwise=False)


@pytest.mark.slow
def test_rotary_yarn_with_all_settings_equals_transformers() -> None:
    transformers = pytest.importorskip("transformers", reason="the oracle of published scalings")
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    scaling: dict[str, Any] = {"rope_type": "yarn", "factor": 4.0, "beta_fast": 16, "beta_slow": 2}
    scaling |= {"mscale": 0.7, "mscale_all_dim": 0.9, "truncate": False}
    scaling |= {"original_max_position_embeddings": 32}
    parameters = {"rope_theta": 5000.0, **scaling}
    config = transformers.LlamaConfig(
        hidden_size=64, num_attention_heads=4, max_position_embeddings=256, rope_parameters=parameters
    )  # fmt: skip
    inv_freq, factor = ROPE_INIT_FUNCTIONS["yarn"](config, "cpu")
    ours = nn.RotaryPositions(16, base=5000.0, scaling=scaling)
    np.testing.assert_allclose(ours.inv_freq, inv_freq.numpy(), rtol=1e-6)
    assert ours.factor == pytest.approx(factor)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scaling": {"rope_type": "dynamic"}}, "rope_type must be 'default', .*, got 'dynamic'"),
        ({"scaling": {"rope_type": "linear"}}, "rope_type 'linear' needs 'factor'"),
        ({"rotary_dim": 3}, "rotary_dim must be even and from 2 to 8, got 3"),
        ({"rotary_dim": 10}, "rotary_dim must be even and from 2 to 8, got 10"),
        ({"base": 0}, "base must be finite, greater than 0, got 0"),
    ],
)
def test_rotary_bad_option_raises(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        nn.RotaryPositions(8, **options)


def test_rotary_rotates_lists_and_integers_as_floats() -> None:
    rotary, x = nn.RotaryPositions(4), np.arange(8).reshape(1, 1, 2, 4)
    for values in (x, x.tolist()):
        np.testing.assert_array_equal(rotary(values, 3).data, rotary(x.astype(float), 3).data)


@pytest.mark.parametrize("shape", [(1, 1, 2, 6), (1, 2, 4)])
def test_rotary_of_heads_of_another_shape_raises(shape: Any) -> None:
    with pytest.raises(ValueError, match=r"x must have shape \(N, h, L, 4\), got \("):
        nn.RotaryPositions(4)(np.ones(shape))


def test_sinusoidal_table_of_one_pair_has_the_exponent_0() -> None:
    table = nn.SinusoidalPositions(5, 2, last=True, dtype=float).weight
    np.testing.assert_allclose(table.T, [np.sin(np.arange(5)), np.cos(np.arange(5))])


@pytest.mark.parametrize(
    ("positions", "error", "message"),
    [
        (-1, ValueError, "positions must be at least 0, got -1"),
        ([-1, 0], ValueError, "positions must be at least 0, got -1"),
        ([5], ValueError, r"positions must be integers of shape \(2,\) or \(N, 2\), got int64 \(1,\)"),
        ([[0, 1, 2]], ValueError, r"integers of shape .* got int64 \(1, 3\)"),
        ([0.0, 1.0], ValueError, r"positions must be integers of shape .* got float64 \(2,\)"),
        (1.5, TypeError, "'float' object cannot be interpreted as an integer"),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "layer",
    [nn.RotaryPositions(4), nn.LearnedPositions(9, 4), nn.SinusoidalPositions(9, 4)],
    ids=lambda layer: type(layer).__name__,
)
def test_positions_that_no_token_has_are_refused(
    layer: Any, positions: Any, error: Any, message: str
) -> None:
    x = np.ones((1, 1, 2, 4) if isinstance(layer, nn.RotaryPositions) else (1, 2, 4), np.float32)
    with pytest.raises(error, match=message):
        layer(x, positions)


@pytest.mark.parametrize(
    ("layer", "norm_first"), [(nn.TransformerEncoderLayer, False), (nn.TransformerDecoderLayer, True)]
)  # fmt: skip
def test_parallel_of_another_layer_raises(layer: Any, norm_first: bool) -> None:
    message = f"{layer.__name__}: parallel must be False, except in encoder layers with norm_first"
    with pytest.raises(ValueError, match=message):
        layer(8, 2, 12, norm_first=norm_first, parallel=True)


OPTIONS: list[dict[str, Any]] = [
    {}, {"rotary": nn.RotaryPositions(6)}, {"qk_norm": 1e-6}, {"window": 2}, {"scale": 0.7},
    {"position_bias": nn.ALiBi(4, float)},
]  # fmt: skip


@pytest.mark.parametrize("options", OPTIONS, ids=lambda o: "".join(o) or "plain")
def test_attention_with_cache_equals_full_pass(options: dict[str, Any]) -> None:
    attention = nn.MultiHeadSelfAttention(
        8, 4, num_kv_heads=2, head_dim=6, dtype=float, generator=RNG, **options
    )
    x, cache = RNG.standard_normal((2, 20, 8)), nn.AttentionCache()
    full = attention(x, is_causal=True).data
    with mg.no_grad():
        parts = [
            attention(part, is_causal=True, cache=cache).data
            for part in np.split(x, [1, 4, 18], axis=1)  # the memory grows twice
        ]
    np.testing.assert_allclose(np.concatenate(parts, 1), full, rtol=1e-9, atol=1e-12)


def test_cache_with_gradients_raises() -> None:
    message = r"a cache keeps no graph for gradients: decode inside `with mg.no_grad\(\):`"
    with pytest.raises(RuntimeError, match=message):
        nn.MultiHeadSelfAttention(8, 2)(np.ones((1, 2, 8), "f4"), cache=nn.AttentionCache())


@pytest.mark.slow
@pytest.mark.parametrize("bidirectional", [True, False])
def test_relative_buckets_equal_t5(bidirectional: bool) -> None:
    torch = pytest.importorskip("torch", reason="the oracle of T5's buckets")
    t5 = pytest.importorskip("transformers.models.t5.modeling_t5", reason="the oracle of T5")
    distance = np.arange(-400, 401)
    options = {"num_buckets": 16, "max_distance": 100, "bidirectional": bidirectional}
    ours = nn.RelativePositionBias(3, **options).buckets(distance)
    theirs = t5.T5Attention._relative_position_bucket(torch.tensor(distance), **options)
    np.testing.assert_array_equal(ours, theirs.numpy())


def test_alibi_equals_the_paper() -> None:
    np.testing.assert_allclose(nn.ALiBi(8).slopes, 2.0 ** -np.arange(1, 9))
    np.testing.assert_allclose(nn.ALiBi(12).slopes[8:], 2.0 ** (-np.arange(1, 8, 2) / 2))
    distances = np.array([[2, 1, 0, 1], [3, 2, 1, 0]])
    np.testing.assert_allclose(nn.ALiBi(1)(2, 4)[0], -(2.0**-8) * distances)


class DecayBias(nn.Module):
    """A position bias of a user: a trained rate for each head times the distance."""

    def __init__(self, num_heads: int) -> None:
        self.rate = nn.Parameter(np.linspace(0.1, 0.7, num_heads))

    def forward(self, query_length: int, key_length: int) -> Tensor:
        i = np.arange(key_length - query_length, key_length)[:, None]
        distance = np.abs(np.arange(key_length) - i).astype(float)
        return mg.reshape(self.rate, -1, 1, 1) * -distance


def test_position_bias_of_a_user_trains_and_decodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Require a class and an entry of the table."""
    entry = lambda config, bidirectional, generator: DecayBias(config.num_heads)
    monkeypatch.setitem(position_bias.POSITION_BIASES, "decay", entry)
    config = nn.LanguageModelConfig(9, 8, 2, 2, 12, positions="decay", dropout=0.0, dtype="float64")
    model, ids = nn.LanguageModel(config), RNG.integers(0, 9, (2, 6))
    model.loss(ids).backward()
    assert model.layers.layers[0].self_attention.position_bias.rate.grad.data.all()
    assert config.positions.is_unlimited
    expected, state = model.eval()(ids).data, model.start()
    steps = [model.step(ids[:, i : i + 1], state) for i in range(6)]
    np.testing.assert_allclose(np.stack(steps, 1), expected, rtol=1e-9, atol=1e-12)
