"""Write GGUF files from the arrays and settings of tiny models, as llama.cpp's converter does."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from support.gguf_library import gguf

NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    **{name: name for name in ("rope_freqs", "dense_2", "dense_3")},
    "transformer.wte": "token_embd",
    "transformer.wpe": "position_embd",
    "transformer.ln_f": "output_norm",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "ln_1": "attn_norm",
    "ln_2": "ffn_norm",
    "attn.c_attn": "attn_qkv",
    "attn.c_proj": "attn_output",
    "mlp.c_fc": "ffn_up",
    "mlp.c_proj": "ffn_down",
    "post_feedforward_layernorm": "post_ffw_norm",
    "model.embeddings.tok_embeddings": "token_embd",
    "model.embeddings.norm": "token_embd_norm",
    "model.final_norm": "output_norm",
    "attn_norm": "attn_norm",
    "attn.Wqkv": "attn_qkv",
    "attn.Wo": "attn_output",
    "mlp_norm": "ffn_norm",
    "mlp.Wi": "ffn_up",
    "mlp.Wo": "ffn_down",
}
AROUND_SUBLAYERS = {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
}
"""Names of the architectures that also normalize the outputs of sublayers."""
KEYS = {
    "max_position_embeddings": "context_length",
    "hidden_size": "embedding_length",
    "num_hidden_layers": "block_count",
    "intermediate_size": "feed_forward_length",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    "layer_norm_epsilon": "attention.layer_norm_epsilon",
    "n_positions": "context_length",
    "n_embd": "embedding_length",
    "n_layer": "block_count",
    "n_inner": "feed_forward_length",
    "n_head": "attention.head_count",
    "rope_theta": "rope.freq_base",
    "rope_local_base_freq": "rope.freq_base_swa",
    "norm_eps": "attention.layer_norm_epsilon",
    "global_rope_theta": "rope.freq_base",
    "local_rope_theta": "rope.freq_base_swa",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
    "sliding_window": "attention.sliding_window",
    "local_attention": "attention.sliding_window",
}


def random_blocks(library: Any, kind: Any, count: int, rng: np.random.Generator) -> np.ndarray:
    """Return random blocks (count, bytes) of a type that decode to small finite values."""
    height, size = library.GGML_QUANT_SIZES[kind]
    chosen = np.empty((0, size), np.uint8)
    while len(chosen) < count:
        blocks = rng.integers(0, 256, (4 * count + 64, size), dtype=np.uint8)
        with np.errstate(all="ignore"):
            values = library.dequantize(blocks, kind).reshape(-1, height)
            chosen = np.concatenate([chosen, blocks[np.abs(values).max(-1) < 0.5]])
    return chosen[:count]


def write_gguf(
    path: Path,
    architecture: str,
    settings: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray],
    kind: str = "F32",
    metadata: Mapping[str, Any] | None = None,
) -> dict[str, np.ndarray]:
    """Write a model by its config.json and arrays in transformers, with matrices of a type.

    Types that the package cannot write get random blocks. The result has the arrays as they are
    decoded, by their names in transformers.
    """
    quantization, rng = gguf.GGMLQuantizationType[kind], np.random.default_rng(0)
    writer = gguf.GGUFWriter(path, architecture)
    for key, name in KEYS.items():
        if (value := settings.get(key)) is not None:
            add = writer.add_float32 if isinstance(value, float) else writer.add_uint32
            add(f"{architecture}.{name}", value)
    for key, value in (metadata or {}).items():
        writer.kv_data[0].pop(key, None)
        writer.add_key_value(key, *value)
    decoded = {}
    names = NAMES | (
        AROUND_SUBLAYERS if architecture.startswith(("gemma2", "gemma3", "gemma-")) else {}
    )
    for name, array in arrays.items():
        stem, _, end = name.rpartition(".")
        parts = stem.split(".")
        if len(parts) > 3:
            stored = f"blk.{parts[2]}.{names['.'.join(parts[3:])]}.{end}"
        else:
            stored = f"{names[stem]}.{end}"
        data = np.asarray(array, np.float32)
        is_transposed = architecture == "gpt2" and data.ndim == 2 and ".h." in name
        data = data.T if is_transposed else data
        heads = settings.get("num_attention_heads") if "q_proj" in name else None
        if "k_proj" in name:
            heads = settings.get("num_key_value_heads") or settings["num_attention_heads"]
        is_paired = architecture in ("llama", "mistral") and heads is not None
        if is_paired:  # neighbouring pairs instead of halves
            halves = data.reshape(heads, 2, -1, *data.shape[1:])
            data = halves.swapaxes(1, 2).reshape(data.shape)
        if architecture.startswith("gemma") and stored.endswith("norm.weight"):
            data = data + 1
        data = np.ascontiguousarray(data)
        back = data
        if data.ndim == 2 and kind != "F32":
            try:
                raw = gguf.quantize(data, quantization)
            except NotImplementedError:
                height, size = gguf.GGML_QUANT_SIZES[quantization]
                blocks = random_blocks(gguf, quantization, data.size // height, rng)
                raw = blocks.reshape(len(data), -1)
            writer.add_tensor(stored, raw, raw_dtype=quantization)
            back = np.asarray(gguf.dequantize(raw, quantization), np.float32)
        else:
            writer.add_tensor(stored, data)
        if is_paired:
            pairs = back.reshape(heads, -1, 2, *back.shape[1:])
            back = pairs.swapaxes(1, 2).reshape(back.shape)
        if architecture.startswith("gemma") and stored.endswith("norm.weight"):
            back = back - 1
        decoded[name] = back.T if is_transposed else back
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return decoded
