"""R-Drop."""

from __future__ import annotations

import numpy as np
import pytest
from support.scripts import load

import minigrad as mg
import nn

RDROP = load("rdrop")
SOURCE = np.array([[4, 5, 6, 2], [5, 2, 0, 0]])
TARGET = np.array([[1, 5, 6, 4, 2], [1, 6, 2, 0, 0]])  # 4 + 2 tokens to predict


def model(dropout: float) -> nn.Transformer:
    config = nn.TransformerConfig(9, 9, 8, 2, 1, 1, 16, dropout=dropout, dtype="float64")
    mg.manual_seed(0)
    return nn.Transformer(config).train()


def test_rdrop_equals_its_definition() -> None:
    net, real = model(0.4), TARGET[:, 1:] != 0
    mg.manual_seed(3)
    found = RDROP.RDrop(5.0, 0.1).total(net, (SOURCE, TARGET)).item()
    mg.manual_seed(3)
    logits = net(np.tile(SOURCE, (2, 1)), np.tile(TARGET[:, :-1], (2, 1)))
    logp, logq = (mg.log_softmax(part).data[real] for part in (logits[:2], logits[2:]))  # (6, 9)
    smoothed = 0.9 * np.eye(9)[TARGET[:, 1:][real]] + 0.1 / 9
    losses = -(smoothed * (logp + logq)).sum() / 2
    p, q = np.exp(logp), np.exp(logq)
    divergences = (p * (logp - logq)).sum() + (q * (logq - logp)).sum()
    assert divergences > 0.1  # dropout differs between the two passes
    assert found == pytest.approx(losses + 5.0 / 2 * divergences / 2, rel=1e-9)


def test_rdrop_without_dropout_is_the_plain_loss() -> None:
    batch = (SOURCE, TARGET)
    plain, rdrop = nn.ModelLoss(label_smoothing=0.1), RDROP.RDrop(5.0, 0.1)
    for net in (model(0.0), model(0.5).eval()):
        expected = plain.total(net, batch).item()
        assert rdrop.total(net, batch).item() == pytest.approx(expected, rel=1e-9)
    assert rdrop.count(net, batch) == 6


@pytest.mark.parametrize("rows, classes", [(0, 3), (3, 4), (7, 20_000)])  # the last in three blocks
def test_divergence_of_blocks_equals_composition(rows: int, classes: int) -> None:
    draws = np.random.default_rng(rows).standard_normal((2, rows, classes))
    first, second = (mg.Tensor(4 * draw, requires_grad=True) for draw in draws)
    logp, logq = mg.log_softmax(first), mg.log_softmax(second)
    expected = mg.sum((mg.exp(logp) - mg.exp(logq)) * (logp - logq)) / 2
    found = RDROP._divergence(first, second)
    np.testing.assert_allclose(found.data, expected.data)
    gradients = (mg.gradients(-1.7 * y, [first, second]) for y in (found, expected))
    for a, b in zip(*gradients):
        np.testing.assert_allclose(a.data, b.data, rtol=1e-9, atol=1e-12)
    if classes < 10:
        assert mg.gradgradcheck(RDROP._divergence, [first, second])
