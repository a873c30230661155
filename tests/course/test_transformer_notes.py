"""Training sentences and loss of the Transformer of lesson 4."""

from __future__ import annotations

import math

import numpy as np
from support.scripts import load

import nn
from nn.text.vocabulary import BOS, EOS, PAD

toy = load("toy_translation")


def test_corpus_holds_out_the_sentence_of_the_lesson() -> None:
    corpus = toy.Corpus()
    learned = {" ".join(source) for source, _ in corpus.train}
    asked = {" ".join(source) for source, _ in corpus.held_out}
    assert len(learned) == 1600 and len(asked) == 200 and not learned & asked
    assert "我 有 一只 猫" not in learned | asked
    assert all(word in corpus.source_vocab for word in toy.SOURCE)  # all its words are known
    (row,) = corpus.targets([toy.TARGET]).tolist()
    assert (row[0], row[-1], len(row)) == (BOS, EOS, 6)
    assert corpus.sources([toy.SOURCE, ["我"]])[1, 1:].tolist() == [PAD] * 3


def test_loss_with_mask_of_the_past_is_the_loss() -> None:
    """Under the lower triangle it equals `model.loss`; without a mask it does not."""
    corpus = toy.Corpus(64, 8)
    config = nn.TransformerConfig(
        len(corpus.source_vocab), len(corpus.target_vocab), d_model=16, num_heads=2, d_ff=16
    )
    model = nn.Transformer(config, np.random.default_rng(0)).eval()
    sources, targets = zip(*corpus.train[:9])
    ids, target = corpus.sources(sources), corpus.targets(targets)
    L = target.shape[1] - 1
    for mask in (np.tri(L, dtype=bool), np.ones((L, L), bool)):
        loss = toy.loss_with_mask(model, ids, target, mask).item()
        is_equal = math.isclose(loss, model.loss(ids, target).item(), rel_tol=1e-5)
        assert is_equal == (not mask.all())
