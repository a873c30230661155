"""Language models in GGUF files: settings, arrays, and the names of llama.cpp.

The package `gguf` decodes the quantized types.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from minigrad.check.extras import require
from minigrad.io.gguf import GGUFHeader
from minigrad.io.json import REQUIRED, Settings, matches
from minigrad.io.mapped import release
from minigrad.io.reading import listed, printable, require_file
from minigrad.io.safetensors import Entry, misfit

from ..inference.int8 import Int8Matrix
from ..text.gguf_tokenizer import end_ids

LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
"""Names of transformers inside a layer by names of llama.cpp."""
OTHER_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
KEYS = {
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "rope.freq_base": "rope_theta",
}
"""Keys of config.json by the keys of metadata below the architecture."""
DEFAULTS = {
    "attention.head_count_kv": None,
    "attention.key_length": None,
    "rope.freq_base": 10000.0,
    "attn_logit_softcapping": 50.0,
    "final_logit_softcapping": 30.0,
}
"""Values of keys that a file may lack, as in llama.cpp; it needs the others."""


@dataclass(frozen=True)
class Architecture:
    """An architecture of llama.cpp."""

    model_type: str  # that of config.json
    keys: Mapping[str, str] = field(default_factory=lambda: KEYS)
    layers: Mapping[str, str] = field(default_factory=lambda: LAYER_NAMES)
    others: Mapping[str, str] = field(default_factory=lambda: OTHER_NAMES)
    stack: str = "model.layers"  # name of the stack of layers in transformers
    transposed: tuple[str, ...] = ()  # ends of names of arrays that are (in, out) in transformers
    rotates_pairs: bool = False  # of neighbouring values; transformers rotates those of two halves
    shifts_norms: bool = False  # stores 1 + the weights of norms
    is_causal: bool = True  # tokens attend to earlier ones only
    window_step: int = 0  # of this many layers, one has no window; 0: see `_add_positions`
    window_key: str = "sliding_window"  # of config.json
    window_base_key: str = "rope_local_base_freq"  # base of rotations in layers with a window


_GEMMA2 = Architecture(
    "gemma2",
    keys=KEYS | {key: key for key in ("attn_logit_softcapping", "final_logit_softcapping")},
    layers=LAYER_NAMES
    | {
        "post_attention_norm": "post_attention_layernorm",
        "ffn_norm": "pre_feedforward_layernorm",
        "post_ffw_norm": "post_feedforward_layernorm",
    },
    shifts_norms=True,
    window_step=2,
    window_base_key="",
)
_GEMMA3 = replace(
    _GEMMA2,
    model_type="gemma3_text",
    keys=KEYS,
    window_step=6,
    window_base_key="rope_local_base_freq",
)
ARCHITECTURES = {
    "gemma": Architecture("gemma", shifts_norms=True),
    "gemma2": _GEMMA2,
    "gemma3": _GEMMA3,
    "gemma-embedding": replace(_GEMMA3, is_causal=False),
    "gpt2": Architecture(
        "gpt2",
        keys={
            "context_length": "n_positions",
            "embedding_length": "n_embd",
            "block_count": "n_layer",
            "feed_forward_length": "n_inner",
            "attention.head_count": "n_head",
            "attention.layer_norm_epsilon": "layer_norm_epsilon",
        },
        layers={
            "attn_norm": "ln_1",
            "attn_qkv": "attn.c_attn",
            "attn_output": "attn.c_proj",
            "ffn_norm": "ln_2",
            "ffn_up": "mlp.c_fc",
            "ffn_down": "mlp.c_proj",
        },
        others={
            "token_embd": "transformer.wte",
            "position_embd": "transformer.wpe",
            "output_norm": "transformer.ln_f",
            "output": "lm_head",
        },
        stack="transformer.h",
        transposed=("attn_qkv.weight", "attn_output.weight", "ffn_up.weight", "ffn_down.weight"),
    ),
    "llama": Architecture("llama", rotates_pairs=True),
    "mistral": Architecture("mistral", rotates_pairs=True),
    "modern-bert": Architecture(
        "modernbert",
        keys={
            "context_length": "max_position_embeddings",
            "embedding_length": "hidden_size",
            "block_count": "num_hidden_layers",
            "feed_forward_length": "intermediate_size",
            "attention.head_count": "num_attention_heads",
            "attention.layer_norm_epsilon": "norm_eps",
            "rope.freq_base": "global_rope_theta",
        },
        layers={
            "attn_norm": "attn_norm",
            "attn_qkv": "attn.Wqkv",
            "attn_output": "attn.Wo",
            "ffn_norm": "mlp_norm",
            "ffn_up": "mlp.Wi",
            "ffn_down": "mlp.Wo",
        },
        others={
            "token_embd": "model.embeddings.tok_embeddings",
            "token_embd_norm": "model.embeddings.norm",
            "output_norm": "model.final_norm",
        },
        is_causal=False,
        window_step=3,
        window_key="local_attention",
        window_base_key="local_rope_theta",
    ),
    "qwen2": Architecture("qwen2"),
    "qwen3": Architecture("qwen3"),
}
NAME = "general.architecture"
UNREAD = {"rope_freqs.weight", "dense_2.weight", "dense_3.weight"}
"""Factors of rotations, and layers that a sentence encoder puts after the model."""
LLAMA3_FACTORS = (8.0, 32.0)
"""Factors of the rotary scaling "llama3" of Llama 3.1 and 3.2."""


class GGUFFile(dict[str, Entry]):
    """Arrays of a GGUF file by their names in transformers; `array` decodes one.

    A damaged file, or an architecture or type that is not supported, raises a ValueError.
    `settings` is the content of config.json for this model.
    """

    def __init__(self, path: Path) -> None:
        self.file = printable(path, 500)
        self.library = require("gguf", f"{self.file}: GGUF")
        self.where = require_file(path)
        header = GGUFHeader(self.where, self.library)
        self._bytes, self.metadata, self.tensors = header.bytes, header.metadata, header.tensors
        general = Settings({NAME: self.metadata.get(NAME)}, self.file)
        self.name = general.text(NAME, choices=[*ARCHITECTURES])
        self.architecture = ARCHITECTURES[self.name]
        self.names = {self._hf_name(name): name for name in self.tensors if name not in UNREAD}
        for name, stored in self.names.items():
            kind, shape, *places = self.tensors[stored]
            shape = shape[::-1] if self._is_transposed(stored) else shape
            self[name] = Entry(kind.name, shape, *places)
        self.settings = self._settings()

    def _hf_name(self, name: str) -> str:
        """Return the name of an array in transformers, or the name itself if there is none."""
        layers, others = self.architecture.layers, self.architecture.others
        stem, _, end = name.rpartition(".")
        if stem in others:
            return f"{others[stem]}.{end}"
        start, _, rest = stem.partition(".")
        index, _, part = rest.partition(".")
        if start == "blk" and part in layers:
            return f"{self.architecture.stack}.{index}.{layers[part]}.{end}"
        return name

    def _is_transposed(self, name: str) -> bool:
        return name.startswith("blk.") and name.endswith(self.architecture.transposed)

    def _settings(self) -> Settings:
        """Return config.json, made of the metadata."""
        where = f"{self.file}: metadata"
        kind, prefix = self.architecture, f"{self.name}."
        names = [key for key in self.metadata if key.startswith(prefix)]
        data = Settings({key: self.metadata[key] for key in names}, where)
        known = {prefix + key for key in kind.keys}
        hf: dict[str, Any] = {"model_type": kind.model_type}
        for key, hf_key in kind.keys.items():
            value = self.metadata.get(prefix + key, DEFAULTS.get(key))
            if value is None and key not in DEFAULTS:
                raise ValueError(f"{where}: {prefix}{key} is missing")
            if value is not None:
                if not matches(value, float):
                    data.fail(prefix + key, "a number (values for each layer are not supported)")
                hf[hf_key] = float(str(np.float32(value))) if isinstance(value, float) else value
        tokens = self.tensors.get("token_embd.weight")
        if tokens is None:
            raise ValueError(f"{where}: token_embd.weight is missing from its arrays")
        hf["vocab_size"] = tokens.shape[0]
        hf["tie_word_embeddings"] = "output.weight" not in self.tensors
        expected = {
            "attention.causal": kind.is_causal,
            "expert_count": 0,
            "vocab_size": hf["vocab_size"],
        }
        if "rope.freq_base" in kind.keys:
            whole = hf["hidden_size"] // max(1, hf["num_attention_heads"])
            head_dim = data.integer(f"{prefix}attention.key_length", whole)
            expected |= dict.fromkeys(("attention.value_length", "rope.dimension_count"), head_dim)
            known |= {prefix + key for key in self._add_positions(hf, data, prefix)}
        if kind.window_step:
            known |= {prefix + key for key in self._add_windows(hf, data, prefix)}
        if kind.rotates_pairs:
            hf["attention_bias"] = "blk.0.attn_output.bias" in self.tensors
            hf["mlp_bias"] = False
        for key, value in expected.items():
            if self.metadata.get(prefix + key, value) != value:
                data.fail(prefix + key, f"{value} (others are not supported)")
        known |= {prefix + key for key in expected}
        unknown = [key for key in self.metadata if key.startswith(prefix) and key not in known]
        if unknown:
            raise ValueError(
                f"{where}: keys must be known to the architecture, got {listed(unknown)}; they "
                "might change its results"
            )
        ends = end_ids(self.metadata, where)
        hf["eos_token_id"] = ends[0] if len(ends) == 1 else ends or None
        hf["bos_token_id"] = self.metadata.get("tokenizer.ggml.bos_token_id")
        hf["pad_token_id"] = self.metadata.get("tokenizer.ggml.padding_token_id")
        if (suppressed := self.metadata.get("tokenizer.ggml.suppress_tokens")) is not None:
            hf["suppress_tokens"] = suppressed
        return Settings(hf, where)

    def _add_positions(self, hf: dict[str, Any], data: Settings, prefix: str) -> list[str]:
        """Set the window and the scaling of rotary positions, and return the keys read."""
        keys = ["attention.sliding_window", "rope.scaling.type", "rope.scaling.factor",
                "rope.scale_linear", "rope.scaling.original_context_length",
                "rope.scaling.finetuned"]  # fmt: skip
        window, kind, factor, older, length, _ = (self.metadata.get(prefix + key) for key in keys)
        if window and not self.architecture.window_step:
            if not self.architecture.rotates_pairs:
                data.fail(prefix + keys[0], "0 (windows are not supported here)")
            hf |= {"model_type": "mistral", "sliding_window": window}
        elif self.name == "mistral":
            hf["sliding_window"] = None
        if kind not in (None, "none", "linear", "yarn"):
            data.fail(prefix + keys[1], "none, linear or yarn (others are not supported)")
        factor = older if factor is None else factor
        if kind != "none" and factor:
            hf["rope_scaling"] = {"rope_type": kind or "linear", "factor": factor}
            if kind == "yarn":
                hf["rope_scaling"]["original_max_position_embeddings"] = length
        if "rope_freqs.weight" in self.tensors:
            if "rope_scaling" in hf:
                data.fail(prefix + keys[2], "missing beside rope_freqs.weight")
            hf["rope_scaling"] = self._llama3_scaling(hf)
        return keys

    def _add_windows(self, hf: dict[str, Any], data: Settings, prefix: str) -> list[str]:
        """Set the windows of some layers and their rotations, and return the keys read."""
        keys = ["attention.sliding_window", "attention.sliding_window_pattern",
                "rope.freq_base_swa", "pooling_type",
                *(f"dense_{i}_feat_{way}" for i in (2, 3) for way in ("in", "out"))]  # fmt: skip
        kind, count = self.architecture, data.integer(f"{prefix}block_count", low=0)
        names = [prefix + key for key in keys]
        default = {"gemma2": 4096, "gemma-embedding": REQUIRED}.get(self.name, 0)
        window = data.integer(names[0], default, low=0)
        step = data.integer(names[1], kind.window_step)
        base = data.number(names[2], None)
        full = 0 if kind.model_type == "modernbert" else step - 1
        layers = range(min(count, len(self.tensors)))
        is_full = [not window or i % step == full for i in layers]
        hf["layer_types"] = [("sliding", "full")[x] + "_attention" for x in is_full]
        if window:
            hf[kind.window_key] = window
        if kind.window_base_key:
            hf[kind.window_base_key] = 10000.0 if base is None else base
        elif base not in (None, hf["rope_theta"]):
            data.fail(names[2], f"{hf['rope_theta']}, as rope.freq_base (others are not supported)")
        if kind.model_type == "modernbert":
            name = f"{prefix}hidden_act"
            act = hf["hidden_activation"] = data.text(name, "gelu", choices=("gelu", "silu"))
            hf["classifier_activation"] = act  # of heads, which the file lacks
            return [*keys, "hidden_act"]
        is_27b = count == (46 if kind.model_type == "gemma2" else 62) and kind.is_causal
        whole = hf["hidden_size"] // max(1, hf["num_attention_heads"])
        head_dim = hf.get("head_dim") or whole
        hf |= {"head_dim": head_dim, "use_bidirectional_attention": not kind.is_causal}
        hf["query_pre_attn_scalar"] = whole if is_27b else head_dim
        if (bound := data.number(f"{prefix}final_logit_softcapping", None)) and kind.is_causal:
            hf["final_logit_softcapping"] = bound
        return [*keys, "final_logit_softcapping"]

    def _llama3_scaling(self, hf: dict[str, Any]) -> dict[str, Any]:
        """Return the settings of the scaling whose factors are stored."""
        factors = self._decoded("rope_freqs.weight").reshape(-1)
        base = float(hf.get("rope_theta", 10000.0))
        frequencies = base ** (-np.arange(len(factors)) / max(1, len(factors)))
        wavelengths = 2 * np.pi / frequencies
        for factor in LLAMA3_FACTORS:
            smooth = np.clip((8192 / wavelengths - 1) / 3, 0, 1)
            expected = 1 / ((1 - smooth) / factor + smooth)
            if np.allclose(factors, expected, rtol=1e-3):
                return {
                    "rope_type": "llama3",
                    "factor": factor,
                    "low_freq_factor": 1.0,
                    "high_freq_factor": 4.0,
                    "original_max_position_embeddings": 8192,
                }
        raise ValueError(
            f"{self.where}: rope_freqs.weight must be the factors of Llama 3.1 or 3.2 (others are "
            "not supported)"
        )

    def _raw(self, name: str) -> np.ndarray:
        """Return the bytes of the rows of an array, (rows, bytes)."""
        tensor = self.tensors[name]
        return self._bytes[tensor.start : tensor.end].reshape(math.prod(tensor.shape[:-1]), -1)

    def _decoded(self, name: str, rows: slice = slice(None)) -> np.ndarray:
        """Return rows of an array as float32, in the order of the file."""
        kind = self.tensors[name].kind
        raw = self._raw(name)[rows]
        codes = {"F32": "<f4", "F16": "<f2", "F64": "<f8"}
        if kind.name in codes:
            values = raw.view(codes[kind.name]).astype(np.float32)
        else:
            try:
                with np.errstate(all="ignore"):
                    values = self.library.dequantize(raw, kind)
            except NotImplementedError:
                raise ValueError(
                    f"{self.file}: {printable(name)}: its type {kind.name} is not supported"
                ) from None
        release(raw)
        return np.asarray(values, np.float32)

    def _order(self, name: str) -> np.ndarray | None:
        """Return the row of the file for each row of transformers, if they differ.

        llama.cpp rotates neighbouring pairs of values, and transformers values of two halves.
        """
        if not self.architecture.rotates_pairs:
            return None
        kind = name.split(".")[-2]
        if kind not in ("attn_q", "attn_k"):
            return None
        key = "num_attention_heads" if kind == "attn_q" else "num_key_value_heads"
        heads = self.settings.get(key) or self.settings["num_attention_heads"]
        rows = self.tensors[name].shape[0]
        if rows % (2 * heads):
            raise ValueError(
                f"{self.where}: {printable(name)} must have rows of whole pairs for {heads} heads, "
                f"got {rows}"
            )
        return np.arange(rows).reshape(heads, -1, 2).swapaxes(1, 2).reshape(-1)

    def array(self, name: str, dtype: Any = None) -> np.ndarray:
        """Return the array of a name in transformers as float32, or as another dtype."""
        stored = self.names[name]
        shape = self.tensors[stored].shape
        values = self._decoded(stored).reshape(shape)
        order = self._order(stored)
        if order is not None:
            values = values[order]
        if self.architecture.shifts_norms and stored.endswith("norm.weight"):
            values = values - 1  # llama.cpp stores 1 + weight
        values = values.T if self._is_transposed(stored) else values
        with np.errstate(over="ignore"):
            return values if dtype is None else values.astype(dtype, copy=False)

    def checked(self, name: str, dtype: np.dtype) -> np.ndarray:
        """Return an array whose values are finite."""
        array = self.array(name, dtype)
        if wrong := misfit(name, array, dtype):
            raise ValueError(f"{self.file}: {wrong}")
        return array

    def matrix(self, name: str) -> Int8Matrix:
        """Return the weight (out, in) of a linear layer or an embedding, in 8 bits.

        Q8_0 is unpacked without rounding. Other types are decoded and rounded block by block.
        """
        stored = self.names[name]
        tensor, order = self.tensors[stored], self._order(stored)
        if tensor.kind.name == "Q8_0":
            raw = self._raw(stored)
            blocks = raw.reshape(len(raw), -1, 34)  # a scale in float16, and 32 integers
            scales = blocks[:, :, :2].copy().view("<f2")[..., 0].astype(np.float32)
            matrix = Int8Matrix(blocks[:, :, 2:].reshape(tensor.shape).view(np.int8), scales)
            release(raw)
            if not np.isfinite(scales).all():
                raise ValueError(f"{self.file}: {printable(name)} must have finite scales")
        else:
            try:
                matrix = Int8Matrix.from_rows(
                    lambda rows: self._decoded(stored, rows), tensor.shape, np.float32
                )
            except ValueError as error:
                raise ValueError(f"{self.file}: {printable(name)}: {error}") from None
        return matrix if order is None else Int8Matrix(matrix.values[order], matrix.scales[order])
