"""Derivatives of functions of nested dicts, lists, tuples and named tuples of arrays."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, NamedTuple

import numpy as np
import pytest

import minigrad as mg
from minigrad import Tensor
from minigrad.trees import leaves, rebuilt

rng = np.random.default_rng(0)


class Layer(NamedTuple):
    weight: Any
    bias: Any


def parameters() -> dict[str, Any]:
    return {
        "layers": [
            Layer(rng.standard_normal((3, 4)), np.zeros(4)),
            Layer(rng.standard_normal((4, 1)), np.zeros(1)),
        ],
        "scale": 0.5,
        "pair": (rng.standard_normal(2), {"deep": rng.standard_normal((1, 2))}),
    }


X = rng.standard_normal((5, 3))


def loss(tree: Any, x: Any = X) -> Any:
    h = x
    for layer in tree["layers"]:
        h = np.tanh(h @ layer.weight + layer.bias)
    return (h**2).sum() * tree["scale"] + (tree["pair"][0] * tree["pair"][1]["deep"] ** 3).sum()


def flat(tree: Any) -> np.ndarray:
    return np.concatenate([np.ravel(np.asarray(leaf)) for leaf in leaves(tree)])


def unflat(vector: Any, like: Any) -> Any:
    parts, start = [], 0
    for leaf in leaves(like):
        parts.append(vector[start : start + np.size(leaf)].reshape(np.shape(leaf)))
        start += np.size(leaf)
    return rebuilt(like, parts)


def same_structure(a: Any, b: Any) -> bool:
    if isinstance(a, dict):
        return (
            type(a) is type(b)
            and a.keys() == b.keys()
            and all(same_structure(a[k], b[k]) for k in a)
        )
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same_structure, a, b))
    return np.shape(a) == np.shape(b)


def test_gradients_have_the_structure_of_the_argument() -> None:
    p = parameters()
    by_vector = mg.grad(lambda v: loss(unflat(v, p)))(flat(p)).data
    g = mg.grad(loss)(p)
    assert same_structure(p, g) and isinstance(g["layers"][0], Layer)
    np.testing.assert_allclose(flat(g), by_vector, rtol=1e-12)
    value, g = mg.value_and_grad(loss, (0, 1))(p, X)
    assert type(g) is tuple and same_structure(p, g[0]) and g[1].shape == X.shape
    assert value.item() == loss(p)
    y, pullback = mg.vjp(loss, p)
    (g,) = pullback(2.0)
    assert same_structure(p, g)
    np.testing.assert_allclose(flat(g), 2 * by_vector, rtol=1e-12)


def test_products_with_hessians_and_jacobians() -> None:
    p, v = parameters(), parameters()
    f = lambda vector: loss(unflat(vector, p))
    _, tangent = mg.jvp(loss, (p,), (v,))
    np.testing.assert_allclose(tangent.item(), mg.grad(f)(flat(p)).data @ flat(v), rtol=1e-12)
    _, tangent = mg.jvp(loss, p, v)
    np.testing.assert_allclose(tangent.item(), mg.grad(f)(flat(p)).data @ flat(v), rtol=1e-12)
    full = mg.hessian(f)(flat(p)).data
    product = mg.hvp(loss, p, v)
    assert same_structure(p, product)
    np.testing.assert_allclose(flat(product), full @ flat(v), rtol=1e-10, atol=1e-12)
    blocks = mg.hessian(loss)(p)
    rows = [
        np.concatenate([np.reshape(b, (np.size(a), -1)) for b in leaves(row)], 1)
        for a, row in zip(leaves(p), _rows(p, blocks))
    ]
    np.testing.assert_allclose(np.concatenate(rows), full, rtol=1e-10, atol=1e-12)


def _rows(like: Any, blocks: Any) -> list[Any]:
    """The blocks of each leaf of `like`, in order; each is a tree of its own."""
    if isinstance(like, dict):
        return [row for key in like for row in _rows(like[key], blocks[key])]
    if isinstance(like, (list, tuple)):
        return [row for a, b in zip(like, blocks) for row in _rows(a, b)]
    return [blocks]


def test_results_that_are_trees() -> None:
    f = lambda x: {"square": x * x, "sums": [x.sum(), (2 * x).sum()]}
    x, v = rng.standard_normal(3), rng.standard_normal(3)
    jac = mg.jacobian(f)(x)
    np.testing.assert_allclose(jac["square"].data, np.diag(2 * x))
    np.testing.assert_allclose(jac["sums"][1].data, [2, 2, 2])
    y, tangent = mg.jvp(f, x, v)
    assert same_structure(y, tangent)
    np.testing.assert_allclose(tangent["square"].data, 2 * x * v)
    _, pullback = mg.vjp(f, x)
    (g,) = pullback({"square": v, "sums": [1.0, 2.0]})
    np.testing.assert_allclose(g.data, 2 * x * v + 5)
    with pytest.raises(
        ValueError, match=r"expected a dict with the keys \['square', 'sums'\], got a ndarray"
    ):
        pullback(v)
    with pytest.raises(ValueError, match="expected 1 parts, got 2"):
        mg.jvp(f, (x,), (v, v))


def test_lists_of_plain_numbers_are_arrays_and_other_leaves_are_refused() -> None:
    assert mg.grad(lambda x: (x**2).sum())([1.0, 2.0]).tolist() == [2, 4]
    for whole in ([1, 2], np.array([1, 2]), Tensor([1, 2])):
        g = mg.grad(lambda x: (x**0.5).sum())(whole)
        assert g.dtype == float and g.tolist() == pytest.approx([0.5, 0.5 / 2**0.5])
    np.testing.assert_allclose(mg.hessian(lambda x: x[0] ** x[1])([2.0, 0.0]).data[0], [0, 0.5])
    assert [g.item() for g in mg.grad(lambda x: x[0] * x[1])([np.array(2.0), np.array(3.0)])] == [
        3,
        2,
    ]
    assert mg.grad(lambda d: d["a"] * d["b"])(OrderedDict(a=2.0, b=Tensor(3.0)))["a"].item() == 3
    with pytest.raises(
        TypeError, match="only floating-point arguments can be differentiated, got 'relu'"
    ):
        mg.grad(lambda d: d["x"])({"x": 1.0, "activation": "relu"})
    with pytest.raises(
        TypeError, match="only floating-point arguments can be differentiated, got dtype int"
    ):
        mg.grad(lambda d: d["x"])({"x": 1})


def test_elementwise_grad() -> None:
    x = np.linspace(-2, 2, 7).reshape(1, 7)
    d = mg.elementwise_grad
    np.testing.assert_allclose(d(np.tanh)(x).data, 1 - np.tanh(x) ** 2)
    np.testing.assert_allclose(d(d(d(np.sin)))(x).data, -np.cos(x))
    np.testing.assert_allclose(
        d(lambda a, b: a**b, 1)(np.abs(x) + 1, x).data, (np.abs(x) + 1) ** x * np.log(np.abs(x) + 1)
    )


def test_tensors_of_tracked_scalars() -> None:
    s = Tensor(3.0, requires_grad=True)
    m = mg.tensor([[s, 1.0], [2, s * s]])
    assert m.shape == (2, 2) and m.requires_grad and m.tolist() == [[3, 1], [2, 9]]
    np.linalg.det(m).backward()
    assert s.grad.item() == pytest.approx(27)
    single = Tensor(np.float32(2.0), requires_grad=True)
    assert (
        mg.tensor([single, 1.0]).dtype == np.float32
        and mg.tensor([single, 1.0], dtype=float).dtype == np.float64
    )
    rows = mg.tensor((Tensor([1.0, 2.0], True), [3.0, 4.0]))
    assert rows.shape == (2, 2) and rows.requires_grad
    assert mg.jacobian(lambda x: mg.tensor([x[0] ** 2, [x[1]][0], 1.0]))(
        np.array([3.0, 4.0])
    ).tolist() == [
        [6, 0],
        [0, 1],
        [0, 0],
    ]
    with mg.no_grad():
        assert not mg.tensor([s, 1.0]).requires_grad
    with pytest.raises(ValueError, match="stack: expected arrays of one shape"):
        mg.tensor([s, [1.0, 2.0]])
