"""Greedy, beam and sampled decoding against their definitions, without cache and batch."""

from __future__ import annotations

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
    mg.manual_seed(seed)
    base = {"source_vocab_size": 9, "target_vocab_size": VOCAB, "d_model": 8, "num_heads": 2, "num_encoder_layers": 1, "num_decoder_layers": 2, "d_ff": 16, "max_len": 12, "dtype": "float64"}  # fmt: skip
    model = nn.Transformer(nn.TransformerConfig(**{**base, **changes}))
    model.output.weight.data *= 4  # scores that differ
    return model


def log_probs(model: nn.Transformer, source: np.ndarray, sequences: list[list[int]]) -> np.ndarray:
    """Return the log probabilities of whole sequences of one length, from one forward pass."""
    target = np.array([[BOS, *tokens[:-1]] for tokens in sequences])
    with mg.no_grad(), nn.evaluating():
        scores = model(np.tile(source, (len(sequences), 1)), target).data
    logp = scores - np.log(np.exp(scores).sum(-1, keepdims=True))
    return np.take_along_axis(logp, np.array(sequences)[..., None], -1)[..., 0].sum(-1)


def log_prob(model: nn.Transformer, source: np.ndarray, tokens: list[int]) -> float:
    return float(log_probs(model, source, [tokens])[0]) if tokens else 0.0


def beam_by_definition(
    model: nn.Transformer,
    source: np.ndarray,
    size: int,
    max_len: int,
    penalty: float,
    prompt: Sequence[int] = (),
) -> list[Hypothesis]:
    """Search for one sentence, without an early end."""
    before = log_prob(model, source, [*prompt])
    alive, finished = [Hypothesis()], list[Hypothesis]()
    for length in range(1, max_len + 1):
        longer = [[*h.tokens, t] for h in alive for t in range(VOCAB)]
        totals = log_probs(model, source, [[*prompt, *tokens] for tokens in longer]) - before
        new = [
            Hypothesis(tokens, total, total / length**penalty)
            for tokens, total in zip(longer, totals.tolist())
        ]
        new.sort(key=lambda h: -h.log_prob)
        finished += [h for h in new[:size] if h.tokens[-1] == EOS or length == max_len]
        alive = [h for h in new if h.tokens[-1] != EOS][:size]
    return sorted(finished, key=lambda h: -h.score)[:size]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("penalty", [0.0, 1.0, -3.0])
def test_beam_search_equals_its_definition(seed: int, size: int, penalty: float) -> None:
    model = small(seed)
    options: dict[str, Any] = {"length_penalty": penalty, "early_stopping": "never"}
    found = nn.beam_search(model, SOURCES, beam_size=size, n_best=size, max_len=6, **options)
    for source, hypotheses in zip(SOURCES, found):
        expected = beam_by_definition(model, source, size, 6, penalty)
        assert [h.tokens for h in hypotheses] == [h.tokens for h in expected]
        np.testing.assert_allclose(
            [(h.log_prob, h.score) for h in hypotheses], [(h.log_prob, h.score) for h in expected]
        )


@pytest.mark.parametrize("seed", range(6))
def test_greedy_search_equals_a_beam_of_one(seed: int) -> None:
    model = small(seed)
    for source, h in zip(SOURCES, nn.greedy_search(model, SOURCES, max_len=6)):
        (expected,) = beam_by_definition(model, source, 1, 6, 0.0)
        assert h.tokens == expected.tokens
        assert h.log_prob == pytest.approx(expected.log_prob, rel=1e-9)


@pytest.mark.parametrize("beam_size", [1, 3])
def test_search_with_prompt_and_source_continues_the_prompt(beam_size: int) -> None:
    model = small(7)
    prompt = np.array([[4, 1], [3, 4], [4, 4]])
    expected = [
        beam_by_definition(model, source, beam_size, 5, 1.0, begin.tolist())[0].tokens
        for source, begin in zip(SOURCES, prompt)
    ]
    settings = {"length_penalty": 1.0, "early_stopping": "never"} if beam_size > 1 else {}
    for begin in (prompt, np.insert(prompt, 0, BOS, axis=1)):
        options = {"source": SOURCES, "num_beams": beam_size, "max_len": 5, **settings}
        assert nn.generate(model, begin, **options) == expected


@pytest.mark.parametrize(
    "changes",
    [{}, {"positions": "rotary", "attention": nn.AttentionConfig(num_kv_heads=1, qk_norm=True)}],
)
def test_search_of_no_sentences_is_empty(changes: dict[str, Any]) -> None:
    model, source = small(**changes), np.zeros((0, 4), int)
    for net in (model, nn.for_inference(model)):
        for search in (nn.greedy_search, nn.sample, nn.beam_search):
            assert search(net, source) == []
        with nn.record_attention(net) as recorded:
            nn.greedy_search(net, source)
        assert len(recorded["encoder.layers.0.self_attention"][0]) == 0
    assert model.loss(source, source).item() == 0


def test_greedy_search_without_eos_returns_max_len_tokens() -> None:
    found = nn.greedy_search(small(0), SOURCES, max_len=7, eos=None)
    assert [len(h.tokens) for h in found] == [7, 7, 7]


def restricted(
    p: np.ndarray,
    temperature: float = 1.0,
    top_k: int = VOCAB,
    top_p: float = 1.0,
    min_p: float = 0.0,
) -> np.ndarray:
    """Return the probabilities of sampling, by the definitions of its options."""
    p = p ** (1 / temperature) / (p ** (1 / temperature)).sum()
    rank = np.argsort(np.argsort(-p))
    likelier = np.array([p[rank < r].sum() for r in rank])
    p = np.where((rank < top_k) & (likelier < top_p) & (p >= min_p * p.max()), p, 0)
    return p / p.sum()


@pytest.mark.parametrize(
    "options",
    [{}, {"temperature": 0.5}, {"top_k": 2}, {"top_p": 0.8}, {"min_p": 0.85, "temperature": 10.0}],
    ids=str,
)
def test_sample_frequencies_equal_the_probabilities(options: dict[str, Any]) -> None:
    model, source, n = small(2), SOURCES[:1], 4000
    p = np.exp([log_prob(model, source, [t]) for t in range(VOCAB)])
    many, rng = np.repeat(source, n, axis=0), np.random.default_rng(0)
    drawn = nn.sample(model, many, max_len=1, generator=rng, **options)
    frequencies = np.bincount([h.tokens[0] for h in drawn], minlength=VOCAB) / n
    np.testing.assert_allclose(frequencies, restricted(p, **options), atol=0.03)


def test_sample_with_one_seed_repeats_its_tokens() -> None:
    model = small(2)
    found, again = (
        nn.sample(model, SOURCES, max_len=6, generator=np.random.default_rng(5)) for _ in range(2)
    )
    assert [h.tokens for h in found] == [h.tokens for h in again]
    for h, source in zip(found, SOURCES):
        assert h.log_prob == pytest.approx(log_prob(model, source, h.tokens), rel=1e-9)


def test_search_keeps_the_modes_of_the_model() -> None:
    model = small()
    model.encoder.eval()
    nn.greedy_search(model, SOURCES, max_len=3)
    assert model.training and not model.encoder.training and model.decoder.training
    assert mg.is_grad_enabled()


TRANSFORMER = small()
LANGUAGE_MODEL = nn.LanguageModel(nn.LanguageModelConfig(9, 8, 2, 1, 16, max_len=12))
NAN, LENGTHS = float("nan"), "prompt must hold tokens of one length for each of"
SIZE, PENALTY = (
    "beam_size must be an integer from 1 to 1000, got",
    "length_penalty must be a number from -20",
)
EARLY = "early_stopping must be False, True or 'never', got"


@pytest.mark.parametrize(
    "search, options, message",
    [
        (nn.beam_search, {"beam_size": 2, "n_best": 3}, r"n_best must be from 1 to beam_size \(2\), got 3"),
        *((nn.beam_search, {"beam_size": size}, SIZE) for size in (0, 2.5, True, 1001)),
        *((nn.beam_search, {"length_penalty": penalty}, PENALTY) for penalty in (-1e308, NAN, 20.5, "1")),
        *((nn.beam_search, {"early_stopping": early}, EARLY) for early in ("always", None, 2)),
        (nn.sample, {"temperature": 0}, "temperature must be above 0, got 0"),
        (nn.sample, {"top_k": 0}, "top_k must be at least 1, got 0"),
        (nn.sample, {"top_p": 1.5}, "top_p must be above 0 and at most 1, got 1.5"),
        (nn.sample, {"min_p": -0.5}, "min_p must be a number from 0 to 1, got -0.5"),
        (nn.greedy_search, {"max_len": 0}, "max_len must be at least 1, got 0"),
        (nn.greedy_search, {"max_len": 13, "eos": None}, "x must have at most 12 positions, got 13"),
        (nn.greedy_search, {"source": None}, "source must hold token ids for a Transformer, got None"),
        (nn.generate, {"num_beams": 3, "n_best": 2}, "n_best must be given to beam_search"),
        (nn.generate, {"temperature": 0.5}, "do_sample must be True for .*temperature=0.5"),
        (nn.generate, {"min_p": 0.1}, "do_sample must be True for .*min_p=0.1"),
        (nn.generate, {"num_beams": 2, "do_sample": True}, "num_beams must be 1 with do_sample=True"),
        (nn.generate, {"length_penalty": 0.5}, "num_beams must be above 1 for .*length_penalty=0.5"),
        *((nn.generate, {"prompt": prompt}, LENGTHS) for prompt in ([[1], [2, 3], [4]], [[1, 2]], [1])),
    ],
)  # fmt: skip
def test_search_with_bad_arguments_raises(
    search: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        search(TRANSFORMER, **{"source": SOURCES, **options})


@pytest.mark.parametrize(
    "options, message",
    [
        ({"source": SOURCES, "prompt": [1, 2]}, "source must be None for a LanguageModel"),
        ({}, "prompt must hold token ids for a LanguageModel"),
    ],
)
def test_generate_of_a_language_model_with_other_inputs_raises(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        nn.generate(LANGUAGE_MODEL, **options)


def test_beam_search_at_its_limits_returns_hypotheses() -> None:
    assert nn.beam_search(TRANSFORMER, SOURCES, beam_size=1000, length_penalty=-20, max_len=2)
