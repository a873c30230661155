"""Drafts that are looked up in the text: the tokens of greedy search, in fewer passes."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support.searches import models, rules_of

import nn
from nn.decoding.drafts import continuation


def looked_up(history: list[int], length: int) -> list[int]:
    """Return the draft by its definition: the latest occurrence of two tokens, or of one."""
    for n in (2, 1):
        for start in range(len(history) - n - 1, -1, -1):
            if n < len(history) and history[start : start + n] == history[-n:]:
                return history[start + n :][: max(0, length)]
    return []


@pytest.mark.parametrize("length", [-1, 0, 1, 2, 9])
def test_continuation_follows_the_latest_occurrence(length: int) -> None:
    """Test all texts of at most five tokens out of three."""
    for size in range(1, 6):
        for history in map(list, itertools.product(range(3), repeat=size)):
            assert continuation(np.array(history), length) == looked_up(history, length)


def passes_by_definition(
    prompt: list[int], tokens: list[int], most: int, max_len: int
) -> list[int]:
    """Return the sizes of the passes in which drafts of at most `most` tokens yield these tokens."""
    passes, i, read = [], 0, 0
    while i < len(tokens):
        draft = looked_up(prompt + tokens[:i], min(most, max_len - i - 1))
        right = 0
        while right < len(draft) and tokens[i + right : i + right + 1] == [draft[right]]:
            right += 1
        passes.append(len(prompt) + i - read + len(draft))
        i, read = i + right + 1, len(prompt) + i + right
    return passes


@given(
    model=models().filter(lambda model: isinstance(model, nn.LanguageModel)),
    prompt=st.lists(st.integers(1, 3), min_size=1, max_size=8),
    most=st.integers(1, 6),
    max_len=st.integers(1, 20),
    rules=rules_of(5),
    for_inference=st.booleans(),
)
def test_search_with_drafts_takes_the_tokens_of_greedy_search(
    model: Any, prompt: list[int], most: int, max_len: int, rules: dict[str, Any], for_inference: bool
) -> None:  # fmt: skip
    """Rejected tokens leave the cache, also beside a table of positions that is full."""
    passes = []

    class Counting(type(model)):
        def step(self, tokens: Any, *args: Any, **options: Any) -> Any:
            passes.append(np.shape(tokens)[1])
            return super().step(tokens, *args, **options)

    options = {"max_len": max_len, **rules}
    try:
        tokens = nn.generate(model, prompt, **options)
    except ValueError as error:
        assume("leave no token" not in str(error))
        raise
    model.__class__ = Counting
    net: Any = nn.for_inference(model) if for_inference else model
    options["prompt_lookup_num_tokens"] = most
    assert nn.generate(net, prompt, **options) == tokens
    if model.config.position_limit is None:
        assert passes == passes_by_definition(prompt, tokens, most, max_len)
    assert [*nn.stream(net, prompt, **options)] == tokens
    [hypothesis] = nn.greedy_search(net, prompt=[prompt], **options)
    [expected] = nn.greedy_search(model, prompt=[prompt], max_len=max_len, **rules)
    assert hypothesis.tokens == tokens
    assert hypothesis.log_prob == pytest.approx(expected.log_prob)


def test_drafts_are_refused_where_tokens_are_not_the_likeliest() -> None:
    model = nn.LanguageModel(nn.LanguageModelConfig(5, 8, 2, 1, 8))
    drafts: dict[str, Any] = {"prompt_lookup_num_tokens": 2}
    for call, message in (
        (
            lambda: nn.generate(model, [1], do_sample=True, **drafts),
            "do_sample must be False with",
        ),
        (lambda: nn.stream(model, [1], do_sample=True, **drafts), "do_sample must be False with"),
        (lambda: nn.generate(model, [1], num_beams=2, **drafts), "num_beams must be 1 with"),
        (
            lambda: nn.generate(model, [[1], [2]], **drafts),
            "prompt must be one sequence .* got 2",
        ),
        (
            lambda: nn.generate(model, [1], prompt_lookup_num_tokens=0),
            "must be at least 1, got 0",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    translator = nn.Transformer(nn.TransformerConfig(5, 5, 8, 2, 1, 1, 8))
    with pytest.raises(ValueError, match="model must be a language model .* got Transformer"):
        nn.generate(translator, source=[[1]], **drafts)
