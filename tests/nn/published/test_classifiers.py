"""Classifiers and rerankers of tiny directories: texts in batches, cut to the limit, in any order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.edges import beside
from support.environment import max_examples
from support.tiny_folders import WORDS, encoder_folder

import nn

LIMIT = 20
"""Number of positions of the model."""
CLS, SEP = WORDS.index("[CLS]"), WORDS.index("[SEP]")
texts = beside(1, LIMIT - 2).flatmap(
    lambda n: st.lists(st.integers(4, len(WORDS) - 1), min_size=max(n, 1), max_size=max(n, 1))
)
"""Ids of the words of a text; with two marks, it has the length of the limit, or one more or less."""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Return directories of encoders with a head, by the number of outputs."""
    encoder = encoder_folder(tmp_path_factory.mktemp("encoder"))
    found = {}
    for outputs in (1, 3):
        rng = np.random.default_rng(outputs)
        model = nn.load(encoder, "classes", num_classes=outputs, generator=rng)
        model.output.weight.data[...] = 3 * rng.standard_normal((outputs, 16))
        found[outputs] = tmp_path_factory.mktemp("model")
        nn.save(found[outputs], model, nn.text.load(encoder))
        for name in ("config.json", "tokenizer_config.json"):
            path = found[outputs] / name
            settings = json.loads(path.read_text()) | {"model_max_length": 10 * LIMIT}
            path.write_text(json.dumps(settings))
    return found


def logits(model: Any, ids: list[int], types: list[int]) -> np.ndarray:
    return model(np.array([ids]), None, np.array([types])).data[0]


@max_examples(10)
@given(rows=st.lists(texts, min_size=1, max_size=5), batch_size=st.integers(1, 4))
@example([[4] * 30, [5], [6, 7, 8], [9] * 6, [4, 5]], 2)
def test_classifier_of_texts_equals_the_model_of_each_text(
    folders: dict[int, Path], rows: list[list[int]], batch_size: int
) -> None:
    classify, model = nn.classifier(folders[3]), nn.load(folders[3])
    labels, probabilities = classify([" ".join(WORDS[i] for i in row) for row in rows], batch_size)
    for row, label, found in zip(rows, labels, probabilities, strict=True):
        ids = [CLS, *row[: LIMIT - 2], SEP]
        e = np.exp(logits(model, ids, [0] * len(ids)))
        np.testing.assert_allclose(found, e / e.sum(), rtol=1e-4, atol=1e-6)
        assert label == f"LABEL_{found.argmax()}"


@max_examples(10)
@given(rows=st.lists(texts, min_size=1, max_size=5), batch_size=st.integers(1, 4))
@example([[4] * 30, [5], [6, 7, 8], [9] * 6, [4, 5]], 2)
def test_reranker_of_texts_equals_the_model_of_each_pair(
    folders: dict[int, Path], rows: list[list[int]], batch_size: int
) -> None:
    rerank, model, question = nn.reranker(folders[1]), nn.load(folders[1]), [4, 5, 6, 7]
    join = lambda ids: " ".join(WORDS[i] for i in ids)
    found = rerank(join(question), map(join, rows), batch_size)
    for row, score in zip(rows, found, strict=True):
        pair, _, types = rerank.text.batch([join(question)], [join(row)], max_len=LIMIT)
        assert pair.shape[1] <= LIMIT
        expected = logits(model, pair[0].tolist(), types[0].tolist())
        assert score == pytest.approx(expected.item(), rel=1e-4, abs=1e-5)
