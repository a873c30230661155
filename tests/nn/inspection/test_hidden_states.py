"""Recorded hidden states, and attributions of predictions to tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import nn

ENCODER: dict[str, Any] = {
    "positions": "learned",
    "embeddings": nn.EmbeddingConfig(scale=False),
    "max_len": 20,
    "dtype": "float64",
}
IDS = np.array([3, 4, 5, 9])


def classifier() -> nn.EncoderClassifier:
    return nn.EncoderClassifier(
        nn.EncoderConfig(30, 16, 4, 2, 32, num_classes=3, **ENCODER), np.random.default_rng(0)
    )


def test_record_hidden_returns_results_of_each_module() -> None:
    model = classifier().eval()
    with nn.record_hidden(model) as states:
        result = model.hidden(IDS[None])
    assert list(states) == ["embedding", "encoder.layers.0", "encoder.layers.1"]
    assert_array_equal(states["encoder.layers.1"][0], result.data)
    model.hidden(IDS[None])
    assert len(states["embedding"]) == 1  # the block has ended


def moved(table: np.ndarray, i: int, logit: Any) -> float:
    """Return the derivative of a logit by the scale of the embedding of token i, by central differences."""
    step, row = 1e-5, table[i].copy()
    results = []
    for sign in (1, -1):
        table[i] = row * (1 + sign * step)
        results.append(logit())
    table[i] = row
    return (results[0] - results[1]) / (2 * step)


def language_model() -> nn.LanguageModel:
    config = nn.LanguageModelConfig(30, 16, 4, 2, 32, max_len=20, dtype="float64", tie=False)
    return nn.LanguageModel(config, np.random.default_rng(0))


@pytest.mark.parametrize("make", [classifier, language_model])
def test_attribution_is_gradient_times_input(make: Callable[[], Any]) -> None:
    """Of the logit of a class, or of the next token."""
    model = make()
    scores = nn.attribute(model, IDS, 2)
    model.eval()
    logits = lambda: np.atleast_2d(model(IDS[None]).data[0])[-1]
    table = model.embedding.tokens.weight.data
    expected = [moved(table, i, lambda: logits()[2]) for i in IDS]
    assert_allclose(scores, expected, rtol=1e-6, atol=1e-9)
    best = int(logits().argmax())
    assert_array_equal(nn.attribute(model, IDS), nn.attribute(model, IDS, best))
    assert all(p.grad is None for p in model.parameters())


def test_attribution_of_pair_is_gradient_times_input() -> None:
    model = nn.Transformer(nn.TransformerConfig(30, 30, 16, 4, 2, 2, 32, dtype="float64")).eval()
    target = np.array([1, 6, 8])
    logit = lambda: model(IDS[None], target[None]).data[0, -1, 7]
    for scores, embedding, row in zip(
        nn.attribute(model, IDS, 7, target=target),
        (model.source_embedding, model.target_embedding),
        (IDS, target),
    ):
        expected = [moved(embedding.tokens.weight.data, i, logit) for i in row]
        assert_allclose(scores, expected, rtol=1e-5, atol=1e-8)
    with pytest.raises(ValueError, match="ids must be one sequence, and target another"):
        nn.attribute(model, IDS)
