"""Translators, language models and encoders in eight threads give the results of one thread."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_folders import WORDS, encoder_folder

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


def sharpened(model: Any) -> Any:
    """Return the model with larger parameters, so that its outputs differ."""
    for p in model.parameters():
        p.data[...] *= 3
    return model


@pytest.mark.parametrize("inference", [True, False])
def test_translate_in_eight_threads_equals_one_thread(inference: bool) -> None:
    """Use a model with dropout while attention is recorded."""
    mg.manual_seed(0)
    words = [f"w{i}" for i in range(40)]
    vocab, split = Vocabulary([*SPECIALS, *words]), SpaceTokenizer()
    config = nn.TransformerConfig(44, 44, 16, 2, 1, 1, 32, dropout=0.4, max_len=32)
    trained = sharpened(nn.Transformer(config))
    model = nn.for_inference(trained) if inference else trained
    translator = nn.Translator(model, vocab, vocab, split, split)
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(words, rng.integers(1, 7))) for _ in range(1000)]

    def say(part: list[str]) -> Any:
        found = translator.translate(part, beam_size=1 + len(part[0]) % 2, max_len=10)
        maps, *_ = translator.attention(found[0])
        return [t.text for t in found], float(maps["cross"][0].sum().round(2))

    said = same_in_threads(say, [texts[i::40] for i in range(40)])
    assert trained.training is True  # a translator does not change its model
    assert len({text for part, _ in said for text in part}) > 50


@pytest.mark.parametrize("inference", [True, False])
def test_generate_in_eight_threads_equals_one_thread(inference: bool) -> None:
    """Greedy search, beam search, sampling and streams, with attention recorded in between."""
    mg.manual_seed(0)
    options: dict[str, Any] = {"dropout": 0.4, "positions": "rotary", "max_len": 24}
    trained = sharpened(nn.LanguageModel(nn.LanguageModelConfig(30, 16, 2, 1, 32, **options)))
    model = nn.for_inference(trained) if inference else trained
    rng = np.random.default_rng(0)
    prompts = [
        [rng.integers(30, size=rng.integers(1, 6)).tolist() for _ in range(3)] for _ in range(48)
    ]

    def say(part: list[list[int]]) -> Any:
        number = sum(map(sum, part))
        drawn = {"do_sample": True, "top_p": 0.9, "generator": np.random.default_rng(number)}
        kind = ({}, {"num_beams": 2}, drawn)[number % 3]
        with nn.record_attention(model) as maps:
            streamed = list(nn.stream(model, part[0], max_len=8))
        sums = [float(w.sum().round(3)) for weights in maps.values() for w in weights]
        return nn.generate(model, part, max_len=8, **kind), streamed, sums

    said = same_in_threads(say, prompts)
    assert len({str(found) for found in said}) == 48 and trained.training is True


def test_encode_in_eight_threads_equals_one_thread(tmp_path: Path) -> None:
    """Change the maximal length, a setting of the tokenizer, in each call."""
    pytest.importorskip("tokenizers", reason="the tokenizers of published models need it")
    encoder = nn.sentence_encoder(encoder_folder(tmp_path))
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(WORDS[4:], rng.integers(1, 18))) for _ in range(1000)]

    def say(part: list[str]) -> Any:
        found = encoder.encode(part, batch_size=3 + len(part[0]) % 5).tobytes()
        return found, encoder.text.encode(part, max_len=3 + len(part[0]) % 9)

    same_in_threads(say, [texts[i::50] for i in range(50)])
