"""Functions that call ops: signatures, source, and names that they refuse."""

from __future__ import annotations

import inspect
import linecache
import pickle
from typing import Any

import numpy as np
import pytest

import minigrad as mg
from minigrad import custom_op, registry
from minigrad.fast.stepper import HAS_FLAGS
from minigrad.fuse import fuse
from minigrad.registry import OPS, Op
from minigrad.tensor import extension

RNG = np.random.default_rng(0)


@pytest.mark.parametrize(
    "call,message",
    [
        (lambda: mg.matmul(1.0), r"matmul\(\) missing 1 required positional argument: 'b'"),
        (lambda: mg.relu(1.0, slope=3), r"relu\(\) got an unexpected keyword argument 'slope'"),
    ],
)
def test_op_called_wrongly_names_itself_and_the_argument(call: object, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        call()  # type: ignore[operator]


@pytest.mark.parametrize(
    "rules,message",
    [
        ({"vjp": lambda g, x: (g * 2 * x,)}, "vjp must read shift, which higher derivatives"),
        ({"vjp": lambda g, shift: (g,)}, None),
        ({"vjp": lambda g, y, shift: (g * 2 * (y - shift),)}, "vjp must read x, which higher"),
        ({"vjp": lambda g, shift, saved: (g * saved,)}, "vjp must read x, which higher"),
        ({"x": lambda g, saved: g * saved}, r"must read some of y, x, .*, got \['saved'\]"),
    ],
)
def test_kernel_needs_what_its_definition_reads_for_higher_derivatives(
    rules: Any, message: str | None
) -> None:
    def _kernel_with_an_option(x, /, shift):  # type: ignore[no-untyped-def]
        return x + shift, np.ones_like(x)

    definition = lambda x, shift: x + shift
    if message is None:
        Op(_kernel_with_an_option, {}, definition=definition, **rules)
        return
    with pytest.raises(TypeError, match=message):
        vjp = rules.pop("vjp", None)
        Op(_kernel_with_an_option, rules, definition=definition, vjp=vjp)


def test_debugger_in_an_op_shows_its_generated_source() -> None:
    for entry in OPS.values():
        file = inspect.unwrap(entry.function, stop=lambda f: hasattr(f, "op")).__code__.co_filename
        assert "".join(linecache.getlines(file)) == entry.source


def test_debugger_in_ops_of_one_name_shows_the_source_of_each() -> None:
    ops = [custom_op(a=lambda g: g)(f) for f in (lambda a: a, lambda a, b: a, lambda a: a + 0)]
    files = [f.op.function.__code__.co_filename for f in ops]
    assert [linecache.getlines(file) for file in files] == [
        f.op.source.splitlines(keepends=True) for f in ops
    ]


def test_warning_of_numpy_in_an_op_names_it() -> None:
    if not HAS_FLAGS:
        pytest.skip("needs flags of the processor")
    with pytest.warns(RuntimeWarning, match="overflow") as caught:
        mg.exp([1000.0])
    assert caught[0].filename == "<op exp>"


def test_custom_op_of_any_number_of_operands_needs_one_rule_for_all() -> None:
    with pytest.raises(TypeError, match=r"an op of \*arrays must have a vjp"):
        custom_op(arrays=lambda g: g)(lambda *arrays: sum(arrays))
    total = custom_op(vjp=lambda g, needs: [g] * len(needs))(lambda *arrays: sum(arrays))
    mg.gradcheck(total, [np.ones(3), np.ones(3)])


def test_custom_op_refuses_gradients_of_an_operand_without_a_rule() -> None:
    """None is the rule of an operand whose derivative is 0."""
    by_b = lambda g, a, b: 2 * a * b * g
    a, b = mg.Tensor(2.0, requires_grad=True), mg.Tensor(3.0, requires_grad=True)
    call = custom_op(b=by_b)(lambda a, b, /, scale=1.0: a * b**2 * scale)
    by_name = custom_op(b=by_b)(lambda a, b: a * b**2)
    for wrong in (lambda: call(a, b), lambda: by_name(a, b), lambda: by_name(b=b, a=a)):
        with pytest.raises(
            TypeError, match="<lambda>: a must not require gradients, because it has no"
        ):
            wrong()
    assert mg.gradients(call(a.detach(), b, scale=1.0), [b])[0].item() == 12
    with mg.no_grad():
        assert call(a, b).item() == 18
    constant = custom_op(b=by_b, a=None)(lambda a, b, /: a * b**2)
    assert mg.gradients(constant(a, b), [a, b], allow_unused=True)[0] is None
    with pytest.raises(TypeError, match="rules must be named as operands"):
        custom_op(b=by_b, c=None)(lambda a, b, /: a * b)


def test_registered_names_must_be_new() -> None:
    def exp(x, /):  # type: ignore[no-untyped-def]
        return x

    with pytest.raises(TypeError, match="the name of an op must be new, got 'exp'"):
        registry.op(x=lambda g: g)(exp)
    with pytest.raises(TypeError, match="answer: function must have no answer, got <ufunc 'exp'>"):
        registry.answer(np.exp, exp)
    with pytest.raises(TypeError, match="names must be new, got reshape of Tensor"):
        registry.add_methods(mg.Tensor, {"reshape": exp})
    with pytest.raises(TypeError, match="names must be new, got item of Part"):
        registry.add_methods(type("Part", (mg.Tensor,), {}), {"item": exp})
    with pytest.raises(TypeError, match="fuse: function must be marked with @fusible, got exp"):
        fuse(exp)  # type: ignore[arg-type]
    assert mg.exp(0.0).item() == np.exp(mg.Tensor(0.0)).item() == 1


def test_custom_op_with_a_parameter_of_a_name_in_use_is_refused() -> None:
    for function in (lambda x, y: x, lambda x, needs: x, lambda x, saved: x, lambda x, _mode: x):
        with pytest.raises(TypeError, match="parameters must not be named .*, got"):
            custom_op(x=lambda g: g)(function)


@pytest.mark.parametrize("name", ["exp", "power", "sum", "softmax", "linear", "concatenate"])
def test_functions_are_pickled_by_name(name: str) -> None:
    function = getattr(mg, name)
    assert pickle.loads(pickle.dumps(function)) is function


def test_complex_result_without_a_package_for_it_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(extension, "complex", None)
    with pytest.raises(
        TypeError, match="multiply: the result must have a floating dtype .*complex"
    ):
        mg.multiply(mg.Tensor(1.0, requires_grad=True), 1j)
    assert mg.multiply(mg.Tensor(1.0), 1j).dtype == complex
