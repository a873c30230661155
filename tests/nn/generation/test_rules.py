"""Rules of generation, full contexts, prompts and streams."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import nn
from nn.generation.decoding import Decoding

VOCAB = 12


def model(max_len: int = 40, **options: Any) -> nn.LanguageModel:
    config = nn.LanguageModelConfig(
        VOCAB, 16, 2, 2, 24, dropout=0.0, max_len=max_len, dtype="float64", **options
    )
    made = nn.LanguageModel(config, np.random.default_rng(0))
    for p in made.parameters():
        p.data *= 3
    return made


def greedy_by_definition(
    m: Any, prompt: list[int], count: int, rule: Any = None, window: int = 10**9
) -> list[int]:
    """Return the likeliest token after the last `window` ones, again and again, without cache and batch."""
    tokens = list(prompt)
    for new in range(count):
        logits = m.eval()(np.array([tokens[-window:]])).data[0, -1].copy()
        tokens.append(int((logits if rule is None else rule(logits, tokens, new)).argmax()))
    return tokens[len(prompt) :]


def test_rules_equal_their_definitions_in_every_search() -> None:
    m = model(eos_id=3)
    prompt = [1, 5]

    def penalty(logits: np.ndarray, tokens: list[int], new: int) -> np.ndarray:
        for t in set(tokens):
            logits[t] = logits[t] / 1.7 if logits[t] > 0 else logits[t] * 1.7
        return logits

    def no_pair_twice(logits: np.ndarray, tokens: list[int], new: int) -> np.ndarray:
        pairs = set(itertools.pairwise(tokens))
        return np.array([-np.inf if (tokens[-1], t) in pairs else x for t, x in enumerate(logits)])

    def others(logits: np.ndarray, tokens: list[int], new: int) -> np.ndarray:
        logits[[4, 7]] = -np.inf
        if new < 6:
            logits[3] = -np.inf
        return logits if new > 1 else np.where(np.arange(VOCAB) == [8, 9][new], 0, -np.inf)

    def words_and_ends(logits: np.ndarray, tokens: list[int], new: int) -> np.ndarray:
        logits[4] = -np.inf
        for before in (1, 7, 10):
            if tokens[-1] == before:
                logits[2:8] = -np.inf
        if new == 0:
            logits[[8, 9]] = -np.inf
        return logits if new < 11 else np.where(np.arange(VOCAB) == 6, 0, -np.inf)

    words = [[4], *([before, t] for before in (1, 7, 10) for t in range(2, 8))]
    for options, rule in [
        ({"bad_words": words, "begin_suppress": [8, 9], "last": [6]}, words_and_ends),
        ({"repetition_penalty": 1.7}, penalty), ({"no_repeat_ngram_size": 2}, no_pair_twice),
        ({"suppress": [4, 7], "min_len": 6, "first": [8, 9]}, others),
    ]:  # fmt: skip
        eos = 3 if "min_len" in options else None
        expected = greedy_by_definition(m, prompt, 12, rule)
        if eos in expected:
            expected = expected[: expected.index(eos) + 1]
        assert nn.generate(m, prompt, max_len=12, eos=eos, **options) == expected
        assert list(nn.stream(m, prompt, max_len=12, eos=eos, **options)) == expected
        assert (
            nn.sample(m, prompt=prompt, max_len=12, top_k=1, eos=eos, **options)[0].tokens
            == expected
        )
    beams = nn.beam_search(
        m, prompt=prompt, max_len=12, beam_size=3, n_best=3, eos=3, min_len=5, suppress=[4, 7]
    )[0]
    assert all(len(h.tokens) >= 6 and not {4, 7} & set(h.tokens) for h in beams)
    (twice,) = nn.beam_search(m, prompt=prompt, max_len=14, eos=None, no_repeat_ngram_size=2)[0]
    text = prompt + twice.tokens
    assert len(set(itertools.pairwise(text))) == len(text) - 1


def test_generate_with_several_eos_ends_at_the_first() -> None:
    m = model(eos_id=[3, 5])
    assert m.config.end_ids == (3, 5)
    free = nn.generate(m, [1, 2], max_len=20, eos=None)
    assert len(free) == 20
    seen = sorted(set(free))
    for eos in (seen[0], seen[:2], tuple(seen), np.int64(seen[-1])):
        marks = {int(t) for t in np.atleast_1d(eos)}
        end = next(i for i, t in enumerate(free) if t in marks)
        assert nn.generate(m, [1, 2], max_len=20, eos=eos) == free[: end + 1]
    own = next((i for i, t in enumerate(free) if t in (3, 5)), 19)
    assert nn.generate(m, [1, 2], max_len=20) == free[: own + 1]


@pytest.mark.parametrize("positions", ["learned", "rotary"])
def test_generate_in_a_full_context_forgets_the_older_half(positions: str) -> None:
    m = model(max_len=8, positions=positions)
    prompt = [1, 2, 3]
    found = nn.generate(m, prompt, max_len=30)
    text, start = prompt + found, 0
    for i in range(
        len(prompt), len(text)
    ):  # by definition: where 8 are seen, the older half is forgotten
        if i - start > 8:
            start = i - 4
        assert text[i] == int(m.eval()(np.array([text[start:i]])).data[0, -1].argmax())
    long = np.random.default_rng(0).integers(0, VOCAB, 50).tolist()
    assert nn.generate(m, long, max_len=1) == greedy_by_definition(m, long, 1, window=8)
    assert nn.generate(m, [long, prompt], max_len=30)[1] == found
    assert len(nn.beam_search(m, prompt=prompt, max_len=30, eos=None)[0][0].tokens) == 30


def test_generate_without_position_table_has_no_length_limit() -> None:
    m = model(max_len=8, positions="alibi")
    assert nn.generate(m, [1, 2], max_len=20) == greedy_by_definition(m, [1, 2], 20)


def test_generate_of_prompts_of_different_lengths_equals_each_row_alone() -> None:
    m = model()
    rows = [[1, 2, 3], [4], [5, 6]]
    together = nn.generate(m, rows, max_len=6)
    assert together == [nn.generate(m, row, max_len=6) for row in rows]
    assert nn.generate(m, np.array([1, 2, 3]), max_len=6) == together[0]
    history = Decoding(m, None, rows, 4, None, nn.Rules()).history
    np.testing.assert_array_equal(history, [[1, 2, 3], [-1, -1, 4], [-1, 5, 6]])
    for prompt in ([], [[1], []], [1.5], [-1]):
        with pytest.raises(ValueError, match="prompt must hold .* in each row, got"):
            nn.generate(m, prompt)
    with pytest.raises(ValueError, match="stream: prompt must be one sequence, got 2"):
        nn.stream(m, [[1], [2]])
    with pytest.raises(ValueError, match="num_beams must be 1 with do_sample=True"):
        nn.generate(m, [1], num_beams=2, do_sample=True)
    with pytest.raises(
        ValueError, match="Rules: repetition_penalty must be finite, greater than 0, got 0"
    ):
        nn.generate(m, [1], repetition_penalty=0)
    with pytest.raises(TypeError, match="unexpected keyword argument 'no_repeat'"):
        nn.generate(m, [1], no_repeat=2)


def test_stream_between_tokens_keeps_the_modes_of_the_caller() -> None:
    import minigrad as mg

    m = model()
    tokens = nn.stream(m, [1, 2], max_len=3)
    assert isinstance(next(tokens), int)
    assert mg.is_grad_enabled() and m.training
    assert len(list(tokens)) == 2


@pytest.mark.parametrize("positions", ["learned", "rotary"])
def test_generate_in_a_batch_that_fills_the_context_equals_each_row_alone(positions: str) -> None:
    m = model(max_len=8, positions=positions)
    rows = [[1, 2, 3, 4, 5, 6, 7], [8], [9, 10, 11], list(range(12))]
    alone = [nn.generate(m, row, max_len=12, eos=None) for row in rows]
    assert nn.generate(m, rows, max_len=12, eos=None) == alone
    beams = [nn.generate(m, row, max_len=12, eos=None, num_beams=3) for row in rows]
    assert nn.generate(m, rows, max_len=12, eos=None, num_beams=3) == beams


@pytest.mark.parametrize("size", [1, 2, 3])
def test_no_repeat_ngram_size_in_a_padded_batch_equals_each_row_alone(size: int) -> None:
    m, rows = model(), [[1, 2, 3, 4, 5, 2], [6], [7, 6, 7]]
    options = {"max_len": 5, "eos": None, "no_repeat_ngram_size": size}
    alone = [nn.generate(m, row, **options) for row in rows]
    assert nn.generate(m, rows, **options) == alone
    once = nn.Rules(no_repeat_ngram_size=1)
    history = np.array([[-1, -1, 4]])
    assert np.isfinite(once.apply(np.zeros((1, VOCAB)), history, 0, False, ())[0, -1])


def test_generate_leaves_out_padding_in_a_prompt() -> None:
    m = model(pad_id=0)
    options = {"max_len": 6, "eos": None}
    expected = [nn.generate(m, row, **options) for row in ([1, 2], [3, 4, 5])]
    for padded in ([[1, 2, 0], [3, 4, 5]], [[0, 1, 2], [3, 4, 5]], [[1, 0, 2], [3, 4, 5]]):
        assert nn.generate(m, np.array(padded), **options) == expected
        assert nn.generate(m, padded, **options) == expected
    assert m.eval()(np.array([[1, 2, 0]])).data[0, 1].argmax() == expected[0][0]
    with pytest.raises(ValueError, match="prompt must hold at least one token in each row"):
        nn.generate(m, [0, 0])


@pytest.mark.parametrize("convert", [list, tuple, iter, np.array, set])
def test_rules_take_any_iterable_of_token_ids(convert: Any) -> None:
    m = model()
    free = nn.generate(m, [1, 2], max_len=4, eos=None)
    expected = nn.generate(m, [1, 2], max_len=4, eos=None, suppress=free, first=[5])
    options: dict[str, Any] = {"suppress": convert(free), "first": convert([5])}
    assert nn.generate(m, [1, 2], max_len=4, eos=None, **options) == expected
    assert expected[0] == 5 and not set(expected[1:]) & set(free)
    for name in ("suppress", "begin_suppress", "first", "last", "eos"):
        for wrong in (np.array(3.0), [True], [1.5], "ab", [[1]], True):
            with pytest.raises(TypeError, match=f"{name} must "):
                nn.generate(m, [1, 2], **{name: wrong})
        with pytest.raises(ValueError, match=f"{name} must hold token ids from 0 to 11, got 12"):
            nn.generate(m, [1, 2], **{name: [12]})
    with pytest.raises(ValueError, match="bad_words must hold sequences of at least one token"):
        nn.generate(m, [1, 2], bad_words=[[1], []])
    with pytest.raises(ValueError, match="bad_words must hold token ids from 0 to 11, got 12"):
        nn.generate(m, [1, 2], bad_words=[[1, 12]])
