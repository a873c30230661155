"""T5: Raffel et al. (2020), arXiv:1910.10683."""

from __future__ import annotations

from ..models.config import AttentionConfig, EmbeddingConfig, PositionConfig, TransformerConfig
from ..models.transformer import Transformer
from .family import ACTIVATIONS, Family, HFConfig, in_layers, projections

__all__ = ["T5"]


class T5(Family):
    """T5, T5 v1.1 and Flan-T5. Positions are relative, and scores are not scaled."""

    base = "T5"
    models = {"": Transformer}
    suffixes = {"": "ForConditionalGeneration"}
    prefix = ""
    keys = {
        "source_vocab_size": "vocab_size",
        "target_vocab_size": "vocab_size",
        "d_model": "d_model",
        "num_heads": "num_heads",
        "num_encoder_layers": "num_layers",
        "num_decoder_layers": "num_decoder_layers",
        "d_ff": "d_ff",
    }
    tokens = {"pad_id": "pad_token_id", "eos_id": "eos_token_id"}
    defaults = {
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
                "layer.0.layer_norm": "norm1",
                **projections("layer.0.SelfAttention.", "q", "k", "v", "o"),
                "layer.0.SelfAttention.relative_attention_bias": "self_attention.position_bias",
                "layer.1.layer_norm": "norm2",
                "layer.1.DenseReluDense.wi": "feed_forward.linear1",
                "layer.1.DenseReluDense.wo": "feed_forward.linear2",
                "layer.1.DenseReluDense.wi_0": "feed_forward.linear1",
                "layer.1.DenseReluDense.wi_1": "feed_forward.gate",
            },
        ),
        "encoder.final_layer_norm": "encoder.norm",
        "decoder.embed_tokens": "target_embedding.tokens",
        **in_layers(
            "decoder.block",
            "decoder.layers",
            {
                "layer.0.layer_norm": "norm1",
                **projections("layer.0.SelfAttention.", "q", "k", "v", "o"),
                "layer.0.SelfAttention.relative_attention_bias": "self_attention.position_bias",
                "layer.1.layer_norm": "norm2",
                **projections("layer.1.EncDecAttention.", "q", "k", "v", "o", of="cross_attention"),
                "layer.2.layer_norm": "norm3",
                "layer.2.DenseReluDense.wi": "feed_forward.linear1",
                "layer.2.DenseReluDense.wo": "feed_forward.linear2",
                "layer.2.DenseReluDense.wi_0": "feed_forward.linear1",
                "layer.2.DenseReluDense.wi_1": "feed_forward.gate",
            },
        ),
        "decoder.final_layer_norm": "decoder.norm",
    }
    head_names = {"": {"lm_head": "output"}}

    def config(self, hf: HFConfig) -> TransformerConfig:
        form = hf.text("feed_forward_proj")
        name = {"gated-gelu": "gelu_new"}.get(form, form.removeprefix("gated-"))
        if name not in ACTIVATIONS:
            hf.fail(
                "feed_forward_proj", f"one of {', '.join(ACTIVATIONS)}, or gated- and one of them"
            )
        # newer files say the same in two more keys
        activation = hf.text("dense_act_fn", name, choices=tuple(ACTIVATIONS))
        gated = hf.flag("is_gated_act", form.startswith("gated-"))
        tied = hf.flag("tie_word_embeddings")
        sizes = hf.integers(self.keys, num_decoder_layers=hf.integer("num_layers", low=0))
        scaled = hf.flag("scale_decoder_outputs", tied)
        return TransformerConfig(
            **sizes,
            **hf.tokens(self.tokens),
            bos_id=hf.integer("decoder_start_token_id", low=0),
            tie="all" if tied else "embeddings",
            activation=ACTIVATIONS[activation],
            gated=gated,
            norm="rms",
            norm_eps=hf.number("layer_norm_epsilon"),
            norm_first=True,
            dropout=hf.number("dropout_rate"),
            bias=False,
            output_bias=False,
            output_scale=max(sizes["d_model"], 1) ** -0.5 if scaled else 1.0,
            attention=AttentionConfig(head_dim=hf.integer("d_kv"), scale=1.0),
            positions=PositionConfig(
                kind="relative",
                relative_buckets=hf.integer("relative_attention_num_buckets"),
                relative_max_distance=hf.integer("relative_attention_max_distance"),
            ),
            embeddings=EmbeddingConfig(scale=False),
        )
