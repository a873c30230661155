"""Language models and sentence encoders in eight threads give the results of one thread."""

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

pytestmark = pytest.mark.slow


def same_in_threads(say: Callable[[Any], Any], parts: list[Any]) -> list[Any]:
    """Return the results of one thread, which eight threads must equal."""
    alone = [say(part) for part in parts]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(say, parts)) == alone
    return alone


@pytest.mark.parametrize("inference", [True, False])
def test_generate_in_eight_threads_equals_one_thread(inference: bool) -> None:
    """Greedy search, beam search and sampling, with attention recorded in between."""
    mg.manual_seed(0)
    config = nn.LanguageModelConfig(44, 16, 2, 1, 32, dropout=0.4, positions="rotary", max_len=24)
    trained = nn.LanguageModel(config)
    for p in trained.parameters():
        p.data[...] *= 3  # so that outputs differ
    model = nn.for_inference(trained) if inference else trained
    rng = np.random.default_rng(0)
    prompts = [rng.integers(44, size=(3, rng.integers(1, 6))).tolist() for _ in range(48)]

    def say(part: list[list[int]]) -> Any:
        number = sum(map(sum, part))
        drawn = {"do_sample": True, "top_p": 0.9, "generator": np.random.default_rng(number)}
        kind = ({}, {"num_beams": 2}, drawn)[number % 3]
        with nn.record_attention(model) as maps:
            streamed = list(nn.stream(model, part[0], max_len=8))
        count = sum(map(len, maps.values()))
        return nn.generate(model, part, max_len=8, **kind), streamed, count

    assert len({str(found) for found in same_in_threads(say, prompts)}) == 48
    assert trained.training is True


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
