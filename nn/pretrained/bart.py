"""Encoder-decoder models with learned or sinusoidal positions: BART, mBART, M2M-100, Marian."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from ..models.config import AttentionConfig, EmbeddingConfig, PositionConfig, TransformerConfig
from ..models.transformer import Transformer
from .family import HF_ACTIVATIONS, Family, HFConfig, Names, StoredArray, in_layers, projections

__all__ = ["Bart", "M2M100", "MBart", "Marian"]


class Bart(Family):
    """BART: Lewis et al. (2020), arXiv:1910.13461."""

    base = "Bart"
    models = {"": Transformer}
    suffixes = {"": "ForConditionalGeneration"}
    prefix = "model."
    keys = {
        "source_vocab_size": "vocab_size",
        "target_vocab_size": "decoder_vocab_size",
        "d_model": "d_model",
        "num_heads": "encoder_attention_heads",
        "num_encoder_layers": "encoder_layers",
        "num_decoder_layers": "decoder_layers",
        "d_ff": "encoder_ffn_dim",
        "max_len": "max_position_embeddings",
    }
    tokens = {
        "pad_id": "pad_token_id",
        "bos_id": "decoder_start_token_id",
        "eos_id": "eos_token_id",
    }
    defaults: ClassVar[dict[str, Any]] = {
        "max_position_embeddings": 1024,
        "activation_function": "gelu",
        "scale_embedding": False,
        "dropout": 0.1,
        "attention_dropout": 0.0,
        "activation_dropout": 0.0,
        "normalize_before": False,
        "normalize_embedding": True,
        "add_final_layer_norm": False,
        "add_bias_logits": False,
        "static_position_embeddings": False,
        "extra_pos_embeddings": 2,
        "is_decoder": False,
        "pad_token_id": 1,
        "decoder_start_token_id": 2,
        "eos_token_id": 2,
    }
    harmless = {
        "classif_dropout", "classifier_dropout", "is_encoder_decoder", "num_hidden_layers",
        "tie_word_embeddings",
    }  # fmt: skip
    names = {
        "shared": "source_embedding.tokens",
        "encoder.embed_tokens": "source_embedding.tokens",
        "encoder.embed_positions": "source_embedding.positions",
        "encoder.layernorm_embedding": "source_embedding.norm",
        **in_layers(
            "encoder.layers",
            "encoder.layers",
            {
                **projections("self_attn.", "q_proj", "k_proj", "v_proj", "out_proj"),
                "self_attn_layer_norm": "norm1",
                "fc1": "feed_forward.linear1",
                "fc2": "feed_forward.linear2",
                "final_layer_norm": "norm2",
            },
        ),
        "encoder.layer_norm": "encoder.norm",
        "decoder.embed_tokens": "target_embedding.tokens",
        "decoder.embed_positions": "target_embedding.positions",
        "decoder.layernorm_embedding": "target_embedding.norm",
        **in_layers(
            "decoder.layers",
            "decoder.layers",
            {
                **projections("self_attn.", "q_proj", "k_proj", "v_proj", "out_proj"),
                "self_attn_layer_norm": "norm1",
                **projections(
                    "encoder_attn.", "q_proj", "k_proj", "v_proj", "out_proj", of="cross_attention"
                ),
                "encoder_attn_layer_norm": "norm2",
                "fc1": "feed_forward.linear1",
                "fc2": "feed_forward.linear2",
                "final_layer_norm": "norm3",
            },
        ),
        "decoder.layer_norm": "decoder.norm",
    }
    head_names = {
        "": {
            "final_logits_bias": StoredArray(("output.bias",), extra_axis=True, trained=False),
            "lm_head": "output",
        }
    }

    def config(self, hf: HFConfig) -> TransformerConfig:
        sizes = hf.integers(self.keys, target_vocab_size=hf.integer("vocab_size"))
        hf.expect_equal("encoder_attention_heads", "decoder_attention_heads")
        hf.expect_equal("encoder_ffn_dim", "decoder_ffn_dim")
        tokens = hf.tokens(self.tokens)
        if tokens["bos_id"] is None:
            tokens["bos_id"] = hf.integer("bos_token_id", low=0)
        return TransformerConfig(
            **sizes,
            **tokens,
            tie="all",
            activation=hf.activation("activation_function"),
            dropout=hf.number("dropout"),
            activation_dropout=hf.number("activation_dropout"),
            attention=AttentionConfig(dropout=hf.number("attention_dropout")),
            positions=PositionConfig(kind="learned", offset=2),
            embeddings=EmbeddingConfig(scale=hf.flag("scale_embedding"), norm=True),
        )


class MBart(Bart):
    """mBART: Liu et al. (2020), arXiv:2001.08210."""

    base = "MBart"
    defaults = Bart.defaults | {
        "normalize_before": True,
        "add_final_layer_norm": True,
        "decoder_start_token_id": None,
        "bos_token_id": 0,
    }

    def config(self, hf: HFConfig) -> TransformerConfig:
        return replace(super().config(hf), norm_first=True)


_NO_POSITIONS = {  # some files hold the sines, which are computed here
    "encoder.embed_positions": None,
    "decoder.embed_positions": None,
    "encoder.embed_positions.weights": None,
    "decoder.embed_positions.weights": None,
}


class M2M100(Bart):
    """M2M-100 and NLLB: Fan et al. (2021), arXiv:2010.11125."""

    base = "M2M100"
    defaults = Bart.defaults | {
        "activation_function": "relu",
        "scale_embedding": True,
        "attention_dropout": 0.1,
        "normalize_before": True,
        "normalize_embedding": False,
        "add_final_layer_norm": True,
        "static_position_embeddings": True,
    }
    names = {
        **Bart.names,
        **_NO_POSITIONS,
    }
    head_names = {"": {"lm_head": "output"}}

    def config(self, hf: HFConfig) -> TransformerConfig:
        config = super().config(hf)
        if config.pad_id is None:
            hf.fail("pad_token_id", "an id")
        return replace(
            config,
            norm_first=True,
            output_bias=False,
            positions=PositionConfig(kind="sinusoidal_last", offset=(config.pad_id or 0) + 1),
            embeddings=replace(config.embeddings, norm=False),
        )


class Marian(Bart):
    """Marian: Junczys-Dowmunt et al. (2018), arXiv:1804.00344. The models of OPUS-MT."""

    base = "Marian"
    suffixes = {"": "MTModel"}
    harmless = Bart.harmless - {"tie_word_embeddings"}
    defaults = Bart.defaults | {
        "normalize_embedding": False,
        "static_position_embeddings": True,
        "share_encoder_decoder_embeddings": True,
        "tie_word_embeddings": True,
        "pad_token_id": 58100,
        "decoder_start_token_id": 58100,
        "eos_token_id": 0,
    }
    names = {
        **Bart.names,
        **_NO_POSITIONS,
    }

    def config(self, hf: HFConfig) -> TransformerConfig:
        shared, tied = hf.flag("share_encoder_decoder_embeddings"), hf.flag("tie_word_embeddings")
        config = super().config(hf)
        return replace(
            config,
            tie="all" if shared else "target" if tied else "none",
            positions="sinusoidal_halves",
            embeddings=replace(config.embeddings, norm=False),
        )

    def names_of(self, config: TransformerConfig) -> Names:
        """Return the names: `shared` is there if both languages have one vocabulary."""
        if config.tie in ("all", "embeddings"):
            return self.names
        return {name: ours for name, ours in self.names.items() if name != "shared"}

    def hf_config(self, config: TransformerConfig) -> dict[str, Any]:
        return {
            **{key: getattr(config, ours) for ours, key in self.keys.items()},
            "decoder_attention_heads": config.num_heads,
            "decoder_ffn_dim": config.d_ff,
            "activation_function": HF_ACTIVATIONS.get(config.activation),
            "dropout": config.dropout,
            "attention_dropout": config.attention.dropout,
            "activation_dropout": config.activation_dropout,
            "scale_embedding": bool(config.embeddings.scale),
            "share_encoder_decoder_embeddings": config.tie == "all",
            "tie_word_embeddings": config.tie in ("all", "target"),
            "forced_eos_token_id": None,
            "is_encoder_decoder": True,
        }
