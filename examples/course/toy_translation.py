"""Short Chinese sentences with their English, and a small Transformer that learns them.

Used by lesson 4. The sentence 我 有 一只 猫 is never learned from.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import minigrad as mg
import nn
from nn.text.batches import padded
from nn.text.toy_corpora import chinese_english
from nn.text.vocabulary import PAD, Vocabulary

__all__ = ["SOURCE", "TARGET", "Corpus", "loss_with_mask", "train"]

SOURCE, TARGET = ["我", "有", "一只", "猫"], ["I", "have", "a", "cat"]


class Corpus:
    """Sentences to learn from, held-out sentences, and the vocabularies of both.

    Parameters
    ----------
    n : int
        Number of pairs to learn from.
    held_out : int
        Number of held-out pairs.
    """

    def __init__(self, n: int = 1600, held_out: int = 200) -> None:
        pairs = [(s.split(), t.split()) for s, t in chinese_english(8000)]
        short = [(s, t) for s, t in pairs if len(s) <= 5 and s != SOURCE]
        self.train, self.held_out = short[:n], short[n : n + held_out]
        self.source_vocab = Vocabulary.build(s for s, _ in self.train)
        self.target_vocab = Vocabulary.build(t for _, t in self.train)

    def sources(self, sentences: Sequence[Sequence[str]]) -> np.ndarray:
        """Return token ids (N, L) of Chinese sentences, with padding."""
        return padded([self.source_vocab.encode(s) for s in sentences])

    def targets(self, sentences: Sequence[Sequence[str]]) -> np.ndarray:
        """Return token ids (N, 1 + L + 1) of English sentences, from BOS to EOS, with padding."""
        return padded([self.target_vocab.encode(t, bos=True, eos=True) for t in sentences])


def loss_with_mask(model: nn.Transformer, source: Any, target: Any, mask: Any) -> mg.Tensor:
    """Compute the loss of the next tokens; `mask` (L, L) says which target tokens each one sees."""
    real = (source != PAD)[:, None, None]
    memory = model.encode(source, source != PAD)
    read, wanted = target[:, :-1], target[:, 1:]
    hidden = model.target_embedding(read)
    for layer in model.decoder.layers:
        hidden = layer(hidden, memory, mask=mask, memory_mask=real)
    return mg.cross_entropy(model.output(hidden), wanted, ignore_index=PAD)


def train(
    corpus: Corpus, epochs: int = 11, batch: int = 64, seed: int = 0, masked: bool = True
) -> tuple[nn.Transformer, list[float]]:
    """Train a Transformer with one layer on each side.

    Parameters
    ----------
    corpus : Corpus
    epochs : int
    batch : int
        Number of sentences in a batch.
    seed : int
        Draws the parameters and the order of the sentences.
    masked : bool
        Hide later target words. False lets the decoder see the whole target.

    Returns
    -------
    model : nn.Transformer
    losses : list of float
        The loss at each step.
    """
    rng = np.random.default_rng(seed)
    config = nn.TransformerConfig(
        len(corpus.source_vocab),
        len(corpus.target_vocab),
        d_model=64,
        num_heads=8,
        num_encoder_layers=1,
        num_decoder_layers=1,
        d_ff=128,
        dropout=0.1,
    )
    model = nn.Transformer(config, rng)
    sources, targets = zip(*corpus.train)
    source, target = corpus.sources(sources), corpus.targets(targets)
    steps = epochs * -(-len(source) // batch)
    optimizer = mg.optim.Adam(model.parameters(), lr=3e-3, betas=(0.9, 0.98), clip_norm=1.0)
    schedule = mg.optim.Schedule(optimizer, mg.optim.cosine_schedule(steps, warmup=steps // 10))
    every = np.ones((target.shape[1] - 1,) * 2, bool)
    losses = []
    for _ in range(epochs):
        order = rng.permutation(len(source))
        for start in range(0, len(source), batch):
            rows = order[start : start + batch]
            optimizer.zero_grad()
            if masked:
                loss = model.loss(source[rows], target[rows])
            else:
                loss = loss_with_mask(model, source[rows], target[rows], every)
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
    model.eval()
    return model, losses
