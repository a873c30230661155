"""Sentences of lesson 1, and the encoder that resolves "it"."""

from __future__ import annotations

from typing import Any

import numpy as np
from support.scripts import load

import minigrad as mg
import nn

script = load("pronouns")


def test_pronoun_corpus_has_one_answer_a_sentence() -> None:
    sentences, nouns, held = script.corpus()
    assert len(set(sentences)) == len(sentences) == len(nouns) == 4096
    ids = script.encode(sentences)
    assert " ".join(script.WORDS[i] for i in ids[77] if i) == sentences[77]
    for sentence, noun, is_held in zip(sentences, nouns, held):
        words = set(sentence.split())
        kind = script.ANIMALS if words & {*script.OF_ANIMALS} else script.PLACES
        assert script.WORDS[noun] in words & {*kind}
        assert is_held or not {"animal", "street"} <= words
    # The order of the nouns predicts nothing: each form has as many answers of either kind.
    kinds = np.isin(nouns, [script.IDS[a] for a in script.ANIMALS]).reshape(4, -1)
    assert (kinds.mean(1) == 0.5).all()


def weights(*arguments: Any, **options: Any) -> list[np.ndarray]:
    """Return the weights (N, h, L, L) of each layer of an untrained model."""
    model = script.Resolver(script.settings(8, 2, 2)).eval()
    with mg.no_grad(), nn.record_attention(model) as recorded:
        model(*arguments, **options)
    return [calls[0] for calls in recorded.values()]


def test_blocked_word_has_no_weight_for_it() -> None:
    wide = script.FORMS[2].format(animal="fox", place="lake", word="deep")
    ids = script.encode([script.TIRED, wide])
    at = script.where(ids, script.ANIMALS)
    assert at.tolist() == [1, 6] and script.where(ids, ["it"]).tolist() == [7, 1]
    for w in weights(ids, at):
        assert not w[0, :, 7, 1].any() and not w[1, :, 1, 6].any()
        assert (w[0, :, 6, 1] > 0).all()  # other words attend to it
    for w in weights(ids, at, for_all=True):
        assert not w[0, :, 6, 1].any() and (w[0, :, 1, 1] > 0).all()


def test_weights_of_it_are_those_of_its_row() -> None:
    ids = script.encode([script.TIRED, script.WIDE])
    found = script.Resolver(script.settings(8, 2, 2)).eval().weights_of_it(ids)
    np.testing.assert_array_equal(found, np.stack([w[:, :, 7] for w in weights(ids)], 1))
