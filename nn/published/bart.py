"""Encoder-decoder models with learned or sinusoidal positions: BART, mBART, M2M-100, Marian."""

from __future__ import annotations

from typing import Any, ClassVar

from ..options.config import EncoderDecoderConfig
from .family import EncoderDecoder, HFConfig, Names, StoredArray, in_layers, projections

_LAYER: Names = {
    **projections("self_attn.", "q_proj", "k_proj", "v_proj", "out_proj"),
    "self_attn_layer_norm": "norm1",
    "fc1": "feed_forward.linear1",
    "fc2": "feed_forward.linear2",
}


class Bart(EncoderDecoder):
    """BART: Lewis et al. (2020), arXiv:1910.13461."""

    base = "Bart"
    keys = {
        "source_vocab_size": "vocab_size",
        "target_vocab_size": "decoder_vocab_size",
        "d_model": "d_model",
        "num_heads": "encoder_attention_heads",
        "num_encoder_layers": "encoder_layers",
        "num_decoder_layers": "decoder_layers",
        "d_ff": "encoder_ffn_dim",
        "max_len": "max_position_embeddings",
        "activation": "activation_function",
        "dropout": "dropout",
        "activation_dropout": "activation_dropout",
        "attention.dropout": "attention_dropout",
        "pad_id": "pad_token_id",
        "bos_id": "decoder_start_token_id",
        "eos_id": "eos_token_id",
    }
    defaults: ClassVar[dict[str, Any]] = {
        "decoder_vocab_size": None,
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
            {**_LAYER, "final_layer_norm": "norm2"},
        ),
        "encoder.layer_norm": "encoder.norm",
        "decoder.embed_tokens": "target_embedding.tokens",
        "decoder.embed_positions": "target_embedding.positions",
        "decoder.layernorm_embedding": "target_embedding.norm",
        **in_layers(
            "decoder.layers",
            "decoder.layers",
            {
                **_LAYER,
                **projections(
                    "encoder_attn.", "q_proj", "k_proj", "v_proj", "out_proj", of="cross_attention"
                ),
                "encoder_attn_layer_norm": "norm2",
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

    def config(self, hf: HFConfig) -> dict[str, Any]:
        hf.expect_equal("encoder_attention_heads", "decoder_attention_heads")
        hf.expect_equal("encoder_ffn_dim", "decoder_ffn_dim")
        options = hf.options(self.keys)
        if options["target_vocab_size"] is None:
            options["target_vocab_size"] = options["source_vocab_size"]
        if options["bos_id"] is None:
            options["bos_id"] = hf.integer("bos_token_id", low=0)
        return options | {
            "tie": "all",
            "positions.kind": "learned",
            "positions.offset": 2,
            "embeddings.scale": hf.flag("scale_embedding"),
            "embeddings.norm": True,
        }


class MBart(Bart):
    """mBART: Liu et al. (2020), arXiv:2001.08210."""

    base = "MBart"
    defaults = Bart.defaults | {
        "normalize_before": True,
        "add_final_layer_norm": True,
        "decoder_start_token_id": None,
        "bos_token_id": 0,
    }

    def config(self, hf: HFConfig) -> dict[str, Any]:
        return super().config(hf) | {"norm_first": True}


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
    names = {**Bart.names, **_NO_POSITIONS}
    head_names = {"": {"lm_head": "output"}}

    def config(self, hf: HFConfig) -> dict[str, Any]:
        return super().config(hf) | {
            "norm_first": True,
            "output_bias": False,
            "positions.kind": "sinusoidal_last",
            "positions.offset": hf.first_position(),
            "embeddings.norm": False,
        }


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
    names = {**Bart.names, **_NO_POSITIONS}

    def config(self, hf: HFConfig) -> dict[str, Any]:
        shared = hf.flag("share_encoder_decoder_embeddings")
        tied = hf.flag("tie_word_embeddings")
        return super().config(hf) | {
            "tie": "all" if shared else "target" if tied else "none",
            "positions.kind": "sinusoidal_halves",
            "positions.offset": 0,
            "embeddings.norm": False,
        }

    def names_of(self, config: EncoderDecoderConfig) -> Names:
        """Return the names: `shared` is there if both languages have one vocabulary."""
        if config.tie in ("all", "embeddings"):
            return self.names
        return {name: target for name, target in self.names.items() if name != "shared"}

    def hf_config(self, config: EncoderDecoderConfig) -> dict[str, Any]:
        return {
            "decoder_attention_heads": config.num_heads,
            "decoder_ffn_dim": config.d_ff,
            "scale_embedding": config.embeddings.scale != 1,
            "share_encoder_decoder_embeddings": config.tie == "all",
            "tie_word_embeddings": config.tie in ("all", "target"),
            "forced_eos_token_id": None,
            "is_encoder_decoder": True,
        }
