"""Derivatives of functions of nested dicts, lists, tuples and named tuples of arrays."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import minigrad as mg
from minigrad import Tensor
from minigrad.nested import leaves
from minigrad.numpy.nested import aligned

rng = np.random.default_rng(0)
X, V = rng.standard_normal((2, 3))


class Layer(NamedTuple):
    weight: Any
    bias: Any


def parameters() -> dict[str, Any]:
    """Return random parameters in lists, tuples, dicts and a named tuple."""
    layer = Layer(rng.standard_normal((3, 2)), rng.standard_normal(2))
    return {"layers": [layer], "scale": 0.5, "pair": (np.ones(2), {"deep": np.ones((1, 2))})}


def loss(tree: Any, x: Any = X) -> Any:
    """Return the sum of the cubes of all leaves, and of the squares of x."""
    (layer,), (a, b) = tree["layers"], tree["pair"]
    cubes = [p**3 for p in (layer.weight, layer.bias, tree["scale"], a, b["deep"])]
    return sum((p.sum() for p in cubes), (x * x).sum())


def flat(tree: Any) -> np.ndarray:
    """Join all leaves of a tree in one vector."""
    return np.concatenate([np.ravel(np.asarray(leaf)) for leaf in leaves(tree)])


PARAMETERS, DIRECTION = parameters(), parameters()
VALUES = flat(PARAMETERS)


def assert_tree(tree: Any, expected: np.ndarray) -> None:
    """Compare the values of a tree, and its structure with that of the parameters."""
    np.testing.assert_allclose(flat(tree), expected, rtol=1e-10)
    assert isinstance(tree["layers"][0], Layer)
    assert isinstance(tree["layers"], list) and isinstance(tree["pair"], tuple)
    assert [np.shape(a) for a in leaves(tree)] == [np.shape(a) for a in leaves(PARAMETERS)]


def test_gradient_has_the_structure_of_its_argument() -> None:
    gradients = mg.grad(loss, (0, 1))(PARAMETERS, X)
    assert_tree(gradients[0], 3 * VALUES**2)
    assert type(gradients) is tuple and gradients[1].tolist() == (2 * X).tolist()
    assert_tree(mg.vjp(loss, PARAMETERS)[1](2.0)[0], 6 * VALUES**2)
    g, h = mg.grad(lambda x: x[0] * x[1])([np.array(2.0), np.array(3.0)])
    assert (g.item(), h.item()) == (3, 2)


@pytest.mark.parametrize("tree", [OrderedDict(x=X), defaultdict(list, x=X)], ids=repr)
def test_gradient_has_the_type_of_a_dict(tree: Any) -> None:
    g = mg.grad(lambda d: (d["x"] ** 2).sum())(tree)
    assert type(g) is type(tree) and g["x"].tolist() == (2 * X).tolist()
    assert tree["x"] is X
    assert getattr(g, "default_factory", None) is getattr(tree, "default_factory", None)


def test_jvp_and_hvp_of_trees_equal_formulas() -> None:
    for arguments in ((PARAMETERS, DIRECTION), ((PARAMETERS,), (DIRECTION,))):
        _, tangent = mg.jvp(loss, *arguments)
        np.testing.assert_allclose(tangent.item(), 3 * VALUES**2 @ flat(DIRECTION), rtol=1e-12)
    assert_tree(mg.hvp(loss, PARAMETERS, DIRECTION), 6 * VALUES * flat(DIRECTION))


def test_hessian_of_a_tree_is_a_tree_of_trees() -> None:
    blocks = mg.hessian(lambda t: (t["a"] ** 2).sum() * t["b"][0])({"a": X, "b": (np.array(2.0),)})
    np.testing.assert_allclose(blocks["a"]["a"].data, 4 * np.eye(3))
    for block in (blocks["a"]["b"][0], blocks["b"][0]["a"]):
        np.testing.assert_allclose(block.data, 2 * X)
    assert blocks["b"][0]["b"][0].item() == 0


def squares_and_sums(x: Any) -> Any:
    return {"square": x * x, "sums": [x.sum(), 2 * x.sum()]}


def test_derivatives_of_results_that_are_trees_are_trees() -> None:
    jacobian = mg.jacobian(squares_and_sums)(X)
    np.testing.assert_allclose(jacobian["square"].data, np.diag(2 * X))
    np.testing.assert_allclose(jacobian["sums"][1].data, [2, 2, 2])
    _, tangent = mg.jvp(squares_and_sums, X, V)
    np.testing.assert_allclose(tangent["square"].data, 2 * X * V)
    assert tangent["sums"][1].item() == pytest.approx(2 * V.sum())
    (g,) = mg.vjp(squares_and_sums, X)[1]({"square": V, "sums": [1.0, 2.0]})
    np.testing.assert_allclose(g.data, 2 * X * V + 5)


def test_direction_or_gradient_of_another_structure_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"a dict with the keys \['square', 'sums'\], got a ndarray"
    ):
        mg.vjp(squares_and_sums, X)[1](V)
    with pytest.raises(ValueError, match="direction must have 1 parts, .* got 2"):
        mg.jvp(squares_and_sums, (X,), (V, V))


structures = st.recursive(
    st.just(0.0),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.lists(inner, max_size=2).map(tuple)
        | st.dictionaries(st.sampled_from("ab"), inner, max_size=2)
    ),
    max_leaves=5,
)


def fits(tree: Any, like: Any) -> bool:
    """Return whether a tree has the structure of another one; its leaves may be trees."""
    if not isinstance(like, (dict, list, tuple)):
        return True
    if isinstance(like, dict):
        same = isinstance(tree, dict) and tree.keys() == like.keys()
        return same and all(fits(tree[key], like[key]) for key in like)
    same = isinstance(tree, (list, tuple)) and len(tree) == len(like)
    return same and all(map(fits, tree, like))


@given(structures, structures)
@example([0.0], [0.0, 0.0])
@example([0.0, 0.0], [0.0])
@example({"a": 0.0}, {"a": 0.0, "b": 0.0})
def test_trees_are_aligned_if_they_have_one_structure(like: Any, tree: Any) -> None:
    assert aligned(like, like) == leaves(like)
    if fits(tree, like):
        assert len(aligned(like, tree)) == len(leaves(like))
    else:
        with pytest.raises(ValueError, match="the tree must "):
            aligned(like, tree)


@pytest.mark.parametrize("numbers", [[1, 2], np.array([1, 2]), Tensor([1, 2])], ids=repr)
def test_grad_of_a_list_of_numbers_is_an_array(numbers: Any) -> None:
    g = mg.grad(lambda x: (x**0.5).sum())(numbers)
    assert g.dtype == float and g.tolist() == pytest.approx([0.5, 0.5 / 2**0.5])


@pytest.mark.parametrize("leaf, message", [("relu", "got 'relu'"), (1, "got dtype int")])
def test_grad_of_a_tree_with_a_leaf_that_is_no_float_is_refused(leaf: Any, message: str) -> None:
    with pytest.raises(TypeError, match=f"grad: arguments must be floating-point, {message}"):
        mg.grad(lambda d: d["x"])(OrderedDict(x=leaf))


def test_tensor_of_tracked_numbers_keeps_their_gradients() -> None:
    s = Tensor(3.0, requires_grad=True)
    m = mg.tensor([[s, 1.0], [2, s * s]])
    np.linalg.det(m).backward()
    assert s.grad.item() == pytest.approx(27)
    single = Tensor(np.float32(2.0), requires_grad=True)
    assert mg.tensor([single, 1.0]).dtype == np.float32
    assert mg.tensor([single, 1.0], dtype=float).dtype == float
