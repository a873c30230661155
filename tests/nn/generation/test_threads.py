"""Translators, language models and encoders in eight threads give the results of one thread."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_folders import encoder_folder

import minigrad as mg
import nn
from nn.text import SPECIALS, SpaceTokenizer, Vocabulary

pytestmark = pytest.mark.slow


def same_in_threads(say: Callable[[Any], Any], parts: list[Any]) -> list[Any]:
    """Return the results of one thread, which eight threads must equal."""
    alone = [say(part) for part in parts]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(say, parts)) == alone
    return alone


WORDS = [f"w{i}" for i in range(40)]
VOCAB = Vocabulary([*SPECIALS, *WORDS])


@pytest.fixture(params=[True, False], ids=["inference", "training"])
def prepared(request: pytest.FixtureRequest) -> Callable[[Any], Any]:
    """Return a function that makes outputs differ, and makes a copy for inference or not."""

    def prepare(model: Any) -> Any:
        for p in model.parameters():
            p.data[...] *= 3
        return nn.for_inference(model) if request.param else model

    mg.manual_seed(0)
    return prepare


def test_translate_in_eight_threads_equals_one_thread(prepared: Callable[[Any], Any]) -> None:
    """Use a model with dropout while attention is recorded."""
    config = nn.TransformerConfig(44, 44, 16, 2, 1, 1, 32, dropout=0.4, max_len=32)
    model, split = prepared(nn.Transformer(config)), SpaceTokenizer()
    translator = nn.Translator(model, VOCAB, VOCAB, split, split)
    rng, mode = np.random.default_rng(0), model.training
    texts = [" ".join(rng.choice(WORDS, rng.integers(1, 7))) for _ in range(1000)]

    def say(part: list[str]) -> Any:
        found = translator.translate(part, beam_size=1 + len(part[0]) % 2, max_len=10)
        maps, *_ = translator.attention(found[0])
        return [t.text for t in found], float(maps["cross"][0].sum().round(2))

    said = same_in_threads(say, [texts[i::40] for i in range(40)])
    assert len({text for part, _ in said for text in part}) > 50
    assert model.training is mode


def test_generate_in_eight_threads_equals_one_thread(prepared: Callable[[Any], Any]) -> None:
    """Greedy search, beam search, sampling and streams, with attention recorded in between."""
    config = nn.LanguageModelConfig(44, 16, 2, 1, 32, dropout=0.4, positions="rotary", max_len=24)
    model, rng = prepared(nn.LanguageModel(config)), np.random.default_rng(0)
    prompts = [rng.integers(44, size=(3, rng.integers(1, 6))).tolist() for _ in range(48)]

    def say(part: list[list[int]]) -> Any:
        number = sum(map(sum, part))
        drawn = {"do_sample": True, "top_p": 0.9, "generator": np.random.default_rng(number)}
        kind = ({}, {"num_beams": 2}, drawn)[number % 3]
        with nn.record_attention(model) as maps:
            streamed = list(nn.stream(model, part[0], max_len=8))
        sums = [float(w.sum().round(3)) for weights in maps.values() for w in weights]
        return nn.generate(model, part, max_len=8, **kind), streamed, sums

    assert len({str(found) for found in same_in_threads(say, prompts)}) == 48


def test_encode_in_eight_threads_equals_one_thread(tmp_path: Path) -> None:
    """Change the maximal length, a setting of the tokenizer, in each call."""
    pytest.importorskip("tokenizers", reason="the tokenizers of published models need it")
    encoder = nn.sentence_encoder(encoder_folder(tmp_path))
    rng = np.random.default_rng(0)
    texts = [
        " ".join(rng.choice(["the", "cat", "sat", "on"], rng.integers(1, 18))) for _ in range(1000)
    ]

    def say(part: list[str]) -> Any:
        found = encoder.encode(part, batch_size=3 + len(part[0]) % 5).tobytes()
        return found, encoder.text.encode(part, max_len=3 + len(part[0]) % 9)

    same_in_threads(say, [texts[i::50] for i in range(50)])
