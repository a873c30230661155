"""Recorded hidden states, and attributions of predictions to tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import minigrad as mg
import nn

IDS = np.array([3, 4, 5, 9])


def classifier() -> nn.EncoderClassifier:
    config = nn.EncoderConfig(30, 16, 4, 2, 32, num_classes=3, dtype="float64")
    return nn.EncoderClassifier(config, np.random.default_rng(0)).eval()


def translator() -> nn.Transformer:
    config = nn.TransformerConfig(30, 30, 16, 4, 2, 2, 32, dtype="float64")
    return nn.Transformer(config, np.random.default_rng(0)).eval()


def test_record_hidden_returns_results_of_each_module() -> None:
    model = classifier()
    with nn.record_hidden(model) as states:
        result = model.hidden(IDS[None])
    assert list(states) == ["embedding", "encoder.layers.0", "encoder.layers.1"]
    assert_array_equal(states["encoder.layers.1"][0], result.data)
    model.hidden(IDS[None])
    assert len(states["embedding"]) == 1  # the block has ended


def test_record_hidden_returns_embeddings_of_images_and_layers_of_a_decoder() -> None:
    config = nn.EncoderConfig(d_model=8, num_heads=2, num_layers=1, image_size=4, patch_size=2)
    model, images = nn.EncoderModel(config).eval(), np.zeros((1, 3, 4, 4), np.float32)
    with nn.record_hidden(model) as states:
        result = model(images)
    assert_array_equal(states["embedding"][0], model.embedding(images).data)
    assert_array_equal(states["encoder.layers.0"][0], result.data)
    with pytest.raises(ValueError, match="ids must be one sequence"):
        nn.attribute(model, images)
    with nn.record_hidden(translator()) as states:
        pass
    parts = {"encoder.layers": 2, "decoder.layers": 2, "source_embedding": 1, "target_embedding": 1}
    assert [sum(name.startswith(part) for name in states) for part in parts] == [*parts.values()]


@pytest.mark.parametrize(("make", "target"), [(classifier, None), (translator, [1, 6, 8])])
def test_attribution_is_gradient_times_input(make: Callable[[], Any], target: Any) -> None:
    """It is the derivative of a logit by the scale of the embedding of a token, in evaluation."""
    model, rows = make(), [IDS] if target is None else [IDS, target]
    tables = [m.weight.data for m in model.modules() if isinstance(m, nn.Embedding)]
    logits = lambda: np.atleast_2d(model(*([row] for row in rows)).data[0])[-1]
    with mg.no_grad():
        found = nn.attribute(model.train(), IDS, 2, target=target)
    assert model.training and not model.eval().training
    for scores, table, row in zip([found] if target is None else found, tables, rows):
        for score, i in zip(scores, row, strict=True):
            step, results = 1e-5 * table[i], []
            for change in (step, -2 * step, step):
                table[i] += change
                results.append(logits()[2])
            assert_allclose(score, (results[0] - results[1]) / 2e-5, rtol=1e-5, atol=1e-9)
    best = nn.attribute(model, IDS, int(logits().argmax()), target=target)
    assert_array_equal(nn.attribute(model, IDS, target=target)[0], best[0])
    assert all(p.grad is None for p in model.parameters())


@given(
    st.lists(st.integers(1, 29), min_size=1, max_size=5),
    st.tuples(st.integers(0, 3), st.integers(0, 3)),
    st.booleans(),
    st.integers(0, 99),
)
def test_attribution_of_padded_text_equals_that_of_the_text(
    text: list[int], pads: tuple[int, int], has_mask: bool, seed: int
) -> None:
    config = nn.LanguageModelConfig(30, 16, 4, 2, 32, pad_id=0, dtype="float64")
    model = nn.LanguageModel(config, np.random.default_rng(seed)).eval()
    is_real = np.pad(np.ones(len(text), bool), pads)
    ids = np.pad(text, pads)
    found = nn.attribute(model, ids, padding_mask=is_real if has_mask else None)
    assert_allclose(found[is_real], nn.attribute(model, text), atol=1e-12)
    assert not found[~is_real].any()


def test_attribution_of_padded_target_equals_that_of_the_target() -> None:
    model = translator()
    _, found = nn.attribute(model, IDS, 2, target=[1, 6, 8, 0, 0])
    _, expected = nn.attribute(model, IDS, 2, target=[1, 6, 8])
    assert_allclose(found, [*expected, 0, 0], atol=1e-12)


def test_attribution_of_padded_source_equals_that_of_the_source() -> None:
    model, target = translator(), [1, 6, 8]
    found, other = nn.attribute(model, [*IDS, 7, 7], 0, target=target, padding_mask=[True] * 4 + [False] * 2)  # fmt: skip
    expected, others = nn.attribute(model, IDS, 0, target=target)
    assert_allclose(found, [*expected, 0, 0], atol=1e-12)
    assert_allclose(other, others, atol=1e-12)
    assert not np.array_equal(nn.attribute(model, IDS, target=target)[0], expected)


@pytest.mark.parametrize(
    ("make", "ids", "target"),
    [(translator, IDS, None), (classifier, IDS, IDS), (classifier, [IDS, IDS], None), (translator, IDS, [[1, 6], [1, 7]]), (translator, [IDS, IDS], [1, 6])],
)  # fmt: skip
def test_attribution_of_no_sequence_or_pair_raises(
    make: Callable[[], Any], ids: Any, target: Any
) -> None:
    with pytest.raises(ValueError, match="ids must be one sequence, and target another"):
        nn.attribute(make(), ids, target=target)
