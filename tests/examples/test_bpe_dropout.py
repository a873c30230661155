"""BPE dropout."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from support.environment import needs
from support.scripts import load

from nn.text.tokenize import BPETokenizer

BPEDropout = load("bpe_dropout").BPEDropout
TEXTS = ["low lower lowest", "new newer newest", "wide wider widest", "aaaa abab"] * 20


@pytest.fixture(scope="module")
def bpe() -> BPETokenizer:
    needs("tokenizers")
    return BPETokenizer.train(TEXTS, vocab_size=300)


def test_bpe_dropout_with_p_0_equals_the_tokenizer(bpe: BPETokenizer) -> None:
    whole = BPEDropout(bpe, 0.0)
    for text in [*TEXTS[:4], "Something 未见过 else, newer!", "abababa aaa"]:
        assert whole(text, np.random.default_rng(0)) == bpe(text)


def test_bpe_dropout_has_probabilities_of_the_paper() -> None:
    """Algorithm 1 drops each possible merge with probability p, anew after each merge."""
    needs("tokenizers")
    two = BPETokenizer.train(["qab wab eab rcd tcd"], 256 + 2)  # merges ab, then cd
    p, n, rng = 0.3, 6000, np.random.default_rng(0)
    found = Counter(" ".join(BPEDropout(two, p)("abcd", rng)) for _ in range(n))
    expected = {
        "Ġ ab cd": (1 - p) ** 2 + p * (1 - p) ** 2,  # ab first, or cd first
        "Ġ ab c d": (1 - p) * p,
        "Ġ a b cd": p * (1 - p) * p,
        "Ġ a b c d": p * p,
    }
    assert found.keys() == expected.keys()
    for pieces, share in expected.items():
        assert abs(found[pieces] - n * share) < 5 * np.sqrt(n * share), pieces


def test_bpe_dropout_with_bad_arguments_raises(bpe: BPETokenizer) -> None:
    with pytest.raises(ValueError, match="p must be at least 0 and less than 1, got 1"):
        BPEDropout(bpe, 1)
    bpe = BPETokenizer(bpe.model.replace('"byte_fallback":false', '"byte_fallback":true'))
    with pytest.raises(ValueError, match=r"made by BPETokenizer.train, got \['byte_fallback'\]"):
        BPEDropout(bpe)
