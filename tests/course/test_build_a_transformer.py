"""Compare the model of lesson 7 with the library."""

from __future__ import annotations

import numpy as np
import pytest
from support.scripts import EXAMPLES, load

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
    losses = by_hand.loss(p, source, target, 3, 2), model.loss(source, target)
    for loss in losses:
        loss.backward()
    assert losses[0].item() == pytest.approx(losses[1].item(), rel=1e-5)
    for name, q in model.named_parameters():
        np.testing.assert_allclose(p[name].grad.data, q.grad.data, atol=2e-5, err_msg=name)
    translated = by_hand.translate(p, source, 3, 2, 7)
    greedy = [h.tokens for h in nn.greedy_search(model, source, max_len=6)]
    assert [[t for t in row[1:] if t] for row in translated.tolist()] == greedy
