"""The tokenizer of a published model. Needs the `tokenizers` package, and `jinja2` for chats."""

from __future__ import annotations

import pickle
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from minigrad.io.json import Settings
from minigrad.io.reading import FileCopies, listed

from .batches import padded
from .templates import render
from .tokenize import check_texts, library_errors

__all__ = ["ModelText"]

SPECIAL = (
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
)

_NO_VARIABLES = (
    "chat_template",
    "continue_final_message",
    "max_length",
    "padding",
    "return_assistant_tokens_mask",
    "return_dict",
    "return_tensors",
    "sanitize_control_tokens",
    "tokenize",
    "truncation",
)
"""Arguments of transformers' apply_chat_template that are not variables of the template."""


class ModelText:
    """The tokenizer of a published model: converts text to token ids, and back.

    Truncation and padding depend on the calls alone, not on the settings in the file.

    Attributes
    ----------
    bos_id, eos_id, pad_id : int or None
        The ids of special tokens.
    max_len : int or None
        The tokens of the longest text that the model takes, if the directory contains it.
    """

    def __init__(self, tokenizer: Any, settings: Settings, files: FileCopies) -> None:
        self.tokenizer, self.settings, self.files = tokenizer, settings, files
        self._lock = threading.Lock()
        tokenizer.no_padding()
        self.bos_id, self.eos_id, self.pad_id = map(
            self._special, ("bos_token", "eos_token", "pad_token")
        )
        self.vocab_size = settings.integer("vocab_size", None)  # of the model: may be rounded up
        if self.vocab_size is not None and len(self) < 0.9 * self.vocab_size:
            raise ValueError(
                f"{settings.where}: the tokenizer knows {len(self):,} tokens, but the model, by "
                f"config.json, {self.vocab_size:,}; is its vocabulary whole?"
            )
        longest = settings.number("model_max_length", None)
        self.max_len = int(longest) if longest and longest < 1 << 30 else None  # 1e30: no limit

    def __getstate__(self) -> dict[str, Any]:
        try:
            pickle.dumps(self.tokenizer)
        except Exception as error:  # of the library, for a step that is written in Python
            raise TypeError(
                f"ModelText: this tokenizer cannot be pickled ({error}); call nn.text.load in each "
                "process"
            ) from None
        return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=threading.Lock())

    def __len__(self) -> int:
        return int(self.tokenizer.get_vocab_size())

    def _special(self, name: str) -> Any:
        """Return the id of a special token, or None without one."""
        found = self.id(token := self.settings.text(name, None))
        if token is not None and found is None:
            self.settings.fail(name, "a token of the vocabulary")
        return found

    def id(self, token: str | None) -> Any:
        """Return the id of a token, or None for a token that the vocabulary does not have."""
        return None if token is None else self.tokenizer.token_to_id(token)

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """Return the tokens of ids."""
        return [self.tokenizer.id_to_token(int(i)) or "" for i in ids]

    def encode(
        self,
        text: Any,
        pair: Any = None,
        *,
        special: bool = True,
        max_len: int | None = None,
        language: str | None = None,
    ) -> Any:
        """Return the ids of a text.

        Parameters
        ----------
        text : str or list of str
        pair : str or list of str, optional
            A second text for each text, in the same sequence.
        special : bool
            Add the special tokens that the model expects around a text.
        max_len : int, optional
            Cut off the text after this many ids, including special tokens.
        language : str, optional
            The code of the source language, for models with a special token for it.

        Returns
        -------
        list of int, or list of lists of int if `text` is a list
        """
        rows, _ = self._encoded(text, pair, special, max_len, language)
        return rows[0] if isinstance(text, str) else rows

    def _encoded(
        self, texts: Any, pairs: Any, special: bool, max_len: int | None, language: str | None
    ) -> tuple[list[list[int]], list[list[int]]]:
        """Return the ids and the token types of each text."""
        texts, pairs = ([texts], [pairs]) if isinstance(texts, str) else (texts, pairs)
        if isinstance(pairs, str):
            raise TypeError(
                f"encode: expected a list of second texts, one for each, got {pairs!r:.60}"
            )
        check_texts([*texts, *(b for b in pairs or () if b is not None)])
        if pairs is not None and len(texts) != len(pairs):
            raise ValueError(
                f"encode: expected a second text for each of {len(texts)}, got {len(pairs)}"
            )
        inputs = [a if b is None else (a, b) for a, b in zip(texts, pairs or [None] * len(texts))]
        is_pair = any(isinstance(text, tuple) for text in inputs)
        around = self.tokenizer.num_special_tokens_to_add(is_pair) if special else 0
        if max_len is not None and max_len <= around:
            raise ValueError(
                f"encode: expected max_len above {around}, the special tokens of a text, got "
                f"{max_len}"
            )
        with self._lock:  # truncation is a setting of the tokenizer
            if max_len is None:
                self.tokenizer.no_truncation()
            else:
                self.tokenizer.enable_truncation(max_len)
            with library_errors(f"{self.settings.where}: the tokenizer cannot encode this text"):
                encodings = self.tokenizer.encode_batch(inputs, add_special_tokens=special)
        rows = [e.ids if language is None else self._from(language, e) for e in encodings]
        largest = max((max(ids) for ids in rows if ids), default=0)
        if self.vocab_size is not None and largest >= self.vocab_size:
            told = f"{self.tokens([largest])[0]!r:.60} has the id {largest}, but the model, by config.json,"
            raise ValueError(f"{self.settings.where}: {told} {self.vocab_size:,} tokens")
        types = [e.type_ids for e in encodings]
        if (highest := max(map(max, filter(None, types)), default=0)) > 1:
            raise ValueError(
                f"{self.settings.where}: post_processor: expected type_id 0 or 1, got {highest}"
            )
        return rows, types

    def _from(self, language: str, encoding: Any) -> list[int]:
        """Return the ids of an encoding, with the token of this language for that of another."""
        if (wanted := self.id(language)) is None:
            raise ValueError(f"language: no token {language!r} in the vocabulary")
        shape = lambda code: re.sub("[a-z]+", "a", re.sub("[A-Z]+", "A", code))  # of eng_Latn: a_Aa
        tokens = zip(encoding.ids, encoding.tokens, encoding.special_tokens_mask)
        ids = [
            wanted if special and shape(token) == shape(language) else i
            for i, token, special in tokens
        ]
        if wanted not in ids:
            told = "the model puts no such token around a text; one such as '>>fra<<' is written before it"
            raise ValueError(f"language={language!r}: {told}")
        return ids

    def batch(
        self,
        texts: Sequence[str],
        pairs: Sequence[str] | None = None,
        *,
        max_len: int | None = None,
        language: str | None = None,
        pad_left: bool = False,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the ids, the padding mask (True = a token) and the types of texts, each (N, L).

        See `encode` for the parameters; `pad_left` puts the padding before the texts.
        """
        rows, types = self._encoded(texts, pairs, True, max_len, language)
        texts = [texts] if isinstance(texts, str) else texts
        if empty := [text for text, row in zip(texts, rows) if text.strip() and not row]:
            raise ValueError(
                f"{self.settings.where}: the tokenizer makes no tokens of {empty[0]!r:.60}"
            )
        real = padded([[1] * len(row) for row in rows], 0, left=pad_left) > 0
        return padded(rows, self.pad_id or 0, left=pad_left), real, padded(types, 0, left=pad_left)

    def decode(self, ids: Any, special: bool = False) -> Any:
        """Return the text of ids, or a list of texts for several lists of ids.

        Special tokens are left out unless `special`.
        """
        if len(ids) and np.ndim(ids[0]):
            return [self.decode(row, special) for row in ids]
        with library_errors(f"{self.settings.where}: the tokenizer cannot decode these ids"):
            text = self.tokenizer.decode([int(i) for i in ids], skip_special_tokens=not special)
        return str(text)

    def stream(self, ids: Iterable[int]) -> Iterator[str]:
        """Yield the text of ids in pieces, each as soon as its characters are complete."""
        seen, said = list[int](), ""
        for i in ids:
            seen.append(int(i))
            text = self.decode(seen)
            if text.startswith(said) and len(text) > len(said) and not text.endswith("\ufffd"):
                yield text[len(said) :]
                before = self.decode(seen[-8:])
                seen, said = (seen[-8:], before) if text.endswith(before) else (seen, text)
        text = self.decode(seen)
        if len(text) > len(said):
            yield text[len(said) :]

    def chat(
        self, messages: Sequence[Mapping[str, Any]], *, reply: bool = True, **variables: Any
    ) -> str:
        """Return the text that a chat model expects, to be encoded with `special=False`.

        Needs `jinja2`; the template runs in its sandbox, with bounds of work and size.

        Parameters
        ----------
        messages : list of dict
            Such as `{"role": "user", "content": "Hello"}`.
        reply : bool
            End the text where the model is to answer.
        **variables
            Variables of the template, such as `tools=` (JSON schemas). With tools, the template
            "tool_use" is used if there is one.
        """
        if not all(isinstance(message, Mapping) for message in messages):
            expected = 'messages such as {"role": "user", "content": ...}'
            raise ValueError(f"chat: expected {expected}, got {messages!r:.60}")
        if others := [name for name in _NO_VARIABLES if variables.get(name)]:
            raise TypeError(
                f"chat: {others[0]} is not supported: it returns a text, for encode(text, "
                "special=False)"
            )
        templates = self.settings.get("chat_templates", {})
        has_tools = variables.get("tools") is not None and "tool_use" in templates
        if (name := "tool_use" if has_tools else "default") not in templates:
            why = f"no default among {listed(templates)}" if templates else "not a model for chats"
            raise ValueError(f"{self.settings.where}: no chat_template: {why}")
        where, source = templates[name]
        special = {
            name: self.settings[name]
            for name in SPECIAL
            if isinstance(self.settings.get(name), str)
        }
        defaults = {"tools": None, "documents": None, "add_generation_prompt": reply}
        return render(source, where, {"messages": [*messages], **defaults, **special, **variables})

    def save(self, directory: str | Path) -> None:
        """Write copies of the files that it was loaded from."""
        self.files.write(directory)
