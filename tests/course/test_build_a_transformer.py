"""Compare the model of lesson 9 with the library."""

from __future__ import annotations

import numpy as np
import pytest
from scripts import EXAMPLES, load

import nn

by_hand = load("by_hand")


def test_by_hand_has_at_most_150_lines() -> None:
    lines = (EXAMPLES / "course" / "by_hand.py").read_text(encoding="utf-8").splitlines()
    assert sum(bool(line.strip()) and not line.startswith("#") for line in lines) <= 150


def test_by_hand_equals_nn() -> None:
    rng = np.random.default_rng(1)
    p = by_hand.new_parameters((9, 11), 12, 20, 2, rng)
    for t in p.values():
        t.data += 0.1 * rng.standard_normal(t.shape).astype(np.float32)  # norms and biases too
    config = nn.TransformerConfig(9, 11, 12, 3, 2, 2, 20, dropout=0.0)
    model = nn.Transformer(config)
    model.load_state_dict({name: t.data for name, t in p.items()})
    source = np.array([[4, 5, 6, 0], [7, 8, 3, 4]])
    target = np.array([[1, 5, 6, 10, 2], [1, 9, 2, 0, 0]])
    loss, expected = by_hand.loss(p, source, target, 3, 2), model.loss(source, target)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    loss.backward()
    expected.backward()
    for name, q in model.named_parameters():
        np.testing.assert_allclose(p[name].grad.data, q.grad.data, atol=2e-5, err_msg=name)
    translated = by_hand.translate(p, source, 3, 2, 7)
    greedy = [h.tokens for h in nn.greedy_search(model, source, max_len=6)]
    assert [[t for t in row[1:] if t] for row in translated.tolist()] == greedy


def test_by_hand_learns_to_reverse() -> None:
    rng = np.random.default_rng(0)
    p = by_hand.new_parameters((8, 8), 16, 32, 1, rng)
    source = rng.integers(3, 8, (256, 4))
    target = np.pad(source[:, ::-1], ((0, 0), (1, 1)), constant_values=((0, 0), (1, 2)))
    losses = list(by_hand.train(p, source, target, 2, 1, epochs=30, lr=1e-2))
    assert losses[0] > 2 and losses[-1] < 0.1
    assert (by_hand.translate(p, source[:50], 2, 1, 6) == target[:50]).all(1).mean() > 0.9
