"""Loaded models beside outputs and defaults of transformers that were recorded in a file."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.published_settings import MODELS, draw_target, inputs_of
from support.recorded_models import arrays_named, projected, recorded, unpacked

import nn
from minigrad.io.json import Settings, read_json
from minigrad.io.safetensors import write_safetensors
from nn.published.family import HF_ACTIVATIONS
from nn.published.gguf import ARCHITECTURES, GGUFFile
from nn.published.load import FAMILIES, family_of, read_config

RECORDED = recorded()


@pytest.mark.parametrize("name", MODELS)
def test_loaded_model_has_outputs_of_transformers_and_is_saved_again(
    tmp_path: Path, name: str
) -> None:
    entry = RECORDED["models"][name]
    (tmp_path / "config.json").write_text(json.dumps(entry["settings"]))
    weights = tmp_path / "model.safetensors"
    write_safetensors(weights, arrays_named(unpacked(entry["arrays"])), {"format": "pt"})
    model = nn.load(tmp_path)
    x, mask = inputs_of(entry["settings"]["model_type"])
    if isinstance(model, nn.Transformer):
        target = draw_target()
        found, is_real = model(x, target, mask).data, np.ones(target.shape, bool)
    else:
        architecture = entry["settings"]["architectures"][0]
        is_bare = architecture.endswith("Model") and "Head" not in architecture
        found = (model.hidden if is_bare else model)(x, None if mask.all() else mask).data
        is_real = mask if found.ndim == 3 else np.ones(3, bool)
    np.testing.assert_allclose(projected(found[is_real]), entry["outputs"], 2e-4, 2e-4)
    nn.save(tmp_path / "again", model)
    assert (tmp_path / "again" / weights.name).read_bytes() == weights.read_bytes()
    files = [read_json(path / "config.json") for path in (tmp_path / "again", tmp_path)]
    again, first = (read_config(file, family_of(file)) for file in files)
    assert again == first


SIZES = {
    "vocab_size", "hidden_size", "intermediate_size", "num_attention_heads", "num_hidden_layers", "d_model", "d_ff",
    "num_heads", "num_layers", "dim", "hidden_dim", "n_heads", "n_layers", "n_embd", "n_head", "n_layer", "ffn_dim",
    *(f"{part}_{key}" for part in ("encoder", "decoder") for key in ("attention_heads", "ffn_dim", "layers")),
}  # fmt: skip
"""Keys without defaults, and those of one family."""
NEEDED = {("opt", "max_position_embeddings"), ("opt", "word_embed_proj_dim")}


@pytest.mark.parametrize("name", FAMILIES)
def test_read_config_without_defaults_equals_config_with_defaults(name: str) -> None:
    """Only sizes must not be missing."""
    default, sizes = RECORDED["defaults"][name], {"model_type": name}

    def effective(settings: dict[str, Any]) -> Any:
        return read_config(Settings(settings, "config.json"), FAMILIES[name]).effective

    expected = effective(default)
    while True:
        try:
            assert effective(sizes) == expected
            return
        except ValueError as error:
            (key,) = re.findall(r"config.json: (\w+) is missing", str(error))
            assert key in SIZES or (name, key) in NEEDED, key
            sizes[key] = default[key]


NOT_RECORDED: dict[str, Any] = {
    "add_bias_logits": False, "add_cross_attention": False, "add_final_layer_norm": False, "attention_bias": False,
    "classifier_dropout": None, "decoder_start_token_id": 0, "decoder_vocab_size": None, "extra_pos_embeddings": 2,
    "global_attn_every_n_layers": 3, "global_rope_theta": 160000.0, "head_dim": None, "hidden_act": "gelu_pytorch_tanh",
    "is_decoder": False, "layer_types": None, "local_rope_theta": 10000.0, "max_window_layers": 28, "mlp_bias": False,
    "no_rope_layers": None, "normalize_before": False, "normalize_embedding": True, "num_decoder_layers": None,
    "num_key_value_heads": None, "rope_interleaved": False, "rope_local_base_freq": 10000.0, "rope_scaling": None,
    "rope_theta": 10000.0, "rotary_emb_base": 10000, "rotary_pct": 0.25, "sliding_window": 4096,
    "sliding_window_pattern": 2, "static_position_embeddings": False, "type_vocab_size": 2,
}  # fmt: skip
"""Defaults of keys that classes of transformers no longer have, or compute from other keys."""
NOT_RECORDED_IN = {
    "gemma3_text": {"rope_theta": 1e6, "sliding_window_pattern": 6},
    "m2m_100": {"add_final_layer_norm": True, "normalize_before": True, "normalize_embedding": False, "static_position_embeddings": True},
    "marian": {"normalize_embedding": False, "static_position_embeddings": True},
    "mbart": {"add_final_layer_norm": True, "normalize_before": True},
    "smollm3": {"rope_theta": 2e6},
}  # fmt: skip
UNUSED = {("qwen2", "sliding_window"), ("qwen3", "sliding_window")}  # without `use_sliding_window`
COMPUTED = {"decoder_vocab_size", "head_dim", "layer_types", "no_rope_layers", "num_decoder_layers",
            "num_key_value_heads"}  # fmt: skip
"""Keys that are null in files and take their values from other keys."""


@pytest.mark.parametrize("name", FAMILIES)
def test_each_default_of_a_key_is_that_of_transformers(name: str) -> None:
    """Another default can be without effect on the defaults of the other keys, but not on a file."""
    others = NOT_RECORDED | NOT_RECORDED_IN.get(name, {})
    for key, value in FAMILIES[name].defaults.items():
        expected = RECORDED["defaults"][name].get(key, others.get(key))
        if (key in COMPUTED and value is None) or (name, key) in UNUSED:
            expected = others[key]
        assert (value, type(value)) == (expected, type(expected)), key


OTHER_ARRAYS = {
    "albert, classes": ["albert.embeddings.position_ids"],
    "albert, masked": ["sop_classifier.classifier.weight", "sop_classifier.classifier.bias"],
    "bert": ["embeddings.position_ids"],
    "bert, masked": ["cls.seq_relationship.weight", "cls.seq_relationship.bias"],
    "distilbert": ["embeddings.position_ids"],
    "electra, masked": ["electra.embeddings.position_ids"],
    "gpt2": ["transformer.h.0.attn.bias", "transformer.h.1.attn.masked_bias"],
    "gpt_neox": [
        "gpt_neox.layers.0.attention.bias", "gpt_neox.layers.0.attention.masked_bias", "gpt_neox.layers.1.attention.rotary_emb.inv_freq"],
    "llama": ["model.layers.1.self_attn.rotary_emb.inv_freq"],
    "m2m_100": ["model.encoder.embed_positions.weights", "model.decoder.embed_positions.weights"],
    "marian": ["model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight"],
    "mpnet": ["embeddings.position_ids"],
    "roberta": ["embeddings.position_ids"],
    "vit": ["embeddings.mask_token", "pooler.dense.weight", "pooler.dense.bias"],
}  # fmt: skip
"""Arrays of well-known files that do not change the hidden states: tables, masks, other layers."""


@pytest.mark.parametrize("name", OTHER_ARRAYS)
def test_load_ignores_arrays_without_effect(tmp_path: Path, name: str) -> None:
    entry = RECORDED["models"][name]
    arrays = arrays_named(unpacked(entry["arrays"]))
    arrays |= {array: np.ones((1, 7), np.float32) for array in OTHER_ARRAYS[name]}
    (tmp_path / "config.json").write_text(json.dumps(entry["settings"]))
    write_safetensors(tmp_path / "model.safetensors", arrays, {"format": "pt"})
    assert OTHER_ARRAYS[name][0] not in dict(nn.load(tmp_path).named_parameters())


STORED_TWICE: list[tuple[str, str, str]] = [
    ("bert, masked", "cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"),
    ("bert, masked", "cls.predictions.decoder.bias", "cls.predictions.bias"),
    ("bert, pretraining", "cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"),
    ("roberta, masked", "lm_head.decoder.weight", "roberta.embeddings.word_embeddings.weight"),
    ("roberta, masked", "lm_head.decoder.bias", "lm_head.bias"),
    ("distilbert, masked", "vocab_projector.weight", "distilbert.embeddings.word_embeddings.weight"),
    ("electra, masked", "generator_lm_head.weight", "electra.embeddings.word_embeddings.weight"),
    ("albert, masked", "predictions.decoder.weight", "albert.embeddings.word_embeddings.weight"),
    ("albert, masked", "predictions.decoder.bias", "predictions.bias"),
    ("modernbert, masked", "decoder.weight", "model.embeddings.tok_embeddings.weight"),
    ("gpt2", "lm_head.weight", "transformer.wte.weight"),
    ("opt", "lm_head.weight", "model.decoder.embed_tokens.weight"),
    ("llama, scaled", "lm_head.weight", "model.embed_tokens.weight"),
    ("t5", "lm_head.weight", "shared.weight"),
    *(("t5", f"{part}.embed_tokens.weight", "shared.weight") for part in ("encoder", "decoder")),
    ("bart", "model.encoder.embed_tokens.weight", "model.shared.weight"),
    ("m2m_100", "model.decoder.embed_tokens.weight", "model.shared.weight"),
    ("marian", "model.encoder.embed_tokens.weight", "model.shared.weight"),
    ("mbart", "lm_head.weight", "model.shared.weight"),
]  # fmt: skip
"""Models, second names of tied arrays, and the first names."""


@pytest.mark.parametrize(("name", "second", "first"), STORED_TWICE)
def test_load_of_a_tied_array_that_is_stored_twice(
    tmp_path: Path, name: str, second: str, first: str
) -> None:
    """Load the same parameters, and save them with both names."""
    entry = RECORDED["models"][name]
    (tmp_path / "config.json").write_text(json.dumps(entry["settings"]))
    arrays, file = arrays_named(unpacked(entry["arrays"])), tmp_path / "model.safetensors"
    write_safetensors(file, {**arrays, second: arrays[first]}, {"format": "pt"})
    model = nn.load(tmp_path)
    assert second in model.origin.arrays and first in model.origin.arrays
    nn.save(tmp_path / "again", model)
    assert (tmp_path / "again" / file.name).read_bytes() == file.read_bytes()
    if second != "lm_head.weight":  # another projection is untied
        write_safetensors(file, {**arrays, second: 2 * arrays[first]}, {"format": "pt"})
        for weights in ("float", "int8") if name == "marian" else ("float",):
            with pytest.raises(ValueError, match="differs from the array that config.json ties it"):
                nn.load(tmp_path, weights=weights)


OTHER_HEADS: list[tuple[str, str, str, list[str]]] = [
    ("bert, masked", "BertForNextSentencePrediction", "cls.", ["cls.seq_relationship.weight", "cls.seq_relationship.bias"]),
    ("albert, masked", "AlbertForPreTraining", "predictions.", ["sop_classifier.classifier.weight", "sop_classifier.classifier.bias"]),
    ("electra, masked", "ElectraForPreTraining", "generator_", [
        "discriminator_predictions.dense.weight", "discriminator_predictions.dense.bias",
        "discriminator_predictions.dense_prediction.weight"]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "kind", "removed", "added"), OTHER_HEADS)
def test_load_of_a_head_that_is_not_supported_has_none(
    tmp_path: Path, name: str, kind: str, removed: str, added: list[str]
) -> None:
    entry = RECORDED["models"][name]
    settings = entry["settings"] | {"architectures": [kind]}
    (tmp_path / "config.json").write_text(json.dumps(settings))
    arrays = arrays_named(unpacked(entry["arrays"]))
    arrays = {key: x for key, x in arrays.items() if not key.startswith(removed)}
    arrays |= {key: np.ones((2, 3), np.float32) for key in added}
    write_safetensors(tmp_path / "model.safetensors", arrays, {"format": "pt"})
    model = nn.load(tmp_path)
    assert type(model) is nn.EncoderModel and {*added} <= model.origin.unused.keys()


def test_activations_are_saved_by_their_shortest_names() -> None:
    names = {
        "gelu": "gelu",
        "gelu_tanh": "gelu_new",
        "relu": "relu",
        "silu": "silu",
        "tanh": "tanh",
    }
    assert names == HF_ACTIVATIONS


DROPOUTS = {  # beside those of heads
    "albert": ("hidden_dropout_prob", "attention_probs_dropout_prob", ""),
    "distilbert": ("dropout", "attention_dropout", ""),
    "gpt2": ("resid_pdrop", "attn_pdrop", ""),
    "gpt_neox": ("hidden_dropout", "attention_dropout", ""),
    "llama": ("", "attention_dropout", ""),
    "marian": ("dropout", "attention_dropout", "activation_dropout"),
    "modernbert": ("", "", "mlp_dropout"),
    "opt": ("dropout", "attention_dropout", ""),
    "phi3": ("resid_pdrop", "attention_dropout", ""),
    "t5": ("dropout_rate", "dropout_rate", "dropout_rate"),
}
"""Keys of the dropouts of sublayers, attention weights and inner layers."""
SAME_DROPOUTS = {
    "albert": ("bert", "electra", "mpnet", "roberta", "vit", "xlm-roberta"),
    "llama": ("gemma", "gemma2", "gemma3_text", "mistral", "qwen2", "qwen3", "smollm3"),
    "marian": ("bart", "m2m_100", "mbart"),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_read_config_reads_each_dropout_from_its_key(name: str) -> None:
    """Dropouts without a key are 0."""
    like = next((key for key, names in SAME_DROPOUTS.items() if name in names), name)
    keys = DROPOUTS[like]
    values = {key: round(0.1 * i, 1) for i, key in enumerate(keys, 1) if key}
    settings = Settings(RECORDED["defaults"][name] | values, "config.json")
    config = read_config(settings, FAMILIES[name]).effective
    found = config.dropout, config.attention.dropout, config.activation_dropout
    assert found == tuple(values.get(key, 0.0) for key in keys)


HEAD_DROPOUTS: list[tuple[str, dict[str, float | None], float, float]] = [
    ("bert", {"classifier_dropout": 0.3, "hidden_dropout_prob": 0.1}, 0.3, 0.3),
    ("bert", {"classifier_dropout": None, "hidden_dropout_prob": 0.1}, 0.1, 0.1),
    ("roberta", {"classifier_dropout": 0.3, "hidden_dropout_prob": 0.1}, 0.3, 0.3),
    ("distilbert", {"seq_classif_dropout": 0.3, "dropout": 0.1}, 0.3, 0.1),
    ("mpnet", {"hidden_dropout_prob": 0.1, "classifier_dropout": 0.3}, 0.1, 0.1),
    ("modernbert", {"classifier_dropout": 0.3}, 0.3, 0.3),
]
"""Models, settings, and the dropouts of their heads for sequences and for tokens."""


@pytest.mark.parametrize(("name", "settings", "of_sequence", "of_token"), HEAD_DROPOUTS)
def test_dropout_of_a_head_is_that_of_its_kind(
    tmp_path: Path, name: str, settings: dict[str, Any], of_sequence: float, of_token: float
) -> None:
    entry = RECORDED["models"][name]
    (tmp_path / "config.json").write_text(json.dumps(entry["settings"] | settings))
    arrays = arrays_named(unpacked(entry["arrays"]))
    write_safetensors(tmp_path / "model.safetensors", arrays, {"format": "pt"})
    for head, dropout in (("classes", of_sequence), ("tokens", of_token)):
        assert nn.load(tmp_path, head, num_classes=2).dropout.p == dropout


@pytest.mark.parametrize("prefix", [True, False])
@pytest.mark.parametrize(
    ("name", "pooler"), [("bert, masked", "pooler.dense"), ("albert, masked", "pooler")]
)
def test_head_for_sequences_begins_with_the_pooler_of_the_directory(
    tmp_path: Path, name: str, pooler: str, prefix: bool
) -> None:
    """Draw the layer if the weights of the pooler are zeros, or missing."""
    entry, stem = RECORDED["models"][name], f"{name.partition(',')[0]}."
    (tmp_path / "config.json").write_text(json.dumps(entry["settings"]))
    arrays = arrays_named(unpacked(entry["arrays"]))
    arrays = {key: x for key, x in arrays.items() if key.startswith(stem)}
    start = stem if prefix else ""
    arrays = {start + key.removeprefix(stem): x for key, x in arrays.items()}
    for value in (0.5, 0.0, None):
        if value is not None:
            shapes = {"weight": (16, 16), "bias": (16,)}
            arrays |= {
                f"{start}{pooler}.{end}": np.full(s, value, "f4") for end, s in shapes.items()
            }
        else:
            arrays = {key: x for key, x in arrays.items() if pooler not in key}
        write_safetensors(tmp_path / "model.safetensors", arrays, {"format": "pt"})
        dense = nn.load(tmp_path, "classes", num_classes=2).dense
        if value:
            assert (dense.weight.data == value).all() and (dense.bias.data == value).all()
        else:
            assert 0.01 < dense.weight.data.std() < 0.03 and not dense.bias.data.any()


@pytest.mark.parametrize("has_head", [False, True])
@pytest.mark.parametrize("name", ["t5", "t5, gated", "bart", "m2m_100"])
def test_translator_without_output_projection_in_its_file_ties_it(
    tmp_path: Path, name: str, has_head: bool
) -> None:
    """Use the projection of a file that has one, even if it is tied."""
    entry = RECORDED["models"][name]
    (tmp_path / "config.json").write_text(json.dumps(entry["settings"]))
    arrays = arrays_named(unpacked(entry["arrays"]))
    tokens = next(x for key, x in arrays.items() if key.endswith("shared.weight"))
    head = {"lm_head.weight": 2 * tokens} if has_head else {}
    arrays = {key: x for key, x in arrays.items() if "lm_head" not in key} | head
    write_safetensors(tmp_path / "model.safetensors", arrays, {"format": "pt"})
    model = nn.load(tmp_path)
    np.testing.assert_array_equal(model.output.weight.data, head.get("lm_head.weight", tokens))
    for embedding in (model.source_embedding, model.target_embedding):
        np.testing.assert_array_equal(embedding.tokens.weight.data, tokens)
    is_tied = model.output.weight is model.source_embedding.tokens.weight
    assert is_tied != has_head


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_names_of_gguf_files_are_those_of_its_package(name: str) -> None:
    file = SimpleNamespace(architecture=ARCHITECTURES[name])
    names = RECORDED["gguf"][name]
    found = {stored: GGUFFile._hf_name(file, stored) for stored in names}  # type: ignore[arg-type]
    assert names == {stored: array.removeprefix("model.") for stored, array in found.items()}
