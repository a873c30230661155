"""Models that were made here, as a model of a family that others know: its settings and its arrays."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from minigrad.files.json import Settings

from ..base import Model
from ..config import EncoderConfig, LanguageModelConfig, ModelConfig, TransformerConfig
from ..encoder import EncoderClassifier, MaskedLanguageModel, TokenClassifier
from .families import ACTIVATIONS, FAMILIES
from .folder import Origin
from .load import SUFFIXES

__all__ = ["adopted", "in_halves"]

_THEIRS = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}


def adopted(model: Model) -> Origin:
    """The settings under which a model is one of its family's: Llama, GPT-2, Marian, BERT or DistilBERT.

    A ValueError lists what the family does not have.
    """
    config, head = model.config, _head(model)
    if isinstance(config, LanguageModelConfig):
        name, settings = ("llama", _llama(config)) if config.norm == "rms" else ("gpt2", _gpt2(config))
    elif isinstance(config, TransformerConfig):
        name, settings = "marian", _marian(config)
    else:
        name, settings = ("bert", _bert(config)) if config.num_types else ("distilbert", _distilbert(config))
    family = FAMILIES[name]
    suffix = SUFFIXES[head] if head else {"llama": "ForCausalLM", "gpt2": "LMHeadModel", "marian": "MTModel"}[name]
    settings = {"model_type": name, "architectures": [family.base + suffix], **settings}
    expected, found = _essence(family.config(Settings(settings, name))), _essence(config)
    differ = [f"{key}={found[key]!r} (expected {expected[key]!r})" for key in found if found[key] != expected[key]]
    if head == "classes":
        differ += [
            f"{k}={getattr(config, k)!r} (expected {v!r})" for k, v in family.classes.items() if getattr(config, k) != v
        ]
    if differ:
        raise ValueError(
            f"save: not a model that {family.base} can describe: {', '.join(differ)}; nn.save_weights keeps any"
        )
    return Origin(name, settings, head, family.prefixes[-1 if head == "none" else 0])


def _head(model: Model) -> str:
    kinds = {MaskedLanguageModel: "mlm", EncoderClassifier: "classes", TokenClassifier: "tokens"}
    return next(
        (h for kind, h in kinds.items() if isinstance(model, kind)),
        "none" if isinstance(model.config, EncoderConfig) else "",
    )


def _essence(config: Any) -> dict[str, Any]:
    """What a configuration says about the results of its model, each thing said in one way."""
    essence = asdict(config)
    for name in (
        "dropout",
        "attention_dropout",
        "activation_dropout",
        "dtype",
        "pruned_heads",
        "num_classes",
        "pool",
        "head_activation",
    ):
        essence.pop(name, None)
    if config.positions != "rotary":
        essence = {k: v for k, v in essence.items() if "rotary" not in k}
    if config.positions != "relative":
        essence = {k: v for k, v in essence.items() if "relative" not in k}
    if config.positions == "sinusoidal":  # in another order: see in_halves
        essence["positions"] = "sinusoidal_halves"
    return essence | {
        "final_norm": config.has_final_norm, "scale_embedding": round(config.embedding_factor, 9),
        "num_kv_heads": config.num_kv_heads or config.num_heads, "head_dim": config.size_of_head,
        "attention_scale": config.attention_scale or config.size_of_head**-0.5, "eos_id": config.end_ids,
        "attention_bias": config.bias if config.attention_bias is None else config.attention_bias,
        "embedding_size": config.embedding_size or config.d_model,
    }  # fmt: skip


def _rates(config: ModelConfig) -> tuple[float, float]:
    return config.dropout, config.dropout if config.attention_dropout is None else config.attention_dropout


def _marks(config: ModelConfig) -> dict[str, Any]:
    ends = list(config.end_ids)
    return {
        "pad_token_id": config.pad_id, "bos_token_id": config.bos_id,
        "eos_token_id": ends[0] if len(ends) == 1 else ends or None,
    }  # fmt: skip


def _gpt2(c: LanguageModelConfig) -> dict[str, Any]:
    dropout, attention = _rates(c)
    return {
        "vocab_size": c.vocab_size, "n_embd": c.d_model, "n_head": c.num_heads, "n_layer": c.num_layers,
        "n_inner": c.d_ff, "n_positions": c.max_len, "activation_function": _THEIRS.get(c.activation),
        "layer_norm_epsilon": c.norm_eps, "resid_pdrop": dropout, "embd_pdrop": dropout, "attn_pdrop": attention,
        "tie_word_embeddings": c.tie, **_marks(c),
    }  # fmt: skip


def _llama(c: LanguageModelConfig) -> dict[str, Any]:
    scaling = {"rope_scaling": dict(c.rotary_scaling)} if c.rotary_scaling else {}
    return {
        "vocab_size": c.vocab_size, "hidden_size": c.d_model, "num_attention_heads": c.num_heads,
        "num_hidden_layers": c.num_layers, "intermediate_size": c.d_ff, "hidden_act": _THEIRS.get(c.activation),
        "num_key_value_heads": c.num_kv_heads or c.num_heads, "head_dim": c.size_of_head, "rms_norm_eps": c.norm_eps,
        "max_position_embeddings": c.max_len, "rope_theta": c.rotary_base, **scaling,
        "attention_bias": bool(c.bias if c.attention_bias is None else c.attention_bias), "mlp_bias": c.bias,
        "attention_dropout": _rates(c)[1], "tie_word_embeddings": c.tie, **_marks(c),
    }  # fmt: skip


def _marian(c: TransformerConfig) -> dict[str, Any]:
    dropout, attention = _rates(c)
    sides = {
        f"{side}_{name}": value
        for side, layers in (("encoder", c.num_encoder_layers), ("decoder", c.num_decoder_layers))
        for name, value in (("layers", layers), ("attention_heads", c.num_heads), ("ffn_dim", c.d_ff))
    }
    return {
        "vocab_size": c.source_vocab_size, "decoder_vocab_size": c.target_vocab_size, "d_model": c.d_model, **sides,
        "activation_function": _THEIRS.get(c.activation), "scale_embedding": bool(c.scale_embedding),
        "max_position_embeddings": c.max_len, "dropout": dropout, "attention_dropout": attention,
        "activation_dropout": 0.0, "share_encoder_decoder_embeddings": c.tie == "all",
        "tie_word_embeddings": c.tie in ("all", "target"), "decoder_start_token_id": c.bos_id,
        "forced_eos_token_id": None, "is_encoder_decoder": True, **_marks(c),
    }  # fmt: skip


def _bert(c: EncoderConfig) -> dict[str, Any]:
    dropout, attention = _rates(c)
    return {
        "vocab_size": c.vocab_size, "hidden_size": c.d_model, "num_attention_heads": c.num_heads,
        "num_hidden_layers": c.num_layers, "intermediate_size": c.d_ff, "hidden_act": _THEIRS.get(c.activation),
        "max_position_embeddings": c.max_len, "type_vocab_size": c.num_types, "layer_norm_eps": c.norm_eps,
        "hidden_dropout_prob": dropout, "attention_probs_dropout_prob": attention, **_marks(c),
    }  # fmt: skip


def _distilbert(c: EncoderConfig) -> dict[str, Any]:
    dropout, attention = _rates(c)
    return {
        "vocab_size": c.vocab_size, "dim": c.d_model, "n_heads": c.num_heads, "n_layers": c.num_layers,
        "hidden_dim": c.d_ff, "activation": _THEIRS.get(c.activation), "max_position_embeddings": c.max_len,
        "dropout": dropout, "attention_dropout": attention, "sinusoidal_pos_embds": False, **_marks(c),
    }  # fmt: skip


def in_halves(name: str, array: np.ndarray, d_model: int) -> np.ndarray:
    """A parameter of a model with interleaved sines and cosines, for one that has all sines before all cosines.

    The d_model numbers of a position are put in another order wherever they appear: as columns of what reads
    them, as rows of what writes them.
    """
    order = np.r_[0:d_model:2, 1:d_model:2]
    writes = any(f".{part}." in name for part in ("out_proj", "linear2")) or ".norm" in name
    reads = any(f".{part}." in f".{name}" for part in ("tokens", "q_proj", "k_proj", "v_proj", "linear1", "gate"))
    if writes:
        return array[order]
    return array[:, order] if array.ndim > 1 and (reads or name == "output.weight") else array
