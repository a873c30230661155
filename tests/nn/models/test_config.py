"""Configurations: groups of options, contradictions, and files of version 0.2."""

from __future__ import annotations

import json
import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nn
from nn.models.config import FLAT_NAMES, GROUPS

SIZES: dict[str, Any] = {"vocab_size": 9, "d_model": 8, "num_heads": 2, "num_layers": 2, "d_ff": 12}
VERSION_0_2: dict[str, Any] = {  # asdict of a LanguageModelConfig of version 0.2
    "dropout": 0.1, "attention_dropout": 0.2, "activation_dropout": None, "activation": "silu", "gated": True,
    "norm": "rms", "norm_eps": 1e-6, "norm_first": True, "final_norm": None, "bias": False, "attention_bias": "qk",
    "num_kv_heads": 1, "head_dim": 6, "attention_scale": 0.3, "qk_norm": True, "window": 3, "window_layers": [0],
    "positions": "rotary", "position_offset": 0, "max_len": 16, "rotary_base": 500.0,
    "rotary_scaling": {"rope_type": "linear", "factor": 2.0}, "rotary_dim": 4, "no_rotary_layers": [1],
    "relative_buckets": 32, "relative_max_distance": 128, "scale_embedding": 2.0, "embedding_norm": True,
    "embedding_size": None, "output_bias": False, "output_scale": 0.5, "pad_id": 0, "bos_id": 1, "eos_id": [2, 3],
    "dtype": "float32", "pruned_heads": {}, **SIZES, "tie": True, "parallel": False,
}  # fmt: skip
GROUPED = nn.LanguageModelConfig(
    **SIZES,
    max_len=16,
    activation="silu",
    gated=True,
    norm="rms",
    norm_eps=1e-6,
    bias=False,
    attention=nn.AttentionConfig(
        num_kv_heads=1,
        head_dim=6,
        scale=0.3,
        bias="qk",
        qk_norm=True,
        window=3,
        window_layers=(0,),
        dropout=0.2,
    ),
    positions=nn.PositionConfig(
        kind="rotary",
        rotary_base=500.0,
        rotary_scaling={"rope_type": "linear", "factor": 2.0},
        rotary_dim=4,
        no_rotary_layers=(1,),
    ),
    embeddings=nn.EmbeddingConfig(scale=2.0, norm=True),
    output_scale=0.5,
    pad_id=0,
    bos_id=1,
    eos_id=(2, 3),
)


def test_config_of_version_0_2_is_grouped() -> None:
    assert nn.LanguageModelConfig.from_dict(VERSION_0_2) == GROUPED
    assert nn.LanguageModelConfig.from_dict(json.loads(json.dumps(GROUPED.to_dict()))) == GROUPED


def test_config_of_version_0_2_with_options_that_had_no_effect_loads() -> None:
    ignored = {"positions": "learned", "window": None, "window_layers": [1]}
    config = nn.LanguageModelConfig.from_dict(VERSION_0_2 | ignored)
    assert config.positions == nn.PositionConfig(kind="learned")
    assert config.attention.window_layers is None


@pytest.mark.parametrize(
    ("kind", "scale"), [("TransformerConfig", True), ("EncoderConfig", True), ("LanguageModelConfig", False)]
)  # fmt: skip
def test_config_of_version_0_2_without_some_options_has_the_defaults(
    kind: str, scale: bool
) -> None:
    config = getattr(nn, kind).from_dict({"attention_dropout": 0.2})
    assert config == getattr(nn, kind)(attention=nn.AttentionConfig(dropout=0.2))
    assert config.embeddings.scale is scale


def test_load_weights_of_version_0_2_compares_configurations(tmp_path: Path) -> None:
    path, model = tmp_path / "w.safetensors", nn.LanguageModel(GROUPED, np.random.default_rng(0))
    older = {"model": "LanguageModel", **VERSION_0_2}
    nn.save_weights(path, model)
    again = nn.load_run(path)
    assert again.config == GROUPED
    arrays, _ = nn.models.weights.load_arrays(path)
    nn.models.weights.save_arrays(path, arrays, {"model": older})
    again = nn.load_run(path)
    ids = np.array([[1, 4, 5, 7, 8]])
    np.testing.assert_array_equal(again(ids).data, model.eval()(ids).data)
    narrow = replace(GROUPED, attention=replace(GROUPED.attention, window=2))
    with pytest.raises(ValueError, match=r"attention.window=2 \(expected 3\)$"):
        nn.load_weights(path, nn.LanguageModel(narrow))


@pytest.mark.parametrize("name", FLAT_NAMES)
def test_flat_name_of_version_0_2_is_an_error_with_its_replacement(name: str) -> None:
    group, _, option = FLAT_NAMES[name].partition(".")
    expected = f"use {group}=nn.{GROUPS[group].__name__}({option}=...), config.{group}.{option}"
    with pytest.raises(TypeError, match=f"no argument '{name}'; {re.escape(expected)}"):
        nn.LanguageModelConfig(**SIZES, **{name: None})
    with pytest.raises(TypeError, match=re.escape(expected)):
        replace(GROUPED, **{name: None})
    with pytest.raises(AttributeError, match=f"no attribute '{name}'; {re.escape(expected)}"):
        getattr(GROUPED, name)


@pytest.mark.parametrize("name", ["has_final_norm", "embedding_factor"])
def test_removed_property_of_config_is_an_error_with_its_replacement(name: str) -> None:
    with pytest.raises(AttributeError, match=r"no attribute '\w+'; use config.effective\(\)\.\w+"):
        getattr(GROUPED, name)


def test_config_positions_string_is_their_kind() -> None:
    config = nn.LanguageModelConfig(**SIZES, positions="alibi")
    assert config.positions == nn.PositionConfig(kind="alibi")
    assert replace(config, positions="rotary").positions == nn.PositionConfig(kind="rotary")


OTHER_VALUES: dict[str, Any] = {
    "num_kv_heads": 1, "head_dim": 6, "scale": 0.3, "bias": "qk", "qk_norm": True, "window": 3, "dropout": 0.2,
    "offset": 2, "rotary_base": 500.0, "rotary_scaling": {"rope_type": "linear", "factor": 2.0}, "rotary_dim": 2,
    "no_rotary_layers": (1,), "relative_buckets": 8, "relative_max_distance": 20, "norm": True, "size": 4,
}  # fmt: skip
KINDS = [
    "sinusoidal", "sinusoidal_halves", "sinusoidal_last", "learned", "rotary", "relative", "learned_relative",
    "alibi", "none",
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_positions_option_changes_the_model_or_is_refused(kind: str) -> None:
    """Expect other outputs or shapes of parameters."""
    ids = np.array([[1, 4, 5, 7, 8, 3, 2, 6, 8, 5, 1, 7]])

    def outcome(**options: Any) -> Any:
        positions = nn.PositionConfig(kind=kind, **options)
        model = nn.EncoderModel(
            nn.EncoderConfig(**SIZES, positions=positions, max_len=12), np.random.default_rng(0)
        )
        for p in model.parameters():
            p.data += np.random.default_rng(p.size).standard_normal(p.shape).astype(p.dtype)
        return {n: p.shape for n, p in model.named_parameters()}, model.eval()(ids).data

    shapes, expected = outcome()
    for item in fields(nn.PositionConfig):
        if item.name == "kind":
            continue
        try:
            others, result = outcome(**{item.name: OTHER_VALUES[item.name]})
        except ValueError as error:
            value = re.escape(repr(OTHER_VALUES[item.name]))
            assert re.search(
                rf"^positions.{item.name} must be .* of kind '{kind}', got {value}", str(error)
            )
        else:
            assert others != shapes or not np.array_equal(result, expected), item.name


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: nn.TransformerConfig(9, 11, tie="all"), "target_vocab_size must be equal to source_vocab_size with tie='all', got 11 and 9"),
        (lambda: nn.TransformerConfig(d_model=8, num_heads=3), "d_model must be divisible by num_heads, got d_model=8 and num_heads=3"),
        (lambda: nn.TransformerConfig(dtype="int32"), "dtype must be a floating dtype, got 'int32'"),
        (lambda: nn.Transformer(nn.TransformerConfig(0, 9)), "Transformer: source_vocab_size must be at least 1, got 0"),
        (lambda: nn.PositionConfig(kind="learned", rotary_base=5.0), "positions.rotary_base must be 10000.0 for positions of kind 'learned', got 5.0"),
        (lambda: nn.PositionConfig(kind="circular"), "positions.kind must be one of none, sinusoidal, .*, got 'circular'"),
        (lambda: nn.AttentionConfig(window_layers=[0]), r"attention.window_layers must be None without a window, got \(0,\)"),
        (lambda: nn.AttentionConfig(bias="xy"), "attention.bias must be a bool or some of the letters qkvo, got 'xy'"),
        (lambda: nn.EmbeddingConfig(scale=0.0), "embeddings.scale must be at least 1e-30 and less than 1e\\+30, got 0.0"),
        (lambda: nn.EncoderConfig(**SIZES, shared_layers=True, positions=nn.PositionConfig(kind="rotary", no_rotary_layers=(1,))),
         r"positions.no_rotary_layers must be empty with shared_layers=True.*, got \(1,\)"),
        (lambda: nn.EncoderConfig(**SIZES, shared_layers=True, attention=nn.AttentionConfig(window=2, window_layers=(0,))),
         r"attention.window_layers must be empty with shared_layers=True.*, got \(0,\)"),
        (lambda: nn.LanguageModelConfig(**SIZES, attention=nn.AttentionConfig(window=2, window_layers=(0, 2))),
         "attention.window_layers must be less than the 2 layers, got 2"),
        (lambda: nn.LanguageModelConfig(**SIZES, attention={"window": 2}), "attention must be of class AttentionConfig, got {'window': 2}"),  # type: ignore[arg-type]
        (lambda: nn.LanguageModelConfig(**SIZES, gated="no"), "gated must be true or false, got 'no'"),  # type: ignore[arg-type]
    ],
)  # fmt: skip
def test_config_contradicting_options_raise(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"attention": {"windows": 3}}, "c.json: unknown settings: windows; expected some of bias"),
        ({"attention": 3}, "c.json: attention must be of class AttentionConfig, got 3"),
        ({"attention": {"window": 3}, "window": 3}, "c.json: unknown settings: window"),
        ({"positions": {"kind": "rotary", "offset": 2}}, "c.json: positions.offset must be 0"),
        ({"window": "three"}, "c.json: attention.window must be an integer or null, got 'three'"),
    ],
)  # fmt: skip
def test_config_from_dict_wrong_group_raises(data: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        nn.LanguageModelConfig.from_dict(data, "c.json")
