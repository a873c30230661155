"""Settings of config.json: changed, left out or harmless, as in transformers, or refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.environment import THOROUGH
from support.published import (
    assert_same_outputs,
    load_theirs,
    make,
    outputs,
    read_settings,
    settings_of,
    transformers,
    write_settings,
)
from support.published_settings import MODELS

import nn
from nn.published.family import HARMLESS
from nn.published.load import FAMILIES

pytestmark = pytest.mark.filterwarnings("ignore")

BESIDE = {"architectures", "model_type", "transformers_version", "dtype", "_name_or_path"}


def alternatives(name: str, value: Any) -> tuple[Any, ...]:
    """Return other values that a setting might have."""
    if name.startswith("rope_"):
        changes = (
            {"partial_rotary_factor": 0.5},
            {"rope_theta": 77.0},
            {"rope_type": "linear", "factor": 3.0},
        )
        return tuple((value or {}) | change for change in changes)
    if isinstance(value, bool):
        return (not value,)
    if isinstance(value, (int, float)):
        return value + 1, 1.5 * value + 0.05
    return ("relu", "silu", "foo") if isinstance(value, str) else (2, True, "gelu", 0.2)


@pytest.mark.parametrize("name", MODELS if THOROUGH else ["marian", "t5"])
def test_load_with_setting_changed_or_left_out_agrees_or_is_refused(
    tmp_path: Path, name: str
) -> None:
    theirs, compared = make(name, tmp_path), 0
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
        assert_same_outputs(again, ours, f"{settings} instead of {saved}")
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
    other: dict[type, Any] = {
        bool: lambda value: not value, float: lambda value: 0.7, int: lambda value: abs(value - 1) or 2,
    }  # fmt: skip
    changes: dict[str, Any] = {
        key: other[type(value)](value)
        for key, value in settings_of(theirs.config).items() if key in harmless and type(value) in other
    }  # fmt: skip
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
    for model in (again, theirs):
        assert_same_outputs(model, ours, str(changes))


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("gemma", {"hidden_activation": "relu"}, "hidden_activation must be gelu_pytorch_tanh or null"),
        ("phi3", {"rope_scaling": {"type": "yarn", "factor": 4.0}}, "type must be one of default, got \"yarn\""),
        ("gpt2", {"activation_function": "quick_gelu"}, "activation_function must be one of gelu, .*\"quick_gelu\""),
        ("mpnet", {"pad_token_id": 0}, "pad_token_id must be 1"),
        ("roberta, masked", {"hidden_act": "relu"}, "hidden_act must be gelu"),
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
