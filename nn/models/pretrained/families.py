"""The families of published models, as data: their tables of names, their heads, and what a config.json says.

To add one: a table, a function from its settings to ours, and a line in `FAMILIES`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from minigrad.files.json import Settings

from ..config import EncoderConfig, LanguageModelConfig, ModelConfig, TransformerConfig

__all__ = ["FAMILIES", "Family"]


@dataclass(frozen=True)
class Family:
    """What the models of one `model_type` have in common.

    `base` is the stem of their classes (`BertModel`, `BertForMaskedLM`). `table` names what every model has
    (where that depends on our configuration, a function of it), `heads` what comes with a head: "mlm",
    "classes" or "tokens" of an encoder, "" of the other models. "@" stands for one of `prefixes`: the first is
    that of models with a head, the last that of a bare model. `classes` are settings of ours for that head.
    `copies` are arrays that are ours under a second name, `ignored` patterns of names that are not used;
    `pooler` is a map that their bare models have and ours do not: it is kept, or saved as zeros.
    """

    base: str
    config: Callable[[Settings], ModelConfig]
    table: str | Callable[[Any], str]
    prefixes: tuple[str, ...]
    heads: Mapping[str, str]
    classes: Mapping[str, Any] = field(default_factory=dict)
    copies: Mapping[str, str] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()
    pooler: str = ""


# -- what settings are called ------------------------------------------------------------------------------

ACTIVATIONS = {
    "gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_fast": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu", "silu": "silu", "swish": "silu", "tanh": "tanh",
}  # fmt: skip


def _activation(s: Settings, name: Any, default: str) -> str:
    return ACTIVATIONS[s.text(name, default, choices=tuple(ACTIVATIONS))]


def _only(s: Settings, **expected: Any) -> None:
    """Settings that are supported with one value only; the first of a tuple is the value where there is none."""
    for name, values in expected.items():
        values = values if isinstance(values, tuple) else (values,)
        s.taken.add(name)
        if s.get(name, values[0]) not in values:
            s.fail(name, f"{' or '.join(map(str, values))} (others are not supported)")


def _id(s: Settings, name: str, default: int | None = None) -> Any:
    """The id of a mark; null says that there is none."""
    return s.integer(name, None if name in s else default, low=0)


def _ends(s: Settings, default: int | None = None) -> Any:
    """The end mark, or a tuple of several."""
    found = s.take("eos_token_id", (int, list), None if "eos_token_id" in s else default)
    return tuple(s.list("eos_token_id", int)) if isinstance(found, list) else found


def _dropouts(s: Settings, hidden: str, attention: str, activation: str = "", default: float = 0.1) -> dict[str, Any]:
    return {
        "dropout": s.number(hidden, default, 0, 1), "attention_dropout": s.number(attention, default, 0, 1),
        "activation_dropout": s.number(activation, 0.0, 0, 1) if activation else 0.0,
    }  # fmt: skip


# -- BERT and its kin: encoders, norm after each sublayer ------------------------------------------------------

_BERT = """
embedding.tokens                            @embeddings.word_embeddings
embedding.positions                         @embeddings.position_embeddings
embedding.types                             @embeddings.token_type_embeddings
embedding.norm                              @embeddings.LayerNorm
embedding.projection                        @embeddings_project
encoder.layers.{}.self_attention.q_proj     @encoder.layer.{}.attention.self.query
encoder.layers.{}.self_attention.k_proj     @encoder.layer.{}.attention.self.key
encoder.layers.{}.self_attention.v_proj     @encoder.layer.{}.attention.self.value
encoder.layers.{}.self_attention.out_proj   @encoder.layer.{}.attention.output.dense
encoder.layers.{}.norm1                     @encoder.layer.{}.attention.output.LayerNorm
encoder.layers.{}.feed_forward.linear1      @encoder.layer.{}.intermediate.dense
encoder.layers.{}.feed_forward.linear2      @encoder.layer.{}.output.dense
encoder.layers.{}.norm2                     @encoder.layer.{}.output.LayerNorm
"""
_ROBERTA_HEADS = {
    "mlm": "dense lm_head.dense\n norm lm_head.layer_norm\n output.bias lm_head.bias",
    "classes": "dense classifier.dense\n output classifier.out_proj",
    "tokens": "output classifier",
}
_DISTILBERT = """
embedding.tokens                            @embeddings.word_embeddings
embedding.positions                         @embeddings.position_embeddings
embedding.norm                              @embeddings.LayerNorm
encoder.layers.{}.self_attention.q_proj     @transformer.layer.{}.attention.q_lin
encoder.layers.{}.self_attention.k_proj     @transformer.layer.{}.attention.k_lin
encoder.layers.{}.self_attention.v_proj     @transformer.layer.{}.attention.v_lin
encoder.layers.{}.self_attention.out_proj   @transformer.layer.{}.attention.out_lin
encoder.layers.{}.norm1                     @transformer.layer.{}.sa_layer_norm
encoder.layers.{}.feed_forward.linear1      @transformer.layer.{}.ffn.lin1
encoder.layers.{}.feed_forward.linear2      @transformer.layer.{}.ffn.lin2
encoder.layers.{}.norm2                     @transformer.layer.{}.output_layer_norm
"""
_ALBERT = """
embedding.tokens                            @embeddings.word_embeddings
embedding.positions                         @embeddings.position_embeddings
embedding.types                             @embeddings.token_type_embeddings
embedding.norm                              @embeddings.LayerNorm
embedding.projection                        @encoder.embedding_hidden_mapping_in
encoder.layers.0.self_attention.q_proj      @encoder.albert_layer_groups.0.albert_layers.0.attention.query
encoder.layers.0.self_attention.k_proj      @encoder.albert_layer_groups.0.albert_layers.0.attention.key
encoder.layers.0.self_attention.v_proj      @encoder.albert_layer_groups.0.albert_layers.0.attention.value
encoder.layers.0.self_attention.out_proj    @encoder.albert_layer_groups.0.albert_layers.0.attention.dense
encoder.layers.0.norm1                      @encoder.albert_layer_groups.0.albert_layers.0.attention.LayerNorm
encoder.layers.0.feed_forward.linear1       @encoder.albert_layer_groups.0.albert_layers.0.ffn
encoder.layers.0.feed_forward.linear2       @encoder.albert_layer_groups.0.albert_layers.0.ffn_output
encoder.layers.0.norm2                      @encoder.albert_layer_groups.0.albert_layers.0.full_layer_layer_norm
"""


def _bert(s: Settings, **ours: Any) -> EncoderConfig:
    _only(s, position_embedding_type=("absolute", None), is_decoder=False, add_cross_attention=False)
    pad = _id(s, "pad_token_id", 0)
    settings: dict[str, Any] = {
        "num_types": s.integer("type_vocab_size", 2, low=0), "activation": _activation(s, "hidden_act", "gelu"),
        "norm_eps": s.number("layer_norm_eps", 1e-12), "positions": "learned", "embedding_norm": True,
        "scale_embedding": False, "max_len": s.integer("max_position_embeddings", 512), "pad_id": pad,
        **_dropouts(s, "hidden_dropout_prob", "attention_probs_dropout_prob"), **ours,
    }  # fmt: skip
    return EncoderConfig(
        s.integer("vocab_size"), s.integer("hidden_size"), s.integer("num_attention_heads"),
        s.integer("num_hidden_layers"), s.integer("intermediate_size"), **settings,
    )  # fmt: skip


def _roberta(s: Settings) -> EncoderConfig:
    pad = _id(s, "pad_token_id", 1)
    rows = s.integer("max_position_embeddings", 512, low=pad + 2)
    return _bert(s, pad_id=pad, position_offset=pad + 1, max_len=rows - pad - 1)


def _distilbert(s: Settings) -> EncoderConfig:
    _only(s, sinusoidal_pos_embds=(False, True))  # either way the table is in the file
    return EncoderConfig(
        s.integer("vocab_size"), s.integer("dim"), s.integer("n_heads"), s.integer("n_layers"), s.integer("hidden_dim"),
        activation=_activation(s, "activation", "gelu"), norm_eps=1e-12, positions="learned", embedding_norm=True,
        scale_embedding=False, max_len=s.integer("max_position_embeddings", 512), pad_id=_id(s, "pad_token_id", 0),
        **{**_dropouts(s, "dropout", "attention_dropout"), "activation_dropout": 0.0},
    )  # fmt: skip


def _narrow(s: Settings, default: int) -> dict[str, Any]:
    """The width of the embeddings, where it is not that of the model."""
    width = s.integer("embedding_size", default)
    return {} if width == s.get("hidden_size") else {"embedding_size": width}


def _electra(s: Settings) -> EncoderConfig:
    return _bert(s, **_narrow(s, 128))


def _albert(s: Settings) -> EncoderConfig:
    _only(s, num_hidden_groups=1, inner_group_num=1)
    if s.get("embedding_size", 128) == s.get("hidden_size"):
        s.fail("embedding_size", "another size than hidden_size (their map from one to the other is always there)")
    return _bert(
        s, shared_layers=True, activation=_activation(s, "hidden_act", "gelu_new"),
        **_dropouts(s, "hidden_dropout_prob", "attention_probs_dropout_prob", default=0.0), **_narrow(s, 128),
    )  # fmt: skip


_POOLED = {"pool": "first", "head_activation": "tanh"}

ENCODERS = {
    "bert": Family(
        "Bert", _bert, _BERT, ("bert.", ""),
        {
            "mlm": "dense cls.predictions.transform.dense\n norm cls.predictions.transform.LayerNorm\n"
                   "output.bias cls.predictions.bias",
            "classes": "dense @pooler.dense\n output classifier",
            "tokens": "output classifier",
        },
        _POOLED, {"cls.predictions.decoder.weight": "output.weight", "cls.predictions.decoder.bias": "output.bias"},
        ("@embeddings.position_ids", "@pooler.*", "cls.seq_relationship.*"), "pooler.dense",
    ),
    "roberta": Family(
        "Roberta", _roberta, _BERT, ("roberta.", ""), _ROBERTA_HEADS, _POOLED,
        {"lm_head.decoder.weight": "output.weight", "lm_head.decoder.bias": "output.bias"},
        ("@embeddings.position_ids", "@pooler.*"), "pooler.dense",
    ),
    "distilbert": Family(
        "DistilBert", _distilbert, _DISTILBERT, ("distilbert.", ""),
        {
            "mlm": "dense vocab_transform\n norm vocab_layer_norm\n output.bias vocab_projector.bias",
            "classes": "dense pre_classifier\n output classifier",
            "tokens": "output classifier",
        },
        {"pool": "first", "head_activation": "relu"}, {"vocab_projector.weight": "output.weight"},
        ("@embeddings.position_ids",),
    ),
    "electra": Family(
        "Electra", _electra, _BERT, ("electra.", ""),
        {
            "mlm": "dense generator_predictions.dense\n norm generator_predictions.LayerNorm\n"
                   "output.bias generator_lm_head.bias",
            "classes": "dense classifier.dense\n output classifier.out_proj",
            "tokens": "output classifier",
        },
        {"pool": "first", "head_activation": "gelu"}, {"generator_lm_head.weight": "output.weight"},
        ("@embeddings.position_ids", "discriminator_predictions.*"),
    ),
    "albert": Family(
        "Albert", _albert, _ALBERT, ("albert.", ""),
        {
            "mlm": "dense predictions.dense\n norm predictions.LayerNorm\n output.bias predictions.bias",
            "classes": "dense @pooler\n output classifier",
            "tokens": "output classifier",
        },
        _POOLED, {"predictions.decoder.weight": "output.weight", "predictions.decoder.bias": "output.bias"},
        ("@embeddings.position_ids", "@pooler.*", "sop_classifier.*"), "pooler",
    ),
}  # fmt: skip
ENCODERS["xlm-roberta"] = Family(**{**vars(ENCODERS["roberta"]), "base": "XLMRoberta"})


# -- language models --------------------------------------------------------------------------------------------

_GPT2 = """
embedding.tokens            @wte
embedding.positions         @wpe
layers.layers.{}.norm1      @h.{}.ln_1
layers.layers.{}.self_attention.q_proj+layers.layers.{}.self_attention.k_proj+layers.layers.{}.self_attention.v_proj @h.{}.attn.c_attn T
layers.layers.{}.self_attention.out_proj    @h.{}.attn.c_proj T
layers.layers.{}.norm2                      @h.{}.ln_2
layers.layers.{}.feed_forward.linear1       @h.{}.mlp.c_fc T
layers.layers.{}.feed_forward.linear2       @h.{}.mlp.c_proj T
layers.norm                                 @ln_f
"""  # noqa: E501
_OPT = """
embedding.tokens                            @embed_tokens
embedding.positions                         @embed_positions
layers.layers.{}.self_attention.q_proj      @layers.{}.self_attn.q_proj
layers.layers.{}.self_attention.k_proj      @layers.{}.self_attn.k_proj
layers.layers.{}.self_attention.v_proj      @layers.{}.self_attn.v_proj
layers.layers.{}.self_attention.out_proj    @layers.{}.self_attn.out_proj
layers.layers.{}.norm1                      @layers.{}.self_attn_layer_norm
layers.layers.{}.feed_forward.linear1       @layers.{}.fc1
layers.layers.{}.feed_forward.linear2       @layers.{}.fc2
layers.layers.{}.norm2                      @layers.{}.final_layer_norm
layers.norm                                 @final_layer_norm
"""
_LLAMA = """
embedding.tokens                            @embed_tokens
layers.layers.{}.self_attention.q_proj      @layers.{}.self_attn.q_proj
layers.layers.{}.self_attention.k_proj      @layers.{}.self_attn.k_proj
layers.layers.{}.self_attention.v_proj      @layers.{}.self_attn.v_proj
layers.layers.{}.self_attention.out_proj    @layers.{}.self_attn.o_proj
layers.layers.{}.self_attention.q_norm      @layers.{}.self_attn.q_norm
layers.layers.{}.self_attention.k_norm      @layers.{}.self_attn.k_norm
layers.layers.{}.norm1                      @layers.{}.input_layernorm
layers.layers.{}.feed_forward.linear1       @layers.{}.mlp.gate_proj
layers.layers.{}.feed_forward.gate          @layers.{}.mlp.up_proj
layers.layers.{}.feed_forward.linear2       @layers.{}.mlp.down_proj
layers.layers.{}.norm2                      @layers.{}.post_attention_layernorm
layers.norm                                 @norm
"""

_PHI3 = (
    """
layers.layers.{}.self_attention.q_proj+layers.layers.{}.self_attention.k_proj+layers.layers.{}.self_attention.v_proj @layers.{}.self_attn.qkv_proj
layers.layers.{}.feed_forward.linear1+layers.layers.{}.feed_forward.gate  @layers.{}.mlp.gate_up_proj
"""  # noqa: E501
    + _LLAMA
)


def _gpt2(s: Settings) -> LanguageModelConfig:
    _only(s, scale_attn_weights=True, scale_attn_by_inverse_layer_idx=False, add_cross_attention=False)
    width = s.integer("n_embd")
    return LanguageModelConfig(
        s.integer("vocab_size"), width, s.integer("n_head"), s.integer("n_layer"),
        s.integer("n_inner", None) or 4 * width,
        activation=_activation(s, "activation_function", "gelu_new"), norm_eps=s.number("layer_norm_epsilon", 1e-5),
        max_len=s.integer(["n_positions", "n_ctx"], 1024), tie=s.flag("tie_word_embeddings", True),
        **{**_dropouts(s, "resid_pdrop", "attn_pdrop"), "activation_dropout": 0.0}, pad_id=_id(s, "pad_token_id"),
        bos_id=_id(s, "bos_token_id", 50256), eos_id=_ends(s, 50256),
    )  # fmt: skip


def _opt(s: Settings) -> LanguageModelConfig:
    width = s.integer("hidden_size")
    _only(s, do_layer_norm_before=True, word_embed_proj_dim=(width, width), enable_bias=True,
          layer_norm_elementwise_affine=True, _remove_final_layer_norm=False)  # fmt: skip
    return LanguageModelConfig(
        s.integer("vocab_size"), width, s.integer("num_attention_heads"), s.integer("num_hidden_layers"),
        s.integer("ffn_dim"), activation=_activation(s, "activation_function", "relu"), norm_eps=1e-5,
        max_len=s.integer("max_position_embeddings"), position_offset=2, tie=s.flag("tie_word_embeddings", True),
        **{**_dropouts(s, "dropout", "attention_dropout"), "activation_dropout": 0.0},
        pad_id=_id(s, "pad_token_id", 1), bos_id=_id(s, "bos_token_id", 2), eos_id=_ends(s, 2),
    )  # fmt: skip


def _rotary(s: Settings, base: float = 10000.0) -> dict[str, Any]:
    """Rotary positions: `rope_parameters` as files have them today, rope_theta and rope_scaling as before."""
    today = s.object("rope_parameters", None)
    given = today if today is not None else s.object("rope_scaling", None)
    scaling = Settings(given or {}, s.where if given is None else given.where)
    kind = scaling.text(["rope_type", "type"], "default", choices=("default", "linear", "llama3", "yarn"))
    base = s.number("rope_theta", base, low=1)
    if today is not None:
        base = scaling.number("rope_theta", base, low=1)
    _only(s, partial_rotary_factor=(1.0, None))
    _only(scaling, partial_rotary_factor=(1.0, None))
    for name in ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"):
        scaling.number(name, None, low=1e-6)
    left = {k: v for k, v in scaling.items() if k not in ("rope_theta", "type", "partial_rotary_factor")}
    if kind == "yarn" and not left.get("original_max_position_embeddings"):
        left["original_max_position_embeddings"] = s.integer("max_position_embeddings")
    return {
        "positions": "rotary", "rotary_base": float(base),
        "rotary_scaling": None if kind == "default" else {**left, "rope_type": kind},
    }  # fmt: skip


def _windows(s: Settings, layers: int, always: bool = False) -> dict[str, Any]:
    """A sliding window, in all layers or in those that `layer_types` or `max_window_layers` tell."""
    window = s.integer("sliding_window", None)
    if window is None or not (always or s.flag("use_sliding_window", False)):
        return {}
    kinds = s.list("layer_types", str, None)
    if kinds is None:
        first = 0 if always else s.integer("max_window_layers", 0, low=0)
        return {"window": window, "window_layers": tuple(range(first, layers)) if first else None}
    return {"window": window, "window_layers": tuple(i for i, k in enumerate(kinds) if k == "sliding_attention")}


def _llama(s: Settings, theta: float = 10000.0, tie: bool = False, **ours: Any) -> LanguageModelConfig:
    heads = s.integer("num_attention_heads")
    settings: dict[str, Any] = {
        "norm": "rms", "norm_eps": s.number("rms_norm_eps", 1e-6), "gated": True,
        "activation": _activation(s, ["hidden_act", "hidden_activation"], "silu"), "bias": s.flag("mlp_bias", False),
        "attention_bias": s.flag("attention_bias", False), "num_kv_heads": s.integer("num_key_value_heads", heads),
        "head_dim": s.integer("head_dim", None), "max_len": s.integer("max_position_embeddings", 2048),
        "tie": s.flag("tie_word_embeddings", tie), "dropout": 0.0,
        "attention_dropout": s.number("attention_dropout", 0.0, 0, 1), "pad_id": _id(s, "pad_token_id"),
        "bos_id": _id(s, "bos_token_id"), "eos_id": _ends(s), **_rotary(s, theta), **ours,
    }  # fmt: skip
    return LanguageModelConfig(
        s.integer("vocab_size"), s.integer("hidden_size"), heads, s.integer("num_hidden_layers"),
        s.integer("intermediate_size"), **settings,
    )  # fmt: skip


def _mistral(s: Settings) -> LanguageModelConfig:
    return _llama(s, **_windows(s, s.integer("num_hidden_layers"), always=True))


def _qwen2(s: Settings) -> LanguageModelConfig:
    return _llama(s, attention_bias="qkv", **_windows(s, s.integer("num_hidden_layers")))


def _qwen3(s: Settings) -> LanguageModelConfig:
    return _llama(
        s, qk_norm=True, head_dim=s.integer("head_dim", 128), **_windows(s, s.integer("num_hidden_layers"))
    )  # fmt: skip


def _smollm3(s: Settings) -> LanguageModelConfig:
    layers = s.integer("num_hidden_layers")
    turns = s.list("no_rope_layers", int, None)  # 1 where a layer has rotary positions
    if turns is None:
        every = s.integer("no_rope_layer_interval", 4)
        turns = [int((i + 1) % every != 0) for i in range(layers)]
    flat = tuple(i for i, turn in enumerate(turns) if not turn)
    return _llama(s, 2000000.0, True, no_rotary_layers=flat, **_windows(s, layers))


def _phi3(s: Settings) -> LanguageModelConfig:
    return _llama(s, **_windows(s, s.integer("num_hidden_layers"), always=True))


_LM_HEAD = {"": "output lm_head"}
_TIED_HEAD = {"lm_head.weight": "output.weight"}


def _like_llama(base: str, config: Callable[[Settings], ModelConfig], table: str = _LLAMA) -> Family:
    return Family(
        base, config, table, ("model.", ""), _LM_HEAD, {}, _TIED_HEAD, ("@layers.*.self_attn.rotary_emb.inv_freq",)
    )


LANGUAGE_MODELS = {
    "gpt2": Family(
        "GPT2", _gpt2, _GPT2, ("transformer.", ""), _LM_HEAD, {}, _TIED_HEAD,
        ("@h.*.attn.bias", "@h.*.attn.masked_bias"),
    ),
    "opt": Family("OPT", _opt, _OPT, ("model.decoder.", "decoder."), _LM_HEAD, {}, _TIED_HEAD),
    "llama": _like_llama("Llama", _llama),
    "mistral": _like_llama("Mistral", _mistral),
    "phi3": _like_llama("Phi3", _phi3, _PHI3),
    "qwen2": _like_llama("Qwen2", _qwen2),
    "qwen3": _like_llama("Qwen3", _qwen3),
    "smollm3": _like_llama("SmolLM3", _smollm3),
}  # fmt: skip


# -- sequence to sequence ---------------------------------------------------------------------------------------

_BART_LAYER = """
{0}.layers.{}.self_attention.q_proj      @{0}.layers.{}.self_attn.q_proj
{0}.layers.{}.self_attention.k_proj      @{0}.layers.{}.self_attn.k_proj
{0}.layers.{}.self_attention.v_proj      @{0}.layers.{}.self_attn.v_proj
{0}.layers.{}.self_attention.out_proj    @{0}.layers.{}.self_attn.out_proj
{0}.layers.{}.norm1                      @{0}.layers.{}.self_attn_layer_norm
{0}.layers.{}.feed_forward.linear1       @{0}.layers.{}.fc1
{0}.layers.{}.feed_forward.linear2       @{0}.layers.{}.fc2
{0}.norm                                 @{0}.layer_norm
"""
_BART = (
    """
target_embedding.tokens                  @shared
source_embedding.tokens                  @shared
source_embedding.positions               @encoder.embed_positions
target_embedding.positions               @decoder.embed_positions
source_embedding.norm                    @encoder.layernorm_embedding
target_embedding.norm                    @decoder.layernorm_embedding
encoder.layers.{}.norm2                  @encoder.layers.{}.final_layer_norm
decoder.layers.{}.cross_attention.q_proj     @decoder.layers.{}.encoder_attn.q_proj
decoder.layers.{}.cross_attention.k_proj     @decoder.layers.{}.encoder_attn.k_proj
decoder.layers.{}.cross_attention.v_proj     @decoder.layers.{}.encoder_attn.v_proj
decoder.layers.{}.cross_attention.out_proj   @decoder.layers.{}.encoder_attn.out_proj
decoder.layers.{}.norm2                  @decoder.layers.{}.encoder_attn_layer_norm
decoder.layers.{}.norm3                  @decoder.layers.{}.final_layer_norm
"""
    + _BART_LAYER.replace("{0}", "encoder")
    + _BART_LAYER.replace("{0}", "decoder")
)
_T5 = """
target_embedding.tokens                  shared
source_embedding.tokens                  shared
encoder.layers.{}.self_attention.position_bias   encoder.block.{}.layer.0.SelfAttention.relative_attention_bias
encoder.layers.{}.self_attention.q_proj          encoder.block.{}.layer.0.SelfAttention.q
encoder.layers.{}.self_attention.k_proj          encoder.block.{}.layer.0.SelfAttention.k
encoder.layers.{}.self_attention.v_proj          encoder.block.{}.layer.0.SelfAttention.v
encoder.layers.{}.self_attention.out_proj        encoder.block.{}.layer.0.SelfAttention.o
encoder.layers.{}.norm1                          encoder.block.{}.layer.0.layer_norm
encoder.layers.{}.norm2                          encoder.block.{}.layer.1.layer_norm
encoder.norm                                     encoder.final_layer_norm
decoder.layers.{}.self_attention.position_bias   decoder.block.{}.layer.0.SelfAttention.relative_attention_bias
decoder.layers.{}.self_attention.q_proj          decoder.block.{}.layer.0.SelfAttention.q
decoder.layers.{}.self_attention.k_proj          decoder.block.{}.layer.0.SelfAttention.k
decoder.layers.{}.self_attention.v_proj          decoder.block.{}.layer.0.SelfAttention.v
decoder.layers.{}.self_attention.out_proj        decoder.block.{}.layer.0.SelfAttention.o
decoder.layers.{}.norm1                          decoder.block.{}.layer.0.layer_norm
decoder.layers.{}.cross_attention.q_proj         decoder.block.{}.layer.1.EncDecAttention.q
decoder.layers.{}.cross_attention.k_proj         decoder.block.{}.layer.1.EncDecAttention.k
decoder.layers.{}.cross_attention.v_proj         decoder.block.{}.layer.1.EncDecAttention.v
decoder.layers.{}.cross_attention.out_proj       decoder.block.{}.layer.1.EncDecAttention.o
decoder.layers.{}.norm2                          decoder.block.{}.layer.1.layer_norm
decoder.layers.{}.norm3                          decoder.block.{}.layer.2.layer_norm
decoder.norm                                     decoder.final_layer_norm
"""
_T5_PLAIN = """
encoder.layers.{}.feed_forward.linear1           encoder.block.{}.layer.1.DenseReluDense.wi
encoder.layers.{}.feed_forward.linear2           encoder.block.{}.layer.1.DenseReluDense.wo
decoder.layers.{}.feed_forward.linear1           decoder.block.{}.layer.2.DenseReluDense.wi
decoder.layers.{}.feed_forward.linear2           decoder.block.{}.layer.2.DenseReluDense.wo
"""
_T5_GATED = (
    _T5_PLAIN.replace("wi\n", "wi_0\n")
    + """
encoder.layers.{}.feed_forward.gate              encoder.block.{}.layer.1.DenseReluDense.wi_1
decoder.layers.{}.feed_forward.gate              decoder.block.{}.layer.2.DenseReluDense.wi_1
"""
)


def _bart(s: Settings, **ours: Any) -> TransformerConfig:
    for name in ("attention_heads", "ffn_dim"):
        if s.get(f"decoder_{name}") != s.get(f"encoder_{name}"):
            s.fail(f"decoder_{name}", f"encoder_{name}, {s.get(f'encoder_{name}')} (others are not supported)")
    s.taken.update(("decoder_attention_heads", "decoder_ffn_dim"))
    settings: dict[str, Any] = {
        "activation": _activation(s, "activation_function", "gelu"), "positions": "learned", "position_offset": 2,
        "max_len": s.integer("max_position_embeddings", 1024), "scale_embedding": s.flag("scale_embedding", False),
        "embedding_norm": True, "tie": "all", "pad_id": _id(s, "pad_token_id", 1),
        "bos_id": _id(s, "decoder_start_token_id", 2), "eos_id": _ends(s, 2),
        **_dropouts(s, "dropout", "attention_dropout", "activation_dropout"), **ours,
    }  # fmt: skip
    vocab = s.integer("vocab_size")
    return TransformerConfig(
        vocab, s.integer("decoder_vocab_size", vocab), s.integer("d_model"), s.integer("encoder_attention_heads"),
        s.integer("encoder_layers"), s.integer("decoder_layers"), s.integer("encoder_ffn_dim"), **settings,
    )  # fmt: skip


def _mbart(s: Settings) -> TransformerConfig:
    return _bart(s, norm_first=True, bos_id=_id(s, "decoder_start_token_id", 2))


def _m2m(s: Settings) -> TransformerConfig:
    pad = _id(s, "pad_token_id", 1)
    return _bart(
        s, norm_first=True, embedding_norm=False, positions="sinusoidal_last", position_offset=pad + 1,
        activation=_activation(s, "activation_function", "relu"), output_bias=False,
        max_len=s.integer("max_position_embeddings", 1024, high=1 << 20),
        scale_embedding=s.flag("scale_embedding", True), bos_id=_id(s, "decoder_start_token_id", 2),
    )  # fmt: skip


def _marian(s: Settings) -> TransformerConfig:
    tie = "all"
    if not s.flag("share_encoder_decoder_embeddings", True):
        tie = "target" if s.flag("tie_word_embeddings", True) else "none"
    return _bart(
        s, positions="sinusoidal_halves", position_offset=0, embedding_norm=False, tie=tie,
        max_len=s.integer("max_position_embeddings", 1024, high=1 << 20), pad_id=_id(s, "pad_token_id", 58100),
        bos_id=_id(s, "decoder_start_token_id", 58100), eos_id=_ends(s, 0),
    )  # fmt: skip


def _t5(s: Settings) -> TransformerConfig:
    form = s.text("feed_forward_proj", "relu")
    gated = form.startswith("gated-")
    name = {"gated-gelu": "gelu_new"}.get(form, form.removeprefix("gated-"))
    if name not in ACTIVATIONS:
        s.fail("feed_forward_proj", f"one of {', '.join(ACTIVATIONS)}, or gated- and one of them")
    width, tied = s.integer("d_model"), s.flag("tie_word_embeddings", True)
    layers = s.integer("num_layers")
    rate = s.number("dropout_rate", 0.1, 0, 1)
    return TransformerConfig(
        s.integer("vocab_size"), s.integer("vocab_size"), width, s.integer("num_heads"), layers,
        s.integer("num_decoder_layers", layers), s.integer("d_ff"), activation=ACTIVATIONS[name], gated=gated,
        norm="rms", norm_eps=s.number("layer_norm_epsilon", 1e-6), norm_first=True, bias=False, output_bias=False,
        head_dim=s.integer("d_kv", 64), attention_scale=1.0, positions="relative",
        relative_buckets=s.integer("relative_attention_num_buckets", 32),
        relative_max_distance=s.integer("relative_attention_max_distance", 128), scale_embedding=False,
        output_scale=width**-0.5 if s.flag("scale_decoder_outputs", tied) else 1.0, tie="all" if tied else "embeddings",
        dropout=rate, attention_dropout=rate, activation_dropout=rate, pad_id=_id(s, "pad_token_id", 0),
        bos_id=_id(s, "decoder_start_token_id", 0), eos_id=_ends(s, 1),
    )  # fmt: skip


_SHARED = {
    "@encoder.embed_tokens.weight": "source_embedding.tokens.weight",
    "@decoder.embed_tokens.weight": "target_embedding.tokens.weight",
    "lm_head.weight": "output.weight",
}
_LOGITS_BIAS = {"": "output.bias final_logits_bias row\n output.weight lm_head.weight"}
_SAVED_SINES = ("@encoder.embed_positions.weights", "@decoder.embed_positions.weights")


def _marian_table(config: TransformerConfig) -> str:
    if config.tie == "all":
        return _BART
    apart = "source_embedding.tokens @encoder.embed_tokens\n target_embedding.tokens @decoder.embed_tokens"
    return apart + _BART


def _t5_table(config: TransformerConfig) -> str:
    return _T5 + (_T5_GATED if config.gated else _T5_PLAIN)


TRANSLATORS = {
    "bart": Family("Bart", _bart, _BART, ("model.", ""), _LOGITS_BIAS, {}, _SHARED),
    "mbart": Family("MBart", _mbart, _BART, ("model.", ""), _LOGITS_BIAS, {}, _SHARED),
    "m2m_100": Family("M2M100", _m2m, _BART, ("model.", ""), _LOGITS_BIAS, {}, _SHARED, _SAVED_SINES),
    "marian": Family(
        "Marian", _marian, _marian_table, ("model.", ""), _LOGITS_BIAS, {}, _SHARED,
        ("@encoder.embed_positions.weight", "@decoder.embed_positions.weight"),
    ),
    "t5": Family("T5", _t5, _t5_table, ("",), {"": "output lm_head"}, {}, _SHARED),
}  # fmt: skip

FAMILIES: dict[str, Family] = {**ENCODERS, **LANGUAGE_MODELS, **TRANSLATORS}
"""By the `model_type` of a config.json."""
