"""Turning scores into sequences: greedy, beam search, sampling. All use the key/value cache.

They work on any model with `step(tokens, state)`: pass the state that `model.start(...)` returns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from minigrad.core.modes import no_grad
from minigrad.core.random import default_generator
from minigrad.kernels.blocks import row_blocks
from minigrad.runtime import keep_freed_memory

from ..layers.attention import record_attention
from ..layers.module import Module

__all__ = ["Hypothesis", "attention_maps", "beam_search", "greedy_search", "sample"]


@dataclass
class Hypothesis:
    """A decoded sequence: its tokens (without start mark, with the end mark if it was reached) and its score.

    `log_prob` is the sum of the logarithms of the tokens' probabilities; `score` is what the search ranked by.
    """

    tokens: list[int] = field(default_factory=list)
    log_prob: float = 0.0
    score: float = 0.0


def _log_softmax(scores: np.ndarray) -> np.ndarray:
    return scores - _log_sum_exp(scores)


def _log_sum_exp(scores: np.ndarray) -> np.ndarray:
    """log Σ exp of each row, (rows, 1)."""
    result = np.empty((len(scores), 1), scores.dtype)
    for block in row_blocks(*scores.shape):
        top = scores[block].max(-1, keepdims=True)
        e = np.subtract(scores[block], top)
        np.exp(e, out=e)
        np.log(e.sum(-1, keepdims=True), out=result[block])
        result[block] += top
    return result


OWN = -1
"""As an end mark: the one in the model's configuration."""


def _end(model: Any, eos: int | None) -> int | None:
    return model.config.eos_id if eos == OWN else eos


class _Evaluation:
    """The model in evaluation mode, with nothing recorded; its own mode comes back at the end."""

    def __init__(self, model: Module) -> None:
        self.model = model

    def __enter__(self) -> None:
        keep_freed_memory()
        self.modes = [(m, m.training) for m in self.model.modules()]
        self.model.eval()
        self.no_grad = no_grad()
        self.no_grad.__enter__()

    def __exit__(self, *exc: object) -> None:
        self.no_grad.__exit__(*exc)
        for module, training in self.modes:
            module.training = training


def _begin(model: Any, source: Any, prompt: Any, max_len: int) -> tuple[Any, np.ndarray]:
    """The state, and the first tokens (N, L): a start mark for each source, or the prompt."""
    if max_len < 1:
        raise ValueError(f"expected max_len of at least 1, got {max_len}")
    if source is not None:
        source = np.asarray(source)
        return model.start(source), np.full((len(source), 1), model.config.sos_id)
    if prompt is None:
        raise ValueError("expected source ids (for an encoder-decoder model) or a prompt (for a language model)")
    return model.start(), np.asarray(prompt)


def greedy_search(
    model: Any, source: Any = None, *, prompt: Any = None, max_len: int = 128, eos: int | None = OWN,
    scores: bool = True,
) -> list[Hypothesis]:  # fmt: skip
    """The likeliest next token, again and again, until the end mark or `max_len` tokens.

    `source` (N, L) are the source ids of an encoder-decoder model, `prompt` (N, L) the first tokens
    for a language model. `eos=None` always decodes `max_len` tokens. Without `scores`, which cost a
    softmax over the vocabulary at each step, those of the hypotheses are NaN.
    """
    eos = _end(model, eos)
    with _Evaluation(model):
        state, tokens = _begin(model, source, prompt, max_len)
        n = len(tokens)
        hypotheses = [Hypothesis() for _ in range(n)]
        rows = np.arange(n)  # which sentence each row of the batch decodes; finished ones are dropped
        for _ in range(max_len):
            logits = model.step(tokens, state)  # (rows, vocab)
            best = logits.argmax(-1)
            log_probs = np.full(len(best), np.nan)
            if scores:
                log_probs = logits[np.arange(len(best)), best] - _log_sum_exp(logits)[:, 0]
            for row, token, log_prob in zip(rows, best.tolist(), log_probs.tolist()):
                hypotheses[row].tokens.append(token)
                hypotheses[row].log_prob += log_prob
            going = best != eos if eos is not None else np.ones(len(best), bool)
            if not going.any():
                break
            if not going.all():
                kept = np.flatnonzero(going)
                rows, best = rows[kept], best[kept]
                state.select(kept)
            tokens = best[:, None]
        for h in hypotheses:
            h.score = h.log_prob
        return hypotheses


def beam_search(
    model: Any, source: Any = None, *, prompt: Any = None, beam_size: int = 4, max_len: int = 128,
    length_penalty: float = 1.0, n_best: int = 1, eos: int | None = OWN,
) -> list[list[Hypothesis]]:  # fmt: skip
    """The `n_best` best-scoring sequences of each sentence that a beam of `beam_size` finds, best first.

    The score is log_prob / length^length_penalty (end mark included): 0 favours short sequences, 1
    compares means. Sequences that do not end within `max_len` tokens compete as they are. A sentence
    is done when nothing in its beam can still get among its `n_best`.
    """
    if not 1 <= n_best <= beam_size:
        raise ValueError(f"beam_search: expected 1 <= n_best <= beam_size, got {n_best} and {beam_size}")
    eos = _end(model, eos)
    with _Evaluation(model):
        state, tokens = _begin(model, source, prompt, max_len)
        search = [_Beam(beam_size, n_best, max_len, length_penalty, eos) for _ in range(len(tokens))]
        live = search  # the sentences in the batch, each with a row for every hypothesis in its beam
        while True:
            scores = model.step(tokens, state)  # (rows, vocab)
            so_far = np.array([[h.log_prob] for beam in live for h in beam.alive], scores.dtype)
            totals = scores + (so_far - _log_sum_exp(scores))
            first, rows = 0, []
            for beam in live:
                end = first + len(beam.alive)
                picks = beam.advance(totals[first:end])
                if not beam.done:
                    rows += [first + pick for pick in picks]
                first = end
            live = [beam for beam in live if not beam.done]
            if not live:
                return [beam.finished[:n_best] for beam in search]
            state.select(np.array(rows))
            tokens = np.array([[h.tokens[-1]] for beam in live for h in beam.alive])


def _largest(x: np.ndarray, count: int, width: int = 256) -> np.ndarray:
    """Where the `count` largest of x (n,) are, largest first."""
    if len(x) <= 4 * count * width:
        places = np.arange(len(x))
    else:  # they are in the stretches with the largest maxima, or in the rest
        whole = len(x) // width * width
        tops = x[:whole].reshape(-1, width).max(1)
        stretches = np.argpartition(tops, -count)[-count:]
        places = np.r_[(stretches[:, None] * width + np.arange(width)).reshape(-1), whole : len(x)]
        places.sort()  # of equals the first wins
    best = places[np.argpartition(-x[places], count - 1)[:count]]
    return best[np.argsort(-x[best], kind="stable")]


class _Beam:
    """The beam of one sentence."""

    def __init__(self, size: int, n_best: int, max_len: int, length_penalty: float, eos: int | None) -> None:
        self.size, self.n_best, self.max_len, self.length_penalty, self.eos = size, n_best, max_len, length_penalty, eos
        self.alive = [Hypothesis()]
        self.finished: list[Hypothesis] = []
        self.done = False

    def advance(self, totals: np.ndarray) -> list[int]:
        """Extend every hypothesis, given the total log-probabilities (alive, vocab); the rows that go on."""
        vocab = totals.shape[1]
        flat = totals.reshape(-1)
        best = _largest(flat, min(2 * self.size, len(flat)))  # enough, even if half of them end
        alive: list[Hypothesis] = []
        picks: list[int] = []
        for place in best.tolist():
            row, token = divmod(place, vocab)
            new = Hypothesis([*self.alive[row].tokens, token], float(flat[place]))
            if token == self.eos:
                self._finish(new)
            elif len(alive) < self.size:
                alive.append(new)
                picks.append(row)
        self.alive = alive
        length = len(alive[0].tokens) if alive else self.max_len
        if length >= self.max_len:
            for h in alive:
                self._finish(h)
            self.done = True
        elif len(self.finished) >= self.n_best:  # can the best that goes on still get among the n_best?
            longest = self.max_len if self.length_penalty > 0 else length + 1
            self.done = self._score(alive[0].log_prob, longest) <= self.finished[self.n_best - 1].score
        return picks

    def _score(self, log_prob: float, length: int) -> float:
        return log_prob / length**self.length_penalty

    def _finish(self, h: Hypothesis) -> None:
        h.score = self._score(h.log_prob, len(h.tokens))
        self.finished.append(h)
        self.finished.sort(key=lambda h: -h.score)


def sample(
    model: Any, source: Any = None, *, prompt: Any = None, max_len: int = 128, temperature: float = 1.0,
    top_k: int | None = None, top_p: float | None = None, eos: int | None = OWN,
    generator: np.random.Generator | None = None,
) -> list[Hypothesis]:  # fmt: skip
    """Tokens drawn by their probability, until the end mark or `max_len` tokens.

    `temperature` divides the scores; `top_k` draws from the k likeliest tokens only, `top_p` from the
    fewest likeliest whose probabilities add up to p (Holtzman et al. 2020, arXiv:1904.09751).
    """
    if temperature <= 0:
        raise ValueError(f"sample: expected temperature > 0, got {temperature}; greedy_search is its limit")
    if top_k is not None and top_k < 1:
        raise ValueError(f"sample: expected top_k of at least 1, got {top_k}")
    if top_p is not None and not 0 < top_p <= 1:
        raise ValueError(f"sample: expected 0 < top_p <= 1, got {top_p}")
    rng, eos = default_generator(generator), _end(model, eos)
    with _Evaluation(model):
        state, tokens = _begin(model, source, prompt, max_len)
        hypotheses = [Hypothesis() for _ in range(len(tokens))]
        rows = np.arange(len(tokens))
        for _ in range(max_len):
            log_probs = _log_softmax(model.step(tokens, state).astype(float) / temperature)
            allowed = _log_softmax(_restricted(log_probs, top_k, top_p))
            ends = np.cumsum(np.exp(allowed), axis=-1)
            drawn = (ends < rng.random((len(ends), 1)) * ends[:, -1:]).sum(-1)
            for i, (row, token) in enumerate(zip(rows, drawn.tolist())):
                hypotheses[row].tokens.append(token)
                hypotheses[row].log_prob += float(log_probs[i, token])
            going = drawn != eos if eos is not None else np.ones(len(drawn), bool)
            if not going.any():
                break
            kept = np.flatnonzero(going)
            rows, tokens = rows[kept], drawn[kept, None]
            if len(kept) < len(going):
                state.select(kept)
        for h in hypotheses:
            h.score = h.log_prob
        return hypotheses


def _restricted(log_probs: np.ndarray, top_k: int | None, top_p: float | None) -> np.ndarray:
    """log_probs, with -inf for the tokens that are not to be drawn."""
    if top_k is not None and top_k < log_probs.shape[1]:
        least = np.partition(log_probs, -top_k, axis=-1)[:, -top_k, None]
        log_probs = np.where(log_probs < least, -np.inf, log_probs)
    if top_p is not None and top_p < 1:
        order = np.argsort(-log_probs, axis=-1, kind="stable")
        probs = np.exp(np.take_along_axis(_log_softmax(log_probs), order, -1))
        before = np.cumsum(probs, -1) - probs  # of the likelier ones
        out = np.zeros(log_probs.shape, bool)
        np.put_along_axis(out, order, before >= top_p, -1)
        log_probs = np.where(out, -np.inf, log_probs)
    return log_probs


def attention_maps(model: Any, source: Any, target: Sequence[int] | np.ndarray) -> dict[str, list[np.ndarray]]:
    """What each head attended to in translating one source (L_s,) to one target (L_t,), without start mark.

    Three lists by layer, of arrays (h, L_q, L_kv): "encoder", "decoder" and "cross". Row i of the
    last two is the step that chose token i of the target.
    """
    source, target = np.asarray(source).reshape(1, -1), np.asarray(target).reshape(1, -1)
    seen = np.concatenate([[[model.config.sos_id]], target[:, :-1]], axis=1)
    with _Evaluation(model), record_attention(model) as recorded:
        model.hidden(source, seen)
    maps: dict[str, list[np.ndarray]] = {"encoder": [], "decoder": [], "cross": []}
    for name, found in recorded.items():
        kind = "encoder" if name.startswith("encoder.") else "cross" if name.endswith("cross_attention") else "decoder"
        maps[kind] += [weights[0] for weights in found]
    return maps
