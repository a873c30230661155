"""Settings of generation_config.json, and of the older copies of them in config.json."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from minigrad.io.json import Settings

__all__ = ["GENERATION_KEYS", "read_generation_config"]

_COUNTS = (
    "max_length",
    "max_new_tokens",
    "min_length",
    "min_new_tokens",
    "no_repeat_ngram_size",
    "top_k",
)
_LIMITS: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(_COUNTS, (int, 0)),
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
_TOKEN_IDS = (
    "eos_token_id",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "suppress_tokens",
    "begin_suppress_tokens",
)

# Settings that change tokens and are not supported, with the values that change nothing.
UNSUPPORTED: dict[str, tuple[Any, ...]] = {
    "constraints": (),
    "dola_layers": (),
    "encoder_no_repeat_ngram_size": (0,),
    "encoder_repetition_penalty": (1,),
    "exponential_decay_length_penalty": (),
    "force_words_ids": (),
    "guidance_scale": (1,),
    "max_time": (),
    "num_return_sequences": (1,),
    "sequence_bias": (),
    "stop_strings": (),
    "token_healing": (False,),
    "watermarking_config": (),
}
UNSUPPORTED_IN_GREEDY_SEARCH: dict[str, tuple[Any, ...]] = {"penalty_alpha": (0,)}
UNSUPPORTED_IN_SAMPLING: dict[str, tuple[Any, ...]] = {
    "epsilon_cutoff": (0,),
    "eta_cutoff": (0,),
    "top_h": (),
    "typical_p": (1,),
}
UNSUPPORTED_IN_BEAM_SEARCH: dict[str, tuple[Any, ...]] = {
    "diversity_penalty": (0,),
    "num_beam_groups": (1,),
    "renormalize_logits": (False,),
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
    *_LIMITS, *_TOKEN_IDS, "bad_words_ids", "force_bos_token_to_be_generated", *UNSUPPORTED,
    *UNSUPPORTED_IN_GREEDY_SEARCH, *UNSUPPORTED_IN_SAMPLING, *UNSUPPORTED_IN_BEAM_SEARCH,
    *WITHOUT_EFFECT,
}  # fmt: skip
"""Settings of generation, of which older config.json contain copies."""


def read_generation_config(
    generation_config: Settings, config: Settings, vocab_size: int
) -> Settings:
    """Read the settings that `generate` of transformers uses when it gets no arguments.

    `config.json` contains older copies of them, which are used only if `generation_config.json` is
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
    for name, (hint, *limits) in _LIMITS.items():
        settings.take(name, hint, None, *limits)
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
