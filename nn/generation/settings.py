"""Defaults of `generate_text`: the generation settings of a loaded directory."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Any

from minigrad.io.json import Settings

from .beam import check_beam
from .decoding import UNLIMITED, eos_ids

__all__ = ["options_of_directory"]

_SAME_NAMES = (
    "num_beams",
    "length_penalty",
    "early_stopping",
    "do_sample",
    "temperature",
    "top_p",
    "repetition_penalty",
    "no_repeat_ngram_size",
)
_OTHER_NAMES = {
    "suppress_tokens": "suppress",
    "begin_suppress_tokens": "begin_suppress",
    "bad_words_ids": "bad_words",
    "forced_eos_token_id": "last",
}
READ = {
    *_SAME_NAMES,
    *_OTHER_NAMES,
    "eos_token_id",
    "forced_bos_token_id",
    "max_length",
    "max_new_tokens",
    "min_length",
    "min_new_tokens",
    "top_k",
}

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
    "min_p": (0,),
    "top_h": (),
    "typical_p": (1,),
}
UNSUPPORTED_IN_BEAM_SEARCH: dict[str, tuple[Any, ...]] = {
    "diversity_penalty": (0,),
    "num_beam_groups": (1,),
    "renormalize_logits": (False,),
}


def options_of_directory(
    model: Any, arguments: Mapping[str, Any], width: int, streams: bool = False
) -> dict[str, Any]:
    """Return the options of `generate` from a model's directory, overridden by `arguments`.

    They give the tokens of transformers' `model.generate()`. Settings that would change tokens
    and are not supported are named in one warning.

    Parameters
    ----------
    model : LanguageModel or Transformer
        Model whose `origin.generation` holds the settings of its directory, if it has one.
    arguments : mapping
        Options of `generate` that were given.
    width : int
        Number of tokens of the longest prompt, or 1 for a `Transformer`.
    streams : bool
        Whether the options are for `stream`, which has no beam search.
    """
    settings = getattr(model.origin, "generation", None)
    if settings is None:
        never = {} if model.config.hidden_id is None else {"suppress": (model.config.hidden_id,)}
        return {**never, **arguments}
    check_beam(arguments.get("num_beams", 1), 1.0)
    defaults = {name: settings[name] for name in _SAME_NAMES if name in settings}
    defaults |= {ours: settings[name] for name, ours in _OTHER_NAMES.items() if name in settings}
    defaults["eos"] = settings.get("eos_token_id")
    defaults["top_k"] = settings.get("top_k", 50) or None
    defaults["min_len"] = max(0, settings.get("min_length", 0) - width)
    if "min_new_tokens" in settings:
        defaults["min_len"] = settings["min_new_tokens"]
    if "max_len" not in arguments:
        defaults["max_len"] = _max_len(model.config, settings, width)
    if width == 1:
        defaults["first"] = settings.get("forced_bos_token_id", ())
    unsupported = _drop_other_searches(defaults, arguments, streams)
    options = {**defaults, **arguments}
    ends = eos_ids(model, options["eos"])
    options["bad_words"] = [
        ids for ids in options.get("bad_words", ()) if len(ids) != 1 or ids[0] not in ends
    ]
    unsupported += _unsupported(settings, options)
    if unsupported:
        warnings.warn(
            f"{settings.where}: {', '.join(unsupported)} not supported by generate_text; the "
            "tokens can differ from those of transformers",
            stacklevel=3,
        )
    return options


def _max_len(config: Any, settings: Settings, width: int) -> int:
    """Return the number of new tokens that `max_new_tokens` or `max_length` allows, or 20."""
    if "max_new_tokens" in settings:
        return int(settings["max_new_tokens"])
    if "max_length" not in settings:
        left = math.inf if config.positions.kind in UNLIMITED else config.max_len - width
        return int(min(20, left)) if left > 0 else 20
    if (length := int(settings["max_length"])) <= width:
        raise ValueError(
            f"{settings.where}: max_length must be above the {width} tokens of the prompt, got "
            f"{length}. Give max_len."
        )
    return length - width


def _drop_other_searches(
    defaults: dict[str, Any], arguments: Mapping[str, Any], streams: bool
) -> list[str]:
    """Remove the defaults that do not fit the chosen search, and return those that matter."""
    options = {**defaults, **arguments}
    beams, samples = options.get("num_beams", 1) > 1, options.get("do_sample", False)
    lost = ""  # of a beam search that draws tokens, or that streams
    if beams and (streams or samples):
        lost = "num_beams" if streams or "do_sample" in arguments else "do_sample"
    dropped = ["num_beams"] if streams else [lost]
    dropped += [] if samples and lost != "do_sample" else ["temperature", "top_k", "top_p"]
    dropped += [] if beams and lost != "num_beams" else ["length_penalty", "early_stopping"]
    return [name for name in dropped if defaults.pop(name, None) is not None and name == lost]


def _unsupported(settings: Settings, options: Mapping[str, Any]) -> list[str]:
    """Return the names of unsupported settings that would change tokens of these options."""
    tables = [UNSUPPORTED]
    if options.get("num_beams", 1) > 1:
        tables.append(UNSUPPORTED_IN_BEAM_SEARCH)
    else:
        samples = options.get("do_sample", False)
        tables.append(UNSUPPORTED_IN_SAMPLING if samples else UNSUPPORTED_IN_GREEDY_SEARCH)
    return [
        name
        for table in tables
        for name, harmless in table.items()
        if settings.get(name) not in (None, [], {}, *harmless)
    ]
