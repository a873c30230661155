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
    config = nn.LanguageModelConfig(
        VOCAB, 16, 2, 2, 24, dropout=0.0, max_len=max_len, dtype="float64", **options
    )
    made = nn.LanguageModel(config, np.random.default_rng(0))
    for p in made.parameters():
        p.data *= 3
    return made


def greedy_by_definition(m: Any, prompt: list[int], count: int, rule: Any = None) -> list[int]:
    """Return the likeliest token, again and again, without cache and batch."""
    tokens = list(prompt)
    for new in range(count):
        logits = m.eval()(np.array([tokens])).data[0, -1].copy()
        tokens.append(int((logits if rule is None else rule(logits, tokens, new)).argmax()))
    return tokens[len(prompt) :]


def penalize_repetition(logits: np.ndarray, tokens: list[int], new: int) -> np.ndarray:
    for t in set(tokens):
        logits[t] = logits[t] / 1.7 if logits[t] > 0 else logits[t] * 1.7
    return logits


def forbid_repeated_pairs(logits: np.ndarray, tokens: list[int], new: int) -> np.ndarray:
    logits[[b for a, b in itertools.pairwise(tokens) if a == tokens[-1]]] = -np.inf
    return logits


def only(token: int) -> np.ndarray:
    return np.where(np.arange(VOCAB) == token, 0, -np.inf)


def force_first_and_suppress(logits: np.ndarray, tokens: list[int], new: int) -> np.ndarray:
    logits[[4, 7, 3] if new < 6 else [4, 7]] = -np.inf
    return logits if new > 1 else only([8, 9][new])


def forbid_words_and_force_last(logits: np.ndarray, tokens: list[int], new: int) -> np.ndarray:
    logits[4] = -np.inf
    if tokens[-1] in (1, 7, 10):
        logits[2:8] = -np.inf
    if new == 0:
        logits[[8, 9]] = -np.inf
    return logits if new < 11 else only(6)


WORDS = [[4], *([before, t] for before in (1, 7, 10) for t in range(2, 8))]


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"repetition_penalty": 1.7}, penalize_repetition),
        ({"no_repeat_ngram_size": 2}, forbid_repeated_pairs),
        (
            {"suppress": [4, 7], "min_len": 6, "first": [8, 9], "eos": 3},
            force_first_and_suppress,
        ),
        (
            {"bad_words": WORDS, "begin_suppress": [8, 9], "last": [6]},
            forbid_words_and_force_last,
        ),
    ],
)
def test_rules_equal_their_definitions_in_every_search(options: dict[str, Any], rule: Any) -> None:
    m, prompt = model(), [1, 5]
    options = {"max_len": 12, "eos": None, **options}
    expected = greedy_by_definition(m, prompt, 12, rule)
    if options["eos"] in expected:
        expected = expected[: expected.index(options["eos"]) + 1]
    assert nn.generate(m, prompt, **options) == expected
    assert list(nn.stream(m, prompt, **options)) == expected
    assert nn.sample(m, prompt=prompt, top_k=1, **options)[0].tokens == expected


def test_rules_hold_in_every_hypothesis_of_a_beam() -> None:
    m, prompt = model(), [1, 5]
    options = {"max_len": 12, "eos": 3, "min_len": 5, "suppress": [4, 7]}
    for h in nn.beam_search(m, prompt=prompt, beam_size=3, n_best=3, **options)[0]:
        assert len(h.tokens) >= 6 and not {4, 7} & set(h.tokens)
    options = {"max_len": 14, "eos": None, "no_repeat_ngram_size": 2}
    text = prompt + nn.beam_search(m, prompt=prompt, **options)[0][0].tokens
    assert len(set(itertools.pairwise(text))) == len(text) - 1


def test_generate_with_several_eos_ends_at_the_first() -> None:
    m = model(eos_id=[3, 5])
    free = nn.generate(m, [1, 2], max_len=20, eos=None)
    assert len(free) == 20
    seen = sorted(set(free))
    for eos in (seen[0], seen[:2], tuple(seen), np.int64(seen[-1])):
        end = int(np.isin(free, eos).argmax())
        assert nn.generate(m, [1, 2], max_len=20, eos=eos) == free[: end + 1]
    by_config = nn.generate(m, [1, 2], max_len=20)
    assert by_config == nn.generate(m, [1, 2], max_len=20, eos=[3, 5])


@pytest.mark.parametrize("positions", ["learned", "rotary"])
def test_generate_in_a_full_context_forgets_the_older_half(positions: str) -> None:
    m, prompt = model(max_len=8, positions=positions), [1, 2, 3]
    found = nn.generate(m, prompt, max_len=30)
    text, start = prompt + found, 0
    for i in range(len(prompt), len(text)):
        if i - start > 8:
            start = i - 4
        assert text[i : i + 1] == greedy_by_definition(m, text[start:i], 1)
    long = np.random.default_rng(0).integers(0, VOCAB, 50).tolist()
    assert nn.generate(m, long, max_len=1) == greedy_by_definition(m, long[-8:], 1)


def test_generate_without_position_table_has_no_length_limit() -> None:
    m = model(max_len=8, positions="alibi")
    assert nn.generate(m, [1, 2], max_len=20) == greedy_by_definition(m, [1, 2], 20)


@pytest.mark.parametrize(
    ("search", "prompt", "options", "message"),
    [
        *[(nn.generate, prompt, {}, "prompt must hold .* in each row, got") for prompt in ([], [[1], []], [1.5], [-1])],
        (nn.stream, [[1], [2]], {}, "stream: prompt must be one sequence, got 2"),
        (nn.generate, [1], {"repetition_penalty": 0}, "Rules: repetition_penalty must be finite, greater than 0, got 0"),
        (nn.generate, [1], {"no_repeat": 2}, "unexpected keyword argument 'no_repeat'"),
        (nn.generate, [1], {"bad_words": [[1], []]}, "bad_words must hold sequences of at least one token"),
        (nn.generate, [1], {"bad_words": [[1, 12]]}, "bad_words must hold token ids from 0 to 11, got 12"),
        *[(nn.generate, [1], {name: [12]}, f"{name} must hold token ids from 0 to 11, got 12")
          for name in ("suppress", "begin_suppress", "first", "last", "eos")],
        *[(nn.generate, [1], {name: wrong}, f"{name} must ") for name in ("suppress", "eos")
          for wrong in (np.array(3.0), [True], [1.5], "ab", [[1]], True)],
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


@pytest.mark.parametrize(
    "options",
    [{}, {"num_beams": 3}, *({"no_repeat_ngram_size": size} for size in (2, 3))],
    ids=str,
)
@pytest.mark.parametrize("positions", ["learned", "rotary"])
def test_generate_in_a_batch_equals_each_row_alone(positions: str, options: dict[str, Any]) -> None:
    """Fill the context with the longer rows only."""
    m = model(max_len=8, positions=positions)
    rows = [[1, 2, 3, 4, 5, 2, 7], [8], [9, 10, 9], list(range(12))]
    options = {"max_len": 12, "eos": None, **options}
    alone = [nn.generate(m, row, **options) for row in rows]
    assert nn.generate(m, rows, **options) == alone


@pytest.mark.parametrize("new", [1, 2])
def test_rules_with_min_len_forbid_eos_before_it(new: int) -> None:
    logits, history = np.zeros((1, VOCAB)), np.ones((1, 3), int)
    (row,) = nn.Rules(min_len=2).apply(logits, history, new, False, (3,))
    assert np.isfinite(row[3]) == (new >= 2)


def test_rules_of_padded_rows_leave_out_padding() -> None:
    rules, history = nn.Rules(no_repeat_ngram_size=1), np.array([[-1, -1, 4]])
    allowed = np.isfinite(rules.apply(np.zeros((1, VOCAB)), history, 0, False, ()))
    assert np.flatnonzero(~allowed[0]).tolist() == [4]


def test_generate_leaves_out_padding_in_a_prompt() -> None:
    m = model(pad_id=0)
    options = {"max_len": 6, "eos": None}
    expected = [nn.generate(m, row, **options) for row in ([1, 2], [3, 4, 5])]
    for padded in ([[1, 2, 0], [3, 4, 5]], [[0, 1, 2], [3, 4, 5]], [[1, 0, 2], [3, 4, 5]]):
        assert nn.generate(m, np.array(padded), **options) == expected
        assert nn.generate(m, padded, **options) == expected
    with pytest.raises(ValueError, match="prompt must hold at least one token in each row"):
        nn.generate(m, [0, 0])


@pytest.mark.parametrize("convert", [list, tuple, iter, np.array, set])
def test_rules_take_any_iterable_of_token_ids(convert: Any) -> None:
    m, options = model(), {"max_len": 4, "eos": None}
    free = nn.generate(m, [1, 2], **options)
    found = nn.generate(m, [1, 2], suppress=convert(free), first=convert([5]), **options)
    assert found == nn.generate(m, [1, 2], suppress=free, first=[5], **options)
    assert found[0] == 5 and not set(found[1:]) & set(free)
