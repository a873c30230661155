"""Configurations: groups of options, and contradictions."""

from __future__ import annotations

import json
import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nn
from nn.options.config import ExtendedConfig, check_sizes, extended

SIZES: dict[str, Any] = {"vocab_size": 9, "d_model": 8, "num_heads": 2, "num_layers": 2, "d_ff": 12}
SCALING = {"rope_type": "linear", "factor": 2.0}
GROUPED = nn.DecoderOnlyConfig(
    **SIZES,
    attention=nn.AttentionConfig(
        num_kv_heads=1, head_dim=6, scale=0.3, bias="qk", qk_norm=True, softcap=5.0, window=3, window_layers=(0,), dropout=0.2,
    ),
    positions=nn.PositionConfig(
        kind="rotary", rotary_base=500.0, rotary_scaling=SCALING, rotary_dim=4, no_rotary_layers=(1,),
    ),
    embeddings=nn.EmbeddingConfig(scale=2.0, norm=True),
)  # fmt: skip


def test_config_from_dict_of_its_json_is_equal() -> None:
    assert nn.DecoderOnlyConfig.from_dict(json.loads(json.dumps(GROUPED.to_dict()))) == GROUPED


def test_load_weights_with_another_window_names_both(tmp_path: Path) -> None:
    path, model = tmp_path / "w.safetensors", nn.LanguageModel(GROUPED)
    nn.save_weights(path, model)
    nn.load_weights(path, model)
    narrow = replace(GROUPED, attention=replace(GROUPED.attention, window=2))
    with pytest.raises(ValueError, match=r"this one has attention.window=2 \(expected 3\)$"):
        nn.load_weights(path, nn.LanguageModel(narrow))


OTHER_VALUES: dict[str, Any] = {
    "offset": 2, "rotary_base": 500.0, "rotary_window_base": 50.0, "rotary_scaling": SCALING, "rotary_dim": 2, "no_rotary_layers": (1,),
    "relative_buckets": 8, "relative_max_distance": 20,
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
        attention = nn.AttentionConfig(window=9, window_layers=(1,))
        config = nn.EncoderConfig(**SIZES, attention=attention, positions=positions, max_len=12)
        model = nn.EncoderModel(config, np.random.default_rng(0))
        for p in model.parameters():
            p.data += np.random.default_rng(p.size).standard_normal(p.shape).astype(p.dtype)
        return [p.shape for p in model.parameters()], model.eval()(ids).data

    shapes, expected = outcome()
    assert {item.name for item in fields(nn.PositionConfig)} == {"kind", *OTHER_VALUES}
    for name, value in OTHER_VALUES.items():
        try:
            others, result = outcome(**{name: value})
        except ValueError as error:
            message = (
                rf"^positions.{name} must be .* of kind '{kind}', got {re.escape(repr(value))}"
            )
            assert re.search(message, str(error))
            assert not (name == "offset" and kind.startswith(("learned", "sinusoidal")))
            assert not (name.partition("_")[0] == kind and name != "rotary_window_base")
        else:
            assert others != shapes or not np.array_equal(result, expected), name


def lm(**options: Any) -> Any:
    return lambda: nn.DecoderOnlyConfig(**SIZES, **options)


WINDOW = nn.AttentionConfig(window=2, window_layers=(0, 2))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: nn.EncoderDecoderConfig(9, 9, 8, 2, tie="target", embeddings=nn.EmbeddingConfig(scale=True, size=4)), r"embeddings.size must be d_model \(8\) with tie='target', got 4"),
        (lambda: nn.TransformerConfig(9, 11, tie="all"), "target_vocab_size must be equal to source_vocab_size with tie='all', got 11 and 9"),
        (lambda: nn.TransformerConfig(9, 11, tie="embeddings"), "target_vocab_size must be equal to source_vocab_size with tie='embeddings', got 11 and 9"),
        *[(lambda kind=kind: nn.TransformerConfig(dtype=kind), f"dtype must be a floating dtype, got '{kind}'") for kind in ("int32", "bool", "complex64")],
        (lambda: nn.Transformer(nn.TransformerConfig(0, 9)), "Transformer: source_vocab_size must be at least 1, got 0"),
        (lambda: nn.PositionConfig(kind="circular"), "positions.kind must be one of none, sinusoidal, .*, got 'circular'"),
        *[(lambda letters=letters: nn.AttentionConfig(bias=letters), f"attention.bias must be a bool or some of the letters qkvo, got '{letters}'") for letters in ("qx", "out")],
        (lambda: nn.AttentionConfig(window_layers=[0]), r"attention.window_layers must be None without a window, got \(0,\)"),
        (lambda: nn.AttentionConfig(window_layers=()), r"attention.window_layers must be None without a window, got \(\)"),
        *[(lambda n=n: nn.EncoderConfig(num_layers=n, shared_layers=True, attention=WINDOW), r"attention.window_layers must be empty with shared_layers=True.*, got \(0, 2\)") for n in (1, 4)],
        (lm(attention=WINDOW), "attention.window_layers must be less than the 2 layers, got 2"),
        (lm(positions=nn.PositionConfig(kind="rotary", rotary_dim=3)), "rotary_dim must be even"),
        (lm(attention={"window": 2}), "attention must be of class AttentionConfig, got {'window': 2}"),
        (lambda: nn.EncoderConfig(image_size=9, patch_size=4), r"image_size must be a multiple of patch_size \(4\), got 9"),
        (lm(positions=nn.PositionConfig(kind="rotary", rotary_window_base=50.0)), "rotary_window_base must be None without attention.window, got 50"),
        (lm(norm_first=False, first_norm=False), "first_norm must be True, except with norm_first=True .*, got False"),
        (lambda: nn.LanguageModel(lm(norm_first=False, norm_after=True)()), "norm_after must be False, except with norm_first=True .*, got True"),
        (lm(logit_softcap=0.0), "logit_softcap must be at least 1e-30 .*, got 0.0"),
        (lm(pad_id=9), "pad_id must be at least 0 and less than the 9 tokens, got 9"),
    ],
)  # fmt: skip
def test_config_contradicting_options_raise(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"attention": {"windows": 3}}, "c.json: unknown settings: windows; expected some of bias"),
        ({"attention": {"window": 3}, "window": 3}, "c.json: unknown settings: window"),
        (
            {"attention": {"window": "3"}},
            "c.json: attention.window must be an integer or null, got '3'",
        ),
        ({"attention": 3}, "c.json: attention must be of class AttentionConfig, got 3"),
        ({"positions": 3}, "c.json: positions.kind must be a string, got 3"),
    ],
)
def test_config_from_dict_wrong_group_raises(data: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        nn.DecoderOnlyConfig.from_dict(data, "c.json")


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (nn.DecoderOnlyConfig(max_len=2049), r"max_len must be at most 2048 \(the largest size of an array in f\), got 2049"),
        (nn.EncoderDecoderConfig(max_len=10**12), r"max_len must be at most 262144 \(the limit of a table of positions\), got"),
        (lm(positions=nn.PositionConfig(kind="relative", relative_buckets=2049))(), "relative_buckets must be at most 2048"),
        (lm(positions=nn.PositionConfig(kind="learned_relative", relative_buckets=2049))(), "relative_buckets must be at most 2048"),
        (lm(embeddings=nn.EmbeddingConfig(scale=True, size=2049), tie=False)(), "embeddings.size must be at most 2048"),
        (lm(attention=nn.AttentionConfig(head_dim=2049))(), "attention.head_dim must be at most 2048"),
        (lm(positions=nn.PositionConfig(kind="learned", offset=2049))(), "positions.offset must be at most 2048"),
        *[(nn.EncoderConfig(**SIZES | {name: 10**12}), f"{name} must be at most 2048") for name in ("num_types", "num_classes", "vocab_size", "d_ff")],
        (nn.EncoderConfig(positions="learned", image_size=1 << 22, patch_size=4), "image_size must be at most 2048"),
        (nn.EncoderConfig(image_size=4, patch_size=4, num_channels=10**12), "num_channels must be at most 2048"),
    ],
)  # fmt: skip
def test_check_sizes_refuses_arrays_larger_than_those_of_a_file(config: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_sizes(config, {f"layer {i}": (2048, 512) for i in range(6)}, "f")


def test_check_sizes_compares_the_number_of_patches_of_images() -> None:
    shapes, config = {"a": (64, 32), "b": (1,)}, nn.EncoderConfig(**SIZES, positions="learned")
    check_sizes(replace(config, patch_size=64, image_size=448), shapes, "f")  # 50 positions
    with pytest.raises(ValueError, match="image_size must be at most 64"):
        check_sizes(replace(config, patch_size=64, image_size=512), shapes, "f")


def test_value_that_equals_a_default_but_has_another_type_is_refused() -> None:
    default = nn.EncoderConfig()
    for name, value in default.flatten(default.to_dict()).items():
        if type(value) in (bool, int) and name != "embeddings.scale":  # which may be a number
            other = int(value) if isinstance(value, bool) else float(value)
            with pytest.raises(ValueError, match=f"{name} must be .*, got {other}"):
                nn.EncoderConfig.from_dict({name: other})


@pytest.mark.parametrize("kind", [nn.LanguageModelConfig, nn.DecoderOnlyConfig])
def test_numbers_of_a_configuration_are_refused_beyond_their_limits(kind: Any) -> None:
    for name in ("d_model", "num_heads", "d_ff", "max_len"):
        with pytest.raises(ValueError, match=f"{name} must be at least 1, got 0"):
            kind(**SIZES | {name: 0})
    assert kind(**SIZES | {"num_layers": 0}).num_layers == 0
    with pytest.raises(ValueError, match="num_layers must be at least 0, got -1"):
        kind(**SIZES | {"num_layers": -1})
    for name in ("num_encoder_layers", "num_decoder_layers"):
        for pair in (nn.TransformerConfig, nn.EncoderDecoderConfig):
            with pytest.raises(ValueError, match=f"{name} must be at least 0, got -1"):
                pair(9, 9, **{name: -1})
    for dropout in (0.0, float(np.nextafter(1, 0))):
        assert kind(**SIZES, dropout=dropout).dropout == dropout
    for dropout in (-1e-9, 1.0):
        with pytest.raises(ValueError, match="dropout must be .*less than 1, got"):
            kind(**SIZES, dropout=dropout)
    with pytest.raises(ValueError, match="positions.* must be .*'sinusoidal|kind must be one of"):
        kind(**SIZES, positions="circular")
    with pytest.raises(ValueError, match="positions must be 'sinusoidal' or 'learned', got 'none'"):
        nn.LanguageModelConfig(**SIZES, positions="none")
    with pytest.raises(ValueError, match="d_model must be divisible by num_heads, .*num_heads=0"):
        nn.MultiHeadAttention(8, 0)


@pytest.mark.parametrize("name", ["pad_id", "bos_id", "eos_id"])
def test_ids_of_special_tokens_are_below_the_number_of_tokens(name: str) -> None:
    others = {"pad_id": None, "bos_id": None, "eos_id": None}
    for values in (8, (3, 8)) if name == "eos_id" else (8,):
        assert getattr(nn.LanguageModelConfig(9, **{**others, name: values}), name) == values
        assert nn.TransformerConfig(20, 9, **{**others, name: values}).vocabulary == 9
    for values in (9, -1, (3, 9), (-1, 3)) if name == "eos_id" else (9, -1):
        for make in (
            nn.LanguageModelConfig,
            nn.EncoderConfig,
            lambda n, **o: nn.TransformerConfig(20, n, **o),
        ):
            with pytest.raises(
                ValueError, match=f"{name} must be at least 0( and less than the 9|, got)"
            ):
                make(9, **{**others, name: values})
    assert nn.LanguageModelConfig(**{**others, name: 99}).vocabulary == 0  # not set yet
    with pytest.raises(ValueError, match=f"{name} must be at least 0, got -1"):
        nn.LanguageModelConfig(**{**others, name: -1})
    assert nn.LanguageModelConfig(eos_id=np.int64(3)).end_ids == (3,)


PAPER = {
    "dropout": 0.1, "activation": "relu", "norm_first": False, "positions": "sinusoidal", "max_len": 512, "output_bias": True,
    "dtype": "float32", "d_model": 512, "num_heads": 8, "d_ff": 2048,
}  # fmt: skip
SMALL = {"d_model": 256, "num_heads": 4, "num_layers": 4, "d_ff": 1024, "vocab_size": 0}
DEFAULTS: dict[Any, dict[str, Any]] = {
    nn.TransformerConfig: {
        **PAPER, "source_vocab_size": 0, "target_vocab_size": 0, "num_encoder_layers": 6, "num_decoder_layers": 6,
        "tie": "none", "pad_id": 0, "bos_id": 1, "eos_id": 2,
    },
    nn.LanguageModelConfig: {
        **PAPER, **SMALL, "tie": True, "norm_first": True, "positions": "learned", "output_bias": False, "pad_id": None,
        "bos_id": None, "eos_id": None,
    },
    nn.EncoderConfig: {
        **PAPER, **SMALL, "num_types": 0, "shared_layers": False, "num_classes": 0, "pool": "mean",
        "head_activation": "none", "head_norm": False, "head_dropout": None, "image_size": 0, "patch_size": 0, "num_channels": 3,
        "pad_id": 0, "bos_id": None, "eos_id": None, "attention": nn.AttentionConfig(), "embeddings": nn.EmbeddingConfig(scale=True),
        "positions": nn.PositionConfig(kind="sinusoidal"),
        "activation_dropout": None, "bias": True, "gated": False, "norm": "layer", "norm_eps": 1e-5, "norm_after": False,
        "first_norm": True, "final_norm": None, "output_scale": 1.0, "pruned_heads": {},
    },
    nn.AttentionConfig: {
        **dict.fromkeys(("num_kv_heads", "head_dim", "scale", "bias", "softcap", "window", "window_layers", "dropout")),
        "qk_norm": False,
    },
    nn.PositionConfig: {
        "offset": 0, "rotary_base": 10000.0, "rotary_scaling": None, "rotary_window_base": None, "rotary_dim": None,
        "no_rotary_layers": (), "relative_buckets": 32, "relative_max_distance": 128,
    },
    nn.EmbeddingConfig: {"norm": False, "size": None},
}  # fmt: skip
"""Sizes of the paper's base model, and smaller ones. Saved files may leave out what is equal."""


@pytest.mark.parametrize("kind", DEFAULTS)
def test_defaults_are_those_of_the_paper(kind: Any) -> None:
    required = {"kind": "sinusoidal"} if kind is nn.PositionConfig else {}
    required = {"scale": True} if kind is nn.EmbeddingConfig else required
    config = kind(**required)
    found = {item.name: getattr(config, item.name) for item in fields(kind) if item.name != "_"}
    assert found == {**DEFAULTS[kind], **required}


def test_extended_configuration_of_a_book_model_has_all_its_values() -> None:
    values: dict[str, Any] = {
        "dropout": 0.3, "activation": "relu", "norm_first": True, "positions": "learned", "max_len": 7, "output_bias": True,
        "pad_id": 3, "bos_id": 4, "eos_id": (5, 6), "dtype": "float64", "tie": "target", "d_ff": 12, "d_model": 8, "num_heads": 2,
    }  # fmt: skip
    for config in (
        nn.TransformerConfig(19, 9, **values),
        nn.LanguageModelConfig(**SIZES | values | {"tie": False, "norm_first": False}),
    ):
        made = extended(config)
        assert made == extended(made) and isinstance(made, ExtendedConfig)
        for item in fields(config):
            value = getattr(made, item.name)
            value = value.kind if item.name == "positions" else value
            assert value == getattr(config, item.name), item.name


def test_extended_configurations_have_the_defaults_of_the_book() -> None:
    """Except the activation of decoder-only models, which is GPT-2's."""
    for kind, with_options in (
        (nn.TransformerConfig, nn.EncoderDecoderConfig),
        (nn.LanguageModelConfig, nn.DecoderOnlyConfig),
    ):
        config, plain = with_options(), kind()
        for item in fields(kind):
            if item.name == "positions":
                assert config.positions == nn.PositionConfig(kind=plain.positions)
            elif item.name != "activation":
                assert getattr(config, item.name) == getattr(plain, item.name)
    config = nn.DecoderOnlyConfig()
    assert (config.activation, config.parallel, config.logit_softcap) == ("gelu_tanh", False, None)
    assert config.embeddings == nn.EmbeddingConfig(scale=False)
    assert nn.EncoderDecoderConfig().embeddings == nn.EmbeddingConfig(scale=True)


def test_limit_of_positions_is_that_of_a_table() -> None:
    limited = {"sinusoidal", "sinusoidal_halves", "sinusoidal_last", "learned", "learned_relative"}
    for kind in KINDS:
        limit = lm(positions=kind, max_len=7)().position_limit
        assert limit == (7 if kind in limited else None)


def test_rotary_positions_of_a_window_have_no_scaling() -> None:
    positions = nn.PositionConfig(kind="rotary", rotary_scaling=SCALING, rotary_dim=2)
    rotary = lm(positions=positions)().rotary
    assert (rotary().base, rotary().scaling, rotary().rotary_dim) == (10000.0, SCALING, 2)
    assert (rotary(50.0).base, rotary(50.0).scaling, rotary(50.0).rotary_dim) == (50.0, {}, 2)
    for size in (1 << 16, (1 << 16) + 2):
        make = lm(attention=nn.AttentionConfig(head_dim=size), positions="rotary")
        if size == 1 << 16:
            assert make().size_of_head == size
        else:
            with pytest.raises(ValueError, match="attention.head_dim must be at most 65536"):
                make()


@pytest.mark.parametrize("bias", [True, False])
def test_effective_configuration_has_values_in_place_of_none(bias: bool) -> None:
    """Zeros are values, too, and equal descriptions become equal."""
    for letters, expected in (
        ("", False),
        ("ovkq", True),
        ("ok", "ko"),
        (None, bias),
        (True, True),
    ):
        config = lm(bias=bias, attention=nn.AttentionConfig(bias=letters))()
        assert config.effective.attention.bias == expected
    config = nn.EncoderConfig(
        **SIZES, dropout=0.5, activation_dropout=0.0, head_dropout=0.0, final_norm=False, norm_first=True,
        attention=nn.AttentionConfig(dropout=0.0), embeddings=nn.EmbeddingConfig(scale=True, size=2),
    ).effective  # fmt: skip
    assert (config.activation_dropout, config.head_dropout, config.attention.dropout) == (0, 0, 0)
    assert config.final_norm is False and config.embeddings.scale == 8**0.5
    config = lm(dropout=0.5, norm_first=True, positions="rotary")().effective
    assert (config.activation_dropout, config.attention.dropout, config.final_norm) == (
        0.5,
        0.5,
        True,
    )
    assert (config.attention.num_kv_heads, config.attention.head_dim) == (2, 4)
    assert config.attention.scale == 0.5 and config.positions.rotary_dim == 4
    assert (config.embeddings.scale, config.embeddings.size) == (1.0, 8)
    assert config.effective == config
    config = lm(attention=nn.AttentionConfig(head_dim=16, num_kv_heads=1), positions="rotary")()
    assert config.effective.attention == nn.AttentionConfig(
        head_dim=16, num_kv_heads=1, scale=0.25, bias=True, dropout=0.1
    )
    assert config.effective.positions.rotary_dim == 16


@pytest.mark.parametrize("size", [4, 8, None])
def test_tied_tables_need_the_width_of_the_model(size: int | None) -> None:
    embeddings = nn.EmbeddingConfig(scale=True, size=size)
    pair = lambda tie: nn.EncoderDecoderConfig(9, 9, 8, 2, tie=tie, embeddings=embeddings)
    cases = {
        "none": (lambda: pair("none"), False), "embeddings": (lambda: pair("embeddings"), False),
        "target": (lambda: pair("target"), True), "all": (lambda: pair("all"), True),
        "True": (lm(tie=True, embeddings=embeddings), True), "after": (lm(tie=True, norm_first=False, embeddings=embeddings), True),
        "False": (lm(tie=False, embeddings=embeddings), False),
    }  # fmt: skip
    for make, is_shared in cases.values():
        if is_shared and size == 4:
            with pytest.raises(
                ValueError, match=r"embeddings.size must be d_model \(8\) with tie="
            ):
                make()
        else:
            assert make().embeddings.size == size


def test_images_have_patches_of_their_size() -> None:
    for size, patches in ((4, 1), (8, 4), (12, 9)):
        assert nn.EncoderConfig(image_size=size, patch_size=4).max_len == patches + 1
    for size in (0, 3, 6):
        with pytest.raises(ValueError, match=r"image_size must be a multiple of patch_size \(4\)"):
            nn.EncoderConfig(image_size=size, patch_size=4)


def test_check_sizes_allows_what_a_file_may_hold() -> None:
    """A shared layer is used any number of times up to 10,000."""
    shapes = {"a": (16, 8), "b": (8,), "c": (12,)}
    for depth, shared in ((3, False), (4, False), (10_000, True), (10_001, True)):
        config = nn.EncoderConfig(**SIZES | {"num_layers": depth}, shared_layers=shared)
        if depth in (4, 10_001):
            with pytest.raises(ValueError, match=f"num_layers must be at most {depth - 1}"):
                check_sizes(config, shapes, "f")
        else:
            check_sizes(config, shapes, "f")
    for length in ((1 << 27) // 8, (1 << 27) // 8 + 1):
        config = nn.EncoderConfig(**SIZES, max_len=length)
        if length % 2:
            with pytest.raises(ValueError, match="max_len must be at most 16777216"):
                check_sizes(config, shapes, "f")
        else:
            check_sizes(config, shapes, "f")
    for kind in ("learned", "learned_relative", "relative", "alibi", "none", "rotary"):
        few = {"relative_buckets": 16} if "relative" in kind else {}
        config = nn.EncoderConfig(
            **SIZES, positions=nn.PositionConfig(kind=kind, **few), max_len=17
        )
        if kind.startswith("learned"):
            with pytest.raises(ValueError, match="max_len must be at most 16"):
                check_sizes(config, shapes, "f")
        else:
            check_sizes(config, shapes, "f")


def position(name: str, value: Any) -> nn.PositionConfig:
    kind = "rotary" if "rotary" in name else "relative" if "relative" in name else "learned"
    return nn.PositionConfig(kind=kind, **{name: value})


LIMITS: dict[str, tuple[Any, float, float]] = {
    "output_scale": (nn.DecoderOnlyConfig, 1e-30, 1e30), "logit_softcap": (nn.DecoderOnlyConfig, 1e-30, 1e30), "norm_eps": (nn.DecoderOnlyConfig, 1e-30, 1),
    "activation_dropout": (nn.DecoderOnlyConfig, 0, 1), "head_dropout": (nn.EncoderConfig, 0, 1), "num_channels": (nn.EncoderConfig, 1, 0),
    "num_types": (nn.EncoderConfig, 0, 0), "num_classes": (nn.EncoderConfig, 0, 0), "image_size": (nn.EncoderConfig, 0, 0),
    "num_kv_heads": (nn.AttentionConfig, 1, 0), "head_dim": (nn.AttentionConfig, 1, 0), "window": (nn.AttentionConfig, 1, 0),
    "scale": (nn.AttentionConfig, 1e-30, 1e30), "softcap": (nn.AttentionConfig, 1e-30, 1e30), "dropout": (nn.AttentionConfig, 0, 1),
    "size": (lambda **o: nn.EmbeddingConfig(scale=True, **o), 1, 0), "offset": (position, 0, 0), "rotary_dim": (position, 1, 0),
    "rotary_base": (position, 1, np.inf), "rotary_window_base": (position, 1, np.inf),
    "relative_buckets": (position, 1, 0), "relative_max_distance": (position, 1, 0),
}  # fmt: skip
"""For each number, what takes it, the least value, and the first that is too large, or 0 for integers."""


@pytest.mark.parametrize("name", LIMITS)
def test_numbers_of_all_options_are_refused_beyond_their_limits(name: str) -> None:
    make, low, high = LIMITS[name]
    of = (lambda x: make(name, x)) if make is position else lambda x: make(**{name: x})
    beside = [low - 1, low] if not high else [np.nextafter(low, -1).item(), low]
    if 0 < high < np.inf:
        beside += [np.nextafter(high, 0).item(), high]
    for value in beside:
        if low <= value < (high or np.inf):
            assert getattr(of(value), name) == value
        else:
            with pytest.raises(ValueError, match=f"{name} must be at least {low:g}"):
                of(value)


def test_config_from_dict_keeps_defaults_of_groups_beside_other_options() -> None:
    data = {**SIZES, "positions": {"offset": 2}, "embeddings.norm": True, "attention": {}}
    config = nn.DecoderOnlyConfig.from_dict(data)
    assert config.positions == nn.PositionConfig(kind="learned", offset=2)
    assert config.embeddings == nn.EmbeddingConfig(scale=False, norm=True)


def test_layers_of_options_can_be_a_range_and_are_all_checked() -> None:
    make = lambda layers: nn.AttentionConfig(window=2, window_layers=layers)
    config = lm(attention=make(range(2)))()
    assert config == lm(attention=make([0, 1]))() and json.loads(json.dumps(config.to_dict()))
    deep = {"num_encoder_layers": 1, "num_decoder_layers": 3}
    assert nn.EncoderDecoderConfig(9, 9, **deep, attention=make([2])).depth == 3
    with pytest.raises(ValueError, match="window_layers must be less than the 3 layers, got 3"):
        nn.EncoderDecoderConfig(9, 9, **deep, attention=make([0, 3]))
    for wrong in ((0, -1), [1, -2, 0]):
        with pytest.raises(ValueError, match="window_layers must be at least 0, got"):
            make(wrong)
    positions = nn.PositionConfig(kind="rotary", rotary_window_base=50.0)
    windowed = lm(positions=positions, attention=nn.AttentionConfig(window=2))()
    assert windowed.positions.rotary_window_base == 50
    with pytest.raises(ValueError, match="rotary_window_base must be None without attention"):
        lm(positions=positions)()
    options: dict[str, Any] = {"norm_first": True, "first_norm": False}
    assert not nn.EncoderConfig(9, **options).first_norm
    with pytest.raises(ValueError, match="first_norm must be True, except with norm_first=True"):
        nn.EncoderConfig(9, **options, shared_layers=True)
