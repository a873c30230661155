"""Choosing tokens one after another: greedily, by sampling, or both through `generate` and
`stream`.

All use the key/value cache, and change nothing in the model: several threads can decode with one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.random import Generator

from minigrad.core.modes import no_grad
from minigrad.core.random import default_generator
from minigrad.optim.settings import checked_count, checked_number

from ..layers.module import evaluating
from ..layers.probes import record_attention
from .beam import beam_search, check_beam
from .decoding import NOTHING_LEFT, OWN, Decoding, Hypothesis, log_sum_exp
from .rules import Rules

__all__ = ["attention_maps", "generate", "greedy_search", "sample", "stream"]

Chooser = Callable[[Decoding, np.ndarray], tuple[np.ndarray, np.ndarray]]


def greedy_search(
    model: Any,
    source: Any = None,
    *,
    prompt: Any = None,
    max_len: int = 128,
    eos: int | Iterable[int] | None = OWN,
    scores: bool = True,
    **rules: Any,
) -> list[Hypothesis]:
    """The likeliest next token, again and again, until EOS or `max_len` tokens.

    `source` (N, L) are the source ids of an encoder-decoder model, `prompt` the first tokens for a
    language model: one list, or several. `eos` is one EOS token or several, None for no end before
    `max_len`. Without `scores`, which cost a softmax over the vocabulary at each step, those of the
    hypotheses are NaN. `rules` are the fields of `Rules`.
    """
    decoding = Decoding(model, source, prompt, max_len, eos, Rules(**rules))
    return _hypotheses(decoding, _likeliest if scores else _likeliest_unscored)


def sample(
    model: Any,
    source: Any = None,
    *,
    prompt: Any = None,
    max_len: int = 128,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    eos: int | Iterable[int] | None = OWN,
    generator: Generator | None = None,
    **rules: Any,
) -> list[Hypothesis]:
    """Tokens drawn by their probability, until EOS or `max_len` tokens.

    `temperature` divides the logits; `top_k` draws from the k likeliest tokens only, `top_p` from
    the fewest likeliest whose probabilities add up to p (Holtzman et al. 2020, arXiv:1904.09751).
    The rest as in `greedy_search`.
    """
    choose = _drawn(temperature, top_k, top_p, generator)
    return _hypotheses(Decoding(model, source, prompt, max_len, eos, Rules(**rules)), choose)


def generate(
    model: Any,
    prompt: Any = None,
    *,
    source: Any = None,
    num_beams: int = 1,
    do_sample: bool = False,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    length_penalty: float = 1.0,
    generator: Generator | None = None,
    **options: Any,
) -> Any:
    """The tokens that go on from a prompt, or translate a source; a list for each row, one list for
    a prompt (L,).

    Greedily, with a beam of `num_beams`, or drawn where `do_sample`. `max_len` and `min_len` count
    new tokens. A language model whose context is full goes on from the last part of the text.
    Further options are those of `greedy_search`, and the fields of `Rules`.
    """
    check_beam(num_beams, length_penalty)
    if num_beams > 1 and do_sample:
        raise ValueError("generate: expected num_beams=1 or do_sample=False; a beam is not drawn")
    given = {"source": source, "prompt": prompt, **options}
    if num_beams > 1:
        found = [
            best
            for best, *_ in beam_search(
                model, beam_size=num_beams, length_penalty=length_penalty, **given
            )
        ]
    elif do_sample:
        found = sample(
            model, temperature=temperature, top_k=top_k, top_p=top_p, generator=generator, **given
        )
    else:
        found = greedy_search(model, **given, scores=False)
    single = prompt is not None and np.ndim(prompt[0]) == 0
    return found[0].tokens if single else [h.tokens for h in found]


def stream(
    model: Any,
    prompt: Any,
    *,
    max_len: int = 128,
    eos: int | Iterable[int] | None = OWN,
    do_sample: bool = False,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    generator: Generator | None = None,
    **rules: Any,
) -> Iterator[int]:
    """The tokens that go on from one prompt (L,), each as soon as it is known; options as in
    `generate`.
    """
    choose = _drawn(temperature, top_k, top_p, generator) if do_sample else _likeliest_unscored
    decoding = Decoding(model, None, prompt, max_len, eos, Rules(**rules))
    if len(decoding.history) != 1:
        raise ValueError(f"stream: expected one prompt, got {len(decoding.history)}")
    return (int(tokens[0]) for _, tokens, _ in _steps(decoding, choose))


def _steps(
    decoding: Decoding, choose: Chooser
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """For each step, which sequences go on, the token of each, and its log-probability."""
    rows = np.arange(len(decoding.history))
    while len(rows) and decoding.new < decoding.max_len:
        tokens, log_probs = choose(decoding, decoding.logits())
        yield rows, tokens, log_probs
        going = ~np.isin(tokens, decoding.ends)
        left = np.flatnonzero(going)
        rows = rows[left]
        decoding.advance(tokens[left], None if len(left) == len(going) else left)


def _hypotheses(decoding: Decoding, choose: Chooser) -> list[Hypothesis]:
    found = [Hypothesis() for _ in decoding.history]
    for rows, tokens, log_probs in _steps(decoding, choose):
        for row, token, log_prob in zip(rows, tokens.tolist(), log_probs.tolist()):
            found[row].tokens.append(token)
            found[row].log_prob += log_prob
    for h in found:
        h.score = h.log_prob
    return found


# -- how a token is chosen, from logits (rows, vocab): the tokens, and the logarithms of their
# probabilities -----


def _ruled(decoding: Decoding, logits: np.ndarray) -> np.ndarray:
    """Logits as the rules change them, which must leave a token to each sequence."""
    found = decoding.ruled(logits)
    if found is not logits and (found.max(-1) == -np.inf).any():
        raise ValueError(NOTHING_LEFT)
    return found


def _likeliest_unscored(decoding: Decoding, logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    best = _ruled(decoding, logits).argmax(-1)
    return best, np.full(len(best), np.nan)


def _likeliest(decoding: Decoding, logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    best = _ruled(decoding, logits).argmax(-1)
    return best, logits[np.arange(len(best)), best] - log_sum_exp(logits)[:, 0]


def _drawn(
    temperature: float, top_k: int | None, top_p: float | None, generator: Generator | None
) -> Chooser:
    if checked_number("sample", "temperature", temperature, -math.inf) <= 0:
        raise ValueError(
            f"sample: expected temperature > 0, got {temperature}; greedy_search is its limit"
        )
    if top_k is not None:
        checked_count("sample", "top_k", top_k)
    if top_p is not None and not 0 < checked_number("sample", "top_p", top_p, -math.inf) <= 1:
        raise ValueError(f"sample: expected 0 < top_p <= 1, got {top_p}")
    rng = default_generator(generator)

    def draw(decoding: Decoding, logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        logits = _ruled(decoding, logits).astype(float)
        with np.errstate(over="ignore"):  # far below the likeliest: -inf
            log_probs = _log_softmax((logits - logits.max(-1, keepdims=True)) / temperature)
        allowed = _log_softmax(_restricted(log_probs, top_k, top_p))
        ends = np.cumsum(np.exp(allowed), axis=-1)
        drawn = (ends < rng.random((len(ends), 1)) * ends[:, -1:]).sum(-1)
        return drawn, log_probs[np.arange(len(drawn)), drawn]

    return draw


def _log_softmax(logits: np.ndarray) -> np.ndarray:
    return logits - log_sum_exp(logits)


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


def attention_maps(
    model: Any, source: Any, target: Sequence[int] | np.ndarray
) -> dict[str, list[np.ndarray]]:
    """What each head attended to in translating one source (L_s,) to one target (L_t,), without
    BOS.

    Three lists by layer, of arrays (h, L_q, L_kv): "encoder", "decoder" and "cross". Row i of the
    last two is the step that chose token i of the target.
    """
    source, target = np.asarray(source).reshape(1, -1), np.asarray(target).reshape(1, -1)
    seen = np.concatenate([[[model.config.bos_id]], target[:, :-1]], axis=1)
    with evaluating(), no_grad(), record_attention(model) as recorded:
        model.hidden(source, seen)
    maps: dict[str, list[np.ndarray]] = {"encoder": [], "decoder": [], "cross": []}
    for name, found in recorded.items():
        maps[kind_of(name)] += [weights[0] for weights in found]
    return maps


def kind_of(attention: str) -> str:
    """What an attention of a Transformer is, by its name: "encoder", "decoder" or "cross"."""
    if attention.endswith("cross_attention"):
        return "cross"
    return "encoder" if attention.startswith("encoder.") else "decoder"
