"""05_self_attention: the steps, the matrices and the layer agree; "it" is resolved, for the right reason."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scripts import load

import minigrad as mg
import nn

script = load("05_self_attention")


def test_the_lesson(lesson: Callable[[str], tuple[int, str, Path]]) -> None:
    checked, text, out = lesson("05_self_attention")
    assert checked >= 27 and " ".join(text.split()).count("; computed: ") == 3
    found = dict(re.findall(r"^  (that noun|the other noun|the adjective) +([\d.]+)%", text, re.M))
    assert float(found["that noun"]) < 70 < 90 < float(found["the other noun"])
    table = np.array([line.split() for line in text.splitlines() if re.match(r" +\d+ +[\d.]+ +[\d.]+ +[\d.]+ +[\d.]+$", line)], float)  # fmt: skip
    assert table.shape == (5, 5)
    np.testing.assert_allclose(table[:, 1], table[:, 0], rtol=0.05)  # the variance is d_k
    image = pytest.importorskip("matplotlib.image").imread(out / "it.png")
    assert image.shape[1] > 1000 and image[..., :3].std() > 0.05


def test_single_steps_equal_the_einsum() -> None:
    rng = np.random.default_rng(5)
    X, W_Q, W_K, W_V = (
        rng.standard_normal((7, 5)),
        *(rng.standard_normal((5, d)) for d in (3, 3, 4)),
    )
    score = np.einsum("id,dk,jl,lk->ij", X, W_Q, X, W_K) / np.sqrt(3)
    weight = np.exp(score) / np.exp(score).sum(1)[:, None]
    expected = np.einsum("ij,jd,dv->iv", weight, X, W_V)
    np.testing.assert_allclose(script.single_steps(X, W_Q, W_K, W_V), expected, rtol=1e-10)
    np.testing.assert_allclose(script.matrix_form(X, W_Q, W_K, W_V).data, expected, rtol=1e-10)


def test_the_corpus() -> None:
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


def test_a_blocked_word_is_not_looked_at() -> None:
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
    looks = model.looks(ids)
    assert looks.shape == (2, 2, 2, 13)
    np.testing.assert_allclose(looks.sum(-1), 1, rtol=1e-5)
