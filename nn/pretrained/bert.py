"""Encoders: BERT and its relatives, and ViT."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from ..models.config import AttentionConfig, EmbeddingConfig, EncoderConfig, PositionConfig
from ..models.encoder import EncoderClassifier, EncoderModel
from .family import ENCODERS, HF_ACTIVATIONS, Family, HFConfig, StoredArray, in_layers, projections

__all__ = [
    "Albert",
    "Bert",
    "DistilBert",
    "Electra",
    "MPNet",
    "Roberta",
    "ViT",
    "XLMRoberta",
]


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
    prefix = "bert."
    keys = {
        "vocab_size": "vocab_size",
        "d_model": "hidden_size",
        "num_heads": "num_attention_heads",
        "num_layers": "num_hidden_layers",
        "d_ff": "intermediate_size",
        "max_len": "max_position_embeddings",
        "num_types": "type_vocab_size",
    }
    tokens = {"pad_id": "pad_token_id"}
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
        "directionality", "eos_token_id", "pooler_fc_size", "pooler_num_attention_heads",
        "pooler_num_fc_layers", "pooler_size_per_head", "pooler_type", "tie_word_embeddings",
    }  # fmt: skip
    names = {
        "embeddings.word_embeddings": "embedding.tokens",
        "embeddings.position_embeddings": "embedding.positions",
        "embeddings.token_type_embeddings": "embedding.types",
        "embeddings.LayerNorm": "embedding.norm",
        **in_layers(
            "encoder.layer",
            "encoder.layers",
            {
                **projections("attention.", "self.query", "self.key", "self.value", "output.dense"),
                "attention.output.LayerNorm": "norm1",
                "intermediate.dense": "feed_forward.linear1",
                "output.dense": "feed_forward.linear2",
                "output.LayerNorm": "norm2",
            },
        ),
        "embeddings.position_ids": None,
        "pooler.dense": None,
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

    def config(self, hf: HFConfig) -> EncoderConfig:
        hf.expect("position_embedding_type", "absolute", None)
        if "num_types" in self.keys:
            hf.integer("type_vocab_size", low=1)
        return EncoderConfig(
            **hf.integers(self.keys),
            **hf.tokens(self.tokens),
            activation=hf.activation("hidden_act"),
            norm_eps=hf.number("layer_norm_eps"),
            dropout=hf.number("hidden_dropout_prob"),
            activation_dropout=0.0,
            head_dropout=hf.number("classifier_dropout"),
            attention=AttentionConfig(dropout=hf.number("attention_probs_dropout_prob")),
            positions="learned",
            embeddings=EmbeddingConfig(scale=False, norm=True),
        )

    def hf_config(self, config: EncoderConfig) -> dict[str, Any]:
        return {
            **{key: getattr(config, ours) for ours, key in self.keys.items()},
            "hidden_act": HF_ACTIVATIONS.get(config.activation),
            "layer_norm_eps": config.norm_eps,
            "hidden_dropout_prob": config.dropout,
            "attention_probs_dropout_prob": config.attention.dropout,
            "classifier_dropout": config.head_dropout,
        }


class Roberta(Bert):
    """RoBERTa: Liu et al. (2019), arXiv:1907.11692. Positions begin behind the padding's row."""

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
        "classes": {"classifier.dense": "dense", "classifier.out_proj": "output"},
        "tokens": {"classifier": "output"},
    }

    def config(self, hf: HFConfig) -> EncoderConfig:
        hf.expect("hidden_act", "gelu")  # the heads have no other, whatever config.json says
        return self.after_padding(hf, super().config(hf))

    def after_padding(self, hf: HFConfig, config: EncoderConfig) -> EncoderConfig:
        """Return the configuration with the rows of `max_position_embeddings` that are used."""
        if config.pad_id is None:
            hf.fail("pad_token_id", "an id")
        first = (config.pad_id or 0) + 1
        if config.max_len <= first:
            hf.fail("max_position_embeddings", f"more than {first}, the first row that is used")
        kind = config.positions.kind  # type: ignore[union-attr]
        positions = PositionConfig(kind=kind, offset=first)
        return replace(config, positions=positions, max_len=config.max_len - first)


class XLMRoberta(Roberta):
    """XLM-RoBERTa: Conneau et al. (2020), arXiv:1911.02116."""

    base = "XLMRoberta"


class MPNet(Roberta):
    """MPNet: Song et al. (2020), arXiv:2004.09297. Positions are learned, and relative too."""

    base = "MPNet"
    prefix = "mpnet."
    keys = {ours: key for ours, key in Bert.keys.items() if ours != "num_types"}
    defaults = Roberta.defaults | {"relative_attention_num_buckets": 32}
    harmless = Bert.harmless | {"type_vocab_size"}
    names = {
        "embeddings.word_embeddings": "embedding.tokens",
        "embeddings.position_embeddings": "embedding.positions",
        "embeddings.LayerNorm": "embedding.norm",
        "encoder.relative_attention_bias": "encoder.layers.0.self_attention.position_bias",
        **in_layers(
            "encoder.layer",
            "encoder.layers",
            {
                **projections("attention.attn.", "q", "k", "v", "o"),
                "attention.LayerNorm": "norm1",
                "intermediate.dense": "feed_forward.linear1",
                "output.dense": "feed_forward.linear2",
                "output.LayerNorm": "norm2",
            },
        ),
        "embeddings.position_ids": None,
        "pooler.dense": None,
    }

    def config(self, hf: HFConfig) -> EncoderConfig:
        hf.expect("pad_token_id", 1)
        config = Bert.config(self, hf)
        hf.expect("hidden_act", "gelu")
        kind = PositionConfig(kind="learned_relative")
        return self.after_padding(hf, replace(config, positions=kind, head_dropout=None))


class Electra(Bert):
    """ELECTRA: Clark et al. (2020), arXiv:2003.10555. Embeddings are narrower than the model."""

    base = "Electra"
    prefix = "electra."
    defaults = Bert.defaults | {"embedding_size": 128}
    harmless = Bert.harmless | {
        "summary_activation", "summary_last_dropout", "summary_type", "summary_use_proj",
    }  # fmt: skip
    names = {
        **Bert.names,
        "embeddings_project": "embedding.projection",
    }
    head_names = {
        "mlm": {
            "generator_predictions.dense": "dense",
            "generator_predictions.LayerNorm": "norm",
            "generator_lm_head": "output",
        },
        "classes": {"classifier.dense": "dense", "classifier.out_proj": "output"},
        "tokens": {"classifier": "output"},
        "none": {
            "discriminator_predictions.dense": None,
            "discriminator_predictions.dense_prediction": None,
        },
    }
    classifier = {"pool": "first", "head_activation": "gelu"}
    pooler = ""

    def config(self, hf: HFConfig) -> EncoderConfig:
        hf.expect("hidden_act", "gelu")
        size = EmbeddingConfig(scale=False, norm=True, size=hf.integer("embedding_size"))
        return replace(super().config(hf), embeddings=size)


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
        "eos_token_id", "qa_dropout", "sinusoidal_pos_embds", "tie_weights_", "tie_word_embeddings",
    }  # fmt: skip
    names = {
        "embeddings.word_embeddings": "embedding.tokens",
        "embeddings.position_embeddings": "embedding.positions",
        "embeddings.LayerNorm": "embedding.norm",
        **in_layers(
            "transformer.layer",
            "encoder.layers",
            {
                **projections("attention.", "q_lin", "k_lin", "v_lin", "out_lin"),
                "sa_layer_norm": "norm1",
                "ffn.lin1": "feed_forward.linear1",
                "ffn.lin2": "feed_forward.linear2",
                "output_layer_norm": "norm2",
            },
        ),
        "embeddings.position_ids": None,
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

    def config(self, hf: HFConfig) -> EncoderConfig:
        return EncoderConfig(
            **hf.integers(self.keys),
            **hf.tokens(self.tokens),
            activation=hf.activation("activation"),
            norm_eps=1e-12,
            dropout=hf.number("dropout"),
            activation_dropout=0.0,
            head_dropout=hf.number("seq_classif_dropout"),
            attention=AttentionConfig(dropout=hf.number("attention_dropout")),
            positions="learned",
            embeddings=EmbeddingConfig(scale=False, norm=True),
        )


class Albert(Bert):
    """ALBERT: Lan et al. (2020), arXiv:1909.11942. All layers are one."""

    base = "Albert"
    prefix = "albert."
    defaults = {
        "max_position_embeddings": 512,
        "type_vocab_size": 2,
        "embedding_size": 128,
        "hidden_act": "gelu_new",
        "layer_norm_eps": 1e-12,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "classifier_dropout_prob": 0.1,
        "num_hidden_groups": 1,
        "inner_group_num": 1,
        "is_decoder": False,
        "pad_token_id": 0,
    }
    harmless = {
        "down_scale_factor", "eos_token_id", "gap_size", "net_structure_type", "num_memory_blocks",
        "tie_word_embeddings",
    }  # fmt: skip
    names = {
        "embeddings.word_embeddings": "embedding.tokens",
        "embeddings.position_embeddings": "embedding.positions",
        "embeddings.token_type_embeddings": "embedding.types",
        "embeddings.LayerNorm": "embedding.norm",
        "encoder.embedding_hidden_mapping_in": "embedding.projection",
        **in_layers(
            "encoder.albert_layer_groups",
            "encoder.layers",
            {
                **projections("albert_layers.0.attention.", "query", "key", "value", "dense"),
                "albert_layers.0.attention.LayerNorm": "norm1",
                "albert_layers.0.ffn": "feed_forward.linear1",
                "albert_layers.0.ffn_output": "feed_forward.linear2",
                "albert_layers.0.full_layer_layer_norm": "norm2",
            },
        ),
        "embeddings.position_ids": None,
        "pooler": None,
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

    def config(self, hf: HFConfig) -> EncoderConfig:
        hf.expect("position_embedding_type", "absolute", None)
        return EncoderConfig(
            **hf.integers(self.keys),
            **hf.tokens(self.tokens),
            shared_layers=True,
            activation=hf.activation("hidden_act"),
            norm_eps=hf.number("layer_norm_eps"),
            dropout=hf.number("hidden_dropout_prob"),
            activation_dropout=0.0,
            head_dropout=hf.number("classifier_dropout_prob"),
            attention=AttentionConfig(dropout=hf.number("attention_probs_dropout_prob")),
            positions="learned",
            embeddings=EmbeddingConfig(scale=False, norm=True, size=hf.integer("embedding_size")),
        )


class ViT(Family):
    """ViT: Dosovitskiy et al. (2021), arXiv:2010.11929. It reads images."""

    base = "ViT"
    models = {"none": EncoderModel, "classes": EncoderClassifier}
    suffixes = {"none": "Model", "classes": "ForImageClassification"}
    prefix = "vit."
    keys = {
        "d_model": "hidden_size",
        "num_heads": "num_attention_heads",
        "num_layers": "num_hidden_layers",
        "d_ff": "intermediate_size",
        "image_size": "image_size",
        "patch_size": "patch_size",
        "num_channels": "num_channels",
    }
    tokens = {}
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
        "embeddings.patch_embeddings.projection.weight": "embedding.weight",
        "embeddings.patch_embeddings.projection.bias": "embedding.bias",
        **in_layers(
            "encoder.layer",
            "encoder.layers",
            {
                "layernorm_before": "norm1",
                **projections(
                    "attention.",
                    "attention.query",
                    "attention.key",
                    "attention.value",
                    "output.dense",
                ),
                "layernorm_after": "norm2",
                "intermediate.dense": "feed_forward.linear1",
                "output.dense": "feed_forward.linear2",
            },
        ),
        "layernorm": "encoder.norm",
        "embeddings.mask_token": None,
        "pooler.dense": None,
    }
    head_names = {"classes": {"classifier": "output"}}
    classifier = {"pool": "first", "head_activation": "none"}
    pooler = "pooler.dense"

    def config(self, hf: HFConfig) -> EncoderConfig:
        return EncoderConfig(
            **hf.integers(self.keys),
            activation=hf.activation("hidden_act"),
            norm_eps=hf.number("layer_norm_eps"),
            norm_first=True,
            dropout=hf.number("hidden_dropout_prob"),
            activation_dropout=0.0,
            head_dropout=0.0,
            attention=AttentionConfig(dropout=hf.number("attention_probs_dropout_prob")),
            positions="learned",
            embeddings=EmbeddingConfig(scale=False),
        )
