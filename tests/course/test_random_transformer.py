"""Sizes, use and training of the model of lessons 1 and 2; the statements check its layers."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scripts import load

import minigrad as mg
import nn

parts = load("random_transformer")
SOURCE = ["hello", "world"]


def test_random_transformer_has_the_sizes_and_vectors_of_the_text() -> None:
    model = parts.random_transformer(5)
    assert model.num_parameters() == 2 * 40 + 6 * (96 + 76 + 16) + 6 * (2 * 96 + 76 + 24) + 50
    for layer in (model.encoder.layers[5].self_attention, model.decoder.layers[0].cross_attention):
        assert (layer.num_heads, layer.d_k) == (2, 3)
        assert layer.k_proj.weight.shape == layer.out_proj.weight.shape[::-1] == (6, 4)
    for embedding in (model.source_embedding, model.target_embedding):
        np.testing.assert_array_equal(embedding.tokens.weight.data, parts.VECTORS)


def test_randn_draws_weights_and_keeps_norms() -> None:
    layer = parts.randn(parts.decoder_layer(), np.random.default_rng(0))
    initial = parts.decoder_layer().state_dict()
    drawn = {name: array for name, array in layer.state_dict().items() if "norm" not in name}
    for name in initial.keys() - drawn.keys():
        np.testing.assert_array_equal(layer.state_dict()[name], initial[name])
    values = np.concatenate([array.ravel() for array in drawn.values()])
    assert values.size == 2 * 96 + 76
    assert abs(values.mean()) < 0.2 and abs(values.std() - 1) < 0.15


def test_generate_returns_the_likeliest_words() -> None:
    model = parts.random_transformer(5).eval()
    generated = parts.generate(model, SOURCE, max_iters=3)
    source = np.array([[parts.INDEX[word] for word in SOURCE]])
    target = [parts.INDEX[word] for word in ("SOS", *(word for word, _ in generated))]
    probabilities = mg.softmax(model(source, np.array([target[:-1]]))).data[0]
    assert probabilities.argmax(-1).tolist() == target[1:]
    assert [p for _, p in generated] == pytest.approx(probabilities.max(-1), rel=1e-9)


def test_exact_matches_equal_generate() -> None:
    ended = 0
    for seed in range(12):
        model = parts.random_transformer(seed)
        said = [word for word, _ in parts.generate(model, SOURCE, max_iters=4)]
        targets = [[], *itertools.product(["hola", "mundo", "a"], repeat=2)]
        targets += [said[:-1]] * (said[-1] == "EOS")
        right = parts.exact_matches(model, [(SOURCE, target) for target in targets])
        assert right.tolist() == [[*target, "EOS"] == said for target in targets]
        ended += right.any()
    assert 0 < ended < 12


def test_train_lowers_the_loss_of_its_pairs() -> None:
    pairs = [(["hello"], ["hola"])]
    source, target = parts.batch(pairs)
    assert source.tolist() == [[0]] and target.tolist() == [[6, 8, 5]]
    model = nn.Transformer(parts.CONFIG, np.random.default_rng(0))
    first = model.loss(source, target).item()
    losses = parts.train(model, pairs, 20)
    assert losses[0] == pytest.approx(first, rel=1e-9) and losses[-1] < first
