"""Settings in published files: windows and rotary positions of single layers, and limits of pixels."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nn
from minigrad.io.json import Settings
from nn.published.load import FAMILIES, read_config

SIZES = {"vocab_size": 9, "hidden_size": 8, "num_attention_heads": 2, "num_key_value_heads": 2,
         "intermediate_size": 8, "max_position_embeddings": 20, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}  # fmt: skip
layer_counts = st.integers(1, 4)


def config_of(model_type: str, layers: int, **settings: Any) -> Any:
    """Return our configuration; None leaves a key out."""
    written = SIZES | {"num_hidden_layers": layers} | settings
    present = {name: value for name, value in written.items() if value is not None}
    config = Settings(present, "config.json")
    return read_config(config, FAMILIES[model_type].variant(config))


@given(st.sampled_from(["qwen2", "qwen3"]), layer_counts, st.data())
def test_layers_from_max_window_layers_on_have_the_window(
    model_type: str, layers: int, data: st.DataObject
) -> None:
    """`layer_types` takes precedence. Without `use_sliding_window`, no layer has a window."""
    kinds = st.sampled_from(["sliding_attention", "full_attention"])
    types = data.draw(st.none() | st.lists(kinds, min_size=layers, max_size=layers))
    for first in range(layers + 2):
        for is_used in (True, False, None):
            config = config_of(
                model_type, layers, max_window_layers=first, layer_types=types, sliding_window=3,
                use_sliding_window=is_used,
            )  # fmt: skip
            expected = [i for i in range(layers) if i >= first]
            if types is not None:
                expected = [i for i, kind in enumerate(types) if kind == "sliding_attention"]
            assert config.attention.window == (3 if is_used else None)
            assert [*(config.attention.window_layers or ())] == (expected if is_used else [])


@given(st.none() | st.integers(1, 5), layer_counts, st.data())
def test_layers_of_smollm3_without_rotary_positions(
    interval: int | None, layers: int, data: st.DataObject
) -> None:
    """Every fourth layer by default, every layer at the interval, or the zeros of a list."""
    flags = st.lists(st.integers(0, 1), min_size=layers, max_size=layers)
    rotates = data.draw(st.none() | flags)
    settings = {"no_rope_layer_interval": interval, "no_rope_layers": rotates}
    step = 4 if interval is None else interval
    expected = [i for i in range(layers) if (i + 1) % step == 0]
    if rotates is not None:
        expected = [i for i, rotate in enumerate(rotates) if not rotate]
    found = config_of("smollm3", layers, **settings).positions.no_rotary_layers
    assert [*found] == expected


def test_gemma_of_the_first_files_has_the_approximate_gelu() -> None:
    for name in ("gelu", "gelu_pytorch_tanh"):
        assert config_of("gemma", 1, hidden_act=name).activation == "gelu_tanh"
    assert config_of("gemma", 1, hidden_act="relu").activation == "relu"


@pytest.mark.parametrize("is_encoder", [None, False, True])
def test_gemma3_is_an_encoder_if_its_settings_say_so(is_encoder: bool | None) -> None:
    config = config_of("gemma3_text", 1, use_bidirectional_attention=is_encoder)
    assert isinstance(config, nn.EncoderConfig) == bool(is_encoder)


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("gemma3_text", {"rope_parameters": {"sliding_attention": {"odd": 1}, "full_attention": {}}}, "'odd': 1"),
        ("gemma3_text", {"rope_parameters": {"sliding_attention": {}, "full_attention": {"odd": 1}}}, "'odd': 1"),
        ("gemma3_text", {"rope_parameters": {"sliding_attention": {"rope_type": "linear"}}}, "rope_type must be default"),
        ("gemma3_text", {"rope_parameters": {"sliding_attention": {"rope_theta": 0.5}}}, "rope_theta must be at least 1"),
        ("llama", {"rope_scaling": {"odd": 1}}, "rope_scaling: .*'odd': 1"),
        ("llama", {"rope_parameters": {"odd": 1}}, "rope_parameters: .*'odd': 1"),
        ("llama", {"rope_parameters": {"rope_theta": 0.99}}, "rope_theta must be at least 1"),
        ("gpt_neox", {"rotary_pct": 1.01}, "must be 0 to 1, got 1.01"),
        ("qwen2", {"layer_types": ["full_attention", "chunked_attention"]}, "layer_types must be full_attention or sliding"),
    ],
)  # fmt: skip
def test_read_config_of_unsupported_positions_and_windows_raises(
    name: str, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        config_of(name, 2, **settings)


@given(st.sampled_from(["rope_scaling", "rope_parameters"]), st.floats(1, 1e6), st.floats(1, 9))
def test_settings_of_rotary_positions_are_read_from_keys_of_two_versions(
    key: str, base: float, factor: float
) -> None:
    scaling = {"rope_type": "linear", "factor": factor, "rope_theta": base}
    positions = config_of("llama", 1, **{key: scaling}).positions
    assert positions.rotary_base == base
    assert positions.rotary_scaling == {"rope_type": "linear", "factor": factor}
    del scaling["rope_theta"]
    assert config_of("llama", 1, rope_theta=base, **{key: scaling}).positions.rotary_base == base
    assert config_of("llama", 1, rope_theta=base).positions.rotary_scaling is None


@pytest.mark.parametrize("kind", ["llama3", "yarn"])
@pytest.mark.parametrize("inside", [None, 7])
@pytest.mark.parametrize("outside", [None, 9])
def test_original_length_of_scaled_positions(
    kind: str, inside: int | None, outside: int | None
) -> None:
    """It stands beside the scaling, in it, or is the length of the model."""
    key = "original_max_position_embeddings"
    scaling = {"rope_type": kind, "factor": 2.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    if inside is not None:
        scaling[key] = inside
    found = config_of("llama", 1, **{key: outside}, rope_scaling=scaling).positions
    assert found.rotary_scaling[key] == (outside or inside or SIZES["max_position_embeddings"])


WINDOWED: dict[str, tuple[str, str, int, Any]] = {
    "gemma2": ("sliding_window", "sliding_window_pattern", 2, lambda i, step: (i + 1) % step),
    "gemma3_text": ("sliding_window", "sliding_window_pattern", 6, lambda i, step: (i + 1) % step),
    "modernbert": ("local_attention", "global_attn_every_n_layers", 3, lambda i, step: i % step),
}
"""Keys of the window and of the interval of layers without it, its default, and which layers have it."""


@given(
    name=st.sampled_from(list(WINDOWED)),
    step=st.none() | st.integers(1, 4),
    layers=st.integers(1, 7),
    window=st.integers(2, 9),
    is_encoder=st.booleans(),
    data=st.data(),
)
def test_layers_with_a_window_are_those_of_the_interval_or_of_layer_types(
    name: str, step: int | None, layers: int, window: int, is_encoder: bool, data: st.DataObject
) -> None:
    """The window of an encoder spans both directions, and half of it each of them."""
    window_key, step_key, default, has_window = WINDOWED[name]
    settings: dict[str, Any] = {window_key: window, step_key: step}
    kinds = st.sampled_from(["sliding_attention", "full_attention"])
    types = data.draw(st.none() | st.lists(kinds, min_size=layers, max_size=layers + 1))
    settings["layer_types"] = types
    if name == "modernbert":
        settings |= dict.fromkeys(("num_key_value_heads", "bos_token_id", "eos_token_id"))
    else:
        settings["head_dim"] = 4
    is_encoder = name == "modernbert" or (is_encoder and name == "gemma3_text")
    if is_encoder and name != "modernbert":
        settings["use_bidirectional_attention"] = True
    found = config_of(name, layers, **settings).attention
    expected = [i for i in range(layers) if has_window(i, step or default)]
    if types is not None:
        expected = [i for i, kind in enumerate(types[:layers]) if kind == "sliding_attention"]
    assert [*found.window_layers] == expected
    assert found.window == (window // 2 + 1 if is_encoder else window)


@given(st.none() | st.just(16), st.none() | st.just(12), st.sampled_from(["llama3", "yarn"]))
def test_original_length_of_rotary_positions_is_that_of_the_config_or_of_the_scaling(
    of_config: int | None, of_scaling: int | None, kind: str
) -> None:
    key = "original_max_position_embeddings"
    scaling = {"rope_type": kind, "factor": 2.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    if kind == "yarn":
        scaling = {"rope_type": kind, "factor": 2.0}
    scaling |= {} if of_scaling is None else {key: of_scaling}
    config = config_of("llama", 1, rope_scaling=scaling, **{key: of_config})
    expected = of_config or of_scaling or SIZES["max_position_embeddings"]
    assert config.positions.rotary_scaling[key] == expected


@pytest.mark.parametrize("name", ["bart", "m2m_100", "mbart"])
@given(first=st.none() | st.integers(0, 8), bos=st.integers(0, 8))
def test_first_token_of_a_translation_is_that_of_the_decoder_or_bos(
    name: str, first: int | None, bos: int
) -> None:
    sizes = {
        "vocab_size": 9, "d_model": 8, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
        "decoder_attention_heads": 2, "encoder_ffn_dim": 8, "decoder_ffn_dim": 8, "max_position_embeddings": 20,
        "pad_token_id": 1, "bos_token_id": bos, "eos_token_id": 5, "decoder_start_token_id": first,
    }  # fmt: skip
    config = read_config(Settings(sizes, "config.json"), FAMILIES[name])
    assert config.bos_id == (bos if first is None else first)


@given(st.booleans(), st.sampled_from([1 / 255, 1 / 128, None]))
def test_means_of_pixels_are_at_most_the_largest_value(
    rescales: bool, factor: float | None
) -> None:
    largest = 255 * (factor or 1 / 255) if rescales else 255.0
    images = np.full((1, 2, 2, 1), 51, np.uint8)
    for share in (0.0, 0.5, 1.0, 1.01):
        settings = {"do_rescale": rescales, "image_mean": [share * largest], "image_std": [0.5]}
        settings |= {} if factor is None else {"rescale_factor": factor}
        with TemporaryDirectory() as folder:
            (Path(folder) / "preprocessor_config.json").write_text(json.dumps(settings))
            if share > 1:
                with pytest.raises(ValueError, match="image_mean must be a number for each of"):
                    nn.pixels(folder, images)
            else:
                expected = (0.2 - share) * largest / 0.5
                np.testing.assert_allclose(nn.pixels(folder, images), expected, rtol=1e-5)
