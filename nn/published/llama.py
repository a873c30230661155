"""Llama and its relatives: RMS norms, rotary positions, gated feed-forward networks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from minigrad.io.json import Settings

from ..options.config import EncoderConfig
from ..options.encoder import EncoderModel
from .family import QKV, DecoderOnly, Family, HFConfig, StoredArray, projections, without

_SCALING_NUMBERS = (
    "factor",
    "low_freq_factor",
    "high_freq_factor",
    "original_max_position_embeddings",
    "attention_factor",
    "beta_fast",
    "beta_slow",
    "mscale",
    "mscale_all_dim",
)


def rotary_positions(
    hf: HFConfig,
    base: float,
    *,
    kinds: Sequence[str] = ("default", "linear", "llama3", "yarn"),
    part: float | None = None,
    head_dim: int = 0,
    window_base: float | None = None,
) -> dict[str, Any]:
    """Return the options of positions from `rope_scaling`, or from `rope_parameters`.

    With a `window_base`, that of layers with a window, the latter are those of two kinds of layers.
    """
    older = hf.object("rope_scaling", None)
    newer = hf.object("rope_parameters", None)
    if window_base is not None and newer is not None:
        kinds_of_layers = HFConfig(newer, newer.where)
        windowed = HFConfig(kinds_of_layers.object("sliding_attention", {}), newer.where)
        newer = kinds_of_layers.object("full_attention", None)
        kinds_of_layers.expect_harmless(frozenset())
        windowed.expect("rope_type", "default")
        window_base = float(windowed.number("rope_theta", window_base, low=1))
        windowed.expect_harmless(frozenset())
    scaling = HFConfig(older or newer or {}, (older or newer or hf).where)
    kind = scaling.text(["rope_type", "type"], "default", choices=kinds)
    base = float(scaling.number("rope_theta", base, low=1))
    if part is None:
        scaling.expect("partial_rotary_factor", 1.0, None)
    else:
        part = scaling.number("partial_rotary_factor", part, low=0, high=1)
    values = {name: scaling.number(name, None, low=1e-6) for name in _SCALING_NUMBERS}
    values |= {"rope_type": kind, "truncate": scaling.flag("truncate", None)}
    scaling.expect_harmless(frozenset())
    key = "original_max_position_embeddings"
    length = hf.number(key, None, low=1e-6)
    if kind in ("llama3", "yarn"):
        values[key] = length or values[key] or hf.integer("max_position_embeddings")
    options = {name: value for name, value in values.items() if value is not None}
    return {
        "positions.kind": "rotary",
        "positions.rotary_base": base,
        "positions.rotary_window_base": window_base,
        "positions.rotary_scaling": None if kind == "default" else options,
        "positions.rotary_dim": None if part is None else int(head_dim * part),
    }


def window_layers(hf: HFConfig, pattern: Callable[[int], int]) -> list[int]:
    """Return the layers with a window: those of `layer_types`, or whose `pattern` is not 0."""
    count = hf.integer("num_hidden_layers", low=0, high=10_000)
    kinds = hf.list("layer_types", str, None)
    if kinds is None:
        return [i for i in range(count) if pattern(i)]
    if len(kinds) < count or not {*kinds} <= {"sliding_attention", "full_attention"}:
        hf.fail("layer_types", "full_attention or sliding_attention for each layer")
    return [i for i, kind in enumerate(kinds[:count]) if kind == "sliding_attention"]


class Llama(DecoderOnly):
    """Llama 1 to 3, TinyLlama, SmolLM2: Touvron et al. (2023), arXiv:2302.13971."""

    base = "Llama"
    keys = DecoderOnly.keys | {
        "activation": "hidden_act",
        "norm_eps": "rms_norm_eps",
        "bias": "mlp_bias",
        "attention.num_kv_heads": "num_key_value_heads",
        "attention.head_dim": "head_dim",
        "attention.bias": "attention_bias",
        "attention.dropout": "attention_dropout",
        "positions.rotary_base": "rope_theta",
        "positions.rotary_scaling": "rope_scaling",
    }
    defaults: ClassVar[dict[str, Any]] = {
        "max_position_embeddings": 2048,
        "num_key_value_heads": None,
        "head_dim": None,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "mlp_bias": False,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "rope_theta": 10000.0,
        "rope_scaling": None,
        "rope_interleaved": False,
        "tie_word_embeddings": False,
        "pad_token_id": None,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    harmless = {"is_llama_config"}
    names = {
        "embed_tokens": "embedding.tokens",
        "norm": "layers.norm",
    }
    layers = {
        "input_layernorm": "norm1",
        **projections("self_attn.", "q_proj", "k_proj", "v_proj", "o_proj"),
        "post_attention_layernorm": "norm2",
        "mlp.gate_proj": "feed_forward.linear1",
        "mlp.up_proj": "feed_forward.gate",
        "mlp.down_proj": "feed_forward.linear2",
        "self_attn.rotary_emb.inv_freq": None,
    }
    rope_types: ClassVar[Sequence[str]] = ("default", "linear", "llama3", "yarn")

    def config(self, hf: HFConfig) -> dict[str, Any]:
        hf.expect_causal()
        hf.expect("partial_rotary_factor", 1.0, None)
        options = hf.options(self.keys)
        if options["pad_id"] == -1:  # none, in the first files
            options["pad_id"] = None
        return {
            "dropout": 0.0,
            "activation_dropout": 0.0,
            **options,
            "gated": True,
            "norm": "rms",
            "attention.bias": hf.flag("attention_bias"),
            **self.positions(hf),
        }

    def positions(self, hf: HFConfig) -> dict[str, Any]:
        return rotary_positions(hf, hf.number("rope_theta"), kinds=self.rope_types)


class Mistral(Llama):
    """Mistral 7B: Jiang et al. (2023), arXiv:2310.06825. All layers have the window."""

    base = "Mistral"
    keys = Llama.keys | {"attention.window": "sliding_window"}
    defaults = Llama.defaults | {
        "num_key_value_heads": 8,
        "max_position_embeddings": 131072,
        "sliding_window": 4096,
    }


class Phi3(Llama):
    """Phi-3: Abdin et al. (2024), arXiv:2404.14219. Some arrays hold several parameters."""

    base = "Phi3"
    keys = Llama.keys | {"attention.window": "sliding_window", "dropout": "resid_pdrop"}
    defaults = Llama.defaults | {
        "max_position_embeddings": 4096,
        "resid_pdrop": 0.0,
        "rms_norm_eps": 1e-5,
        "sliding_window": None,
        "pad_token_id": 32000,
        "eos_token_id": 32000,
    }
    layers = {
        **without(Llama.layers, "q_proj", "k_proj", "v_proj", "gate_proj", "up_proj"),
        "self_attn.qkv_proj": StoredArray(QKV),
        "mlp.gate_up_proj": StoredArray(("feed_forward.linear1", "feed_forward.gate")),
    }
    rope_types = ("default",)  # the other types of Phi-3 are different scalings


class Qwen2(Llama):
    """Qwen2 and Qwen2.5: Yang et al. (2024), arXiv:2407.10671."""

    base = "Qwen2"
    defaults = Llama.defaults | {
        "num_key_value_heads": 32,
        "max_position_embeddings": 32768,
        "use_sliding_window": False,
        "sliding_window": 4096,
        "max_window_layers": 28,
        "layer_types": None,
        "bos_token_id": None,
        "eos_token_id": None,
    }

    def config(self, hf: HFConfig) -> dict[str, Any]:
        return super().config(hf) | {"attention.bias": "qkv"} | self.window(hf)

    def window(self, hf: HFConfig) -> dict[str, Any]:
        """Return the options of the window that `use_sliding_window` turns on."""
        window = hf.options({"attention.window": "sliding_window"})
        layers = window_layers(hf, self.has_window(hf))
        if not hf.flag("use_sliding_window") or window["attention.window"] is None:
            return {}
        return window | {"attention.window_layers": layers}

    def has_window(self, hf: HFConfig) -> Callable[[int], int]:
        """Return whether a layer has a window if `layer_types` does not list the layers."""
        first = hf.integer("max_window_layers", low=0)
        return lambda i: i >= first


class Qwen3(Qwen2):
    """Qwen3: Yang et al. (2025), arXiv:2505.09388. Queries and keys are normalized."""

    base = "Qwen3"
    defaults = Qwen2.defaults | {"head_dim": 128}
    layers = {
        **Llama.layers,
        "self_attn.q_norm": "self_attention.q_norm",
        "self_attn.k_norm": "self_attention.k_norm",
    }

    def config(self, hf: HFConfig) -> dict[str, Any]:
        return Llama.config(self, hf) | {"attention.qk_norm": True} | self.window(hf)


class SmolLM3(Qwen2):
    """SmolLM3: some layers have no rotary positions."""

    base = "SmolLM3"
    defaults = Qwen2.defaults | {
        "num_key_value_heads": 4,
        "rope_theta": 2000000.0,
        "no_rope_layers": None,
        "no_rope_layer_interval": 4,
        "tie_word_embeddings": True,
        "sliding_window": None,
        "pad_token_id": 128004,
        "bos_token_id": 128000,
        "eos_token_id": 128001,
    }

    def config(self, hf: HFConfig) -> dict[str, Any]:
        has_window = self.has_window(hf)
        layers = [*filter(has_window, range(hf.integer("num_hidden_layers", low=0, high=10_000)))]
        options = Llama.config(self, hf) | self.window(hf)
        return options | {"positions.no_rotary_layers": layers}

    def has_window(self, hf: HFConfig) -> Callable[[int], int]:
        """Return whether a layer has no rotary positions."""
        interval = hf.integer("no_rope_layer_interval")
        rotates = hf.list("no_rope_layers", int)  # 1 if a layer has rotary positions
        if rotates is None:
            return lambda i: (i + 1) % interval == 0
        if len(rotates) < hf.integer("num_hidden_layers"):
            hf.fail("no_rope_layers", "1 or 0 for each layer")
        return lambda i: not rotates[i]


class Gemma(Llama):
    """Gemma: Mesnard et al. (2024), arXiv:2403.08295."""

    base = "Gemma"
    defaults = Llama.defaults | {
        "num_key_value_heads": 16,
        "head_dim": 256,
        "max_position_embeddings": 8192,
        "hidden_act": "gelu_pytorch_tanh",
        "tie_word_embeddings": True,
        "pad_token_id": 0,
        "bos_token_id": 2,
        "eos_token_id": 1,
    }

    def config(self, hf: HFConfig) -> dict[str, Any]:
        hf.expect("hidden_activation", "gelu_pytorch_tanh", None)
        options = super().config(hf)
        if options["activation"] == "gelu":  # the first files have this name
            options["activation"] = "gelu_tanh"
        return options | {"norm": "rms_zero_centred", "embeddings.scale": True}


class Gemma2(Llama):
    """Gemma 2: Riviere et al. (2024), arXiv:2408.00118. Every other layer has a window."""

    base = "Gemma2"
    keys = Llama.keys | {
        "activation": "hidden_activation",
        "attention.softcap": "attn_logit_softcapping",
        "attention.window": "sliding_window",
        "logit_softcap": "final_logit_softcapping",
    }
    defaults = Gemma.defaults | {
        "num_key_value_heads": 4,
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": 256,
        "attn_logit_softcapping": 50.0,
        "sliding_window": 4096,
        "final_logit_softcapping": 30.0,
        "sliding_window_pattern": 2,
    }
    harmless = {"hidden_act", "sliding_window_size"}
    layers = {
        **Llama.layers,
        "input_layernorm": "norm1.before",
        "post_attention_layernorm": "norm1.after",
        "pre_feedforward_layernorm": "norm2.before",
        "post_feedforward_layernorm": "norm2.after",
    }

    def config(self, hf: HFConfig) -> dict[str, Any]:
        step = hf.integer("sliding_window_pattern")
        return super().config(hf) | {
            "norm": "rms_zero_centred",
            "norm_after": True,
            "embeddings.scale": True,
            "attention.scale": hf.number("query_pre_attn_scalar", low=1e-6) ** -0.5,
            "attention.window_layers": window_layers(hf, lambda i: (i + 1) % step),
        }


class Gemma3(Gemma2):
    """Gemma 3: Kamath et al. (2025), arXiv:2503.19786. Layers with a window rotate faster."""

    base = "Gemma3"
    keys = without(Gemma2.keys, "attention.softcap")
    defaults = Gemma2.defaults | {
        "max_position_embeddings": 131072,
        "rope_theta": 1000000.0,
        "rope_local_base_freq": 10000.0,
        "attn_logit_softcapping": None,
        "final_logit_softcapping": None,
        "sliding_window_pattern": 6,
    }
    harmless = Gemma2.harmless | {"_sliding_window_pattern"}
    layers = {**Qwen3.layers, **Gemma2.layers}

    def variant(self, settings: Settings) -> Family:
        """Return the family of an encoder if tokens attend to later ones."""
        is_encoder = settings.flag("use_bidirectional_attention", False)
        return Gemma3Encoder() if is_encoder else self

    def config(self, hf: HFConfig) -> dict[str, Any]:
        return super().config(hf) | {"attention.qk_norm": True}

    def positions(self, hf: HFConfig) -> dict[str, Any]:
        window_base = hf.number("rope_local_base_freq")
        return rotary_positions(hf, hf.number("rope_theta"), window_base=window_base)


class Gemma3Encoder(Gemma3):
    """EmbeddingGemma: Vera et al. (2025), arXiv:2509.20354."""

    models: ClassVar[Any] = {"none": EncoderModel}
    suffixes = {"none": "TextModel"}
    config_class: ClassVar[Any] = EncoderConfig
    keys = without(Gemma3.keys, "tie", "logit_softcap")
    harmless = Gemma3.harmless | {"final_logit_softcapping", "tie_word_embeddings"}
    our_stack = "encoder.layers"
    names = Llama.names | {"norm": "encoder.norm"}
    head_names: ClassVar[Any] = {}

    def config(self, hf: HFConfig) -> dict[str, Any]:
        causal = HFConfig({**hf, "use_bidirectional_attention": False}, hf.where, hf.defaults)
        options = super().config(causal)
        hf.taken |= causal.taken
        window = options["attention.window"] // 2 + 1
        return options | {"norm_first": True, "attention.window": window}
