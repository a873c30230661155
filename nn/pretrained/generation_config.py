"""Settings of text generation in the files of Hugging Face's transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from minigrad.io.json import Settings

__all__ = ["GENERATION_KEYS", "read_generation_config"]

GENERATION_KEYS = {
    "assistant_confidence_threshold", "assistant_early_exit", "assistant_ensemble_weight",
    "assistant_lookbehind", "bad_words_ids", "begin_suppress_tokens", "cache_config",
    "cache_implementation", "compile_config", "constraints", "continuous_batching_config",
    "disable_compile", "diversity_penalty", "do_sample", "dola_layers", "early_stopping",
    "encoder_no_repeat_ngram_size", "encoder_repetition_penalty", "epsilon_cutoff",
    "eta_cutoff", "exponential_decay_length_penalty", "force_bos_token_to_be_generated",
    "force_words_ids", "forced_bos_token_id", "forced_eos_token_id", "guidance_scale",
    "is_assistant", "length_penalty", "low_memory", "max_cache_len", "max_length",
    "max_matching_ngram_size", "max_new_tokens", "max_time", "min_length", "min_new_tokens",
    "min_p", "no_repeat_ngram_size", "num_assistant_tokens", "num_assistant_tokens_schedule",
    "num_beam_groups", "num_beams", "num_return_sequences", "output_attentions",
    "output_hidden_states", "output_logits", "output_scores", "penalty_alpha",
    "prefill_chunk_size", "prompt_lookup_num_tokens", "remove_invalid_values",
    "renormalize_logits", "repetition_penalty", "return_dict_in_generate", "sequence_bias",
    "speculation_type", "stop_strings", "suppress_tokens", "target_lookbehind", "temperature",
    "token_healing", "top_h", "top_k", "top_p", "typical_p", "use_cache", "use_mtp",
    "watermarking_config",
}  # fmt: skip
"""Settings of generation, of which older config.json contain copies."""

_COUNTS = (
    "max_length",
    "max_new_tokens",
    "min_length",
    "min_new_tokens",
    "no_repeat_ngram_size",
    "top_k",
)
_TOKEN_IDS = (
    "eos_token_id",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "suppress_tokens",
    "begin_suppress_tokens",
)


def read_generation_config(
    generation_config: Settings, config: Settings, vocab_size: int
) -> Settings:
    """Read the settings that `generate` of transformers uses when it gets no arguments.

    `config.json` holds older copies of them, which are used only if `generation_config.json` is
    missing.

    Parameters
    ----------
    generation_config, config : Settings
        Contents of `generation_config.json` and `config.json`.
    vocab_size : int
        Number of tokens; all token ids must be less.

    Returns
    -------
    Settings
        The entries that are not null, by their names in transformers. Token ids are tuples.
    """
    exists = Path(generation_config.where).is_file()
    source = generation_config if exists else config
    settings = Settings({k: v for k, v in source.items() if v is not None}, source.where)
    if not exists and settings.flag("force_bos_token_to_be_generated", False):
        settings["forced_bos_token_id"] = settings.get("bos_token_id")
    for name in _COUNTS:
        settings.integer(name, None, low=0)
    settings.integer("num_beams", None, high=1000)
    settings.number("top_p", None, low=0, high=1)
    settings.number("temperature", None, low=0)
    settings.number("repetition_penalty", None, low=0)
    settings.number("length_penalty", None, low=-20, high=20)
    settings.flag("do_sample", None)
    settings.take("early_stopping", bool | str, None, choices=(False, True, "never"))
    for name in _TOKEN_IDS:
        if (ids := settings.take(name, int | list, None)) is not None:
            ids = [ids] if isinstance(ids, int) else ids
            settings[name] = _checked_ids(settings, name, ids, vocab_size)
    if (words := settings.list("bad_words_ids", list, None)) is not None:
        name = "bad_words_ids"
        if [] in words:
            settings.fail(name, "lists of at least one token id")
        settings[name] = tuple(_checked_ids(settings, name, ids, vocab_size) for ids in words)
    return settings


def _checked_ids(settings: Settings, name: str, ids: list[Any], vocab_size: int) -> tuple[int, ...]:
    """Return token ids as a tuple, or raise an error that names the file and the entry."""
    for i in ids:
        if isinstance(i, bool) or not isinstance(i, int) or not 0 <= i < vocab_size:
            raise ValueError(
                f"{settings.where}: {name} must hold token ids from 0 to {vocab_size - 1}, got "
                f"{i!r:.30}"
            )
    return tuple(ids)
