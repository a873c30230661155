"""Tokenizers of published models. Needs the `tokenizers` package, and `jinja2` for chats."""

from __future__ import annotations

import pickle
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from minigrad.fast.runtime import hold_during_fork
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

_encoding = threading.RLock()
hold_during_fork(lambda: _encoding)


class ModelText:
    """Tokenizer of a published model, which `nn.text.load` creates.

    Truncation and padding depend on the arguments of each call only, not on settings in the file.

    Parameters
    ----------
    tokenizer : tokenizers.Tokenizer
        Splits text into tokens. Its own padding is disabled.
    settings : Settings
        Contents of tokenizer_config.json.
    files : FileCopies
        Files that `save` writes.
    target : tokenizers.Tokenizer, optional
        Decodes ids of translations, if they have a vocabulary of their own.

    Attributes
    ----------
    bos_id, eos_id, pad_id : int or None
        Ids of special tokens. Without a padding token in the files of the tokenizer, `pad_id` is
        `pad_token_id` of config.json.
    vocab_size : int or None
        Number of tokens of the model, by config.json. It can be larger than `len(self)`.
    max_len : int or None
        Number of tokens of the longest input of the model, by tokenizer_config.json.
    """

    def __init__(
        self, tokenizer: Any, settings: Settings, files: FileCopies, target: Any = None
    ) -> None:
        self.tokenizer, self.settings, self.files = tokenizer, settings, files
        self.target = tokenizer if target is None else target
        tokenizer.no_padding()
        self.bos_id = self._special_id("bos_token")
        self.eos_id = self._special_id("eos_token")
        self.pad_id = self._special_id("pad_token")
        if self.pad_id is None:
            pad_id = settings.take("pad_token_id", int, None)
            self.pad_id = pad_id if pad_id in range(len(self)) else None
        self.vocab_size = settings.integer("vocab_size", None)
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
        return vars(self)

    def __len__(self) -> int:
        return self.tokenizer.get_vocab_size()

    def _special_id(self, name: str) -> Any:
        token = self.settings.text(name, None)
        if token is not None and self.id(token) is None:
            self.settings.fail(name, "a token of the vocabulary")
        return self.id(token)

    def id(self, token: str | None) -> Any:
        """Return the id of a token, or None if the vocabulary does not have it.

        Parameters
        ----------
        token : str or None
            A token, or None, which has no id.
        """
        return None if token is None else self.tokenizer.token_to_id(token)

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """Return the tokens of ids. An id that is not in the vocabulary becomes "".

        Parameters: as `ModelText.stream`.
        """
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
        """Return the ids of a string, or lists of them for a list.

        Parameters
        ----------
        text : str or list of str
            One string or several.
        pair : str or list of str, optional
            A second string for each string, in the same sequence.
        special : bool, default True
            Add the special tokens that the model expects around a text.
        max_len : int, optional
            Truncate to this many ids, including special tokens.
        language : str, optional
            Code of the source language, for models with a special token for it.
        """
        rows, _ = self._encode(text, pair, special, max_len, language)
        return rows[0] if isinstance(text, str) else rows

    def _encode(
        self, texts: Any, pairs: Any, special: bool, max_len: int | None, language: str | None
    ) -> tuple[list[list[int]], list[list[int]]]:
        """Return the ids and the token types of each text."""
        if isinstance(texts, str):
            texts = [texts]
            pairs = None if pairs is None else [pairs]
        if isinstance(pairs, str):
            raise TypeError(f"encode: pair must be a list, as text, got {pairs!r:.60}")
        texts = check_texts(texts)
        check_texts(pairs or ())
        if pairs is not None and len(texts) != len(pairs):
            raise ValueError(
                f"encode: pair must have as many texts as text ({len(texts)}), got {len(pairs)}"
            )
        has_pairs = pairs is not None
        inputs = list(zip(texts, pairs)) if has_pairs else texts
        around = self.tokenizer.num_special_tokens_to_add(has_pairs) if special else 0
        if max_len is not None and max_len <= around:
            raise ValueError(
                f"encode: max_len must be greater than the number of special tokens ({around}), "
                f"got {max_len}"
            )
        with _encoding:  # truncation is a setting of the tokenizer
            if max_len is None:
                self.tokenizer.no_truncation()
            else:
                self.tokenizer.enable_truncation(max_len)
            with library_errors(f"{self.settings.where}: the tokenizer cannot encode this text"):
                encodings = self.tokenizer.encode_batch(inputs, add_special_tokens=special)
        rows = [e.ids if language is None else self._from(language, e) for e in encodings]
        types = [e.type_ids for e in encodings]
        largest, highest = (max(map(max, filter(None, ids)), default=0) for ids in (rows, types))
        if self.vocab_size is not None and largest >= self.vocab_size:
            token = self.tokens([largest])[0]
            raise ValueError(
                f"{self.settings.where}: ids must be less than {self.vocab_size}, the vocab_size "
                f"of config.json, got {largest} for {token!r:.60}"
            )
        if highest > 1:
            raise ValueError(
                f"{self.settings.where}: post_processor: type_id must be 0 or 1, got {highest}"
            )
        return rows, types

    def _from(self, language: str, encoding: Any) -> list[int]:
        """Return the ids of an encoding with the token of this language instead of another one."""
        if (language_id := self.id(language)) is None:
            raise ValueError(f"language must be a token of the vocabulary, got {language!r}")
        shape = lambda code: re.sub("[a-z]+", "a", re.sub("[A-Z]+", "A", code))  # of eng_Latn: a_Aa
        tokens = zip(encoding.ids, encoding.tokens, encoding.special_tokens_mask)
        ids = [
            language_id if special and shape(token) == shape(language) else i
            for i, token, special in tokens
        ]
        if language_id not in ids:
            raise ValueError(
                f"language must be a token that the model puts around a text, got {language!r}; "
                "write one such as '>>fra<<' before the text"
            )
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
        """Return padded ids (N, L), a mask (True = a token), and types: 1 in second texts, else 0.

        Other parameters: as `encode`.

        Parameters
        ----------
        texts : list of str
            One string for each row of the batch.
        pairs : list of str, optional
            A second string for each string, in the same sequence.
        pad_left : bool, default False
            Put the padding before the texts.
        """
        rows, types = self._encode(texts, pairs, True, max_len, language)
        texts = [texts] if isinstance(texts, str) else texts
        if empty := [text for text, row in zip(texts, rows) if text.strip() and not row]:
            raise ValueError(
                f"{self.settings.where}: texts must have at least one token each, got "
                f"{empty[0]!r:.60}"
            )
        mask = padded([[1] * len(row) for row in rows], 0, left=pad_left) > 0
        largest = len(self) if self.vocab_size is None else self.vocab_size
        pad_id = self.pad_id if self.pad_id in range(largest) else 0  # hidden by the mask
        return padded(rows, pad_id, left=pad_left), mask, padded(types, 0, left=pad_left)

    def decode(self, ids: Any, special: bool = False) -> Any:
        """Return the string of ids.

        Parameters
        ----------
        ids : sequence of int, or of sequences of int
            Ids of one text, or of several.
        special : bool, default False
            Include special tokens.
        """
        if len(ids) and np.ndim(ids[0]):
            return [self.decode(row, special) for row in ids]
        with library_errors(f"{self.settings.where}: the tokenizer cannot decode these ids"):
            return self.target.decode([int(i) for i in ids], skip_special_tokens=not special)

    def stream(self, ids: Iterable[int]) -> Iterator[str]:
        """Yield the string of ids in pieces, each as soon as its characters are complete.

        Parameters
        ----------
        ids : iterable of int
            Ids of one text, which may arrive one by one.
        """
        recent: list[int] = []
        sent = ""
        for i in ids:
            recent.append(int(i))
            text = self.decode(recent)
            if text.startswith(sent) and len(text) > len(sent) and not text.endswith("\ufffd"):
                yield text[len(sent) :]
                sent = text
                tail = self.decode(recent[-8:])
                if text.endswith(tail):
                    recent = recent[-8:]
                    sent = tail
        yield from filter(None, [self.decode(recent)[len(sent) :]])

    def chat(
        self, messages: Sequence[Mapping[str, Any]], *, reply: bool = True, **variables: Any
    ) -> str:
        """Return the text that a chat model expects, to be encoded with `special=False`.

        Needs `jinja2`. The template runs in its sandbox, which keeps it from files and Python's
        internals but limits neither time nor memory, as in transformers.

        Parameters
        ----------
        messages : list of dict
            Such as `{"role": "user", "content": "Hello"}`.
        reply : bool, default True
            End the text where the model is to answer.
        **variables
            Variables of the template, such as `tools=` (JSON schemas). With tools, the template
            "tool_use" is used if there is one.
        """
        if not all(isinstance(message, Mapping) for message in messages):
            raise ValueError(
                f'chat: messages must be dicts such as {{"role": "user", "content": ...}}, got '
                f"{messages!r:.60}"
            )
        if others := [name for name in _NO_VARIABLES if variables.get(name)]:
            raise TypeError(
                f"chat: {others[0]} must not be given, since chat returns a text, for encode(text, "
                "special=False)"
            )
        templates = self.settings.get("chat_templates", {})
        has_tools = variables.get("tools") is not None and "tool_use" in templates
        name = "tool_use" if has_tools else "default"
        if name not in templates:
            why = "not a model for chats; use one, such as an instruct model"
            if templates:
                why = f"no default among {listed(templates)}"
            raise ValueError(f"{self.settings.where}: no chat_template: {why}")
        where, source = templates[name]
        defaults = {
            "messages": [*messages],
            "tools": None,
            "documents": None,
            "add_generation_prompt": reply,
        }
        special = {name: token for name in SPECIAL if (token := self.settings.text(name, None))}
        return render(source, where, defaults | special | variables)

    def save(self, directory: str | Path) -> None:
        """Write copies of the files that the tokenizer was loaded from.

        Parameters
        ----------
        directory : str or Path
            Directory in which the files are written.
        """
        self.files.write(directory)
