"""Text in, text out, with a published model, its tokenizer and its generation settings."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from minigrad.io.json import Settings

from ..config import TransformerConfig
from ..published.generation_config import (
    UNSUPPORTED,
    UNSUPPORTED_IN_BEAM_SEARCH,
    UNSUPPORTED_IN_GREEDY_SEARCH,
    UNSUPPORTED_IN_SAMPLING,
)
from ..text.huggingface import ModelText
from .beam import check_beam
from .rules import OTHER_NAMES
from .search import generate, stream
from .sequences import eos_ids, position_limit

__all__ = ["generate_text", "stream_text"]

_SAME_NAMES = (
    "num_beams",
    "length_penalty",
    "early_stopping",
    "do_sample",
    "temperature",
    "top_p",
    "min_p",
    "repetition_penalty",
    "no_repeat_ngram_size",
)
"""Options of `generate` that have the same names in generation_config.json."""
_OF_SAMPLING = ("temperature", "top_k", "top_p", "min_p")


def generate_text(
    model: Any,
    text: ModelText,
    prompt: Any,
    *,
    language: str | None = None,
    to: str | None = None,
    **options: Any,
) -> Any:
    """Return the text that a model writes after a prompt, or its translation.

    Options that are not given are those of the model's directory, as in transformers'
    `model.generate`: generation_config.json, or config.json if that is missing. Without a length
    there, 20 tokens are generated. One warning names settings that are not supported. Another one
    says that a prompt is longer than the model's context, of which the last tokens are read.

    Parameters
    ----------
    model : LanguageModel or Transformer
        Model that generates the text.
    text : ModelText
        Tokenizer of the model, from `nn.text.load`.
    prompt : str, list of str, or chat
        Text to continue or to translate, several of them, or a list of messages such as
        `{"role": "user", "content": "Hi"}`.
    language : str, optional
        Code of the source's language, such as "eng_Latn", for a model of many languages.
    to : str, optional
        Code of the translation's language.
    **options
        Options of `generate`. `temperature=0` chooses the most probable tokens. Otherwise
        `temperature`, `top_k`, `top_p` and `min_p` draw tokens, unless `do_sample` is False.
    """
    _check(model, text)
    options = _with_search(options)
    if to is not None:
        options = {"first": (_language_token(text, to),), **options}
    single = isinstance(prompt, str) or not isinstance(prompt, Iterable) or _is_chat(prompt)
    prompts = [prompt] if single else list(prompt)
    if not prompts:
        return []
    if isinstance(model.config, TransformerConfig):
        ids, mask, _ = text.batch(prompts, language=language)
        options = options_of_directory(model, options, 1)
        tokens = generate(model, source=ids, padding_mask=mask, **options)
    elif language is not None:
        raise ValueError(f"model must translate if language is given, got {type(model).__name__}")
    else:
        rows = [_ids(text, p) for p in prompts]
        width = max(map(len, rows))
        tokens = generate(model, rows, **options_of_directory(model, options, width))
    texts = [text.decode(row) for row in tokens]
    return texts[0] if single else texts


def stream_text(
    model: Any,
    text: ModelText,
    prompt: Any,
    *,
    stop: Sequence[str] = (),
    tokens: list[int] | None = None,
    **options: Any,
) -> Iterator[str]:
    """Return an iterator over pieces of the text that a language model writes, as soon as complete.

    Other parameters: as `generate_text`.

    Parameters
    ----------
    prompt : str or chat
        Text to continue, or a list of messages.
    stop : list of str
        Strings at which the text ends, without the string.
    tokens : list of int, optional
        The generated tokens are appended to it, with the one that ends the text.
    **options
        Options of `stream`; by default those of the model's directory, as in `generate_text`.
    """
    _check(model, text)
    is_list = isinstance(stop, Iterable) and not isinstance(stop, str)
    if not is_list or not all(isinstance(s, str) for s in stop):
        raise TypeError(f"stop must be a list of strings, got {stop!r:.60}; put a string in a list")
    if "" in stop:
        raise ValueError("stop must hold strings that are not empty, got ''")
    if isinstance(model.config, TransformerConfig):
        raise ValueError("stream_text: model must continue a text, got a model that translates")
    ids = _ids(text, prompt)
    options = options_of_directory(model, _with_search(options), len(ids), streams=True)
    generated = stream(model, ids, **options)
    pieces = text.stream(generated if tokens is None else _recorded(generated, tokens))
    return until_stop(pieces, stop) if stop else pieces


def _recorded(tokens: Iterable[int], record: list[int]) -> Iterator[int]:
    """Yield tokens, and append each to a list."""
    for token in tokens:
        record.append(token)
        yield token


def until_stop(pieces: Iterable[str], stop: Sequence[str]) -> Iterator[str]:
    """Yield pieces of a text up to the string of `stop` that is complete first.

    The end of a piece is kept back while it may be the beginning of such a string.
    """
    pending = ""
    for piece in pieces:
        pending += piece
        if matches := [(pending.index(s) + len(s), pending.index(s)) for s in stop if s in pending]:
            pending = pending[: min(matches)[1]]
            break
        starts = (s[:n] for s in stop for n in range(len(s) - 1, 0, -1))
        prefix = max((len(start) for start in starts if pending.endswith(start)), default=0)
        ready, pending = pending[: len(pending) - prefix], pending[len(pending) - prefix :]
        if ready:
            yield ready
    if pending:
        yield pending


def _with_search(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options with the `do_sample` that `temperature` and others imply."""
    options = dict(options)
    if "do_sample" not in options:
        if options.get("temperature", 1) == 0:
            del options["temperature"]
            options["do_sample"] = False
        elif any(options.get(name) is not None for name in _OF_SAMPLING):
            options["do_sample"] = True
    return options


def _is_chat(prompt: Any) -> bool:
    return isinstance(prompt, Sequence) and len(prompt) > 0 and isinstance(prompt[0], Mapping)


def _ids(text: ModelText, prompt: Any) -> list[int]:
    ids: list[int]
    if _is_chat(prompt):
        ids = text.encode(text.chat(prompt), special=False)
    elif not isinstance(prompt, str):
        raise TypeError(f"prompt must be a string or a list of messages, got {prompt!r:.60}")
    else:
        ids = text.encode(prompt)
        if text.eos_id is not None and ids[-1:] == [text.eos_id]:  # some put EOS behind every text
            ids = ids[:-1]
        if not ids and text.bos_id is not None:
            ids = [text.bos_id]
    if not ids:
        raise ValueError(f"generate_text: prompt must have at least one token, got {prompt!r:.60}")
    return ids


def _check(model: Any, text: Any) -> None:
    """Raise an error for a model that does not generate, or for no tokenizer."""
    if not hasattr(model, "step"):
        raise ValueError(
            f"model must write or translate, got {type(model).__name__}, which does neither"
        )
    if not isinstance(text, ModelText):
        raise TypeError(f"text must be a tokenizer from nn.text.load, got {type(text).__name__}")


def _language_token(text: ModelText, code: str) -> int:
    """Return the token with which a translation into this language begins."""
    token = text.id(code)
    if token is None:
        raise ValueError(f"to must be a token of the vocabulary, got {code!r}")
    if code.startswith(">>"):  # Marian's
        raise ValueError(
            f"to must be a token that begins a translation, got {code!r}; write it before the text"
        )
    return int(token)


def options_of_directory(
    model: Any, arguments: Mapping[str, Any], width: int, streams: bool = False
) -> dict[str, Any]:
    """Return the options of `generate` from a model's directory, overridden by `arguments`.

    They give the tokens of transformers' `model.generate()`. Settings that would change tokens
    and are not supported are named in one warning.
    """
    limit = position_limit(model.config)
    if limit is not None and width > limit:
        warnings.warn(
            f"the prompt should have at most {limit:,} tokens, got {width:,}; the model reads the "
            "last ones only",
            stacklevel=3,
        )
    settings = getattr(getattr(model, "origin", None), "generation", None)
    if settings is None:
        never = {} if model.config.masked_id is None else {"suppress": (model.config.masked_id,)}
        return {**never, **arguments}
    check_beam(arguments.get("num_beams", 1), 1.0)
    defaults = {name: settings[name] for name in _SAME_NAMES if name in settings}
    defaults |= {ours: settings[name] for name, ours in OTHER_NAMES.items() if name in settings}
    defaults["eos"] = settings.get("eos_token_id")
    defaults["top_k"] = settings.get("top_k", 50) or None
    at_least = max(0, settings.get("min_length", 0) - width)
    defaults["min_len"] = settings.get("min_new_tokens", at_least)
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
        limit = position_limit(config)
        room = math.inf if limit is None else limit - width
        return int(min(20, room)) if room > 0 else 20
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
    refused = ""  # no beam search draws tokens or streams
    if beams and (streams or samples):
        refused = "num_beams" if streams or "do_sample" in arguments else "do_sample"
    dropped = ["num_beams" if streams else refused]
    if not samples or refused == "do_sample":
        dropped += _OF_SAMPLING
    if not beams or refused == "num_beams":
        dropped += ["length_penalty", "early_stopping"]
    return [name for name in dropped if defaults.pop(name, None) is not None and name == refused]


def _unsupported(settings: Settings, options: Mapping[str, Any]) -> list[str]:
    """Return the names of unsupported settings that would change tokens of these options."""
    if options.get("num_beams", 1) > 1:
        of_search = UNSUPPORTED_IN_BEAM_SEARCH
    elif options.get("do_sample", False):
        of_search = UNSUPPORTED_IN_SAMPLING
    else:
        of_search = UNSUPPORTED_IN_GREEDY_SEARCH
    return [
        name
        for name, harmless in [*UNSUPPORTED.items(), *of_search.items()]
        if settings.get(name) not in (None, [], {}, harmless)
    ]
