"""Settings of tiny models of every published family and head, without other libraries."""

from __future__ import annotations

from typing import Any

import numpy as np

VOCAB = 50
_ENCODER = {
    "vocab_size": VOCAB, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 24,
    "max_position_embeddings": 40, "num_labels": 3, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
}  # fmt: skip
_DISTILBERT = {
    "vocab_size": VOCAB, "dim": 16, "n_heads": 4, "n_layers": 2, "hidden_dim": 24, "max_position_embeddings": 40,
    "num_labels": 3, "dropout": 0.0, "attention_dropout": 0.0, "seq_classif_dropout": 0.0,
}  # fmt: skip
_LM = {
    "vocab_size": VOCAB, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 24, "max_position_embeddings": 64, "pad_token_id": None, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
_GEMMA = {
    **_LM, "head_dim": 6, "num_hidden_layers": 3, "sliding_window": 4, "query_pre_attn_scalar": 10,
    "final_logit_softcapping": 3.0,
}  # fmt: skip
_GPT2 = {
    "vocab_size": VOCAB, "n_embd": 16, "n_head": 4, "n_layer": 2, "n_positions": 40, "bos_token_id": 1,
    "eos_token_id": 2, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0,
}  # fmt: skip
_NEOX = {
    "vocab_size": VOCAB, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 24,
    "max_position_embeddings": 40, "bos_token_id": 1,
}  # fmt: skip
_OPT = {
    "vocab_size": VOCAB, "hidden_size": 16, "ffn_dim": 24, "word_embed_proj_dim": 16, "num_attention_heads": 4,
    "num_hidden_layers": 2, "max_position_embeddings": 40, "dropout": 0.0,
}  # fmt: skip
_SEQ2SEQ = {
    "vocab_size": VOCAB, "d_model": 16, "encoder_layers": 2, "decoder_layers": 3, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24, "max_position_embeddings": 40,
    "dropout": 0.0, "forced_eos_token_id": None,
}  # fmt: skip
_MARIAN = {
    **_SEQ2SEQ, "pad_token_id": 49, "decoder_start_token_id": 49, "eos_token_id": 0, "scale_embedding": True,
    "activation_function": "swish",
}  # fmt: skip
_T5 = {
    "vocab_size": VOCAB, "d_model": 16, "d_kv": 6, "d_ff": 24, "num_layers": 2, "num_heads": 4,
    "dropout_rate": 0.0, "decoder_start_token_id": 0,
}  # fmt: skip
_VIT = {
    "image_size": 8, "patch_size": 4, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 24, "num_labels": 3,
}  # fmt: skip
_LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 5e5, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}  # fmt: skip
_YARN = {
    "rope_type": "yarn",
    "rope_theta": 1e4,
    "factor": 4.0,
    "original_max_position_embeddings": 16,
}

_MODERN = {
    "vocab_size": VOCAB, "hidden_size": 16, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 24,
    "max_position_embeddings": 40, "local_attention": 4, "num_labels": 3, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2,
}  # fmt: skip
_TWO_BASES = {
    "full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 1e5},
    "sliding_attention": {"rope_type": "default", "rope_theta": 50.0},
}

MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("BertModel", _ENCODER),
    "bert, masked": ("BertForMaskedLM", _ENCODER),
    "bert, pretraining": ("BertForPreTraining", _ENCODER),
    "bert, classes": ("BertForSequenceClassification", _ENCODER),
    "bert, tokens": ("BertForTokenClassification", _ENCODER),
    "roberta": ("RobertaModel", _ENCODER),
    "roberta, masked": ("RobertaForMaskedLM", _ENCODER),
    "roberta, classes": ("RobertaForSequenceClassification", _ENCODER),
    "xlm-roberta, masked": ("XLMRobertaForMaskedLM", _ENCODER),
    "xlm-roberta, classes": ("XLMRobertaForSequenceClassification", _ENCODER),
    "xlm-roberta, tokens": ("XLMRobertaForTokenClassification", _ENCODER),
    "distilbert": ("DistilBertModel", _DISTILBERT),
    "distilbert, masked": ("DistilBertForMaskedLM", _DISTILBERT),
    "distilbert, classes": ("DistilBertForSequenceClassification", _DISTILBERT),
    "mpnet": ("MPNetModel", _ENCODER),
    "mpnet, masked": ("MPNetForMaskedLM", _ENCODER),
    "mpnet, classes": ("MPNetForSequenceClassification", _ENCODER),
    "mpnet, tokens": ("MPNetForTokenClassification", _ENCODER),
    "electra, masked": ("ElectraForMaskedLM", {**_ENCODER, "embedding_size": 8}),
    "electra, classes": ("ElectraForSequenceClassification", {**_ENCODER, "embedding_size": 8}),
    "albert, masked": ("AlbertForMaskedLM", {**_ENCODER, "embedding_size": 8}),
    "albert, classes": (
        "AlbertForSequenceClassification",
        {**_ENCODER, "embedding_size": 8, "classifier_dropout_prob": 0.0},
    ),
    "modernbert": ("ModernBertModel", _MODERN),
    "modernbert, masked": ("ModernBertForMaskedLM", _MODERN),
    "modernbert, classes": ("ModernBertForSequenceClassification", {**_MODERN, "classifier_pooling": "mean"}),
    "modernbert, tokens": ("ModernBertForTokenClassification", {**_MODERN, "norm_bias": True}),
    "vit": ("ViTModel", _VIT),
    "vit, classes": ("ViTForImageClassification", _VIT),
    "gpt2": ("GPT2LMHeadModel", _GPT2),
    "gpt2, bare": ("GPT2Model", _GPT2),
    "gpt_neox": ("GPTNeoXForCausalLM", _NEOX),
    "gpt_neox, in turn": (
        "GPTNeoXForCausalLM",
        {**_NEOX, "use_parallel_residual": False, "attention_bias": False, "rotary_pct": 1.0},
    ),
    "opt": ("OPTForCausalLM", _OPT),
    "llama": ("LlamaForCausalLM", {**_LM, "tie_word_embeddings": False}),
    "llama, scaled": ("LlamaForCausalLM", {**_LM, "tie_word_embeddings": True, "rope_parameters": _LLAMA3}),
    "llama, yarn": ("LlamaForCausalLM", {**_LM, "rope_parameters": _YARN}),
    "llama, biases": ("LlamaForCausalLM", {**_LM, "attention_bias": True, "mlp_bias": True}),
    "mistral": ("MistralForCausalLM", {**_LM, "sliding_window": 4}),
    "qwen2": ("Qwen2ForCausalLM", _LM),
    "qwen2, window": (
        "Qwen2ForCausalLM",
        {**_LM, "use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1},
    ),
    "qwen3": ("Qwen3ForCausalLM", {**_LM, "head_dim": 6}),
    "smollm3": ("SmolLM3ForCausalLM", {**_LM, "num_hidden_layers": 5}),
    "gemma": ("GemmaForCausalLM", {**_LM, "head_dim": 6}),
    "gemma2": ("Gemma2ForCausalLM", {**_GEMMA, "attn_logit_softcapping": 2.0}),
    "gemma3_text": ("Gemma3ForCausalLM", _GEMMA),
    "gemma3_text, scaled": (
        "Gemma3ForCausalLM",
        {**_GEMMA, "rope_parameters": _TWO_BASES, "layer_types": ["full_attention", "sliding_attention", "full_attention"]},
    ),
    "gemma3_text, encoder": (
        "Gemma3TextModel",
        {**_GEMMA, "use_bidirectional_attention": True, "rope_parameters": _TWO_BASES},
    ),
    "phi3": ("Phi3ForCausalLM", {**_LM, "sliding_window": 5}),
    "marian": ("MarianMTModel", _MARIAN),
    "marian, two vocabularies": (
        "MarianMTModel",
        {**_MARIAN, "share_encoder_decoder_embeddings": False, "decoder_vocab_size": 50, "tie_word_embeddings": False},
    ),
    "bart": ("BartForConditionalGeneration", _SEQ2SEQ),
    "mbart": ("MBartForConditionalGeneration", {**_SEQ2SEQ, "decoder_start_token_id": 2}),
    "m2m_100": ("M2M100ForConditionalGeneration", {**_SEQ2SEQ, "encoder_layerdrop": 0.0, "decoder_layerdrop": 0.0, "attention_dropout": 0.0}),
    "t5": ("T5ForConditionalGeneration", _T5),
    "t5, gated": ("T5ForConditionalGeneration", {**_T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}),
}  # fmt: skip
"""Class and settings of each model; the part of a name before a comma is its `model_type`."""


def inputs_of(model_type: str, pad_id: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return inputs (3, 9) and their padding mask; the last three of the second row are padding.

    Inputs of image models are images (3, 3, 8, 8), without padding.
    """
    rng = np.random.default_rng(0)
    if model_type == "vit":
        return rng.standard_normal((3, 3, 8, 8)).astype(np.float32), np.ones((3, 5), bool)
    ids, mask = rng.integers(3, VOCAB - 2, (3, 9)), np.ones((3, 9), bool)
    mask[1, 6:] = False
    ids[~mask] = pad_id
    return ids, mask


def draw_target() -> np.ndarray:
    """Return target tokens (3, 5) of translations."""
    return np.random.default_rng(1).integers(3, VOCAB - 2, (3, 5))
