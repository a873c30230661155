"""A language model for lesson 9: a published one, or a small one that is trained on texts that repeat."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import nn
from minigrad import optim

WORDS = [
    "apple",
    "river",
    "stone",
    "cloud",
    "tiger",
    "window",
    "paper",
    "garden",
    "silver",
    "button",
    "castle",
    "mirror",
    "basket",
    "candle",
    "feather",
    "hammer",
    "island",
    "jacket",
    "ladder",
    "magnet",
    "needle",
    "orange",
    "pencil",
    "rabbit",
    "saddle",
    "turtle",
]
LENGTH = 16
Encode, Decode = Callable[[str], list[int]], Callable[[int], str]


def open_model(directory: str) -> tuple[nn.LanguageModel, Encode, Decode]:
    """Return a language model, the ids of a text, and the text of an id.

    The model is that of the directory of a published model, such as GPT-2 or SmolLM2, or a small one if the directory
    is "".
    """
    if not directory:
        return train(), lambda text: [WORDS.index(word) for word in text.split()], WORDS.__getitem__
    model, text = nn.load(directory), nn.text.load(directory)
    if not isinstance(model, nn.LanguageModel):
        raise ValueError(
            f"{directory} must contain a language model such as GPT-2 or SmolLM2, got a "
            f"{type(model).__name__}"
        )
    return model, text.encode, lambda word: text.decode([word])


def texts(rng: np.random.Generator, count: int) -> np.ndarray:
    """Return texts (N, 16): four to eight different words in random order, again and again."""
    rows = [rng.permutation(len(WORDS))[: rng.integers(4, 9)] for _ in range(count)]
    return np.stack([np.resize(row, LENGTH) for row in rows])


def train(steps: int = 800, seed: int = 0) -> nn.LanguageModel:
    """Train two layers of two heads on such texts.

    Training in float32 gives different heads on different processors, because they round differently. So train in
    float64.
    """
    rng = np.random.default_rng(seed)
    config = nn.LanguageModelConfig(
        len(WORDS), 64, 2, 2, 128, dropout=0.0, max_len=LENGTH, tie=False, pad_id=None
    )
    model = nn.LanguageModel(config, rng)
    model.to(np.float64)
    optimizer = optim.Adam(model.parameters(), lr=5e-3, clip_norm=1.0)
    schedule = optim.Schedule(optimizer, optim.cosine_schedule(steps, warmup=50))
    for _ in range(steps):
        loss = model.loss(texts(rng, 32))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return model.eval()
