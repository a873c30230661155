"""Recorded writes: t[key] = value and t[key] += value, through views, and beside NumPy's values."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays, basic_indices, integer_array_indices
from support.environment import max_examples
from support.jets import jet, on_line
from support.properties import normal
from support.write_programs import SIZE, Step, programs, run

import minigrad as mg
from minigrad import GradientError, Tensor

points = st.lists(st.integers(-9, 9).map(lambda i: i / 4 + 0.06), min_size=SIZE, max_size=SIZE).map(
    np.array
)
SEEDS = st.integers(0, 2**32 - 1)


def weighted_sum(program: list[Step], x: Any, weights: np.ndarray) -> Any:
    """Return the sum of all arrays of a program, with weights, so that no gradient is of ones."""
    results = run(program, x).results()
    assert len(results) <= len(weights)
    return sum([(r * w[: len(r)]).sum() for r, w in zip(results, weights)])


@given(program=programs(), x=points)
def test_program_with_writes_has_the_values_of_numpy(program: list[Step], x: np.ndarray) -> None:
    ours = run(program, Tensor(x.copy(), requires_grad=True)).results()
    for result, expected in zip(ours, run(program, x.copy()).results(), strict=True):
        np.testing.assert_allclose(result.data, expected, rtol=1e-12)


@given(program=programs(), x=points, seed=SEEDS)
def test_program_with_writes_has_the_derivatives_of_jets(
    program: list[Step], x: np.ndarray, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    weights, direction = rng.standard_normal((12, SIZE)), rng.standard_normal(SIZE)
    f = lambda t: weighted_sum(program, t, weights)
    expected = jet(f(on_line(x, direction)))
    slopes, curves = (
        mg.grad(f)(x).data,
        mg.grad(lambda t: (mg.grad(f)(t) * direction).sum())(x).data,
    )
    scale = max(1, abs(expected.value), *[np.abs(gs).sum() for gs in (slopes, curves)])
    assert abs(slopes @ direction - expected.slope) < 1e-11 * scale
    assert abs(curves @ direction - expected.curvature) < 1e-11 * scale


@max_examples(6)
@given(seed=SEEDS, rows=st.lists(st.integers(0, 3), min_size=1, max_size=4))
def test_vmap_of_a_function_with_writes_equals_a_loop(seed: int, rows: list[int]) -> None:
    xs = np.random.default_rng(seed).standard_normal((3, 4))

    def f(x: Any) -> Any:
        y = x * 2
        y[rows] = x[0] * y[: len(rows)]
        y[1:] += x[:-1] ** 2
        return (y * y).sum()

    expected = [mg.grad(f)(x).data for x in xs]
    np.testing.assert_allclose(mg.vmap(mg.grad(f))(xs).data, expected, rtol=1e-12)


@pytest.mark.parametrize(
    "f, arguments",
    [
        (np.copyto, {"dst": None, "src": 1.0}),
        (np.put, {"a": None, "ind": [1, 0], "v": 2.0}),
        (np.place, {"arr": None, "mask": np.eye(2, 3) > 0, "vals": 2.0}),
        (np.putmask, {"a": None, "mask": np.eye(2, 3) > 0, "values": 2.0}),
        (np.fill_diagonal, {"a": None, "val": 2.0}),
        (np.put_along_axis, {"arr": None, "indices": [[1], [0]], "values": 2.0, "axis": 1}),
    ],
)
def test_function_that_writes_takes_its_arguments_by_position_and_by_name(
    f: Any, arguments: dict[str, Any]
) -> None:
    x = Tensor([3.0], requires_grad=True)
    arguments = {k: np.array(v) if isinstance(v, list) else v for k, v in arguments.items()}
    for tracked, by_position in itertools.product(
        (False, True), range(f is np.putmask, len(arguments) + 1)
    ):
        found = []
        for target in (np.zeros((2, 3)), mg.zeros((2, 3))):
            value = x if tracked and isinstance(target, Tensor) else x.data
            values = [
                target if v is None else value if type(v) is float else v
                for v in arguments.values()
            ]
            f(*values[:by_position], **dict([*zip(arguments, values)][by_position:]))
            found.append(target)
        np.testing.assert_array_equal(found[1].data, found[0])
        if tracked:
            slope = mg.gradients(found[1].sum(), x)[0].item()
            assert slope == np.count_nonzero(found[0])


def test_constant_tensor_filled_in_a_loop_gets_a_gradient() -> None:
    x = Tensor([1.0, 2.0, 3.0], requires_grad=True)
    r = mg.zeros(3, dtype=float)
    for i in range(3):
        r[i] = x[i] * x[0]
    r.backward(np.array([1.0, 10.0, 100.0]))
    np.testing.assert_array_equal(x.grad.data, [2 + 20 + 300, 10, 100])


def test_last_of_several_values_for_an_element_gets_the_gradient() -> None:
    y, values = mg.zeros(3, dtype=float), Tensor([1.0, 2.0, 3.0], requires_grad=True)
    y[[1, 1, 0]] = values
    y.backward(np.array([5.0, 7.0, 9.0]))
    np.testing.assert_array_equal(values.grad.data, [0, 7, 5])


ROWS = np.array([[0, 1, 1], [1, 0, 0]])
GRID = np.array([[[0, 0]], [[1, 0]]]), np.array([[[1, 0], [0, 0], [0, 1]]])


@pytest.mark.parametrize("orders", ["CC", "CF", "FC", "FF"])
@pytest.mark.parametrize("tracked", [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("index", [(ROWS,), GRID], ids=["one array", "broadcast arrays"])
def test_last_of_several_values_does_not_depend_on_the_order_of_memory(
    index: Any, orders: str, tracked: tuple[bool, bool]
) -> None:
    """NumPy goes through the index and the values in the order of their memory."""
    full = np.broadcast_arrays(*index)
    values = np.arange(1.0, 1 + full[0].size).reshape(full[0].shape)
    last = dict(zip(zip(*[i.ravel().tolist() for i in full]), values.ravel()))
    y = Tensor(np.zeros((2,) * len(index)), requires_grad=tracked[0]) * 1
    v = Tensor(np.asarray(values, order=orders[0]), requires_grad=tracked[1])
    y[tuple(np.asarray(i, order=orders[1]) for i in index)] = v
    assert dict(np.ndenumerate(y.data)) == last
    if tracked[1]:
        y.backward(y.data)
        np.testing.assert_array_equal(v.grad, values * np.isin(values, [*last.values()]))


@given(st.data(), SEEDS)
def test_write_keeps_its_index_if_the_array_changes_afterwards(
    data: st.DataObject, seed: int
) -> None:
    rows = arrays(int, st.integers(0, 3), elements=st.integers(0, 3))
    index = data.draw(rows | arrays(bool, 4, elements=st.booleans()), label="index")
    wrap = data.draw(
        st.sampled_from([lambda i: i, lambda i: (i, 1), lambda i: (..., i), lambda i: ([0], i)])
    )
    x, value = (Tensor(normal([seed, i], *((4, 4), ())[i]), requires_grad=True) for i in (0, 1))

    is_constant = data.draw(st.booleans(), label="is_constant")

    def gradients(index: np.ndarray, later: Any) -> list[Any]:
        y = mg.full((4, 4), 2.0) if is_constant else x * 2
        y[wrap(index)] = value * y[1, 2]
        y[wrap(index)] += x[wrap(index)]
        z = y * y
        with mg.no_grad():
            y[wrap(index)] = 0.0
        index[...] = later
        gs = mg.gradients(z, [x, value], normal([seed, 2], 4, 4), allow_unused=True)
        return [0 if g is None else g.data for g in gs]

    expected = gradients(index.copy(), index)
    for found, e in zip(gradients(index.copy(), np.roll(index, 1) | 1), expected, strict=True):
        np.testing.assert_array_equal(found, e)


def test_value_with_more_axes_than_its_place_gets_their_gradient() -> None:
    y, value = mg.zeros((2, 3), dtype=float), Tensor(np.ones((1, 1, 3)), requires_grad=True)
    y[0] = value
    y.backward(np.arange(6.0).reshape(2, 3))
    np.testing.assert_array_equal(value.grad.data, [[[0, 1, 2]]])


def test_view_of_a_view_follows_a_write_with_its_gradient() -> None:
    x = Tensor(np.arange(4.0), requires_grad=True)
    y = x * 1
    part = y[1:]
    square = part.reshape(1, 3)[:, :2]
    y[1] = x[3] * 10
    np.testing.assert_array_equal(square.data, [[30, 2]])
    square.backward(np.array([[1.0, 5.0]]))
    np.testing.assert_array_equal(x.grad.data, [0, 0, 5, 10])


@pytest.mark.parametrize(
    ("shape", "take"),
    [
        ((2, 2), lambda a: a.T[0]),
        ((4,), lambda a: a.reshape(2, 2)),
        ((1,), lambda a: a[0, ...].reshape(1, 1)),
        ((2, 2), lambda a: np.einsum("ii->i", a)),
        ((2, 1, 2), lambda a: np.moveaxis(a, 0, 2)[0]),
    ],
)
def test_write_through_a_view_of_any_kind_reaches_its_base(
    shape: tuple[int, ...], take: Any
) -> None:
    x = np.random.default_rng(0).standard_normal(shape)

    def f(x: Any) -> Any:
        y = x * 3
        v = take(y)
        v *= v
        return y

    np.testing.assert_array_equal(f(Tensor(x, requires_grad=True)).data, f(x))
    assert mg.gradcheck(f, (x,)) and mg.gradgradcheck(f, (x,))


def test_write_records_nothing_where_nothing_is_tracked() -> None:
    y = Tensor(np.zeros(3))
    view = y[1:]
    y[1] = 5.0
    with mg.no_grad():
        y[2] = Tensor([7.0], requires_grad=True)[0]
    assert y.is_leaf and view.tolist() == [5, 7] and not y.requires_grad


def test_view_whose_values_were_replaced_by_constants_takes_constants() -> None:
    x = mg.tensor([1.0, 2.0], requires_grad=True)
    y = mg.zeros(2, dtype=float)
    view = y[:]
    y[...] = x * 2.0
    assert (view * 1.0).requires_grad
    y[...] = 0.0
    view[0] = 3.0
    np.testing.assert_array_equal(mg.gradients((view * x).sum(), x)[0].data, [3.0, 0.0])


def test_tensor_before_a_write_keeps_its_values_in_the_graph() -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)
    y = x * 3
    z = (y * y).sum()
    y[0] = 100
    z.backward()
    np.testing.assert_array_equal(x.grad.data, [18, 36])


def leaf() -> Tensor:
    return Tensor(np.ones(3), requires_grad=True)


def broadcast_view() -> Any:
    base = leaf() * 2
    return base, np.broadcast_to(base, (2, 3))


@pytest.mark.parametrize(
    ("target", "value", "kind", "message"),
    [
        (leaf, 1.0, GradientError, "item assignment: a leaf .* no_grad"),
        (lambda: (a := leaf(), a[1:]), 1.0, GradientError, "item assignment: a leaf .* no_grad"),
        (lambda: mg.zeros(3, dtype=int), leaf()[0], TypeError, r"floating dtype .* got int\d+; .*astype"),
        (broadcast_view, 1.0, ValueError, "read-only"),
        (lambda: leaf() * 2, np.ones(2), ValueError, "could not broadcast"),
        (lambda: leaf() * 2, "a", (TypeError, ValueError), "could not convert"),
    ],
)  # fmt: skip
def test_write_that_would_lose_a_gradient_raises(
    target: Any, value: Any, kind: Any, message: str
) -> None:
    kept = target()
    t = kept[-1] if isinstance(kept, tuple) else kept
    with pytest.raises(kind, match=message):
        t[0 if np.ndim(value) == 0 else slice(None)] = value


def test_hook_of_a_written_tensor_gets_what_reaches_its_views() -> None:
    """A view that was read before the hook was registered, or later, passes its gradient to the tensor."""
    x = mg.tensor([1.0, 2.0, 3.0], requires_grad=True)
    y = x * 1.0
    head, tail, end = y[:2], y[1:], y[2:]
    y[0] = 5.0
    early, beside = head * 2.0, end * 10.0  # which shows nothing of the write
    seen: list[Tensor] = []
    y.register_hook(lambda g: (seen.append(g), g * 10.0)[1])
    total = early.sum() + beside.sum() + tail.sum() + y.sum()
    (g,) = mg.gradients(total, [y], retain_graph=True)
    total.backward()
    np.testing.assert_array_equal([g.data, seen[-1].data], [[30.0, 40.0, 120.0], [3.0, 4.0, 12.0]])
    np.testing.assert_array_equal(x.grad.data, [0.0, 40.0, 120.0])


def test_mask_that_selects_all_elements_leaves_zero_gradients() -> None:
    x = mg.tensor([1.0, 2.0], requires_grad=True)
    y = x - 5.0
    y[y.data < 0] = 0.0
    y.sum().backward()
    np.testing.assert_array_equal(x.grad.data, [0.0, 0.0])


STRIDED = st.sampled_from([np.s_[:], np.s_[::2], np.s_[1::2], np.s_[::-1], np.s_[1:]])
PAIRS = array_shapes(max_dims=2, max_side=3)


def places(shape: tuple[int, ...]) -> st.SearchStrategy[Any]:
    """Draw an index: slices with steps, any basic index, or arrays in the order of columns."""
    strided = st.tuples(*[STRIDED] * len(shape))
    if 0 in shape:
        return strided
    listed = integer_array_indices(shape, result_shape=PAIRS)
    return (
        strided
        | basic_indices(shape=shape)
        | listed.map(lambda index: tuple(map(np.asfortranarray, index)))
    )


@max_examples(60)
@given(data=st.data())
def test_values_written_into_views_get_the_gradients_of_the_elements_that_show_them(
    data: st.DataObject,
) -> None:
    """A NumPy array of numbers is written alike; each number stands for one element of a value."""
    shape = data.draw(array_shapes(max_dims=2, min_side=2, max_side=5), "shape")
    origins = [np.arange(1.0, 1 + math.prod(shape)).reshape(shape)]
    values = [Tensor(origins[0].copy(), requires_grad=True)]
    tensors, count = [values[0] * 1], 1 + values[0].size
    for _ in range(data.draw(st.integers(0, 2), "views")):
        i = data.draw(st.integers(0, len(tensors) - 1), "array")
        view = data.draw(st.tuples(*[STRIDED] * tensors[i].ndim), "view")
        tensors.append(tensors[i][view])
        origins.append(origins[i][view])
    which = st.integers(0, len(tensors) - 1)
    for _ in range(data.draw(st.integers(1, 5), "writes")):
        i = data.draw(which, "target")
        index = data.draw(places(tensors[i].shape), "index")
        size = np.size(origins[i][index])
        new = np.arange(count, count + size, dtype=float).reshape(np.shape(origins[i][index]))
        values.append(Tensor(np.asfortranarray(new), requires_grad=True))
        tensors[i][index], origins[i][index] = values[-1], new
        count += size
        if data.draw(st.integers(0, 3), "is_read") == 3:
            tensors[data.draw(which, "read")] * 2
    total, expected = Tensor(0.0), np.zeros(count)
    for i in data.draw(st.permutations(range(len(tensors))), "order"):
        np.testing.assert_array_equal(tensors[i].data, origins[i])
        g = (1.0 + i) * np.arange(1, 1 + tensors[i].size).reshape(tensors[i].shape)
        total = total + (tensors[i] * g).sum()
        np.add.at(expected, origins[i].astype(int), g)
    expected = expected[1:]
    for value, c in zip(values, mg.gradients(total, values, allow_unused=True)):
        mine, expected = expected[: value.size], expected[value.size :]
        np.testing.assert_array_equal(0 if c is None else c.data.ravel(), mine)


def test_hook_of_values_that_were_replaced_as_a_whole_is_not_called() -> None:
    y = mg.tensor([1.0, 2.0], requires_grad=True) * 1.0
    seen: list[Tensor] = []
    y.register_hook(seen.append)
    y[...] = mg.tensor([3.0, 4.0], requires_grad=True)
    y.sum().backward()
    assert not seen


def test_retained_gradient_of_a_view_lacks_what_constants_replaced_in_its_views() -> None:
    y = mg.tensor(np.arange(5.0), requires_grad=True) * 1.0
    view = y[1:]
    view.retain_grad()
    part = view[1:]
    part[0] = 5.0
    (part * 2.0).sum().backward()
    np.testing.assert_array_equal(view.grad.data, [0.0, 0.0, 2.0, 2.0])


def test_elements_of_strided_views_come_from_their_last_write() -> None:
    """Windows and columns, of packed records too, whose fields are no multiples of their length apart."""
    records = np.zeros(6, np.dtype([("key", "i4"), ("value", "f8")]))
    base = mg.Tensor(records["value"])
    x = mg.tensor(np.arange(1.0, 7), requires_grad=True)
    base[::2] = x[:3]
    base[1:5] = x[1:5] * base[:4]
    windows = np.lib.stride_tricks.sliding_window_view(base, 2)
    np.testing.assert_array_equal(base.data, [1, 2, 0, 8, 0, 0])
    windows.sum().backward()
    np.testing.assert_array_equal(x.grad.data, [1 + 4, 2 + 8, 0, 4, 0, 0])


def test_write_into_a_result_without_axes_keeps_earlier_values() -> None:
    def written(x: Any) -> Any:
        s = np.sum(x * x)
        t = s * 2
        s[...] = x[0] * 3
        return s * t

    x = np.array([1.0, 0.5])
    expected = mg.grad(lambda x: x[0] * 3 * np.sum(x * x) * 2)(x)
    np.testing.assert_allclose(mg.grad(written)(x), expected, rtol=1e-14)


def test_leaf_whose_new_data_was_written_before_has_its_own_gradient() -> None:
    w, t = (Tensor(np.ones(3), requires_grad=True) for _ in range(2))
    buffer = mg.zeros(3)
    buffer[0] = w[0]
    t.data = buffer.data
    (t * 3).sum().backward()
    assert t.grad.tolist() == [3, 3, 3] and w.grad is None
    with mg.no_grad():
        buffer[2] = 5.0
    assert (t * 3).tolist() == [3, 0, 15]
    buffer[1] = w[1]
    with pytest.raises(GradientError, match="a leaf .* was written through"):
        t * 3


def test_view_made_without_recording_stays_constant_after_a_write() -> None:
    w, buffer = Tensor(np.ones(2), requires_grad=True), mg.zeros(2)
    with mg.no_grad():
        views = [
            f(buffer) for f in (lambda x: x[:1], np.transpose, lambda x: x.reshape(2, 1), Tensor)
        ]
    shared = Tensor(buffer)
    for view in (*views, buffer.detach()):
        buffer[0] = w[0]
        assert (shared * 2).requires_grad
        y = view * 2
        assert not y.requires_grad and y.data.ravel()[0] == 2
    assert (buffer[:1] * 2).requires_grad


DTYPES = ["?", "i1", "i8", "f2", "f4", "f8", "c8", "c16"]


@pytest.mark.filterwarnings("ignore:Casting complex values")
@pytest.mark.parametrize("write", [
    lambda t, v: t.__setitem__(0, v), lambda t, v: t.__setitem__([0, 1], v), np.copyto, lambda t, v: t.__iadd__(v),
    lambda t, v: np.multiply(t, v, out=t), lambda t, v: np.add.at(t, [0, 0], v),
])  # fmt: skip
@pytest.mark.parametrize("dtype", DTYPES)
def test_write_of_a_constant_of_any_dtype_is_that_of_an_array(write: Any, dtype: str) -> None:
    for other in DTYPES:
        outcomes: list[Any] = []
        for make in (np.copy, Tensor):
            target = make(np.array([1, 0, 1]).astype(dtype))
            for value in (1, make(np.array(1, other))):
                try:
                    write(target, value)
                    outcomes.append("written")
                except (TypeError, ValueError):
                    outcomes.append("refused")
            outcomes.append(np.asarray(target).tolist())
        assert outcomes[:3] == outcomes[3:], other


@pytest.mark.parametrize(("ufunc", "sign"), [(np.add, 1.0), (np.subtract, -1.0)])
def test_values_added_or_subtracted_at_repeated_indices_have_their_sign(
    ufunc: np.ufunc, sign: float
) -> None:
    x, v = (mg.tensor([1.0, 2.0, 4.0], requires_grad=True) for _ in range(2))
    y, expected = x * 1.0, x.data.copy()
    ufunc.at(y, [2, 0, 2], v)
    ufunc.at(expected, [2, 0, 2], v.data)
    np.testing.assert_array_equal(y.data, expected)
    gx, gv = mg.gradients(y, [x, v], np.array([1.0, 10.0, 100.0]))
    np.testing.assert_array_equal([gx.data, sign * gv.data], [[1, 10, 100], [100, 1, 100]])
