"""Text in, text out, with a published model and its tokenizer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..models.config import TransformerConfig
from ..text.huggingface import ModelText
from .search import generate, stream

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
    """What a model writes after a prompt, or the translation of a text: a text, or a list for a
    list of texts.

    `prompt` is a text, a list of texts, or a chat (a list of messages such as `{"role": "user",
    "content": "Hi"}`). For a model of many languages, `language` is the code of the source and `to`
    that of the translation, such as "eng_Latn". Options are those of `generate`; what the folder's
    generation_config.json forces or forbids holds unless they say otherwise.
    """
    options = {**_customs(model, text, to), **options}
    single = isinstance(prompt, str) or _is_chat(prompt)
    prompts = [prompt] if single else list(prompt)
    if isinstance(model.config, TransformerConfig):
        ids, *_ = text.batch(prompts, language=language)
        found = generate(model, source=ids, **options)
    elif language is not None:
        raise ValueError(f"language: expected a model that translates, got {type(model).__name__}")
    else:
        found = generate(model, [_ids(text, p) for p in prompts], **options)
    texts = [text.decode(tokens) for tokens in found]
    return texts[0] if single else texts


def stream_text(model: Any, text: ModelText, prompt: Any, **options: Any) -> Iterator[str]:
    """What a language model writes after a prompt or a chat, in pieces as they come; options as in
    `stream`.
    """
    if isinstance(model.config, TransformerConfig):
        raise ValueError(
            "stream_text: expected a model that goes on from a text, got one that translates"
        )
    return text.stream(
        stream(model, _ids(text, prompt), **{**_customs(model, text, None), **options})
    )


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


def _customs(model: Any, text: ModelText, to: str | None) -> dict[str, Any]:
    """Tokens that come first, and tokens that never come."""
    if not hasattr(model, "step"):
        raise ValueError(
            f"expected a model that writes or translates, got {type(model).__name__}, which does "
            "neither"
        )
    if not isinstance(text, ModelText):
        raise TypeError(
            f"text: expected a tokenizer as nn.text.load gives it, got {type(text).__name__}"
        )
    options = dict(getattr(model.origin, "generation", {}))
    if to is not None:
        token = text.id(to)
        if token is None:
            raise ValueError(f"to: no token {to!r} in the vocabulary")
        if to.startswith(">>"):  # Marian's
            raise ValueError(f"to={to!r}: such a token is written before the text")
        options["first"] = (token,)
    pad = model.config.hidden_id
    if isinstance(model.config, TransformerConfig) and pad is not None:
        options["suppress"] = (*options.get("suppress", ()), pad)
    return options
