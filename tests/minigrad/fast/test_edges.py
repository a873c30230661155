"""Kernels in half precision, far from 0, with ignored rows, and with nothing to attend to."""

from __future__ import annotations

import math
import tracemalloc
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from support.thresholds import replaced

import minigrad as mg
import nn
from minigrad import Tensor
from minigrad.fast import forward_attention
from nn import functional as F

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
    "attention": (
        mg.scaled_dot_product_attention,
        [3 * normal(2, 2, 5, 32), 3 * normal(2, 2, 7, 32), normal(2, 2, 7, 32)],
    ),
    "cross_entropy": (lambda x: mg.cross_entropy(x, np.arange(70_000) % 3), [normal(70_000, 3)]),
    "linear_cross_entropy": (
        lambda x, w: mg.linear_cross_entropy(x, w, np.arange(70_000) % 3),
        [normal(70_000, 4), normal(3, 4)],
    ),
    "embedding": (lambda w: mg.embedding(w, np.zeros(5000, int)), [normal(3, 2)]),
    "batch_norm": (lambda x: nn.BatchNorm1d(8, dtype=x.dtype)(x), [300 * normal(64, 8)]),
    "mean": (mg.mean, [normal(70_000) / 99]),
    "logsumexp": (mg.logsumexp, [normal(70_000) / 99]),
    "softmax, where": (lambda x: mg.softmax(x, where=EVEN), [normal(140_000) / 99]),
    "std": (mg.std, [200 * normal(9000)]),
    "var": (mg.var, [200 * normal(9000)]),
    "norm": (mg.norm, [200 * normal(9000)]),
}


@pytest.mark.parametrize("run", [nullcontext, mg.use_definitions], ids=["kernel", "definition"])
@pytest.mark.parametrize("name", HALF)
def test_float16_result_is_the_float64_result_rounded(name: str, run: Any) -> None:
    function, operands = HALF[name]
    results = []
    for dtype in (np.float16, np.float64):
        leaves = [Tensor(x.astype(np.float16).astype(dtype), requires_grad=True) for x in operands]
        with run():
            y = function(*leaves)
        g = np.random.default_rng(1).standard_normal(y.shape).astype(np.float16).astype(dtype)
        results.append([c.data for c in (y, *mg.gradients(y, leaves, g))])
    for rounded, exact in zip(*results):
        assert rounded.dtype == np.float16
        atol = 2e-3 * np.abs(exact).max() + 1e-7
        np.testing.assert_allclose(rounded, exact, rtol=2e-3, atol=atol)


# -- cross-entropy -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [1e7, -3e8])
@pytest.mark.parametrize(
    "options", [{}, {"label_smoothing": 0.1}, {"weight": np.arange(1.0, 6)}], ids=str
)
def test_cross_entropy_of_logits_with_an_offset_loses_no_digits(
    offset: float, options: Any
) -> None:
    scores = 32.0 * np.random.default_rng(2).integers(-2, 3, (6, 5))  # exact beside the offset
    loss = lambda x: mg.cross_entropy(x, [0, 1, 2, 3, 4, 0], **options)
    value, gradient = mg.value_and_grad(loss)((scores + offset).astype(np.float32))
    expected, expected_gradient = mg.value_and_grad(loss)(scores)
    assert value.item() == pytest.approx(expected.item(), rel=1e-6)
    np.testing.assert_allclose(gradient.data, expected_gradient.data, rtol=0, atol=1e-6)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("loss", ["kernel", "definition", "linear"])
def test_cross_entropy_does_not_read_ignored_rows(bad: float, loss: str) -> None:
    scores, target = normal(4, 3), [2, -100, 0, -100]
    spoiled = scores.copy()
    spoiled[1], spoiled[3, 1] = bad, bad
    results = []
    for logits in (scores, spoiled):
        x = Tensor(logits, requires_grad=True)
        with (
            mg.use_definitions("cross_entropy" if loss == "definition" else "gelu"),
            np.errstate(invalid="ignore"),
        ):
            if loss == "linear":
                y = mg.linear_cross_entropy(x, np.eye(3), target)
            else:
                y = mg.cross_entropy(x, target, label_smoothing=0.1)
        results.append([y.data, mg.gradients(y, x)[0].data])
    np.testing.assert_equal(results[0], results[1])
    assert not results[1][1][[1, 3]].any()


def test_linear_cross_entropy_holds_few_logits_at_a_time() -> None:
    """Besides the gradient of the weight, it takes at most twice the memory of the weight."""
    shapes = (600, 128), (8192, 128)
    x, w = (Tensor(normal(*shape).astype(np.float32), requires_grad=True) for shape in shapes)
    target = np.arange(600)
    mg.linear_cross_entropy(x, w, target)  # allocates what is kept
    tracemalloc.start()
    loss = mg.linear_cross_entropy(x, w, target)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert loss.requires_grad and peak < 3 * w.nbytes + 2 * x.nbytes < 600 * 8192 * 4


def test_linear_cross_entropy_of_no_rows_is_0_with_gradients_of_0(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(np, "empty_like", lambda x: np.full_like(x, np.nan))
    leaves = [Tensor(np.ones(shape), requires_grad=True) for shape in ((0, 3), (4, 3), (4,))]
    loss = mg.linear_cross_entropy(*leaves[:2], np.zeros(0, int), linear_bias=leaves[2])
    assert loss.item() == 0
    for leaf, gradient in zip(leaves, mg.gradients(loss, leaves)):
        np.testing.assert_array_equal(gradient.data, np.zeros(leaf.shape), strict=True)


def test_cross_entropy_of_probabilities_equals_that_of_classes() -> None:
    x, classes = normal(4, 3), np.array([0, 2, 1, 1])
    options: Any = {"label_smoothing": 0.2, "weight": [1.0, 2.0, 3.0], "reduction": "sum"}
    f = lambda x, q: mg.cross_entropy(x, q, **options)
    np.testing.assert_allclose(f(x, classes).data, f(x, np.eye(3)[classes]).data, rtol=1e-12)
    q = RNG.dirichlet(np.ones(3), 4)
    assert mg.gradcheck(f, [x, q]) and mg.gradgradcheck(f, [x, q])


@pytest.mark.parametrize("rows", [slice(None), slice(0, 1), slice(1, 2)], ids=str)
def test_losses_and_attention_of_large_scores_do_not_overflow(rows: slice) -> None:
    """Also if other rows of the block have small scores."""
    scores = np.array([[90, 91, 0], [1, 2, 3], [-200, -100, -99], [200, 0, 100]])[rows]

    def results(dtype: Any) -> list[Any]:
        x, eye = (
            Tensor(scores.astype(dtype), requires_grad=True),
            np.eye(3, dtype=dtype)[None, None],
        )
        losses = mg.cross_entropy(x, np.ones(len(scores), int), reduction="none")
        attended = mg.scaled_dot_product_attention(x[None, None], eye, eye, scale=1.0)
        return [losses, *mg.gradients(losses.sum(), x), attended]

    for y, expected in zip(results(np.float32), results(np.float64)):
        np.testing.assert_allclose(y.data, expected.data, rtol=1e-6, atol=1e-5)


# -- attention, gelu, dropout --------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "d"), [(2, 9), (300, 4), (1, 400)])
def test_attention_equals_its_formula(n: int, d: int) -> None:
    """Each head of keys and values serves two consecutive heads of queries."""
    q, k, v = normal(n, 4, 3, d), normal(n, 2, 5, d), normal(n, 2, 5, 2)
    mask = np.array([True, False, True, True, False])
    weights = np.exp(q @ np.repeat(k, 2, 1).mT / d**0.5) * mask
    expected = weights / weights.sum(-1, keepdims=True) @ np.repeat(v, 2, 1)
    y = mg.scaled_dot_product_attention(q, k, v, mask[None])
    np.testing.assert_allclose(y.data, expected, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("mask", [None, np.ones((3, 0), bool)], ids=["no mask", "mask"])
def test_attention_to_no_keys_gives_zeros(mask: Any) -> None:
    q, k = (Tensor(np.ones((2, 2, n, 2)), requires_grad=True) for n in (3, 0))
    y = mg.scaled_dot_product_attention(q, k, k, mask, dropout=0.5)
    gq, gk = mg.gradients(y.sum(), [q, k])
    assert y.shape == q.shape and not y.data.any() and not gq.data.any() and gk.shape == k.shape


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e6])
@pytest.mark.parametrize("scale", [1.0, 100.0])
def test_attention_does_not_read_masked_scores_that_are_huge_or_not_finite(
    value: float, scale: float
) -> None:
    q, key, v, g = scale * np.random.default_rng(0).standard_normal((4, 1, 2, 5, 2))
    mask = np.arange(5) != 3
    results = []
    for number in (0.0, value):
        key[:, :, 3] = number
        leaves = [Tensor(x, requires_grad=True) for x in (q, key.copy(), v)]
        with np.errstate(all="ignore"):
            y = mg.scaled_dot_product_attention(*leaves, mask=mask[None])
            gq, gk, gv = mg.gradients(y, leaves, g)
        results.append([y.data, gk.data, gv.data])
    for found, expected in zip(*results):
        np.testing.assert_allclose(found, expected, rtol=1e-8)
    with np.errstate(all="ignore"):
        assert np.isnan(mg.scaled_dot_product_attention(q, key * np.nan, v).data).all()


def test_attention_to_masked_keys_of_infinite_scores_alone_gives_zeros() -> None:
    query, key, value = np.ones((1, 1, 1, 1)), np.full((1, 1, 2, 1), -np.inf), np.ones((1, 1, 2, 1))
    y = mg.scaled_dot_product_attention(query, key, value, mask=np.zeros((1, 2), bool))
    assert y.tolist() == [[[[0.0]]]]


def test_attention_to_an_infinite_score_is_nan_with_and_without_a_mask() -> None:
    query, value = np.ones((1, 1, 1, 1)), np.ones((1, 1, 2, 1))
    key = np.array([np.inf, 1]).reshape(1, 1, 2, 1)
    for mask in (None, np.ones((1, 2), bool)):
        with np.errstate(invalid="ignore"):
            assert np.isnan(mg.scaled_dot_product_attention(query, key, value, mask).item())


def test_functional_attention_to_scores_of_minus_infinity_alone_gives_zeros() -> None:
    x = [Tensor(normal(1, 2, 3, 4), requires_grad=True) for _ in range(3)]
    bias = Tensor(np.where(np.tri(3, k=-1) > 0, 0.5, -np.inf), requires_grad=True)
    y = F.scaled_dot_product_attention(*x, bias)
    assert not y.data[:, :, 0].any() and np.isfinite(y.data).all()
    gradients = mg.gradients((y * y).sum(), [*x, bias], create_graph=True)
    assert all(np.isfinite(g.data).all() for g in gradients)
    second = mg.gradients(sum((g * g).sum() for g in gradients), [*x, bias])
    assert all(np.isfinite(g.data).all() for g in second)


@pytest.mark.parametrize("approximate", ["none", "tanh"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_gelu_far_from_zero_is_x_or_zero(approximate: str, dtype: Any) -> None:
    x = np.array([-np.finfo(dtype).max, -200, 200, np.finfo(dtype).max], dtype)
    f = lambda x: mg.gelu(x, approximate=approximate)
    np.testing.assert_array_equal(f(x).data, np.maximum(x, 0))
    assert mg.grad(lambda x: f(x).sum())(x).tolist() == [0, 0, 1, 1]


def test_gelu_of_float32_keeps_the_digits_of_small_values() -> None:
    """1 + erf(x) would lose them for x < 0."""
    x = np.linspace(-4, 6, 4001, dtype=np.float32)
    cdf = np.array([0.5 * math.erfc(-v / math.sqrt(2)) for v in x.tolist()])
    y = mg.gelu(x).data
    np.testing.assert_allclose(y, x * cdf, rtol=2e-5)
    np.testing.assert_allclose(y[x > 0], (x * cdf)[x > 0], rtol=3e-7)


@pytest.mark.parametrize("p", [0.99, 0.999, 1 - 1e-9, np.nextafter(1, 0)])
@pytest.mark.parametrize("dropout", [mg.dropout, mg.relu_dropout])
def test_dropout_near_one_keeps_some_elements_and_the_mean(p: float, dropout: Any) -> None:
    y = dropout(np.ones(1 << 20), p=p).data
    assert (y > 0).any() and abs(y.mean() - 1) < 0.2


def test_dropout_of_integers_is_that_of_floats() -> None:
    x = np.arange(-3, 4)
    for dropout in (mg.dropout, mg.relu_dropout):
        y, expected = (dropout(a, generator=np.random.default_rng(0)) for a in (x, x * 1.0))
        np.testing.assert_array_equal(y.data, expected.data, strict=True)


def test_relu_dropout_of_a_number_is_dropout_of_its_relu() -> None:
    for x in (2.0, np.float64(2.0)):
        y = mg.relu_dropout(x, p=0.1, generator=np.random.default_rng(0))
        assert y.item() == pytest.approx(2 / 0.9, rel=0.01)
        assert mg.relu_dropout(-x, p=0.1).item() == 0


@pytest.mark.parametrize("options", [{"p": 0.9, "training": False}, {"p": 0.0}])
def test_dropout_that_drops_nothing_returns_its_input_or_the_relu_of_it(options: Any) -> None:
    x = normal(50)
    np.testing.assert_array_equal(mg.dropout(x, **options).data, x)
    np.testing.assert_array_equal(mg.relu_dropout(x, **options).data, np.maximum(x, 0))
    rng = np.random.default_rng(0)
    for f in (mg.dropout, mg.relu_dropout):
        f(x, **options, generator=rng)
    assert rng.random() == np.random.default_rng(0).random()  # nothing was drawn


# -- embedding -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [5, 300])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_embedding_gradient_that_is_not_finite_stays_in_its_row(length: int, value: float) -> None:
    table = Tensor(np.ones((length, 2)), requires_grad=True)
    mg.embedding(table, [1, 2, 2]).backward(np.array([[value, 1.0], [1, 1], [1, 1]]))
    assert table.grad.data[[0, 2, 3, 4]].tolist() == [[0, 0], [2, 2], [0, 0], [0, 0]]
    np.testing.assert_equal(table.grad.data[1], [value, 1])


@pytest.mark.parametrize("value", [59, 60, 61, 87, 88])
@pytest.mark.parametrize("sign", [1, -1])
def test_exponentials_at_the_limit_of_their_shift_are_exact(value: int, sign: int) -> None:
    """Use nine values exp(87), whose sum is infinite in float32, and one exp(-59), close to 0."""
    logits = Tensor(np.full((3, 9), sign * value, np.float32), requires_grad=True)
    loss = mg.cross_entropy(logits, np.zeros(3, int))
    loss.backward()
    np.testing.assert_allclose(loss.data, math.log(9), rtol=1e-5)
    expected = np.full((3, 9), 1 / 27) - np.eye(9)[[0, 0, 0]] / 3
    np.testing.assert_allclose(logits.grad, expected, atol=1e-6)
    for dtype in (np.float16, np.float32):
        query = np.full((1, 1, 3, 1), sign * value, dtype)
        for n in (1, 9):
            key, memory = np.ones((1, 1, n, 1), dtype), np.ones((1, 1, n, 2), dtype)
            y = mg.scaled_dot_product_attention(*map(Tensor, (query, key, memory)))
            heads = forward_attention(query, key, memory, None, None, 1.0)
            rtol = 1e-3 if dtype == np.float16 else 1e-5
            np.testing.assert_allclose([y.data, heads], 1, rtol=rtol)


def test_linear_cross_entropy_of_float32_adds_blocks_without_rounding() -> None:
    with replaced({"BLOCK": 1}):
        x, target = np.full((2000, 1), 0.3, np.float32), np.zeros(2000, int)
        loss = mg.linear_cross_entropy(x, np.eye(3, 1, dtype=np.float32), target)
    assert loss.item() == pytest.approx(math.log(1 + 2 * math.exp(-np.float32(0.3))), rel=2e-7)


@pytest.mark.parametrize(
    ("call", "shapes"),
    [
        (mg.gelu, ["nd"]),
        (mg.linear, ["nd", "2d", "2"]),
        (mg.linear, ["n3", "d3", "d"]),
        (lambda x, w, b: mg.layer_norm(x, weight=w, bias=b), ["nd", "d", "d"]),
        (lambda x, w: mg.rms_norm(x, weight=w), ["nd", "d"]),
        (lambda x: mg.dropout(x, generator=np.random.default_rng(0)), ["nd"]),
        (lambda x: mg.relu_dropout(x, generator=np.random.default_rng(0)), ["nd"]),
        (lambda x: mg.cross_entropy(x, np.full(len(x), -100)), ["n3"]),
        (lambda x, w, b: mg.linear_cross_entropy(x, w, np.zeros(len(x), int), linear_bias=b), ["nd", "3d", "3"]),
        (lambda x: mg.embedding(x, np.zeros((0, 2), int)), ["nd"]),
        (mg.scaled_dot_product_attention, ["n3d2", "n3d2", "n3d2"]),
        (mg.scaled_dot_product_attention, ["12n2", "12d2", "12d2"]),
    ],
)  # fmt: skip
@pytest.mark.parametrize(("n", "d"), [(0, 3), (3, 0), (0, 0)])
def test_kernel_of_no_elements_equals_its_definition(
    call: Any, shapes: list[str], n: int, d: int
) -> None:
    results = []
    for block in (nullcontext, mg.use_definitions):
        sizes = [tuple({"n": n, "d": d}.get(c) if c in "nd" else int(c) for c in s) for s in shapes]
        leaves = [Tensor(np.ones(size), requires_grad=True) for size in sizes]
        with block(), np.errstate(all="ignore"):
            y = call(*leaves)
            results.append([y, *mg.gradients(y, leaves, np.ones(y.shape))])
    for value, expected in zip(*results):
        np.testing.assert_allclose(value.data, expected.data, strict=True)
