"""Rules of generation, full contexts, prompts and streams."""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minigrad as mg
import nn
from nn.decoding.search import Sampling

VOCAB = 12


def model(max_len: int = 40, **options: Any) -> nn.LanguageModel:
    """Return a small random language model whose next tokens are clearly ranked."""
    config = nn.DecoderOnlyConfig(
        VOCAB, 16, 2, 2, 24, dropout=0.0, max_len=max_len, dtype="float64", **options
    )
    made = nn.LanguageModel(config, np.random.default_rng(0))
    for p in made.parameters():
        p.data *= 3
    return made


def test_rules_hold_in_every_search() -> None:
    m, prompt = model(), [1, 5]

    def options() -> dict[str, Any]:
        """Return token ids in several kinds of iterables."""
        ids = {"first": iter([9, 8]), "last": np.array([6]), "suppress": {4, 7}}
        return {**ids, "no_repeat_ngram_size": 2, "prompt": prompt, "eos": None, "max_len": 14}

    for tokens in (
        nn.generate(m, **options()),
        [*nn.stream(m, **options())],
        nn.sample(m, **options())[0].tokens,
        *(h.tokens for h in nn.beam_search(m, n_best=3, **options())[0]),
    ):
        assert (*tokens[:2], tokens[-1], len(tokens)) == (9, 8, 6, 14) and not {4, 7} & {*tokens}
        pairs = [*itertools.pairwise(prompt + tokens[:-1])]  # the last token is forced
        assert len({*pairs}) == len(pairs)


@pytest.mark.parametrize(
    ("search", "prompt", "options", "message"),
    [
        *[(nn.generate, prompt, {}, "prompt must hold .* in each row, got") for prompt in ([], [1.5], [-1])],
        (nn.generate, None, {}, "prompt must hold token ids for a LanguageModel"),
        (nn.generate, [[1], []], {}, r"prompt must hold at least one token in each row, got \[\]"),
        *[(nn.generate, prompt, {}, "prompt must be a sequence of token ids, or several of them, got") for prompt in (5, np.array(5), iter([5]))],
        (nn.generate, [1], {"source": [[1]]}, "source must be None for a LanguageModel"),
        (nn.stream, [[1], [2]], {}, "stream: prompt must be one sequence, got 2"),
        *[(nn.generate, [1], {"repetition_penalty": x}, f"repetition_penalty must be finite, greater than 0, got {x}")
          for x in (0, -1.5, math.inf, math.nan)],
        *(
            (f, [1], {"no_repeat": 2}, f"^{f.__name__}: options must be arguments of {f.__name__} or fields of Rules, got no_repeat$")
            for f in (nn.generate, nn.stream, nn.greedy_search, nn.sample, nn.beam_search)
        ),
        (nn.generate, [1], {"max_new_tokens": 5}, "^generate: options must be .* got max_new_tokens; write max_len$"),
        (nn.generate, [1], {"bad_words_ids": [[5]]}, "got bad_words_ids; write bad_words$"),
        (nn.generate, [1], {"bad_words": 1}, "bad_words must be an iterable of token ids, got 1"),
        (nn.generate, [1], {"bad_words": [[1], []]}, "bad_words must hold sequences of at least one token"),
        (nn.generate, [[1], 2], {}, r"prompt must hold token ids in each row, got int\d+ \(\)"),
        (nn.generate, [[[1, 2]]], {}, r"prompt must hold token ids in each row, got int\d+ \(1, 2\)"),
        (nn.generate, [1], {"eos": -2}, "eos must hold token ids from 0 to 11, got -2"),
        (nn.generate, [1], {"bad_words": [[1, 13]]}, "bad_words must hold token ids from 0 to 11, got 13"),
        (nn.generate, [1], {"bad_words": [[1, 12]]}, "bad_words must hold token ids from 0 to 11, got 12"),
        *[(nn.generate, [1], {name: [12]}, f"{name} must hold token ids from 0 to 11, got 12")
          for name in ("suppress", "begin_suppress", "first", "last", "eos")],
        *[(nn.generate, [1], {name: [-1]}, f"{name} must hold token ids from 0 to 11, got -1")
          for name in ("suppress", "begin_suppress", "first", "last")],
        *[(nn.generate, [1], {name: -1}, f"Rules: {name} must be at least 0, got -1") for name in ("min_len", "no_repeat_ngram_size")],
        *[(nn.generate, [1], {name: wrong}, f"Rules: {name} must be a ")
          for name in ("min_len", "no_repeat_ngram_size", "repetition_penalty") for wrong in (True, False)],
        *[(nn.generate, [1], {"eos": wrong}, "eos must ") for wrong in (np.array(3.0), [1.5], True)],
    ],
)  # fmt: skip
def test_generate_with_bad_arguments_raises(
    search: Any, prompt: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        search(model(), prompt, **options)


def test_stream_between_tokens_keeps_the_modes_of_the_caller() -> None:
    m = model()
    tokens = nn.stream(m, [1, 2], max_len=3)
    assert isinstance(next(tokens), int)
    assert mg.is_grad_enabled() and m.training
    assert len(list(tokens)) == 2


@pytest.mark.parametrize("convert", [list, np.array, lambda rows: np.array(rows, np.uint8)])
@pytest.mark.parametrize("padded", [[1, 3, 2], [2, 1, 3], [1, 2, 3]])
def test_generate_leaves_out_padding_in_a_prompt(padded: list[int], convert: Any) -> None:
    m = model(pad_id=2)
    found = nn.generate(m, convert([padded, [3, 4, 5]]), max_len=6)
    for tokens, row in zip(found, [[1, 3], [3, 4, 5]], strict=True):
        mask = np.ones((1, len(row)), bool)  # what it shows is read, whatever the id
        assert [tokens] == nn.generate(m, [row], padding_mask=mask, max_len=6)
    with pytest.raises(ValueError, match="prompt must hold at least one token in each row"):
        nn.generate(m, [2, 2])


@given(
    text=st.lists(st.integers(0, 1), max_size=4),
    words=st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=4), max_size=3),
)
def test_bad_words_forbid_the_tokens_that_would_complete_them(
    text: list[int], words: list[list[int]]
) -> None:
    """Also if the text so far is the start of a word, and nothing more."""
    history = np.array([[-1, *text]])
    logits = nn.Rules(bad_words=words).apply(np.zeros((1, 2)), history, 1, False, ())
    for token in (0, 1):
        is_bad = any([*text, token][-len(word) :] == word for word in words)
        assert np.isneginf(logits[0, token]) == is_bad


@given(st.lists(st.integers(0, 1), max_size=6))
def test_no_repeat_ngram_size_forbids_tokens_that_would_repeat_an_ngram(text: list[int]) -> None:
    """Test every size, also if the text so far is one token shorter or longer."""
    for n in range(1, len(text) + 3):
        rules = nn.Rules(no_repeat_ngram_size=n)
        logits = rules.apply(np.zeros((1, 2)), np.array([[-1, *text]]), 1, False, ())
        ngrams = [text[i : i + n] for i in range(len(text) - n + 1)]
        for token in (0, 1):
            assert np.isneginf(logits[0, token]) == ([*text, token][-n:] in ngrams)


def test_rules_are_immutable_and_hashable() -> None:
    rules = nn.Rules(suppress=[1], bad_words=[[1, 2]])
    same = (
        [(1,), np.array([1]), iter([np.uint8(1)])],
        [((1, 2),), np.array([[1, 2]]), map(iter, [[1, 2]])],
    )
    assert {rules, *(nn.Rules(suppress=a, bad_words=b) for a, b in zip(*same))} == {rules}
    with pytest.raises(dataclasses.FrozenInstanceError):
        rules.min_len = 2  # type: ignore[misc]


def test_default_rules_return_the_same_logits() -> None:
    logits = np.zeros((1, 2))
    assert nn.Rules().apply(logits, np.array([[0]]), 0, False, ()) is logits


def test_repetition_penalty_keeps_a_logit_of_zero() -> None:
    """The reciprocal of a denormal penalty is infinite."""
    rules = nn.Rules(repetition_penalty=1e-310)
    assert rules.apply(np.zeros((1, 2)), np.array([[0]]), 1, False, ()).tolist() == [[0, 0]]


def test_sample_at_a_tiny_temperature_is_greedy() -> None:
    m, prompts = model(), [[1, 2], [3, 4]]
    drawn = nn.sample(m, prompt=prompts, temperature=1e-308, max_len=6)
    assert [h.tokens for h in drawn] == nn.generate(m, prompts, max_len=6)


def test_top_p_leaves_out_tokens_behind_an_exact_sum() -> None:
    """The tokens before them have the probability top_p."""
    logits = np.array([[0.0, 0.0, -1e3]])
    kept = Sampling(top_p=float(np.exp(-np.log(2.0)))).restrict(logits)
    assert kept.tolist() == [[0.0, -math.inf, -math.inf]]


def test_top_p_among_equal_tokens_keeps_the_first() -> None:
    logits = -(np.arange(201) % 3.0)
    kept = Sampling(top_p=30.5 / np.exp(logits).sum()).restrict(logits[None])
    assert np.flatnonzero(np.isfinite(kept[0])).tolist() == [3 * i for i in range(31)]


def test_top_p_just_below_one_leaves_out_what_is_beyond_it() -> None:
    kept = Sampling(top_p=0.9995).restrict(np.log(np.array([[0.9996, 0.0004]])))
    assert np.isneginf(kept[0]).tolist() == [False, True]


@pytest.mark.parametrize("limits", [{"top_k": 3}, {"top_k": 4}, {"top_p": 1.0}, {"min_p": 0.0}])
def test_limits_without_effect_keep_improbable_tokens(limits: dict[str, Any]) -> None:
    log_probs = np.array([[-50.0, 0.0, -1e3]])
    assert Sampling(**limits).restrict(log_probs).tolist() == log_probs.tolist()


@given(st.integers(1, 300), st.integers(0, 2**32 - 1))
def test_top_k_keeps_the_k_largest_values_of_each_row(top_k: int, seed: int) -> None:
    log_probs = np.random.default_rng(seed).standard_normal((3, 301))
    found = Sampling(top_k=top_k).restrict(log_probs)
    order = np.sort(log_probs)
    order[:, :-top_k] = -np.inf
    assert np.sort(found).tolist() == order.tolist()
