"""Encoders: BERT and its relatives, and ViT."""

from __future__ import annotations

from typing import Any, ClassVar

from ..options.config import EncoderConfig
from ..options.encoder import EncoderClassifier, EncoderModel
from .family import ENCODERS, QKV, Family, HFConfig, Names, StoredArray, projections, without
from .llama import rotary_positions, window_layers

_OPTIONS: dict[str, Any] = {
    "activation_dropout": 0.0,
    "positions.kind": "learned",
    "embeddings.scale": False,
    "embeddings.norm": True,
}
"""Options that all these encoders have, but for ViT's norm."""

_LAYER_KEYS = {
    "d_model": "hidden_size",
    "num_heads": "num_attention_heads",
    "num_layers": "num_hidden_layers",
    "d_ff": "intermediate_size",
    "activation": "hidden_act",
    "norm_eps": "layer_norm_eps",
    "dropout": "hidden_dropout_prob",
    "attention.dropout": "attention_probs_dropout_prob",
}
_EMBEDDINGS: Names = {
    "embeddings.word_embeddings": "embedding.tokens",
    "embeddings.position_embeddings": "embedding.positions",
    "embeddings.token_type_embeddings": "embedding.types",
    "embeddings.LayerNorm": "embedding.norm",
    "embeddings.position_ids": None,
    "pooler.dense": None,
}
_FEED_FORWARD: Names = {
    "intermediate.dense": "feed_forward.linear1",
    "output.dense": "feed_forward.linear2",
}


class Bert(Family):
    """BERT: Devlin et al. (2019), arXiv:1810.04805."""

    base = "Bert"
    models = ENCODERS
    suffixes = {
        "none": "Model",
        "mlm": "ForMaskedLM",
        "classes": "ForSequenceClassification",
        "tokens": "ForTokenClassification",
    }
    config_class = EncoderConfig
    prefix = "bert."
    keys = _LAYER_KEYS | {
        "vocab_size": "vocab_size",
        "max_len": "max_position_embeddings",
        "num_types": "type_vocab_size",
        "head_dropout": "classifier_dropout",
        "pad_id": "pad_token_id",
    }
    defaults: ClassVar[dict[str, Any]] = {
        "max_position_embeddings": 512,
        "type_vocab_size": 2,
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-12,
        "hidden_dropout_prob": 0.1,
        "attention_probs_dropout_prob": 0.1,
        "classifier_dropout": None,
        "add_cross_attention": False,
        "is_decoder": False,
        "pad_token_id": 0,
    }
    harmless = {
        "directionality", "pooler_fc_size", "pooler_num_attention_heads", "pooler_num_fc_layers",
        "pooler_size_per_head", "pooler_type", "tie_word_embeddings",
    }  # fmt: skip
    names = _EMBEDDINGS
    layers = {
        **projections("attention.", "self.query", "self.key", "self.value", "output.dense"),
        "attention.output.LayerNorm": "norm1",
        **_FEED_FORWARD,
        "output.LayerNorm": "norm2",
    }
    head_names = {
        "mlm": {
            "cls.predictions.transform.dense": "dense",
            "cls.predictions.transform.LayerNorm": "norm",
            "cls.predictions.bias": "output.bias",
            "cls.predictions.decoder": "output",
            "cls.seq_relationship": None,
        },
        "classes": {"bert.pooler.dense": "dense", "classifier": "output"},
        "tokens": {"classifier": "output"},
        "none": {"cls.seq_relationship": None},
    }
    classifier = {"pool": "first", "head_activation": "tanh"}
    pooler = "pooler.dense"

    def config(self, hf: HFConfig) -> dict[str, Any]:
        hf.expect("position_embedding_type", "absolute", None)
        if "num_types" in self.keys:
            hf.integer("type_vocab_size", low=1)
        return hf.options(self.keys) | _OPTIONS


_TWO_LAYERS = {
    "classes": {"classifier.dense": "dense", "classifier.out_proj": "output"},
    "tokens": {"classifier": "output"},
}
"""Heads with two linear layers for the class of a sequence."""


class Roberta(Bert):
    """RoBERTa: Liu et al. (2019), arXiv:1907.11692. Positions begin after the row of padding."""

    base = "Roberta"
    prefix = "roberta."
    defaults = Bert.defaults | {"pad_token_id": 1}
    head_names = {
        "mlm": {
            "lm_head.dense": "dense",
            "lm_head.layer_norm": "norm",
            "lm_head.bias": "output.bias",
            "lm_head.decoder": "output",
        },
        **_TWO_LAYERS,
    }

    def config(self, hf: HFConfig) -> dict[str, Any]:
        hf.expect("hidden_act", "gelu")  # the heads have no other, whatever config.json says
        first = hf.first_position()
        rows = hf.integer("max_position_embeddings")
        if rows <= first:
            hf.fail("max_position_embeddings", f"more than {first}, the first row that is used")
        return super().config(hf) | {"positions.offset": first, "max_len": rows - first}


class XLMRoberta(Roberta):
    """XLM-RoBERTa: Conneau et al. (2020), arXiv:1911.02116."""

    base = "XLMRoberta"


class MPNet(Roberta):
    """MPNet: Song et al. (2020), arXiv:2004.09297. Positions are learned, and relative too."""

    base = "MPNet"
    prefix = "mpnet."
    keys = {option: key for option, key in Bert.keys.items() if option != "num_types"}
    defaults = Roberta.defaults | {"relative_attention_num_buckets": 32}
    harmless = Bert.harmless | {"type_vocab_size"}
    names = {
        **_EMBEDDINGS,
        "encoder.relative_attention_bias": "encoder.layers.0.self_attention.position_bias",
    }
    layers = {
        **projections("attention.attn.", "q", "k", "v", "o"),
        "attention.LayerNorm": "norm1",
        **_FEED_FORWARD,
        "output.LayerNorm": "norm2",
    }

    def config(self, hf: HFConfig) -> dict[str, Any]:
        hf.expect("pad_token_id", 1)
        return super().config(hf) | {"positions.kind": "learned_relative", "head_dropout": None}


class Electra(Bert):
    """ELECTRA: Clark et al. (2020), arXiv:2003.10555. Embeddings are narrower than the model."""

    base = "Electra"
    prefix = "electra."
    keys = Bert.keys | {"embeddings.size": "embedding_size"}
    defaults = Bert.defaults | {"embedding_size": 128}
    harmless = Bert.harmless | {
        "summary_activation", "summary_last_dropout", "summary_type", "summary_use_proj",
    }  # fmt: skip
    names = {**_EMBEDDINGS, "embeddings_project": "embedding.projection"}
    head_names = {
        "mlm": {
            "generator_predictions.dense": "dense",
            "generator_predictions.LayerNorm": "norm",
            "generator_lm_head": "output",
        },
        **_TWO_LAYERS,
        "none": {
            "discriminator_predictions.dense": None,
            "discriminator_predictions.dense_prediction": None,
        },
    }
    classifier = {"pool": "first", "head_activation": "gelu"}
    pooler = ""

    def config(self, hf: HFConfig) -> dict[str, Any]:
        hf.expect("hidden_act", "gelu")
        return super().config(hf)


class DistilBert(Bert):
    """DistilBERT: Sanh et al. (2019), arXiv:1910.01108. It has no segment types."""

    base = "DistilBert"
    prefix = "distilbert."
    keys = {
        "vocab_size": "vocab_size",
        "d_model": "dim",
        "num_heads": "n_heads",
        "num_layers": "n_layers",
        "d_ff": "hidden_dim",
        "max_len": "max_position_embeddings",
        "activation": "activation",
        "dropout": "dropout",
        "attention.dropout": "attention_dropout",
        "head_dropout": "seq_classif_dropout",
        "pad_id": "pad_token_id",
    }
    defaults = {
        "max_position_embeddings": 512,
        "activation": "gelu",
        "dropout": 0.1,
        "attention_dropout": 0.1,
        "seq_classif_dropout": 0.2,
        "pad_token_id": 0,
    }
    harmless = {
        "qa_dropout", "sinusoidal_pos_embds", "tie_weights_", "tie_word_embeddings",
    }  # fmt: skip
    stack = "transformer.layer"
    names = _EMBEDDINGS
    layers = {
        **projections("attention.", "q_lin", "k_lin", "v_lin", "out_lin"),
        "sa_layer_norm": "norm1",
        "ffn.lin1": "feed_forward.linear1",
        "ffn.lin2": "feed_forward.linear2",
        "output_layer_norm": "norm2",
    }
    head_names = {
        "mlm": {
            "vocab_transform": "dense",
            "vocab_layer_norm": "norm",
            "vocab_projector": "output",
        },
        "classes": {"pre_classifier": "dense", "classifier": "output"},
        "tokens": {"classifier": "output"},
    }
    classifier = {"pool": "first", "head_activation": "relu"}
    token_classifier = {"head_dropout": None}
    pooler = ""

    def config(self, hf: HFConfig) -> dict[str, Any]:
        return hf.options(self.keys) | _OPTIONS | {"norm_eps": 1e-12}


class Albert(Bert):
    """ALBERT: Lan et al. (2020), arXiv:1909.11942. One layer is used `num_hidden_layers` times."""

    base = "Albert"
    prefix = "albert."
    keys = Bert.keys | {
        "head_dropout": "classifier_dropout_prob",
        "embeddings.size": "embedding_size",
    }
    defaults = Bert.defaults | {
        "embedding_size": 128,
        "hidden_act": "gelu_new",
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "classifier_dropout_prob": 0.1,
        "num_hidden_groups": 1,
        "inner_group_num": 1,
    }
    harmless = {
        "down_scale_factor", "gap_size", "net_structure_type", "num_memory_blocks",
        "tie_word_embeddings",
    }  # fmt: skip
    stack = "encoder.albert_layer_groups"
    names = {
        **_EMBEDDINGS,
        "encoder.embedding_hidden_mapping_in": "embedding.projection",
        "pooler": None,
    }
    layers = {
        **projections("albert_layers.0.attention.", "query", "key", "value", "dense"),
        "albert_layers.0.attention.LayerNorm": "norm1",
        "albert_layers.0.ffn": "feed_forward.linear1",
        "albert_layers.0.ffn_output": "feed_forward.linear2",
        "albert_layers.0.full_layer_layer_norm": "norm2",
    }
    head_names = {
        "mlm": {
            "predictions.dense": "dense",
            "predictions.LayerNorm": "norm",
            "predictions.bias": "output.bias",
            "predictions.decoder": "output",
            "sop_classifier.classifier": None,
        },
        "classes": {"albert.pooler": "dense", "classifier": "output"},
        "tokens": {"classifier": "output"},
        "none": {"sop_classifier.classifier": None},
    }
    pooler = "pooler"

    def config(self, hf: HFConfig) -> dict[str, Any]:
        return super().config(hf) | {"shared_layers": True}


_HEAD = {"head.dense": "dense", "head.norm": "norm", "classifier": "output"}


class ModernBert(Bert):
    """ModernBERT: Warner et al. (2024), arXiv:2412.13663. Two of three layers have a window."""

    base = "ModernBert"
    prefix = "model."
    keys = without(Bert.keys, "dropout", "num_types") | {
        "activation": "hidden_activation",
        "norm_eps": "norm_eps",
        "bias": "mlp_bias",
        "activation_dropout": "mlp_dropout",
        "attention.bias": "attention_bias",
        "output_bias": "decoder_bias",
        "head_dropout": "classifier_dropout",
    }
    defaults = {
        "max_position_embeddings": 8192,
        "hidden_activation": "gelu",
        "norm_eps": 1e-5,
        "norm_bias": False,
        "mlp_bias": False,
        "mlp_dropout": 0.0,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "embedding_dropout": 0.0,
        "decoder_bias": True,
        "classifier_activation": "gelu",
        "classifier_bias": False,
        "classifier_dropout": 0.0,
        "classifier_pooling": "cls",
        "local_attention": 128,
        "global_attn_every_n_layers": 3,
        "global_rope_theta": 160000.0,
        "local_rope_theta": 10000.0,
        "pad_token_id": 50283,
    }
    harmless = {
        "deterministic_flash_attn", "eos_token_id", "initializer_cutoff_factor", "layer_norm_eps",
        "position_embedding_type", "reference_compile", "repad_logits_with_grad",
        "sparse_pred_ignore_index", "sparse_prediction", "tie_word_embeddings",
    }  # fmt: skip
    stack = "layers"
    names = {
        "embeddings.tok_embeddings": "embedding.tokens",
        "embeddings.norm": "embedding.norm",
        "final_norm": "encoder.norm",
    }
    layers = {
        "attn_norm": "norm1",
        "attn.Wqkv": StoredArray(QKV),
        "attn.Wo": "self_attention.out_proj",
        "mlp_norm": "norm2",
        "mlp.Wi": StoredArray(("feed_forward.linear1", "feed_forward.gate")),
        "mlp.Wo": "feed_forward.linear2",
    }
    head_names = {
        "mlm": {"head.dense": "dense", "head.norm": "norm", "decoder": "output"},
        "classes": _HEAD,
        "tokens": _HEAD,
    }
    classifier: ClassVar[dict[str, Any]] = {}
    pooler = ""

    def config(self, hf: HFConfig) -> dict[str, Any]:
        for key in ("attention_dropout", "embedding_dropout", "classifier_bias"):
            hf.expect(key, self.defaults[key])
        hf.expect("rope_scaling", None)
        options = hf.options(self.keys)
        if hf.activation("classifier_activation") != options["activation"]:
            hf.fail("classifier_activation", f"{hf['hidden_activation']}, as hidden_activation")
        step = hf.integer("global_attn_every_n_layers")
        return {
            **options,
            "norm": "layer" if hf.flag("norm_bias") else "layer_no_bias",
            "norm_first": True,
            "first_norm": False,
            "gated": True,
            "dropout": 0.0,
            "pool": hf.text("classifier_pooling", choices=("cls", "mean")).replace("cls", "first"),
            "head_activation": options["activation"],
            "head_norm": True,
            "embeddings.scale": False,
            "embeddings.norm": True,
            "attention.window": hf.integer("local_attention") // 2 + 1,
            "attention.window_layers": window_layers(hf, lambda i: i % step),
            **rotary_positions(
                hf, hf.number("global_rope_theta"), window_base=hf.number("local_rope_theta")
            ),
        }


class ViT(Family):
    """ViT: Dosovitskiy et al. (2021), arXiv:2010.11929. It reads images."""

    base = "ViT"
    models = {"none": EncoderModel, "classes": EncoderClassifier}
    suffixes = {"none": "Model", "classes": "ForImageClassification"}
    config_class = EncoderConfig
    prefix = "vit."
    keys = _LAYER_KEYS | {
        "image_size": "image_size",
        "patch_size": "patch_size",
        "num_channels": "num_channels",
    }
    defaults = {
        "image_size": 224,
        "patch_size": 16,
        "num_channels": 3,
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-12,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "qkv_bias": True,
    }
    harmless = {"encoder_stride", "pooler_act", "pooler_output_size"}
    names = {
        "embeddings.cls_token": StoredArray(("embedding.first",), extra_axis=True),
        "embeddings.position_embeddings": StoredArray(
            ("embedding.positions.weight",), extra_axis=True
        ),
        "embeddings.patch_embeddings.projection": "embedding",
        "layernorm": "encoder.norm",
        "embeddings.mask_token": None,
        "pooler.dense": None,
    }
    layers = {
        "layernorm_before": "norm1",
        **projections(
            "attention.",
            "attention.query",
            "attention.key",
            "attention.value",
            "output.dense",
        ),
        "layernorm_after": "norm2",
        **_FEED_FORWARD,
    }
    head_names = {"classes": {"classifier": "output"}}
    modules = {
        "encoder.layer.": "layers.",
        "attention.attention.query": "attention.q_proj",
        "attention.attention.key": "attention.k_proj",
        "attention.attention.value": "attention.v_proj",
        "attention.output.dense": "attention.o_proj",
        "intermediate.dense": "mlp.fc1",
        "output.dense": "mlp.fc2",
    }
    classifier = {"pool": "first", "head_activation": "none"}
    pooler = "pooler.dense"

    def config(self, hf: HFConfig) -> dict[str, Any]:
        options = {"norm_first": True, "head_dropout": 0.0, "embeddings.norm": False}
        return hf.options(self.keys) | _OPTIONS | options
