"""Greedy search, sampling, and `generate` and `stream`, which choose between searches.

All use the key/value cache and change nothing in the model: several threads can share one model.
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
from .beam import beam_search
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
    """Return the sequences whose every token is the likeliest after those before it.

    Parameters
    ----------
    source : array of int, shape (N, L_s), optional
        Source ids of a `Transformer`.
    prompt : sequence of int, or several of them, optional
        First tokens of a language model's text, without those that equal `config.hidden_id`, or
        of a `Transformer`'s translation, after BOS.
    max_len : int
        Number of new tokens at which a sequence ends without EOS.
    eos : int, iterable of int, or None
        Tokens that end a sequence; by default those of the configuration. None: no tokens.
    scores : bool
        Whether to compute log-probabilities, which takes a softmax over the vocabulary at each
        step; otherwise they are NaN.
    **rules
        Fields of `Rules`.
    """
    decoding = Decoding(model, source, prompt, max_len, eos, Rules(**rules))
    return _hypotheses(decoding, _likeliest_scored if scores else _likeliest)


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
    """Return sequences whose tokens are drawn by their probabilities.

    `source`, `prompt`, `max_len`, `eos` and `rules` are those of `greedy_search`.

    Parameters
    ----------
    temperature : float
        Divisor of the logits.
    top_k : int, optional
        Number of likeliest tokens to draw from.
    top_p : float, optional
        Probability that the fewest likeliest tokens to draw from must reach together (Holtzman et
        al. 2020, arXiv:1904.09751).
    generator : numpy.random.Generator, optional
        Source of random numbers.
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
    early_stopping: bool | str = False,
    generator: Generator | None = None,
    **options: Any,
) -> Any:
    """Return the tokens that continue a prompt or translate a source.

    A language model whose context is full continues from the last part of the text. Settings of a
    search that is not chosen are refused.

    Parameters
    ----------
    prompt, source
        As in `greedy_search`.
    num_beams : int
        Number of hypotheses of a beam search; 1 for greedy search or sampling.
    do_sample : bool
        Whether to draw tokens at random.
    temperature, top_k, top_p, generator
        As in `sample`; they need `do_sample=True`.
    length_penalty, early_stopping
        As in `beam_search`; they need `num_beams` above 1.
    **options
        `max_len` and `eos`, as in `greedy_search`, and the fields of `Rules`.

    Returns
    -------
    list of int, or list of them
        New tokens of each row; one list for a prompt (L,).
    """
    beams = num_beams != 1
    _check_search(beams, length_penalty, early_stopping, do_sample, temperature, top_k, top_p)
    if "n_best" in options:
        raise TypeError("generate: n_best must be given to beam_search; generate returns the best")
    inputs = {"source": source, "prompt": prompt, **options}
    if beams:
        beam: dict[str, Any] = {"length_penalty": length_penalty, "early_stopping": early_stopping}
        hypotheses = [h for h, *_ in beam_search(model, beam_size=num_beams, **beam, **inputs)]
    elif do_sample:
        hypotheses = sample(
            model, temperature=temperature, top_k=top_k, top_p=top_p, generator=generator, **inputs
        )
    else:
        hypotheses = greedy_search(model, **inputs, scores=False)
    single = prompt is not None and np.ndim(prompt[0]) == 0
    return hypotheses[0].tokens if single else [h.tokens for h in hypotheses]


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
    """Return an iterator over the tokens that continue one prompt (L,), as they are generated.

    The options are those of `generate`.
    """
    _check_search(False, 1.0, False, do_sample, temperature, top_k, top_p)
    choose = _drawn(temperature, top_k, top_p, generator) if do_sample else _likeliest
    decoding = Decoding(model, None, prompt, max_len, eos, Rules(**rules))
    if len(decoding.history) != 1:
        raise ValueError(f"stream: expected one prompt, got {len(decoding.history)}")
    return (int(tokens[0]) for _, tokens, _ in _steps(decoding, choose))


def _check_search(
    beams: bool,
    length_penalty: float,
    early_stopping: bool | str,
    do_sample: bool,
    temperature: float,
    top_k: int | None,
    top_p: float | None,
) -> None:
    """Raise an error for settings of a search that is not chosen."""
    if beams and do_sample:
        raise ValueError(
            "num_beams must be 1 with do_sample=True; a beam search does not draw tokens"
        )
    if not do_sample and (temperature, top_k, top_p) != (1.0, None, None):
        raise ValueError(
            f"do_sample must be True for temperature={temperature}, top_k={top_k} and "
            f"top_p={top_p}; without it the likeliest token is taken"
        )
    if not beams and (length_penalty, early_stopping) != (1.0, False):
        raise ValueError(
            f"num_beams must be above 1 for length_penalty={length_penalty} and "
            f"early_stopping={early_stopping}; only a beam search compares sequences"
        )


def _steps(
    decoding: Decoding, choose: Chooser
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield for each step the sequences that continue, their tokens, and the log-probabilities."""
    rows = np.arange(len(decoding.history))
    while len(rows) and decoding.new < decoding.max_len:
        tokens, log_probs = choose(decoding, decoding.logits())
        yield rows, tokens, log_probs
        going = ~np.isin(tokens, decoding.ends)
        left = np.flatnonzero(going)
        rows = rows[left]
        decoding.advance(tokens[left], None if len(left) == len(going) else left)


def _hypotheses(decoding: Decoding, choose: Chooser) -> list[Hypothesis]:
    hypotheses = [Hypothesis() for _ in decoding.history]
    for rows, tokens, log_probs in _steps(decoding, choose):
        for row, token, log_prob in zip(rows, tokens.tolist(), log_probs.tolist()):
            hypotheses[row].tokens.append(token)
            hypotheses[row].log_prob += log_prob
            hypotheses[row].score = hypotheses[row].log_prob
    return hypotheses


# -- choosers: tokens and their log-probabilities, (rows,) each, from logits (rows, vocab) ---------


def _ruled(decoding: Decoding, logits: np.ndarray) -> np.ndarray:
    """Return logits that follow the rules, which must leave a token to each sequence."""
    ruled = decoding.ruled(logits)
    if ruled is not logits and (ruled.max(-1) == -np.inf).any():
        raise ValueError(NOTHING_LEFT)
    return ruled


def _likeliest(decoding: Decoding, logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    best = _ruled(decoding, logits).argmax(-1)
    return best, np.full(len(best), np.nan)


def _likeliest_scored(decoding: Decoding, logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    best, _ = _likeliest(decoding, logits)
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
    """Return log_probs with -inf for the tokens that `top_k` and `top_p` exclude."""
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
    """Return the attention weights of a translation: one source (L_s,) to one target (L_t,).

    The target is without BOS. The keys "encoder", "decoder" and "cross" hold an array (h, L_q,
    L_kv) for each layer. Row i of the last two is the step that chose token i of the target.
    """
    source, target = np.asarray(source).reshape(1, -1), np.asarray(target).reshape(1, -1)
    seen = np.concatenate([[[model.config.bos_id]], target[:, :-1]], axis=1)
    with evaluating(), no_grad(), record_attention(model) as recorded:
        model.hidden(source, seen)
    maps: dict[str, list[np.ndarray]] = {"encoder": [], "decoder": [], "cross": []}
    for name, weights in recorded.items():
        maps[kind_of(name)] += [of_batch[0] for of_batch in weights]
    return maps


def kind_of(attention: str) -> str:
    """Return "encoder", "decoder" or "cross" for the name of an attention of a Transformer."""
    if attention.endswith("cross_attention"):
        return "cross"
    return "encoder" if attention.startswith("encoder.") else "decoder"
