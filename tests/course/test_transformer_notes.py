"""03_transformer_notes.py: the notes on multi-head attention, normalisation and the decoder, and their sentence."""

from __future__ import annotations

import math
import re
import sys
from statistics import fmean, pvariance
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from matplotlib.image import imread

import minigrad as mg
import nn
from nn.text import BOS, EOS, PAD

NAME = "03_transformer_notes"


@pytest.fixture
def script() -> ModuleType:
    from scripts import load

    return sys.modules.get(f"course_{NAME}") or load(NAME)


def numbers(text: str, after: str, count: int) -> np.ndarray:
    """The first `count` numbers printed after some words."""
    found = re.findall(r"-?(?:inf|\d+\.?\d*)", text[text.index(after) + len(after) :])[:count]
    return np.array(found, float)


def test_the_lesson(lesson) -> None:  # type: ignore[no-untyped-def]
    """All that needs the trained model is in this one run."""
    checked, text, out = lesson(NAME)
    assert checked >= 70
    flat = " ".join(text.split())

    for name in ("norms.png", "cross_attention.png", "heads.png", "masked_heads.png"):
        picture = imread(out / name)[..., :3]
        assert min(picture.shape[:2]) > 200 and picture.std() > 0.02 and picture.min() < 0.2, name

    # the sentence: read, wanted and said, shifted by one place
    rows = {
        line.strip().split("  ")[0]: line.split()[-5:]
        for line in text.splitlines()
        if re.match(r"  (reads|must say|says|sure) ", line)
    }
    assert rows["reads"] == ["<bos>", "I", "have", "a", "cat"]
    assert rows["must say"] == rows["says"] == ["I", "have", "a", "cat", "<eos>"]
    assert min(map(float, rows["sure"])) > 0.5
    steps = re.findall(r"^ +(<bos>.*?) +→ (\S+)$", text, re.M)
    assert [last for _, last in steps] == ["I", "have", "a", "cat", "<eos>"]
    assert [read for read, _ in steps] == [
        "<bos>",
        "<bos> I",
        "<bos> I have",
        "<bos> I have a",
        "<bos> I have a cat",
    ]
    right, asked = re.search(r"— ([\d.]+)% of (\d+) sentences that it has not seen", flat).groups()
    assert float(right) >= 85 and int(asked) == 200
    sure = float(re.search(r"with probability ([\d.]+)", flat)[1])
    assert math.isclose(math.prod(map(float, rows["sure"])), sure, abs_tol=0.003), (
        "the product of its five choices"
    )

    # the softmax of the masked scores, from the numbers as printed
    scores = numbers(text, "Mask QKᵀ/√d′  (5, 5)", 25).reshape(5, 5)
    weights = numbers(text, "softmax of each row  (5, 5)", 25).reshape(5, 5)
    e = np.array([[math.exp(s) for s in row] for row in scores])
    assert np.isinf(scores).sum() == 10
    np.testing.assert_allclose(weights, e / e.sum(1, keepdims=True), atol=0.011)


def test_normalisation_by_hand(script: ModuleType) -> None:
    """The matrix is normalised once more, number by number, with Python's own statistics."""
    table = script.TABLE.tolist()
    columns = [list(column) for column in zip(*table)]
    assert [fmean(r) for r in table] == [4, 5, 2, 6] and [pvariance(r) for r in table] == [
        9,
        4,
        1,
        9,
    ]
    assert [fmean(c) for c in columns] == [4, 6, 5, 2] and [pvariance(c) for c in columns] == [
        9,
        9,
        4,
        1,
    ]
    normal = lambda xs: [(x - fmean(xs)) / math.sqrt(pvariance(xs)) for x in xs]
    np.testing.assert_allclose(script.BY_ROWS, [normal(row) for row in table], rtol=1e-12)
    np.testing.assert_allclose(
        script.BY_COLUMNS, np.transpose([normal(column) for column in columns]), rtol=1e-12
    )
    np.testing.assert_allclose(
        nn.LayerNorm(4, eps=0.0, dtype=float)(script.TABLE).data, script.BY_ROWS, rtol=1e-12
    )
    np.testing.assert_allclose(
        nn.BatchNorm1d(4, eps=0.0, dtype=float)(script.TABLE).data, script.BY_COLUMNS, rtol=1e-12
    )


def test_the_lesson_keeps_the_sentence_for_the_end(script: ModuleType) -> None:
    corpus = script.Corpus()
    learned = {" ".join(source) for source, _ in corpus.train}
    asked = {" ".join(source) for source, _ in corpus.held_out}
    assert len(learned) == 1600 and len(asked) == 200 and not learned & asked
    assert "我 有 一只 猫" not in learned | asked
    assert all(word in corpus.source_vocab for word in script.SOURCE), "yet all its words are known"
    assert all(word in corpus.target_vocab for word in script.TARGET)
    [row], [short] = (
        corpus.targets([script.TARGET]).tolist(),
        corpus.sources([script.SOURCE]).tolist(),
    )
    assert (row[0], row[-1], len(row), len(short)) == (BOS, EOS, 6, 4)
    assert corpus.sources([script.SOURCE, ["我"]])[1, 1:].tolist() == [PAD] * 3


def test_a_wrong_layer_is_noticed(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lesson would not agree with the unbiased variance, nor with attention that looks one word ahead."""
    lesson = script.Lesson(NAME, "", ["--no-pictures"])

    class Unbiased(nn.LayerNorm):
        def forward(self, x: Any) -> Any:
            centred = x - x.mean(-1, keepdims=True)
            root = np.sqrt(x.var(-1, ddof=1, keepdims=True) + self.eps)
            return mg.Tensor(centred / root * self.weight.data + self.bias.data)

    with monkeypatch.context() as m:
        m.setattr(nn, "LayerNorm", Unbiased)
        script.layer_norm(lesson, np.random.default_rng(0))
    assert lesson.failed == [
        "`nn.LayerNorm` does these three steps",
        r"Step 4: $\gamma_j$ times it, plus $\beta_j$",
    ]
    with monkeypatch.context() as m:
        m.setattr(nn, "causal_mask", lambda length: np.tri(length, length, 1, dtype=bool))
        script.masked_attention(lesson, np.random.default_rng(0))
    assert "So no position sees what comes after it" in lesson.failed
    assert lesson.end() == 1
