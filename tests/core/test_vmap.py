"""`vmap` against a loop over the examples: values, gradients, trees of axes, and what it refuses."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from opinfo import TABLE, OpInfo, naming

import minigrad as mg
from minigrad.trees import leaves

REFUSED = {"top_k", "dropout", "relu_dropout", "attention", "scaled_dot_product_attention"}
"""`top_k`, and ops that draw random values, the last two only with dropout."""
SCALES = np.array([1.0, 0.9, 0.8])
REFUSAL = "np.argpartition has no batching rule|random values must not be drawn inside vmap"


def weighted_sum(results: list[Any]) -> Any:
    """Return a sum of the results with random weights, in which each element counts."""
    rng = np.random.default_rng(0)
    terms = [(y * rng.standard_normal(y.shape)).sum() for y in results if y.dtype.kind == "f"]
    return sum(terms[1:], terms[0]) if terms else mg.Tensor(0.0)


@pytest.mark.parametrize("info", TABLE.values(), ids=list(TABLE))
def test_vmap_of_op_equals_a_loop(info: OpInfo) -> None:
    for seed, sample in enumerate(info.each_sample()):
        if not sample.floats:
            continue
        floats = list(sample.floats.values())
        is_mapped = np.random.default_rng(seed).random(len(floats)) < 0.6
        is_mapped[seed % len(floats)] = True
        xs = [
            mg.Tensor(np.multiply.outer(SCALES, x) if mapped else x, requires_grad=True)
            for x, mapped in zip(floats, is_mapped)
        ]
        axes = tuple(0 if mapped else None for mapped in is_mapped)
        with naming(sample), np.errstate(all="ignore"), mg.use_definitions():
            rows = [
                sample.call(*[x[k] if mapped else x for x, mapped in zip(xs, is_mapped)])
                for k in range(len(SCALES))
            ]
            expected = [mg.as_tensor(np.stack(column)) for column in zip(*rows)]
            try:
                results = mg.vmap(sample.call, axes)(*xs)
            except TypeError as error:
                assert info.name in REFUSED and re.search(REFUSAL, str(error)), str(error)
                continue
            for y, e in zip(results, expected, strict=True):
                assert y.dtype == e.dtype
                np.testing.assert_allclose(y.data, e.data, rtol=1e-9, atol=1e-10)
            sums = [weighted_sum(results), weighted_sum(expected)]
            if not sums[1].requires_grad:
                continue
            for c, d in zip(*[mg.gradients(y, xs, allow_unused=True) for y in sums]):
                c, d = (0 if g is None else g.data for g in (c, d))
                np.testing.assert_allclose(c, d, rtol=1e-8, atol=1e-9)


RNG = np.random.default_rng(0)
LENGTH, D, HEADS = 5, 8, 2
PARAMETERS = {
    "embedding": RNG.standard_normal((11, D)),
    "attention": [RNG.standard_normal((D, D)) / 3 for _ in range(4)],
    "feed_forward": (RNG.standard_normal((D, D)) / 3, RNG.standard_normal(D)),
}


def transformer_loss(parameters: Any, ids: Any, mask: Any, targets: Any) -> Any:
    """Return the loss of one sequence in a Transformer layer, with ignored targets."""
    x = mg.embedding(parameters["embedding"], ids)
    q, k, v, out = parameters["attention"]
    heads = [mg.split_heads(mg.linear(x, w)[None], HEADS) for w in (q, k, v)]
    attended = mg.merge_heads(mg.scaled_dot_product_attention(*heads, mask[None, None, None]))[0]
    x = mg.layer_norm(x + mg.linear(attended, out))
    x = mg.gelu(mg.linear(x, *parameters["feed_forward"]))
    return mg.cross_entropy(x, targets, ignore_index=0, label_smoothing=0.1)


def assert_trees_close(tree: Any, expected: Any) -> None:
    for x, y in zip(leaves(tree), leaves(expected), strict=True):
        np.testing.assert_allclose(x.data, y.data, rtol=1e-9, atol=1e-11)


def test_vmap_of_grad_gives_the_gradients_of_each_example_of_a_transformer_layer() -> None:
    rng = np.random.default_rng(1)
    mask = np.arange(LENGTH) < rng.integers(1, LENGTH + 1, (4, 1))
    batch = rng.integers(0, 11, (4, LENGTH)), mask, rng.integers(0, D, (4, LENGTH))
    gradients = mg.vmap(mg.grad(transformer_loss), (None, 0, 0, 0))(PARAMETERS, *batch)
    for k in range(4):
        expected = mg.grad(transformer_loss)(PARAMETERS, *[x[k] for x in batch])
        assert_trees_close([c[k] for c in leaves(gradients)], expected)


W, X, V = (RNG.standard_normal(shape) for shape in ((3, 4), (5, 4), (5, 4)))


def f(x: Any, w: Any = W) -> Any:
    return np.tanh(w @ x) ** 2 / (1 + (x * x).sum())


@pytest.mark.parametrize(
    "transformed",
    [
        mg.jacobian(f),
        mg.hessian(lambda x: f(x).sum()),
        mg.grad(lambda x: (mg.grad(lambda z: f(z).sum())(x) ** 2).sum()),
        lambda x: mg.hvp(lambda z: f(z).sum(), x, x.detach() * 2),
        lambda x: {"same": mg.Tensor(W), "sorted": np.sort(x), "first": (x[0], x.argmax())},
        lambda x: np.einsum("ij,j", W, x) + np.linalg.solve(W @ W.T + x @ x * np.eye(3), W @ x),
        lambda x: x.data * x + x * x.data + np.where(x > 0, x, x.data),
        lambda x: mg.stack([x, np.ones(4)]).T[np.array([[0], [2]]), :, None].std(0),
    ],
)
def test_vmap_of_a_function_equals_a_loop(transformed: Any) -> None:
    results = mg.vmap(transformed)(X)
    for k, x in enumerate(X):
        expected = leaves(transformed(mg.Tensor(x)))
        assert_trees_close([y[k] for y in leaves(results)], expected)


@pytest.mark.parametrize(
    "function",
    [
        *(np.std, np.cov, np.corrcoef, np.trace, np.diff, np.median, np.average, np.ptp, np.nansum),
        *(np.nan_to_num, np.trapezoid, np.round, np.count_nonzero, np.argmax, np.sort, np.rot90),
        lambda x: np.full_like(x, 2.0),
        lambda x: np.quantile(x, 0.3, axis=0),
        lambda x: np.kron(x, x),
        lambda x: np.vstack([x, np.roll(x, 1)]),
    ],
    ids=lambda f: f.__name__,
)
def test_vmap_of_numpy_function_equals_a_loop(function: Any) -> None:
    matrices = mg.tensor(RNG.standard_normal((3, 4, 4)), requires_grad=True)
    expected = np.stack([mg.as_tensor(function(matrix)).data for matrix in matrices])
    result = mg.vmap(function)(matrices)
    np.testing.assert_allclose(result.data, expected, rtol=1e-9)
    assert result.dtype == expected.dtype


def loss(w: Any, x: Any) -> Any:
    return f(x, w).sum()


def test_derivatives_of_vmap_equal_those_of_a_loop() -> None:
    def total(gradients: Any) -> Any:
        return (gradients**3).sum()

    by_vmap = mg.hessian(lambda w: total(mg.vmap(mg.grad(loss), (None, 0))(w, X)))
    by_loop = mg.hessian(lambda w: total(np.stack([mg.grad(loss)(w, x) for x in X])))
    np.testing.assert_allclose(by_vmap(W).data, by_loop(W).data, rtol=1e-9)


def test_vmap_moves_axes_and_takes_trees_of_them() -> None:
    def g(tree: Any, scale: Any, power: int = 1) -> Any:
        return {"sum": tree["a"] + tree["b"], "constant": (scale * 2,)}

    tree = {"a": X.T, "b": V}
    result = mg.vmap(g, ({"a": 1, "b": 0}, None), {"sum": -1, "constant": (None,)})(tree, 3.0)
    np.testing.assert_array_equal(result["sum"].data, (X + V).T)
    assert result["constant"][0].item() == 6
    repeated = mg.vmap(g, ({"a": -1, "b": 0}, None))(tree, np.ones(2), power=2)["constant"][0]
    np.testing.assert_array_equal(repeated.data, np.full((5, 2), 2.0))
    np.testing.assert_array_equal(mg.vmap(lambda a: a.T)(np.ones((2, 3, 4))).shape, (2, 4, 3))


@mg.custom_op(x=lambda g: np.fft.ifft(np.fft.fft(g)).real)
def for_ndarrays(x: Any, /) -> Any:
    return np.fft.ifft(np.fft.fft(x)).real


@pytest.mark.parametrize(
    "function, error, message",
    [
        (lambda x: x * float(x[0]), TypeError, "contains all examples"),
        (lambda x: x if x.sum() > 0 else -x, TypeError, "contains all examples"),
        (lambda x: x * np.asarray(x), TypeError, "contains all examples"),
        (lambda x: x[x > 0], TypeError, "the same for all examples if it is a mask"),
        (lambda x: np.nonzero(x)[0], TypeError, "np.nonzero has no batching rule"),
        (for_ndarrays, TypeError, "np.fft has no batching rule|np.fft.* no batching rule"),
        (mg.vmap(f), TypeError, "vmap must not be called inside vmap"),
        (mg.dropout, TypeError, "random values must not be drawn inside vmap"),
        (
            lambda x: (mg.Tensor(W, True) @ x).sum().backward(),
            mg.GradientError,
            "backward: it must not be called inside vmap",
        ),
        (lambda x: None, TypeError, "data must be numbers or booleans, got dtype object"),
    ],
)
def test_vmap_refuses_what_needs_one_example(function: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        mg.vmap(function)(X)
    assert mg.vmap(f)(X).shape == (5, 3)  # the mode ended


@pytest.mark.parametrize(
    "axes, args, message",
    [
        ((0, 0), (X,), "in_axes must have an entry for each of the 1 arguments, got 2"),
        (0.5, (X,), r"in_axes must be an integer, None, or a tree of them, got 0\.5"),
        ((0, True), (X, X), "in_axes must be an integer, None, or a tree of them, got True"),
        (0, (X, X[:2]), "the axes of the examples must have one length of at least 1, got 2, 5"),
        (None, (X,), "must have one length of at least 1, got no axis"),
        (0, (X[:0],), "must have one length of at least 1, got 0"),
        (0, (X, 2.0), "in_axes must be None for a scalar, got 0"),
        (2, (X,), "vmap: in_axes: axis 2 is out of bounds"),
        (({"a": 0},), (X,), "in_axes must have the structure of the arrays"),
    ],
)
def test_vmap_with_wrong_axes_names_them(axes: Any, args: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        mg.vmap(lambda *xs: xs[0], axes)(*args)


def test_vmap_without_out_axis_refuses_a_result_of_each_example() -> None:
    with pytest.raises(ValueError, match="out_axes must not be None for a result that differs"):
        mg.vmap(f, out_axes=None)(X)
    with pytest.raises(ValueError, match="out_axes: axis 2 is out of bounds"):
        mg.vmap(f, out_axes=2)(X)
    with pytest.raises(TypeError, match="out_axes must be an integer, None, or a tree of them"):
        mg.vmap(f, out_axes=0.5)(X)
