"""R-Drop."""

from __future__ import annotations

import numpy as np
import pytest
from scripts import load

import minigrad as mg
import nn

RDROP = load("rdrop")
RDrop, _divergence = RDROP.RDrop, RDROP._divergence

SOURCE = np.array([[4, 5, 6, 2], [5, 2, 0, 0]])
TARGET = np.array([[1, 5, 6, 4, 2], [1, 6, 2, 0, 0]])  # 4 + 2 tokens to predict


def model(dropout: float) -> nn.Transformer:
    config = nn.TransformerConfig(
        9, 9, 8, 2, 1, 1, 16, dropout=dropout, dtype="float64", max_len=8, tie="all"
    )
    mg.manual_seed(0)
    return nn.Transformer(config).train()


@pytest.mark.parametrize("alpha", [0.0, 1.0, 5.0])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_rdrop_equals_its_definition(alpha: float, smoothing: float) -> None:
    net, real = model(0.4), TARGET[:, 1:] != 0
    mg.manual_seed(3)
    found = RDrop(alpha, smoothing).total(net, (SOURCE, TARGET)).item()
    mg.manual_seed(3)
    logits = net(np.tile(SOURCE, (2, 1)), np.tile(TARGET[:, :-1], (2, 1)))
    logp, logq = (mg.log_softmax(part).data[real] for part in (logits[:2], logits[2:]))  # (6, 9)
    assert not np.allclose(logp, logq)  # dropout differs between the two passes
    expected = 0.0
    for row, token in enumerate(TARGET[:, 1:][real]):
        for log in (logp[row], logq[row]):
            expected -= ((1 - smoothing) * log[token] + smoothing * log.mean()) / 2
    p, q = np.exp(logp), np.exp(logq)
    expected += alpha / 2 * ((p * (logp - logq)).sum() + (q * (logq - logp)).sum()) / 2
    assert found == pytest.approx(expected, rel=1e-9)


def test_rdrop_without_dropout_is_the_plain_loss() -> None:
    net, batch = model(0.0), (SOURCE, TARGET)
    plain, rdrop = nn.ModelLoss(label_smoothing=0.1), RDrop(5.0, 0.1)
    expected, found = plain.total(net, batch), rdrop.total(net, batch)
    assert found.item() == pytest.approx(expected.item(), rel=1e-9)
    parameters = list(net.parameters())
    for a, b in zip(mg.gradients(found, parameters), mg.gradients(expected, parameters)):
        np.testing.assert_allclose(a.data, b.data, rtol=1e-7, atol=1e-10)
    net = model(0.5).eval()
    assert rdrop.total(net, batch).item() == plain.total(net, batch).item()
    assert rdrop.count(net, batch) == 6


@pytest.mark.parametrize("rows, classes", [(0, 3), (3, 4), (7, 20_000)])  # the last in three blocks
def test_divergence_of_blocks_equals_composition(rows: int, classes: int) -> None:
    rng = np.random.default_rng(rows)
    first, second = (
        mg.Tensor(4 * rng.standard_normal((rows, classes)), requires_grad=True) for _ in range(2)
    )
    logp, logq = mg.log_softmax(first), mg.log_softmax(second)
    expected = mg.sum((mg.exp(logp) - mg.exp(logq)) * (logp - logq)) / 2
    found = _divergence(first, second)
    np.testing.assert_allclose(found.data, expected.data)
    gradients = (mg.gradients(-1.7 * y, [first, second]) for y in (found, expected))
    for a, b in zip(*gradients):
        np.testing.assert_allclose(a.data, b.data, rtol=1e-9, atol=1e-12)
    if classes < 10:
        assert mg.gradgradcheck(_divergence, [first, second])


def test_rdrop_negative_alpha_raises() -> None:
    with pytest.raises(ValueError, match="RDrop: alpha must be finite, at least 0, got -1"):
        RDrop(-1)
