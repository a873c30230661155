"""Rotary positions, caches and biases of attention, by definition."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from support.environment import needs
from support.properties import assert_gradients, normal, seeds

import minigrad as mg
import nn
from minigrad import Tensor
from nn.options import position_bias
from nn.options.parts import SINUSOIDS

RNG = np.random.default_rng(0)


# -- rotary positions ----------------------------------------------------------------------------------


def rotated(x: np.ndarray, angles: np.ndarray, factor: float) -> np.ndarray:
    """Rotate value i of a head and value i + d/2, one pair after the other, by angles (N, L, d/2)."""
    y, d = x.copy(), 2 * angles.shape[-1]
    for n, h, position, i in np.ndindex(*x.shape[:3], d // 2):
        a, b, angle = x[n, h, position, i], x[n, h, position, i + d // 2], angles[n, position, i]
        y[n, h, position, i] = factor * (a * math.cos(angle) - b * math.sin(angle))
        y[n, h, position, i + d // 2] = factor * (b * math.cos(angle) + a * math.sin(angle))
    return y


@st.composite
def scalings(draw: Any, *kinds: str) -> dict[str, Any]:
    """Draw a change of the angles, with the names of published configurations."""
    kind = draw(st.sampled_from(kinds))
    if kind == "default":
        return {}
    options: dict[str, Any] = {
        draw(st.sampled_from(("rope_type", "type"))): kind,
        "factor": draw(st.sampled_from((1.0, 2.5, 8.0))),
        "original_max_position_embeddings": draw(st.integers(16, 4096)),
    }
    if kind == "llama3":
        low = draw(st.floats(0.5, 2))
        options |= {"low_freq_factor": low, "high_freq_factor": low + draw(st.floats(0.5, 8))}
    elif kind == "yarn":
        optional = {
            "beta_fast": st.floats(8, 64),
            "beta_slow": st.floats(0.5, 4),
            "mscale": st.floats(0.5, 2),
            "mscale_all_dim": st.floats(0.5, 2),
            "truncate": st.booleans(),
            "attention_factor": st.floats(0.5, 2),
        }
        options |= draw(st.fixed_dictionaries({}, optional=optional))
    return options


def scaled_angle(i: int, d: int, base: float, scaling: dict[str, Any]) -> tuple[float, float]:
    """Return the angle of pair i at position 1, and the factor of sines and cosines.

    The formulas are those of the papers. For YaRN, the range of its ramp begins at the last pair
    that turns at least `beta_fast` times in the original length, and ends at the first pair that
    turns at most `beta_slow` times: Peng et al. (2023), section 3.2 and `find_correction_range` of
    the code that it names.
    """
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    angle = base ** (-2 * i / d)
    if kind == "default":
        return angle, 1.0
    s = scaling["factor"]
    if kind == "linear":
        return angle / s, 1.0
    length = scaling["original_max_position_embeddings"]
    turns = lambda i: length / (2 * math.pi * base ** (2 * i / d))
    if kind == "llama3":
        low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
        if turns(i) < low:
            return angle / s, 1.0
        if turns(i) > high:
            return angle, 1.0
        smooth = (turns(i) - low) / (high - low)
        return (1 - smooth) * angle / s + smooth * angle, 1.0
    fast, slow = scaling.get("beta_fast") or 32, scaling.get("beta_slow") or 1
    if scaling.get("truncate", True):
        first = max((j for j in range(d) if turns(j) >= fast), default=0)
        last = min((j for j in range(d) if turns(j) <= slow), default=d - 1)
    else:  # turns(first) == fast, turns(last) == slow
        first, last = (d / 2 * math.log(length / (2 * math.pi * t), base) for t in (fast, slow))
    first, last = max(first, 0), min(last, d - 1)
    ramp = min(max((i - first) / max(last - first, 0.001), 0), 1)
    temperature = lambda weight: 0.1 * weight * math.log(s) + 1 if s > 1 else 1.0
    if scaling.get("attention_factor") is not None:
        factor = scaling["attention_factor"]
    elif scaling.get("mscale") and scaling.get("mscale_all_dim"):
        factor = temperature(scaling["mscale"]) / temperature(scaling["mscale_all_dim"])
    else:
        factor = temperature(1.0)
    return (1 - ramp) * angle + ramp * angle / s, factor


@st.composite
def positions_of(draw: Any, n: int, length: int, most: int) -> Any:
    """Draw positions of n sequences: a first one, one for each token, or for each sequence."""
    shape = draw(st.sampled_from([(), (length,), (n, length)]))
    if not shape:
        return draw(st.integers(0, most - length))
    return draw(arrays(int, shape, elements=st.integers(0, most - 1)))


def spelled_out(positions: Any, n: int, length: int) -> np.ndarray:
    """Return the positions (n, length) that `positions` abbreviates."""
    start = np.arange(length) if np.ndim(positions) == 0 else 0
    return np.broadcast_to(positions + start, (n, length))


@given(
    data=st.data(),
    base=st.sampled_from((100.0, 10000.0, 5e5)),
    sizes=st.tuples(st.integers(1, 4), st.integers(0, 3)),
    scaling=scalings("default", "linear", "llama3", "yarn"),
    seed=seeds,
)
def test_rotary_positions_equal_the_formulas_of_the_papers(
    data: Any, base: float, sizes: tuple[int, int], scaling: dict[str, Any], seed: int
) -> None:
    """With all scalings, and with heads of which only a part is rotated."""
    half, rest = sizes
    rotary = nn.RotaryPositions(
        2 * half + rest, base=base, scaling=scaling, rotary_dim=2 * half if rest else None
    )
    angles, factors = zip(*(scaled_angle(i, 2 * half, base, scaling) for i in range(half)))
    np.testing.assert_allclose(rotary.inv_freq, angles, rtol=1e-9)
    np.testing.assert_allclose(rotary.factor, factors[0], rtol=1e-12)
    n, length = data.draw(st.tuples(st.integers(1, 2), st.integers(1, 4)))
    positions = data.draw(positions_of(n, length, 200), label="positions")
    x = Tensor(normal(seed, n, 2, length, 2 * half + rest), requires_grad=True)
    turned = spelled_out(positions, n, length)[..., None] * np.array(angles)
    np.testing.assert_allclose(
        rotary(x, positions).data, rotated(x.data, turned, factors[0]), rtol=1e-9, atol=1e-11
    )
    g = normal([seed, 1], *x.shape)
    expected = rotated(g, -turned, factors[0])  # the transposed matrix
    found = mg.gradients(rotary(x, positions), x, g)[0].data
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("kind", ["linear", "llama3", "yarn"])
@given(data=st.data(), base=st.sampled_from((100.0, 1e4, 5e5)), half=st.integers(8, 64))
def test_rotary_scaling_of_many_pairs_equals_the_formula_of_its_paper(
    kind: str, data: Any, base: float, half: int
) -> None:
    scaling = data.draw(scalings(kind), label="scaling")
    rotary = nn.RotaryPositions(2 * half, base=base, scaling=scaling)
    angles, factors = zip(*(scaled_angle(i, 2 * half, base, scaling) for i in range(half)))
    np.testing.assert_allclose(rotary.inv_freq, angles, rtol=1e-9)
    assert rotary.factor == pytest.approx(factors[0])


@given(st.lists(st.tuples(st.sampled_from("efd"), st.integers(1, 99)), min_size=2, max_size=5))
def test_rotary_positions_do_not_depend_on_earlier_calls(calls: list[tuple[str, int]]) -> None:
    """Tables are kept between calls, in one dtype and up to one position."""
    used = nn.RotaryPositions(4)
    for dtype, length in calls:
        x = normal(length, 1, 1, length, 4).astype(dtype)
        found, expected = used(x), nn.RotaryPositions(4)(x)
        np.testing.assert_array_equal(found.data, expected.data, strict=True)


def test_rotary_tables_are_rounded_once() -> None:
    positions = np.array([[0, 1, 77], [4095, 65, 12]])
    for scaling in (None, {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 99}):  # fmt: skip
        rotary = nn.RotaryPositions(6, scaling=scaling)
        angles = positions[:, None, :, None] * np.tile(rotary.inv_freq, 2)
        tables = [f(angles) * rotary.factor for f in (np.cos, np.sin)]
        for dtype in map(np.dtype, ("float64", "float32", "float16")):
            for found, expected in zip(rotary.cos_sin(positions, 3, dtype), tables):
                np.testing.assert_array_equal(found, expected.astype(dtype), strict=True)


@pytest.mark.parametrize(
    "options",
    [
        {"beta_fast": 2.0, "beta_slow": 2.0, "truncate": False},  # a step between two pairs
        {"beta_fast": 3.0, "beta_slow": 2.5, "truncate": False},
        {"beta_fast": None, "beta_slow": None, "attention_factor": None, "mscale": None},
        {"mscale": 0.7},
        {"mscale": 0.7, "mscale_all_dim": 0.0},
        {"mscale": 0.7, "mscale_all_dim": 1.3},
        {"factor": 0.5},
        {"attention_factor": 0.0},
        {"rope_type": "linear", "type": "default"},
    ],
    ids=str,
)
def test_rotary_scaling_with_unusual_settings_equals_its_formula(options: dict[str, Any]) -> None:
    scaling = {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 1024,
        **options,
    }
    rotary = nn.RotaryPositions(32, base=100.0, scaling=scaling)
    angles, factors = zip(*(scaled_angle(i, 32, 100.0, scaling) for i in range(16)))
    np.testing.assert_allclose(rotary.inv_freq, angles, rtol=1e-12)
    assert rotary.factor == pytest.approx(factors[0], rel=1e-12)


def test_yarn_of_a_small_base_ends_its_ramp_at_the_last_pair() -> None:
    """All pairs turn more than `beta_slow` times in the original length, and some fewer than 32."""
    scaling = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 235}
    angles = [scaled_angle(i, 8, 5.0, scaling)[0] for i in range(4)]
    found = nn.RotaryPositions(8, base=5.0, scaling=scaling).inv_freq
    np.testing.assert_allclose(found, angles, rtol=1e-12)


def test_yarn_of_llama_2_ramps_from_pair_20_to_pair_46() -> None:
    """For heads of size 128 and 4096 positions, the range is 20.94 to 45.03 before rounding."""
    scaling = {"rope_type": "yarn", "factor": 16.0, "original_max_position_embeddings": 4096}
    rotary, plain = nn.RotaryPositions(128, scaling=scaling), nn.RotaryPositions(128)
    share = (1 - rotary.inv_freq / plain.inv_freq) * 16 / 15
    np.testing.assert_allclose(share, np.clip((np.arange(64) - 20) / 26, 0, 1), atol=1e-12)
    for factor in (1.0, 1.5, 16.0):
        rotary = nn.RotaryPositions(128, scaling=scaling | {"factor": factor})
        assert rotary.factor == pytest.approx(0.1 * math.log(factor) + 1)


@pytest.mark.slow
def test_rotary_yarn_with_all_settings_equals_transformers() -> None:
    transformers = needs("transformers")
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
        ({"rotary_dim": 0}, "rotary_dim must be even and from 2 to 8, got 0"),
        ({"rotary_dim": -2}, "rotary_dim must be even and from 2 to 8, got -2"),
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


# -- tables of positions -------------------------------------------------------------------------------


@given(
    data=st.data(),
    kind=st.sampled_from((*SINUSOIDS, "learned")),
    size=st.integers(1, 4),
    offset=st.integers(0, 5),
    seed=seeds,
)
def test_positions_add_rows_of_their_table(
    data: Any, kind: str, size: int, offset: int, seed: int
) -> None:
    d, most = 2 * size, 9
    layer: Any
    if kind == "learned":
        layer = nn.LearnedPositions(most, d, offset=offset, dtype=float)
        table = layer.weight.data.copy()
    else:
        layer = SINUSOIDS[kind](most, d, offset=offset, dtype=float)
        table = np.empty((most + offset, d))
        for row, i in np.ndindex(most + offset, size):
            exponent = i / max(size - 1, 1) if kind == "sinusoidal_last" else 2 * i / d
            angle = row / 10000**exponent
            columns = (2 * i, 2 * i + 1) if kind == "sinusoidal" else (i, size + i)
            table[row, columns] = math.sin(angle), math.cos(angle)
        assert not layer.state_dict()
    assert len(table) == most + offset
    n, length = data.draw(st.tuples(st.integers(1, 2), st.integers(1, 4)))
    positions = data.draw(positions_of(n, length, most), label="positions")
    x = Tensor(normal(seed, n, length, d), requires_grad=True)
    expected = x.data + table[spelled_out(positions, n, length) + offset]
    np.testing.assert_allclose(layer(x, positions).data, expected, rtol=1e-12, atol=1e-14)
    assert_gradients(lambda: layer(x, positions), [x, *layer.parameters()], seed)


@pytest.mark.parametrize(
    ("positions", "error", "message"),
    [
        (-1, ValueError, "positions must be at least 0, got -1"),
        ([-1, 0], ValueError, "positions must be at least 0, got -1"),
        ([5], ValueError, r"positions must be integers of shape \(2,\) or \(N, 2\), got int\d+ \(1,\)"),
        ([[0, 1, 2]], ValueError, r"integers of shape .* got int\d+ \(1, 3\)"),
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
    ("layer", "norm_first"), [(nn.ExtendedEncoderLayer, False), (nn.ExtendedDecoderLayer, True)]
)  # fmt: skip
def test_parallel_of_another_layer_raises(layer: Any, norm_first: bool) -> None:
    message = f"{layer.__name__}: parallel must be False, except in encoder layers with norm_first"
    with pytest.raises(ValueError, match=message):
        layer(8, 2, 12, norm_first=norm_first, parallel=True)


@given(norm_first=st.booleans(), parallel=st.booleans(), is_decoder=st.booleans())
def test_norm_after_needs_norm_first_and_sublayers_in_turn(
    norm_first: bool, parallel: bool, is_decoder: bool
) -> None:
    layer = nn.ExtendedDecoderLayer if is_decoder else nn.ExtendedEncoderLayer
    options = {"norm_first": norm_first, "parallel": parallel, "norm_after": True}
    if norm_first and not parallel:
        layer(8, 2, 12, **options)
    else:
        with pytest.raises(ValueError, match="(norm_after|parallel) must be False, except"):
            layer(8, 2, 12, **options)


@pytest.mark.parametrize("kind", [nn.TransformerDecoderLayer, nn.ExtendedDecoderLayer])
def test_decoder_layer_called_in_chunks_equals_one_call(kind: Any) -> None:
    layer = kind(8, 2, 12, dropout=0.0, dtype=float, generator=np.random.default_rng(0)).eval()
    x, memory = normal(0, 2, 6, 8), normal(1, 2, 3, 8)
    expected = layer(x, memory).data
    for m in (layer, nn.for_inference(nn.Sequential(layer))[0]):
        cache = nn.AttentionCache()
        with mg.no_grad():
            for part in (np.s_[:, :1], np.s_[:, 1:3], np.s_[:, 3:]):
                y = mg.as_tensor(m(x[part], memory, cache=cache)).data
                np.testing.assert_allclose(y, expected[part], rtol=1e-9, atol=1e-12)


def test_cache_with_gradients_raises() -> None:
    message = r"a cache keeps no graph for gradients: decode inside `with mg.no_grad\(\):`"
    with pytest.raises(RuntimeError, match=message):
        nn.MultiHeadAttention(8, 2)(np.ones((1, 2, 8), "f4"), cache=nn.AttentionCache())


@pytest.mark.slow
@pytest.mark.parametrize("bidirectional", [True, False])
def test_relative_buckets_equal_t5(bidirectional: bool) -> None:
    torch = needs("torch")
    t5 = needs("transformers.models.t5.modeling_t5")
    distance = np.arange(-400, 401)
    options = {"num_buckets": 16, "max_distance": 100, "bidirectional": bidirectional}
    ours = nn.RelativePositionBias(3, **options).buckets(distance)
    theirs = t5.T5Attention._relative_position_bucket(torch.tensor(distance), **options)
    np.testing.assert_array_equal(ours, theirs.numpy())


# -- position biases -----------------------------------------------------------------------------------


def bucket_of(distance: int, buckets: int, most: int, bidirectional: bool) -> int:
    """Return T5's bucket of a distance from query to key.

    The first half of the buckets has one distance each. The others begin at distances that grow by
    one factor, up to `most`.
    """
    first = 0
    if bidirectional:
        buckets //= 2
        first = buckets if distance > 0 else 0
        distance = abs(distance)
    else:
        distance = max(-distance, 0)
    single = buckets // 2
    if distance < single:
        return first + distance
    starts = [single * (most / single) ** (i / (buckets - single)) for i in range(buckets - single)]
    return first + single + sum(start <= distance * (1 + 1e-12) for start in starts) - 1


@given(
    heads=st.integers(1, 3),
    buckets=st.sampled_from((4, 8, 12, 32)),
    most=st.integers(20, 128),
    bidirectional=st.booleans(),
    queries=st.integers(1, 5),
    past=st.integers(0, 60),
    seed=seeds,
)
def test_relative_position_bias_and_its_gradient_equal_the_definition(
    heads: int, buckets: int, most: int, bidirectional: bool, queries: int, past: int, seed: int
) -> None:
    bias = nn.RelativePositionBias(
        heads, num_buckets=buckets, max_distance=most, bidirectional=bidirectional, dtype=float
    )
    y, expected = bias(queries, past + queries), np.empty((heads, queries, past + queries))
    for h, i, j in np.ndindex(expected.shape):
        bucket = bucket_of(j - past - i, buckets, most, bidirectional)
        expected[h, i, j] = bias.weight.data[bucket, h]
    np.testing.assert_array_equal(y.data, expected)
    assert_gradients(lambda: bias(queries, past + queries), [bias.weight], seed)


@pytest.mark.parametrize(("bidirectional", "least"), [(True, 4), (False, 2)])
def test_relative_buckets_and_their_distance_have_least_values(
    bidirectional: bool, least: int
) -> None:
    for buckets in (least, least + 1, 3 * least):
        options = {"num_buckets": buckets, "bidirectional": bidirectional}
        single = buckets // least
        bias = nn.RelativePositionBias(1, max_distance=single + 1, **options)
        for distance in range(-9, 10):
            expected = bucket_of(distance, buckets, single + 1, bidirectional)
            assert bias.buckets(np.array(distance)) == expected
        with pytest.raises(ValueError, match=f"max_distance must be at least {single + 1}, got"):
            nn.RelativePositionBias(1, max_distance=single, **options)
    with pytest.raises(ValueError, match=f"num_buckets must be at least {least}, got {least - 1}"):
        nn.RelativePositionBias(1, num_buckets=least - 1, bidirectional=bidirectional)


@given(heads=st.integers(1, 17), queries=st.integers(1, 4), past=st.integers(0, 4))
def test_alibi_is_a_slope_times_the_distance(heads: int, queries: int, past: int) -> None:
    """Slopes of other numbers than powers of 2 are every second of twice as many."""
    below = 1 << heads.bit_length() - 1
    slopes = [2 ** (-8 * (h + 1) / below) for h in range(below)]
    slopes += [2 ** (-4 * (2 * h + 1) / below) for h in range(heads - below)]
    for dtype in (np.float64, np.float32):
        y = nn.ALiBi(heads, dtype)(queries, past + queries)
        distance = np.abs(np.arange(past + queries) - np.arange(past, past + queries)[:, None])
        assert y.dtype == dtype
        expected = -np.multiply.outer(slopes, distance)
        np.testing.assert_allclose(y, expected, rtol=2 * float(np.finfo(dtype).eps))


def test_alibi_slopes_equal_the_paper() -> None:
    np.testing.assert_allclose(nn.ALiBi(8).slopes, 2.0 ** -np.arange(1, 9))
    np.testing.assert_allclose(nn.ALiBi(12).slopes[8:], 2.0 ** (-np.arange(1, 8, 2) / 2))


@pytest.mark.parametrize("kind", ["relative", "learned_relative", "alibi"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_position_bias_has_the_settings_of_its_configuration(kind: str, dtype: str) -> None:
    options: Any = {} if kind == "alibi" else {"relative_buckets": 8, "relative_max_distance": 9}
    positions = nn.PositionConfig(kind=kind, **options)
    pair = nn.EncoderDecoderConfig(9, 9, 6, 3, 2, 2, 6, positions=positions, dtype=dtype)
    model = nn.Transformer(pair, np.random.default_rng(0))
    for stack, is_decoder in ((model.encoder, False), (model.decoder, True)):
        first, second = (layer.self_attention.position_bias for layer in stack.layers)
        assert first is second and first(2, 3).dtype == dtype and first(2, 3).shape == (3, 2, 3)
        if kind == "alibi":
            np.testing.assert_array_equal(first(3, 4), nn.ALiBi(3, dtype)(3, 4))
        else:
            assert first.weight.shape == (8, 3) and first.weight.data.any()
            assert (first.max_distance, first.bidirectional) == (9, not is_decoder)


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
    config = nn.DecoderOnlyConfig(9, 8, 2, 2, 12, positions="decay", dropout=0.0, dtype="float64")
    model, ids = nn.LanguageModel(config), RNG.integers(0, 9, (2, 6))
    model.loss(ids).backward()
    assert model.layers.layers[0].self_attention.position_bias.rate.grad.data.all()
    assert config.position_limit is None
    expected, state = model.eval()(ids).data, model.start()
    steps = [model.step(ids[:, i : i + 1], state) for i in range(6)]
    np.testing.assert_allclose(np.stack(steps, 1), expected, rtol=1e-9, atol=1e-12)
