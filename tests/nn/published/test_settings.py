"""Settings in published files: windows and rotary positions of single layers, and limits of pixels."""

from __future__ import annotations

import json
import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.recorded_models import recorded

import nn
from minigrad.io.json import Settings
from nn.published.load import FAMILIES, family_of, read_config

SIZES = {"vocab_size": 9, "hidden_size": 8, "num_attention_heads": 2, "num_key_value_heads": 2,
         "intermediate_size": 8, "max_position_embeddings": 20, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}  # fmt: skip
layer_counts = st.integers(1, 4)


def config_of(model_type: str, layers: int, **settings: Any) -> Any:
    """Return our configuration; None leaves a key out."""
    written = SIZES | {"num_hidden_layers": layers} | settings
    present = {name: value for name, value in written.items() if value is not None}
    config = Settings(present, "config.json")
    return read_config(config, FAMILIES[model_type].variant(config))


DEFAULTS = recorded()["defaults"]
"""All keys of each family with the defaults of transformers."""


def of_defaults(name: str, /, **changes: Any) -> Any:
    """Return our configuration for the defaults of a family with other values; ... removes a key."""
    entries = {key: value for key, value in (DEFAULTS[name] | changes).items() if value is not ...}
    settings = Settings(entries, "config.json")
    return read_config(settings, family_of(settings)).effective


def alternatives(value: Any) -> tuple[Any, ...]:
    """Return other values that a key might have."""
    if isinstance(value, bool):
        return (not value,)
    if isinstance(value, (int, float)):
        return value + 1, 2 * value + 3
    if isinstance(value, str):
        return tuple({"relu", "silu", "odd"} - {value})
    return ({"odd": 1},) if isinstance(value, dict) else (2, True, "odd")


NO_EFFECT = {
    "_name_or_path", "architectures", "chunk_size_feed_forward", "decoder_layerdrop", "dtype", "embd_pdrop",
    "encoder_layerdrop", "forced_eos_token_id", "id2label", "init_std", "initializer_factor", "initializer_range",
    "label2id", "layerdrop", "output_attentions", "output_hidden_states", "pretraining_tp", "problem_type",
    "return_dict", "use_cache",
}  # fmt: skip
_SUMMARY = "summary_activation summary_type summary_use_proj"
_OF_ENCODERS = "bos_token_id eos_token_id tie_word_embeddings"
_WINDOW_UNUSED = "sliding_window use_sliding_window max_window_layers"
NO_EFFECT_IN = {
    **dict.fromkeys(("albert", "bert", "mpnet", "roberta", "xlm-roberta"), _OF_ENCODERS),
    "bart": "bos_token_id classifier_dropout is_encoder_decoder tie_word_embeddings",
    "distilbert": f"{_OF_ENCODERS} qa_dropout sinusoidal_pos_embds",
    "electra": f"{_OF_ENCODERS} {_SUMMARY} summary_last_dropout",
    "gemma3_text": "_sliding_window_pattern",
    "gpt2": f"{_SUMMARY} reorder_and_upcast_attn summary_first_dropout summary_proj_to_labels",
    "gpt_neox": "classifier_dropout",
    "m2m_100": "bos_token_id is_encoder_decoder tie_word_embeddings",
    "marian": "bos_token_id is_encoder_decoder tie_word_embeddings",
    "mbart": "classifier_dropout is_encoder_decoder tie_word_embeddings",
    "modernbert": f"{_OF_ENCODERS} cls_token_id deterministic_flash_attn initializer_cutoff_factor sep_token_id "
        "sparse_pred_ignore_index sparse_prediction",
    "phi3": "original_max_position_embeddings",
    **dict.fromkeys(("qwen2", "qwen3"), _WINDOW_UNUSED),
    "smollm3": "no_rope_layer_interval sliding_window use_sliding_window",
    "t5": "classifier_dropout feed_forward_proj is_encoder_decoder",
    "vit": "encoder_stride pooler_act pooler_output_size",
}  # fmt: skip
"""Keys that change nothing: another key has precedence, or they concern other outputs."""


@pytest.mark.parametrize("name", FAMILIES)
def test_another_value_of_a_key_changes_the_model_or_is_refused(name: str) -> None:
    """Errors contain names of keys alone, rather than those of our options."""
    default, without_effect = of_defaults(name), set()
    paths = default.flatten(default.to_dict())
    options = {*paths, *(path.rpartition(".")[2] for path in paths)} - DEFAULTS[name].keys()
    for key in DEFAULTS[name].keys() - {"model_type"}:
        results = set()
        for value in alternatives(DEFAULTS[name][key]):
            try:
                results.add(of_defaults(name, **{key: value}) == default)
            except ValueError as error:
                assert str(error).startswith("config.json: ")
                assert not options.intersection(re.findall(r"[\w.]+_[\w.]+", str(error))), error
        if results == {True}:
            without_effect.add(key)
    expected = {*NO_EFFECT, *NO_EFFECT_IN.get(name, "").split()}
    assert without_effect == expected & DEFAULTS[name].keys()


OLDER = {
    "_attn_implementation_autoset", "_commit_hash", "_model_name_or_path", "_num_labels", "auto_map", "bad_words_ids",
    "begin_suppress_tokens", "bos_token_id", "cache_implementation", "cls_token_id", "decoder_start_token_id",
    "diversity_penalty", "do_sample", "early_stopping", "encoder_no_repeat_ngram_size", "encoder_repetition_penalty",
    "eos_token_id", "epsilon_cutoff", "eta_cutoff", "exponential_decay_length_penalty", "finetuning_task",
    "force_bos_token_to_be_generated", "forced_bos_token_id", "forced_eos_token_id", "gradient_checkpointing", "language",
    "length_penalty", "mask_token_id", "max_length", "max_new_tokens", "max_time", "min_length", "min_new_tokens", "min_p",
    "model_max_length", "name", "no_repeat_ngram_size", "num_beam_groups", "num_beams", "num_labels",
    "num_return_sequences", "output_past", "output_scores", "penalty_alpha", "prefix", "remove_invalid_values",
    "renormalize_logits", "repetition_penalty", "return_dict_in_generate", "router_aux_loss_coef", "sep_token_id",
    "suppress_tokens", "task_specific_params", "temperature", "tokenizer_class", "top_k", "top_p", "torch_dtype",
    "torchscript", "transformers.js_config", "transformers_version", "typical_p", "unk_token_id", "unsloth_fixed",
    "unsloth_version", "use_bfloat16",
}  # fmt: skip
"""Keys of other versions and tools: names, settings of training, and copies of those of generation."""


def test_keys_of_other_versions_and_tools_change_nothing() -> None:
    assert of_defaults("vit", **dict.fromkeys(OLDER - DEFAULTS["vit"].keys(), 7)) == of_defaults(
        "vit"
    )


TIED, UNTIED = {"tie_word_embeddings": True}, {"tie_word_embeddings": False}
SHARED, APART = (
    {"share_encoder_decoder_embeddings": True},
    {"share_encoder_decoder_embeddings": False},
)
OF_NEOX = {"hidden_size": 32, "num_attention_heads": 4}
READ: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    *(("m2m_100", {"pad_token_id": pad}, {"positions.offset": pad + 1}) for pad in (0, 1, 4)),
    *(("roberta", {"pad_token_id": pad, "max_position_embeddings": rows}, {"positions.offset": pad + 1, "max_len": rows - pad - 1})
      for pad, rows in ((0, 9), (3, 10), (3, 5))),
    ("marian", SHARED | TIED, {"tie": "all"}),
    ("marian", SHARED | UNTIED, {"tie": "all"}),
    ("marian", APART | TIED, {"tie": "target"}),
    ("marian", APART | UNTIED, {"tie": "none"}),
    ("marian", APART | {"decoder_vocab_size": 60000}, {"target_vocab_size": 60000, "source_vocab_size": 58101}),
    ("marian", {"decoder_vocab_size": None}, {"target_vocab_size": 58101}),
    ("marian", {"scale_embedding": True}, {"embeddings.scale": 32.0}),
    ("marian", {"scale_embedding": False}, {"embeddings.scale": 1.0}),
    ("modernbert", {"norm_bias": True}, {"norm": "layer"}),
    ("modernbert", {"norm_bias": False}, {"norm": "layer_no_bias"}),
    ("modernbert", {"classifier_pooling": "mean"}, {"pool": "mean"}),
    ("modernbert", {"classifier_pooling": "cls"}, {"pool": "first"}),
    ("modernbert", dict.fromkeys(("hidden_activation", "classifier_activation"), "silu"), {"activation": "silu", "head_activation": "silu"}),
    ("gpt2", {"n_inner": None, "n_embd": 24}, {"d_ff": 96}),
    ("gpt2", {"n_inner": 40, "n_embd": 24}, {"d_ff": 40}),
    *(("gpt_neox", {**OF_NEOX, "rope_parameters": None, "rotary_pct": part, "rotary_emb_base": 500}, {"positions.rotary_dim": dim, "positions.rotary_base": 500.0})
      for part, dim in ((0.25, 2), (0.5, 4), (0.85, 6), (1, 8))),
    ("gpt_neox", {**OF_NEOX, "rope_parameters": {"partial_rotary_factor": 0.5, "rope_theta": 9.0}, "rotary_pct": 1, "rotary_emb_base": 500},
       {"positions.rotary_dim": 4, "positions.rotary_base": 9.0}),
    *(("gpt_neox", {"attention_bias": bias}, {"attention.bias": bias}) for bias in (True, False)),
    *(("t5", {"feed_forward_proj": form, "dense_act_fn": None, "is_gated_act": None}, {"activation": ours, "gated": is_gated})
      for form, ours, is_gated in (("relu", "relu", False), ("gelu", "gelu", False), ("gated-gelu", "gelu_tanh", True),
                                   ("gated-silu", "silu", True), ("gated-relu", "relu", True), ("gelu_new", "gelu_tanh", False))),
    ("t5", {"feed_forward_proj": "gated-gelu", "dense_act_fn": "gelu", "is_gated_act": False}, {"activation": "gelu", "gated": False}),
    ("t5", {"dense_act_fn": "silu", "is_gated_act": True}, {"activation": "silu", "gated": True}),
    *(("t5", {"tie_word_embeddings": tied, "scale_decoder_outputs": scales, "d_model": 16}, {"tie": tie, "output_scale": scale})
      for tied, scales, tie, scale in ((True, None, "all", 0.25), (False, None, "embeddings", 1.0), (True, False, "all", 1.0),
                                       (False, True, "embeddings", 0.25))),
    *(("t5", {"num_layers": 5, "num_decoder_layers": layers}, {"num_encoder_layers": 5, "num_decoder_layers": layers or 5})
      for layers in (None, 3)),
    ("t5", {"num_layers": 5, "num_decoder_layers": 0}, {"num_encoder_layers": 5, "num_decoder_layers": 0}),
    ("t5", {"decoder_start_token_id": 7}, {"bos_id": 7}),
    ("qwen2", {"use_sliding_window": True, "sliding_window": None}, {"attention.window": None}),
    ("qwen3", {"head_dim": ..., "hidden_size": 512}, {"attention.head_dim": 128}),
    ("qwen2", {"head_dim": ..., "hidden_size": 512}, {"attention.head_dim": 16}),
    ("gemma2", {"query_pre_attn_scalar": 16}, {"attention.scale": 0.25}),
    ("gemma3_text", {"final_logit_softcapping": 5.0}, {"logit_softcap": 5.0}),
    *(("gemma3_text", {"rope_parameters": {"full_attention": {"rope_theta": 7.0}, "sliding_attention": windowed}},
       {"positions.rotary_base": 7.0, "positions.rotary_window_base": base})
      for windowed, base in (({}, 10000.0), ({"rope_theta": 9.0}, 9.0))),
    ("llama", {"rope_parameters": None, "rope_scaling": {"rope_type": "linear", "type": "yarn", "factor": 2.0}},
     {"positions.rotary_scaling": {"rope_type": "linear", "factor": 2.0}}),
    ("llama", {"rope_parameters": {"rope_theta": 7.0}, "rope_scaling": {"type": "linear", "factor": 2.0}},
     {"positions.rotary_scaling": {"rope_type": "linear", "factor": 2.0}, "positions.rotary_base": 10000.0}),
    *(("llama", {"rope_parameters": {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 9, key: value}},
       {"positions.rotary_scaling": {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 9, key: value}})
      for key, value in (("truncate", False), ("mscale", 0.5), ("mscale_all_dim", 0.7), ("beta_fast", 30), ("beta_slow", 2),
                         ("attention_factor", 1.2))),
    *(("bert", {"position_embedding_type": kind}, {}) for kind in ("absolute", None)),
    ("vit", {"hidden_dropout_prob": 0.2}, {"head_dropout": 0.0, "dropout": 0.2}),
    ("distilbert", {}, {"norm_eps": 1e-12}), ("llama", {"pad_token_id": 0}, {"pad_id": 0}),
    *((name, {"pad_token_id": -1}, {"pad_id": None}) for name in ("llama", "mistral", "qwen3", "gemma2")),
    *((name, {"is_causal": value, "use_bidirectional_attention": None}, {}) for value in (True, None) for name in ("gpt2", "opt", "gpt_neox", "llama")),
]  # fmt: skip
"""Families, keys of config.json, and our options."""


@pytest.mark.parametrize("name", {name: None for name, *_ in READ})
def test_read_config_of_older_and_newer_keys(name: str) -> None:
    for model_type, changes, expected in READ:
        if model_type == name:
            config = of_defaults(name, **changes)
            found = config.flatten(config.to_dict())
            assert {key: found[key] for key in expected} == expected, changes


ACTIVATIONS = {
    "gelu": "gelu", "gelu_fast": "gelu_tanh", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "relu": "relu",
    "silu": "silu", "swish": "silu", "tanh": "tanh",
}  # fmt: skip


def test_activations_have_their_names_in_transformers() -> None:
    """`gelu_fast` is another form of the approximation by tanh, `quick_gelu` another function."""
    found = {name: of_defaults("bert", hidden_act=name).activation for name in ACTIVATIONS}
    assert found == ACTIVATIONS
    for name in ("quick_gelu", "gelu_10", "mish", "none"):
        with pytest.raises(ValueError, match="hidden_act must be one of gelu, "):
            of_defaults("bert", hidden_act=name)


CAUSAL = [name for name in FAMILIES if getattr(FAMILIES[name], "suffixes", {}).get("") and name not in ("bart", "marian", "mbart", "m2m_100", "t5")]  # fmt: skip
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    *((name, {"encoder_ffn_dim": 4, "decoder_ffn_dim": 8}, "decoder_ffn_dim must be 4, as encoder_ffn_dim") for name in ("bart", "marian")),
    *((name, {"encoder_attention_heads": 4, "decoder_attention_heads": 8}, "decoder_attention_heads must be 4") for name in ("bart", "marian")),
    ("opt", {"hidden_size": 24, "word_embed_proj_dim": 12}, "word_embed_proj_dim must be 24, as hidden_size"),
    *((name, {"pad_token_id": None}, "pad_token_id must be an id, got null") for name in ("roberta", "xlm-roberta", "m2m_100")),
    ("roberta", {"pad_token_id": 3, "max_position_embeddings": 4}, "max_position_embeddings must be more than 4, the first row"),
    *((name, {"hidden_act": "relu"}, "hidden_act must be gelu") for name in ("roberta", "xlm-roberta", "mpnet", "electra")),
    *((name, {"position_embedding_type": kind}, "position_embedding_type must be absolute or null")
      for name in ("bert", "roberta", "albert", "electra") for kind in ("relative_key", "relative_key_query")),
    ("modernbert", {"rope_scaling": {"rope_type": "linear", "factor": 2.0}}, "rope_scaling must be null"),
    ("modernbert", {"hidden_activation": "silu"}, "classifier_activation must be silu, as hidden_activation"),
    *(("gpt_neox", {"rope_parameters": None, "rotary_pct": part}, "rotary_pct must be 0 to 1") for part in (-0.1, 1.1)),
    *((name, {"use_bidirectional_attention": True}, "use_bidirectional_attention must be false or null") for name in CAUSAL if name != "gemma3_text"),
    *((name, {"is_causal": False}, "is_causal must be true or null") for name in CAUSAL),
    *((name, {"partial_rotary_factor": 0.5}, "partial_rotary_factor must be 1.0") for name in ("llama", "qwen3", "gemma", "phi3")),
    *((name, {"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor must be 1.0") for name in ("llama", "phi3")),
    *((name, {"num_hidden_layers": 3, "layer_types": ["full_attention"] * 2}, "layer_types must be full_attention or sliding_attention for each")
      for name in ("qwen2", "qwen3", "gemma2", "gemma3_text", "modernbert")),
    ("qwen2", {"num_hidden_layers": 1, "layer_types": []}, "layer_types must be full_attention or sliding_attention"),
    ("smollm3", {"num_hidden_layers": 3, "no_rope_layers": [1, 1]}, "no_rope_layers must be 1 or 0 for each layer"),
    ("t5", {"feed_forward_proj": "gated-odd"}, "feed_forward_proj must be one of gelu, .*, or gated-"),
    *((name, {"pad_token_id": -2}, "pad_token_id must be at least 0, got -2") for name in ("llama", "gemma", "gpt2", "bert")),
    *(("mpnet", {"pad_token_id": pad}, "pad_token_id must be 1") for pad in (0, 2, None)),
    *((name, {"pad_token_id": -1}, "pad_token_id must be ") for name in ("gpt2", "t5", "marian", "roberta", "m2m_100")),
    *((name, {"num_key_value_heads": 5}, "num_attention_heads must be divisible by num_key_value_heads, got num_attention_heads=.* and num_key_value_heads=5")
      for name in ("llama", "qwen2", "gemma3_text", "phi3")),
    *(("phi3", {"rope_parameters": {"rope_type": kind, "factor": 2.0}}, f"rope_type must be one of default, got \"{kind}\"")
      for kind in ("linear", "yarn", "llama3", "longrope")),
    *(("llama", {"rope_parameters": {"rope_type": kind, "factor": 2.0}}, "rope_type must be one of default, linear, llama3, yarn, got")
      for kind in ("dynamic", "longrope", "odd")),
    ("llama", {"rope_parameters": {"rope_type": "yarn", "factor": 0}}, "factor must be at least 1e-06"),
]  # fmt: skip


@pytest.mark.parametrize("name", {name: None for name, *_ in REFUSED})
def test_read_config_of_unsupported_values_raises(name: str) -> None:
    for model_type, changes, message in REFUSED:
        if model_type == name:
            with pytest.raises(ValueError, match=f"^config.json: .*{message}"):
                of_defaults(name, **changes)


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
