"""Several tokens in one pass over the weights, each of them the one that greedy search takes.

A pass over a few tokens reads the weights once, as a pass over one token does. Where the last
tokens of a text occurred before, those that followed them are a draft of what comes next (prompt
lookup: Saxena 2023, github.com/apoorvumang/prompt-lookup-decoding). The pass returns the logits
after each token of the draft. Tokens of it that are not chosen are taken back from the cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from minigrad.arguments import checked_count

from ..config import TransformerConfig
from ..module import evaluating
from .sequences import RuledDecoding

MAX_MATCH = 2  # as max_matching_ngram_size in transformers


class DraftedDecoding(RuledDecoding):
    """One growing text whose next `draft_len` tokens at most are looked up in itself.

    `name` is the function that was called. `passes` counts passes over the weights.
    """

    def __init__(self, model: Any, *args: Any, draft_len: int, name: str) -> None:
        self.draft_len = checked_count(name, "prompt_lookup_num_tokens", draft_len)
        if isinstance(model.config, TransformerConfig):
            raise ValueError(
                f"{name}: model must be a language model with prompt_lookup_num_tokens, got "
                f"{type(model).__name__}"
            )
        super().__init__(model, *args)
        if len(self.history) != 1:
            raise ValueError(
                f"{name}: prompt must be one sequence with prompt_lookup_num_tokens, got "
                f"{len(self.history)}"
            )
        self.passes = 0
        self._draft: list[int] = []  # tokens that are in the cache, but not yet chosen
        self._ahead: list[np.ndarray] = []  # logits (vocab,) of the next token, and after each

    def logits(self) -> np.ndarray:
        """Return the logits (1, vocab) of the next token, by a pass if none has computed them."""
        if not self._ahead:
            self._read_with_draft()
        return self._ahead[0][None]

    def _read_with_draft(self) -> None:
        self._make_room()
        room = self.max_len - self.new - 1
        if self._limit is not None:
            room = min(room, self._limit - self.state.length - self._next.shape[1])
        self._draft = continuation(self.history[0], min(self.draft_len, room))
        tokens = np.r_[self._next[0], np.asarray(self._draft, self._next.dtype)]
        with evaluating():
            logits = np.asarray(self.model.step(tokens[None], self.state, every=True))[0]
        self._ahead = list(logits[-1 - len(self._draft) :])
        self.passes += 1

    def advance(self, tokens: Sequence[int] | np.ndarray, rows: np.ndarray | None = None) -> None:
        """Append a token; `rows` is empty after the last."""
        super().advance(tokens, rows)
        del self._ahead[0]
        if len(tokens) and self._draft and tokens[0] == self._draft[0]:
            del self._draft[0]
            return
        self.state.length -= len(self._draft)
        for cache in self.state.caches:
            cache.length -= len(self._draft)
        self._draft, self._ahead = [], []


def continuation(history: np.ndarray, length: int) -> list[int]:
    """Return the tokens that followed the last tokens of history (L,) when they occurred before.

    The last `MAX_MATCH` tokens count, or fewer if they did not occur. At most `length` tokens are
    returned, from the latest occurrence.
    """
    for n in range(min(MAX_MATCH, len(history) - 1), 0, -1):
        earlier = np.lib.stride_tricks.sliding_window_view(history[:-1], n)
        places = np.flatnonzero((earlier == history[-n:]).all(1))
        if len(places):
            start = places[-1] + n
            return history[start : start + length].tolist()
    return []
