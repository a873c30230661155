"""Searches over a tiny vocabulary by definition: all sequences, their rules and their scores."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import strategies as st

import minigrad as mg
import nn

Tokens = tuple[int, ...]
BOS = 1


@dataclass
class TextState:
    """All tokens that a `TableModel` can see, for each row."""

    rows: list[Tokens]
    visible: np.ndarray | None = None
    length: int = 0

    def select(self, rows: np.ndarray) -> None:
        self.rows = [self.rows[row] for row in rows.tolist()]


class TableModel:
    """Model whose logits are any function of the tokens before: normal numbers from a seed.

    `fed` are the numbers of rows of each step. A translation sees the source before its tokens.
    """

    def __init__(
        self, vocab: int, seed: int, translates: bool = False, limit: int | None = None, **ids: Any
    ) -> None:
        sizes: dict[str, Any] = {"d_model": 2, "num_heads": 1, "d_ff": 2}
        if translates:
            counts = {"num_encoder_layers": 1, "num_decoder_layers": 1}
            self.config: Any = nn.EncoderDecoderConfig(vocab, vocab, **sizes, **counts, **ids)
        else:
            positions = {"positions": "alibi"} if limit is None else {"max_len": limit}
            self.config = nn.DecoderOnlyConfig(vocab, num_layers=1, **sizes, **positions, **ids)
        self.vocab, self.seed, self.translates = vocab, seed, translates
        self.limit, self.ids = limit, ids
        self.tables: dict[Tokens, np.ndarray] = {}
        self.fed: list[int] = []

    def __repr__(self) -> str:
        ids = "".join(f", {name}={value}" for name, value in self.ids.items())
        return f"TableModel({self.vocab}, {self.seed}, {self.translates}, {self.limit}{ids})"

    def logits(self, tokens: Tokens) -> np.ndarray:
        if tokens not in self.tables:
            rng = np.random.default_rng([self.seed, len(tokens), *tokens])
            self.tables[tokens] = 2 * rng.standard_normal(self.vocab)
        return self.tables[tokens]

    def start(self, first: np.ndarray | None = None, padding_mask: Any = None) -> TextState:
        """Take the source of a translation, or a mask of the visible tokens of prompts."""
        if first is None:
            return TextState([])
        if not self.translates:
            return TextState([()] * len(first), first)
        mask = first != self.config.masked_id if padding_mask is None else padding_mask
        return TextState([tuple(row[real].tolist()) for row, real in zip(first, mask)])

    def step(self, tokens: np.ndarray, state: TextState) -> np.ndarray:
        visible = np.ones(tokens.shape, bool) if state.visible is None else state.visible
        before = state.rows or [()] * len(tokens)
        state.rows = [
            (*row, *new[mask].tolist()) for row, new, mask in zip(before, tokens, visible)
        ]
        state.visible = None
        state.length += tokens.shape[1]
        self.fed.append(len(tokens))
        return np.array([self.logits(row) for row in state.rows])


class ForwardPasses(TableModel):
    """Logits of another model, by a forward pass of one row, without a cache."""

    def __init__(self, model: Any, source_length: int = 0) -> None:
        self.model, self.source_length = model.eval(), source_length
        self.translates = source_length > 0
        self.vocab = model.output.weight.shape[0]
        self.tables = {}
        self.fed = []

    def logits(self, tokens: Tokens) -> np.ndarray:
        if tokens not in self.tables:
            parts = tokens[: self.source_length], tokens[self.source_length :]
            ids = [np.array([part]) for part in parts if part]
            with mg.no_grad():
                self.tables[tokens] = self.model(*ids).data[0, -1]
        return self.tables[tokens]


@dataclass
class Task:
    """A prompt of one row, and what may follow it."""

    model: TableModel
    prompt: Tokens
    max_len: int
    ends: Tokens
    source: Tokens = ()
    limit: int | None = None
    rules: dict[str, Any] = field(default_factory=dict)

    def seen(self, tokens: Tokens) -> Tokens:
        """Return what the model sees: a full context forgets its older half."""
        text = (*self.prompt, *tokens)
        if self.limit is None:
            return (*self.source, *text)
        start = max(0, len(self.prompt) - self.limit)
        for length in range(len(self.prompt), len(text) + 1):
            if length - start > self.limit:
                start = length - (self.limit - self.limit // 2)
        return text[start:]

    def forced(self, length: int) -> Sequence[int]:
        """Return the tokens of which one must be number `length` of a sequence."""
        last, first = self.rules.get("last", ()), self.rules.get("first", ())
        return last if last and length == self.max_len else first[length - 1 : length]

    def is_allowed(self, tokens: Tokens) -> bool:
        """Return whether the rules allow the last of these tokens."""
        if forced := self.forced(len(tokens)):
            return tokens[-1] in forced
        text, n = (*self.prompt, *tokens), self.rules.get("no_repeat_ngram_size", 0)
        ngrams = [text[i : i + n] for i in range(len(text) - n + 1)]
        return not (
            (n and ngrams and ngrams[-1] in ngrams[:-1])
            or any(text[-len(w) :] == tuple(w) for w in self.rules.get("bad_words", ()))
            or tokens[-1] in self.rules.get("suppress", ())
            or (len(tokens) <= self.rules.get("min_len", 0) and tokens[-1] in self.ends)
            or (
                len(tokens) == len(self.rules.get("first", ())) + 1
                and tokens[-1] in self.rules.get("begin_suppress", ())
            )
        )

    def ruled(self, values: np.ndarray, tokens: Tokens) -> np.ndarray:
        """Return logits or log-probabilities of the tokens that may follow, -inf for others."""
        forced = self.forced(len(tokens) + 1)
        penalty = self.rules.get("repetition_penalty", 1.0)
        result = []
        for token, value in enumerate(values.tolist()):
            if token in (*self.prompt, *tokens):
                value = value * penalty if value < 0 else value / penalty
            value = 0.0 if forced else value
            result.append(value if self.is_allowed((*tokens, token)) else -math.inf)
        return np.array(result)

    def log_probs(self, tokens: Tokens) -> np.ndarray:
        """Return log-probabilities of the next token, before rules."""
        return log_softmax(self.model.logits(self.seen(tokens)))

    def is_whole(self, tokens: Tokens) -> bool:
        return tokens[-1] in self.ends or len(tokens) == self.max_len

    def all_sequences(self) -> list[tuple[Tokens, float]]:
        """Return all sequences that the rules allow, and their log-probabilities by the rules."""
        found = []
        for n in range(1, self.max_len + 1):
            for tokens in itertools.product(range(self.model.vocab), repeat=n):
                prefixes = [tokens[:i] for i in range(1, n + 1)]
                ends_once = [self.is_whole(p) for p in prefixes] == [False] * (n - 1) + [True]
                if ends_once and all(map(self.is_allowed, prefixes)):
                    steps = (self.ruled(self.log_probs(p[:-1]), p[:-1])[p[-1]] for p in prefixes)
                    found.append((tokens, float(sum(steps))))
        return found


def log_softmax(x: np.ndarray) -> np.ndarray:
    return x - (np.log(np.exp(x - x.max()).sum()) + x.max())


def choices(task: Task, choose: Any) -> Iterator[int]:
    """Yield tokens that `choose` takes of the ruled logits, one after another."""
    tokens: Tokens = ()
    while not tokens or not task.is_whole(tokens):
        ruled = task.ruled(task.model.logits(task.seen(tokens)), tokens)
        if ruled.max() == -math.inf:
            raise ValueError("no token may follow")
        tokens = (*tokens, choose(ruled))
        yield tokens[-1]


@dataclass
class Beam:
    """Result of a beam search: sequences with scores, best first, and the rows of each step.

    `is_tied` is True if rounding chooses which of two equal sequences is extended.
    """

    finished: list[tuple[Tokens, float, float]]
    rows: list[int]
    is_tied: bool = field(default=False, compare=False)


def beam_by_definition(task: Task, size: int, penalty: float, stop: Any) -> Beam:
    """Search one row with a beam; `stop` is as `early_stopping`, or None: when nothing runs."""
    score = lambda log_prob, length: log_prob / length**penalty
    alive: list[tuple[Tokens, float]] = [((), 0.0)]
    beam = Beam([], [])
    while alive:
        beam.rows.append(len(alive))
        length = len(beam.rows)
        extended = [
            ((*tokens, token), total + value)
            for tokens, total in alive
            for token, value in enumerate(task.ruled(task.log_probs(tokens), tokens).tolist())
            if value > -math.inf
        ]
        extended.sort(key=lambda h: -h[1])
        whole = [h for h in extended[:size] if task.is_whole(h[0])]
        beam.finished += [(tokens, total, score(total, length)) for tokens, total in whole]
        beam.finished = sorted(beam.finished, key=lambda h: -h[2])[:size]
        alive = [h for h in extended if not task.is_whole(h[0])]
        for ordered in (extended, alive):
            edge = [total for _, total in ordered[size - 1 : size + 1]]
            beam.is_tied |= len(edge) == 2 and math.isclose(*edge)
        alive = alive[:size]
        if alive and len(beam.finished) == size and stop is not None:
            reach = range(length, task.max_len + 1) if stop == "never" else [length]
            attainable = max(score(alive[0][1], n) for n in reach)
            if stop is True or attainable <= beam.finished[-1][2]:
                break
    return beam


def each_rule(vocab: int) -> dict[str, st.SearchStrategy[Any]]:
    """Return values of each rule."""
    token = st.integers(0, vocab - 1)
    few = st.lists(token, max_size=2)
    return {
        "min_len": st.integers(0, 4),
        "repetition_penalty": st.sampled_from([2.0, 0.6]),
        "no_repeat_ngram_size": st.sampled_from([2, 1, 3, 0]),
        "suppress": few,
        "begin_suppress": few,
        "bad_words": st.lists(st.lists(token, min_size=1, max_size=3), max_size=3),
        "first": few,
        "last": few,
    }


def rules_of(vocab: int) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=each_rule(vocab))


@st.composite
def models(draw: Any, vocab: int = 5) -> Any:
    """Draw a tiny model, whose tokens are clearly ranked."""
    sizes: dict[str, Any] = {"d_model": 8, "num_heads": 2, "d_ff": 8, "dtype": "float64"}
    seed = draw(st.integers(0, 2**32 - 1))
    attention = nn.AttentionConfig(
        num_kv_heads=draw(st.sampled_from([1, 2])), window=draw(st.sampled_from([None, 2, 3]))
    )
    sizes |= {"attention": attention, "norm_first": draw(st.booleans())}
    if draw(st.booleans()):
        sizes |= {"max_len": 16, "num_encoder_layers": 1, "num_decoder_layers": 1}
        positions = draw(st.sampled_from(["sinusoidal", "learned", "rotary"]))
        config: Any = nn.EncoderDecoderConfig(vocab, vocab, positions=positions, **sizes)
        model: Any = nn.Transformer(config, np.random.default_rng(seed))
    else:
        positions = draw(st.sampled_from(["sinusoidal", "learned", "rotary", "alibi", "none"]))
        sizes |= {"num_layers": 2, "max_len": draw(st.integers(2, 9)), "eos_id": vocab - 1}
        config = nn.DecoderOnlyConfig(vocab, positions=positions, **sizes)
        model = nn.LanguageModel(config, np.random.default_rng(seed))
    for p in model.parameters():
        p.data *= 3
    return model
