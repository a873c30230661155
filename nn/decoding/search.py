"""Greedy search, sampling, and `generate` and `stream`, which choose between searches.

All use the key/value cache and change nothing in the model: several threads can share one model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.random import Generator

from minigrad.arguments import checked_count, checked_number
from minigrad.modes import no_grad
from minigrad.random import default_generator

from ..generation import drawn
from ..module import evaluating
from ..options.probes import record_attention
from .beam import beam_search
from .drafts import DraftedDecoding
from .rules import check_options, rules_of
from .sequences import NOTHING_LEFT, OWN, Hypothesis, RuledDecoding, log_sum_exp

__all__ = ["attention_maps", "generate", "greedy_search", "sample", "stream"]

Chooser = Callable[[RuledDecoding, np.ndarray], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class Sampling:
    """Settings of the tokens to draw from, as arguments of `sample`."""

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None

    def __post_init__(self) -> None:
        if checked_number("sample", "temperature", self.temperature, -math.inf) <= 0:
            raise ValueError(
                f"sample: temperature must be above 0, got {self.temperature}; greedy_search is "
                "its limit"
            )
        if self.top_k is not None:
            checked_count("sample", "top_k", self.top_k)
        top_p, min_p = self.top_p, self.min_p
        if top_p is not None and not 0 < checked_number("sample", "top_p", top_p, -math.inf) <= 1:
            raise ValueError(f"sample: top_p must be above 0 and at most 1, got {top_p}")
        if min_p is not None and not 0 <= checked_number("sample", "min_p", min_p, -math.inf) <= 1:
            raise ValueError(f"sample: min_p must be a number from 0 to 1, got {min_p}")

    def restrict(self, log_probs: np.ndarray) -> np.ndarray:
        """Return log_probs (rows, vocab) with -inf for the tokens that are not drawn."""
        if self.top_k is not None and self.top_k < log_probs.shape[1]:
            least = np.partition(log_probs, -self.top_k, axis=-1)[:, -self.top_k, None]
            log_probs = np.where(log_probs < least, -np.inf, log_probs)
        if self.top_p is not None and self.top_p < 1:
            order = np.argsort(-log_probs, axis=-1, kind="stable")
            probs = np.exp(np.take_along_axis(_log_softmax(log_probs), order, -1))
            before = np.cumsum(probs, -1) - probs  # the sum over more probable tokens
            out = np.zeros(log_probs.shape, bool)
            np.put_along_axis(out, order, before >= self.top_p, -1)
            log_probs = np.where(out, -np.inf, log_probs)
        if self.min_p:
            least = log_probs.max(-1, keepdims=True) + math.log(self.min_p)
            log_probs = np.where(log_probs < least, -np.inf, log_probs)
        return log_probs


_WHOLE_DISTRIBUTION = Sampling()


def greedy_search(
    model: Any,
    source: Any = None,
    *,
    prompt: Any = None,
    padding_mask: Any = None,
    max_len: int = 128,
    eos: int | Iterable[int] | None = OWN,
    scores: bool = True,
    prompt_lookup_num_tokens: int | None = None,
    **rules: Any,
) -> list[Hypothesis]:
    """Return sequences of the most probable token at each step.

    Parameters
    ----------
    model : LanguageModel or Transformer
        A model with `start` and `step`.
    source : array of int, shape (N, L_s), or list of lists of int, optional
        Source ids of a `Transformer`. Lists may have different lengths.
    prompt : sequence of int, or several of them, optional
        First tokens of a language model's text, without those that equal `config.masked_id`, or
        of a `Transformer`'s translation, after BOS. A language model with a table of positions
        reads the last `max_len` tokens, and half of them when the text grows beyond them.
    padding_mask : array of bool, shape of `source` or of the prompts (N, L), optional
        True = a real token. By default the tokens other than `config.pad_id` are real, or all
        tokens if `pad_id` is one of `eos_id`.
    max_len : int
        Number of new tokens at which a sequence ends without EOS.
    eos : int, iterable of int, or None
        Tokens that end a sequence; by default those of the configuration. None: no tokens.
    scores : bool
        Compute log-probabilities, by a softmax over the vocabulary at each step. Otherwise they
        are NaN.
    prompt_lookup_num_tokens : int, optional
        Most tokens that a pass adds to the next one: those that followed the last two tokens, or
        the last, when they occurred before in the text. The search takes the same tokens, to
        rounding, in fewer passes. For one prompt of a language model.
    **rules
        Fields of `Rules`.

    Returns
    -------
    list of Hypothesis
        One for each row, in the order of the batch.
    """
    decoding = _decoding("greedy_search", prompt_lookup_num_tokens)(
        model, source, prompt, padding_mask, max_len, eos, rules_of("greedy_search", rules)
    )
    return _hypotheses(decoding, _likeliest_scored if scores else _likeliest)


def sample(
    model: Any,
    source: Any = None,
    *,
    prompt: Any = None,
    padding_mask: Any = None,
    max_len: int = 128,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    eos: int | Iterable[int] | None = OWN,
    generator: Generator | None = None,
    **rules: Any,
) -> list[Hypothesis]:
    """Return sequences whose tokens are drawn by their probabilities.

    Other parameters and result: as `greedy_search`.

    Parameters
    ----------
    temperature : float
        Divisor of the logits.
    top_k : int, optional
        Number of most probable tokens to draw from.
    top_p : float, optional
        Draw from the fewest most probable tokens whose probabilities add up to `top_p` (Holtzman et
        al. 2020, arXiv:1904.09751).
    min_p : float, optional
        Least probability of the tokens to draw from, relative to the most probable token.
    generator : numpy.random.Generator, optional
        Source of random numbers; the default generator if not given.
    """
    sampling = Sampling(temperature, top_k, top_p, min_p)
    decoding = RuledDecoding(
        model, source, prompt, padding_mask, max_len, eos, rules_of("sample", rules)
    )
    return _hypotheses(decoding, partial(_draw, sampling, default_generator(generator)))


def generate(
    model: Any,
    prompt: Any = None,
    *,
    source: Any = None,
    padding_mask: Any = None,
    num_beams: int = 1,
    do_sample: bool = False,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    length_penalty: float = 1.0,
    early_stopping: bool | str = False,
    prompt_lookup_num_tokens: int | None = None,
    n_best: int | None = None,
    generator: Generator | None = None,
    **options: Any,
) -> Any:
    """Return the tokens that continue a prompt or translate a source.

    A language model with a table of positions continues from the last part of a text that is longer
    than the table. Settings of a search that is not chosen are refused: those of `sample` require
    `do_sample`, and those of `beam_search` require `num_beams` above 1.

    Other parameters: as `sample` and `beam_search`.

    Parameters
    ----------
    num_beams : int
        Number of hypotheses of a beam search; 1 for greedy search or sampling.
    do_sample : bool
        Draw tokens at random.
    n_best : int, optional
        Return a list of this number of sequences for each row, best first, in place of the best
        one. Requires a `num_beams` as large.
    **options
        `max_len` and `eos`, as in `greedy_search`, and the fields of `Rules`.

    Returns
    -------
    list of int, or list of them
        New tokens of each row; one list for a prompt (L,).
    """
    beams, sampling = num_beams != 1, Sampling(temperature, top_k, top_p, min_p)
    drafts = prompt_lookup_num_tokens
    _check_search(beams, length_penalty, early_stopping, do_sample, sampling, drafts)
    check_options("generate", options, ("max_len", "eos"))
    inputs = {"source": source, "prompt": prompt, "padding_mask": padding_mask, **options}
    if beams:
        inputs |= {"length_penalty": length_penalty, "early_stopping": early_stopping}
        count = 1 if n_best is None else n_best
        best = beam_search(model, beam_size=num_beams, n_best=count, **inputs)
        rows: list[Any] = [[h.tokens for h in row] for row in best]
        rows = [row[0] for row in rows] if n_best is None else rows
    elif n_best is not None:
        raise ValueError(f"num_beams must be above 1 with n_best={n_best}; a beam search finds it")
    elif do_sample:
        rows = [h.tokens for h in sample(model, generator=generator, **vars(sampling), **inputs)]
    else:
        inputs |= {"prompt_lookup_num_tokens": drafts}
        rows = [h.tokens for h in greedy_search(model, **inputs, scores=False)]
    single = prompt is not None and np.ndim(prompt[0]) == 0
    return rows[0] if single else rows


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
    min_p: float | None = None,
    prompt_lookup_num_tokens: int | None = None,
    generator: Generator | None = None,
    **rules: Any,
) -> Iterator[int]:
    """Return an iterator over the tokens that continue one prompt (L,), as they are generated.

    Parameters: as `generate` and `greedy_search`.
    """
    sampling = Sampling(temperature, top_k, top_p, min_p)
    _check_search(False, 1.0, False, do_sample, sampling, prompt_lookup_num_tokens)
    draw = partial(_draw, sampling, default_generator(generator)) if do_sample else _likeliest
    kind = _decoding("stream", prompt_lookup_num_tokens)
    decoding = kind(model, None, prompt, None, max_len, eos, rules_of("stream", rules))
    if len(decoding.history) != 1:
        raise ValueError(f"stream: prompt must be one sequence, got {len(decoding.history)}")
    return (int(tokens[0]) for _, tokens, _ in decoding.steps(partial(draw, decoding)))


def _check_search(
    beams: bool,
    length_penalty: float,
    early_stopping: bool | str,
    do_sample: bool,
    sampling: Sampling,
    drafts: int | None,
) -> None:
    """Raise an error for settings of a search that is not chosen."""
    if drafts is not None and (beams or do_sample):
        search = "num_beams must be 1" if beams else "do_sample must be False"
        raise ValueError(
            f"{search} with prompt_lookup_num_tokens={drafts!r:.30}; drafts are for greedy search"
        )
    if beams and do_sample:
        raise ValueError(
            "num_beams must be 1 with do_sample=True; a beam search does not draw tokens"
        )
    if not do_sample and sampling != _WHOLE_DISTRIBUTION:
        settings = ", ".join(f"{name}={value}" for name, value in vars(sampling).items())
        raise ValueError(
            f"do_sample must be True for {settings}; without it the likeliest token is taken"
        )
    if not beams and (length_penalty, early_stopping) != (1.0, False):
        raise ValueError(
            f"num_beams must be above 1 for length_penalty={length_penalty} and "
            f"early_stopping={early_stopping}; only a beam search compares sequences"
        )


def _decoding(name: str, draft_len: int | None) -> Callable[..., RuledDecoding]:
    """Return the class for a search without drafts, or with drafts of at most `draft_len`."""
    if draft_len is None:
        return RuledDecoding
    return partial(DraftedDecoding, draft_len=draft_len, name=name)


def _hypotheses(decoding: RuledDecoding, choose: Chooser) -> list[Hypothesis]:
    hypotheses = [Hypothesis() for _ in decoding.history]
    for rows, tokens, log_probs in decoding.steps(partial(choose, decoding)):
        for row, token, log_prob in zip(rows, tokens.tolist(), log_probs.tolist()):
            hypotheses[row].tokens.append(token)
            hypotheses[row].log_prob += log_prob
    for hypothesis in hypotheses:
        hypothesis.score = hypothesis.log_prob
    return hypotheses


# -- choosers: tokens and their log-probabilities, (rows,) each, from logits (rows, vocab) ---------


def _ruled(decoding: RuledDecoding, logits: np.ndarray) -> np.ndarray:
    """Return logits that follow the rules, which must leave a token to each sequence."""
    ruled = decoding.ruled(logits)
    if ruled is not logits and (ruled.max(-1) == -np.inf).any():
        raise ValueError(NOTHING_LEFT)
    return ruled


def _likeliest(decoding: RuledDecoding, logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    best = _ruled(decoding, logits).argmax(-1)
    return best, np.full(len(best), np.nan)


def _likeliest_scored(decoding: RuledDecoding, logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    best, _ = _likeliest(decoding, logits)
    return best, logits[np.arange(len(best)), best] - log_sum_exp(logits)[:, 0]


def _draw(
    sampling: Sampling, rng: Generator, decoding: RuledDecoding, logits: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    logits = _ruled(decoding, logits).astype(float)
    with np.errstate(over="ignore"):  # tiny probabilities: -inf
        tops = logits.max(-1, keepdims=True)
        log_probs = _log_softmax((logits - tops) / sampling.temperature)
    return drawn(_log_softmax(sampling.restrict(log_probs)), log_probs, rng)


def _log_softmax(logits: np.ndarray) -> np.ndarray:
    return logits - log_sum_exp(logits)


def attention_maps(
    model: Any, source: Any, target: Sequence[int] | np.ndarray
) -> dict[str, list[np.ndarray]]:
    """Return the attention weights of a translation: one source (L_s,) to one target (L_t,).

    The result has an array (h, L_q, L_kv) for each layer. Row i of "decoder" and "cross" is the
    step that chose token i of the target.

    Parameters
    ----------
    model : Transformer
        Model of the translation.
    source : array of int, shape (L_s,)
        Source ids.
    target : array of int, shape (L_t,)
        Target ids without BOS.
    """
    source = np.asarray(source).reshape(1, -1)
    with evaluating(), no_grad(), record_attention(model) as recorded:
        model.hidden(source, target_inputs(model, target))
    maps: dict[str, list[np.ndarray]] = {"encoder": [], "decoder": [], "cross": []}
    for name, weights in recorded.items():
        maps[attention_kind(name)] += [of_batch[0] for of_batch in weights]
    return maps


def target_inputs(model: Any, target: Any) -> np.ndarray:
    """Return the inputs (1, L_t) of a decoder that predicts a target (L_t,), from BOS on."""
    return np.r_[model.config.bos_id, np.asarray(target).reshape(-1)[:-1]][None]


def attention_kind(name: str) -> str:
    """Return "encoder", "decoder" or "cross" for the name of an attention of a Transformer."""
    if name.endswith("cross_attention"):
        return "cross"
    return "encoder" if name.startswith("encoder.") else "decoder"
