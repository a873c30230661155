"""Published translation models: Marian's, such as OPUS-MT (Junczys-Dowmunt et al. 2018, arXiv:1804.00344).

`load_marian` reads a directory with the `config.json` and `model.safetensors` in which Hugging Face
keeps such a model. Token ids are those of the model's own SentencePiece vocabulary.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from minigrad.serialization import load_arrays

from .config import TransformerConfig
from .transformer import Transformer

__all__ = ["load_marian", "marian_config", "marian_state"]

_ACTIVATIONS = {"swish": "silu", "silu": "silu", "relu": "relu", "gelu": "gelu"}


def marian_config(settings: Mapping[str, Any]) -> TransformerConfig:
    """The configuration that the settings of a `config.json` describe."""
    differ = [n for n in ("attention_heads", "ffn_dim") if settings[f"encoder_{n}"] != settings[f"decoder_{n}"]]
    if differ or settings["activation_function"] not in _ACTIVATIONS:
        raise ValueError(
            f"a Marian model with other {', '.join(differ)} in its decoder than in its encoder is not supported"
            if differ
            else f"a Marian model with activation {settings['activation_function']!r} is not supported"
        )
    return TransformerConfig(
        settings["vocab_size"], settings["vocab_size"], settings["d_model"], settings["encoder_attention_heads"],
        settings["encoder_layers"], settings["decoder_layers"], settings["encoder_ffn_dim"],
        dropout=settings.get("dropout", 0.1), attention_dropout=settings.get("attention_dropout", 0.0),
        activation=_ACTIVATIONS[settings["activation_function"]], positions="sinusoidal_halves",
        max_len=settings["max_position_embeddings"], scale_embedding=settings.get("scale_embedding", False),
        tie="all", pad_id=settings["pad_token_id"], bos_id=settings["decoder_start_token_id"],
        eos_id=settings["eos_token_id"],
    )  # fmt: skip


def _names(stack: str, layer: int) -> Iterator[tuple[str, str]]:
    """(our name, Marian's name) of the modules of a layer."""
    parts = [("self_attention", "self_attn", "norm1", "self_attn_layer_norm")]
    if stack == "decoder":
        parts.append(("cross_attention", "encoder_attn", "norm2", "encoder_attn_layer_norm"))
    for ours, theirs, norm, their_norm in parts:
        yield norm, their_norm
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            yield f"{ours}.{name}", f"{theirs}.{name}"
    yield f"norm{len(parts) + 1}", "final_layer_norm"
    yield "feed_forward.linear1", "fc1"
    yield "feed_forward.linear2", "fc2"


def marian_state(arrays: Mapping[str, np.ndarray], config: TransformerConfig) -> dict[str, np.ndarray]:
    """Marian's arrays under the names that a `Transformer` of this configuration has for them."""
    state = {"source_embedding.tokens.weight": arrays["model.shared.weight"]}
    for stack, layers in (("encoder", config.num_encoder_layers), ("decoder", config.num_decoder_layers)):
        for i in range(layers):
            for ours, theirs in _names(stack, i):
                for kind in ("weight", "bias"):
                    name = f"model.{stack}.layers.{i}.{theirs}.{kind}"
                    state[f"{stack}.layers.{i}.{ours}.{kind}"] = arrays[name]
    bias = arrays.get("final_logits_bias")
    state["output.bias"] = np.zeros(config.target_vocab_size, np.float32) if bias is None else bias.reshape(-1)
    return state


def load_marian(directory: str | Path) -> Transformer:
    """The model in a directory with `config.json` and `model.safetensors`, in evaluation mode."""
    directory = Path(directory)
    config = marian_config(json.loads((directory / "config.json").read_text(encoding="utf-8")))
    try:
        state = marian_state(load_arrays(directory / "model.safetensors")[0], config)
        if not state["output.bias"].any():  # adding zeros would be a pass over all scores
            del state["output.bias"]
            config = replace(config, output_bias=False)
        model = Transformer(config, init=False)
        model.load_state_dict(state)
    except KeyError as error:
        raise ValueError(f"{directory}: not the weights of such a Marian model: {error.args[0]}") from None
    model.eval()
    return model
