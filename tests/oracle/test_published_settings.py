"""Settings of published models: each of them changed, or left out, is as in transformers, or is refused."""

from __future__ import annotations

import copy
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from published import MODELS, make, results

import nn
from minigrad.io.json import Settings
from nn.pretrained.families import FAMILIES
from nn.pretrained.family import HARMLESS
from nn.pretrained.load import read_config

torch = pytest.importorskip("torch", reason="PyTorch is the oracle; it is not installed")
transformers = pytest.importorskip(
    "transformers", reason="Hugging Face's models are the oracle; it is not installed"
)

INTENSE = os.environ.get("HYPOTHESIS_PROFILE") == "intense"
IDS = np.random.default_rng(5).integers(3, 48, (2, 12))


def logits(model: Any, ids: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        return model(torch.tensor(ids)).logits.numpy()


def close(found: Any, expected: Any, message: str = "") -> None:
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4, err_msg=message)


def others(name: str, value: Any) -> list[Any]:
    """What a setting might be instead."""
    if name.startswith("rope_"):
        new: list[dict[str, Any]] = [{"partial_rotary_factor": 0.5}, {"rope_theta": 77.0}]
        new += [{"rope_type": "linear", "factor": 3.0}, {"rope_type": "dynamic", "factor": 3.0}]
        return [(value or {}) | changes for changes in new]
    if isinstance(value, list):
        choices: Any = {
            "layer_types": ("sliding_attention", "full_attention"),
            "no_rope_layers": (0, 1),
        }.get(name, ())
        return [[choice] * len(value) for choice in choices]
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, (int, float)):
        return [value + 1, 1.5 * value + 0.05]
    return {"NoneType": [2, True, "gelu", 0.2], "str": ["relu", "gelu_new", "silu", "foo"]}.get(
        type(value).__name__, []
    )


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MODELS if INTENSE else ["marian", "t5"])
def test_each_setting_changed_or_left_out(tmp_path: Path, name: str) -> None:
    """Whatever both load gives the same results; where one refuses, or lacks weights, there is nothing to compare."""
    made, agreed = make(transformers, torch, name), 0
    made.save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    saved = json.loads(path.read_text())
    beside = ("architectures", "model_type", "transformers_version", "dtype", "_name_or_path")
    every = {
        k: v
        for k, v in json.loads(made.config.to_json_string(use_diff=False)).items()
        if k not in beside
    }
    changed = [
        saved | {setting: new} for setting, value in every.items() for new in others(setting, value)
    ]
    for settings in changed + [
        {k: v for k, v in saved.items() if k != gone} for gone in saved if gone in every
    ]:
        path.write_text(json.dumps(settings))
        try:
            ours = nn.load(tmp_path)
        except ValueError as error:
            assert str(error).startswith(str(tmp_path))
            continue
        try:
            options = {"output_loading_info": True, "dtype": torch.float32}
            theirs, report = type(made).from_pretrained(tmp_path, **options)
            expected, found, real = results(torch, theirs.eval(), ours)
        except Exception:  # whatever they refuse by
            continue
        if not any(report.values()):
            told = {
                k: settings.get(k) for k in {*settings, *saved} if settings.get(k) != saved.get(k)
            }
            close(found.data[real], expected.detach().numpy()[real], str(told))
            agreed += 1
    assert agreed > 20


UNSAID: list[dict[str, Any]] = [
    {}, {"use_sliding_window": True, "sliding_window": 8}, {"use_sliding_window": True, "layer_types": None},
    {"rope_scaling": {"type": "yarn", "factor": 4.0}, "rope_theta": 500.0},
    {"rope_scaling": {"type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}},
    {"rope_scaling": {"type": "linear", "factor": 4.0}, "original_max_position_embeddings": 16},
    {"rope_scaling": {"type": "yarn", "factor": 4.0}, "original_max_position_embeddings": 16},
]  # fmt: skip
"""Settings beside which config.json says nothing but sizes."""


DROPPED = {"distilbert": "seq_classif_dropout", "albert": "classifier_dropout_prob"}


@pytest.mark.parametrize("head", ["classes", "tokens"])
@pytest.mark.parametrize(
    "name", ["bert", "roberta", "xlm-roberta", "mpnet", "distilbert", "electra", "albert"]
)
def test_what_heads_drop_in_training(tmp_path: Path, name: str, head: str) -> None:
    kind = transformers.CONFIG_MAPPING[name]
    auto = {
        "classes": "AutoModelForSequenceClassification",
        "tokens": "AutoModelForTokenClassification",
    }[head]
    encoder = MODELS[f"{name}, classes"][2]
    for said in ({}, {DROPPED.get(name, "classifier_dropout"): 0.3}):
        settings = {
            key: value
            for key, value in encoder.items()
            if not key.endswith(("_dropout", "dropout_prob"))
        }
        made = getattr(transformers, auto).from_config(kind(**settings, **said))
        made.save_pretrained(tmp_path)
        theirs = made.dropout if hasattr(made, "dropout") else made.classifier.dropout
        assert nn.load(tmp_path).dropout.p == theirs.p, said


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FAMILIES)
def test_what_config_json_does_not_say_is_as_transformers_has_it(name: str) -> None:
    """A configuration of sizes alone, and all settings as transformers' own class then has them, are one."""
    kind, family = transformers.CONFIG_MAPPING[name], FAMILIES[name]
    default = json.loads(kind().to_json_string(use_diff=False))
    required = [key for key in default if not is_read_without(family, default, key)]
    turns = {"rope_theta", "rotary_emb_base"} & family.defaults.keys()
    for said in UNSAID if turns and name != "phi3" else UNSAID[:1]:  # its scaling is its own
        if {"use_sliding_window", "rope_theta"} & said.keys() - family.defaults.keys():
            continue  # refused
        whole = json.loads(kind(**copy.deepcopy(said)).to_json_string(use_diff=False))
        sizes = {key: whole[key] for key in required}
        expected, found = (
            read_config(Settings(s, "config.json"), family).effective()
            for s in (whole, sizes | said)
        )
        assert found == expected, said


def is_read_without(family: Any, settings: dict[str, Any], key: str) -> bool:
    try:
        read_config(Settings({k: v for k, v in settings.items() if k != key}, "x"), family)
    except ValueError as error:
        assert f"{key} is missing" in str(error)
        return False
    return True


KEPT = {"architectures", "dtype", "id2label", "label2id", "return_dict", "tokenizer_class", "output_attentions",
        "output_hidden_states", "pooler_output_size", "problem_type"}  # fmt: skip
"""Harmless keys that are not changed: they name things, or outputs have another form."""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MODELS)
def test_harmless_keys_change_nothing_in_transformers(tmp_path: Path, name: str) -> None:
    """All harmless keys that a configuration class has are changed at once; their outputs stay."""
    made = make(transformers, torch, name)
    made.save_pretrained(tmp_path)
    family = FAMILIES[made.config.model_type]
    own = json.loads(made.config.to_json_string(use_diff=False))
    changes: dict[str, Any] = {}
    for key in ((HARMLESS | family.harmless) & own.keys()) - KEPT:
        value = own[key]
        if isinstance(value, bool):
            changes[key] = not value
        elif isinstance(value, (int, float)):
            changes[key] = (
                (value - 1 if value > 1 else value + 1) if isinstance(value, int) else 0.7
            )
    assert changes
    expected, _, real = results(torch, made, nn.load(tmp_path))
    path = tmp_path / "config.json"
    settings = json.loads(path.read_text())
    path.write_text(json.dumps(settings | changes))
    options = {"output_loading_info": True, "dtype": torch.float32}
    theirs, report = type(made).from_pretrained(tmp_path, **options)
    if any(report.values()):  # weights that were tied are drawn: there is nothing to compare
        del changes["tie_word_embeddings"]
        path.write_text(json.dumps(settings | changes))
        theirs, report = type(made).from_pretrained(tmp_path, **options)
    assert not any(report.values())
    same, found, _ = results(torch, theirs.eval(), nn.load(tmp_path))
    close(same.detach().numpy()[real], expected.detach().numpy()[real], str(changes))
    close(found.data[real], expected.detach().numpy()[real], str(changes))


@pytest.mark.parametrize("name", FAMILIES)
def test_all_keys_of_the_configuration_class_are_known(name: str) -> None:
    default = json.loads(transformers.CONFIG_MAPPING[name]().to_json_string(use_diff=False))
    read_config(Settings(default, "config.json"), FAMILIES[name])


def test_granite_is_refused_as_llama() -> None:
    """Four of its keys scale what Llama does not; as a line of Llama it would give other logits."""
    granite = transformers.GraniteConfig(
        embedding_multiplier=12.0,
        logits_scaling=8.0,
        residual_multiplier=0.2,
        attention_multiplier=0.1,
    )
    settings = json.loads(granite.to_json_string(use_diff=False))
    with pytest.raises(ValueError, match="keys must be known to the family") as error:
        read_config(Settings(settings, "config.json"), FAMILIES["llama"])
    for key in (
        "embedding_multiplier",
        "logits_scaling",
        "residual_multiplier",
        "attention_multiplier",
    ):
        assert f"'{key}'" in str(error.value)


def test_settings_of_phi3_and_gemma(tmp_path: Path) -> None:
    """Phi-3 scales rotary positions in a way of its own, by whatever name; Gemma's "gelu" is the form by tanh."""
    made = make(transformers, torch, "gemma", hidden_act="gelu")
    made.save_pretrained(tmp_path / "gemma")
    path = tmp_path / "gemma/config.json"
    for act, ours in (("gelu", "gelu_tanh"), ("silu", "silu")):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"hidden_act": act}))
        theirs = type(made).from_pretrained(tmp_path / "gemma", dtype=torch.float32).eval()
        model = nn.load(tmp_path / "gemma")
        assert model.config.activation == ours
        close(model(IDS).data, logits(theirs, IDS))
    path.write_text(json.dumps(json.loads(path.read_text()) | {"hidden_activation": "relu"}))
    with pytest.raises(
        ValueError, match="config.json: hidden_activation: expected gelu_pytorch_tanh or null"
    ):
        nn.load(tmp_path / "gemma")
    make(transformers, torch, "phi3").save_pretrained(tmp_path / "phi3")
    path = tmp_path / "phi3/config.json"
    settings = json.loads(path.read_text())
    for kind in ("yarn", "su", "linear"):
        path.write_text(json.dumps(settings | {"rope_scaling": {"type": kind, "factor": 4.0}}))
        with pytest.raises(
            ValueError,
            match=f'config.json: rope_scaling: type: expected one of default, got "{kind}"',
        ):
            nn.load(tmp_path / "phi3")
