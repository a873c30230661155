"""Sizes, use and training of the model of lessons 5 and 6; the statements check its layers."""

from __future__ import annotations

import itertools

import numpy as np
from support.scripts import load

parts = load("random_transformer")
SOURCE = ["hello", "world"]


def test_random_transformer_has_the_sizes_and_vectors_of_the_text() -> None:
    model = parts.random_transformer(5)
    assert model.num_parameters() == 2 * 40 + 6 * (96 + 76 + 16) + 6 * (2 * 96 + 76 + 24) + 50
    for embedding in (model.source_embedding, model.target_embedding):
        np.testing.assert_array_equal(embedding.tokens.weight.data, parts.VECTORS)


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
