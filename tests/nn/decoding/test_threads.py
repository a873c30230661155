"""Language models and sentence encoders in eight threads give the results of one thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.environment import needs
from support.tiny_folders import encoder_folder

import nn

pytestmark = pytest.mark.slow


def assert_same_in_threads(say: Callable[[Any], Any], parts: Sequence[Any]) -> None:
    """Compare the results of one thread and of eight."""
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(say, parts)) == [say(part) for part in parts]


@pytest.mark.parametrize("inference", [True, False])
def test_generate_in_eight_threads_equals_one_thread(inference: bool) -> None:
    """Greedy search, beam search and sampling, with attention recorded in between."""
    config = nn.DecoderOnlyConfig(44, 16, 2, 1, 32, dropout=0.4, positions="rotary", max_len=24)
    model = trained = nn.LanguageModel(config, np.random.default_rng(0))
    for p in trained.parameters():
        p.data[...] *= 3  # so that outputs differ
    if inference:
        model = nn.for_inference(trained)

    def say(seed: int) -> Any:
        rng = np.random.default_rng(seed)
        prompts = rng.integers(44, size=(3, 1 + seed % 5))
        kind = ({}, {"num_beams": 2}, {"do_sample": True, "top_p": 0.9, "generator": rng})[seed % 3]
        with nn.record_attention(model) as maps:
            streamed = list(nn.stream(model, prompts[0], max_len=8))
        return (
            nn.generate(model, prompts, max_len=8, **kind),
            streamed,
            [*map(len, maps.values())],
        )

    assert_same_in_threads(say, range(48))
    assert trained.training is True


def test_encode_in_eight_threads_equals_one_thread(tmp_path: Path) -> None:
    """Change the maximal length, a setting of the tokenizer, in each call."""
    needs("tokenizers")
    encoder = nn.sentence_encoder(encoder_folder(tmp_path))

    def say(seed: int) -> Any:
        rng = np.random.default_rng(seed)
        texts = [
            " ".join(rng.choice(["the", "cat", "sat"], rng.integers(1, 18))) for _ in range(20)
        ]
        return encoder.encode(texts).tobytes(), encoder.text.encode(texts, max_len=3 + seed % 9)

    assert_same_in_threads(say, range(50))
