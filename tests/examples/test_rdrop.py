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


def log_softmax(x: np.ndarray) -> np.ndarray:
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


@pytest.mark.parametrize("alpha", [0.0, 1.0, 5.0])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_rdrop_equals_its_definition(alpha: float, smoothing: float) -> None:
    net, objective = model(0.4), RDrop(alpha, smoothing)
    mg.manual_seed(3)
    found = objective.total(net, (SOURCE, TARGET)).item()
    mg.manual_seed(3)
    logits = net(np.tile(SOURCE, (2, 1)), np.tile(TARGET[:, :-1], (2, 1))).data
    expected = 0.0
    for i, t in [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1)]:
        p, q = log_softmax(logits[i, t]), log_softmax(logits[i + 2, t])
        for logp in (p, q):
            expected -= ((1 - smoothing) * logp[TARGET[i, t + 1]] + smoothing * logp.mean()) / 2
        expected += alpha / 2 * ((np.exp(p) * (p - q)).sum() + (np.exp(q) * (q - p)).sum()) / 2
    assert found == pytest.approx(expected, rel=1e-9)
    assert not np.allclose(logits[:2], logits[2:])  # dropout differs between the two passes


def test_rdrop_without_dropout_is_the_plain_loss() -> None:
    net = model(0.0)
    plain, rdrop = nn.ModelLoss(label_smoothing=0.1), RDrop(5.0, 0.1)
    gradients = []
    for objective in (plain, rdrop):
        net.zero_grad()
        total = objective.total(net, (SOURCE, TARGET))
        total.backward()
        gradients.append([p.grad.data.copy() for p in net.parameters()])
        assert total.item() == pytest.approx(plain.total(net, (SOURCE, TARGET)).item(), rel=1e-9)
    for a, b in zip(*gradients):
        np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-10)
    net = model(0.5).eval()
    assert rdrop.total(net, (SOURCE, TARGET)).item() == plain.total(net, (SOURCE, TARGET)).item()
    assert rdrop.count(net, (SOURCE, TARGET)) == 6


@pytest.mark.parametrize("rows, classes", [(0, 3), (3, 4), (7, 20_000)])  # the last in three blocks
def test_divergence_of_blocks_equals_composition(rows: int, classes: int) -> None:
    numbers = np.random.default_rng(rows)
    first, second = (
        mg.Tensor(4 * numbers.normal(size=(rows, classes)), requires_grad=True) for _ in range(2)
    )
    p, q = log_softmax(first.data), log_softmax(second.data)
    expected = ((np.exp(p) - np.exp(q)) * (p - q)).sum() / 2
    np.testing.assert_allclose(_divergence(first, second).data, expected)

    def composed(first: mg.Tensor, second: mg.Tensor) -> mg.Tensor:
        p, q = mg.log_softmax(first), mg.log_softmax(second)
        return mg.sum((mg.exp(p) - mg.exp(q)) * (p - q)) / 2

    found = [
        mg.grad(lambda a, b, f=f: -1.7 * f(a, b), (0, 1))(first, second)
        for f in (_divergence, composed)
    ]
    for a, b in zip(*found):
        np.testing.assert_allclose(a.data, b.data, rtol=1e-9, atol=1e-12)
    if classes < 10:
        assert mg.gradgradcheck(_divergence, [first, second])


def test_rdrop_training_makes_the_passes_agree() -> None:
    net = model(0.3)
    optimizer = mg.optim.Adam(net.parameters(), 1e-2)

    def apart() -> float:
        with mg.no_grad():
            loss = lambda alpha: RDrop(alpha).total(net, (SOURCE, TARGET)).item()
            differences = []
            for seed in range(20):
                mg.manual_seed(seed)
                plain = loss(0.0)
                mg.manual_seed(seed)
                differences.append(loss(2.0) - plain)
        return float(np.mean(differences))

    before = apart()
    mg.manual_seed(0)
    for _ in range(60):
        optimizer.zero_grad()
        RDrop(50.0).total(net, (SOURCE, TARGET)).backward()
        optimizer.step()
    assert apart() < before / 3


def test_rdrop_negative_alpha_raises() -> None:
    with pytest.raises(ValueError, match="RDrop: alpha must be finite, at least 0, got -1"):
        RDrop(-1)
