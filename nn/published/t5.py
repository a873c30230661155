"""T5: Raffel et al. (2020), arXiv:1910.10683."""

from __future__ import annotations

from typing import Any

from .family import ACTIVATIONS, EncoderDecoder, HFConfig, Names, in_layers, projections

_FEED_FORWARD: Names = {
    "DenseReluDense.wi": "feed_forward.linear1",
    "DenseReluDense.wo": "feed_forward.linear2",
    "DenseReluDense.wi_0": "feed_forward.linear1",
    "DenseReluDense.wi_1": "feed_forward.gate",
}
_SELF_ATTENTION: Names = {
    "layer.0.layer_norm": "norm1",
    **projections("layer.0.SelfAttention.", "q", "k", "v", "o"),
    "layer.0.SelfAttention.relative_attention_bias": "self_attention.position_bias",
}


class T5(EncoderDecoder):
    """T5, T5 v1.1 and Flan-T5. Positions are relative, and scores are not scaled."""

    base = "T5"
    prefix = ""
    keys = {
        "source_vocab_size": "vocab_size",
        "target_vocab_size": "vocab_size",
        "d_model": "d_model",
        "num_heads": "num_heads",
        "num_encoder_layers": "num_layers",
        "num_decoder_layers": "num_decoder_layers",
        "d_ff": "d_ff",
        "norm_eps": "layer_norm_epsilon",
        "dropout": "dropout_rate",
        "attention.head_dim": "d_kv",
        "positions.relative_buckets": "relative_attention_num_buckets",
        "positions.relative_max_distance": "relative_attention_max_distance",
        "pad_id": "pad_token_id",
        "eos_id": "eos_token_id",
    }
    defaults = {
        "num_decoder_layers": None,
        "d_kv": 64,
        "layer_norm_epsilon": 1e-6,
        "relative_attention_num_buckets": 32,
        "relative_attention_max_distance": 128,
        "dropout_rate": 0.1,
        "feed_forward_proj": "relu",
        "tie_word_embeddings": True,
        "is_decoder": False,
        "pad_token_id": 0,
        "decoder_start_token_id": 0,
        "eos_token_id": 1,
    }
    harmless = {"classifier_dropout", "is_encoder_decoder", "n_positions", "num_hidden_layers"}
    names = {
        "shared": "source_embedding.tokens",
        "encoder.embed_tokens": "source_embedding.tokens",
        **in_layers(
            "encoder.block",
            "encoder.layers",
            {
                **_SELF_ATTENTION,
                "layer.1.layer_norm": "norm2",
                **{f"layer.1.{name}": target for name, target in _FEED_FORWARD.items()},
            },
        ),
        "encoder.final_layer_norm": "encoder.norm",
        "decoder.embed_tokens": "target_embedding.tokens",
        **in_layers(
            "decoder.block",
            "decoder.layers",
            {
                **_SELF_ATTENTION,
                "layer.1.layer_norm": "norm2",
                **projections("layer.1.EncDecAttention.", "q", "k", "v", "o", of="cross_attention"),
                "layer.2.layer_norm": "norm3",
                **{f"layer.2.{name}": target for name, target in _FEED_FORWARD.items()},
            },
        ),
        "decoder.final_layer_norm": "decoder.norm",
    }

    def config(self, hf: HFConfig) -> dict[str, Any]:
        form = hf.text("feed_forward_proj")
        name = {"gated-gelu": "gelu_new"}.get(form, form.removeprefix("gated-"))
        if name not in ACTIVATIONS:
            hf.fail(
                "feed_forward_proj", f"one of {', '.join(ACTIVATIONS)}, or gated- and one of them"
            )
        tied = hf.flag("tie_word_embeddings")
        options = hf.options(self.keys)
        if options["num_decoder_layers"] is None:
            options["num_decoder_layers"] = options["num_encoder_layers"]
        is_scaled = hf.flag("scale_decoder_outputs", tied)
        return options | {
            "bos_id": hf.integer("decoder_start_token_id", low=0),
            "tie": "all" if tied else "embeddings",
            "activation": hf.activation("dense_act_fn", name),  # a newer key, as is the next
            "gated": hf.flag("is_gated_act", form.startswith("gated-")),
            "norm": "rms",
            "norm_first": True,
            "bias": False,
            "output_bias": False,
            "output_scale": hf.integer("d_model") ** -0.5 if is_scaled else 1.0,
            "attention.scale": 1.0,
            "positions.kind": "relative",
            "embeddings.scale": False,
        }
