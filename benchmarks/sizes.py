"""Models and batches on which the libraries are compared."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import numpy as np


class Size(NamedTuple):
    """A post-norm Transformer with relu, and a batch for it."""

    vocab: int
    d_model: int
    num_heads: int
    d_ff: int
    layers: int
    batch: int
    length: int
    dropout: float = 0.1

    def data(self) -> tuple[np.ndarray, np.ndarray]:
        """Return source ids (batch, length), half padded, and target ids (batch, length + 1)."""
        rng = np.random.default_rng(0)
        source = rng.integers(3, self.vocab, (self.batch, self.length))
        source[::2, -3:] = 0
        return source, rng.integers(3, self.vocab, (self.batch, self.length + 1))

    def useful_flops(self) -> float:
        """Return 6 × parameters × the tokens that pass them, over all matrices."""
        d, layers = self.d_model, self.layers
        encoder, decoder = (
            layers * (4 * d * d + 2 * d * self.d_ff),
            layers * (8 * d * d + 2 * d * self.d_ff),
        )
        return 6.0 * self.batch * self.length * (encoder + decoder + self.vocab * d)


def sentences(batch: int, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Return token ids (batch, length) without padding, and one of two classes for each row."""
    rng = np.random.default_rng(0)
    return rng.integers(1000, 20_000, (batch, length)), rng.integers(0, 2, batch)


def prompt_of(length: int) -> list[int]:
    """Return the token ids of a prompt."""
    return np.random.default_rng(0).integers(1000, 20_000, length).tolist()


def given_text(name: str) -> tuple[list[int], list[int]]:
    """Return the ids of 400 words of a prompt, and of the words that follow it.

    "code" and "guide": the next 200 words of the file. "edit": the same words, with another name.
    """
    root = Path(__file__).parent.parent
    file = {"code": "nn/attention.py", "guide": "docs/design.md", "edit": "nn/block.py"}[name]
    text = (root / file).read_text(encoding="utf-8")
    words = re.findall(r" ?\w+| ?[^\w\s]|\s+", text)
    prompt, following = words[:400], words[400:600]
    if name == "edit":
        following = [word.replace("norm", "scale") for word in prompt]
    ids = {word: i for i, word in enumerate(dict.fromkeys(prompt + following))}
    return [ids[word] for word in prompt], [ids[word] for word in following]


SMOOTHING, CLIP, LR = 0.1, 1.0, 1e-4

SIZES = {
    "toy": Size(64, 64, 4, 128, 2, 64, 12),
    "small": Size(8_000, 256, 8, 1024, 3, 64, 20),
    "base": Size(10_000, 512, 8, 2048, 6, 32, 32),
}
