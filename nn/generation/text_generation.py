"""Text in, text out, with a published model and its tokenizer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..models.config import TransformerConfig
from ..text.huggingface import ModelText
from .search import generate, stream
from .settings import options_of_directory

__all__ = ["generate_text", "stream_text"]


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
    there, 20 tokens are generated. One warning names settings that are not supported.

    Parameters
    ----------
    model : LanguageModel or Transformer
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
        Options of `generate`.

    Returns
    -------
    str, or list of str for a list of texts
    """
    _check(model, text)
    if to is not None:
        options = {"first": (_language_token(text, to),), **options}
    single = isinstance(prompt, str) or _is_chat(prompt)
    prompts = [prompt] if single else list(prompt)
    if isinstance(model.config, TransformerConfig):
        ids, *_ = text.batch(prompts, language=language)
        tokens = generate(model, source=ids, **options_of_directory(model, options, 1))
    elif language is not None:
        raise ValueError(f"language: expected a model that translates, got {type(model).__name__}")
    else:
        rows = [_ids(text, p) for p in prompts]
        width = max(map(len, rows), default=1)
        tokens = generate(model, rows, **options_of_directory(model, options, width))
    texts = [text.decode(row) for row in tokens]
    return texts[0] if single else texts


def stream_text(model: Any, text: ModelText, prompt: Any, **options: Any) -> Iterator[str]:
    """Return an iterator over the pieces of text that a language model writes.

    `prompt` is a text or a chat. Options are those of `stream`; by default they are those of the
    model's directory, as in `generate_text`.
    """
    _check(model, text)
    if isinstance(model.config, TransformerConfig):
        raise ValueError(
            "stream_text: expected a model that goes on from a text, got one that translates"
        )
    ids = _ids(text, prompt)
    options = options_of_directory(model, options, len(ids), streams=True)
    return text.stream(stream(model, ids, **options))


def _is_chat(prompt: Any) -> bool:
    return isinstance(prompt, Sequence) and len(prompt) > 0 and isinstance(prompt[0], Mapping)


def _ids(text: ModelText, prompt: Any) -> list[int]:
    ids: list[int]
    if _is_chat(prompt):
        ids = text.encode(text.chat(prompt), special=False)
    else:
        ids = text.encode(prompt)
        if text.eos_id is not None and ids[-1:] == [text.eos_id]:  # some put EOS behind every text
            ids = ids[:-1]
        if not ids and text.bos_id is not None:
            ids = [text.bos_id]
    if not ids:
        raise ValueError(f"generate_text: the prompt {prompt!r:.60} has no tokens")
    return ids


def _check(model: Any, text: Any) -> None:
    """Raise an error for a model that does not generate, or for no tokenizer."""
    if not hasattr(model, "step"):
        raise ValueError(
            f"expected a model that writes or translates, got {type(model).__name__}, which does "
            "neither"
        )
    if not isinstance(text, ModelText):
        raise TypeError(
            f"text: expected a tokenizer as nn.text.load gives it, got {type(text).__name__}"
        )


def _language_token(text: ModelText, code: str) -> int:
    """Return the token with which a translation into this language begins."""
    token = text.id(code)
    if token is None:
        raise ValueError(f"to: no token {code!r} in the vocabulary")
    if code.startswith(">>"):  # Marian's
        raise ValueError(f"to={code!r}: such a token is written before the text")
    return int(token)
