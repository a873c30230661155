"""Greedy, beam and sampled decoding against definitions that try every sequence."""

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

VOCAB = 5  # <pad> <bos> <eos> <unk> and one word: small enough to try everything


def small(seed: int = 0, **changes: Any) -> nn.Transformer:
    mg.manual_seed(seed)
    base = {"source_vocab_size": 9, "target_vocab_size": VOCAB, "d_model": 8, "num_heads": 2, "num_encoder_layers": 1, "num_decoder_layers": 2, "d_ff": 16, "max_len": 12, "dtype": "float64"}  # fmt: skip
    model = nn.Transformer(nn.TransformerConfig(**{**base, **changes}))
    model.output.weight.data *= 4  # scores that differ
    return model


def log_probs(model: nn.Transformer, source: np.ndarray, sequences: list[list[int]]) -> list[float]:
    """Return the log probabilities of whole sequences, from one forward pass without cache."""
    model.eval()
    target = np.full((len(sequences), max(map(len, sequences))), EOS)
    for row, tokens in zip(target, sequences):
        row[: len(tokens)] = [BOS, *tokens[:-1]]
    with mg.no_grad():
        scores = model(np.tile(source, (len(sequences), 1)), target).data
    logp = scores - np.log(np.exp(scores).sum(-1, keepdims=True))
    return [
        float(sum(row[i, t] for i, t in enumerate(tokens))) for row, tokens in zip(logp, sequences)
    ]


def log_prob(model: nn.Transformer, source: np.ndarray, tokens: list[int]) -> float:
    return log_probs(model, source, [tokens])[0]


def all_sequences(max_len: int) -> list[list[int]]:
    words = [t for t in range(VOCAB) if t != EOS]
    ended = [[*s, EOS] for n in range(max_len) for s in itertools.product(words, repeat=n)]
    return ended + [list(s) for s in itertools.product(words, repeat=max_len)]


SOURCES = np.array([[4, 5, 6], [7, 8, 0], [5, 0, 0]])


@pytest.mark.parametrize("length_penalty", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_beam_search_that_keeps_everything_finds_the_best_of_all(
    seed: int, length_penalty: float
) -> None:
    model, max_len = small(seed), 4
    found = nn.beam_search(
        model,
        SOURCES,
        beam_size=256,
        max_len=max_len,
        length_penalty=length_penalty,
        early_stopping="never",
        n_best=5,
    )
    for source, best in zip(SOURCES, found):
        sequences = all_sequences(max_len)
        every = list(zip(log_probs(model, source, sequences), sequences))
        every.sort(key=lambda pair: -pair[0] / len(pair[1]) ** length_penalty)
        for h, (expected, tokens) in zip(best, every[:5]):
            assert h.tokens == tokens
            assert h.log_prob == pytest.approx(expected, rel=1e-9)
            assert h.score == pytest.approx(expected / len(tokens) ** length_penalty, rel=1e-9)


def beam_by_definition(
    model: Any,
    source: np.ndarray,
    size: int,
    max_len: int,
    penalty: float,
    prompt: Sequence[int] = (),
) -> Hypothesis:
    """Search for one sentence without cache, batch and early end."""
    before = log_prob(model, source, list(prompt)) if prompt else 0.0
    alive, finished = [Hypothesis()], []
    for length in range(1, max_len + 1):
        longer = [[*h.tokens, t] for h in alive for t in range(VOCAB)]
        totals = log_probs(model, source, [[*prompt, *tokens] for tokens in longer])
        new = [Hypothesis(tokens, total - before) for tokens, total in zip(longer, totals)]
        new.sort(key=lambda h: -h.log_prob)
        finished += [h for h in new[:size] if h.tokens[-1] == EOS or length == max_len]
        alive = [h for h in new if h.tokens[-1] != EOS][:size]
    return max(finished, key=lambda h: h.log_prob / len(h.tokens) ** penalty)


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("penalty", [0.0, 1.0])
def test_beam_search_equals_its_definition(size: int, penalty: float) -> None:
    for seed in range(4):
        model = small(seed)
        for source, (h,) in zip(
            SOURCES,
            nn.beam_search(
                model,
                SOURCES,
                beam_size=size,
                max_len=6,
                length_penalty=penalty,
                early_stopping="never",
            ),
        ):
            expected = beam_by_definition(model, source, size, 6, penalty)
            assert h.tokens == expected.tokens and h.log_prob == pytest.approx(
                expected.log_prob, rel=1e-9
            )


def test_greedy_search_takes_the_likeliest_token_until_eos() -> None:
    for seed in range(6):
        model = small(seed)
        for source, h in zip(SOURCES, nn.greedy_search(model, SOURCES, max_len=6)):
            tokens: list[int] = []
            while len(tokens) < 6 and EOS not in tokens:
                tokens.append(
                    int(np.argmax(log_probs(model, source, [[*tokens, t] for t in range(VOCAB)])))
                )
            assert h.tokens == tokens
            assert h.log_prob == pytest.approx(log_prob(model, source, tokens), rel=1e-9)
            assert EOS not in h.tokens[:-1]


def test_search_in_a_batch_equals_each_sentence_alone() -> None:
    model = small(1)
    together = nn.greedy_search(model, SOURCES, max_len=8)
    beams = nn.beam_search(model, SOURCES, beam_size=3, max_len=8)
    for i, source in enumerate(SOURCES):
        alone = source[source != 0][None]
        assert nn.greedy_search(model, alone, max_len=8)[0].tokens == together[i].tokens
        assert (
            nn.beam_search(model, alone, beam_size=3, max_len=8)[0][0].tokens == beams[i][0].tokens
        )


@pytest.mark.parametrize(
    "changes",
    [{}, {"positions": "rotary", "attention": nn.AttentionConfig(num_kv_heads=1, qk_norm=True)}],
)
def test_search_of_no_sentences_is_empty(changes: dict[str, Any]) -> None:
    model, source = small(**changes), np.zeros((0, 4), int)
    for net in (model, nn.for_inference(model)):
        for search in (
            nn.greedy_search,
            nn.sample,
            nn.beam_search,
            lambda m, s: nn.generate(m, source=s, num_beams=3),
        ):
            assert search(net, source) == []
        with nn.record_attention(net) as recorded:
            nn.greedy_search(net, source)
        assert {len(w) for w in recorded["encoder.layers.0.self_attention"]} == {0}
    assert model.train().loss(source, source).item() == 0


def test_greedy_search_without_eos_returns_max_len_tokens() -> None:
    model = small(0)
    assert [len(h.tokens) for h in nn.greedy_search(model, SOURCES, max_len=7, eos=None)] == [
        7,
        7,
        7,
    ]


def test_sample_frequencies_equal_the_probabilities() -> None:
    model, source = small(2), SOURCES[:1]
    scores = model.eval()(source, np.array([[BOS]])).data[0, 0]
    p = np.exp(scores) / np.exp(scores).sum()
    many = np.repeat(source, 4000, axis=0)
    rng = np.random.default_rng(0)
    first = lambda **options: (
        np.bincount(
            [h.tokens[0] for h in nn.sample(model, many, max_len=1, generator=rng, **options)],
            minlength=VOCAB,
        )
        / 4000
    )
    np.testing.assert_allclose(first(), p, atol=0.03)
    sharp = p**2 / (p**2).sum()
    np.testing.assert_allclose(first(temperature=0.5), sharp, atol=0.03)
    order = np.argsort(-p)
    two = np.where(np.isin(np.arange(VOCAB), order[:2]), p, 0)
    np.testing.assert_allclose(first(top_k=2), two / two.sum(), atol=0.03)
    enough = int(np.searchsorted(np.cumsum(p[order]), 0.8)) + 1
    nucleus = np.where(np.isin(np.arange(VOCAB), order[:enough]), p, 0)
    np.testing.assert_allclose(first(top_p=0.8), nucleus / nucleus.sum(), atol=0.03)
    flat = p**0.1 / p.max() ** 0.1  # at a temperature of 10
    least = np.sort(flat)[[-3, -4]].mean()  # three tokens are as likely as this share, or more
    three = np.where(flat > least, flat, 0)
    found = first(min_p=least, temperature=10.0)
    np.testing.assert_allclose(found, three / three.sum(), atol=0.03)
    one = nn.sample(model, source, max_len=6, top_k=1)[0]
    assert one.tokens == nn.greedy_search(model, source, max_len=6)[0].tokens
    a, b = (
        nn.sample(model, SOURCES, max_len=6, generator=np.random.default_rng(5)) for _ in range(2)
    )
    assert [h.tokens for h in a] == [h.tokens for h in b]
    for h, source in zip(a, SOURCES):
        assert h.log_prob == pytest.approx(log_prob(model, source, h.tokens), rel=1e-9)


def test_search_with_a_prompt_continues_it() -> None:
    mg.manual_seed(0)
    model = nn.LanguageModel(nn.LanguageModelConfig(9, 8, 2, 2, 16, max_len=12, dtype="float64"))
    prompt = np.array([[1, 4, 5], [1, 6, 7]])
    for row, h in zip(prompt, nn.greedy_search(model, prompt=prompt, max_len=5, eos=None)):
        tokens = row.tolist()
        for token in h.tokens:
            assert token == int(model.eval()(np.array([tokens])).data[0, -1].argmax())
            tokens.append(token)
    assert len(nn.beam_search(model, prompt=prompt, beam_size=2, max_len=4)) == 2
    assert len(nn.sample(model, prompt=prompt, max_len=4)) == 2


def test_search_keeps_the_modes_of_the_model() -> None:
    model = small()
    model.encoder.eval()
    nn.greedy_search(model, SOURCES, max_len=3)
    assert model.training and not model.encoder.training and model.decoder.training
    assert mg.is_grad_enabled()


@pytest.mark.parametrize("beam_size", [1, 3])
def test_search_with_prompt_and_source_continues_the_prompt(beam_size: int) -> None:
    model = small(7)
    prompt = np.array([[4, 1], [3, 4], [4, 4]])
    expected = [
        beam_by_definition(model, source, beam_size, 5, 1.0, begin.tolist()).tokens
        for source, begin in zip(SOURCES, prompt)
    ]
    settings = {"length_penalty": 1.0, "early_stopping": "never"} if beam_size > 1 else {}
    for begin in (prompt, np.insert(prompt, 0, BOS, axis=1)):
        options = {"source": SOURCES, "num_beams": beam_size, "max_len": 5, **settings}
        assert nn.generate(model, begin, **options) == expected


TRANSFORMER = small()
LANGUAGE_MODEL = nn.LanguageModel(nn.LanguageModelConfig(9, 8, 2, 1, 16, max_len=12))
NAN, INF = float("nan"), float("inf")


def rejects(function: Any, message: str, **values: Sequence[Any]) -> list[Any]:
    """Return a row for each value of each argument: the function, its arguments, the message."""
    return [(function, {name: v}, message) for name, listed in values.items() for v in listed]


@pytest.mark.parametrize(
    "search, options, message",
    [
        (nn.beam_search, {"beam_size": 2, "n_best": 3}, r"n_best must be from 1 to beam_size \(2\), got 3"),
        *rejects(nn.beam_search, "beam_size must be an integer from 1 to 1000, got", beam_size=[0, -1, 2.5, True, 1001, 100_000, "4"]),
        *rejects(nn.beam_search, "length_penalty must be a number from -20 to 20, got", length_penalty=[1e308, -1e308, NAN, INF, 20.5, "1", None]),
        *rejects(nn.beam_search, "early_stopping must be False, True or 'never', got", early_stopping=["always", None, 2]),
        (nn.sample, {"temperature": 0}, "temperature must be above 0, got 0"),
        (nn.sample, {"top_k": 0}, "top_k must be at least 1, got 0"),
        (nn.sample, {"top_p": 1.5}, "top_p must be above 0 and at most 1, got 1.5"),
        (nn.sample, {"min_p": -0.5}, "min_p must be a number from 0 to 1, got -0.5"),
        (nn.greedy_search, {"max_len": 0}, "max_len must be at least 1, got 0"),
        (nn.greedy_search, {"max_len": 13, "eos": None}, "x must have at most 12 positions, got 13"),
        (nn.greedy_search, {"source": None}, "source must hold token ids for a Transformer, got None"),
        (nn.generate, {"num_beams": 3, "n_best": 2}, "n_best must be given to beam_search"),
        (nn.generate, {"temperature": 0.5}, "do_sample must be True for .*temperature=0.5"),
        (nn.generate, {"top_k": 3}, "do_sample must be True for .*top_k=3"),
        (nn.generate, {"top_p": 0.9}, "do_sample must be True for .*top_p=0.9"),
        (nn.generate, {"min_p": 0.1}, "do_sample must be True for .*min_p=0.1"),
        (nn.generate, {"length_penalty": 0.5}, "num_beams must be above 1 for .*length_penalty=0.5"),
        (nn.generate, {"early_stopping": True}, "num_beams must be above 1 for .*early_stopping=True"),
        *rejects(nn.generate, "prompt must hold tokens of one length for each of", prompt=[[[1], [2, 3], [4]], [[1, 2]], [1]]),
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
        ({"source": SOURCES}, "source must be None for a LanguageModel"),
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
