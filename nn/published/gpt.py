"""Language models with layer norm: GPT-2, GPT-NeoX (Pythia) and OPT."""

from __future__ import annotations

from typing import Any

from ..options.config import DecoderOnlyConfig
from .family import QKV, DecoderOnly, HFConfig, Names, StoredArray, projections
from .llama import rotary_positions


class GPT2(DecoderOnly):
    """GPT-2: Radford et al. (2019)."""

    base = "GPT2"
    suffixes = {"": "LMHeadModel"}
    prefix = "transformer."
    keys = DecoderOnly.keys | {
        "d_model": "n_embd",
        "num_heads": "n_head",
        "num_layers": "n_layer",
        "d_ff": "n_inner",
        "max_len": "n_positions",
        "activation": "activation_function",
        "norm_eps": "layer_norm_epsilon",
        "dropout": "resid_pdrop",
        "attention.dropout": "attn_pdrop",
    }
    defaults = {
        "n_positions": 1024,
        "n_inner": None,
        "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-5,
        "resid_pdrop": 0.1,
        "attn_pdrop": 0.1,
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "add_cross_attention": False,
        "tie_word_embeddings": True,
        "pad_token_id": None,
        "bos_token_id": 50256,
        "eos_token_id": 50256,
    }
    harmless = {
        "n_ctx", "reorder_and_upcast_attn", "summary_activation", "summary_first_dropout",
        "summary_proj_to_labels", "summary_type", "summary_use_proj",
    }  # fmt: skip
    stack = "h"
    names = {
        "wte": "embedding.tokens",
        "wpe": "embedding.positions",
        "ln_f": "layers.norm",
    }
    layers = {
        "ln_1": "norm1",
        "attn.c_attn": StoredArray(QKV, transposed=True),
        "attn.c_proj": StoredArray(("self_attention.out_proj",), transposed=True),
        "ln_2": "norm2",
        "mlp.c_fc": StoredArray(("feed_forward.linear1",), transposed=True),
        "mlp.c_proj": StoredArray(("feed_forward.linear2",), transposed=True),
        "attn.bias": None,
        "attn.masked_bias": None,
    }

    def config(self, hf: HFConfig) -> dict[str, Any]:
        hf.expect_causal()
        options = hf.options(self.keys) | {"activation_dropout": 0.0}
        if options["d_ff"] is None:
            options["d_ff"] = 4 * hf.integer("n_embd")
        return options


class GPTNeoX(DecoderOnly):
    """GPT-NeoX and Pythia: Black et al. (2022), arXiv:2204.06745."""

    base = "GPTNeoX"
    prefix = "gpt_neox."
    keys = DecoderOnly.keys | {
        "parallel": "use_parallel_residual",
        "activation": "hidden_act",
        "norm_eps": "layer_norm_eps",
        "dropout": "hidden_dropout",
        "attention.dropout": "attention_dropout",
    }
    defaults = {
        "max_position_embeddings": 2048,
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-5,
        "hidden_dropout": 0.0,
        "attention_dropout": 0.0,
        "attention_bias": True,
        "use_parallel_residual": True,
        "rotary_emb_base": 10000,
        "rotary_pct": 0.25,
        "tie_word_embeddings": False,
        "pad_token_id": None,
        "bos_token_id": 0,
        "eos_token_id": 2,
    }
    harmless = {"classifier_dropout"}
    names = {
        "embed_in": "embedding.tokens",
        "final_layer_norm": "layers.norm",
    }
    layers = {
        "input_layernorm": "norm1",
        "attention.dense": "self_attention.out_proj",
        "post_attention_layernorm": "norm2",
        "mlp.dense_h_to_4h": "feed_forward.linear1",
        "mlp.dense_4h_to_h": "feed_forward.linear2",
        "attention.bias": None,
        "attention.masked_bias": None,
        "attention.rotary_emb.inv_freq": None,
    }
    head_names = {"": {"embed_out": "output"}}
    modules = {"embed_out": "lm_head"}

    def config(self, hf: HFConfig) -> dict[str, Any]:
        hf.expect_causal()
        base = hf.number("rotary_emb_base")
        part = hf.number("rotary_pct", low=0, high=1)
        head_dim = hf.integer("hidden_size") // hf.integer("num_attention_heads")
        return {
            **hf.options(self.keys),
            "activation_dropout": 0.0,
            "attention.bias": hf.flag("attention_bias"),
            **rotary_positions(hf, base, part=part, head_dim=head_dim),
        }

    def layers_of(self, config: DecoderOnlyConfig) -> Names:
        """Return `layers`; query, key and value are stored head by head."""
        array = StoredArray(QKV, num_heads=config.num_heads)
        return {**self.layers, "attention.query_key_value": array}


class OPT(DecoderOnly):
    """OPT: Zhang et al. (2022), arXiv:2205.01068."""

    base = "OPT"
    keys = DecoderOnly.keys | {
        "d_ff": "ffn_dim",
        "activation": "activation_function",
        "dropout": "dropout",
        "attention.dropout": "attention_dropout",
    }
    defaults = {
        "activation_function": "relu",
        "dropout": 0.1,
        "attention_dropout": 0.0,
        "do_layer_norm_before": True,
        "enable_bias": True,
        "layer_norm_elementwise_affine": True,
        "_remove_final_layer_norm": False,
        "tie_word_embeddings": True,
        "pad_token_id": 1,
        "bos_token_id": 2,
        "eos_token_id": 2,
    }
    harmless = {"activation_dropout"}
    stack = "decoder.layers"
    names = {
        "decoder.embed_tokens": "embedding.tokens",
        "decoder.embed_positions": "embedding.positions",
        "decoder.final_layer_norm": "layers.norm",
    }
    layers = {
        "self_attn_layer_norm": "norm1",
        **projections("self_attn.", "q_proj", "k_proj", "v_proj", "out_proj"),
        "final_layer_norm": "norm2",
        "fc1": "feed_forward.linear1",
        "fc2": "feed_forward.linear2",
    }

    def config(self, hf: HFConfig) -> dict[str, Any]:
        hf.expect_causal()
        hf.expect_equal("hidden_size", "word_embed_proj_dim")
        options = {"activation_dropout": 0.0, "positions.kind": "learned", "positions.offset": 2}
        return hf.options(self.keys) | options
