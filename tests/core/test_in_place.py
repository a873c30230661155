"""Writing into tensors, and taking numbers out of them: done, noticed, or refused, and never a lost gradient."""

from __future__ import annotations

import math
import operator
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from opinfo import TABLE, Draw

import minigrad as mg
from minigrad import GradientError, Tensor
from minigrad.optim import SGD, clip_grad_norm_

OPERATORS = [
    operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.ifloordiv, operator.imod, operator.ipow,
]  # fmt: skip

OUT_OF_PLACE = {
    write: getattr(operator, name)
    for write, name in zip(OPERATORS, ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow"])
}


@pytest.mark.parametrize("write", OPERATORS, ids=lambda f: f.__name__)
def test_operators_write_into_a_leaf_under_no_grad(write: Callable[..., Any]) -> None:
    a = np.array([3.0, 5.0, 7.0])
    expected = write(a.copy(), np.array(2.0))
    p = Tensor(a, requires_grad=True)
    kept = (p**2).sum()
    with mg.no_grad():
        q = write(p, Tensor(2.0))
    assert q is p and p.data is a and p.requires_grad and p.is_leaf
    np.testing.assert_array_equal(a, expected)
    with pytest.raises(
        GradientError, match="power: an array of shape .* was changed in place after it was used"
    ):
        kept.backward()
    with pytest.raises(
        GradientError,
        match=r"a leaf that requires gradients cannot be changed in place.*under no_grad",
    ):
        write(p, 2.0)
    np.testing.assert_array_equal(a, expected)


def test_the_loop_of_every_tutorial() -> None:
    target = np.array([1.0, -2.0])
    p = Tensor(np.zeros(2), requires_grad=True)
    for _ in range(100):
        p.grad = None
        ((p - target) ** 2).sum().backward()
        with mg.no_grad():
            p -= 0.1 * p.grad
    np.testing.assert_allclose(p.data, target, atol=1e-8)


@pytest.mark.parametrize("write", OPERATORS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("tracked", ["both", "target", "operand"])
def test_operator_in_place_where_a_gradient_flows_changes_every_reference(
    write: Callable[..., Any], tracked: str
) -> None:
    """As in PyTorch: a function that is given a computed tensor changes it for its caller."""
    a, b, g = np.random.default_rng(0).uniform(1, 2, (3, 4))
    outcomes = []
    for in_place in (True, False):
        x = Tensor(a, requires_grad=tracked != "operand")
        u = Tensor(b, requires_grad=tracked != "target")
        t = x.exp() if tracked != "operand" else Tensor(a)
        alias = t
        if in_place:
            assert write(t, u) is t
        else:
            alias = OUT_OF_PLACE[write](t, u)
        total = (alias * g).sum()
        if total.requires_grad:  # the floor has no gradient
            total.backward()
        outcomes.append([alias.data, *[p.grad.data for p in (x, u) if p.grad is not None]])
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


def test_operator_in_place_keeps_the_dtype_or_is_refused() -> None:
    t = Tensor(np.ones(2, np.float32), requires_grad=True) * 2
    t += Tensor(np.ones(2), requires_grad=True)
    assert t.dtype == np.float32
    count = Tensor(np.ones(2, int))
    with pytest.raises(ValueError, match=r"add: .* float64 does not fit .* int64; write t = t"):
        count += t


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
    t = Tensor(np.ones((2, 2)), requires_grad=True) * 2
    part = view(t)
    with pytest.raises(GradientError, match="multiply: a view .* cannot be changed in place"):
        part *= 2


@given(data=st.data())
@settings(max_examples=5, phases=[Phase.generate])
def test_every_op_that_returns_a_view_declares_it(data: Any) -> None:
    for info in TABLE.values():
        sample = info.samples(Draw(data.draw))
        operands = [
            Tensor(x, requires_grad=True) if isinstance(x, np.ndarray) and x.dtype == float else x
            for x in sample.operands
        ]
        leaves = [x for x in operands if isinstance(x, Tensor)]
        result = info.call(*operands, **sample.options)
        for y in result if isinstance(result, (list, tuple)) else [result]:
            if isinstance(y, Tensor) and any(np.shares_memory(y.data, x.data) for x in leaves):
                assert y.is_leaf or y._node.op.view, info.name


def test_what_was_computed_is_written_under_no_grad_and_keeps_its_graph() -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)
    y = h = x * 2
    z = x.exp()
    with mg.no_grad():
        y += 1
        np.copyto(h, [7.0, 8.0], where=[True, False])
        z *= 2
    assert y is h and y.requires_grad
    (y * y).sum().backward()
    np.testing.assert_array_equal(y.data, [7, 5])
    np.testing.assert_array_equal(x.grad.data, [28, 20])
    with pytest.raises(GradientError, match="exp: an array of shape .* was changed in place"):
        z.sum().backward()


def test_what_does_not_fit_in_place_is_refused_wherever_a_gradient_flows() -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)
    for t in (x * 1, Tensor([1.0, 2.0])):
        with pytest.raises(ValueError, match=r"\(3, ?2\)"):
            t += x * np.ones((3, 2))
    with pytest.raises(ValueError, match="broadcast"), mg.no_grad():
        x += np.ones((3, 2))


@pytest.mark.parametrize("with_optimizer", [False, True])
@pytest.mark.parametrize("change", ["add", "clip", "anew"])
def test_a_gradient_that_a_graph_read_and_that_changed_is_noticed(
    change: str, with_optimizer: bool
) -> None:
    p, q = (Tensor(np.ones((2, 2)), requires_grad=True) for _ in range(2))
    optimizer = SGD([p], lr=0.1) if with_optimizer else None
    mg.linear(np.ones((3, 2)), p).sum().backward()
    y = (q * p.grad).sum()
    if change == "clip":
        clip_grad_norm_([p], 0.1)
    elif change == "add":
        mg.linear(np.ones((3, 2)), p).sum().backward()
    else:
        optimizer.zero_grad() if optimizer else setattr(p, "grad", None)
        mg.linear(np.ones((4, 2)), p).sum().backward()
        if optimizer is None:  # each gradient has memory of its own
            y.backward()
            np.testing.assert_array_equal(q.grad.data, np.full((2, 2), 3.0))
            return
    with pytest.raises(GradientError, match="multiply: an array of shape .* was changed in place"):
        y.backward()


def test_operators_write_into_constants_as_into_arrays() -> None:
    m = Tensor([[6, 7]])
    alias = m
    m &= 3
    m |= 8
    m ^= 1
    assert alias is m and m.tolist() == [[11, 10]]
    square = Tensor(np.eye(2))
    square @= np.array([[1.0, 2.0], [3.0, 4.0]])
    np.testing.assert_array_equal(square.data, [[1, 2], [3, 4]])
    with pytest.raises(ValueError, match="broadcast"):
        m += np.ones((3, 2), int)
    with pytest.raises(TypeError, match="same_kind"):
        m += 0.5


@pytest.mark.parametrize(
    "view", [lambda t: t, lambda t: t[1:], lambda t: t.reshape(3, 2).T, lambda t: t[::-1]]
)
def test_a_constant_written_into_is_noticed_through_views(view: Callable[..., Any]) -> None:
    x, c = Tensor(np.ones(6), requires_grad=True), Tensor(np.arange(6.0))
    y = (view(x) * view(c)).sum()
    with mg.no_grad():
        part = c[2:4]
        part += 1
    with pytest.raises(GradientError, match="changed in place"):
        y.backward()


def test_a_write_beside_what_a_graph_saved_is_allowed() -> None:
    memory = np.ones(6)
    x = Tensor(np.ones(3), requires_grad=True)
    y = (x * memory[:3]).sum()
    other = Tensor(memory[3:])
    other += 1
    y.backward()
    np.testing.assert_array_equal(x.grad.data, [1, 1, 1])


# -- NumPy's functions that write, or that have no rule ------------------------------------------------


@pytest.mark.parametrize(
    "write",
    [
        lambda c: np.copyto(c, 5.0),
        lambda c: np.copyto(c.data, Tensor(np.ones(3))),
        lambda c: np.put(c, [0], 5.0),
        lambda c: np.add(c, Tensor(1.0), out=c.data),
        lambda c: np.cumsum(c, out=c.data),
        lambda c: np.cumsum(c, 0, None, c.data),
        lambda c: np.place(c, c == 0, 3.0),
        lambda c: np.putmask(c, c == 0, 3.0),
        lambda c: np.fill_diagonal(c.reshape(1, 3), 3.0),
        lambda c: np.put_along_axis(c, np.array([1]), 5.0, 0),
        lambda c: np.put_along_axis(c, np.array([1]), 5.0, axis=0),
        lambda c: np.add.at(c, [0, 0], 5.0),
        lambda c: np.negative.at(c, [0, 1]),
        lambda c: np.put(ind=0, a=c, v=3.0),
        lambda c: np.median(c, overwrite_input=True),
        lambda c: np.quantile(c, 0.5, None, None, True),
        lambda c: np.nan_to_num(c, copy=False),
    ],
)
def test_what_numpy_writes_is_noticed(write: Callable[..., Any]) -> None:
    x, c = Tensor(np.ones(3), requires_grad=True), Tensor(np.array([0.0, 2.0, 1.0]))
    y = (x * c).sum()
    write(c)
    with pytest.raises(GradientError, match="multiply: an array of shape .* was changed in place"):
        y.backward()


def test_numpy_writes_into_a_leaf_under_no_grad() -> None:
    p = Tensor(np.zeros(3), requires_grad=True)
    with mg.no_grad():
        np.copyto(p, 5.0, where=np.array([True, False, True]))
    assert p.tolist() == [5, 0, 5]


@pytest.mark.parametrize(
    "call, message",
    [
        (
            lambda t: np.copyto(t, 5.0),
            "np.copyto: a leaf that requires gradients cannot be changed in place",
        ),
        (
            lambda t: np.copyto(np.zeros(3), t),
            "np.copyto.* would lose its gradient; write np.where",
        ),
        (
            lambda t: np.add.at(t, [0], 1.0),
            "np.add.at: a leaf that requires gradients cannot be changed in place",
        ),
        (
            lambda t: np.add.at(np.zeros(3), [0, 0, 1], t),
            "np.add.at: what is written would lose .* index_add",
        ),
        (
            lambda t: np.put(np.zeros(3), [0, 1], t[:2]),
            "np.put: what is written would lose its gradient",
        ),
        (
            lambda t: np.putmask(np.zeros(3), [True, False, True], t),
            "np.putmask: what is written would lose",
        ),
        (
            lambda t: np.put_along_axis(np.zeros(3), np.array([1]), t[:1], 0),
            "np.put_along_axis: what is written",
        ),
        (lambda t: Tensor(t), r"Tensor: the gradient of the data would be lost; write .clone\(\)"),
        (
            lambda t: np.full_like(np.zeros(3), t[0]),
            "np.full_like.* lose its gradient; .* np.broadcast_to",
        ),
        (lambda t: mg.full_like(np.zeros(3), t[0]), "np.full_like.* lose its gradient"),
    ],
)
def test_functions_that_would_drop_a_gradient_refuse(
    call: Callable[..., Any], message: str
) -> None:
    with pytest.raises(GradientError, match=message):
        call(Tensor([1.0, 2.0, 3.0], requires_grad=True))
    with mg.no_grad():
        call(Tensor([1.0, 2.0, 3.0], requires_grad=True))


def test_what_a_number_option_would_lose() -> None:
    """Tensors among the options: with their gradient, or refused by name."""
    s, x = Tensor(1.0, requires_grad=True), np.arange(4.0)
    for f, slope in (
        (lambda s: np.max(Tensor(x - 5), initial=s), 1),
        (lambda s: mg.min(x, initial=-s).sum(), -1),
        (lambda s: np.maximum.reduce(Tensor(x - 5, True), initial=s * 2), 2),
        (lambda s: mg.nanmax(x, initial=s * 9), 9),
        (lambda s: mg.softplus(1.0, s), 1 / (1 + math.exp(-1)) - math.log1p(math.e)),
        (lambda s: mg.tensor(s) * 3, 3),
        (lambda s: mg.max(np.full(2, 3.0), initial=s), 0),
        (lambda s: np.full_like(s, 2.0) * s, 2),
    ):
        assert mg.grad(f)(1.0).item() == pytest.approx(slope)
    for call, named in (
        (
            lambda: mg.cross_entropy(np.eye(2), [0, 1], label_smoothing=s * 0.1),
            "cross_entropy: the weights of classes and label",
        ),
        (lambda: mg.norm(x, s), "norm: ord"),
        (lambda: np.linalg.vector_norm(Tensor(x, True), ord=s), "norm: ord"),
        (lambda: mg.pad(x, 1, constant_values=s), "pad: constant_values="),
        (lambda: mg.layer_norm(x, eps=s), "eps= has no rule"),
        (lambda: s * np.timedelta64(1, "s"), "dtype timedelta64"),
        (lambda: np.ma.array(x) * s, "an ndarray cannot carry"),
        (lambda: mg.tensor(s, requires_grad=True), "tensor: the"),
    ):
        with pytest.raises((TypeError, GradientError), match=named):
            call()


# -- numbers out of tensors ----------------------------------------------------------------------------


def _written(a: Any) -> Any:
    out = np.zeros(3)
    for i in range(3):
        out[i] = a[i] ** 2
    return out


@pytest.mark.parametrize(
    "f",
    [
        _written,
        lambda a: a.sum() * float(a[0]),
        lambda a: a.sum() * int(a[0]),
        lambda a: a.sum() * math.sin(a[0]),
        lambda a: np.array([float(v) for v in a]).sum(),
    ],
)
@pytest.mark.parametrize(
    "derivative",
    [
        lambda f: mg.grad(f)(np.ones(3)),
        lambda f: mg.value_and_grad(f)(np.ones(3)),
        lambda f: mg.vjp(f, np.ones(3)),
        lambda f: mg.jvp(f, np.ones(3), np.ones(3)),
        lambda f: mg.jacobian(f)(np.ones(3)),
        lambda f: mg.hessian(f)(np.ones(3)),
        lambda f: mg.hvp(f, np.ones(3), np.ones(3)),
        lambda f: mg.gradcheck(f, np.ones(3)),
    ],
)
def test_a_number_taken_out_inside_a_derivative_is_refused(f: Any, derivative: Any) -> None:
    with pytest.raises(
        GradientError,
        match=r"would lose its gradient; collect such values with np.stack\(\[...\]\)",
    ):
        derivative(f)


def test_numbers_that_were_meant() -> None:
    g = mg.grad(lambda a: (a * a.detach().sum().item()).sum() * float(a.detach()[0]))(
        np.full(3, 2.0)
    )
    np.testing.assert_array_equal(g.data, [12, 12, 12])
    with mg.no_grad():
        assert float(Tensor(1.5, requires_grad=True)) == 1.5
    assert float(Tensor(2.5)) == 2.5 and f"{Tensor(2.5, requires_grad=True):.1f}" == "2.5"


def test_a_number_taken_out_elsewhere_warns_and_names_item() -> None:
    x = Tensor(1.5, requires_grad=True)
    for convert in (float, int, complex):
        with pytest.warns(
            UserWarning,
            match=rf"{convert.__name__}\(\) of a tensor that requires grad.*write .item\(\)",
        ):
            assert convert(x) == convert(1.5)


# -- threads ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("with_buffer", [False, True])
def test_two_threads_add_into_one_large_leaf(with_buffer: bool) -> None:
    """NumPy lets go of the interpreter in an addition, so that two of them could meet in one element."""
    n, rounds = 400_000, 20
    p = Tensor(np.zeros((n, 1)), requires_grad=True)
    if with_buffer:
        from minigrad.core.graph import notes_of

        notes_of(p._node).grad_buffer = np.zeros((n, 1))
    rows = np.ones((1, n))

    def work() -> None:
        for _ in range(rounds):
            mg.linear(rows, mg.swapaxes(p, 0, 1)).sum().backward()
            mg.linear(np.ones((1, 1)), p).sum().backward()

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_array_equal(p.grad.data, np.full((n, 1), 4.0 * rounds))
