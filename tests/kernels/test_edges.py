"""Kernels at the edges: half precision, large offsets, rows that do not count, nothing to attend to."""

from __future__ import annotations

import math
import tracemalloc
from typing import Any

import numpy as np
import pytest

import minigrad as mg
from minigrad import Tensor

RNG = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape)


HALF: dict[str, tuple[Any, list[np.ndarray]]] = {
    "layer_norm": (lambda x, w, b: mg.layer_norm(x, weight=w, bias=b), [300 + 30 * normal(4, 512), normal(512), normal(512)]),  # Σ x² > 65,504
    "rms_norm": (lambda x, w: mg.rms_norm(x, weight=w, eps=1e-5), [300 * normal(4, 512), normal(512)]),
    "gelu": (mg.gelu, [np.array([-6e4, -300, -3, -0.5, 0.5, 3, 300, 6e4])]),
    "gelu, tanh": (lambda x: mg.gelu(x, approximate="tanh"), [np.array([-6e4, -300, -3, -0.5, 0.5, 3, 300, 6e4])]),
    "linear": (mg.linear, [8 * normal(3, 4096), normal(5, 4096) / 8, normal(5)]),
    "attention": (lambda q, k, v, b: mg.scaled_dot_product_attention(q, k, v, bias=b),
                  [3 * normal(2, 2, 5, 32), 3 * normal(2, 2, 7, 32), normal(2, 2, 7, 32), normal(2, 5, 7)]),
    "cross_entropy": (lambda x: mg.cross_entropy(x, np.arange(70_000) % 3), [normal(70_000, 3)]),
    "cross_entropy, smoothed": (lambda x: mg.cross_entropy(x, [1, 2], label_smoothing=0.1), [1000 + normal(2, 4000)]),
    "linear_cross_entropy": (lambda x, w: mg.linear_cross_entropy(x, w, np.arange(70_000) % 3),
                             [normal(70_000, 4), normal(3, 4)]),
    "embedding": (lambda w: mg.embedding(w, np.zeros(5000, int)), [normal(3, 2)]),
    **{f.__name__: (f, [normal(70_000) / 99]) for f in (mg.mean, mg.logsumexp, mg.softmax, mg.log_softmax)},
    **{f.__name__: (f, [200 * normal(9000)]) for f in (mg.var, mg.std, mg.norm)},
    "mean of some": (lambda x: mg.mean(x, where=np.arange(140_000) % 2 == 0), [9 + normal(140_000)]),
    "softmax of some": (lambda x: mg.softmax(x, where=np.arange(140_000) % 2 == 0), [normal(140_000) / 99]),
}  # fmt: skip


@pytest.mark.parametrize("name", list(HALF))
def test_half_precision_is_the_exact_result_rounded(name: str) -> None:
    """Result and gradients of float16 operands: those of the same numbers in float64, to half's precision."""
    function, operands = HALF[name]
    halves = [x.astype(np.float16) for x in operands]
    results = []
    for dtype in (np.float16, np.float64):
        leaves = [Tensor(x.astype(dtype), requires_grad=True) for x in halves]
        y = function(*leaves)
        assert y.dtype == dtype
        g = np.random.default_rng(1).standard_normal(y.shape).astype(np.float16).astype(dtype)
        results.append([y.data, *(c.data for c in mg.gradients(y, leaves, g))])
        assert all(c.dtype == dtype for c in results[-1])
    for rounded, exact in zip(*results):
        assert np.isfinite(rounded).all()
        size = np.abs(exact).max()
        np.testing.assert_allclose(rounded, exact, rtol=2e-3, atol=2e-3 * size + 1e-7)


@pytest.mark.parametrize(
    "dtype,offset", [(np.float32, 1e7), (np.float32, -3e8), (np.float64, 1e15), (np.float32, 0.0)]
)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weighted", [False, True])
def test_an_offset_of_all_logits_costs_no_digits(
    dtype: Any, offset: float, smoothing: float, weighted: bool
) -> None:
    unit = float(np.spacing(dtype(abs(offset)))) if offset else 1.0  # steps that the offset leaves
    scores = unit * np.random.default_rng(2).integers(-2, 3, (6, 5)).astype(float)
    options: Any = {"label_smoothing": smoothing, "weight": np.arange(1.0, 6) if weighted else None}
    found = []
    for shift, kind in ((offset, dtype), (0.0, np.float64)):
        x = Tensor((scores + shift).astype(kind), requires_grad=True)
        loss = mg.cross_entropy(x, [0, 1, 2, 3, 4, 0], **options)
        (g,) = mg.gradients(loss, [x])
        found.append((loss.item(), g.data))
    eps = float(np.finfo(dtype).eps)
    assert found[0][0] == pytest.approx(found[1][0], rel=8 * eps)
    np.testing.assert_allclose(found[0][1], found[1][1], rtol=0, atol=8 * eps)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("definition", [False, True])
def test_an_ignored_row_may_hold_anything(
    bad: float, reduction: str, smoothing: float, definition: bool
) -> None:
    scores, targets = normal(4, 3), np.array([2, -100, 0, -100])
    spoiled = scores.copy()
    spoiled[1], spoiled[3, 1] = bad, bad
    options: Any = {"reduction": reduction, "label_smoothing": smoothing}
    names = ["cross_entropy"] if definition else ["gelu"]
    with mg.use_definitions(*names):
        (right, expected), (loss, g) = [
            (y, mg.gradients(mg.sum(y), [x])[0])
            for x in (Tensor(scores, requires_grad=True), Tensor(spoiled, requires_grad=True))
            for y in [mg.cross_entropy(x, targets, **options)]
        ]
    np.testing.assert_array_equal(loss.data, right.data)
    np.testing.assert_array_equal(g.data, expected.data)
    assert not g.data[[1, 3]].any()
    if reduction != "none":  # and where the scores are made on the way
        weight, x = normal(3, 2), normal(4, 2)
        fused = mg.linear_cross_entropy(x.copy(), weight, targets, **options)
        x[1] = bad
        with np.errstate(invalid="ignore"):
            assert mg.linear_cross_entropy(x, weight, targets, **options).item() == fused.item()


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("rows,ignored", [(300, 0), (301, 7), (299, 299)])
def test_logits_in_blocks_are_the_logits_of_all(rows: int, ignored: int, bias: bool) -> None:
    """Value and gradients where the fused loss makes several blocks of logits, the last shorter than the others."""
    classes, d = 8000, 40
    targets = RNG.integers(0, classes, rows)
    targets[:ignored] = -100
    leaves = [
        Tensor(normal(*shape), requires_grad=True)
        for shape in ((rows, d), (classes, d), (classes,))
    ]
    x, w, b = leaves if bias else (*leaves[:2], None)
    found = []
    for names in (["gelu"], ["linear_cross_entropy"]):
        with mg.use_definitions(*names):
            loss = mg.linear_cross_entropy(x, w, targets, linear_bias=b, label_smoothing=0.1)
            found.append([loss, *mg.gradients(loss, leaves[: 2 + bias], -1.7)])
    for ours, expected in zip(*found):
        np.testing.assert_allclose(ours.data, expected.data, rtol=1e-10, atol=1e-15)


def test_the_fused_loss_holds_few_logits_at_a_time() -> None:
    """Beside the gradient of the weight, which it makes, no more than twice the memory of the weight."""
    x, w = (
        Tensor(normal(*shape).astype(np.float32), requires_grad=True)
        for shape in ((1500, 128), (8192, 128))
    )
    targets = RNG.integers(0, 8192, 1500)
    mg.linear_cross_entropy(x, w, targets)  # what is made once is there
    tracemalloc.start()
    try:
        loss = mg.linear_cross_entropy(x, w, targets)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert loss.requires_grad
    assert peak < w.nbytes + 2 * w.nbytes + 2 * x.nbytes < 1500 * 8192 * 4


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_attention_to_no_keys_gives_zeros(dtype: Any, masked: bool, dropout: float) -> None:
    q, k, v = (Tensor(np.ones((2, 2, n, 2), dtype), requires_grad=True) for n in (3, 0, 0))
    mask = np.ones((3, 0), bool) if masked else None
    y = mg.scaled_dot_product_attention(q, k, v, mask, dropout=dropout)
    assert y.dtype == dtype and y.shape == q.shape and not y.data.any()
    grads = mg.gradients(mg.sum(y), [q, k, v])
    assert [g.shape for g in grads] == [x.shape for x in (q, k, v)] and not grads[0].data.any()


@pytest.mark.parametrize("approximate", ["none", "tanh"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_gelu_far_out_is_x_or_nothing(approximate: str, dtype: Any) -> None:
    large = float(np.finfo(dtype).max)
    x = Tensor(np.array([-large, -1e30, -200, 200, 1e30, large], dtype), requires_grad=True)
    y = mg.gelu(x, approximate=approximate)
    np.testing.assert_array_equal(y.data, np.maximum(x.data, 0))
    np.testing.assert_array_equal(
        mg.gradients(y, [x], np.ones(6, dtype))[0].data, [0, 0, 0, 1, 1, 1]
    )


def test_gelu_in_single_precision_keeps_the_digits_of_small_values() -> None:
    """x Φ(x) by the complementary error function of double precision; 1 + erf would lose them where x < 0."""
    x = np.linspace(-4, 6, 4001, dtype=np.float32)
    exact = [0.5 * float(v) * math.erfc(-float(v) / math.sqrt(2)) for v in x]
    slope = [
        0.5 * math.erfc(-v / math.sqrt(2)) + v * math.exp(-v * v / 2) / math.sqrt(2 * math.pi)
        for v in x.tolist()
    ]
    leaf = Tensor(x, requires_grad=True)
    y = mg.gelu(leaf)
    np.testing.assert_allclose(y.data[x > 0], np.array(exact)[x > 0], rtol=3e-7)
    np.testing.assert_allclose(y.data, exact, rtol=2e-5)
    np.testing.assert_allclose(mg.gradients(mg.sum(y), [leaf])[0].data, slope, rtol=2e-6, atol=2e-7)


@pytest.mark.parametrize("axis", [None, 0, 1, (0, 1)])
@pytest.mark.parametrize("keepdims", [False, True])
def test_the_gradient_of_std_at_constants_is_zero(axis: Any, keepdims: bool) -> None:
    constant = Tensor(np.full((3, 4), 2.5), requires_grad=True)
    y = mg.std(constant, axis, keepdims=keepdims)
    assert not y.data.any()
    assert not mg.gradients(mg.sum(y), [constant])[0].data.any()
    mixed = Tensor(np.vstack([np.full(4, 2.5), np.arange(4.0)]), requires_grad=True)
    g = mg.gradients(mg.sum(mg.std(mixed, 1)), [mixed])[0].data
    assert not g[0].any()
    np.testing.assert_allclose(g[1], (np.arange(4) - 1.5) / 4 / np.arange(4).std())


@pytest.mark.parametrize(
    "options", [{}, {"label_smoothing": 0.2, "weight": [1.0, 2.0, 3.0], "reduction": "sum"}]
)
def test_cross_entropy_of_class_probabilities(options: Any) -> None:
    """Rows of one 1 are the classes themselves; by both operands it has its derivatives, the second ones too."""
    rng = np.random.default_rng(0)
    x, classes, q = (
        rng.standard_normal((4, 3)),
        np.array([0, 2, 1, 1]),
        rng.dirichlet(np.ones(3), 4),
    )
    reduction = {**options, "reduction": "sum"}
    by_class, by_row = (mg.cross_entropy(x, y, **reduction) for y in (classes, np.eye(3)[classes]))
    np.testing.assert_allclose(by_class.data, by_row.data, rtol=1e-12)
    assert mg.gradgradcheck(lambda x, q: mg.cross_entropy(x, q, **options), [x, q])


@pytest.mark.parametrize("p", [0.99, 0.998, 0.999, 1 - 1e-9, np.nextafter(1, 0)])
def test_dropout_near_one_leaves_some_and_keeps_the_mean(p: float) -> None:
    x = np.ones(1 << 20)
    for y in (mg.dropout(x, p), mg.relu_dropout(x, p=p)):
        assert (y.data > 0).any() and abs(y.data.mean() - 1) < 0.2


def test_curvature_of_huber_where_nothing_is_lost() -> None:
    """d²/2 has second derivative 1 at 0, which |d|² as written does not."""
    for loss in (mg.huber_loss, mg.smooth_l1_loss):
        assert mg.hessian(lambda x, loss=loss: loss(x, np.zeros(2), reduction="sum"))(
            np.zeros(2)
        ).data.tolist() == [
            [1, 0],
            [0, 1],
        ]


@pytest.mark.parametrize(
    "x", [-2.0, np.float64(-2.0), np.array(-2.0), np.array([-2.0, -1.0])], ids=repr
)
def test_a_relu_comes_before_dropout_of_a_number_too(x: Any) -> None:
    assert not np.any(mg.relu_dropout(x, p=0.1, generator=np.random.default_rng(0)).data)
    positive = mg.relu_dropout(-x, p=0.1, generator=np.random.default_rng(0)).data
    assert (
        np.array_equal(positive, mg.dropout(-x, 0.1, generator=np.random.default_rng(0)).data)
        and positive.any()
    )
