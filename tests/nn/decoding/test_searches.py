"""Searches and rules against the enumeration of all sequences over a tiny vocabulary."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from support.environment import max_examples
from support.searches import (
    BOS,
    Beam,
    ForwardPasses,
    TableModel,
    Task,
    Tokens,
    beam_by_definition,
    choices,
    each_rule,
    log_softmax,
    models,
    rules_of,
)

import nn
from nn import generation
from nn.decoding.beam import _Beam, _largest

Problem = tuple[list[Task], dict[str, Any]]
"""The rows of a batch, and the arguments of a search that finds their continuations."""


@st.composite
def problems(draw: Any, vocab: int = 3, max_len: int = 4) -> Problem:
    """Draw a batch of prompts or of sources, EOS tokens, rules, and a limit of the context."""
    vocab, max_len = draw(st.integers(2, vocab)), draw(st.integers(1, max_len))
    translates = draw(st.booleans())
    vocab += 2 * translates  # the ids of BOS and EOS
    token = st.integers(0, vocab - 1)
    length = draw(st.integers(1, 3))
    prompts = st.lists(token, min_size=length if translates else 1, max_size=length)
    rows = draw(st.lists(prompts, min_size=1, max_size=3))
    limit = draw(st.none() | st.integers(2, 5)) if not translates else None
    ends = draw(st.lists(token, unique=True, max_size=2))
    in_config = draw(st.booleans())
    ids: dict[str, Any] = {"eos_id": ends} if in_config and ends else {}
    if not translates:
        ids["pad_id"] = draw(st.sampled_from([None, 0])) if 0 not in ends else None
    model = TableModel(vocab, draw(st.integers(0, 2**32 - 1)), translates, limit, **ids)
    rules = draw(rules_of(vocab))
    options = {"max_len": max_len, **rules}
    if not (in_config and ends):
        forms: list[Any] = [tuple(ends), set(ends), np.array(ends)] if ends else [None]
        forms += [ends[0], np.int64(ends[0])] if len(ends) == 1 else []
        options["eos"] = draw(st.sampled_from(forms))
    make = lambda prompt, source=(): Task(model, prompt, max_len, tuple(ends), source, limit, rules)
    hidden = model.config.masked_id
    texts = rows
    if translates:
        texts = [draw(st.lists(token, min_size=1, max_size=3)) for _ in rows]
    visible = [tuple(t for t in text if t != hidden) for text in texts]
    argument, form = (
        "source" if translates else "prompt",
        draw(st.sampled_from(["lists", "masked"])),
    )
    options[argument] = texts
    if form == "masked":  # what the mask shows is visible, also masked_id
        left = draw(st.booleans())
        options[argument] = nn.text.padded(texts, draw(token), left=left)
        options["padding_mask"] = nn.text.padded([[1] * len(t) for t in texts], 0, left=left) > 0
        visible = [tuple(text) for text in texts]
    if not translates:
        assume(all(visible))
        return [make(prompt) for prompt in visible], options
    if draw(st.booleans()):
        options["prompt"] = rows
        start = () if any(row[0] == BOS for row in rows) else (BOS,)
        return [make((*start, *row), text) for row, text in zip(rows, visible)], options
    return [make((BOS,), text) for text in visible], options


def found_by(search: Any, problem: Problem, **options: Any) -> Any:
    """Return the result of a search, or None if its rules leave no token."""
    tasks, arguments = problem
    tasks[0].model.fed.clear()
    try:
        return search(tasks[0].model, **arguments, **options)
    except ValueError as error:
        assert "leave no token" in str(error)
        return None


def approximately(hypotheses: list[tuple[Tokens, float, float]]) -> list[Any]:
    return [([*t], pytest.approx(p), pytest.approx(s)) for t, p, s in hypotheses]


def listed(hypotheses: list[nn.Hypothesis]) -> list[Any]:
    return [(h.tokens, h.log_prob, h.score) for h in hypotheses]


penalties = st.sampled_from([1.0, 0.0, 0.5, 2.5, -0.5])
stops = st.sampled_from([False, True, "never"])


@given(problems(max_len=3), penalties, stops, st.integers(1, 9))
def test_beam_as_wide_as_all_sequences_finds_the_best(
    problem: Problem, penalty: float, stop: Any, n_best: int
) -> None:
    """Sequences that the rules forbid are left out of the enumeration."""
    tasks, _ = problem
    size = max(n_best, tasks[0].model.vocab ** tasks[0].max_len)
    options = {"beam_size": size, "n_best": n_best, "length_penalty": penalty}
    found = found_by(nn.beam_search, problem, **options, early_stopping=stop)
    for i, task in enumerate(tasks):
        scored = [(t, p, p / len(t) ** penalty) for t, p in task.all_sequences()]
        scored.sort(key=lambda h: -h[2])
        if not scored:
            assert found is None
            return
        if found is not None:
            assert listed(found[i]) == approximately(scored[:n_best])


def assert_beams_equal_their_definition(
    problem: Problem, size: int, penalty: float, stop: Any
) -> None:
    """Compare all hypotheses, and the rows of each step: each row stops at its own step."""
    tasks, arguments = problem
    options = {"beam_size": size, "n_best": size, "length_penalty": penalty}
    found = found_by(nn.beam_search, problem, **options, early_stopping=stop)
    fed = [*tasks[0].model.fed]
    beams = [beam_by_definition(task, size, penalty, stop) for task in tasks]
    if not all(beam.finished for beam in beams):
        assert found is None
        return
    assert [listed(h) for h in found] == [approximately(b.finished) for b in beams]
    steps = max(len(beam.rows) for beam in beams)
    assert fed == [sum(b.rows[i] for b in beams if i < len(b.rows)) for i in range(steps)]
    if size > 1:
        chosen = {"length_penalty": penalty, "early_stopping": stop, "num_beams": size}
        assert found_by(nn.generate, problem, **chosen) == [h[0].tokens for h in found]
    if stop == "never":  # nothing is lost
        assert beams == [
            Beam(beam_by_definition(task, size, penalty, None).finished, beam.rows)
            for task, beam in zip(tasks, beams)
        ]


@given(problems(), penalties, stops, st.integers(1, 4))
def test_beam_search_equals_its_definition_without_batch(
    problem: Problem, penalty: float, stop: Any, size: int
) -> None:
    assert_beams_equal_their_definition(problem, size, penalty, stop)


@pytest.mark.parametrize(
    ("stop", "penalties"),
    [(False, [1.0, 0.0, 2.5]), (True, [1.0, -1.5]), ("never", [0.5, 1.0]), ("never", [0.0, -0.5])],
)
@max_examples(20)
@given(data=st.data())
def test_beam_search_of_long_texts_stops_at_the_step_of_its_definition(
    stop: Any, penalties: list[float], data: st.DataObject
) -> None:
    limit = data.draw(st.sampled_from([None, 3, 4, 5]), "limit")
    model = TableModel(4, data.draw(st.integers(0, 2**32 - 1), "seed"), limit=limit)
    rows = data.draw(
        st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=6), min_size=2, max_size=4),
        "rows",
    )
    ends = data.draw(st.sampled_from([(3,), (2, 3), (1, 2, 3)]), "ends")
    max_len = data.draw(st.integers(5, 8), "max_len")
    size, penalty = data.draw(st.integers(2, 4), "size"), data.draw(st.sampled_from(penalties))
    tasks = [Task(model, tuple(row), max_len, ends, limit=limit) for row in rows]
    arguments = {"prompt": rows, "max_len": max_len, "eos": ends}
    assert_beams_equal_their_definition((tasks, arguments), size, penalty, stop)


def test_beam_search_of_300_hypotheses_stops_when_all_are_finished() -> None:
    model = TableModel(400, 0)
    model.tables[0,] = np.arange(400) / 100  # token 0, which does not end, is the least likely
    options: dict[str, Any] = {"beam_size": 300, "eos": range(1, 400), "early_stopping": True}
    nn.beam_search(model, prompt=[[0]], max_len=4, **options)
    assert model.fed == [1]


def test_beam_search_keeps_equal_hypotheses_in_the_order_in_which_they_end() -> None:
    model = TableModel(4, 0)
    for text in ((0,), (0, 1), (0, 3)):
        model.tables[text] = np.zeros(4)
    (found,) = nn.beam_search(model, prompt=[[0]], beam_size=5, n_best=5, eos=[0, 2], max_len=2)
    assert [h.tokens for h in found] == [[0], [2], [1, 0], [1, 1], [1, 2]]


def test_beam_search_extends_300_of_400_hypotheses() -> None:
    model = TableModel(400, 0)
    nn.beam_search(model, prompt=[[0]], max_len=3, beam_size=300, eos=[0])
    assert model.fed == [1, 300, 300]


def test_searches_of_300_tokens_apply_the_rules_of_the_last() -> None:
    """Only token 1 may follow 299 forced tokens: 0 is suppressed there, and 2 would end earlier."""
    first = [0] * 299
    rules: dict[str, Any] = {"first": first, "begin_suppress": [0], "min_len": 300}
    options = {"prompt": [[0]], "max_len": 300, **rules}
    model = TableModel(3, 0, eos_id=2)
    model.tables[(0,) * 300] = np.array([1.0, 0.0, 0.0])
    assert nn.greedy_search(model, **options)[0].tokens == [*first, 1]
    assert nn.beam_search(model, **options)[0][0].tokens == [*first, 1]


@given(
    model=models(),
    rows=st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=8), min_size=1, max_size=3),
    size=st.integers(1, 3),
    max_len=st.integers(1, 9),
    rules=rules_of(5),
    for_inference=st.booleans(),
)
def test_beam_search_of_a_model_equals_one_by_forward_passes(
    model: Any,
    rows: list[list[int]],
    size: int,
    max_len: int,
    rules: dict[str, Any],
    for_inference: bool,
) -> None:
    """Caches follow the hypotheses; a full context forgets its older half; padding is not seen."""
    translates = isinstance(model, nn.Transformer)
    options: dict[str, Any] = {"max_len": max_len, **rules}
    if translates:
        width = max(map(len, rows))
        passes: Any = ForwardPasses(model, width)
        sources = nn.text.padded(rows)
        options["source"] = sources if for_inference else rows
        tasks = [
            Task(passes, (BOS,), max_len, (2,), tuple(s), None, rules) for s in sources.tolist()
        ]
    else:
        passes, config = ForwardPasses(model), model.config
        limit = config.position_limit
        options["prompt"] = rows
        tasks = [Task(passes, tuple(r), max_len, (4,), (), limit, rules) for r in rows]
    net = nn.for_inference(model) if for_inference else model
    beams = [beam_by_definition(task, size, 1.0, False) for task in tasks]
    assume(not any(beam.is_tied for beam in beams))
    try:
        found = nn.beam_search(net, beam_size=size, n_best=size, **options)
    except ValueError as error:
        assert "leave no token" in str(error) and not all(beam.finished for beam in beams)
        return
    for hypotheses, beam, task in zip(found, beams, tasks, strict=True):
        assert [h.score for h in hypotheses] == pytest.approx(
            [score for *_, score in beam.finished]
        )
        for h in hypotheses:
            before = [tuple(h.tokens[:i]) for i in range(len(h.tokens))]
            log_probs = [task.ruled(task.log_probs(t), t)[h.tokens[len(t)]] for t in before]
            assert h.log_prob == pytest.approx(sum(log_probs))
    try:
        tokens = nn.generate(net, **options)
    except ValueError as error:
        assert "leave no token" in str(error)
        return
    assert tokens == [[*choices(task, lambda ruled: int(ruled.argmax()))] for task in tasks]


@pytest.mark.parametrize(
    "names",
    [(), *((name,) for name in each_rule(4)), ("first", "last"), ("first", "begin_suppress")],
)
@max_examples(15)
@given(data=st.data())
def test_greedy_search_of_long_texts_follows_each_rule(
    names: tuple[str, ...], data: st.DataObject
) -> None:
    rows = data.draw(
        st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=6), min_size=3, max_size=8),
        "rows",
    )
    limit = data.draw(st.sampled_from([None, 3, 4, 5]), "limit")
    max_len = data.draw(st.integers(1 if "first" in names else 4, 9), "max_len")
    rules = {name: data.draw(each_rule(4)[name], name) for name in names}
    model = TableModel(4, data.draw(st.integers(0, 2**32 - 1), "seed"), limit=limit, eos_id=3)
    tasks = [Task(model, tuple(row), max_len, (3,), limit=limit, rules=rules) for row in rows]
    options = {"prompt": rows, "max_len": max_len, **rules}
    assert_greedy_search_equals_its_definition((tasks, options))


@given(problems(max_len=6))
def test_greedy_search_takes_the_likeliest_allowed_token(problem: Problem) -> None:
    assert_greedy_search_equals_its_definition(problem)


def assert_greedy_search_equals_its_definition(problem: Problem) -> None:
    tasks, arguments = problem
    found = found_by(nn.greedy_search, problem)
    fed = [*tasks[0].model.fed]
    try:
        expected = [(*choices(task, lambda ruled: int(ruled.argmax())),) for task in tasks]
    except ValueError:
        assert found is None
        return
    steps = max(map(len, expected))
    assert fed == [sum(len(tokens) > step for tokens in expected) for step in range(steps)]
    for h, tokens, task in zip(found, expected, tasks, strict=True):
        assert h.tokens == [*tokens]
        log_prob = sum(task.log_probs(tokens[:i])[t] for i, t in enumerate(tokens))
        assert h.log_prob == h.score == pytest.approx(log_prob)
    tokens = [[*t] for t in expected]
    assert found_by(nn.generate, problem) == tokens
    if not tasks[0].model.translates and len(tasks) == 1 and "padding_mask" not in arguments:
        [prompt] = arguments["prompt"]
        options = {**arguments, "prompt": prompt}
        assert [*nn.stream(tasks[0].model, **options)] == tokens[0]
        assert nn.generate(tasks[0].model, **options) == tokens[0]


class Drawn(np.random.Generator):
    """Generator of known numbers."""

    def __init__(self, numbers: Any) -> None:
        super().__init__(np.random.PCG64(0))
        self.numbers = iter(numbers)

    def random(self, size: Any = None, *args: Any, **options: Any) -> Any:
        return np.array([next(self.numbers) for _ in range(math.prod(size))]).reshape(size)


def distribution(ruled: np.ndarray, temperature: float, top_k: Any, top_p: Any, min_p: Any) -> Any:
    """Return log-probabilities of all tokens, and the probabilities of those to draw from."""
    log_probs = log_softmax(ruled / temperature)
    order = sorted(range(len(ruled)), key=lambda token: -log_probs[token])
    kept = [token for token in order if log_probs[token] > -math.inf][:top_k]
    probs = np.zeros(len(ruled))
    probs[kept] = np.exp(log_probs[kept])
    probs /= probs.sum()
    if top_p is not None:  # the fewest that add up to it
        sums = np.cumsum(probs[kept])
        assume(np.abs(sums - top_p).min() > 1e-9 or top_p == 1.0)
        kept = kept[: 1 + int((sums < top_p).sum())]
    if min_p is not None:
        ratios = probs[kept] / probs.max()
        assume(np.abs(ratios - min_p)[1:].min(initial=1.0) > 1e-9)
        kept = [token for token, ratio in zip(kept, ratios) if ratio >= min_p]
    chosen = np.where(np.isin(range(len(ruled)), kept), probs, 0.0)
    return log_probs, chosen / chosen.sum()


@pytest.mark.parametrize("restricted", ["top_k", "top_p", "min_p", "all"])
@max_examples(30)
@given(data=st.data())
def test_sample_draws_from_the_distribution_of_its_definition(
    restricted: str, data: st.DataObject
) -> None:
    """A number u gives the first token up to which the probabilities add up to u."""
    vocab = data.draw(st.sampled_from([6, 600]), "vocab")
    choices = {
        "top_k": st.integers(1, 6) | st.integers(1, vocab + 3),
        "top_p": st.sampled_from([0.8, 0.5, 0.95, 0.05, 1.0]),
        "min_p": st.sampled_from([0.05, 0.3, 0.0, 1.0]),
    }
    limits = {k: data.draw(v, k) for k, v in choices.items() if restricted in (k, "all")}
    temperature = data.draw(st.sampled_from([1.0, 0.3, 2.5]), "temperature")
    model = TableModel(vocab, data.draw(st.integers(0, 2**32 - 1), "seed"))
    options = {"temperature": temperature, **limits, "max_len": 1}
    of_all, probs = distribution(
        model.logits((0,)), temperature, *(limits.get(name) for name in choices)
    )
    numbers = (np.arange(40) + data.draw(st.floats(0.01, 0.99), "offset")) / 40
    expected = [[int((np.cumsum(probs) < u).sum())] for u in numbers]
    hypotheses = nn.sample(model, prompt=[[0]] * 40, generator=Drawn(numbers), **options)
    assert [h.tokens for h in hypotheses] == expected
    for h in hypotheses:
        assert h.log_prob == h.score == pytest.approx(of_all[h.tokens[0]])
    options |= {"do_sample": True}
    assert nn.generate(model, [[0]] * 40, generator=Drawn(numbers), **options) == expected
    first = nn.stream(model, [0], generator=Drawn(numbers[20:]), **options)
    assert [*first] == expected[20]


@given(problems(vocab=5), st.integers(0, 2**32 - 1))
def test_sample_follows_the_rules(problem: Problem, seed: int) -> None:
    tasks, _ = problem
    numbers = np.random.default_rng(seed).random(12)
    u = iter(numbers)
    expected: list[Tokens] = [()] * len(tasks)
    running = [*range(len(tasks))]
    found = found_by(nn.sample, problem, generator=Drawn(numbers))
    while running:
        rows = [tasks[i].model.logits(tasks[i].seen(expected[i])) for i in running]
        ruled = [tasks[i].ruled(row, expected[i]) for i, row in zip(running, rows)]
        if any(row.max() == -math.inf for row in ruled):
            assert found is None
            return
        for i, row in zip(running, ruled):
            sums = np.cumsum(np.exp(log_softmax(row)))
            expected[i] = (*expected[i], int((sums < next(u)).sum()))
        running = [i for i in running if not tasks[i].is_whole(expected[i])]
    assert [h.tokens for h in found] == [[*tokens] for tokens in expected]


# -- the searches of nn/generation.py, which have no options ----------------------------------------


@max_examples(50)
@given(
    rows=st.integers(1, 3),
    vocab=st.integers(1, 8),
    temperature=st.sampled_from([None, 0.3, 2.5, 1e-300]),
    seed=st.integers(0, 2**32 - 1),
    bound=st.sampled_from([None, 0.0, np.nextafter(1, 0)]),
)
def test_chosen_tokens_and_their_log_probabilities_equal_the_definition(
    rows: int, vocab: int, temperature: float | None, seed: int, bound: float | None
) -> None:
    """Also if the numbers that choose the tokens are the smallest or the largest of all."""
    rng = np.random.default_rng(seed)
    logits, numbers = 500 + 3 * rng.standard_normal((rows, vocab)), rng.random(rows)
    logits[(rng.random(logits.shape) < 0.3) & (logits < logits.max(-1, keepdims=True))] = -math.inf
    if bound is not None:
        numbers[:] = bound
    tokens, log_probs = generation.likeliest(logits)
    assert tokens.tolist() == [row.argmax() for row in logits]
    assert log_probs == pytest.approx([log_softmax(row).max() for row in logits])
    options = {} if temperature is None else {"temperature": temperature}
    tokens, log_probs = generation.sampled(logits, **options, generator=Drawn(numbers))
    for row, token, log_prob, u in zip(logits, tokens, log_probs, numbers, strict=True):
        of_row = log_softmax((row - row.max()) / options.get("temperature", 1.0))
        probs = np.exp(of_row)
        if bound is None:
            assert token == (np.cumsum(probs) < u).sum()
        else:  # the first or last token, but for those of no probability
            others = probs[token + 1 :] if bound else probs[:token]
            assert probs[token] > 0 and others.sum() == pytest.approx(0, abs=1e-14)
        assert log_prob == pytest.approx(of_row[token])


@pytest.mark.parametrize("temperature", [0, -1.5])
def test_sampled_with_temperature_that_is_not_positive_raises(temperature: float) -> None:
    with pytest.raises(
        ValueError, match="sampled: temperature must be finite, greater than 0, got"
    ):
        generation.sampled(np.zeros((1, 2)), temperature)


@given(max_len=st.sampled_from([1, 2, 3, 20]), appended=st.integers(0, 4))
@example(max_len=1, appended=2)
@example(max_len=300, appended=0)
@example(max_len=300, appended=2)
def test_steps_end_when_the_sequences_have_max_len_new_tokens(max_len: int, appended: int) -> None:
    """Tokens that the caller appends count."""
    model = TableModel(2, 0)
    decoding = generation.Decoding(model, model.start(), np.array([[0], [1]]), max_len)
    for _ in range(appended):
        decoding.logits()
        decoding.advance([1, 1])
    steps = itertools.islice(decoding.steps(generation.likeliest), max_len + 1)
    assert len([*steps]) == max(max_len - appended, 0)


@given(data=st.data(), translates=st.booleans(), max_len=st.integers(1, 6))
def test_generate_of_the_book_equals_greedy_search(
    data: st.DataObject, translates: bool, max_len: int
) -> None:
    model = TableModel(4, data.draw(st.integers(0, 2**32 - 1)), translates, eos_id=3)
    count, length = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3))
    texts = data.draw(arrays(int, (count, length), elements=st.integers(0, 2)))
    source, prompt = (texts, np.full((count, 1), BOS)) if translates else (None, texts)
    expected = nn.greedy_search(model, source, prompt=prompt, max_len=max_len)
    fed = [*model.fed]
    model.fed.clear()
    found = generation.decode(model, prompt, source=source, max_len=max_len)
    assert found == [h.tokens for h in expected] and model.fed == fed


def test_generate_of_the_book_ends_at_128_tokens_by_default() -> None:
    assert [len(tokens) for tokens in generation.decode(TableModel(2, 0), [[0]])] == [128]


# -- parts of the searches -------------------------------------------------------------------------


@pytest.mark.parametrize("penalty", [0.5, 1.0, 2.5, 0.0, -0.5, -1.5])
@pytest.mark.parametrize("stop", [False, True, "never"])
@max_examples(30)
@given(st.integers(1, 6), st.integers(0, 6), st.floats(-9, -0.1), st.floats(0.3, 3))
def test_beam_can_improve_if_a_length_that_counts_gives_a_higher_score(
    stop: Any, penalty: float, length: int, more: int, log_prob: float, factor: float
) -> None:
    """That is the present length, or with "never" any length up to the longest."""
    lengths = range(length, length + more + 1) if stop == "never" else [length]
    scores = [log_prob / n**penalty for n in lengths]
    worst = scores[0] * factor
    beam = _Beam(1, length + more, penalty, stop, ())
    beam.alive = [nn.Hypothesis([0] * length, log_prob)]
    beam.finished = [nn.Hypothesis([0], worst, worst)]
    assert beam._can_improve() == (stop is not True and max(scores) > worst)


@max_examples(60)
@given(
    st.data(),
    st.integers(1, 5) | st.integers(200, 300),
    st.sampled_from([3, 5, 1, 100]),
    st.integers(0, 2**32 - 1),
    st.booleans(),
    st.sampled_from([-1, 0, 7]),
)
def test_largest_of_many_values_are_those_of_a_sort(
    data: st.DataObject, count: int, width: int, seed: int, has_ties: bool, peak: int
) -> None:
    size = data.draw(st.integers(count, 9 * count * width), "size")
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 9, size) / 1.0 if has_ties else rng.standard_normal(size)
    x[rng.random(size) < 0.2] = rng.choice([-np.inf, np.nan])
    x[peak % size] = 9.0  # NumPy sorts up to 256 elements that it partitions
    found = _largest(x, count, width)
    assert found.tolist() == np.argsort(-x, kind="stable")[:count].tolist()
