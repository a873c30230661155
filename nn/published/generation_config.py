"""Settings of generation_config.json, and of the older copies of them in config.json."""

from __future__ import annotations

from typing import Any

COUNTS = (
    "max_length",
    "max_new_tokens",
    "min_length",
    "min_new_tokens",
    "no_repeat_ngram_size",
    "top_k",
)
LIMITS: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(COUNTS, (int, 0)),
    "num_beams": (int, 1, 1000),
    "top_p": (float, 0, 1),
    "min_p": (float, 0, 1),
    "temperature": (float, 0),
    "repetition_penalty": (float, 0),
    "length_penalty": (float, -20, 20),
    "do_sample": (bool,),
    "early_stopping": (bool | str, None, None, (False, True, "never")),
}
"""Type, least and largest value, and choices of the settings that generation uses."""
TOKEN_IDS = (
    "eos_token_id",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "suppress_tokens",
    "begin_suppress_tokens",
)

# Settings that change tokens and are not supported, each with a value that changes nothing.
UNSUPPORTED: dict[str, Any] = {
    "constraints": None,
    "dola_layers": None,
    "encoder_no_repeat_ngram_size": 0,
    "encoder_repetition_penalty": 1,
    "exponential_decay_length_penalty": None,
    "force_words_ids": None,
    "guidance_scale": 1,
    "max_time": None,
    "num_return_sequences": 1,
    "sequence_bias": None,
    "stop_strings": None,
    "token_healing": False,
    "watermarking_config": None,
}
UNSUPPORTED_IN_GREEDY_SEARCH: dict[str, Any] = {"penalty_alpha": 0}
UNSUPPORTED_IN_SAMPLING: dict[str, Any] = {
    "epsilon_cutoff": 0,
    "eta_cutoff": 0,
    "top_h": None,
    "typical_p": 1,
}
UNSUPPORTED_IN_BEAM_SEARCH: dict[str, Any] = {
    "diversity_penalty": 0,
    "num_beam_groups": 1,
    "renormalize_logits": False,
}
WITHOUT_EFFECT = {
    "assistant_confidence_threshold", "assistant_early_exit", "assistant_ensemble_weight",
    "assistant_lookbehind", "cache_config", "cache_implementation", "compile_config",
    "continuous_batching_config", "disable_compile", "is_assistant", "low_memory",
    "max_cache_len", "max_matching_ngram_size", "num_assistant_tokens",
    "num_assistant_tokens_schedule", "output_attentions", "output_hidden_states", "output_logits",
    "output_scores", "prefill_chunk_size", "prompt_lookup_num_tokens", "remove_invalid_values",
    "return_dict_in_generate", "speculation_type", "target_lookbehind", "use_cache", "use_mtp",
}  # fmt: skip
"""Settings of caches, outputs and speculative decoding, which do not change tokens."""
GENERATION_KEYS = {
    *LIMITS, *TOKEN_IDS, "bad_words_ids", "force_bos_token_to_be_generated", *UNSUPPORTED,
    *UNSUPPORTED_IN_GREEDY_SEARCH, *UNSUPPORTED_IN_SAMPLING, *UNSUPPORTED_IN_BEAM_SEARCH,
    *WITHOUT_EFFECT,
}  # fmt: skip
"""Settings of generation, of which older config.json contain copies."""
