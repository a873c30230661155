"""Settings of config.json: changed, left out or harmless, as in transformers, or refused."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from published import (
    MODELS,
    assert_same_outputs,
    load_theirs,
    make,
    outputs,
    read_settings,
    transformers,
    write_settings,
)  # fmt: skip

import nn
from minigrad.io.json import Settings
from nn.pretrained.family import HARMLESS, Family
from nn.pretrained.load import FAMILIES, read_config

pytestmark = pytest.mark.filterwarnings("ignore")

INTENSE = os.environ.get("HYPOTHESIS_PROFILE") == "intense"
BESIDE = {"architectures", "model_type", "transformers_version", "dtype", "_name_or_path"}


def settings_of(model_or_config: Any) -> dict[str, Any]:
    """Return all settings of a configuration of transformers, defaults among them."""
    return json.loads(model_or_config.to_json_string(use_diff=False))


def alternatives(name: str, value: Any) -> Iterator[Any]:
    """Yield other values that a setting might have."""
    if name.startswith("rope_"):
        for changes in (
            {"partial_rotary_factor": 0.5}, {"rope_theta": 77.0},
            {"rope_type": "linear", "factor": 3.0}, {"rope_type": "dynamic", "factor": 3.0},
        ):  # fmt: skip
            yield (value or {}) | changes
    elif name == "layer_types":
        yield from ([kind] * len(value) for kind in ("sliding_attention", "full_attention"))
    elif name == "no_rope_layers":
        yield from ([flag] * len(value) for flag in (0, 1))
    elif isinstance(value, bool):
        yield not value
    elif isinstance(value, (int, float)):
        yield from (value + 1, 1.5 * value + 0.05)
    elif isinstance(value, str):
        yield from ("relu", "gelu_new", "silu", "foo")
    elif value is None:
        yield from (2, True, "gelu", 0.2)


@pytest.mark.parametrize("name", MODELS if INTENSE else ["marian", "t5"])
def test_load_with_setting_changed_or_left_out_agrees_or_is_refused(
    tmp_path: Path, name: str
) -> None:
    shallow = {key: 1 for key in MODELS[name][1] if key.endswith("layers")}
    theirs, compared = make(name, tmp_path, **({} if INTENSE else shallow)), 0
    saved, every = read_settings(tmp_path), settings_of(theirs.config)
    variants = [
        saved | {key: other}
        for key in every.keys() - BESIDE for other in alternatives(key, every[key])
    ]  # fmt: skip
    variants += [{k: v for k, v in saved.items() if k != key} for key in saved.keys() - BESIDE]
    for settings in variants:
        write_settings(tmp_path, settings)
        try:
            ours = nn.load(tmp_path)
        except ValueError as error:
            assert str(error).startswith(str(tmp_path))
            continue
        try:
            again = load_theirs(type(theirs), tmp_path)
            outputs(again, ours)
        except Exception:  # transformers raises errors of many types
            continue
        changed = {k: v for k, v in settings.items() if saved.get(k) != v}
        assert_same_outputs(again, ours, f"{name} with {changed or 'a setting left out'}")
        compared += 1
    assert compared > 20


DROPPED = {"distilbert": "seq_classif_dropout", "albert": "classifier_dropout_prob"}


@pytest.mark.parametrize("head", ["SequenceClassification", "TokenClassification"])
@pytest.mark.parametrize(
    "name", ["bert", "roberta", "xlm-roberta", "mpnet", "distilbert", "electra", "albert"]
)
def test_load_of_classifier_gives_dropout_of_transformers(
    tmp_path: Path, name: str, head: str
) -> None:
    settings = MODELS[f"{name}, classes"][1]
    settings = {k: v for k, v in settings.items() if "dropout" not in k}
    for changes in ({}, {DROPPED.get(name, "classifier_dropout"): 0.3}):
        config = transformers.CONFIG_MAPPING[name](**settings, **changes)
        theirs = getattr(transformers, f"AutoModelFor{head}").from_config(config)
        theirs.save_pretrained(tmp_path)
        dropout = theirs.dropout if hasattr(theirs, "dropout") else theirs.classifier.dropout
        assert nn.load(tmp_path).dropout.p == dropout.p, changes


PARTIAL: list[dict[str, Any]] = [
    {}, {"use_sliding_window": True, "sliding_window": 8}, {"use_sliding_window": True, "layer_types": None},
    {"rope_scaling": {"type": "yarn", "factor": 4.0}, "rope_theta": 500.0},
    {"rope_scaling": {"type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}},
    {"rope_scaling": {"type": "linear", "factor": 4.0}, "original_max_position_embeddings": 16},
    {"rope_scaling": {"type": "yarn", "factor": 4.0}, "original_max_position_embeddings": 16},
]  # fmt: skip
"""Settings that stand in config.json beside the sizes; all others have their defaults."""


@pytest.mark.parametrize("name", FAMILIES)
def test_read_config_without_defaults_equals_config_with_defaults(name: str) -> None:
    """Sizes alone are read as all settings of the configuration class of transformers are."""
    config_class, family = transformers.CONFIG_MAPPING[name], FAMILIES[name]
    default = settings_of(config_class())
    required = [key for key in default if is_required(family, default, key)]
    is_rotary = {"rope_theta", "rotary_emb_base"} & family.defaults.keys()
    for partial in PARTIAL if is_rotary and name != "phi3" else [{}]:  # Phi-3 scales otherwise
        if {"use_sliding_window", "rope_theta"} & partial.keys() - family.defaults.keys():
            continue  # refused
        whole = settings_of(config_class(**copy.deepcopy(partial)))
        sizes = {key: whole[key] for key in required}
        expected, found = (
            read_config(Settings(settings, "config.json"), family).effective()
            for settings in (whole, sizes | partial)
        )
        assert found == expected, partial


def is_required(family: Family, settings: dict[str, Any], key: str) -> bool:
    """Return whether the settings are refused without a key."""
    try:
        read_config(Settings({k: v for k, v in settings.items() if k != key}, "x"), family)
    except ValueError as error:
        assert f"{key} is missing" in str(error)
        return True
    return False


UNCHANGED = {
    "architectures", "dtype", "id2label", "label2id", "return_dict", "tokenizer_class", "output_attentions",
    "output_hidden_states", "pooler_output_size", "problem_type",
}  # fmt: skip
"""Harmless keys that are not changed: names, and the form of the outputs of transformers."""


@pytest.mark.parametrize("name", MODELS)
def test_harmless_settings_changed_leave_outputs_of_both_libraries(
    tmp_path: Path, name: str
) -> None:
    """All harmless keys of a configuration class are changed at once."""
    theirs = make(name, tmp_path)
    family = FAMILIES[theirs.config.model_type]
    harmless = (HARMLESS | family.harmless) - UNCHANGED
    changes: dict[str, Any] = {}
    for key, value in settings_of(theirs.config).items():
        if key in harmless and isinstance(value, bool):
            changes[key] = not value
        elif key in harmless and isinstance(value, float):
            changes[key] = 0.7
        elif key in harmless and isinstance(value, int):
            changes[key] = value - 1 if value > 1 else value + 1
    assert changes
    saved = read_settings(tmp_path)
    write_settings(tmp_path, saved | changes)
    try:
        again = load_theirs(type(theirs), tmp_path)
    except AssertionError:  # weights that were tied would be drawn
        del changes["tie_word_embeddings"]
        write_settings(tmp_path, saved | changes)
        again = load_theirs(type(theirs), tmp_path)
    ours = nn.load(tmp_path)
    assert_same_outputs(again, ours, str(changes))
    assert_same_outputs(theirs, ours, str(changes))


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("gemma", {"hidden_activation": "relu"}, "hidden_activation must be gelu_pytorch_tanh or null"),
        ("phi3", {"rope_scaling": {"type": "yarn", "factor": 4.0}}, "type must be one of default, got \"yarn\""),
        ("gpt2", {"activation_function": "quick_gelu"}, "activation_function must be one of gelu, .*\"quick_gelu\""),
        ("mpnet", {"pad_token_id": 0}, "pad_token_id must be 1"),
        ("mpnet", {"relative_attention_num_buckets": 64}, "relative_attention_num_buckets must be 32"),
        ("mpnet, masked", {"hidden_act": "relu"}, "hidden_act must be gelu"),
        ("roberta, masked", {"hidden_act": "relu"}, "hidden_act must be gelu"),
        ("electra, masked", {"hidden_act": "relu"}, "hidden_act must be gelu"),
    ],
)  # fmt: skip
def test_load_with_setting_of_another_meaning_raises(
    tmp_path: Path, name: str, changes: dict[str, Any], message: str
) -> None:
    """transformers ignores these settings, or their meaning is in its code alone."""
    make(name, tmp_path)
    write_settings(tmp_path, read_settings(tmp_path) | changes)
    with pytest.raises(ValueError, match=f"config.json: .*{message}"):
        nn.load(tmp_path)
