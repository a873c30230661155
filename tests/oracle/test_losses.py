"""Losses and `nn.functional` against PyTorch's: values, and gradients by predictions and targets, all reductions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from beside_torch import agree

import minigrad as mg
import nn
from minigrad import Tensor

torch = pytest.importorskip("torch", reason="PyTorch is the oracle; it is not installed")
rng = np.random.default_rng(0)
Make = Callable[[Any, Callable[[Any], Any]], Any]
"""A function of a library's `nn`, and of what makes an array its own."""

SHAPE = (4, 5)
PROBABILITIES = rng.uniform(0.02, 0.98, SHAPE)
ROWS = PROBABILITIES / PROBABILITIES.sum(-1, keepdims=True)
NUMBERS = rng.standard_normal(SHAPE) * 2
LABELS = np.array([0, 4, -100, 2])
WEIGHT = rng.uniform(0.5, 2, 5)

LOSSES: dict[str, tuple[Make, Any, Any]] = {  # what makes it, predictions, targets
    "MSE": (lambda nn, a, **k: nn.MSELoss(**k), NUMBERS, PROBABILITIES),
    "L1": (lambda nn, a, **k: nn.L1Loss(**k), NUMBERS, PROBABILITIES),
    "smooth L1": (lambda nn, a, **k: nn.SmoothL1Loss(beta=0.7, **k), NUMBERS, PROBABILITIES),
    "smooth L1, beta 0": (
        lambda nn, a, **k: nn.SmoothL1Loss(beta=0.0, **k),
        NUMBERS,
        PROBABILITIES,
    ),
    "Huber": (lambda nn, a, **k: nn.HuberLoss(delta=0.7, **k), NUMBERS, PROBABILITIES),
    "BCE": (lambda nn, a, **k: nn.BCELoss(a(WEIGHT), **k), PROBABILITIES, ROWS),
    "BCE at 0 and 1": (
        lambda nn, a, **k: nn.BCELoss(**k),
        np.array([0.0, 1, 0.5]),
        np.array([1.0, 0, 1]),
    ),
    "BCE with logits": (lambda nn, a, **k: nn.BCEWithLogitsLoss(**k), NUMBERS, PROBABILITIES),
    "BCE with logits, weights": (
        lambda nn, a, **k: nn.BCEWithLogitsLoss(a(WEIGHT), pos_weight=a(WEIGHT[::-1].copy()), **k),
        NUMBERS,
        PROBABILITIES,
    ),
    "BCE with logits, far out": (
        lambda nn, a, **k: nn.BCEWithLogitsLoss(**k),
        NUMBERS * 400,
        ROWS.round(),
    ),
    "cross-entropy": (
        lambda nn, a, **k: nn.CrossEntropyLoss(a(WEIGHT), label_smoothing=0.1, **k),
        NUMBERS,
        LABELS,
    ),
    "cross-entropy, ignored 2": (
        lambda nn, a, **k: nn.CrossEntropyLoss(ignore_index=2, **k),
        NUMBERS,
        LABELS.clip(0),
    ),
    "cross-entropy, probabilities": (lambda nn, a, **k: nn.CrossEntropyLoss(**k), NUMBERS, ROWS),
    "cross-entropy, probabilities, all": (
        lambda nn, a, **k: nn.CrossEntropyLoss(a(WEIGHT), label_smoothing=0.3, **k),
        NUMBERS,
        ROWS,
    ),
    "NLL": (lambda nn, a, **k: nn.NLLLoss(a(WEIGHT), **k), np.log(ROWS), LABELS),
    "KL": (lambda nn, a, **k: nn.KLDivLoss(**k), np.log(ROWS), np.where(ROWS < 0.1, 0, ROWS)),
    "KL, log": (
        lambda nn, a, **k: nn.KLDivLoss(log_target=True, **k),
        np.log(ROWS),
        np.log(ROWS[::-1]),
    ),
}


NO_SLOPE = ("BCE at 0 and 1", "KL")
"""By their targets these have no derivative where a probability is 0."""


@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides the total loss:UserWarning")
@pytest.mark.parametrize("reduction", ["mean", "sum", "none", "batchmean"])
@pytest.mark.parametrize("name", LOSSES)
def test_losses(name: str, reduction: str) -> None:
    make, predictions, targets = LOSSES[name]
    if reduction == "batchmean" and not name.startswith("KL"):
        with pytest.raises(
            ValueError, match="expected reduction 'mean', 'sum' or 'none', got 'batchmean'"
        ):
            make(nn, np.asarray, reduction=reduction)(predictions, targets)
        return
    both = targets.dtype.kind == "f" and name not in NO_SLOPE
    inputs = [predictions, targets] if both else [predictions]
    ours = [Tensor(x, requires_grad=True) for x in inputs]
    theirs = [torch.tensor(x, requires_grad=True) for x in inputs]
    y = make(nn, np.asarray, reduction=reduction)(*ours, *([] if both else [targets]))
    their_y = make(torch.nn, torch.tensor, reduction=reduction)(
        *theirs, *([] if both else [torch.tensor(targets)])
    )
    agree(list(zip(ours, theirs)), y, their_y, 1e-12, of_gradients=1e-8)


def test_targets_of_other_kinds() -> None:
    """Whole numbers and booleans as binary targets; what is ignored may be infinite."""
    whole, x = PROBABILITIES > 0.5, Tensor(NUMBERS, requires_grad=True)
    expected = torch.nn.functional.binary_cross_entropy_with_logits(
        torch.tensor(NUMBERS), torch.tensor(whole * 1.0)
    )
    for targets in (whole, whole.astype(int), whole.astype(np.float32)):
        loss = mg.binary_cross_entropy_with_logits(x, targets)
        assert loss.dtype == np.float64 and loss.item() == pytest.approx(expected.item())
    rows = np.log(ROWS)
    rows[LABELS == -100] = -np.inf
    x = Tensor(rows, requires_grad=True)
    (g,) = mg.gradients(mg.nll_loss(x, LABELS, WEIGHT), x)
    assert np.isfinite(g.data).all() and not g.data[LABELS == -100].any() and g.data.any()
    assert np.isfinite(mg.nll_loss(x, LABELS, reduction="none").data).all()


@pytest.mark.parametrize("targets", [LABELS, ROWS], ids=["classes", "probabilities"])
@pytest.mark.parametrize("smoothing", [-0.1, 1.5])
def test_label_smoothing_is_from_0_to_1(targets: Any, smoothing: float) -> None:
    with pytest.raises(
        ValueError, match=f"cross_entropy: expected 0 <= label_smoothing <= 1, got {smoothing}"
    ):
        mg.cross_entropy(NUMBERS, targets, label_smoothing=smoothing)


@pytest.mark.parametrize("outside", [-0.01, 1.5])
def test_binary_cross_entropy_takes_probabilities_alone(outside: float) -> None:
    with pytest.raises(ValueError, match="expected probabilities from 0 to 1"):
        mg.binary_cross_entropy(np.array([0.5, outside]), np.ones(2))


def test_weights_are_buffers() -> None:
    ours, theirs = (
        n.CrossEntropyLoss(a(WEIGHT)) for n, a in ((nn, np.asarray), (torch.nn, torch.tensor))
    )
    assert list(ours.state_dict()) == list(theirs.state_dict()) == ["weight"]
    assert ours.float().weight.dtype == np.float32 and not nn.CrossEntropyLoss().state_dict()


X = rng.standard_normal((2, 3, 4))
Y, Z = rng.standard_normal((2, 5, 4)), rng.standard_normal((2, 5, 6))
ALLOWED = rng.random((3, 5)) < 0.7
ALLOWED[:, 0] = True

FUNCTIONS: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "embedding": (lambda F, w, a: F.embedding(a(np.array([[1, 0], [2, 2]])), w[0]), [X]),
    "layer_norm": (lambda F, x, a: F.layer_norm(x, (4,), x[0, 0], x[0, 1], eps=0.1), [X]),
    "attention": (lambda F, q, k, v, a: F.scaled_dot_product_attention(q, k, v), [X, Y, Z]),
    "attention, causal": (
        lambda F, q, k, v, a: F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.7),
        [X, Y, Z],
    ),
    "attention, mask": (
        lambda F, q, k, v, a: F.scaled_dot_product_attention(q, k, v, a(ALLOWED)),
        [X, Y, Z],
    ),
    "attention, numbers": (
        lambda F, q, k, v, a: F.scaled_dot_product_attention(q, k, v, a(ALLOWED * 2.0)),
        [X, Y, Z],
    ),
    "normalize": (lambda F, x, a: F.normalize(x), [X]),
    "normalize, 1-norm": (lambda F, x, a: F.normalize(x, p=1.0, dim=-1), [X]),
    "cosine_similarity": (
        lambda F, x, y, a: F.cosine_similarity(x, y, dim=-1),
        [X, X[::-1, ::-1].copy()],
    ),
    "softmax": (lambda F, x, a: F.softmax(x, dim=1) + F.log_softmax(x, dim=0), [X]),
    "activations": (
        lambda F, x, a: (
            F.relu(x) + F.gelu(x) * F.silu(x) + F.elu(x) + F.leaky_relu(x, 0.3) + F.softplus(x)
        ),
        [X],
    ),
    "squashing": (lambda F, x, a: F.sigmoid(x) + F.logsigmoid(x) * F.tanh(x), [X]),
    "linear": (lambda F, x, y, a: F.linear(x, y[0], y[0, :, 0]), [X, Y]),
    "dropout": (lambda F, x, a: F.dropout(x, 0.5, training=False), [X]),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functional(name: str) -> None:
    f, arrays = FUNCTIONS[name]
    ours = [Tensor(x, requires_grad=True) for x in arrays]
    theirs = [torch.tensor(x, requires_grad=True) for x in arrays]
    y, their_y = f(nn.functional, *ours, np.asarray), f(torch.nn.functional, *theirs, torch.tensor)
    agree(list(zip(ours, theirs)), y, their_y, 1e-12)


def test_functional_refuses_what_it_cannot_mean() -> None:
    with pytest.raises(
        ValueError,
        match=r"the last axes of x must have lengths \(7, 4\), got shape \(2, 3, 4\)",
    ):
        nn.functional.layer_norm(X, (7, 4))
    with pytest.raises(ValueError, match="expected attn_mask or is_causal, not both"):
        nn.functional.scaled_dot_product_attention(X, Y, Z, ALLOWED, is_causal=True)
    half = np.full((1, 2, 4), 200, np.float16)  # whose products it does not hold
    found = nn.functional.scaled_dot_product_attention(half, half, half)
    assert found.dtype == np.float16 and (found.data == 200).all()


def test_every_loss_and_function_is_compared() -> None:
    """What is offered by PyTorch's names bears them there."""
    for name in nn.layers.losses.__all__:
        assert hasattr(torch.nn, name)
    for name in nn.functional.__all__:
        assert hasattr(torch.nn.functional, name)


@pytest.mark.parametrize("shape", [(2, 3, 4), (5,), (2, 0, 3)])
def test_small_layers(shape: tuple[int, ...]) -> None:
    x = rng.standard_normal(shape)
    pairs = [
        (nn.Identity(7, anything=1), torch.nn.Identity(7, anything=1)),
        (nn.LogSigmoid(), torch.nn.LogSigmoid()),
    ]
    pairs += [
        (nn.LogSoftmax(dim=-1), torch.nn.LogSoftmax(dim=-1)),
        (nn.ReLU(inplace=True), torch.nn.ReLU()),
    ]
    if len(shape) == 3:
        pairs += [(nn.Flatten(), torch.nn.Flatten()), (nn.Flatten(0, 1), torch.nn.Flatten(0, 1))]
    for ours, theirs in pairs:
        np.testing.assert_allclose(
            np.asarray(ours(Tensor(x))), theirs(torch.tensor(x)).numpy(), atol=1e-15
        )


def test_a_linear_layer_starts_within_its_bounds() -> None:
    layer = nn.Linear(100, 200, generator=np.random.default_rng(0))
    for p in layer.parameters():
        assert 0.095 < p.data.max() <= 0.1 and -0.1 <= p.data.min() < -0.095
    assert not nn.Linear(0, 3).bias.data.any()
    table = nn.Embedding(500, 20, std=0.5, generator=np.random.default_rng(0)).weight.data
    assert abs(table.mean()) < 0.02 and abs(table.std() - 0.5) < 0.02


def test_zero_grad() -> None:
    layer = nn.Linear(2, 2)
    for owner in (layer, mg.optim.SGD(layer.parameters(), lr=0.1)):
        layer(np.ones((1, 2), np.float32)).sum().backward()
        owner.zero_grad(set_to_none=False)
        assert all(p.grad is not None and not p.grad.data.any() for p in layer.parameters())
        owner.zero_grad()
        assert all(p.grad is None for p in layer.parameters())
        owner.zero_grad(set_to_none=False)
        assert all(p.grad is None for p in layer.parameters())


def test_learning_rate_schedules_bear_the_names_that_people_know() -> None:
    ours = {
        name for name in mg.optim.schedules.__all__ if name.endswith(("LR", "Restarts", "Plateau"))
    }
    assert ours <= set(dir(torch.optim.lr_scheduler)) and len(ours) >= 12
    assert mg.optim.lr_scheduler is mg.optim.schedules


def test_cross_entropy_of_probabilities_on_axis_1_is_refused() -> None:
    rng = np.random.default_rng(0)
    logits, target = rng.standard_normal((2, 3, 4)), rng.uniform(size=(2, 3, 4))
    with pytest.raises(ValueError, match=r"sum to 1 over the last axis.*moveaxis\(logits, 1, -1\)"):
        mg.cross_entropy(logits, target / target.sum(1, keepdims=True))
    mg.cross_entropy(logits, target / target.sum(-1, keepdims=True))
    mg.cross_entropy(logits, target)  # weights of classes need not be probabilities


def test_kl_div_batchmean_of_numbers_is_their_divergence() -> None:
    x, t = torch.tensor(-0.3), torch.tensor(0.6)
    expected = torch.nn.functional.kl_div(x, t, reduction="batchmean").item()
    found = mg.kl_div(x.numpy(), t.numpy(), reduction="batchmean").item()
    assert found == pytest.approx(expected)
