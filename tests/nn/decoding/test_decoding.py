"""Arguments, modes and random numbers of the searches; test_searches.py compares results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.searches import TableModel

import minigrad as mg
import nn
from nn import generation

VOCAB = 5  # <pad> <bos> <eos> <unk> and one word
SOURCES = np.array([[4, 5, 6], [7, 8, 0], [5, 0, 0]])


def small(seed: int = 0, **changes: Any) -> nn.Transformer:
    """Return a small random Transformer in float64."""
    config = nn.EncoderDecoderConfig(
        9, VOCAB, 8, 2, 1, 2, 16, max_len=12, dtype="float64", **changes
    )
    model = nn.Transformer(config, np.random.default_rng(seed))
    model.output.weight.data *= 4  # scores that differ
    return model


@pytest.mark.parametrize("convert", [list, np.array])
def test_search_of_sources_of_different_lengths_equals_each_alone(convert: Any) -> None:
    model, rows = small(0), [[4, 5, 6], [7, 8], [5]]
    padded = nn.text.padded(rows, 8)
    mask = nn.text.padded([[1] * len(row) for row in rows], 0) > 0
    alone = [nn.greedy_search(model, [row], max_len=5)[0] for row in rows]
    for hypotheses in (
        nn.greedy_search(model, [convert(row) for row in rows], max_len=5),
        nn.greedy_search(model, padded, padding_mask=mask, max_len=5),
        nn.greedy_search(model, padded.tolist(), padding_mask=mask, max_len=5),
        nn.sample(model, rows, top_k=1, max_len=5),
        [best for best, *_ in nn.beam_search(model, rows, beam_size=1, max_len=5)],
    ):
        assert [h.tokens for h in hypotheses] == [h.tokens for h in alone]
        found = [h.log_prob for h in hypotheses]
        assert found == pytest.approx([h.log_prob for h in alone], rel=1e-12)
    with pytest.raises(ValueError, match="padding_mask must be None for sources of different le"):
        nn.generate(model, source=rows, padding_mask=mask)
    for wrong in ([[4.0], [5, 6]], [[4, 5], []]):
        with pytest.raises(ValueError, match="source must "):
            nn.generate(model, source=wrong)


def test_translation_begins_with_a_token_of_any_number() -> None:
    config = nn.EncoderDecoderConfig(9, 70_000, 4, 1, 1, 1, 4, bos_id=69_999, max_len=4)
    model = nn.Transformer(config, np.random.default_rng(0)).eval()
    expected = model([[4, 5]], [[69_999]]).data.argmax()
    assert nn.generate(model, source=[[4, 5]], max_len=1) == [[expected]]


SEARCHES: dict[str, Any] = {
    "greedy_search": lambda model: nn.greedy_search(model, prompt=[1, 2], max_len=3),
    "sample": lambda model: nn.sample(model, prompt=[1, 2], max_len=3),
    "sample, top_k": lambda model: nn.sample(model, prompt=[1, 2], top_k=2, max_len=3),
    "beam_search": lambda model: nn.beam_search(model, prompt=[1, 2], beam_size=2, max_len=3),
    "generate": lambda model: nn.generate(model, [1, 2], max_len=3),
    "stream": lambda model: list(nn.stream(model, [1, 2], max_len=3)),
    "draft": lambda model: nn.generate(model, [1, 2], max_len=3, prompt_lookup_num_tokens=2),
    "suppress": lambda model: nn.generate(model, [1, 2], max_len=3, suppress=[3]),
    "generation": lambda model: generation.decode(model, [[1, 2]], max_len=3),
}


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("search", SEARCHES)
def test_search_of_logits_without_finite_maximum_raises(search: str, value: float) -> None:
    config = nn.LanguageModelConfig(9, 8, 2, 1, 16, max_len=12, tie=False, output_bias=True)
    model = nn.LanguageModel(config, np.random.default_rng(0))
    model.output.bias.data[...] = value
    with pytest.raises(
        ValueError, match=f"logits must have a finite maximum, got {value}; weights"
    ):
        SEARCHES[search](model)
    model.output.bias.data[...] = 0
    model.output.bias.data[4] = -np.inf  # a token of probability zero
    SEARCHES[search](model)


def test_search_of_no_sentences_is_empty() -> None:
    attention = nn.AttentionConfig(num_kv_heads=1, qk_norm=True)
    model, source = small(positions="rotary", attention=attention), np.zeros((0, 4), int)
    for net in (model, nn.for_inference(model)):
        for search in (nn.greedy_search, nn.sample, nn.beam_search):
            assert search(net, source) == []


def test_sample_with_one_seed_repeats_its_tokens() -> None:
    model = small(12)
    found, again = (
        nn.sample(model, SOURCES, max_len=6, generator=np.random.default_rng(5)) for _ in range(2)
    )
    assert found == again


def test_beam_search_with_numpy_scalars_equals_one_with_python_numbers() -> None:
    numbers = {"beam_size": 3, "length_penalty": 0.5, "n_best": 2}
    scalars = {name: np.float32(x) if x == 0.5 else np.int64(x) for name, x in numbers.items()}
    found, expected = (nn.beam_search(small(), SOURCES, max_len=5, **x) for x in (scalars, numbers))
    assert found == expected


@pytest.mark.parametrize("n_best", [1, 2])
def test_generate_with_n_best_returns_that_number_for_each_row(n_best: int) -> None:
    best = nn.beam_search(small(), SOURCES, max_len=4, beam_size=2, n_best=n_best)
    found = nn.generate(small(), source=SOURCES, max_len=4, num_beams=2, n_best=n_best)
    assert found == [[h.tokens for h in row] for row in best]


def test_beam_search_takes_its_largest_size_and_penalties() -> None:
    for options in ({"beam_size": 1000}, {"length_penalty": 20}, {"length_penalty": -20}):
        assert nn.beam_search(small(), SOURCES, max_len=2, **options)


DEFAULTS = {
    nn.greedy_search: {"max_len": 128, "scores": True},
    nn.sample: {"max_len": 128, "temperature": 1.0},
    nn.beam_search: {
        "beam_size": 4,
        "max_len": 128,
        "length_penalty": 1.0,
        "early_stopping": False,
        "n_best": 1,
    },
    nn.generate: {"num_beams": 1, "do_sample": False, "max_len": 128},
    nn.stream: {"max_len": 128, "do_sample": False},
}
"""Default values of options of the searches."""


@pytest.mark.parametrize("search", DEFAULTS)
@pytest.mark.parametrize("ends", [None, 5])
def test_search_without_options_is_that_with_the_default_values(search: Any, ends: Any) -> None:
    """The sequences are as long as they may be, or end early."""
    results = []
    for options in ({}, DEFAULTS[search]):
        model = TableModel(6, 3)
        random = {"generator": np.random.default_rng(0)} if search is nn.sample else {}
        prompt = [0] if search is nn.stream else [[0], [1]]
        found = search(model, prompt=prompt, eos=ends, **options, **random)
        results.append(([*found], model.fed))
    assert results[0] == results[1]
    assert ends is not None or len(results[0][1]) == 128


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
        (nn.greedy_search, {"source": np.array(5)}, r"source must be integer token ids \(N, L\), got int\d+ \(\)"),
        *((nn.beam_search, {"beam_size": size}, "beam_size must be an integer from 1 to 1000, got") for size in (0, True, 1001)),
        *((nn.beam_search, {"length_penalty": x}, "length_penalty must be a number from -20") for x in (float("nan"), 20.5, "1")),
        *((nn.beam_search, {"early_stopping": x}, "early_stopping must be False, True or 'never', got") for x in ("always", "yes")),
        *((nn.sample, {"temperature": x}, f"temperature must be above 0, got {x}") for x in (0, -1.5)),
        (nn.sample, {"top_k": 0}, "top_k must be at least 1, got 0"),
        *((nn.sample, {"top_p": x}, f"top_p must be above 0 and at most 1, got {x}") for x in (0, -0.5, 1.5)),
        *((nn.sample, {"min_p": x}, f"min_p must be a number from 0 to 1, got {x}") for x in (-0.5, 1.5)),
        (nn.beam_search, {"length_penalty": -20.5}, "length_penalty must be a number from -20"),
        (nn.generate, {"num_beams": 0}, "beam_size must be an integer from 1 to 1000, got 0"),
        (nn.generate, {"early_stopping": True}, "num_beams must be above 1 for .*early_stopping=True"),
        *((nn.generate, option, "do_sample must be True for ") for option in ({"top_k": 2}, {"top_p": 0.5}, {"min_p": 0.5})),
        (nn.greedy_search, {"max_len": 0}, "max_len must be at least 1, got 0"),
        (nn.greedy_search, {"max_len": 13, "eos": None}, "x must have at most 12 positions, got 13"),
        (nn.greedy_search, {"source": None}, "source must hold token ids for a Transformer, got None"),
        (nn.generate, {"n_best": 2}, "num_beams must be above 1 with n_best=2"),
        (nn.generate, {"temperature": 0.5}, "do_sample must be True for .*temperature=0.5"),
        (nn.generate, {"num_beams": 2, "top_k": 5}, "do_sample must be True for .*top_k=5"),
        (nn.generate, {"num_beams": 2, "do_sample": True}, "num_beams must be 1 with do_sample=True"),
        (nn.generate, {"length_penalty": 0.5}, "num_beams must be above 1 for .*length_penalty=0.5"),
        *((nn.generate, {"prompt": x}, rf"prompt must hold tokens of one length .* got lengths \[{lengths}\]")
          for x, lengths in (([[0], [2, 0], [4]], "1, 2, 1"), ([[1, 2]], "2"), ([[1]] * 5, "1, 1, 1, 1, 1"))),
    ],
)  # fmt: skip
def test_search_with_bad_arguments_raises(
    search: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        search(small(), **{"source": SOURCES, **options})
