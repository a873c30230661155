"""09_build_a_transformer and 00_autodiff: our own code against the library and against numbers known otherwise."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scripts import EXAMPLES, load

import nn

script = load("09_build_a_transformer")
by_hand = script.by_hand


def test_by_hand_has_at_most_135_lines() -> None:
    lines = (EXAMPLES / "course" / "by_hand.py").read_text(encoding="utf-8").splitlines()
    assert sum(bool(line.strip()) and not line.startswith("#") for line in lines) <= 135


def test_autodiff(lesson: Callable[[str], tuple[int, str, Path]]) -> None:
    checked, text, out = lesson("00_autodiff")
    assert (
        checked >= 14
        and "∂L/∂x" in text
        and {p.name for p in out.glob("*.png")} == {"slope.png", "fit.png"}
    )
    rows = re.findall(r"^  (\d)  +(-?[\d.]+)  +(-?[\d.]+)$", text, re.M)
    assert [n for n, *_ in rows] == list("012345") and all(a == b for _, a, b in rows)


def test_values_of_our_own() -> None:
    Value = load("00_autodiff").Value
    a, b = Value(0.7), Value(-1.3)
    ((a * b).tanh() * a + b).backward()
    f = lambda a, b: np.tanh(a * b) * a + b
    h = 1e-6
    assert a.grad == pytest.approx((f(0.7 + h, -1.3) - f(0.7 - h, -1.3)) / (2 * h), rel=1e-8)
    assert b.grad == pytest.approx((f(0.7, -1.3 + h) - f(0.7, -1.3 - h)) / (2 * h), rel=1e-8)


def test_the_model_by_hand_is_nn() -> None:
    rng = np.random.default_rng(1)
    p = by_hand.new_parameters((9, 11), 12, 20, 2, rng)
    for t in p.values():
        t.data += 0.1 * rng.standard_normal(t.shape).astype(np.float32)  # norms and biases too
    model = nn.Transformer(
        nn.TransformerConfig(
            9,
            11,
            d_model=12,
            num_heads=3,
            num_encoder_layers=2,
            num_decoder_layers=2,
            d_ff=20,
            dropout=0.0,
        )
    )
    model.load_state_dict({name: t.data for name, t in p.items()})
    source = np.array([[4, 5, 6, 0], [7, 8, 3, 4]])
    target = np.array([[1, 5, 6, 10, 2], [1, 9, 2, 0, 0]])
    ours, theirs = by_hand.loss(p, source, target, 3, 2), model.loss(source, target)
    assert ours.item() == pytest.approx(theirs.item(), rel=1e-5)
    ours.backward()
    theirs.backward()
    for name, q in model.named_parameters():
        np.testing.assert_allclose(p[name].grad.data, q.grad.data, atol=2e-5, err_msg=name)
    said = by_hand.translate(p, source, 3, 2, 7)
    greedy = [h.tokens for h in nn.greedy_search(model.eval(), source, max_len=6)]
    assert [[t for t in row[1:] if t] for row in said.tolist()] == greedy


def test_it_learns() -> None:
    rng = np.random.default_rng(0)
    p = by_hand.new_parameters((8, 8), 16, 32, 1, rng)
    source = rng.integers(3, 8, (256, 4))
    target = np.column_stack(
        [np.full(256, 1), source[:, ::-1], np.full(256, 2)]
    )  # the words in reverse
    losses = list(by_hand.train(p, source, target, 2, 1, epochs=30, lr=1e-2))
    assert losses[0] > 2 and losses[-1] < 0.1
    assert (by_hand.translate(p, source[:50], 2, 1, 6) == target[:50]).all(1).mean() > 0.9
