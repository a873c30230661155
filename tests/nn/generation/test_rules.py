"""Rules of generation, full contexts, prompts and streams."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import minigrad as mg
import nn

VOCAB = 12


def model(max_len: int = 40, **options: Any) -> nn.LanguageModel:
    """Return a small random language model whose next tokens are clearly ranked."""
    config = nn.LanguageModelConfig(
        VOCAB, 16, 2, 2, 24, dropout=0.0, max_len=max_len, dtype="float64", **options
    )
    made = nn.LanguageModel(config, np.random.default_rng(0))
    for p in made.parameters():
        p.data *= 3
    return made


def greedy_by_definition(m: Any, prompt: list[int], count: int) -> list[int]:
    """Return the likeliest token, again and again, without cache and batch."""
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(int(m.eval()(np.array([tokens])).data[0, -1].argmax()))
    return tokens[len(prompt) :]


@pytest.mark.parametrize(
    ("rules", "new", "forbidden"),
    [
        ({"no_repeat_ngram_size": 2}, 2, {4, 8}),
        ({"no_repeat_ngram_size": 3}, 2, {4}),
        ({"bad_words": [[7], [1, 2], [5, 1, 3], [4, 1, 6], [5, 8]]}, 2, {7, 2, 3}),
        ({"suppress": [4, 7]}, 2, {4, 7}),
        ({"begin_suppress": [4, 7], "first": [9, 8]}, 2, {4, 7}),
        ({"begin_suppress": [4, 7]}, 2, set()),
        ({"first": [9, 8]}, 1, {*range(VOCAB)} - {8}),
        ({"last": [6, 2]}, 5, {*range(VOCAB)} - {6, 2}),
        ({"last": [6]}, 2, set()),
        ({"min_len": 3}, 2, {3, 10}),
        ({"min_len": 2}, 2, set()),
    ],
)
def test_rules_forbid_tokens_after_a_padded_history(
    rules: dict[str, Any], new: int, forbidden: set[int]
) -> None:
    history = np.array([[-1, -1, 5, 1, 4, 1, 8, 5, 1]])
    (row,) = nn.Rules(**rules).apply(np.zeros((1, VOCAB)), history, new, new == 5, (3, 10))
    assert {*np.flatnonzero(row).tolist()} == forbidden and (row <= 0).all()


def test_rules_with_repetition_penalty_divide_or_multiply_logits() -> None:
    rules, logits = nn.Rules(repetition_penalty=2.0), np.array([[3.0, -3.0, 3.0, -3.0]])
    found = rules.apply(logits, np.array([[-1, 2, 1, 1]]), 1, False, ())
    assert found.tolist() == [[3.0, -6.0, 1.5, -3.0]]


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


def test_generate_with_several_eos_ends_at_the_first() -> None:
    free = nn.generate(model(), [1, 2], max_len=20, eos=None)
    ends = sorted({*free})[:2]
    end = min(map(free.index, ends)) + 1
    assert len(free) == 20 and nn.generate(model(eos_id=ends), [1, 2], max_len=20) == free[:end]
    for eos in (tuple(ends), np.int64(free[end - 1])):
        assert nn.generate(model(), [1, 2], max_len=20, eos=eos) == free[:end]


@pytest.mark.parametrize("positions", ["learned", "rotary"])
def test_generate_in_a_full_context_forgets_the_older_half(positions: str) -> None:
    m, prompt = model(max_len=8, positions=positions), list(range(11))
    text, start = prompt + nn.generate(m, prompt, max_len=30), 3
    for i in range(len(prompt), len(text)):
        if i - start > 8:
            start = i - 4
        assert text[i : i + 1] == greedy_by_definition(m, text[start:i], 1)


def test_generate_without_position_table_has_no_length_limit() -> None:
    m = model(max_len=8, positions="alibi")
    assert nn.generate(m, [1, 2], max_len=20) == greedy_by_definition(m, [1, 2], 20)


@pytest.mark.parametrize(
    ("search", "prompt", "options", "message"),
    [
        *[(nn.generate, prompt, {}, "prompt must hold .* in each row, got") for prompt in ([], [1.5], [-1])],
        (nn.generate, None, {}, "prompt must hold token ids for a LanguageModel"),
        *[(nn.generate, prompt, {}, "prompt must be a sequence of token ids, or several of them, got") for prompt in (5, np.array(5), iter([5]))],
        (nn.generate, [1], {"source": [[1]]}, "source must be None for a LanguageModel"),
        (nn.stream, [[1], [2]], {}, "stream: prompt must be one sequence, got 2"),
        (nn.generate, [1], {"repetition_penalty": 0}, "repetition_penalty must be finite, greater than 0, got 0"),
        *(
            (f, [1], {"no_repeat": 2}, f"^{f.__name__}: options must be arguments of {f.__name__} or fields of Rules, got no_repeat$")
            for f in (nn.generate, nn.stream, nn.greedy_search, nn.sample, nn.beam_search)
        ),
        (nn.generate, [1], {"max_new_tokens": 5}, "^generate: options must be .* got max_new_tokens; write max_len$"),
        (nn.generate, [1], {"bad_words_ids": [[5]]}, "got bad_words_ids; write bad_words$"),
        (nn.generate, [1], {"bad_words": 1}, "bad_words must be an iterable of token ids, got 1"),
        (nn.generate, [1], {"bad_words": [[1], []]}, "bad_words must hold sequences of at least one token"),
        (nn.generate, [1], {"bad_words": [[1, 12]]}, "bad_words must hold token ids from 0 to 11, got 12"),
        *[(nn.generate, [1], {name: [12]}, f"{name} must hold token ids from 0 to 11, got 12")
          for name in ("suppress", "begin_suppress", "first", "last", "eos")],
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


@pytest.mark.parametrize("options", [{}, {"num_beams": 3}, {"no_repeat_ngram_size": 2}], ids=str)
@pytest.mark.parametrize("positions", ["learned", "rotary"])
def test_generate_in_a_batch_equals_each_row_alone(positions: str, options: dict[str, Any]) -> None:
    """Fill the context with the longer rows only."""
    m = model(max_len=8, positions=positions)
    rows = [[1, 2, 3, 4, 5, 2, 7], [8], [9, 10, 9], list(range(12))]
    options = {"max_len": 12, "eos": None, **options}
    assert nn.generate(m, rows, **options) == [nn.generate(m, row, **options) for row in rows]


@pytest.mark.parametrize("convert", [list, np.array])
@pytest.mark.parametrize("padded", [[1, 2, 0], [0, 1, 2], [1, 0, 2]])
def test_generate_leaves_out_padding_in_a_prompt(padded: list[int], convert: Any) -> None:
    m = model(pad_id=0)
    found = nn.generate(m, convert([padded, [3, 4, 5]]), max_len=6)
    assert found == [nn.generate(m, row, max_len=6) for row in ([1, 2], [3, 4, 5])]
    with pytest.raises(ValueError, match="prompt must hold at least one token in each row"):
        nn.generate(m, [0, 0])
