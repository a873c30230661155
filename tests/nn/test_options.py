"""Each option of a layer or of a configuration has an effect, alone and beside others."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.environment import max_examples
from support.properties import perturb

import minigrad as mg
import nn

X = np.random.default_rng(0).standard_normal((2, 5, 4)).astype(np.float32)
IDS = np.array([[1, 4, 5, 7, 8, 3, 2], [6, 8, 5, 1, 7, 0, 0]])

LAYERS: dict[type, tuple[tuple[int, ...], int]] = {
    nn.AdditiveAttention: ((4, 4, 5), 3),
    nn.BatchNorm1d: ((4,), 1),
    nn.DotProductAttention: ((), 3),
    nn.Dropout: ((), 1),
    nn.ExtendedAttention: ((4, 2), 1),
    nn.ExtendedDecoderLayer: ((4, 2, 8), 2),
    nn.ExtendedEncoderLayer: ((4, 2, 8), 1),
    nn.ExtendedFeedForward: ((4, 6), 1),
    nn.FeedForward: ((4, 6), 1),
    nn.LayerNorm: ((4,), 1),
    nn.LearnedPositions: ((8, 4), 1),
    nn.Linear: ((4, 3), 1),
    nn.MultiHeadAttention: ((4, 2), 1),
    nn.RMSNorm: ((4,), 1),
    nn.SinusoidalPositions: ((8, 4), 1),
    nn.TransformerDecoderLayer: ((4, 2, 8), 2),
    nn.TransformerEncoderLayer: ((4, 2, 8), 1),
}
"""Sizes of each layer, and the number of its inputs."""

OTHER: dict[str, Any] = {
    "activation": "tanh", "activation_dropout": 0.5, "affine": False, "attention": {"scale": 2.0}, "bias": False,
    "cross_attention": {"scale": 2.0}, "dropout": 0.4, "dtype": np.float64, "elementwise_affine": False, "eps": 0.3,
    "gated": True, "head_dim": 3, "momentum": 0.7, "norm": "rms", "norm_after": True, "norm_eps": 0.3, "norm_first": True,
    "num_kv_heads": 1, "offset": 2, "p": 0.1, "parallel": True, "position_bias": nn.ALiBi(2), "qk_norm": 0.1,
    "rotary": lambda heads, positions: 2 * heads, "scale": 2.0, "softcap": 0.5, "std": 0.7, "window": 1, "zero_centred": True,
}  # fmt: skip
"""Another value than the default of each option."""
ZEROS = {"activation_dropout", "eps", "norm_eps", "qk_norm", "std"}
"""Options whose 0 is neither the default nor None."""
BESIDE: dict[str, dict[str, Any]] = {
    "first_norm": {"norm_first": True},
    "norm_after": {"norm_first": True},
    "parallel": {"norm_first": True},
    "zero_centred": {"qk_norm": 0.1},
}
"""Options without which another one is refused or has no effect."""


REFUSED = {nn.ExtendedEncoderLayer: "cross_attention", nn.ExtendedDecoderLayer: "parallel"}
"""An option that a layer refuses, whose class has it for other layers."""


def options_of(kind: type) -> list[str]:
    """Return the names of options of a layer that have another value in `OTHER`."""
    names = inspect.signature(kind).parameters.keys() & OTHER.keys()
    return sorted(names - {REFUSED.get(kind)})


def effects(layer: nn.Module, compute: Callable[[], Any]) -> list[Any]:
    """Return what an option may change: initial arrays, results in both modes, and statistics."""
    initial = [(name, a.dtype, a.tobytes()) for name, a in layer.state_dict().items()]
    perturb(layer, 0)
    results = []
    for is_training in (True, False):
        mg.manual_seed(0)
        layer.train(is_training)
        y = compute()
        results.append((y.dtype, y.data.tobytes()))
    return [initial, results, [a.tobytes() for a in layer.state_dict().values()]]


def effects_of(kind: type, **options: Any) -> list[Any]:
    sizes, count = LAYERS[kind]
    mg.manual_seed(0)
    layer = kind(*sizes, **options)
    return effects(layer, lambda: layer(*[X] * count))


@pytest.mark.parametrize("kind", LAYERS)
def test_option_of_a_layer_has_an_effect(kind: type) -> None:
    known, base = inspect.signature(kind).parameters, effects_of(kind)
    for name in options_of(kind):
        beside = {key: x for key, x in BESIDE.get(name, {}).items() if key in known}
        others = effects_of(kind, **beside) if beside else base
        assert effects_of(kind, **beside, **{name: OTHER[name]}) != others, name
    for name in known.keys() & ZEROS:
        assert effects_of(kind, **{name: 0.0}) != base, name


@pytest.mark.parametrize("kind", LAYERS)
def test_layer_in_training_evaluates_in_a_block_of_evaluating(kind: type) -> None:
    """Draw nothing, and keep statistics and the arrays of `state_dict`."""
    (sizes, count), known = LAYERS[kind], inspect.signature(kind).parameters
    layer = kind(*sizes, **{"dropout": 0.5} if "dropout" in known else {})
    arrays, state = layer.state_dict(), mg.get_rng_state()
    layer(*[X] * count)
    before = {name: array.copy() for name, array in arrays.items()}
    with nn.evaluating():
        mg.set_rng_state(state)
        y = layer(*[X] * count)
    assert mg.get_rng_state() == state and all((arrays[n] == x).all() for n, x in before.items())
    np.testing.assert_array_equal(layer.eval()(*[X] * count).data, y.data)
    for name, array in layer.state_dict().items():
        assert np.shares_memory(array, arrays[name])


@pytest.mark.parametrize("kind", LAYERS)
@max_examples(8)
@given(data=st.data())
def test_options_of_a_layer_hold_beside_others(kind: type, data: st.DataObject) -> None:
    """Arrays have the dtype, none is a bias without `bias`, and all draws are of the generator.

    A copy, and one for inference, gives the same results of several rows and of one.
    """
    names = options_of(kind)
    chosen = data.draw(st.lists(st.booleans(), min_size=len(names), max_size=len(names)))
    names = [name for name, is_chosen in zip(names, chosen) if is_chosen]
    known, (sizes, count) = inspect.signature(kind).parameters, LAYERS[kind]
    options = {name: OTHER[name] for name in names if name in known}
    state, results = mg.get_rng_state(), []
    for _ in range(2):
        if "generator" in known:
            options["generator"] = np.random.default_rng(0)
        try:
            layer = kind(*sizes, **options)
        except ValueError as error:
            assert {*BESIDE} & options.keys(), error
            return
        with mg.no_grad():
            results.append(layer(*[X] * count))
    if "generator" in known:
        assert mg.get_rng_state() == state
        np.testing.assert_array_equal(results[0].data, results[1].data)
    arrays, dtype = layer.state_dict(), np.dtype(options.get("dtype", np.float32))
    assert {a.dtype for a in arrays.values()} <= {dtype}
    assert results[0].dtype == dtype or not arrays
    for copied in (copy.deepcopy(layer), nn.for_inference(nn.Sequential(layer))[0]):
        for x in (X, X[:1, :1]):
            with mg.no_grad():
                again, y = (part.eval()(*[x] * count).data for part in (copied, layer))
            np.testing.assert_allclose(again, y, rtol=1e-5, atol=1e-6, strict=True)
    if not options.get("bias", True):
        assert not [x for x in arrays if x.endswith("bias") and "norm" not in x]


SIZES: dict[str, Any] = {"d_model": 8, "num_heads": 2, "d_ff": 12, "max_len": 12, "dropout": 0.1}
CONFIGS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "decoder": (nn.LanguageModel, nn.DecoderOnlyConfig, {"vocab_size": 9, "num_layers": 2, "tie": False}),
    "encoder": (nn.EncoderClassifier, nn.EncoderConfig, {"vocab_size": 9, "num_layers": 2, "num_classes": 3}),
    "transformer": (
        nn.Transformer, nn.EncoderDecoderConfig,
        {"source_vocab_size": 9, "target_vocab_size": 9, "num_encoder_layers": 2, "num_decoder_layers": 1},
    ),
}  # fmt: skip
"""A model and sizes of each kind of configuration."""
OTHER_FIELDS: dict[str, Any] = {
    "activation": "tanh", "norm_first": "other", "dtype": "float64", "activation_dropout": 0.5,
    "bias": False, "gated": True, "norm": "rms", "norm_eps": 0.3, "norm_after": True, "first_norm": False, "final_norm": "other",
    "output_scale": 0.5, "num_types": 2, "shared_layers": True, "num_classes": 4, "pool": "first", "head_activation": "tanh",
    "head_norm": True, "head_dropout": 0.6, "parallel": True, "logit_softcap": 0.5, "tie": True, "dropout": 0.4,
    "d_model": 12, "num_heads": 4, "d_ff": 5, "num_layers": 1, "num_encoder_layers": 1, "num_decoder_layers": 2,
    "output_bias": "other", "vocab_size": 10, "source_vocab_size": 10, "target_vocab_size": 10, "pad_id": 8,
    "attention.num_kv_heads": 1, "attention.head_dim": 6, "attention.scale": 2.0, "attention.bias": "qk",
    "attention.qk_norm": True, "attention.softcap": 0.5, "attention.window": 2, "attention.dropout": 0.6,
    "embeddings.scale": 3.0, "embeddings.norm": True, "embeddings.size": 4,
}  # fmt: skip
NO_OPTIONS = {"encoder": {"output_bias", "output_scale"}, "transformer": {"tie"}}
"""Options of language models alone, and one that has strings."""


def changed(config: Any, options: dict[str, Any]) -> Any:
    """Return a configuration with other options, of which "other" is the opposite flag."""
    for name, value in options.items():
        group, _, option = name.rpartition(".")
        part = getattr(config, group) if group else config
        other = not getattr(config.effective, name) if value == "other" else value
        part = replace(part, **{option: other})
        config = replace(config, **{group: part}) if group else part
    return config


def effects_of_model(kind: type, config: Any) -> list[Any]:
    model = kind(config, np.random.default_rng(0))
    arguments = [IDS] * (2 if kind is nn.Transformer else 1)
    return effects(model, lambda: model(*arguments))


@pytest.mark.parametrize("name", CONFIGS)
def test_option_of_a_configuration_has_an_effect(name: str) -> None:
    kind, make, sizes = CONFIGS[name]
    known = {item.name for item in fields(make)} - NO_OPTIONS.get(name, set())
    base = make(**SIZES, **sizes)
    plain = effects_of_model(kind, base)
    for option, value in OTHER_FIELDS.items():
        if option.partition(".")[0] in known:
            before = changed(base, BESIDE.get(option, {}))
            expected = plain if before == base else effects_of_model(kind, before)
            assert effects_of_model(kind, changed(before, {option: value})) != expected, option


@pytest.mark.parametrize("scale", [0.5, 1.0, 2.0])
def test_scales_multiply_embeddings_and_inputs_of_the_output_projection(scale: float) -> None:
    embeddings = nn.EmbeddingConfig(scale=scale)
    config = nn.DecoderOnlyConfig(9, 8, 2, 1, 8, embeddings=embeddings)
    embedding = nn.LanguageModel(config, np.random.default_rng(0)).embedding.eval()
    positions = embedding(IDS).data - scale * embedding.tokens.weight.data[IDS]
    np.testing.assert_allclose(positions[0], positions[1], atol=1e-6)
    for kind, make in (
        (nn.LanguageModel, nn.DecoderOnlyConfig), (nn.MaskedLanguageModel, nn.EncoderConfig)
    ):  # fmt: skip
        config = make(9, 8, 2, 1, 8, output_scale=scale)
        plain, scaled = (
            kind(c, np.random.default_rng(0)).eval() for c in (replace(config, output_scale=1.0), config)
        )  # fmt: skip
        np.testing.assert_allclose(scaled(IDS).data, scale * plain(IDS).data, rtol=1e-6)
