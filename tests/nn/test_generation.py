"""Compare decoding with a loop: choices of tokens, ends, and the state of each row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.properties import normal, seeds

import nn
from nn import generation


class Fixed:
    """A source of random numbers that are all one value."""

    def __init__(self, value: float) -> None:
        self.value = value

    def random(self, shape: Any) -> np.ndarray:
        return np.full(shape, self.value)


@example(logits=[-3.0, 1.0, 1.0, -3.0], value=0.5)
@given(st.lists(st.sampled_from([-np.inf, -3.0, 0.0, 1.0]), min_size=1, max_size=6), st.sampled_from([0.0, 0.25, 0.5, float(np.nextafter(1, 0))]))  # fmt: skip
def test_drawn_token_is_that_whose_share_contains_the_number(
    logits: list[float], value: float
) -> None:
    """No token of chance 0 is drawn, neither by the least number nor by the largest."""
    chances = np.exp([logits])
    if not chances.any():
        return
    ends = np.cumsum(chances[0] / chances.sum())
    with np.errstate(divide="ignore"):
        tokens, log_probs = generation.drawn(np.array([logits]), np.log(chances), Fixed(value))
    last = max(np.flatnonzero(chances[0]))
    first = lambda value: next((i for i in range(last) if chances[0, i] and ends[i] > value), last)
    assert tokens[0] in (first(value - 1e-12), first(value + 1e-12))  # ends are rounded
    assert log_probs[0] == logits[tokens[0]]


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_sampled_tokens_have_the_frequencies_of_the_softmax(temperature: float) -> None:
    logits = np.tile(np.array([800.0, 801.0, 797.0, -np.inf], np.float32), (4000, 1))
    tokens, log_probs = generation.sampled(logits, temperature, np.random.default_rng(0))
    chances = np.exp((logits[0].astype(float) - 801) / temperature)
    chances /= chances.sum()
    np.testing.assert_allclose(np.bincount(tokens, minlength=4) / 4000, chances, atol=0.03)
    np.testing.assert_allclose(log_probs, np.log(chances[tokens]), rtol=1e-9)
    for wrong in (0.0, -1.0, np.nan):
        with pytest.raises(ValueError, match="sampled: temperature must be"):
            generation.sampled(logits, wrong)


class Counting:
    """A model whose next token is the sum of a row's tokens so far, and one more for each step."""

    def __init__(self, end: int | tuple[int, ...], vocab: int) -> None:
        self.vocab, self.fed = vocab, list[Any]()
        self.config = nn.LanguageModelConfig(vocab, eos_id=end)

    def start(self) -> Any:
        return State()

    def step(self, tokens: np.ndarray, state: Any) -> np.ndarray:
        self.fed.append(tokens.shape)
        state.add(tokens)
        logits = np.zeros((len(tokens), self.vocab))
        logits[np.arange(len(tokens)), state.sums % self.vocab] = 9.0
        return logits


class State:
    """Sums of the tokens of each row."""

    sums: Any = 0

    def add(self, tokens: np.ndarray) -> None:
        self.sums = self.sums + tokens.sum(1) + 1

    def select(self, rows: np.ndarray) -> None:
        self.sums = self.sums[rows]


@given(
    shape=st.tuples(st.integers(0, 4), st.integers(1, 3)), vocab=st.integers(3, 7), ends=st.sampled_from([(), (0,), (1,), (2, 1)]), most=st.integers(1, 6), seed=seeds,
)  # fmt: skip
def test_decoded_rows_end_with_their_end_token_or_at_the_largest_length(
    shape: tuple[int, int], vocab: int, ends: tuple[int, ...], most: int, seed: int
) -> None:
    prompt, expected = np.random.default_rng(seed).integers(0, vocab, shape), []
    for row in prompt.tolist():
        total, tokens = sum(row) + 1, []
        while len(tokens) < most:
            tokens.append(total % vocab)
            if tokens[-1] in ends:
                break
            total += tokens[-1] + 1
        expected.append(tokens)
    model = Counting(ends, vocab)
    assert generation.decode(model, prompt, max_len=most) == expected
    longest = max(map(len, expected), default=0)
    running = [sum(len(tokens) > i for tokens in expected) for i in range(longest)]
    assert model.fed == [(n, 1 if i else shape[1]) for i, n in enumerate(running)]


def test_decoding_keeps_the_tokens_and_numbers_of_running_rows() -> None:
    model = Counting(0, 3)
    decoding = generation.Decoding(
        model, model.start(), np.array([[1, 2], [1, 1], [2, 2]]), 2, (0,)
    )
    seen = [[x.tolist() for x in step] for step in decoding.steps(generation.likeliest)]
    assert [step[:2] for step in seen] == [[[0, 1, 2], [1, 0, 2]], [[0, 2], [0, 2]]]
    assert decoding.history.tolist() == [[2, 2, 2, 2]] and decoding.new == 2
    without_end = generation.Decoding(Counting((), 3), State(), np.array([[0], [1], [2]]), 3)
    assert [len(rows) for rows, *_ in without_end.steps(generation.likeliest)] == [3, 3, 3]
    expected = -np.log1p(2 * np.exp(-9.0))
    np.testing.assert_allclose(np.concatenate([step[2] for step in seen]), expected, rtol=1e-9)
    for most in (0, -1):
        with pytest.raises(ValueError, match="decode: max_len must be"):
            generation.decode(model, [[1]], max_len=most)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("row", [0, 1])
def test_logits_without_a_finite_maximum_raise(wrong: float, row: int) -> None:
    logits = np.array([[1.0, -np.inf], [2.0, 3.0]])
    assert generation.with_maximum(logits) is logits
    logits[row] = wrong
    with pytest.raises(ValueError, match=f"logits must have a finite maximum, got {wrong}; "):
        generation.with_maximum(logits)


@given(st.integers(0, 3), st.integers(1, 5), seeds)
def test_likeliest_token_has_its_log_probability(n: int, vocab: int, seed: int) -> None:
    logits = 700 * normal(seed, n, vocab)
    tokens, log_probs = generation.likeliest(logits)
    for row, token, log_prob in zip(logits, tokens, log_probs):
        assert row[token] == row.max()
        assert log_prob == pytest.approx(-np.log(np.exp(row - row.max()).sum()))
