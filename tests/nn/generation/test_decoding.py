"""Greedy, beam and sampled decoding against their definitions, without cache and batch."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import minigrad as mg
import nn
from nn import Hypothesis
from nn.text import BOS, EOS

VOCAB = 5  # <pad> <bos> <eos> <unk> and one word
SOURCES = np.array([[4, 5, 6], [7, 8, 0], [5, 0, 0]])


def small(seed: int = 0, **changes: Any) -> nn.Transformer:
    """Return a small random Transformer in float64."""
    config = nn.TransformerConfig(9, VOCAB, 8, 2, 1, 2, 16, max_len=12, dtype="float64", **changes)
    model = nn.Transformer(config, np.random.default_rng(seed))
    model.output.weight.data *= 4  # scores that differ
    return model


def log_probs(
    model: nn.Transformer, source: np.ndarray, sequences: Sequence[Sequence[int]], first: int = 0
) -> np.ndarray:
    """Return the log probabilities of sequences from token `first` on, by one forward pass."""
    target = np.array([[BOS, *tokens[:-1]] for tokens in sequences])
    with mg.no_grad(), nn.evaluating():
        scores = model(np.tile(source, (len(sequences), 1)), target).data
    logp = scores - np.log(np.exp(scores).sum(-1, keepdims=True))
    return np.take_along_axis(logp, np.array(sequences)[..., None], -1)[:, first:, 0].sum(-1)


def all_hypotheses(
    model: nn.Transformer, source: np.ndarray, penalty: float, prompt: Sequence[int] = ()
) -> list[Hypothesis]:
    """Return all sequences that end at EOS or at length 3, best first."""
    found: list[Hypothesis] = []
    for n in (1, 2, 3):
        texts = [[*x] for x in itertools.product(range(VOCAB), repeat=n) if EOS not in x[:-1]]
        totals = log_probs(model, source, [[*prompt, *x] for x in texts], len(prompt)).tolist()
        hypotheses = [Hypothesis(x, total, total / n**penalty) for x, total in zip(texts, totals)]
        found += [h for h in hypotheses if h.tokens[-1] == EOS or n == 3]
    return sorted(found, key=lambda h: -h.score)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("penalty", [0.0, 1.0, -3.0])
def test_beam_search_with_a_wide_beam_finds_the_best_sequences(seed: int, penalty: float) -> None:
    model = small(seed)
    found = nn.beam_search(
        model, SOURCES, beam_size=125, n_best=9, max_len=3, length_penalty=penalty
    )
    for source, hypotheses in zip(SOURCES, found):
        for h, expected in zip(hypotheses, all_hypotheses(model, source, penalty)[:9], strict=True):
            assert h.tokens == expected.tokens
            assert (h.log_prob, h.score) == pytest.approx((expected.log_prob, expected.score))


@pytest.mark.parametrize("seed", range(6))
def test_greedy_search_equals_a_beam_of_one(seed: int) -> None:
    model = small(seed)
    beams = nn.beam_search(model, SOURCES, beam_size=1, max_len=6, early_stopping=True)
    for h, [expected] in zip(nn.greedy_search(model, SOURCES, max_len=6), beams, strict=True):
        assert h.tokens == expected.tokens and h.log_prob == pytest.approx(expected.log_prob)


def test_generate_with_prompt_and_source_continues_the_prompt() -> None:
    model, prompt = small(7), [[4, 1], [3, 4], [4, 4]]
    expected = [all_hypotheses(model, *x)[0].tokens for x in zip(SOURCES, [0.5] * 3, prompt)]
    options = {"num_beams": 125, "length_penalty": 0.5, "max_len": 3}
    for begin in (prompt, np.insert(prompt, 0, BOS, axis=1)):
        assert nn.generate(model, begin, source=SOURCES, **options) == expected


def test_search_of_no_sentences_is_empty() -> None:
    attention = nn.AttentionConfig(num_kv_heads=1, qk_norm=True)
    model, source = small(positions="rotary", attention=attention), np.zeros((0, 4), int)
    for net in (model, nn.for_inference(model)):
        for search in (nn.greedy_search, nn.sample, nn.beam_search):
            assert search(net, source) == []


@pytest.mark.parametrize(
    "options, power, tokens",
    [
        ({}, 1, range(VOCAB)),
        ({"temperature": 0.5}, 2, range(VOCAB)),
        ({"top_k": 2}, 1, [0, 2]),
        ({"top_p": 0.95}, 1, [0, 2, 4]),
        ({"min_p": 0.2, "temperature": 2.0}, 0.5, [0, 2, 3, 4]),
    ],
)
def test_sample_frequencies_equal_the_probabilities(
    options: dict[str, Any], power: float, tokens: Sequence[int]
) -> None:
    model, source, n = small(12), SOURCES[:1], 4000
    p = np.exp(log_probs(model, source, [[t] for t in range(VOCAB)]))
    expected = np.where(np.isin(range(VOCAB), tokens), p**power, 0)
    many, rng = np.repeat(source, n, axis=0), np.random.default_rng(0)
    drawn = nn.sample(model, many, max_len=1, generator=rng, **options)
    frequencies = np.bincount([h.tokens[0] for h in drawn], minlength=VOCAB) / n
    np.testing.assert_allclose(frequencies, expected / expected.sum(), atol=0.03)
    assert not frequencies[expected == 0].any()


def test_sample_with_one_seed_repeats_its_tokens() -> None:
    model = small(12)
    found, again = (
        nn.sample(model, SOURCES, max_len=6, generator=np.random.default_rng(5)) for _ in range(2)
    )
    assert found == again
    for h, source in zip(found, SOURCES):
        assert h.log_prob == pytest.approx(log_probs(model, source, [h.tokens])[0], rel=1e-9)


def test_beam_search_with_numpy_scalars_equals_one_with_python_numbers() -> None:
    numbers = {"beam_size": 3, "length_penalty": 0.5, "n_best": 2}
    scalars = {name: np.float32(x) if x == 0.5 else np.int64(x) for name, x in numbers.items()}
    found, expected = (nn.beam_search(small(), SOURCES, max_len=5, **x) for x in (scalars, numbers))
    assert found == expected


def test_search_keeps_the_modes_of_the_model() -> None:
    model = small()
    model.encoder.eval()
    nn.greedy_search(model, SOURCES, max_len=3)
    assert model.training and not model.encoder.training and mg.is_grad_enabled()


@pytest.mark.parametrize(
    "search, options, message",
    [
        (nn.beam_search, {"beam_size": 2, "n_best": 3}, r"n_best must be from 1 to beam_size \(2\)"),
        *((nn.beam_search, {"n_best": x}, f"beam_search: n_best must be {message}") for x, message in ((0, "at least 1"), (1.5, "a whole number"))),
        (nn.greedy_search, {"source": np.array(5)}, r"source must be integer token ids \(N, L\), got int64 \(\)"),
        *((nn.beam_search, {"beam_size": size}, "beam_size must be an integer from 1 to 1000, got") for size in (0, True, 1001)),
        *((nn.beam_search, {"length_penalty": x}, "length_penalty must be a number from -20") for x in (float("nan"), 20.5, "1")),
        (nn.beam_search, {"early_stopping": "always"}, "early_stopping must be False, True or 'never', got"),
        (nn.sample, {"temperature": 0}, "temperature must be above 0, got 0"),
        (nn.sample, {"top_k": 0}, "top_k must be at least 1, got 0"),
        (nn.sample, {"top_p": 1.5}, "top_p must be above 0 and at most 1, got 1.5"),
        (nn.sample, {"min_p": -0.5}, "min_p must be a number from 0 to 1, got -0.5"),
        (nn.greedy_search, {"max_len": 0}, "max_len must be at least 1, got 0"),
        (nn.greedy_search, {"max_len": 13, "eos": None}, "x must have at most 12 positions, got 13"),
        (nn.greedy_search, {"source": None}, "source must hold token ids for a Transformer, got None"),
        (nn.generate, {"num_beams": 3, "n_best": 2}, "n_best must be given to beam_search"),
        (nn.generate, {"temperature": 0.5}, "do_sample must be True for .*temperature=0.5"),
        (nn.generate, {"num_beams": 2, "do_sample": True}, "num_beams must be 1 with do_sample=True"),
        (nn.generate, {"length_penalty": 0.5}, "num_beams must be above 1 for .*length_penalty=0.5"),
        *((nn.generate, {"prompt": x}, "prompt must hold tokens of one length") for x in ([[1], [2, 3], [4]], [[1, 2]])),
    ],
)  # fmt: skip
def test_search_with_bad_arguments_raises(
    search: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        search(small(), **{"source": SOURCES, **options})
