"""Writing into tensors: done, noticed by a graph that saved the old values, or refused; never a lost gradient."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.environment import max_examples
from support.opinfo import TABLE, OpInfo, cotangents, samples

import minigrad as mg
import nn
from minigrad import GradientError, Tensor, protocols
from minigrad.fast.parallel.memory import Home
from minigrad.graph import notes_of
from minigrad.optim import SGD, clip_grad_norm_
from minigrad.tensor import extension

OPERATORS = {
    operator.iadd: operator.add,
    operator.isub: operator.sub,
    operator.imul: operator.mul,
    operator.itruediv: operator.truediv,
    operator.ifloordiv: operator.floordiv,
    operator.imod: operator.mod,
    operator.ipow: operator.pow,
}
NOTICED = "an array of shape .* was changed in place"
# -- operators -----------------------------------------------------------------------------------------


def test_operator_in_place_writes_into_a_leaf_only_under_no_grad() -> None:
    a = np.array([3.0, 5.0])
    p = alias = Tensor(a, requires_grad=True)
    late = (p**2).sum()
    with mg.no_grad():
        p -= Tensor(2.0)
    assert p is alias and p.data is a and p.requires_grad and a.tolist() == [1, 3]
    with pytest.raises(GradientError, match=f"power: {NOTICED} after it was used"):
        late.backward()
    with pytest.raises(GradientError, match=r"a leaf .* cannot be changed in place.*no_grad"):
        p -= 2.0
    assert a.tolist() == [1, 3]


@pytest.mark.parametrize("write", OPERATORS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("tracked", [(True, True), (True, False), (False, True)], ids=str)
def test_operator_in_place_has_the_gradient_of_the_operator(write: Any, tracked: Any) -> None:
    """As in PyTorch, all references to a computed tensor change."""
    outcomes = []
    for operator_ in (write, OPERATORS[write]):
        leaves = [Tensor(x, grad) for x, grad in zip(([1.2, 1.7], [1.9, 1.1]), tracked)]
        target = leaves[0].exp()
        result = operator_(target, leaves[1])
        assert (result is target) == (operator_ is write)
        total = (result * [2.0, 3.0]).sum()
        if total.requires_grad:  # the floor has no gradient
            total.backward()
        outcomes.append([result.data, *[x.grad.data for x in leaves if x.grad is not None]])
    for changed, expected in zip(*outcomes, strict=True):
        np.testing.assert_allclose(changed, expected, rtol=1e-12)


def test_operator_in_place_keeps_the_old_values_that_a_graph_saved() -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)
    y = x.exp()
    z = y * y
    y += 1
    y.retain_grad()
    y *= 3
    (z + y).sum().backward()
    np.testing.assert_allclose(x.grad.data, 2 * np.exp([2.0, 4.0]) + 3 * np.exp([1.0, 2.0]))
    np.testing.assert_array_equal(y.grad.data, [1, 1])


def test_operator_in_place_keeps_dtype_and_shape_or_is_refused() -> None:
    x = Tensor(np.ones(2), requires_grad=True)
    t = Tensor(np.ones(2, np.float32))
    t += x
    assert t.dtype == np.float32
    count = Tensor(np.ones(2, int))
    with pytest.raises(ValueError, match=r"add: .* float64 does not fit .* int\d+; write t = t"):
        count += x
    with pytest.raises(ValueError, match=r"\(3, 2\) .* does not fit .* \(2,\)"):
        t += x * np.ones((3, 2))


def test_operator_in_place_on_a_view_that_repeats_elements_is_refused() -> None:
    base = Tensor(np.ones((2, 2)), requires_grad=True) * 2
    part = np.broadcast_to(base, (3, 2, 2))
    with pytest.raises(ValueError, match="multiply: the memory of the tensor is read-only"):
        part *= 2


def test_computed_tensor_written_under_no_grad_is_refused_where_it_is_read() -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)
    y = x * 2
    with mg.no_grad():
        y += 1
        assert y.tolist() == [3, 5]
    with pytest.raises(GradientError, match=r"written under no_grad\(\), so its gradient"):
        y * y


def test_bitwise_operators_and_matmul_write_into_constants() -> None:
    m = alias = Tensor([[6, 7]])
    m &= 3
    m |= 8
    m ^= 1
    assert alias is m and m.tolist() == [[11, 10]]
    m @= np.array([[1, 2], [3, 4]])
    assert alias.tolist() == [[41, 62]]


def test_item_assignment_writes_where_no_gradient_flows() -> None:
    p, c = Tensor(np.zeros(3), requires_grad=True), Tensor(np.zeros((2, 3)))
    with mg.no_grad():
        p[Tensor([0, 2])] = Tensor([1.0, 2.0])
    c[:, 1] += 5
    assert p.tolist() == [1, 0, 2] and c.tolist() == [[0, 5, 0], [0, 5, 0]]


# -- changes between the forward and the backward pass ---------------------------------------------------


@pytest.mark.parametrize("info", TABLE.values(), ids=list(TABLE))
@max_examples(6)
@given(data=st.data())
def test_op_notices_a_changed_operand_or_does_not_need_it(
    info: OpInfo, data: st.DataObject
) -> None:
    sample = data.draw(samples(info))
    leaves, ys = sample.run(float)
    if not ys:
        return
    gs = data.draw(cotangents(ys))
    expected = mg.gradients(ys, leaves, gs, allow_unused=True)
    for number in range(len(leaves)):
        leaves, ys = sample.run(float)
        with mg.no_grad():
            leaves[number][...] = leaves[number] * 0.5 + 0.1
        try:
            found = mg.gradients(ys, leaves, gs, allow_unused=True)
        except GradientError as error:
            assert "changed" in str(error)
            continue
        for g, e in zip(found, expected, strict=True):
            assert (g is None) == (e is None)
            if e is not None:
                np.testing.assert_allclose(g.data, e.data, rtol=1e-12, atol=1e-12)


CHANGES: dict[str, Callable[[nn.Linear], Any]] = {
    "load_state_dict": lambda m: m.load_state_dict({k: v + 1 for k, v in m.state_dict().items()}),
    **{
        name: lambda m, name=name: getattr(nn.init, name)(m.weight, *[3.0] * (name == "constant_"))
        for name in nn.init.__all__
        if name.endswith("_")
    },
    "t[0] = u": lambda m: m.weight.__setitem__(0, 1.0),
    "view": lambda m: m.weight.T.__imul__(2.0),
    "data": lambda m: setattr(m.weight, "data", m.weight.data.__iadd__(1.0)),
}


@pytest.mark.parametrize("name", CHANGES)
def test_change_of_a_parameter_after_the_forward_pass_is_noticed(name: str) -> None:
    model = nn.Linear(3, 3, generator=np.random.default_rng(0))
    y = model(model(Tensor(np.ones((2, 3), np.float32)))).sum()
    before = model.weight.data.copy()
    with mg.no_grad():
        CHANGES[name](model)
    assert not np.array_equal(before, model.weight.data)
    with pytest.raises(GradientError, match=f"linear: {NOTICED}"):
        y.backward()


def test_change_before_the_forward_pass_needs_no_error_if_another_array_changes_later() -> None:
    p, other = Tensor([3.0, 5.0], True), Tensor([1.0], True)
    with mg.no_grad():
        p += 1.0
    y = (p**2).sum()
    with mg.no_grad():
        other += 1.0
    y.backward()
    assert p.grad.tolist() == [8, 12]


def test_optimizer_step_after_the_forward_pass_is_noticed() -> None:
    model, x = nn.Linear(3, 1), np.ones((2, 3), np.float32)
    sgd = SGD(model.parameters(), lr=0.1)
    late = model(Tensor(x, requires_grad=True)).sum()
    model(x).sum().backward()
    sgd.step()
    with pytest.raises(GradientError, match=f"linear: {NOTICED}"):
        late.backward()


def add_gradient(p: Tensor) -> None:
    """Add 4 to each element of the gradient."""
    mg.linear(np.ones((4, 2)), p).sum().backward()


@pytest.mark.parametrize(
    "change",
    [
        lambda sgd, p: add_gradient(p),
        lambda sgd, p: clip_grad_norm_([p], 0.1),
        lambda sgd, p: sgd.zero_grad(set_to_none=False),
    ],
    ids=["second backward", "clipping", "zeros"],
)
def test_gradient_that_a_graph_read_and_that_changed_is_noticed(change: Any) -> None:
    p, q = (Tensor(np.ones((2, 2)), requires_grad=True) for _ in range(2))
    sgd = SGD([p], lr=0.1)
    add_gradient(p)
    y = (q * p.grad).sum()
    change(sgd, p)
    with pytest.raises(GradientError, match=f"multiply: {NOTICED}"):
        y.backward()


@pytest.mark.parametrize("view", [lambda t: t[1:], lambda t: t.reshape(3, 2).T])
def test_constant_written_through_a_view_after_use_is_noticed(view: Callable[..., Any]) -> None:
    x, c = Tensor(np.ones(6), requires_grad=True), Tensor(np.arange(6.0))
    y = (view(x) * view(c)).sum()
    c[2:4][...] = 1
    with pytest.raises(GradientError, match="changed in place"):
        y.backward()


def test_ufunc_at_writes_constants_into_an_array_which_is_noticed() -> None:
    memory, x = np.ones(3), Tensor(np.ones(3), requires_grad=True)
    y = (x * memory).sum()
    np.add.at(memory, [0, 0, 2], Tensor([1.0, 2.0, 4.0]))
    assert memory.tolist() == [4, 1, 5]
    with pytest.raises(GradientError, match=f"multiply: {NOTICED}"):
        y.backward()


@pytest.mark.parametrize("by_data", [True, False])
def test_write_is_noticed_if_it_overlaps_the_saved_part_of_an_array(by_data: bool) -> None:
    parts = [(i, j) for i in range(5) for j in range(i + 1, 5)]
    for saved, written in itertools.product(parts, parts):
        memory = np.ones(6)
        x = Tensor(np.ones(np.ptp(saved)), requires_grad=True)
        y = (x * memory[slice(*saved)]).sum()
        other = Tensor(memory[slice(*written)])
        if by_data:
            other.data += 1
        else:
            other += 1
        Tensor(memory[5:]).data += 1  # changes no saved part
        if saved[0] < written[1] and written[0] < saved[1]:
            with pytest.raises(GradientError, match=f"multiply: {NOTICED}"):
                y.backward()
        else:
            y.backward()
            assert x.grad is not None and (x.grad.data == 1).all()


@pytest.mark.parametrize(
    "write",
    [
        lambda c: np.copyto(c.data, Tensor(np.ones(3))),
        lambda c: np.put(ind=0, a=c, v=3.0),
        lambda c: np.add(c, Tensor(1.0), out=c.data),
        lambda c: np.add.at(c, [0, 0], 5.0),
        lambda c: np.median(c, overwrite_input=True),
        lambda c: np.nan_to_num(c, copy=False),
        lambda c: np.round(c, 0, c.data),
        lambda c: mg.floor(c, c.data),
        lambda c: np.choose(np.zeros(3, int), [c], c.data),
    ],
)
def test_numpy_function_that_writes_is_noticed(write: Callable[..., Any]) -> None:
    x, c = Tensor(np.ones(3), requires_grad=True), Tensor(np.array([0.0, 2.0, 1.0]))
    y = (x * c).sum()
    write(c)
    with pytest.raises(GradientError, match=f"multiply: {NOTICED}"):
        y.backward()


@pytest.mark.parametrize(
    "read, indices",
    [
        (lambda w, i: w[i], [1, 2]),
        (lambda w, i: w[i], np.array([1, 2])),
        (lambda w, i: w[i], np.array([True, True, False])),
        (lambda w, i: mg.scatter(w[:2], index=i, shape=(3, 3)) * w, np.array([1, 2])),
        (lambda w, i: mg.index_add(w, index=i, values=2 * w[:2]) * w, np.array([1, 2])),
        (lambda w, i: mg.take_along_axis(w, i, 0), np.array([[1], [2]])),
        (mg.embedding, np.array([1, 2])),
        (lambda w, i: mg.cross_entropy(w[:2], i), np.array([1, 2])),
    ],
)
def test_indices_that_change_after_the_forward_pass_keep_their_effect(
    read: Any, indices: Any
) -> None:
    """Lists, arrays, indices of an embedding, and targets, as in a batch that is filled again."""
    w = Tensor(np.arange(9.0).reshape(3, 3), requires_grad=True)
    y = read(w, indices).sum()
    (expected,) = mg.gradients(y, w, retain_graph=True)
    indices[:] = [0] * len(indices) if isinstance(indices, list) else 0
    np.testing.assert_array_equal(mg.gradients(y, w)[0].data, expected.data)


# -- calls that would lose a gradient --------------------------------------------------------------------

T = Tensor([1.0, 2.0, 3.0], requires_grad=True)
S = Tensor(1.0, requires_grad=True)
X = np.arange(4.0)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: np.copyto(T, 5.0), "np.copyto: a leaf that requires gradients cannot be changed"),
        (lambda: np.add(X, X, out=T), "np.add: a leaf that requires gradients cannot be changed"),
        (
            lambda: np.copyto(np.zeros(3), T),
            "np.copyto.* lose their gradient in an ndarray; make it a tensor",
        ),
        (
            lambda: np.add.at(np.zeros(3), [0, 0, 1], T),
            "np.add.at: the written values .* lose their gradient in an ndarray",
        ),
        (lambda: Tensor(T), r"Tensor: data must not require gradients.* write data.clone\(\)"),
        (
            lambda: mg.cross_entropy(np.eye(2), [0, 1], label_smoothing=S * 0.1),
            "label_smoothing must not require",
        ),
        (lambda: np.maximum.reduce(Tensor(X, True), initial=S * 2), "np.max: initial= has no rule"),
        (lambda: mg.layer_norm(X, eps=S), "eps= has no rule"),
        (lambda: S * np.timedelta64(1, "s"), "dtype timedelta64"),
        (
            lambda: mg.tensor(S, requires_grad=True),
            "tensor: data must not require gradients if requires_grad",
        ),
    ],
)
def test_call_that_would_lose_a_gradient_is_refused(call: Any, message: str) -> None:
    with pytest.raises((TypeError, GradientError), match=message):
        call()


@pytest.mark.parametrize(
    "f, slope",
    [
        (lambda s: mg.softplus(1.0, s), 1 / (1 + np.exp(-1)) - np.log1p(np.e)),
        (lambda s: mg.tensor(s) * 3, 3),
        (lambda s: np.full_like(s, 2.0) * s, 2),
    ],
)
def test_tensor_as_option_keeps_its_gradient(f: Any, slope: float) -> None:
    assert mg.grad(f)(1.0).item() == pytest.approx(slope)


def write_into_array(a: Any) -> Any:
    out = np.zeros(3)
    out[1] = a[1] ** 2
    return out


@pytest.mark.parametrize("f", [write_into_array, lambda a: a.sum() * int(a[0])])
@pytest.mark.parametrize("derivative", [mg.grad, mg.jacobian, mg.hessian])
def test_number_taken_out_inside_a_derivative_is_refused(f: Any, derivative: Any) -> None:
    with pytest.raises(GradientError, match=r"would lose .*; to keep it, .* np.stack") as raised:
        derivative(f)(np.ones(3))
    assert any(entry.frame.code.raw is f.__code__ for entry in raised.traceback)


def test_error_raised_from_that_of_a_number_taken_out_is_kept() -> None:
    def f(x: Any) -> Any:
        try:
            return float(x)
        except GradientError as error:
            raise LookupError("mine") from error

    with pytest.raises(LookupError, match="mine"):
        mg.grad(f)(2.0)


def test_number_taken_out_inside_a_block_of_a_derivative_is_refused_while_it_records() -> None:
    def f(x: Any, mode: Any) -> Any:
        with mode():
            return x * float(x)

    assert mg.grad(f)(2.0, mg.no_grad).item() == 0
    with pytest.raises(GradientError, match="would lose its gradient"):
        mg.grad(f)(2.0, mg.enable_grad)


def test_number_taken_out_of_a_constant_is_allowed_and_outside_of_derivatives_warns() -> None:
    g = mg.grad(lambda a: a * a.detach().item() * float(a.detach()))
    assert g(2.0).item() == 4
    x = Tensor(1.5, requires_grad=True)
    with mg.no_grad():
        assert float(x) == 1.5
    for convert in (float, int, complex):
        with pytest.warns(
            UserWarning, match=rf"{convert.__name__}\(\) of .*write x.detach\(\).item\(\)"
        ):
            assert convert(x) == convert(1.5)


@pytest.mark.parametrize("with_buffer", [False, True])
def test_two_threads_add_into_the_gradient_of_one_large_leaf(with_buffer: bool) -> None:
    """NumPy releases the interpreter lock in an addition, so both could meet in one element."""
    n, rounds = 400_000, 20
    p = Tensor(np.zeros((n, 1)), requires_grad=True)
    if with_buffer:
        notes_of(p._node).home = Home(np.zeros((n, 1)))

    def work(_: int) -> None:
        for _ in range(rounds):
            mg.linear(np.ones((1, n)), mg.swapaxes(p, 0, 1)).sum().backward()
            mg.linear(np.ones((1, 1)), p).sum().backward()

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(work, range(2)))
    np.testing.assert_array_equal(p.grad.data, 4.0 * rounds)


# -- numbers, which += replaces


RESULTS: list[Callable[[Any], Any]] = [
    lambda x: x[0],
    lambda x: x[1, ...] * 1,
    lambda x: x.sum(),
    lambda x: x.max() - x[1],
    lambda x: x @ x,
    np.mean,
    np.median,
    lambda x: np.einsum("i,i", x, x),
    lambda x: np.linalg.norm(x),
    lambda x: np.zeros_like(x[0]),
    lambda x: np.copy(x[0]),
    lambda x: np.where(x[0] > 1.5, x[1], x[2]),
    lambda x: np.stack([x, x])[1, 0],
    lambda x: np.stack([x, x])[1, 0, ...],
    lambda x: np.squeeze(np.stack([x[1:2]])),
    lambda x: np.nan_to_num(x[2]),
    lambda x: x[:1].reshape(()) + 0,
    lambda x: (x[:1] * 2).reshape(()),
]
"""Functions whose results have no axes: numbers of NumPy, or arrays."""


def accumulated(
    program: list[tuple[int, int, int]], numbers: Any, functions: list[Callable[[Any], Any]]
) -> Any:
    """Return numbers that operators in place replaced, and those that kept their names."""
    names = [function(numbers) for function in functions]
    for i, j, k in program:
        names.append(names[i])
        names[i] = list(OPERATORS)[k](names[i], names[j])
    return np.stack(names)


PROGRAMS = st.lists(st.tuples(*[st.integers(0, 3)] * 3), min_size=1, max_size=6)


FUNCTIONS = st.lists(st.sampled_from(RESULTS), min_size=4, max_size=4)


@given(PROGRAMS, st.permutations([1.3, 1.6, 1.9]), FUNCTIONS)
def test_numbers_keep_other_names_when_an_operator_replaces_one(
    program: list[tuple[int, int, int]], values: list[float], functions: list[Any]
) -> None:
    """NumPy's numbers are immutable: `s = old; s += v` leaves `old`, but changes an array."""
    f = lambda x: accumulated(program, x, functions)
    with np.errstate(all="ignore"):
        expected = f(np.array(values))
        y, pullback = mg.vjp(f, np.array(values))
        for found in (y, f(mg.tensor(values)), mg.vmap(f)(np.array([values]))[0]):
            np.testing.assert_allclose(found.data, expected, rtol=1e-12)
        if not np.isfinite(expected).all() or np.abs(expected).max() > 1e3:
            return
        for i, (g,) in enumerate([pullback(e) for e in np.eye(len(expected))]):
            for k in range(3):
                h = 1e-6 * np.eye(3)[k]
                ends = [f(np.array(values) + s * h)[i] for s in (1, -1)]
                np.testing.assert_allclose(g.data[k], (ends[0] - ends[1]) / 2e-6, 1e-4, 1e-4)


@pytest.mark.parametrize("view", [lambda s: s.ravel(), lambda s: s.reshape(1), np.ravel, lambda s: s[None], lambda s: s[...]])  # fmt: skip
@pytest.mark.parametrize("grad", [True, False])
def test_array_of_a_number_has_memory_of_its_own(view: Any, grad: bool) -> None:
    x = Tensor([1.0, 2.0], grad)
    number = x[0]
    array = view(number)
    array *= 3
    array[...] += 1
    assert number.item() == 1 and array.item() == 4
    if grad:
        (array.sum() * number).backward()
        assert x.grad.tolist() == [7, 0]


@pytest.mark.parametrize("take", [lambda x: x[0].item(), lambda x: x.tolist()[0], lambda x: x.item(0)])  # fmt: skip
def test_number_taken_out_inside_a_derivative_raises(take: Any) -> None:
    with pytest.raises(GradientError, match=r"(item|tolist)\(\) of a tensor inside a function"):
        mg.grad(lambda x: take(x) * x.sum())(np.ones(2))
    assert mg.grad(lambda x: take(x.detach()) * x.sum())(np.ones(2)).tolist() == [1, 1]
    x = Tensor(np.ones(2), requires_grad=True)
    assert take(x) == 1


def test_writes_of_the_book_alone_are_noticed_and_lose_no_gradient(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(extension, "write", protocols._write)
    monkeypatch.setattr(extension, "update", protocols._update)
    x = Tensor(np.ones(2), requires_grad=True)
    for write in (lambda c: operator.iadd(c, 1.0), lambda c: operator.setitem(c, Tensor(0), 3.0)):
        c = Tensor(np.ones(2))
        y = (x * c).sum()
        write(c)
        assert c[0].item() > 1
        with pytest.raises(GradientError, match=f"multiply: {NOTICED}"):
            y.backward()
        with pytest.raises(GradientError, match="a tensor that requires gradients, or a value"):
            write(x * 1.0)
    for write in (lambda c: operator.iadd(c, x), lambda c: operator.setitem(c, 0, x[0])):
        with pytest.raises(GradientError, match="write t = t . u instead of t .= u, and np.where"):
            write(Tensor(np.ones(2)))


@pytest.mark.parametrize("matrix", [np.ones(2), np.array(2.0), 2.0, [1.0, 2.0]], ids=repr)
def test_matrix_is_not_multiplied_in_place_by_fewer_axes(matrix: Any) -> None:
    for other in (matrix, Tensor(matrix)):
        t = Tensor(np.ones((2, 2)))
        with pytest.raises(
            ValueError, match="matmul: in place, the other operand must be a matrix"
        ):
            t @= other
        assert (t.data == 1).all()


class Indices(np.ndarray):
    """An array of another class, as `np.memmap` is."""


@pytest.mark.parametrize("change", [lambda i: i, lambda i: (i,), lambda i: (i, ...)])
@pytest.mark.parametrize("kind", [np.asarray, Tensor, lambda i: i.view(Indices)])
@pytest.mark.parametrize("index", [np.array([0, 2]), np.array([True, False, True])], ids=str)
def test_selection_keeps_its_index_if_the_array_changes_afterwards(
    index: Any, kind: Any, change: Any
) -> None:
    x, memory = Tensor(np.ones((3, 3)), requires_grad=True), index.copy()
    y = x[change(kind(memory))]
    memory[:] = np.roll(index, 1)
    y.sum().backward()
    assert x.grad is not None and x.grad.data.tolist() == [[1] * 3, [0] * 3, [1] * 3]
