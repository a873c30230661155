"""Llama and its relatives: RMS norms, rotary positions, gated feed-forward networks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

from ..models.config import AttentionConfig, EmbeddingConfig, LanguageModelConfig, PositionConfig
from ..models.language_model import LanguageModel
from .family import HF_ACTIVATIONS, QKV, Family, HFConfig, StoredArray, in_layers, projections

__all__ = ["Gemma", "Llama", "Mistral", "Phi3", "Qwen2", "Qwen3", "SmolLM3", "rotary_positions"]

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
    max_len: int,
    base: float,
    *,
    kinds: Sequence[str] = ("default", "linear", "llama3", "yarn"),
    part: float | None = None,
    head: int = 0,
    no_rotary_layers: Sequence[int] = (),
) -> PositionConfig:
    """Read `rope_scaling`, which counts first, or `rope_parameters`, as newer files have it.

    Parameters
    ----------
    hf : HFConfig
        The keys of config.json.
    max_len : int
        Length before scaling, if neither key has it.
    base : float
        Base of the frequencies, if neither key has it.
    kinds : sequence of str
        Supported scalings.
    part : float, optional
        Part of a head of width `head` that rotates, if neither key has it. None: the whole head,
        and no other part is supported.
    no_rotary_layers : sequence of int
        Layers without rotation.
    """
    older, newer = hf.object("rope_scaling", None), hf.object("rope_parameters", None)
    scaling = HFConfig(older or newer or {}, (older or newer or hf).where)
    kind = scaling.text(["rope_type", "type"], "default", choices=kinds)
    base = float(scaling.number("rope_theta", base, low=1))
    if part is None:
        scaling.expect("partial_rotary_factor", 1.0, None)
    else:
        part = scaling.number("partial_rotary_factor", part, low=0, high=1)
    for number in _SCALING_NUMBERS:
        scaling.number(number, None, low=1e-6)
    scaling.flag("truncate", None)
    scaling.expect_harmless(frozenset())
    length = hf.number("original_max_position_embeddings", None, low=1e-6)
    options = {
        name: value
        for name, value in scaling.items()
        if name not in ("rope_theta", "type", "partial_rotary_factor")
    } | {"rope_type": kind}
    if kind in ("llama3", "yarn"):
        key = "original_max_position_embeddings"
        options[key] = length or options.get(key) or max_len
    return PositionConfig(
        kind="rotary",
        rotary_base=base,
        rotary_scaling=None if kind == "default" else options,
        rotary_dim=None if part is None else int(head * part),
        no_rotary_layers=no_rotary_layers,
    )


class Llama(Family):
    """Llama 1 to 3, TinyLlama, SmolLM2: Touvron et al. (2023), arXiv:2302.13971."""

    base = "Llama"
    models = {"": LanguageModel}
    suffixes = {"": "ForCausalLM"}
    prefix = "model."
    keys = {
        "vocab_size": "vocab_size",
        "d_model": "hidden_size",
        "num_heads": "num_attention_heads",
        "num_layers": "num_hidden_layers",
        "d_ff": "intermediate_size",
        "max_len": "max_position_embeddings",
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
        "rope_interleaved": False,
        "tie_word_embeddings": False,
        "pad_token_id": None,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    harmless = {"is_llama_config"}
    names = {
        "embed_tokens": "embedding.tokens",
        **in_layers(
            "layers",
            "layers.layers",
            {
                "input_layernorm": "norm1",
                **projections("self_attn.", "q_proj", "k_proj", "v_proj", "o_proj"),
                "post_attention_layernorm": "norm2",
                "mlp.gate_proj": "feed_forward.linear1",
                "mlp.up_proj": "feed_forward.gate",
                "mlp.down_proj": "feed_forward.linear2",
                "self_attn.rotary_emb.inv_freq": None,
            },
        ),
        "norm": "layers.norm",
    }
    head_names = {"": {"lm_head": "output"}}
    rope_types: ClassVar[Sequence[str]] = ("default", "linear", "llama3", "yarn")

    def config(self, hf: HFConfig) -> LanguageModelConfig:
        hf.expect_causal()
        hf.expect("partial_rotary_factor", 1.0, None)
        sizes = hf.integers(self.keys)
        return LanguageModelConfig(
            **sizes,
            **hf.tokens(self.tokens),
            tie=hf.flag("tie_word_embeddings"),
            activation=hf.activation("hidden_act"),
            gated=True,
            norm="rms",
            norm_eps=hf.number("rms_norm_eps"),
            dropout=0.0,
            bias=hf.flag("mlp_bias"),
            attention=AttentionConfig(
                num_kv_heads=hf.optional("num_key_value_heads"),
                head_dim=hf.optional("head_dim"),
                bias=hf.flag("attention_bias"),
                dropout=hf.number("attention_dropout"),
            ),
            positions=rotary_positions(
                hf, sizes["max_len"], hf.number("rope_theta"), kinds=self.rope_types
            ),
        )

    def hf_config(self, config: LanguageModelConfig) -> dict[str, Any]:
        positions: Any = config.positions
        return {
            **{key: getattr(config, ours) for ours, key in self.keys.items()},
            "num_key_value_heads": config.attention.num_kv_heads,
            "head_dim": config.attention.head_dim,
            "hidden_act": HF_ACTIVATIONS.get(config.activation),
            "rms_norm_eps": config.norm_eps,
            "mlp_bias": config.bias,
            "attention_bias": config.attention.bias,
            "attention_dropout": config.attention.dropout,
            "rope_theta": positions.rotary_base,
            "rope_scaling": positions.rotary_scaling,
            "tie_word_embeddings": config.tie,
        }


def _with_window(
    config: LanguageModelConfig, window: int | None, layers: Sequence[int] | None = None
) -> LanguageModelConfig:
    """Return the configuration with a window in the given layers, if there is a window."""
    if window is None:
        return config
    layers = None if layers is None else tuple(i for i in layers if i < config.num_layers)
    return replace(config, attention=replace(config.attention, window=window, window_layers=layers))


class Mistral(Llama):
    """Mistral 7B: Jiang et al. (2023), arXiv:2310.06825. All layers have the window."""

    base = "Mistral"
    defaults = Llama.defaults | {
        "num_key_value_heads": 8,
        "max_position_embeddings": 131072,
        "sliding_window": 4096,
    }

    def config(self, hf: HFConfig) -> LanguageModelConfig:
        return _with_window(super().config(hf), hf.optional("sliding_window"))


class Phi3(Llama):
    """Phi-3: Abdin et al. (2024), arXiv:2404.14219. Some arrays hold several of ours."""

    base = "Phi3"
    defaults = Llama.defaults | {
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5,
        "sliding_window": None,
        "pad_token_id": 32000,
        "eos_token_id": 32000,
    }
    names = {
        **Llama.names,
        **in_layers(
            "layers",
            "layers.layers",
            {
                "self_attn.qkv_proj": StoredArray(QKV),
                "mlp.gate_up_proj": StoredArray(("feed_forward.linear1", "feed_forward.gate")),
            },
        ),
    }
    rope_types = ("default",)  # by all other names Phi-3 has a scaling of its own

    def config(self, hf: HFConfig) -> LanguageModelConfig:
        return _with_window(super().config(hf), hf.optional("sliding_window"))


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

    def config(self, hf: HFConfig) -> LanguageModelConfig:
        config = super().config(hf)
        config = replace(config, attention=replace(config.attention, bias="qkv"))
        return self.with_window(config, hf)

    def with_window(self, config: LanguageModelConfig, hf: HFConfig) -> LanguageModelConfig:
        """Return the configuration with the window that `use_sliding_window` turns on."""
        window, kinds = hf.optional("sliding_window"), hf.list("layer_types", str)
        layers = self.window_layers(config, hf)
        if kinds is not None:
            layers = [i for i, kind in enumerate(kinds) if kind == "sliding_attention"]
        return _with_window(config, window if hf.flag("use_sliding_window") else None, layers)

    def window_layers(self, config: LanguageModelConfig, hf: HFConfig) -> Sequence[int]:
        """Return the layers with a window if `layer_types` does not list them."""
        first = hf.integer("max_window_layers", low=0)
        return range(first, hf.integer("num_hidden_layers", low=0, high=10_000))


class Qwen3(Qwen2):
    """Qwen3: Yang et al. (2025), arXiv:2505.09388. Queries and keys are normalized."""

    base = "Qwen3"
    defaults = Qwen2.defaults | {"head_dim": 128}
    names = {
        **Llama.names,
        **in_layers(
            "layers",
            "layers.layers",
            {
                "self_attn.q_norm": "self_attention.q_norm",
                "self_attn.k_norm": "self_attention.k_norm",
            },
        ),
    }

    def config(self, hf: HFConfig) -> LanguageModelConfig:
        config = Llama.config(self, hf)
        config = replace(config, attention=replace(config.attention, qk_norm=True))
        return self.with_window(config, hf)


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

    def config(self, hf: HFConfig) -> LanguageModelConfig:
        hf.integer("num_hidden_layers", low=0, high=10_000)
        config = Llama.config(self, hf)
        rotates = hf.list("no_rope_layers", int)  # 1 if a layer has rotary positions
        if rotates is None:
            count, interval = config.num_layers, hf.integer("no_rope_layer_interval")
            rotates = [(i + 1) % interval for i in range(count)]
        layers = tuple(i for i, rotate in enumerate(rotates[: config.num_layers]) if not rotate)
        positions: Any = replace(config.positions, no_rotary_layers=layers)  # type: ignore[type-var]
        return self.with_window(replace(config, positions=positions), hf)

    def window_layers(self, config: LanguageModelConfig, hf: HFConfig) -> Sequence[int]:
        positions: Any = config.positions
        return positions.no_rotary_layers


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

    def config(self, hf: HFConfig) -> LanguageModelConfig:
        hf.expect("hidden_activation", "gelu_pytorch_tanh", None)
        config = super().config(hf)
        if config.activation == "gelu":  # the first files say it so
            config = replace(config, activation="gelu_tanh")
        return replace(config, norm="rms_zero_centred", embeddings=EmbeddingConfig(scale=True))
