"""The families of published models, as data: their tables of names and settings, and their heads.

To add one: a table of names, one of settings, and an entry in `FAMILIES`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from minigrad.io.json import Settings
from minigrad.io.shards import SafetensorsFolder

from ..models.config import (
    GROUPS,
    EncoderConfig,
    LanguageModelConfig,
    ModelConfig,
    TransformerConfig,
)
from ..models.encoder import EncoderClassifier, EncoderModel, MaskedLanguageModel, TokenClassifier
from ..models.weights import check_sizes, flat_settings
from .tables import ACTIVATIONS, check_supported, named, read_table

__all__ = ["FAMILIES", "HEADS", "Family"]

HEADS: dict[str, type[EncoderModel]] = {
    "none": EncoderModel, "mlm": MaskedLanguageModel, "classes": EncoderClassifier, "tokens": TokenClassifier,
}  # fmt: skip
"""The heads of encoders."""


@dataclass(frozen=True, kw_only=True)
class Family:
    """What the models of one `model_type` have in common.

    `base` is the stem of their classes, and `suffixes` what follows it for each head: `BertModel`,
    `BertForMaskedLM`. `kind` is our configuration, `settings` the table of its settings (see
    `tables`), and `more` make the rest of them, each of config.json and of ours so far. `names` is
    the table of names of the weights (see `tables`; where it depends on our configuration, a
    function of it), `heads` those that come with a head: "mlm", "classes" or "tokens" of an
    encoder, "" of other models. "@" stands for `prefix` in models with a head, for nothing in a
    bare one. `activation` is that of a classifier's further map, `tokens` are settings of ours for
    a classifier of tokens.
    """

    base: str
    suffixes: Mapping[str, str]
    kind: type[ModelConfig]
    settings: str
    more: Sequence[Callable[[Settings, dict[str, Any]], Mapping[str, Any]]] = ()
    names: str | Callable[[Any], str]
    prefix: str
    heads: Mapping[str, str]
    activation: str = "none"
    tokens: Mapping[str, Any] | None = None

    def but(self, base: str, settings: str = "", **changes: Any) -> Family:
        """Another family, which differs from this one in so much; its settings are added."""
        return replace(self, base=base, settings=f"{self.settings} {settings}", **changes)

    def config(self, s: Settings, weights: SafetensorsFolder | None = None) -> Any:
        """Our configuration for theirs, which must fit the sizes of the weights; a ValueError
        begins with the file.
        """
        values = read_table(self.kind, self.settings, s)
        with named(self.settings, s):
            for rest in self.more:
                values |= rest(s, values)
            values = self.kind.grouped(values)
            for name, group in GROUPS.items():
                if isinstance(values.get(name), dict):
                    values[name] = group(**values[name])
            config = self.kind(**values)
            if weights is not None:
                check_sizes(flat_settings(config.to_dict()), weights, weights.where.name)
            return config

    @property
    def classes(self) -> dict[str, str]:
        """Settings of ours for a classifier."""
        return {"pool": "first", "head_activation": self.activation}

    def table(self, config: Any) -> str:
        """The table of names for a model of this configuration."""
        return self.names if isinstance(self.names, str) else self.names(config)


FAMILIES: dict[str, Family] = {}
"""By the `model_type` of a config.json."""
_SIZES = "d_model=hidden_size num_heads=num_attention_heads num_layers=num_hidden_layers d_ff=intermediate_size"


# -- BERT and its kin: encoders, norm after each sublayer
# ------------------------------------------------------

_BERT = """
embedding.{tokens,positions,types}                @embeddings.{word,position,token_type}_embeddings
embedding.{norm,projection}                       @{embeddings.LayerNorm,embeddings_project}
encoder.layers.#.self_attention.{q,k,v}_proj      @encoder.layer.#.attention.self.{query,key,value}
encoder.layers.#.{self_attention.out_proj,norm1}  @encoder.layer.#.attention.output.{dense,LayerNorm}
encoder.layers.#.feed_forward.linear{1,2}         @encoder.layer.#.{intermediate,output}.dense
encoder.layers.#.norm2                            @encoder.layer.#.output.LayerNorm
-                                                 @embeddings.position_ids
"""
_POOLER = "- @pooler.dense zeros\n"


def _heads(mlm: str, classes: str) -> dict[str, str]:
    """The names of the heads of encoders: that of the classes of tokens is called alike everywhere."""
    return {"mlm": mlm, "classes": "{dense,output} " + classes, "tokens": "output classifier"}


def _after_padding(s: Settings, v: dict[str, Any], counted: bool = False) -> dict[str, Any]:
    """Positions that begin behind the row of the padding; `counted`: max_len counts the rows before
    them too.
    """
    if v["pad_id"] is None:
        s.fail("pad_token_id", "an id")
    offset = v["pad_id"] + 1
    if counted and v["max_len"] <= offset:
        s.fail("max_position_embeddings", f"more than {offset}, the first row that is used")
    return {"position_offset": offset, "max_len": v["max_len"] - offset * counted}


_GELU = "activation:=gelu =hidden_act:gelu"  # their heads have no other, whatever config.json says
FAMILIES["bert"] = Family(
    base="Bert",
    kind=EncoderConfig,
    prefix="bert.",
    activation="tanh",
    names=f"{_POOLER} - cls.seq_relationship {_BERT}",
    suffixes={
        "none": "Model",
        "mlm": "ForMaskedLM",
        "classes": "ForSequenceClassification",
        "tokens": "ForTokenClassification",
    },
    settings="positions:=learned embedding_norm:=true scale_embedding:=false "
    "activation_dropout:=0.0 "
    f"vocab_size {_SIZES} num_types=type_vocab_size:2 "
    "activation=hidden_act:gelu norm_eps=layer_norm_eps:1e-12 pad_id=pad_token_id:0 "
    "max_len=max_position_embeddings:512 dropout=hidden_dropout_prob:0.1 "
    "attention_dropout=attention_probs_dropout_prob:0.1 head_dropout=classifier_dropout:null "
    "=position_embedding_type:absolute|null =is_decoder:false =add_cross_attention:false",
    heads=_heads(
        "{dense,norm} cls.predictions.transform.{dense,LayerNorm}\n"
        "{output.bias,output} cls.predictions.{bias,decoder}",
        "{@pooler.dense,classifier}",
    ),
)
FAMILIES["roberta"] = FAMILIES["bert"].but(
    "Roberta",
    f"{_GELU} pad_id=pad_token_id:1",
    prefix="roberta.",
    more=(partial(_after_padding, counted=True),),
    heads=_heads(
        "{dense,norm,output.bias,output} lm_head.{dense,layer_norm,bias,decoder}",
        "classifier.{dense,out_proj}",
    ),
)
FAMILIES["xlm-roberta"] = FAMILIES["roberta"].but("XLMRoberta")
FAMILIES["mpnet"] = FAMILIES["roberta"].but(
    "MPNet",
    "positions:=learned_relative num_types:=0 =relative_attention_num_buckets:32 pad_id:=1 "
    "=pad_token_id:1 "
    "head_dropout:=null",
    prefix="mpnet.",
    names=_POOLER
    + "encoder.layers.0.self_attention.position_bias @encoder.relative_attention_bias\n"
    "encoder.layers.#.self_attention.{q,k,v,out}_proj @encoder.layer.#.attention.attn.{q,k,v,o}\n"
    "encoder.layers.#.norm1 @encoder.layer.#.attention.LayerNorm" + _BERT,
)
FAMILIES["electra"] = FAMILIES["bert"].but(
    "Electra",
    f"{_GELU} embedding_size:128",
    prefix="electra.",
    activation="gelu",
    names="- discriminator_predictions.{dense,dense_prediction}" + _BERT,
    heads=_heads(
        "{dense,norm} generator_predictions.{dense,LayerNorm}\n output generator_lm_head",
        "classifier.{dense,out_proj}",
    ),
)
FAMILIES["distilbert"] = FAMILIES["bert"].but(
    "DistilBert",
    "d_model=dim num_heads=n_heads num_layers=n_layers d_ff=hidden_dim activation:gelu "
    "num_types:=0 "
    "norm_eps:=1e-12 dropout:0.1 attention_dropout:0.1 head_dropout=seq_classif_dropout:0.2",
    prefix="distilbert.",
    activation="relu",
    tokens={"head_dropout": None},
    names="""
encoder.layers.#.self_attention.{q,k,v,out}_proj  @transformer.layer.#.attention.{q,k,v,out}_lin
encoder.layers.#.norm{1,2}                        @transformer.layer.#.{sa,output}_layer_norm
encoder.layers.#.feed_forward.linear{1,2}         @transformer.layer.#.ffn.lin{1,2}
"""
    + _BERT,
    heads=_heads(
        "{dense,norm,output} vocab_{transform,layer_norm,projector}", "{pre_classifier,classifier}"
    ),
)
FAMILIES["albert"] = FAMILIES["bert"].but(
    "Albert",
    "embedding_size:128 activation=hidden_act:gelu_new dropout=hidden_dropout_prob:0 "
    "shared_layers:=true "
    "attention_dropout=attention_probs_dropout_prob:0 head_dropout=classifier_dropout_prob:0.1 "
    "=num_hidden_groups:1 =inner_group_num:1",
    prefix="albert.",
    names="""
embedding.projection                              @encoder.embedding_hidden_mapping_in
encoder.layers.#.self_attention.{q,k,v,out}_proj  @encoder.albert_layer_groups.#.albert_layers.0.attention.{query,key,value,dense}
encoder.layers.#.norm{1,2}                        @encoder.albert_layer_groups.#.albert_layers.0.{attention.LayerNorm,full_layer_layer_norm}
encoder.layers.#.feed_forward.linear{1,2}         @encoder.albert_layer_groups.#.albert_layers.0.{ffn,ffn_output}
-                                                 @pooler zeros
-                                                 sop_classifier.classifier
"""
    + _BERT,
    heads=_heads(
        "{dense,norm,output.bias,output} predictions.{dense,LayerNorm,bias,decoder}",
        "{@pooler,classifier}",
    ),
)
FAMILIES["vit"] = FAMILIES["bert"].but(
    "ViT",
    "norm_first:=true embedding_norm:=false num_types:=0 vocab_size:=0 pad_id:=0 max_len:=512 "
    "=qkv_bias:true "
    "dropout=hidden_dropout_prob:0 attention_dropout=attention_probs_dropout_prob:0 "
    "head_dropout:=0.0 "
    "image_size:224 patch_size:16 num_channels:3",
    suffixes={"none": "Model", "classes": "ForImageClassification"},
    heads={"classes": "output classifier"},
    prefix="vit.",
    activation="none",
    names=_POOLER
    + """
embedding.{first,positions.weight}            @embeddings.{cls_token,position_embeddings} row
embedding.{weight,bias}                       @embeddings.patch_embeddings.projection.{weight,bias}
encoder.layers.#.self_attention.{q,k,v}_proj  @encoder.layer.#.attention.attention.{query,key,value}
encoder.layers.#.self_attention.out_proj      @encoder.layer.#.attention.output.dense
encoder.layers.#.norm{1,2}                    @encoder.layer.#.layernorm_{before,after}
encoder.layers.#.feed_forward.linear{1,2}     @encoder.layer.#.{intermediate,output}.dense
encoder.norm                                  @layernorm
-                                             @embeddings.mask_token
""",
)


# -- language models
# --------------------------------------------------------------------------------------------

_TEXT = (
    "vocab_size tie=tie_word_embeddings:true pad_id=pad_token_id:null bos_id=bos_token_id:null "
    "eos_id=eos_token_id:null"
    " =is_causal:true|null =use_bidirectional_attention:false|null"  # some are made into encoders
)
_LM: dict[str, Any] = {
    "kind": LanguageModelConfig,
    "suffixes": {"": "ForCausalLM"},
    "heads": {"": "output lm_head"},
}
_LLAMA = """
embedding.tokens           @embed_tokens
layers.layers.#.self_attention.{q,k,v}_{proj,norm}     @layers.#.self_attn.{q,k,v}_{proj,norm}
layers.layers.#.self_attention.out_proj                @layers.#.self_attn.o_proj
layers.layers.#.feed_forward.{linear1,gate,linear2}    @layers.#.mlp.{gate,up,down}_proj
layers.layers.#.{norm1,norm2}                          @layers.#.{input_layernorm,post_attention_layernorm}
layers.norm                @norm
-                          @layers.#.self_attn.rotary_emb.inv_freq
"""


def _rotary(
    s: Settings,
    v: dict[str, Any],
    part: float | None = None,
    kinds: Sequence[str] = ("default", "linear", "llama3", "yarn"),
) -> dict[str, Any]:
    """Rotary positions: rope_theta and rope_scaling, which goes before, or `rope_parameters` as
    newer files have them.

    `part` is that of each head that turns, unless the parameters tell (None: all, and they must not
    differ).
    """
    scaling = (
        s.object("rope_scaling", None) or s.object("rope_parameters", None) or Settings({}, s.where)
    )
    kind = scaling.text(["rope_type", "type"], "default", choices=kinds)
    base = scaling.number("rope_theta", v["rotary_base"], low=1)
    if part is None:
        check_supported("=partial_rotary_factor:1.0|null", scaling)
    for number in (
        "factor",
        "low_freq_factor",
        "high_freq_factor",
        "original_max_position_embeddings",
    ):
        scaling.number(number, None, low=1e-6)
    left = {
        k: v for k, v in scaling.items() if k not in ("rope_theta", "type", "partial_rotary_factor")
    }
    if kind in ("llama3", "yarn"):
        beside = left.get("original_max_position_embeddings") or v["max_len"]
        left["original_max_position_embeddings"] = s.number(
            "original_max_position_embeddings", beside, low=1e-6
        )
    found = {
        "rotary_base": float(base),
        "rotary_scaling": None if kind == "default" else {**left, "rope_type": kind},
    }
    if part is not None:
        whole = v["d_model"] // max(v["num_heads"], 1)
        found["rotary_dim"] = int(
            whole * scaling.number("partial_rotary_factor", part, low=0, high=1)
        )
    return found


def _window(
    s: Settings, v: dict[str, Any], width: int | None = None, always: bool = True
) -> dict[str, Any]:
    """A sliding window, of `width` where the file does not say: `always`, in all layers, or where
    it is to be used.

    Then it is in those that layer_types tells, or those without rotary positions, or from
    max_window_layers on.
    """
    layers: Sequence[int]
    window = s.integer("sliding_window", None if "sliding_window" in s else width)
    count = s.integer("num_hidden_layers", high=10_000)
    if window is None or not (always or s.flag("use_sliding_window", False)):
        return {}
    if always:
        layers = range(count)
    elif (kinds := s.list("layer_types", str, None)) is not None:
        layers = [i for i, kind in enumerate(kinds) if kind == "sliding_attention"]
    else:
        layers = v.get("no_rotary_layers", range(s.integer("max_window_layers", 28, low=0), count))
    return {"window": window, "window_layers": tuple(layers)}


def _unscaled(s: Settings, v: dict[str, Any]) -> dict[str, Any]:
    return _rotary(s, v, kinds=("default",))  # by all other names Phi-3 has a scaling of its own


def _tanh_form(s: Settings, v: dict[str, Any]) -> dict[str, Any]:
    return (
        {"activation": "gelu_tanh"} if v["activation"] == "gelu" else {}
    )  # Gemma's first files say it so


def _turning(s: Settings, v: dict[str, Any]) -> dict[str, Any]:
    turns = s.list("no_rope_layers", int, None)  # 1 where a layer has rotary positions
    if turns is None:
        every = s.integer("no_rope_layer_interval", 4)
        turns = [(i + 1) % every for i in range(s.integer("num_hidden_layers", high=10_000))]
    return {"no_rotary_layers": tuple(i for i, turn in enumerate(turns) if not turn)}


FAMILIES["llama"] = Family(
    **_LM,
    base="Llama",
    more=(_rotary,),
    names=_LLAMA,
    prefix="model.",
    settings=f"{_TEXT} {_SIZES} norm:=rms gated:=true dropout:=0.0 positions:=rotary "
    "num_kv_heads=num_key_value_heads:num_heads head_dim:null activation=hidden_act:silu "
    "norm_eps=rms_norm_eps:1e-6 bias=mlp_bias:false attention_bias:false attention_dropout:0 "
    "max_len=max_position_embeddings:2048 tie=tie_word_embeddings:false "
    "rotary_base=rope_theta:10000 "
    "rotary_scaling=rope_scaling:null =partial_rotary_factor:1.0|null bos_id=bos_token_id:1 "
    "eos_id=eos_token_id:2",
)
FAMILIES["mistral"] = FAMILIES["llama"].but(
    "Mistral",
    "num_kv_heads=num_key_value_heads:8 max_len=max_position_embeddings:131072",
    more=(_rotary, partial(_window, width=4096)),
)
FAMILIES["phi3"] = FAMILIES["llama"].but(
    "Phi3",
    "max_len=max_position_embeddings:4096 norm_eps=rms_norm_eps:1e-5 pad_id=pad_token_id:32000 "
    "eos_id=eos_token_id:32000",
    more=(_unscaled, _window),
    names="layers.layers.#.self_attention.{q,k,v}_proj @layers.#.self_attn.qkv_proj\n"
    "layers.layers.#.feed_forward.{linear1,gate} @layers.#.mlp.gate_up_proj\n" + _LLAMA,
)
FAMILIES["qwen2"] = FAMILIES["llama"].but(
    "Qwen2",
    "attention_bias:=qkv num_kv_heads=num_key_value_heads:32 max_len=max_position_embeddings:32768 "
    "bos_id=bos_token_id:null eos_id=eos_token_id:null",
    more=(_rotary, partial(_window, width=4096, always=False)),
)
FAMILIES["qwen3"] = FAMILIES["qwen2"].but(
    "Qwen3", "attention_bias:false qk_norm:=true head_dim:128"
)
FAMILIES["smollm3"] = FAMILIES["llama"].but(
    "SmolLM3",
    "num_kv_heads=num_key_value_heads:4 max_len=max_position_embeddings:32768 "
    "rotary_base=rope_theta:2000000 tie=tie_word_embeddings:true pad_id=pad_token_id:128004 "
    "bos_id=bos_token_id:128000 eos_id=eos_token_id:128001",
    more=(_rotary, _turning, partial(_window, always=False)),
)
FAMILIES["gemma"] = FAMILIES["llama"].but(
    "Gemma",
    "norm:=rms_zero_centred scale_embedding:=true head_dim:256 num_kv_heads=num_key_value_heads:16 "
    "max_len=max_position_embeddings:8192 pad_id=pad_token_id:0 bos_id=bos_token_id:2 "
    "eos_id=eos_token_id:1 "
    "activation=hidden_act:gelu_pytorch_tanh =hidden_activation:gelu_pytorch_tanh|null "
    "tie=tie_word_embeddings:true",
    more=(_rotary, _tanh_form),
)
FAMILIES["gpt2"] = Family(
    **{**_LM, "suffixes": {"": "LMHeadModel"}},
    base="GPT2",
    prefix="transformer.",
    settings=f"{_TEXT} d_model=n_embd num_heads=n_head num_layers=n_layer d_ff=n_inner:null "
    "max_len=n_positions:1024 "
    "activation=activation_function:gelu_new norm_eps=layer_norm_epsilon:1e-5 "
    "dropout=resid_pdrop:0.1 "
    "attention_dropout=attn_pdrop:0.1 activation_dropout:=0.0 bos_id=bos_token_id:50256 "
    "eos_id=eos_token_id:50256 =scale_attn_weights:true =scale_attn_by_inverse_layer_idx:false "
    "=add_cross_attention:false",
    more=(lambda s, v: {"d_ff": v["d_ff"] or 4 * v["d_model"]},),
    names="""
embedding.{tokens,positions}                 @{wte,wpe}
layers.layers.#.norm{1,2}                    @h.#.ln_{1,2}
layers.layers.#.self_attention.{q,k,v}_proj  @h.#.attn.c_attn T
layers.layers.#.self_attention.out_proj      @h.#.attn.c_proj T
layers.layers.#.feed_forward.linear{1,2}     @h.#.mlp.c_{fc,proj} T
layers.norm                                  @ln_f
-                                            @h.#.attn.{bias,masked_bias}
""",
)
FAMILIES["gpt_neox"] = Family(
    **{**_LM, "heads": {"": "output embed_out"}},
    base="GPTNeoX",
    prefix="gpt_neox.",
    settings=f"{_TEXT} {_SIZES} positions:=rotary activation=hidden_act:gelu "
    "norm_eps=layer_norm_eps:1e-5 "
    "max_len=max_position_embeddings:2048 dropout=hidden_dropout:0.0 attention_dropout:0.0 "
    "activation_dropout:=0.0 parallel=use_parallel_residual:true attention_bias:true "
    "bos_id=bos_token_id:0 "
    "eos_id=eos_token_id:2 tie=tie_word_embeddings:false rotary_base=rotary_emb_base:10000",
    more=(lambda s, v: _rotary(s, v, s.number("rotary_pct", 0.25)),),
    names=lambda config: (
        f"""
embedding.tokens  @embed_in
layers.layers.#.self_attention.{{q,k,v}}_proj  @layers.#.attention.query_key_value {config.num_heads}
layers.layers.#.self_attention.out_proj  @layers.#.attention.dense
layers.layers.#.feed_forward.linear{{1,2}}  @layers.#.mlp.dense_{{h_to_4h,4h_to_h}}
layers.layers.#.norm{{1,2}}  @layers.#.{{input_layernorm,post_attention_layernorm}}
layers.norm  @final_layer_norm
-  @layers.#.attention.{{bias,masked_bias,rotary_emb.inv_freq}}
"""
    ),
)
FAMILIES["opt"] = Family(
    **_LM,
    base="OPT",
    prefix="model.",
    settings=f"{_TEXT} {_SIZES} =word_embed_proj_dim:d_model d_ff=ffn_dim "
    "max_len=max_position_embeddings "
    "activation=activation_function:relu dropout:0.1 attention_dropout:0 activation_dropout:=0.0 "
    "pad_id=pad_token_id:1 bos_id=bos_token_id:2 eos_id=eos_token_id:2 position_offset:=2 "
    "=do_layer_norm_before:true =enable_bias:true =layer_norm_elementwise_affine:true "
    "=_remove_final_layer_norm:false",
    names="""
embedding.{tokens,positions}                     @decoder.embed_{tokens,positions}
layers.layers.#.self_attention.{q,k,v,out}_proj  @decoder.layers.#.self_attn.{q,k,v,out}_proj
layers.layers.#.norm{1,2}                        @decoder.layers.#.{self_attn,final}_layer_norm
layers.layers.#.feed_forward.linear{1,2}         @decoder.layers.#.fc{1,2}
layers.norm                                      @decoder.final_layer_norm
""",
)


# -- sequence to sequence
# ---------------------------------------------------------------------------------------

_BART = """
{source,target}_embedding.tokens             @shared
{source,target}_embedding.tokens             @{encoder,decoder}.embed_tokens
{source,target}_embedding.{positions,norm}   @{encoder,decoder}.{embed_positions,layernorm_embedding}
{encoder,decoder}.layers.#.self_attention.{q,k,v,out}_proj  @{encoder,decoder}.layers.#.self_attn.{q,k,v,out}_proj
{encoder,decoder}.layers.#.feed_forward.linear{1,2}  @{encoder,decoder}.layers.#.fc{1,2}
{encoder,decoder}.layers.#.norm1             @{encoder,decoder}.layers.#.self_attn_layer_norm
{encoder,decoder}.norm                       @{encoder,decoder}.layer_norm
encoder.layers.#.norm2                       @encoder.layers.#.final_layer_norm
decoder.layers.#.cross_attention.{q,k,v,out}_proj  @decoder.layers.#.encoder_attn.{q,k,v,out}_proj
decoder.layers.#.norm{2,3}                   @decoder.layers.#.{encoder_attn_layer_norm,final_layer_norm}
-                                            @{encoder,decoder}.embed_positions.{weight,weights}
"""
_T5 = """
{source,target}_embedding.tokens                   shared
{source,target}_embedding.tokens                   {encoder,decoder}.embed_tokens
{encoder,decoder}.layers.#.self_attention.{q,k,v,out}_proj  {encoder,decoder}.block.#.layer.0.SelfAttention.{q,k,v,o}
{encoder,decoder}.layers.#.self_attention.position_bias  {encoder,decoder}.block.#.layer.0.SelfAttention.relative_attention_bias
{encoder,decoder}.layers.#.norm{1,2}               {encoder,decoder}.block.#.layer.{0,1}.layer_norm
{encoder,decoder}.norm                             {encoder,decoder}.final_layer_norm
encoder.layers.#.feed_forward.{linear1,gate,linear2}  encoder.block.#.layer.1.DenseReluDense.{wi_0,wi_1,wo}
decoder.layers.#.cross_attention.{q,k,v,out}_proj  decoder.block.#.layer.1.EncDecAttention.{q,k,v,o}
decoder.layers.#.feed_forward.{linear1,gate,linear2}  decoder.block.#.layer.2.DenseReluDense.{wi_0,wi_1,wo}
decoder.layers.#.norm3                             decoder.block.#.layer.2.layer_norm
"""


def _marian_tie(s: Settings, v: dict[str, Any]) -> dict[str, Any]:
    alone = "target" if s.flag("tie_word_embeddings", True) else "none"
    return {"tie": "all" if s.flag("share_encoder_decoder_embeddings", True) else alone}


def _t5(s: Settings, v: dict[str, Any]) -> dict[str, Any]:
    form = s.text("feed_forward_proj", "relu")
    name = {"gated-gelu": "gelu_new"}.get(form, form.removeprefix("gated-"))
    if name not in ACTIVATIONS:
        s.fail("feed_forward_proj", f"one of {', '.join(ACTIVATIONS)}, or gated- and one of them")
    name = s.text(
        "dense_act_fn", name, choices=tuple(ACTIVATIONS)
    )  # newer files say the same in two more settings
    gated = s.flag("is_gated_act", form.startswith("gated-"))
    tied = s.flag("tie_word_embeddings", True)
    return {
        "activation": ACTIVATIONS[name], "gated": gated, "tie": "all" if tied else "embeddings",
        "output_scale": v["d_model"] ** -0.5 if s.flag("scale_decoder_outputs", tied) else 1.0,
    }  # fmt: skip


FAMILIES["bart"] = Family(
    base="Bart",
    kind=TransformerConfig,
    suffixes={"": "ForConditionalGeneration"},
    prefix="model.",
    names=_BART,
    heads={"": "{output.bias,-} final_logits_bias buffer\n output lm_head"},
    settings="positions:=learned position_offset:=2 embedding_norm:=true tie:=all "
    "source_vocab_size=vocab_size target_vocab_size=decoder_vocab_size:source_vocab_size d_model "
    "num_heads=encoder_attention_heads =decoder_attention_heads:num_heads "
    "d_ff=encoder_ffn_dim =decoder_ffn_dim:d_ff "
    "num_encoder_layers=encoder_layers num_decoder_layers=decoder_layers "
    "activation=activation_function:gelu "
    "max_len=max_position_embeddings:1024 scale_embedding:false dropout:0.1 attention_dropout:0 "
    "activation_dropout:0 pad_id=pad_token_id:1 bos_id=decoder_start_token_id:2 "
    "eos_id=eos_token_id:2",
)
FAMILIES["mbart"] = FAMILIES["bart"].but(
    "MBart",
    "norm_first:=true bos_id=decoder_start_token_id:null",
    more=(
        lambda s, v: {
            "bos_id": s.integer("bos_token_id", 0, low=0) if v["bos_id"] is None else v["bos_id"]
        },
    ),
)
FAMILIES["m2m_100"] = FAMILIES["bart"].but(
    "M2M100",
    "positions:=sinusoidal_last embedding_norm:=false norm_first:=true output_bias:=false "
    "activation=activation_function:relu scale_embedding:true attention_dropout:0.1",
    more=(_after_padding,),
    heads={"": "output lm_head"},
)
FAMILIES["marian"] = FAMILIES["bart"].but(
    "Marian",
    "positions:=sinusoidal_halves position_offset:=0 embedding_norm:=false "
    "pad_id=pad_token_id:58100 "
    "bos_id=decoder_start_token_id:58100 eos_id=eos_token_id:0",
    suffixes={"": "MTModel"},
    more=(_marian_tie,),
    names=lambda config: (
        _BART if config.tie in ("all", "embeddings") else _BART.partition("@shared")[2]
    ),
)
FAMILIES["t5"] = Family(
    base="T5",
    kind=TransformerConfig,
    suffixes={"": "ForConditionalGeneration"},
    prefix="",
    more=(_t5,),
    settings="norm:=rms norm_first:=true bias:=false output_bias:=false attention_scale:=1.0 "
    "positions:=relative "
    "scale_embedding:=false source_vocab_size=vocab_size target_vocab_size=vocab_size d_model "
    "num_heads d_ff "
    "head_dim=d_kv:64 num_encoder_layers=num_layers num_decoder_layers:num_encoder_layers "
    "norm_eps=layer_norm_epsilon:1e-6 relative_buckets=relative_attention_num_buckets:32 "
    "relative_max_distance=relative_attention_max_distance:128 dropout=dropout_rate:0.1 "
    "pad_id=pad_token_id:0 bos_id=decoder_start_token_id:0 eos_id=eos_token_id:1",
    names=lambda config: _T5 if config.gated else _T5.replace("wi_0", "wi"),
    heads={"": "output lm_head"},
)
