"""Kernels in half precision, far from 0, with ignored rows, and with nothing to attend to."""

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


FAR = np.array([-6e4, -300, -3, -0.5, 0.5, 3, 300, 6e4])
EVEN = np.arange(140_000) % 2 == 0
HALF: dict[str, tuple[Any, list[np.ndarray]]] = {
    "layer_norm": (
        lambda x, w, b: mg.layer_norm(x, weight=w, bias=b),
        [300 + 30 * normal(4, 512), normal(512), normal(512)],  # the sum of squares exceeds 65,504
    ),
    "rms_norm": (mg.rms_norm, [300 * normal(4, 512)]),
    "gelu": (mg.gelu, [FAR]),
    "gelu, tanh": (lambda x: mg.gelu(x, approximate="tanh"), [FAR]),
    "linear": (mg.linear, [8 * normal(3, 4096), normal(5, 4096) / 8, normal(5)]),
    "attention": (
        mg.scaled_dot_product_attention,
        [3 * normal(2, 2, 5, 32), 3 * normal(2, 2, 7, 32), normal(2, 2, 7, 32)],
    ),
    "cross_entropy": (lambda x: mg.cross_entropy(x, np.arange(70_000) % 3), [normal(70_000, 3)]),
    "cross_entropy, smoothed": (
        lambda x: mg.cross_entropy(x, [1, 2], label_smoothing=0.1),
        [1000 + normal(2, 4000)],
    ),
    "linear_cross_entropy": (
        lambda x, w: mg.linear_cross_entropy(x, w, np.arange(70_000) % 3),
        [normal(70_000, 4), normal(3, 4)],
    ),
    "embedding": (lambda w: mg.embedding(w, np.zeros(5000, int)), [normal(3, 2)]),
    "mean": (mg.mean, [normal(70_000) / 99]),
    "mean, where": (lambda x: mg.mean(x, where=EVEN), [9 + normal(140_000)]),
    "logsumexp": (mg.logsumexp, [normal(70_000) / 99]),
    "log_softmax": (mg.log_softmax, [normal(70_000) / 99]),
    "softmax": (mg.softmax, [normal(70_000) / 99]),
    "softmax, where": (lambda x: mg.softmax(x, where=EVEN), [normal(140_000) / 99]),
    "std": (mg.std, [200 * normal(9000)]),
    "norm": (mg.norm, [200 * normal(9000)]),
}


@pytest.mark.parametrize("name", HALF)
def test_float16_result_is_the_float64_result_rounded(name: str) -> None:
    function, operands = HALF[name]
    results = []
    for dtype in (np.float16, np.float64):
        leaves = [Tensor(x.astype(np.float16).astype(dtype), requires_grad=True) for x in operands]
        y = function(*leaves)
        g = np.random.default_rng(1).standard_normal(y.shape).astype(np.float16).astype(dtype)
        results.append([y.data, *(c.data for c in mg.gradients(y, leaves, g))])
        assert all(c.dtype == dtype for c in results[-1])
    for rounded, exact in zip(*results):
        assert np.isfinite(rounded).all()
        np.testing.assert_allclose(
            rounded, exact, rtol=2e-3, atol=2e-3 * np.abs(exact).max() + 1e-7
        )


# -- cross-entropy -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "dtype, offset", [(np.float32, 1e7), (np.float32, -3e8), (np.float64, 1e15), (np.float32, 0.0)]
)
@pytest.mark.parametrize(
    "options", [{}, {"label_smoothing": 0.1}, {"weight": np.arange(1.0, 6)}], ids=str
)
def test_cross_entropy_of_logits_with_an_offset_loses_no_digits(
    dtype: Any, offset: float, options: Any
) -> None:
    unit = float(np.spacing(dtype(abs(offset)))) if offset else 1.0  # exact beside the offset
    scores = unit * np.random.default_rng(2).integers(-2, 3, (6, 5))
    loss = lambda x: mg.cross_entropy(x, [0, 1, 2, 3, 4, 0], **options)
    value, gradient = mg.value_and_grad(loss)((scores + offset).astype(dtype))
    expected, expected_gradient = mg.value_and_grad(loss)(scores.astype(float))
    eps = float(np.finfo(dtype).eps)
    assert value.item() == pytest.approx(expected.item(), rel=8 * eps)
    np.testing.assert_allclose(gradient.data, expected_gradient.data, rtol=0, atol=8 * eps)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("kernel", ["cross_entropy", "gelu"])  # replaced by its definition
def test_cross_entropy_does_not_read_ignored_rows(
    bad: float, reduction: str, smoothing: float, kernel: str
) -> None:
    scores, target = normal(4, 3), np.array([2, -100, 0, -100])
    spoiled = scores.copy()
    spoiled[1], spoiled[3, 1] = bad, bad
    results = []
    with mg.use_definitions(kernel):
        for logits in (scores, spoiled):
            x = Tensor(logits, requires_grad=True)
            loss = mg.cross_entropy(x, target, label_smoothing=smoothing, reduction=reduction)
            results.append([loss.data, mg.gradients(loss.sum(), x)[0].data])
    np.testing.assert_equal(results[0], results[1])
    assert not results[1][1][[1, 3]].any()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_linear_cross_entropy_does_not_read_ignored_rows(bad: float) -> None:
    x, weight, target = normal(4, 2), normal(3, 2), [2, -100, 0, -100]
    expected = mg.linear_cross_entropy(x.copy(), weight, target).item()
    x[1] = bad
    with np.errstate(invalid="ignore"):
        assert mg.linear_cross_entropy(x, weight, target).item() == expected


def test_linear_cross_entropy_holds_few_logits_at_a_time() -> None:
    """Besides the gradient of the weight, it takes at most twice the memory of the weight."""
    shapes = (1500, 128), (8192, 128)
    x, w = (Tensor(normal(*shape).astype(np.float32), requires_grad=True) for shape in shapes)
    target = RNG.integers(0, 8192, 1500)
    mg.linear_cross_entropy(x, w, target)  # allocates what is kept
    tracemalloc.start()
    try:
        loss = mg.linear_cross_entropy(x, w, target)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert loss.requires_grad
    assert peak < 3 * w.nbytes + 2 * x.nbytes < 1500 * 8192 * 4


def test_cross_entropy_of_probabilities_equals_that_of_classes() -> None:
    x, classes = normal(4, 3), np.array([0, 2, 1, 1])
    options: Any = {"label_smoothing": 0.2, "weight": [1.0, 2.0, 3.0], "reduction": "sum"}
    by_class, by_row = (mg.cross_entropy(x, y, **options) for y in (classes, np.eye(3)[classes]))
    np.testing.assert_allclose(by_class.data, by_row.data, rtol=1e-12)
    f = lambda x, q: mg.cross_entropy(x, q, **options)
    q = RNG.dirichlet(np.ones(3), 4)
    assert mg.gradcheck(f, [x, q]) and mg.gradgradcheck(f, [x, q])


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("rows", [slice(None), slice(0, 1), slice(1, 2)], ids=str)
def test_losses_and_attention_of_large_scores_do_not_overflow(dtype: Any, rows: slice) -> None:
    """Also if other rows of the block have small scores."""
    scores = np.array([[30, 31, 0], [1, 2, 3], [-200, -100, -99], [200, 0, 100]], dtype)[rows]
    target = np.ones(len(scores), int)

    def results(dtype: Any) -> list[Any]:
        x, eye = Tensor(scores.astype(dtype), requires_grad=True), np.eye(3, dtype=dtype)
        losses = mg.cross_entropy(x, target, reduction="none")
        heads = x[None, None], eye[None, None], eye[None, None]
        return [
            losses,
            *mg.gradients(losses.sum(), x, retain_graph=True),
            mg.linear_cross_entropy(x, eye, target, reduction="sum"),
            mg.scaled_dot_product_attention(*heads, scale=1.0),
        ]

    eps = float(np.finfo(dtype).eps)
    for y, expected in zip(results(dtype), results(np.float64)):
        np.testing.assert_allclose(y.data, expected.data, rtol=4 * eps, atol=100 * eps)


# -- attention, gelu, dropout --------------------------------------------------------------------------------


@pytest.mark.parametrize("mask", [None, np.ones((3, 0), bool)], ids=["no mask", "mask"])
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_attention_to_no_keys_gives_zeros(mask: Any, dropout: float) -> None:
    q, k = (Tensor(np.ones((2, 2, n, 2)), requires_grad=True) for n in (3, 0))
    y = mg.scaled_dot_product_attention(q, k, k, mask, dropout=dropout)
    gq, gk = mg.gradients(y.sum(), [q, k])
    assert y.shape == q.shape and not y.data.any()
    assert not gq.data.any() and gk.shape == k.shape


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("scale", [1.0, 100.0])
def test_attention_does_not_read_masked_scores_that_are_not_finite(
    value: float, scale: float
) -> None:
    """A score that is NaN and not masked makes its row NaN, as in the definition."""
    q, k, v, g = scale * np.random.default_rng(0).standard_normal((4, 2, 2, 5, 2))
    k[0, :, 3] = value
    k[1, :, 2] = np.nan
    mask = np.ones((2, 1, 5, 5), bool)
    mask[0, 0, :, 3] = False
    mask[1, 0, :3, 2] = False
    results = []
    for kernel in ("gelu", "attention"):
        with mg.use_definitions(kernel), np.errstate(all="ignore"):
            leaves = [Tensor(x, requires_grad=True) for x in (q, k, v)]
            y = mg.scaled_dot_product_attention(*leaves, mask=mask)
            results.append([y.data, *[c.data for c in mg.gradients(y, leaves, g)]])
    for fused, expected in zip(*results):
        np.testing.assert_allclose(fused, expected, rtol=1e-8, atol=1e-12 * scale**4)
    assert np.isfinite(results[0][0][0]).all() and np.isnan(results[0][0][1, :, 3:]).all()


def test_attention_to_masked_keys_of_infinite_scores_alone_gives_zeros() -> None:
    query, key, value = np.ones((1, 1, 1, 1)), np.full((1, 1, 2, 1), -np.inf), np.ones((1, 1, 2, 1))
    y = mg.scaled_dot_product_attention(query, key, value, mask=np.zeros((1, 2), bool))
    assert y.tolist() == [[[[0.0]]]]


@pytest.mark.parametrize("approximate", ["none", "tanh"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_gelu_far_from_zero_is_x_or_zero(approximate: str, dtype: Any) -> None:
    large = float(np.finfo(dtype).max)
    x = Tensor(np.array([-large, -1e30, -200, 200, 1e30, large], dtype), requires_grad=True)
    y = mg.gelu(x, approximate=approximate)
    np.testing.assert_array_equal(y.data, np.maximum(x.data, 0))
    (g,) = mg.gradients(y, [x], np.ones(6, dtype))
    np.testing.assert_array_equal(g.data, [0, 0, 0, 1, 1, 1])


def test_gelu_of_float32_keeps_the_digits_of_small_values() -> None:
    """1 + erf(x) would lose them for x < 0."""
    x = np.linspace(-4, 6, 4001, dtype=np.float32)
    cdf = [0.5 * math.erfc(-v / math.sqrt(2)) for v in x.tolist()]
    density = np.exp(-(x.astype(float) ** 2) / 2) / math.sqrt(2 * math.pi)
    value, slope = mg.value_and_grad(lambda x: mg.sum(mg.gelu(x)))(x)
    y = mg.gelu(x).data
    np.testing.assert_allclose(y[x > 0], (x * cdf)[x > 0], rtol=3e-7)
    np.testing.assert_allclose(y, x * cdf, rtol=2e-5)
    np.testing.assert_allclose(slope.data, cdf + x * density, rtol=2e-6, atol=2e-7)


@pytest.mark.parametrize("p", [0.99, 0.998, 0.999, 1 - 1e-9, np.nextafter(1, 0)])
def test_dropout_near_one_keeps_some_elements_and_the_mean(p: float) -> None:
    x = np.ones(1 << 20)
    for y in (mg.dropout(x, p), mg.relu_dropout(x, p=p)):
        assert (y.data > 0).any() and abs(y.data.mean() - 1) < 0.2


@pytest.mark.parametrize("x", [2.0, np.float64(2.0), np.array(2.0), np.array([2.0, 1.0])], ids=repr)
def test_relu_dropout_of_a_number_is_dropout_of_its_relu(x: Any) -> None:
    kept, expected = (
        f(x, p=0.1, generator=np.random.default_rng(0)).data for f in (mg.relu_dropout, mg.dropout)
    )
    np.testing.assert_array_equal(kept, expected)
    assert kept.any() and not mg.relu_dropout(-x, p=0.1).data.any()


# -- embedding -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("padding", [None, 4])
def test_embedding_of_many_rows_adds_the_gradients_of_repeated_indices(padding: Any) -> None:
    """Tables of more than 256 rows, indices that occur up to 8 times and more often."""
    ids, g = RNG.integers(0, 300, (40, 30)), normal(40, 30, 3)
    ids[0] = 4
    expected = np.zeros((300, 3))
    np.add.at(expected, ids, g * (ids != padding)[..., None])
    table = Tensor(np.zeros((300, 3)), requires_grad=True)
    mg.embedding(table, ids, padding).backward(g)
    np.testing.assert_allclose(table.grad.data, expected, rtol=1e-12, atol=1e-12)
