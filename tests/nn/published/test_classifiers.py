"""Classifiers and rerankers of tiny directories: texts in batches, cut to the limit, in any order."""

from __future__ import annotations

import json
import shutil
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
    for outputs in (1, 2, 3):
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


def changed(folder: Path, target: Path, **settings: Any) -> Path:
    """Copy a directory, with other entries in its config.json; None removes one."""
    shutil.copytree(folder, target)
    path = target / "config.json"
    entries = json.loads(path.read_text()) | settings
    path.write_text(json.dumps({key: x for key, x in entries.items() if x is not None}))
    return target


@pytest.mark.parametrize(
    ("names", "labels"),
    [
        ({"0": "a", "1": "b", "2": "c"}, "a b c"),
        ({"2": "c", "0": "a", "1": "b"}, "a b c"),
        ({"1": "b", "2": "c", "3": "d"}, "LABEL_0 b c"),
        (None, "LABEL_0 LABEL_1 LABEL_2"),
    ],
)
def test_labels_are_those_of_config_json(
    folders: dict[int, Path], tmp_path: Path, names: Any, labels: str
) -> None:
    path = changed(folders[3], tmp_path / "model", id2label=names, num_labels=3)
    assert nn.classifier(path).labels == tuple(labels.split())


@pytest.mark.parametrize("longest", [None, 1, 5, LIMIT - 1, LIMIT, LIMIT + 1, 7.9])
def test_texts_are_cut_at_the_shortest_limit(
    folders: dict[int, Path], tmp_path: Path, longest: float | None
) -> None:
    """It is that of the positions, of the tokenizer, or of config.json."""
    path = changed(folders[3], tmp_path / "model", model_max_length=longest)
    assert nn.classifier(path).max_len == int(min(longest or LIMIT, LIMIT))


@pytest.mark.parametrize(
    ("read", "outputs", "settings", "message"),
    [
        (nn.classifier, 1, {}, "must have at least 2 classes, got 1; nn.reranker scores"),
        *((nn.reranker, n, {}, f"must have one output, got {n}; nn.classifier returns") for n in (2, 3)),
        *((nn.classifier, 3, {"model_max_length": x}, "model_max_length must be at least 1") for x in (0, -1)),
        (nn.classifier, 3, {"problem_type": "regression"}, "problem_type must be null or single_label"),
        (nn.classifier, 3, {"problem_type": "multi_label_classification"}, "problem_type must be null"),
    ],
)  # fmt: skip
def test_other_models_are_refused(
    folders: dict[int, Path], tmp_path: Path, read: Any, outputs: int, settings: Any, message: str
) -> None:
    path = changed(folders[outputs], tmp_path / "model", **settings)
    with pytest.raises(ValueError, match=message):
        read(path)


@pytest.mark.parametrize(
    ("read", "message"),
    [
        (nn.classifier, "must classify texts, got EncoderModel; train a head"),
        (nn.reranker, "must score pairs of texts, got EncoderModel; take a cross-encoder"),
    ],
)
def test_encoder_without_head_is_refused(tmp_path: Path, read: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"config.json: the model {message}"):
        read(encoder_folder(tmp_path))


@pytest.mark.parametrize("weights", ["float", "int8"])
@pytest.mark.parametrize(("read", "outputs"), [(nn.classifier, 3), (nn.reranker, 1)])
def test_weights_are_those_of_for_inference(
    folders: dict[int, Path], read: Any, outputs: int, weights: str
) -> None:
    model = read(folders[outputs], weights=weights).model
    expected = nn.for_inference(nn.load(folders[outputs]), weights)
    ids = np.array([[CLS, 4, 5, 9, 7, SEP]])
    np.testing.assert_array_equal(model(ids).data, expected(ids).data)


def test_no_texts_give_no_scores(folders: dict[int, Path]) -> None:
    labels, probabilities = nn.classifier(folders[3])([])
    assert labels == [] and probabilities.shape == (0, 3)
    assert nn.reranker(folders[1])(WORDS[4], []).shape == (0,)
    assert nn.classifier(folders[2])(WORDS[4:6])[1].shape == (2, 2)
    label, alone = nn.classifier(folders[3])("")
    assert label in ("LABEL_0", "LABEL_1", "LABEL_2") and alone.shape == (3,)


def test_wrong_texts_and_sizes_of_batches_raise(folders: dict[int, Path]) -> None:
    classify, rerank = nn.classifier(folders[3]), nn.reranker(folders[1])
    for wrong in (3, ["a", 3], {"a": "b"}, b"a", None):
        with pytest.raises(TypeError, match="a text must be a string|texts must be a list"):
            classify(wrong)
        with pytest.raises(TypeError, match="a text must be a string|texts must be a list"):
            rerank("a", wrong)
    for question in (3, ["a"], None):
        with pytest.raises(TypeError, match="a text must be a string"):
            rerank(question, ["a"])
    for size in (0, -1, 1.5):
        with pytest.raises((TypeError, ValueError), match="(Classifier|Reranker): batch_size must"):
            classify(["a"], size)
        with pytest.raises((TypeError, ValueError), match="(Classifier|Reranker): batch_size must"):
            rerank("a", ["a"], size)


def test_labels_do_not_change_with_the_list_of_the_caller(folders: dict[int, Path]) -> None:
    classify, names = nn.classifier(folders[3]), ["a", "b", "c"]
    again = nn.Classifier(classify.model, classify.text, names)
    names[:] = ["x", "y", "z"]
    assert again.labels == ("a", "b", "c") and again(["it"])[0][0] in again.labels
