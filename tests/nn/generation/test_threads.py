"""One translator in several threads: what each says is what one thread alone says."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import minigrad as mg
import nn
from nn.text import SPECIALS, SpaceTokenizer, Vocabulary


@pytest.mark.parametrize("inference", [True, False])
def test_eight_threads_translate_a_thousand_sentences(inference: bool) -> None:
    """With dropout in the model, and attention recorded by some of them at the same time."""
    mg.manual_seed(0)
    words = [f"w{i}" for i in range(40)]
    vocab = Vocabulary([*SPECIALS, *words])
    c = nn.TransformerConfig(44, 44, 16, 2, 1, 1, 32, dropout=0.4, max_len=32)
    model = nn.Transformer(c)
    for p in model.parameters():
        p.data[...] *= 3  # so that translations differ
    translator = nn.Translator(
        nn.for_inference(model) if inference else model, vocab, vocab, SpaceTokenizer(), SpaceTokenizer()
    )
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(words, rng.integers(1, 7))) for _ in range(1000)]
    parts = [texts[i::40] for i in range(40)]

    def said(part: list[str]) -> list[tuple[str, float]]:
        found = translator.translate(part, beam_size=1 + len(part[0]) % 2, max_len=10)
        maps, *_ = translator.attention(found[0])
        return [(t.text, round(t.score, 4)) for t in found] + [
            (str(len(maps["cross"])), float(maps["cross"][0].sum().round(2)))
        ]

    alone = [said(part) for part in parts]
    assert model.training is True  # a translator does not change its model
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(said, parts))
    assert together == alone and len({text for part in alone for text, _ in part}) > 50
