"""A batch of sequences that grow by one token at a time, for every way of choosing the token."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from minigrad.fast import row_blocks

from ..config import TransformerConfig
from ..generation import Decoding
from ..models import (
    checked_ids,
    checked_padding_mask,
    has_rows_of_different_lengths,
)
from ..module import evaluating
from ..options.padding import warn_of_padding
from .rules import Rules, token_ids

__all__ = ["Hypothesis"]

OWN = -1
"""As `eos`: the EOS tokens of the model's configuration."""
NOTHING_LEFT = (
    "generate: the rules (suppress, bad_words, no_repeat_ngram_size, min_len) leave no "
    "token that may come next"
)


@dataclass
class Hypothesis:
    """A generated sequence and its score.

    Parameters
    ----------
    tokens : list of int
        Generated tokens, without BOS, with EOS if it was reached.
    log_prob : float
        Sum of the tokens' log-probabilities.
    score : float
        Value by which the search ranks hypotheses.
    """

    tokens: list[int] = field(default_factory=list)
    log_prob: float = 0.0
    score: float = 0.0


class RuledDecoding(Decoding):
    """Sequences of a batch, by prompts of any length, with rules for their tokens.

    The arguments are those of `greedy_search`; the `eos` OWN stands for that of the configuration.
    """

    def __init__(
        self,
        model: Any,
        source: Any,
        prompt: Any,
        padding_mask: Any,
        max_len: int,
        eos: int | Iterable[int] | None,
        rules: Rules,
    ) -> None:
        no_tokens = np.empty((0, 0), int)  # the state and the tokens are set below
        super().__init__(model, None, no_tokens, max_len, eos_ids(model, eos))
        self.rules = rules
        self._limit: int | None = None  # on what the model can look back at
        if isinstance(model.config, TransformerConfig):
            self._start_translation(source, prompt, padding_mask)
        else:
            self._start_text(source, prompt, padding_mask)

    def _start_translation(self, source: Any, prompt: Any, padding_mask: Any) -> None:
        if source is None:
            raise ValueError(
                f"source must hold token ids for a {type(self.model).__name__}, got None"
            )
        source, padding_mask = source_rows(source, padding_mask, self.model.config.masked_id)
        bos = self.model.config.bos_id
        self.history = np.full((len(source), 1), bos)
        if prompt is not None:
            rows = prompt_rows(prompt)
            if len(rows) != len(source) or rows.min() < 0:
                lengths = (rows >= 0).sum(1).tolist()
                raise ValueError(
                    f"prompt must hold tokens of one length for each of the {len(source)} sources,"
                    f" got lengths {lengths!s:.60}"
                )
            has_bos = (rows[:, 0] == bos).any()
            self.history = rows if has_bos else np.concatenate([self.history, rows], 1)
        with evaluating():
            self.state = self.model.start(source, padding_mask)
        self._next = self.history

    def _start_text(self, source: Any, prompt: Any, padding_mask: Any) -> None:
        config, name = self.model.config, type(self.model).__name__
        if source is not None:
            raise ValueError(
                f"source must be None for a {name}, which continues a prompt, got {source!r:.60}"
            )
        if prompt is None:
            raise ValueError(f"prompt must hold token ids for a {name}, got None")
        if padding_mask is None:
            self.history = prompt_rows(prompt, config.masked_id)
            warn_of_padding("prompt", self.history, config)
        else:
            prompt = checked_ids("prompt", prompt)
            mask = checked_padding_mask(padding_mask, prompt.shape)
            self.history = prompt_rows([ids[real] for ids, real in zip(prompt, mask)])
        self._limit = position_limit(config)
        self._visible_from = (self.history < 0).sum(1)  # first column that each row sees
        if self._limit is not None:
            self._visible_from = np.maximum(self._visible_from, self.history.shape[1] - self._limit)
        self._restart()

    def _restart(self) -> None:
        """Begin anew with the tokens that each row sees."""
        first = self._visible_from.min()
        visible = np.arange(first, self.history.shape[1]) >= self._visible_from[:, None]
        self.state = self.model.start(visible)
        self._next = np.where(visible, self.history[:, first:], 0)

    def logits(self) -> np.ndarray:
        """Return the model's logits (rows, vocab) of the next tokens."""
        self._make_room()
        return super().logits()

    def _make_room(self) -> None:
        """Begin anew with a part of each text if the next tokens exceed the table of positions."""
        if self._limit is not None and self.state.length + self._next.shape[1] > self._limit:
            length = self.history.shape[1]
            full = length - self._visible_from > self._limit
            # Half is dropped, so that the next token does not need another restart.
            self._visible_from[full] = length - (self._limit - self._limit // 2)
            self._restart()

    def ruled(self, logits: np.ndarray) -> np.ndarray:
        """Return logits (rows, vocab) that follow the rules; the same array if there are none."""
        is_last = self.new == self.max_len - 1
        return self.rules.apply(logits, self.history, self.new, is_last, self.ends)

    def advance(self, tokens: Sequence[int] | np.ndarray, rows: np.ndarray | None = None) -> None:
        """Append a token to each row; `rows` are those to keep, in this order (None: all)."""
        if rows is not None and self._limit is not None:
            self._visible_from = self._visible_from[rows]
        super().advance(tokens, rows)


def position_limit(config: Any) -> int | None:
    """Return the largest number of positions of a model, or None without a limit."""
    return getattr(config, "position_limit", config.max_len)


def eos_ids(model: Any, eos: int | Iterable[int] | None) -> tuple[int, ...]:
    """Return the tokens that end a sequence."""
    if isinstance(eos, int) and eos == OWN:
        eos = model.config.eos_id
    if eos is None:
        return ()
    return token_ids("eos", [eos] if isinstance(eos, (int, np.integer)) else eos)


def source_rows(
    source: Any, padding_mask: Any, masked_id: int | None
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return source ids (N, L), and their padding mask if they are lists of different lengths."""
    if isinstance(source, np.ndarray) or not has_rows_of_different_lengths(source):
        return checked_ids("source", source), padding_mask
    if padding_mask is not None:
        raise ValueError(
            "padding_mask must be None for sources of different lengths, which are padded here; "
            "pad them with nn.text.padded to give a mask"
        )
    lengths = np.array([len(row) for row in source])
    if not lengths.all():
        raise ValueError("source must have at least one token in each sequence, got an empty one")
    mask = np.arange(lengths.max()) < lengths[:, None]
    values = checked_ids("source", np.concatenate([*source])[None])[0]
    ids = np.zeros(mask.shape, values.dtype)
    ids[mask] = values
    return ids, mask if masked_id is None else mask & (ids != masked_id)


def prompt_rows(prompt: Any, masked_id: int | None = None) -> np.ndarray:
    """Return prompts as an array (N, L) without `masked_id`, padded at the left with -1."""
    try:
        prompts = [prompt] if not len(prompt) or np.ndim(prompt[0]) == 0 else list(prompt)
    except TypeError:
        raise TypeError(
            f"prompt must be a sequence of token ids, or several of them, got {prompt!r:.60}"
        ) from None
    rows = []
    for ids in map(np.asarray, prompts):
        if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu") or (ids < 0).any():
            raise ValueError(f"prompt must hold token ids in each row, got {ids.dtype} {ids.shape}")
        rows.append(ids if masked_id is None else ids[ids != masked_id])
        if not len(rows[-1]):
            raise ValueError(f"prompt must hold at least one token in each row, got {ids!s:.60}")
    width = max(map(len, rows))
    history = np.full((len(rows), width), -1)
    for row, ids in zip(history, rows):
        row[width - len(ids) :] = ids
    return history


def log_sum_exp(logits: np.ndarray) -> np.ndarray:
    """Return log Σ exp of each row of logits, (rows, 1), a few rows at a time."""
    result = np.empty((len(logits), 1), logits.dtype)
    for rows in row_blocks(*logits.shape):
        top = logits[rows].max(-1, keepdims=True)
        e = np.subtract(logits[rows], top)
        np.exp(e, out=e)
        result[rows] = np.log(e.sum(-1, keepdims=True)) + top
    return result
