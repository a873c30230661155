"""Sentences of lesson 5, and the encoder that resolves "it"."""

from __future__ import annotations

import numpy as np
from scripts import load

import minigrad as mg
import nn

script = load("pronouns")


def test_pronoun_corpus_has_one_answer_a_sentence() -> None:
    sentences, nouns, held = script.corpus()
    assert len(set(sentences)) == len(sentences) == len(nouns) == 4096
    ids = script.encode(sentences)
    assert ids.shape == (4096, max(len(s.split()) for s in sentences))
    assert " ".join(script.WORDS[i] for i in ids[77] if i) == sentences[77]
    for sentence, noun, out in zip(sentences, nouns, held):
        words = set(sentence.split())
        assert script.WORDS[noun] in words & {
            *(script.ANIMALS if words & {*script.OF_ANIMALS} else script.PLACES)
        }
        assert out or not {"animal", "street"} <= words
    # where a noun stands tells nothing: each form has as many answers of one kind as of the other
    kinds = np.isin(nouns, [script.IDS[a] for a in script.ANIMALS]).reshape(4, -1)
    assert (kinds.mean(1) == 0.5).all()


def test_blocked_word_has_no_weight() -> None:
    model = script.Resolver(script.settings(8, 2, 2)).eval()
    ids = script.encode(
        [script.TIRED, script.FORMS[2].format(animal="fox", place="lake", word="deep")]
    )
    at = script.where(ids, script.ANIMALS)
    assert at.tolist() == [1, 6] and script.where(ids, ["it"]).tolist() == [7, 1]
    with mg.no_grad(), nn.record_attention(model) as recorded:
        model(ids, at)
    for calls in recorded.values():
        weights = calls[0]  # (2, h, L, L)
        assert (weights[0, :, 7, 1] == 0).all() and (weights[1, :, 1, 6] == 0).all()
        assert (weights[0, :, 6, 1] > 0).all() and (
            weights[0, :, :, 11:] == 0
        ).all()  # others look; padding is masked
    weights = model.weights_of_it(ids)
    assert weights.shape == (2, 2, 2, 13)
    np.testing.assert_allclose(weights.sum(-1), 1, rtol=1e-5)


def test_word_blocked_for_all_has_no_weight() -> None:
    model = script.Resolver(script.settings(8, 2, 2)).eval()
    ids = script.encode([script.TIRED])
    with mg.no_grad(), nn.record_attention(model) as recorded:
        model(ids, np.array([10]), for_all=True)
    for calls in recorded.values():
        used = np.arange(11) != 10
        assert (calls[0][0][:, :11][:, used, 10] == 0).all() and (calls[0][0][:, 10, 10] > 0).all()
