"""`detect_anomaly` names the op and the line, and changes no result."""

from __future__ import annotations

import math
import re
import sys
from contextlib import nullcontext
from pathlib import Path
from types import FunctionType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import minigrad as mg
import nn
from minigrad import AnomalyError, GradientError, Tensor, custom_op
from minigrad.numpy.watch import Watch


def leaf(*values: float) -> Tensor:
    return Tensor(list(values), requires_grad=True)


@pytest.mark.parametrize(
    "call, message",
    [
        (
            lambda: np.log(leaf(1.0, 0.0)),
            r"^log: made Inf from finite operands; called at .*test_anomaly\.py:\d+ in .*np\.log\(",
        ),
        (lambda: leaf(1.0, math.nan) * 2, "multiply: passed on a NaN in its operands; called at"),
        (lambda: leaf(math.inf) - math.inf, "subtract: made NaN from operands with an Inf"),
        (
            lambda: (leaf(1.0, 2.0) * 3).sum().backward(np.array(math.nan)),
            "sum: its gradient passed on a NaN in its gradients",
        ),
        (lambda: Tensor([complex(0, math.nan)]) * 2, "multiply: passed on a NaN in its operands"),
        (
            lambda: nn.Linear(1, 1)([[math.nan]]),
            r"passed on a NaN .* called at .*test_anomaly\.py:\d+ in .*Linear",
        ),
        (lambda: mg.vmap(np.log)(np.array([1.0, -1.0])), "^log: made NaN from finite operands"),
        (lambda: mg.jacobian(np.sqrt)(np.zeros(2)), "^sqrt: its gradient made Inf from finite"),
    ],
)
def test_detect_anomaly_of_value_not_finite_names_op_and_line(call: Any, message: str) -> None:
    with pytest.raises(AnomalyError, match=message), mg.detect_anomaly():
        call()


def test_detect_anomaly_of_gradient_not_finite_names_the_line_of_the_forward_call() -> None:
    x = leaf(4.0, 0.0)
    with mg.detect_anomaly():
        h = np.sqrt(x)  # the marked line
        y = (h * 2).sum()
        message = r"^sqrt: its gradient made Inf .*np\.sqrt\(x\)  # the marked line"
        with pytest.raises(AnomalyError, match=message):
            y.backward()


def test_detect_anomaly_of_masks_and_where_raises_nothing() -> None:
    x = leaf(1.0, 2.0)
    with mg.detect_anomaly():
        mg.softmax(mg.masked_fill(x, np.array([True, False]), -np.inf)).sum().backward()
    assert np.isfinite(x.grad.data).all()


def test_detect_anomaly_of_an_infinite_option_raises_nothing() -> None:
    with mg.detect_anomaly():
        y = custom_op(x=lambda g: g)(lambda x, /, fill: x + fill)(leaf(1.0), fill=np.inf)
    assert y.tolist() == [np.inf]


def test_detect_anomaly_around_another_watch_names_the_line_of_a_changed_operand() -> None:
    x, y = leaf(2.0), Tensor([3.0])
    with mg.detect_anomaly(), mg.profile():
        z = x * y  # the marked line
        y += 1
        message = r"multiply, called at .*x \* y  # the marked line: an array .* was changed"
        with pytest.raises(GradientError, match=message):
            z.backward()


@pytest.mark.parametrize("name, is_beside", [("nn", False), ("nnproject", True)])
def test_detect_anomaly_in_a_package_with_a_similar_name_names_its_line(
    name: str, is_beside: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent = Path(mg.__file__).parent.parent if is_beside else tmp_path
    file = str(parent / name / "__init__.py")
    monkeypatch.setitem(sys.modules, name, SimpleNamespace(__file__=file))  # type: ignore[arg-type]
    code = (lambda x: np.log(x)).__code__.replace(co_filename=file)
    f = FunctionType(code, {"__name__": name, "np": np})
    with pytest.raises(AnomalyError, match=re.escape(f"{file}:")), mg.detect_anomaly():
        f(leaf(0.0))


def test_detect_anomaly_of_write_through_a_view_names_the_line() -> None:
    x = leaf(1.0, 1.0)
    for name, f in (("multiply", lambda x: x * x), ("power", lambda x: x ** [1.5, 2.0])):
        with mg.detect_anomaly():
            y = f(x).sum()
            x.data[0] += 4.0
            message = rf"{name}: values that its gradient needs were changed since .*lambda x: x "
            with pytest.raises(GradientError, match=message):
                y.backward()


@pytest.mark.parametrize("create_graph", [False, True])
def test_detect_anomaly_of_a_factor_with_the_values_of_the_other_raises(create_graph: bool) -> None:
    x, y = leaf(1.0, 2.0), leaf(3.0, 4.0)
    with mg.detect_anomaly():
        z = (x * y).sum()
        y.data[...] = x.data
        with pytest.raises(GradientError, match="multiply: values that its gradient needs"):
            mg.gradients(z, [x, y], create_graph=create_graph)


def write_in_turns(x: Any) -> Any:
    a = mg.zeros((3, 3))
    a[:] = x
    for i in range(3):
        np.tanh(a[i], out=a[i])
        a[i, 0] = (a[:, 1] * a[:, 2]).sum()
    return (mg.softmax(a) ** 3).sum()


def test_watch_entered_inside_its_own_block_is_refused() -> None:
    watch, message = mg.detect_anomaly(), "detect_anomaly: .* inside its own block"
    with watch, mg.profile(), pytest.raises(RuntimeError, match=message), watch:
        np.exp(Tensor(1.0))
    with watch:
        np.exp(Tensor(1.0))


@pytest.mark.parametrize("watch", [mg.detect_anomaly, mg.profile])
@pytest.mark.parametrize(
    "f", [lambda x: (mg.softmax(x @ x) * mg.vmap(mg.norm)(x)).sum(), write_in_turns]
)
@pytest.mark.parametrize("derivative", [mg.grad, mg.hessian])
def test_derivative_of_watched_operations_is_the_same(derivative: Any, f: Any, watch: Any) -> None:
    a = np.random.default_rng(0).standard_normal((3, 3))
    with watch():
        watched = derivative(f)(a)
    np.testing.assert_array_equal(watched.data, derivative(f)(a).data)


@pytest.mark.parametrize("watch", [mg.detect_anomaly, mg.profile])
@pytest.mark.parametrize(
    "f",
    [
        mg.layer_norm,
        mg.gelu,
        lambda x: mg.linear(x, x, x[0]),
        lambda x: mg.cross_entropy(x, [0, 2, 1]),
        lambda x: mg.scaled_dot_product_attention(*[x[None, None]] * 3),
    ],
)
def test_second_derivative_of_watched_kernel_is_the_same(f: Any, watch: Any) -> None:
    x = Tensor(np.random.default_rng(0).standard_normal((3, 3)), requires_grad=True)
    results = []
    for block in (watch, nullcontext):
        with block():
            (g,) = mg.gradients((f(x) ** 3).sum(), x, create_graph=True)
            results.append(mg.gradients((g * g).sum(), x)[0].data)
    np.testing.assert_array_equal(*results)


@pytest.mark.parametrize("block", [Watch, mg.detect_anomaly, mg.enable_grad])
def test_number_may_be_taken_out_of_a_tensor_in_a_block_outside_of_derivatives(block: Any) -> None:
    x = Tensor(2.0, requires_grad=True)

    def f(x: Any) -> Any:
        with block():
            return x * (x * 3.0).item()

    assert f(x).item() == 12
    with pytest.raises(mg.GradientError, match="would lose"):
        mg.grad(f)(x)
    with mg.no_grad(), block():
        assert mg.is_grad_enabled() is (block is mg.enable_grad)


@pytest.mark.parametrize("order", [[0, 1], [1, 0]])
def test_detect_anomaly_of_nan_beside_inf_raises(order: Any) -> None:
    a, b = np.array([np.inf, np.inf])[order], np.array([np.inf, 1.0])[order]  # NaN and Inf
    with mg.detect_anomaly(), pytest.raises(AnomalyError, match="subtract: made NaN from operands"):
        mg.subtract(Tensor(a), b)
