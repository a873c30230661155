"""`vmap` against a loop over the examples: values, gradients, trees of axes, and what it refuses."""

from __future__ import annotations

import itertools
import re
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.environment import max_examples
from support.opinfo import TABLE, OpInfo, samples
from support.opinfo.base import integers
from support.write_machine import VIEWS

import minigrad as mg
from minigrad.nested import leaves

REFUSED = {
    *("top_k", "lstsq", "unwrap"),
    "interp",  # of points that are mapped
    *("quantile", "percentile"),  # of levels that are mapped
    *("dropout", "relu_dropout", "attention", "scaled_dot_product_attention"),
}
"""Functions without a batching rule, and ops that draw random values, the last two only with dropout."""
SCALES = np.array([1.0, 0.9])
REFUSAL = "has no batching rule; write the batch axis|choose with np.where, or call the function in a loop|random values must not be drawn inside vmap"


RNG = np.random.default_rng(0)


def values_and_gradients(results: list[Any], xs: list[mg.Tensor]) -> list[Any]:
    """Return the results, and gradients of a sum with weights in which each element counts."""
    rng = np.random.default_rng(0)
    gs = [rng.standard_normal(y.shape) for y in results]
    gradients = mg.gradients(results, xs, gs, allow_unused=True)
    return [y.data for y in results] + [0 if g is None else g.data for g in gradients]


@cache
@st.composite
def samples_and_axes(draw: Any, info: OpInfo) -> Any:
    """Draw a sample, and an axis of each operand: 0 for at least one, or None."""
    sample = draw(samples(info))
    count = len(sample.floats)
    first = draw(integers(0, count - 1))
    return sample, [0 if i == first or not draw(integers(0, 1)) else None for i in range(count)]


@max_examples(60)
@given(data=st.data())
def test_vmap_of_einsum_equals_a_loop(data: st.DataObject) -> None:
    check_vmap(TABLE["einsum"], data)


@pytest.mark.parametrize("info", TABLE.values(), ids=list(TABLE))
@max_examples(8)
@given(data=st.data())
def test_vmap_of_op_equals_a_loop(info: OpInfo, data: st.DataObject) -> None:
    check_vmap(info, data)


def check_vmap(info: OpInfo, data: st.DataObject) -> None:
    """Compare values and gradients; each operand but one can be the same for all examples."""
    sample, axes = data.draw(samples_and_axes(info))
    xs = [
        mg.Tensor(x if axis is None else np.multiply.outer(SCALES, x), requires_grad=True)
        for x, axis in zip(sample.floats, axes)
    ]
    with np.errstate(all="ignore"), mg.use_definitions():
        rows = [
            sample.call(*[x if axis is None else x[k] for x, axis in zip(xs, axes)])
            for k in range(len(SCALES))
        ]
        expected = [mg.as_tensor(np.stack(column)) for column in zip(*rows)]
        try:
            results = mg.vmap(sample.call, axes)(*xs)
        except TypeError as error:
            assert info.name in REFUSED and re.search(REFUSAL, str(error)), str(error)
            return
        pairs = zip(*[values_and_gradients(ys, xs) for ys in (results, expected)], strict=True)
        for y, e in pairs:
            if not np.array_equal(y, e):
                np.testing.assert_allclose(y, e, rtol=1e-8, atol=1e-9)


def sequence_loss(weights: dict[str, Any], ids: Any, mask: Any, targets: Any) -> Any:
    """Return the loss of one sequence after attention, with ignored targets."""
    heads = mg.split_heads(mg.embedding(weights["in"], ids)[None], 2)
    x = mg.scaled_dot_product_attention(heads, heads, heads, mask[None, None, None])
    y = mg.linear(mg.layer_norm(mg.merge_heads(x)[0]), weights["out"])
    return mg.cross_entropy(y, targets, ignore_index=0, label_smoothing=0.1)


def assert_trees_close(tree: Any, expected: Any) -> None:
    for x, y in zip(leaves(tree), leaves(expected), strict=True):
        np.testing.assert_allclose(x.data, y.data, rtol=1e-9, atol=1e-11)


def test_vmap_of_grad_gives_the_gradients_of_each_sequence() -> None:
    weights = {"in": RNG.standard_normal((11, 8)), "out": RNG.standard_normal((8, 8))}
    mask = np.arange(5) < RNG.integers(1, 6, (4, 1))
    batch = RNG.integers(0, 11, (4, 5)), mask, RNG.integers(0, 8, (4, 5))
    gradients = mg.vmap(mg.grad(sequence_loss), (None, 0, 0, 0))(weights, *batch)
    for k in range(4):
        expected = mg.grad(sequence_loss)(weights, *[x[k] for x in batch])
        assert_trees_close([c[k] for c in leaves(gradients)], expected)


W, X, V = (RNG.standard_normal(shape) for shape in ((3, 4), (5, 4), (5, 4)))


def f(x: Any, w: Any = W) -> Any:
    """Return a vector that depends on each element of x in a nonlinear way."""
    return np.tanh(w @ x) ** 2 / (1 + (x * x).sum())


def changed(y: Any) -> Any:
    """Change y in place by an operator and by an index, and return it."""
    y += 1
    y[0] = y[1]
    return y


@pytest.mark.parametrize(
    "transformed",
    [
        mg.jacobian(f),
        mg.hessian(lambda x: f(x).sum()),
        mg.hessian(np.prod),
        mg.hessian(lambda x: np.cumprod(x) @ x),
        lambda x: changed(x * 2),
        lambda x: {"same": mg.Tensor(W), "first": (x[0], x.argmax())},
        lambda x: np.einsum("ij,j", W, x) + np.linalg.solve(W @ W.T + x @ x * np.eye(3), W @ x),
        lambda x: x.data * x + x * x.data + np.where(x > 0, x, x.data),
        lambda x: (
            mg.tensor([[x[0], np.float64(1)], [2.0, x[1]]]),
            mg.as_tensor([x, x]),
            mg.tensor(x),
        ),
        lambda x: mg.stack([x, np.ones(4)]).T[np.array([[0], [2]]), :, None].std(0),
    ],
)
def test_vmap_of_a_function_equals_a_loop(transformed: Any) -> None:
    results = mg.vmap(transformed)(X)
    for k, x in enumerate(X):
        expected = leaves(transformed(mg.Tensor(x)))
        assert_trees_close([y[k] for y in leaves(results)], expected)


KINDS = ["slice", "index", "array", "int", "new axis", "ellipsis"]
kinds_of_index = st.lists(st.sampled_from(KINDS), max_size=4).filter(
    lambda kinds: "index" in kinds and kinds.count("ellipsis") < 2
)


@given(kinds=kinds_of_index, shape=st.sampled_from([(), (3,), (2, 2)]), seed=st.integers(0, 99))
@example(["index", "slice", "array"], (3,), 0)
@example(["index", "slice", "slice", "array"], (3,), 0)
def test_vmap_of_values_at_other_indices_in_each_example_equals_a_loop(
    kinds: list[str], shape: tuple[int, ...], seed: int
) -> None:
    """Arrays that a slice or a new axis separates move their axes to the front, as in NumPy."""
    rng = np.random.default_rng(seed)
    same = rng.integers(0, 4, shape)
    parts = {"slice": slice(1, None), "array": same, "int": 2, "new axis": None, "ellipsis": ...}

    def select_and_write(x: Any, index: Any) -> Any:
        place = tuple(index if kind == "index" else parts[kind] for kind in kinds)
        chosen = np.tanh(x[place])
        y = x * 2
        y[place] = chosen * chosen
        return y, chosen

    x = mg.Tensor(rng.standard_normal((3, 4, 4, 4, 4)), requires_grad=True)
    count = int(np.prod(shape))
    index = np.stack([rng.permutation(4)[:count].reshape(shape) for _ in x])
    rows = [select_and_write(x[k], index[k]) for k in range(len(x))]
    expected = [np.stack(column) for column in zip(*rows)]
    results = mg.vmap(select_and_write)(x, index)
    pairs = [values_and_gradients([*ys], [x]) for ys in (results, expected)]
    for y, e in zip(*pairs, strict=True):
        np.testing.assert_allclose(y, e, rtol=1e-12)


@pytest.mark.parametrize("requires_grad", [False, True])
def test_vmap_of_indices_into_shared_values_equals_a_loop(requires_grad: bool) -> None:
    x, rows = mg.Tensor(X, requires_grad=requires_grad), np.array([3, 0, 3])
    for place in (
        lambda i: i,
        lambda i: (i, 1),
        lambda i: (i, ...),
        lambda i: (0, i % 2),
        lambda i: (i, i % 2),
    ):
        take = lambda i, place=place: x[place(i)]
        results = mg.vmap(take)(rows), np.stack([take(i) for i in rows])
        np.testing.assert_array_equal(*[y.data for y in results])
        if requires_grad:
            slopes = [mg.gradients(np.sin(y).sum(), x)[0].data for y in results]
            np.testing.assert_allclose(*slopes, rtol=1e-12)


def test_vmap_takes_a_list_of_numbers_as_one_array() -> None:
    assert mg.vmap(np.square)([1.0, 2.0, 3.0]).tolist() == [1, 4, 9]


def loss(w: Any, x: Any) -> Any:
    return f(x, w).sum()


def test_vmap_of_a_shared_scalar_that_is_used_twice_has_its_gradient() -> None:
    shared = mg.Tensor(2.0, requires_grad=True)
    mg.vmap(lambda x: shared * 1.0 + x * shared)(np.ones(3)).sum().backward()
    assert shared.grad.item() == 6


@pytest.mark.parametrize("order", [*itertools.permutations(range(3))])
def test_vmap_adds_gradients_of_examples_and_of_all_in_any_order(order: Any) -> None:
    a, ys = mg.Tensor(np.array([2.0, 3.0]), requires_grad=True), np.arange(6.0).reshape(3, 2)

    def gradient(y: Any) -> Any:
        terms = [lambda: a * 5.0, lambda: a * 7.0, lambda: a * y]
        return mg.gradients([terms[i]().sum() for i in order], a)[0]

    np.testing.assert_array_equal(mg.vmap(gradient)(ys).data, 12 + ys)


def test_derivatives_of_vmap_equal_those_of_a_loop() -> None:
    def total(gradients: Any) -> Any:
        return (gradients**3).sum()

    by_vmap = mg.hessian(lambda w: total(mg.vmap(mg.grad(loss), (None, 0))(w, X)))
    by_loop = mg.hessian(lambda w: total(np.stack([mg.grad(loss)(w, x) for x in X])))
    np.testing.assert_allclose(by_vmap(W).data, by_loop(W).data, rtol=1e-9)


def test_vmap_of_derivatives_in_a_direction_equals_a_loop() -> None:
    g = lambda x: (np.tanh(x) ** 2).sum() * x[0]
    for derive in (lambda x, v: mg.hvp(g, x, v), lambda x, v: mg.jvp(np.tanh, x, v)[1]):
        expected = np.stack([derive(x, v).data for x, v in zip(X, V)])
        np.testing.assert_allclose(mg.vmap(derive)(X, V).data, expected, rtol=1e-12)
    with pytest.raises(TypeError, match="the direction must be real, got dtype complex128"):
        mg.vmap(lambda x, v: mg.hvp(g, x, v))(X, V * 1j)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * (2 if np.iscomplexobj(x) else 3),
        *(np.round, np.count_nonzero, np.argmax, np.imag, lambda x: x.imag),
        lambda x: np.full_like(x, 2.0),
        lambda x: np.diagonal((x[:, :, None] * x).data),
        *(lambda x, axes=axes: np.expand_dims(x.data, axes) for axes in ((0, -1), (-1, -2), 0)),
        lambda x: np.einsum("...b,...a", x, x),
        lambda x: np.pad(x, ((1, 1), (2, 0)), constant_values=((1, 2), (3, 4))),
    ],
)
def test_vmap_of_numpy_function_equals_a_loop(function: Any) -> None:
    matrices = mg.tensor(RNG.standard_normal((3, 4, 4)), requires_grad=True)
    expected = np.stack([mg.as_tensor(function(matrix)).data for matrix in matrices])
    result = mg.vmap(function)(matrices)
    np.testing.assert_allclose(result.data, expected, rtol=1e-9)
    assert result.dtype == expected.dtype


WEIGHT = np.arange(1.0, 5)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, t, m: mg.cross_entropy(x, t, weight=WEIGHT, ignore_index=3, label_smoothing=0.1),
        lambda x, t, m: mg.linear_cross_entropy(x, np.eye(4), t),
        lambda x, t, m: mg.one_hot(t, 5) * x.sum(),
        lambda x, t, m: mg.embedding(x, t % 3) * mg.as_tensor(WEIGHT)[t],
        lambda x, t, m: np.take(x, t, 1) + np.take_along_axis(x, t[None], 1),
        lambda x, t, m: np.where(m, x, t) + x ** abs(t) + np.copysign(x, t),
        lambda x, t, m: x.masked_fill(m, -1) + np.select([m, x > 1], [x * 2, x]),
        lambda x, t, m: np.sum(x, where=m) + np.var(x, axis=0, where=m, ddof=-1),
        lambda x, t, m: mg.softmax(np.where(m, x, -np.inf), -1),
        lambda x, t, m: np.nansum(np.where(m, x, np.nan), axis=-1),
    ],
)
def test_vmap_with_other_integers_and_masks_in_each_example_equals_a_loop(function: Any) -> None:
    x, t = RNG.standard_normal((2, 4, 4)), np.array([[0, 1, 2, 3], [3, 3, 1, 3]])
    m = (x > 0) | np.eye(4, dtype=bool)
    leaf, other = (mg.Tensor(x, requires_grad=True) for _ in range(2))
    y, expected = mg.vmap(function)(leaf, t, m), np.stack([*map(function, other, t, m)])
    np.testing.assert_allclose(y.data, expected.data, rtol=1e-12)
    y.sum().backward(), expected.sum().backward()
    np.testing.assert_allclose(leaf.grad.data, other.grad.data, rtol=1e-12)


def test_vmap_of_accumulate_without_gradients_equals_a_loop() -> None:
    matrices = RNG.standard_normal((3, 4, 5))
    for axis in (0, -1):
        result = mg.vmap(lambda x, axis=axis: np.add.accumulate(x, axis=axis))(matrices)
        expected = [np.add.accumulate(matrix, axis=axis) for matrix in matrices]
        np.testing.assert_array_equal(result.data, expected)


def test_vmap_moves_axes_and_takes_trees_of_them() -> None:
    def g(tree: Any, scale: Any, factor: int = 2) -> Any:
        return {"sum": tree["a"] + tree["b"], "constant": (scale * factor,)}

    tree = {"a": X.T, "b": V}
    result = mg.vmap(g, ({"a": 1, "b": 0}, None), {"sum": -1, "constant": (None,)})(tree, 3.0)
    np.testing.assert_array_equal(result["sum"].data, (X + V).T)
    assert result["constant"][0].item() == 6
    empty = mg.vmap(mg.jacobian(lambda x: x[:0]))(X.astype(np.float32))
    assert empty.shape == (5, 0, 4) and empty.dtype == np.float32
    repeated = mg.vmap(g, ({"a": -1, "b": 0}, None))(tree, np.ones(2), factor=3)["constant"][0]
    np.testing.assert_array_equal(repeated.data, np.full((5, 2), 3.0))


@pytest.mark.parametrize(
    "function, error, message",
    [
        (lambda x: x * float(x[0]), TypeError, "contains all examples"),
        (lambda x: x if x.sum() > 0 else -x, TypeError, "contains all examples"),
        (lambda x: x * np.asarray(x), TypeError, "contains all examples"),
        (lambda x: x[x > 0], TypeError, "the same for all examples if it is a mask"),
        (lambda x: x[x[0] > 0], TypeError, "the same for all examples if it is a mask"),
        (lambda x: np.nonzero(x)[0], TypeError, "np.nonzero has no batching rule"),
        (lambda x: np.add.reduceat(x.data, [0]), TypeError, "np.add.reduceat has no batching rule"),
        (
            lambda x: np.add.reduce(x.data, out=x.data[0]),
            TypeError,
            "np.add.reduce has no batching",
        ),
        (
            lambda x: np.add.accumulate(x.data, out=x.data),
            TypeError,
            "np.add.accumulate has no batching",
        ),
        (
            lambda x: np.add(x.data, 1, where=x.data > 0, out=x.data),
            TypeError,
            "np.add.__call__ has no batching rule",
        ),
        (mg.vmap(f), TypeError, "vmap must not be called inside vmap"),
        (
            mg.grad(lambda x: [y := mg.Tensor(x.data), (x * y).sum(), changed(y)][1]),
            ValueError,
            r"read-only, .* an argument inside vmap; write t = t.copy\(\) first",
        ),
        (mg.dropout, TypeError, "random values must not be drawn inside vmap"),
        (
            lambda x: (mg.Tensor(W, True) @ x).sum().backward(),
            mg.GradientError,
            "backward: it must not be called inside vmap",
        ),
    ],
)
def test_vmap_refuses_what_needs_one_example(function: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        mg.vmap(function)(X)
    assert mg.vmap(f)(X).shape == (5, 3)  # the mode ended


def test_vmap_of_a_tensor_made_of_examples_and_numbers_equals_a_loop() -> None:
    def f(x: Any) -> Any:
        return mg.tensor([[x[0], 1.0], [2.0, x[1]]]) @ mg.tensor([x.sum(), 3.0])

    for requires_grad in (False, True):
        x = mg.Tensor(X, requires_grad=requires_grad)
        expected = np.stack([[[a, 1], [2, b]] @ np.array([a + b + c, 3.0]) for a, b, c in X[:, :3]])
        np.testing.assert_allclose(mg.vmap(f)(x[:, :3]).data, expected)


ALONG = ["sum", "mean", "max", "min", "prod", "var", "std", "any", "all", "count_nonzero", "cumsum", "argmax", "argmin", "argsort", "sort", "flip", "median"]  # fmt: skip


@pytest.mark.parametrize("name", ALONG)
def test_vmap_of_a_function_along_an_axis_has_the_axes_of_an_example(name: str) -> None:
    f, xs = getattr(np, name), (np.arange(24.0) % 5).reshape(2, 3, 4)
    for axis in range(-3, 3):
        if -2 <= axis < 2:
            expected = [f(x, axis=axis) for x in xs]
            np.testing.assert_allclose(mg.vmap(lambda x, axis=axis: f(x, axis=axis))(xs), expected)
        else:
            with pytest.raises(np.exceptions.AxisError):
                mg.vmap(lambda x, axis=axis: f(x, axis=axis))(xs)


@pytest.mark.parametrize(
    "in_axes, out_axes, args, message",
    [
        ((0, 0), 0, [X], "in_axes must have an entry for each of the 1 arguments, got 2"),
        ((0, True), 0, [X, X], "in_axes must be an integer, None, or a tree of them, got True"),
        (
            0,
            0,
            [X[:0], X[:0]],
            "the axes of the examples must have one length of at least 1, got 0",
        ),
        (0, 0, [X, X[:2]], "the axes of the examples must have one length .*, got 2, 5"),
        (None, 0, [X], "must have one length of at least 1, got no axis"),
        (0, 0, [X, 2.0], "in_axes must be None for a scalar, got 0"),
        (2, 0, [X], "vmap: in_axes: axis 2 is out of bounds"),
        (({"a": 0},), 0, [X], "in_axes must have the structure of the arrays"),
        (
            ({"a": 0},),
            0,
            [{"b": X}],
            "the tree must be a dict with the keys .'a'., got the keys .'b'.",
        ),
        (([0, 0],), 0, [[X]], "the tree must have 2 parts, got 1"),
        (True, 0, [X], "in_axes must be an integer, None, or a tree of them, got True"),
        (0, None, [X], "out_axes must not be None for a result that differs"),
        (0, 2, [X], "out_axes: axis 2 is out of bounds"),
    ],
)
def test_vmap_with_wrong_axes_names_them(
    in_axes: Any, out_axes: Any, args: Any, message: str
) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        mg.vmap(lambda *xs: xs[0], in_axes, out_axes)(*args)


def test_vmap_inside_vmap_is_refused_and_its_advice_equals_two_loops() -> None:
    xs, ys = RNG.standard_normal((2, 3)), RNG.standard_normal((4, 3))
    f = lambda x, y: np.tanh(x * y[::-1]).sum() + x.max()
    with pytest.raises(
        TypeError, match="np.repeat.xs, m, axis=0., np.concatenate..ys. . n."
    ) as error:
        mg.vmap(lambda x: mg.vmap(lambda y: f(x, y))(ys))(xs)
    (advice,) = re.findall(r"write (.*), and reshape", str(error.value))
    scope = {"vmap": mg.vmap, "f": f, "np": np, "xs": xs, "ys": ys, "n": 2, "m": 4}
    result = eval(advice, scope).reshape(2, 4)
    np.testing.assert_allclose(result.data, [[f(x, y) for y in ys] for x in xs])


def test_functions_that_write_inside_vmap_equal_a_loop() -> None:
    def f(x: mg.Tensor) -> mg.Tensor:
        y = np.zeros_like(x)
        np.fill_diagonal(y, x[2])
        np.put(y, [1, 5], x[0, 0])
        np.copyto(y, x, where=np.eye(3)[::-1] > 0)
        np.place(y, np.arange(9).reshape(3, 3) == 3, x[1])
        np.putmask(y, np.arange(9).reshape(3, 3) == 7, x * 2)
        np.put_along_axis(y, np.array([[2]]), x[:1, :1], 1)
        np.multiply(y[0], x[1], out=y[1])
        np.add.at(y, ([0, 0], [1, 1]), x[0, :2])
        y[::2] *= x[1]
        return y

    xs = RNG.standard_normal((4, 3, 3))
    leaf, other = (mg.Tensor(xs, requires_grad=True) for _ in range(2))
    batched, loop = mg.vmap(f)(leaf), np.stack([f(x) for x in other])
    g = RNG.standard_normal((4, 3, 3))
    batched.backward(g), loop.backward(g)
    np.testing.assert_allclose(batched.data, loop.data)
    np.testing.assert_allclose(mg.vmap(f)(xs).data, loop.data)
    np.testing.assert_allclose(leaf.grad.data, other.grad.data)
    with pytest.raises(TypeError, match=r"np.copyto: .* write t = np.where\(mask, values, t\)"):
        mg.vmap(lambda x: np.copyto(x * 1.0, x, where=x > 0))(xs)


PREPARED: dict[str, Any] = {
    "C": lambda x: x * 1.0,
    "F": lambda x: (x.T * 1.0).T,
    "copied": lambda x: x.T.copy(),
    "copied in its order": lambda x: np.copy(x.T),
    "reversed": lambda x: (x * 1.0)[:, ::-1],
    "part": lambda x: (x * 1.0)[..., 1:],
    "rows": lambda x: x[[-1, 0, 1, 1]] * 1.0,
}


@pytest.mark.parametrize("requires_grad", [True, False])
@pytest.mark.parametrize("prepare", PREPARED.values(), ids=PREPARED)
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_view_shares_memory_as_in_numpy_also_inside_vmap(
    view: Any, prepare: Any, requires_grad: bool
) -> None:
    def f(x: Any) -> Any:
        y = prepare(x)
        z = view(y)
        z *= 2.0
        y += z.sum()
        return y

    x = np.random.default_rng(0).standard_normal((2, 4, 3))
    try:
        expected = np.stack([f(a) for a in x])
    except ValueError:  # read-only
        return
    t = mg.Tensor(x, requires_grad=requires_grad)
    np.testing.assert_allclose(np.stack([f(a) for a in t]).data, expected)
    np.testing.assert_allclose(mg.vmap(f)(t).data, expected)


@pytest.mark.parametrize("flat", [np.ravel, lambda x: x.reshape(-1), lambda x: x.flatten()])
@pytest.mark.parametrize("step", [1, 2, -1])
def test_flat_vector_inside_vmap_shares_memory_as_in_numpy(step: int, flat: Any) -> None:
    def f(x: Any) -> Any:
        y = x * 1.0
        z = flat(y[::step])
        z += 1.0
        return y

    xs = np.random.default_rng(0).standard_normal((2, 5))
    np.testing.assert_array_equal(mg.vmap(f)(xs).data, [f(x) for x in xs])


def test_written_value_inside_vmap_may_have_further_axes_of_length_1() -> None:
    def f(x: mg.Tensor) -> mg.Tensor:
        y = x * 1.0
        y[0] = x[None, 1:] * 2.0
        return y

    x = RNG.standard_normal((3, 2, 4))
    g = lambda x: (mg.vmap(f)(x) ** 2).sum()
    h = lambda x: sum((f(a) ** 2).sum() for a in x)
    np.testing.assert_allclose(mg.grad(g)(x).data, mg.grad(h)(x).data)


@pytest.mark.parametrize("has_gradient", [False, True])
@pytest.mark.parametrize(
    "write",
    [
        lambda y, x: y.__setitem__(0, x[0]),
        lambda y, x: y.__iadd__(x),
        lambda y, x: np.add.at(y, [0, 0], x[:2]),
        lambda y, x: np.multiply(x, 2, out=y),
        lambda y, x: np.cumsum(x, out=y),
        lambda y, x: np.copyto(y, x),
        lambda y, x: np.put(y, [0], x[:1]),
        lambda y, x: np.putmask(y, np.ones(3, bool), x),
        lambda y, x: np.put_along_axis(y, np.array([0]), x[:1], 0),
    ],
)
def test_write_of_examples_into_memory_that_they_share_raises(
    write: Any, has_gradient: bool
) -> None:
    def f(x: Any) -> Any:
        y = mg.zeros(3, dtype=float)
        write(y, x)
        return y

    xs = mg.Tensor(np.arange(6.0).reshape(2, 3), requires_grad=has_gradient)
    with pytest.raises(mg.GradientError, match="values that differ by example .* np.zeros_like"):
        mg.vmap(f)(xs)


@pytest.mark.parametrize("dtype", [None, np.float32, float, int])
def test_tensor_made_of_an_example_has_its_dtype(dtype: Any) -> None:
    x = np.array([[1.5, 2.5], [3.5, 4.5]])
    y = mg.vmap(lambda row: mg.Tensor(row.detach(), dtype=dtype) * 2)(x)
    np.testing.assert_array_equal(y.data, x.astype(dtype or float) * 2, strict=True)
