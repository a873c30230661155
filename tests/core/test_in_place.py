"""Writing into tensors: done, noticed by a graph that saved the old values, or refused; never a lost gradient."""

from __future__ import annotations

import copy
import operator
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from opinfo import TABLE, OpInfo, Sample, naming

import minigrad as mg
import nn
from minigrad import GradientError, Tensor
from minigrad.core.graph import notes_of
from minigrad.optim import SGD, clip_grad_norm_

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
every_operator = pytest.mark.parametrize("write", OPERATORS, ids=lambda f: f.__name__)

# -- operators -----------------------------------------------------------------------------------------


@every_operator
def test_operator_in_place_writes_into_a_leaf_only_under_no_grad(write: Any) -> None:
    a = np.array([3.0, 5.0, 7.0])
    expected = write(a.copy(), np.array(2.0))
    p = Tensor(a, requires_grad=True)
    late = (p**2).sum()
    with mg.no_grad():
        q = write(p, Tensor(2.0))
    assert q is p and p.data is a and p.requires_grad and p.is_leaf
    np.testing.assert_array_equal(a, expected)
    with pytest.raises(GradientError, match=f"power: {NOTICED} after it was used"):
        late.backward()
    with pytest.raises(GradientError, match=r"a leaf .* cannot be changed in place.*no_grad"):
        write(p, 2.0)
    np.testing.assert_array_equal(a, expected)


@every_operator
@pytest.mark.parametrize("tracked", [(True, True), (True, False), (False, True)], ids=str)
def test_operator_in_place_has_the_gradient_of_the_operator(write: Any, tracked: Any) -> None:
    """As in PyTorch, all references to a computed tensor change."""
    a, b, g = np.random.default_rng(0).uniform(1, 2, (3, 4))
    outcomes = []
    for operator_ in (write, OPERATORS[write]):
        leaves = [Tensor(x, requires_grad) for x, requires_grad in zip((a, b), tracked)]
        target, u = leaves[0].exp(), leaves[1]
        result = operator_(target, u)
        assert (result is target) == (operator_ is write)
        total = (result * g).sum()
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
    t = Tensor(np.ones(2, np.float32), requires_grad=True) * 2
    t += Tensor(np.ones(2), requires_grad=True)
    assert t.dtype == np.float32
    count, x = Tensor(np.ones(2, int)), Tensor(np.ones(2), requires_grad=True)
    with pytest.raises(ValueError, match=r"add: .* float64 does not fit .* int64; write t = t"):
        count += x
    for target in (x * 1, Tensor(np.ones(2))):
        with pytest.raises(ValueError, match=r"\(3, 2\) .* does not fit .* \(2,\)"):
            target += x * np.ones((3, 2))


@pytest.mark.parametrize(
    "view",
    [
        lambda t: t[0],
        lambda t: t.reshape(4),
        lambda t: t.T,
        lambda t: np.broadcast_to(t, (3, 2, 2)),
    ],
)
def test_operator_in_place_on_a_view_is_refused(view: Callable[..., Any]) -> None:
    part = view(Tensor(np.ones((2, 2)), requires_grad=True) * 2)
    with pytest.raises(GradientError, match="multiply: a view .* cannot be changed in place"):
        part *= 2


@pytest.mark.parametrize("info", TABLE.values(), ids=list(TABLE))
def test_op_that_returns_a_view_declares_it(info: OpInfo) -> None:
    for sample in info.each_sample(count=5):
        leaves, ys = sample.run()
        for y in ys:
            if any(np.shares_memory(y.data, x.data) for x in leaves):
                assert y.is_leaf or y._node.op.view, sample


def test_computed_tensor_written_under_no_grad_keeps_its_graph() -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)
    y = x * 2
    with mg.no_grad():
        y += 1
    (y * y).sum().backward()
    np.testing.assert_array_equal(x.grad.data, [12, 20])


def test_bitwise_operators_and_matmul_write_into_constants() -> None:
    m = alias = Tensor([[6, 7]])
    m &= 3
    m |= 8
    m ^= 1
    assert alias is m and m.tolist() == [[11, 10]]
    square = Tensor(np.eye(2))
    square @= np.array([[1.0, 2.0], [3.0, 4.0]])
    np.testing.assert_array_equal(square.data, [[1, 2], [3, 4]])


def test_item_assignment_writes_where_no_gradient_flows() -> None:
    p, c = Tensor(np.zeros(3), requires_grad=True), Tensor(np.zeros((2, 3)))
    with mg.no_grad():
        p[Tensor([0, 2])] = Tensor([1.0, 2.0])
        p[p.data > 1.5] += 1
    c[:, 1] += 5
    assert p.tolist() == [1, 0, 3] and c.tolist() == [[0, 5, 0], [0, 5, 0]]
    for target, value in ((p, 1.0), (p * 2, 1.0), (c, p[0])):
        with pytest.raises(GradientError, match="item assignment: .*(no_grad|where\\(\\))"):
            target[0] = value
    assert c.tolist() == [[0, 5, 0], [0, 5, 0]]


# -- changes between the forward and the backward pass ---------------------------------------------------


def gradients_after_change(sample: Sample, changed: int | None) -> list[Any]:
    """Return the gradients of an op whose operand number `changed` is written to in between."""
    leaves = [Tensor(x.copy(), requires_grad=True) for x in sample.floats.values()]
    results = [y for y in sample.call(*leaves) if isinstance(y, Tensor) and y.requires_grad]
    if changed is not None:
        with mg.no_grad():
            leaves[changed][...] = leaves[changed] * 0.5 + 0.1
    gs = [np.random.default_rng(0).standard_normal(y.shape) for y in results]
    return list(mg.gradients(results, leaves, gs, allow_unused=True)) if results else []


@pytest.mark.parametrize("info", TABLE.values(), ids=list(TABLE))
def test_op_notices_a_changed_operand_or_does_not_need_it(info: OpInfo) -> None:
    for sample in info.each_sample(count=4):
        expected = gradients_after_change(sample, None)
        for number in range(len(sample.floats)):
            with naming(sample):
                try:
                    gradients = gradients_after_change(sample, number)
                except GradientError as error:
                    assert "changed" in str(error)
                    continue
                for g, e in zip(gradients, expected, strict=True):
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
    "t += u": lambda m: m.weight.__iadd__(1.0),
    "t[...] = u": lambda m: m.weight.__setitem__(..., 7.0),
    "t[0] = u": lambda m: m.weight.__setitem__(0, 1.0),
    "view": lambda m: m.weight.T.__imul__(2.0),
    "data": lambda m: setattr(m.weight, "data", m.weight.data.__iadd__(1.0)),
    "copyto": lambda m: np.copyto(m.weight, 7.0),
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


def test_optimizer_step_after_the_forward_pass_is_noticed() -> None:
    model = nn.Linear(3, 1)
    sgd, x = SGD(model.parameters(), lr=0.1), np.ones((2, 3), np.float32)
    late = (model(Tensor(x, requires_grad=True)) ** 2).mean()
    (model(x) ** 2).mean().backward()
    sgd.step()
    with pytest.raises(GradientError, match=f"linear: {NOTICED}"):
        late.backward()


def add_gradient(p: Tensor) -> None:
    mg.linear(np.ones((4, 2)), p).sum().backward()


@pytest.mark.parametrize(
    "change",
    [
        lambda sgd, p: add_gradient(p),
        lambda sgd, p: clip_grad_norm_([p], 0.1),
        lambda sgd, p: (sgd.zero_grad(), add_gradient(p)),
    ],
    ids=["second backward", "clipping", "new gradient in the optimizer's array"],
)
def test_gradient_that_a_graph_read_and_that_changed_is_noticed(change: Any) -> None:
    p, q = (Tensor(np.ones((2, 2)), requires_grad=True) for _ in range(2))
    sgd = SGD([p], lr=0.1)
    add_gradient(p)
    y = (q * p.grad).sum()
    change(sgd, p)
    with pytest.raises(GradientError, match=f"multiply: {NOTICED}"):
        y.backward()


def test_gradient_that_a_graph_read_and_that_was_replaced_is_kept() -> None:
    p, q = (Tensor(np.ones((2, 2)), requires_grad=True) for _ in range(2))
    add_gradient(p)
    y = (q * p.grad).sum()
    p.grad = None
    add_gradient(p)
    y.backward()
    np.testing.assert_array_equal(q.grad.data, np.full((2, 2), 4.0))


@pytest.mark.parametrize(
    "view", [lambda t: t, lambda t: t[1:], lambda t: t.reshape(3, 2).T, lambda t: t[::-1]]
)
def test_constant_written_through_a_view_after_use_is_noticed(view: Callable[..., Any]) -> None:
    x, c = Tensor(np.ones(6), requires_grad=True), Tensor(np.arange(6.0))
    y = (view(x) * view(c)).sum()
    part = c[2:4]
    part += 1
    with pytest.raises(GradientError, match="changed in place"):
        y.backward()


def test_write_beside_a_saved_part_of_an_array_is_allowed() -> None:
    memory = np.ones(6)
    x = Tensor(np.ones(3), requires_grad=True)
    y = (x * memory[:3]).sum()
    other = Tensor(memory[3:])
    other += 1
    y.backward()
    np.testing.assert_array_equal(x.grad.data, [1, 1, 1])


@pytest.mark.parametrize(
    "write",
    [
        lambda c: np.copyto(c, 5.0),
        lambda c: np.copyto(c.data, Tensor(np.ones(3))),
        lambda c: np.put(ind=0, a=c, v=3.0),
        lambda c: np.add(c, Tensor(1.0), out=c.data),
        lambda c: np.cumsum(c, 0, None, c.data),
        lambda c: np.place(c, c == 0, 3.0),
        lambda c: np.putmask(c, c == 0, 3.0),
        lambda c: np.fill_diagonal(c.reshape(1, 3), 3.0),
        lambda c: np.put_along_axis(c, np.array([1]), 5.0, 0),
        lambda c: np.add.at(c, [0, 0], 5.0),
        lambda c: np.negative.at(c, [0, 1]),
        lambda c: np.median(c, overwrite_input=True),
        lambda c: np.nan_to_num(c, copy=False),
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
        (mg.embedding, np.array([1, 2])),
        (lambda w, i: mg.cross_entropy(w[:2], i), np.array([1, 2])),
    ],
)
def test_indices_that_change_after_the_forward_pass_keep_their_effect(
    read: Any, indices: Any
) -> None:
    """A list, indices of an embedding, and targets, as in a batch that is filled again."""
    gradients = []
    for changes in (False, True):
        w, i = Tensor(np.arange(9.0).reshape(3, 3), requires_grad=True), copy.copy(indices)
        y = read(w, i)
        if changes:
            i[:] = [0] * len(i)
        y.backward(np.random.default_rng(0).standard_normal(y.shape))
        gradients.append(w.grad.data)
    np.testing.assert_array_equal(*gradients)


# -- calls that would lose a gradient --------------------------------------------------------------------

T = Tensor([1.0, 2.0, 3.0], requires_grad=True)
S = Tensor(1.0, requires_grad=True)
X = np.arange(4.0)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: np.copyto(T, 5.0), "np.copyto: a leaf that requires gradients cannot be changed"),
        (lambda: np.copyto(np.zeros(3), T), "np.copyto.* lose their gradient; use np.where"),
        (lambda: np.add.at(T, [0], 1.0), "np.add.at: a leaf that requires gradients cannot be"),
        (
            lambda: np.add.at(np.zeros(3), [0, 0, 1], T),
            "np.add.at: the written values .* lose .* index_add",
        ),
        (lambda: np.put(np.zeros(3), [0, 1], T[:2]), "np.put: the written values would lose their"),
        (lambda: np.putmask(np.zeros(3), [True, False, True], T), "np.putmask: the written values"),
        (
            lambda: np.put_along_axis(np.zeros(3), np.array([1]), T[:1], 0),
            "np.put_along_axis: the written values",
        ),
        (lambda: Tensor(T), r"Tensor: data must not require gradients.* write data.clone\(\)"),
        (
            lambda: mg.cross_entropy(np.eye(2), [0, 1], label_smoothing=S * 0.1),
            "cross_entropy: weight and label_smoothing must not require",
        ),
        (lambda: np.max(Tensor(X - 5), initial=S), "np.max: initial= has no rule"),
        (lambda: np.maximum.reduce(Tensor(X, True), initial=S * 2), "argument 'initial'"),
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
    with pytest.raises(GradientError, match=r"would lose .*; collect such values with np.stack"):
        derivative(f)(np.ones(3))


def test_number_taken_out_of_a_constant_is_allowed_and_outside_of_derivatives_warns() -> None:
    g = mg.grad(lambda a: (a * a.detach().sum().item()).sum() * float(a.detach()[0]))
    np.testing.assert_array_equal(g(np.full(3, 2.0)).data, [12, 12, 12])
    x = Tensor(1.5, requires_grad=True)
    with mg.no_grad():
        assert float(x) == 1.5
    for convert in (float, int, complex):
        message = rf"{convert.__name__}\(\) of a tensor that requires grad.*write .item\(\)"
        with pytest.warns(UserWarning, match=message):
            assert convert(x) == convert(1.5)


@pytest.mark.parametrize("with_buffer", [False, True])
def test_two_threads_add_into_the_gradient_of_one_large_leaf(with_buffer: bool) -> None:
    """NumPy releases the interpreter lock in an addition, so both could meet in one element."""
    n, rounds = 400_000, 20
    p = Tensor(np.zeros((n, 1)), requires_grad=True)
    if with_buffer:
        notes_of(p._node).grad_buffer = np.zeros((n, 1))

    def work() -> None:
        for _ in range(rounds):
            mg.linear(np.ones((1, n)), mg.swapaxes(p, 0, 1)).sum().backward()
            mg.linear(np.ones((1, 1)), p).sum().backward()

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_array_equal(p.grad.data, np.full((n, 1), 4.0 * rounds))
