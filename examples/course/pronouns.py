"""Sentences in which "it" must be understood, and a small encoder that learns to name its noun."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import minigrad as mg
import nn
from minigrad import optim

ANIMALS = ("animal", "dog", "cat", "horse", "cow", "sheep", "fox", "goose")
PLACES = ("street", "road", "river", "bridge", "field", "lake", "path", "valley")
OF_ANIMALS = ("tired", "hungry", "scared", "lazy", "sick", "weak", "young", "sleepy")
OF_PLACES = ("wide", "long", "deep", "busy", "crowded", "icy", "muddy", "flooded")
FORMS = (
    "the {animal} didn't cross the {place} because it was too {word}",
    "the {place} stopped the {animal} because it was too {word}",
    "because it was too {word} the {animal} didn't cross the {place}",
    "the {place} was not crossed by the {animal} because it was too {word}",
)
TIRED, WIDE = (
    FORMS[0].format(animal="animal", place="street", word=word) for word in ("tired", "wide")
)
WORDS = ["<pad>", *sorted(set(" ".join(FORMS).split()) - {"{animal}", "{place}", "{word}"}), *ANIMALS, *PLACES,
         *OF_ANIMALS, *OF_PLACES]  # fmt: skip
IDS = {word: i for i, word in enumerate(WORDS)}
LENGTH = 13  # of the longest sentence


def encode(sentences: Sequence[str]) -> np.ndarray:
    """Return sentences as padded ids (N, 13)."""
    ids = [[IDS[word] for word in sentence.split()] for sentence in sentences]
    return np.array([row + [0] * (LENGTH - len(row)) for row in ids])


def corpus() -> tuple[list[str], np.ndarray, np.ndarray]:
    """Return all 4,096 sentences, the id of the noun that "it" stands for, and a mask of the held-out ones.

    An animal is tired, a street is wide: the last adjective decides. Held out are all with "animal" and "street",
    and a fifth of the others.
    """
    sentences, nouns = [], []
    for form in FORMS:
        for animal in ANIMALS:
            for place in PLACES:
                for word in OF_ANIMALS + OF_PLACES:
                    sentences.append(form.format(animal=animal, place=place, word=word))
                    nouns.append(IDS[animal if word in OF_ANIMALS else place])
    both = np.array(["animal" in sentence and "street" in sentence for sentence in sentences])
    return (
        sentences,
        np.array(nouns),
        both | (np.random.default_rng(0).random(len(sentences)) < 0.2),
    )


def settings(d_model: int, num_heads: int, num_layers: int) -> nn.EncoderConfig:
    """Return the configuration of an encoder of these sentences that chooses a word."""
    return nn.EncoderConfig(
        len(WORDS), d_model, num_heads, num_layers, 2 * d_model, dropout=0.0, norm_first=True, max_len=LENGTH,
        num_classes=len(WORDS),
    )  # fmt: skip


class Resolver(nn.EncoderClassifier):
    """Encoder that names the noun that "it" stands for, from its output at the token "it"."""

    def __init__(self, config: nn.EncoderConfig, seed: int = 0) -> None:
        super().__init__(config, np.random.default_rng(seed))

    def forward(self, ids: Any, blocked: Any = None, for_all: bool = False) -> mg.Tensor:
        """Return scores of words (N, vocabulary).

        `blocked` (N,) is a position that "it" may not attend to; with `for_all`, no other word may.
        """
        mask = np.repeat(nn.padding_mask_of(ids)[:, None], ids.shape[1], 1)  # (N, L, L)
        n, it = np.arange(len(ids)), where(ids, ["it"])
        if blocked is not None and for_all:
            own = mask[n, blocked, blocked]
            mask[n, :, blocked] = False
            mask[n, blocked, blocked] = own  # a word may always attend to itself
        elif blocked is not None:
            mask[n, it, blocked] = False
        x = self.encoder(self.embedding(ids), mask[:, None])  # (N, L, d)
        return self.output(x[n, it])

    def answer(self, ids: np.ndarray, blocked: Any = None, for_all: bool = False) -> np.ndarray:
        """Return the likeliest noun (N,)."""
        with mg.no_grad():
            return self(ids, blocked, for_all).data.argmax(-1)

    def weights_of_it(self, ids: np.ndarray) -> np.ndarray:
        """Return the weights of "it", (N, layers, heads, L)."""
        with mg.no_grad(), nn.record_attention(self) as recorded:
            self(ids)
        n, it = np.arange(len(ids)), where(ids, ["it"])
        return np.stack([calls[0][n, :, it] for calls in recorded.values()], 1)


def where(ids: np.ndarray, words: Sequence[str]) -> np.ndarray:
    """Return the position of the first of these words in each sentence, (N,)."""
    return np.isin(ids, [IDS[word] for word in words]).argmax(1)


def train(model: Resolver, steps: int = 350, lr: float = 3e-3, seed: int = 0) -> Resolver:
    """Train on sentences that are not held out, 32 in a batch, by the cross-entropy of the noun."""
    sentences, nouns, held = corpus()
    ids, allowed = encode(sentences), np.flatnonzero(~held)
    optimizer = optim.Adam(model.parameters(), lr=lr, clip_norm=1.0)
    schedule = optim.Schedule(optimizer, optim.cosine_schedule(steps, warmup=20))
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        batch = rng.choice(allowed, 32)
        loss = mg.cross_entropy(model(ids[batch]), nouns[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    model.eval()
    return model
