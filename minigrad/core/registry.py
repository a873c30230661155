"""How ops are declared (see the top of `op.py`) and found: by name, as NumPy's functions, as
methods of Tensor.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from . import protocols as protocols  # with which Tensor answers NumPy
from .forms import Form
from .op import Op, Rule
from .tensor import DISPATCH, Tensor

__all__ = ["custom_op"]

OPS: dict[str, Op] = {}
"""Every registered op, by name: the source of the docs' table and of the generated tests."""

FUNCTIONS: dict[str, Callable[..., Any]] = {}
"""Every public function that is a composition of ops, by name."""


def op(
    *,
    numpy: Any = (),
    methods: str = "",
    vjp: Rule | None = None,
    definition: Callable[..., Any] | None = None,
    view: bool = False,
    **rules: Rule,
) -> Callable[[Callable[..., Any]], Callable[..., Tensor]]:
    """Declare an op, which answers for the NumPy functions `numpy`, and is the methods of Tensor
    named `methods`. `view` declares that the result can share the memory of an operand.
    """

    def declare(forward: Callable[..., Any]) -> Callable[..., Tensor]:
        entry = _from_signature(forward, rules, vjp, definition)
        entry.view = view
        return _register(entry, numpy, methods)

    return declare


def ufunc(function: np.ufunc, doc: str, methods: str = "", **rules: Rule) -> Callable[..., Tensor]:
    """Declare and register the op of a NumPy ufunc, whose operands are those that have rules."""
    return _register(
        Op(function.__name__, function, tuple(rules), rules, doc=doc), function, methods
    )


def custom_op(
    *, vjp: Rule | None = None, **rules: Rule
) -> Callable[[Callable[..., Any]], Callable[..., Tensor]]:
    """Turn a function of ndarrays into a differentiable function of Tensors.

        @custom_op(x=lambda g, x: g * 3 * x**2)
        def cube(x, /):
            return x**3

    Parameters before the `/` are operands (all of them, where there is no `/`), those after it are
    options. A rule's parameters after `g` name what it reads: operands, options, `y` for the
    result, `x_shape`. Written in NumPy functions, it can be differentiated again; check it with
    `gradcheck`.
    """

    def declare(forward: Callable[..., Any]) -> Callable[..., Tensor]:
        guarded = {name: _guarded(rule) for name, rule in rules.items()}
        return _from_signature(forward, guarded, _guarded(vjp) if vjp else None, None).function

    return declare


def function(
    *, numpy: Any = (), methods: str = ""
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a public function that is a composition of ops, or that has no gradient."""

    def declare(composed: Callable[..., Any]) -> Callable[..., Any]:
        FUNCTIONS[composed.__name__] = composed
        return _publish(composed, composed, numpy, methods)

    return declare


def _from_signature(
    forward: Callable[..., Any],
    rules: dict[str, Rule],
    vjp: Rule | None,
    definition: Callable[..., Any] | None,
) -> Op:
    plain = inspect.unwrap(forward)
    code = plain.__code__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    variadic = bool(code.co_flags & 0x04)  # *arrays
    positional = code.co_posonlyargcount or (0 if variadic else len(names))
    operands = (code.co_varnames[len(names)],) if variadic else names[:positional]
    options: dict[str, Any] = dict.fromkeys(names if variadic else names[positional:])
    defaults = plain.__defaults__ or ()
    defaults = dict(zip(names[code.co_argcount - len(defaults) :], defaults))
    optional = tuple(name for name in operands if name in defaults)
    options.update({name: value for name, value in defaults.items() if name not in optional})
    options.update(plain.__kwdefaults__ or {})
    name, doc = forward.__name__.strip("_"), forward.__doc__
    return Op(name, forward, operands, rules, options, vjp, variadic, definition, doc, optional)


def _register(entry: Op, numpy: Any, methods: str) -> Callable[..., Tensor]:
    if entry.name in OPS:
        raise TypeError(f"op {entry.name!r} is registered already")
    OPS[entry.name] = entry
    return _publish(entry, entry.function, numpy, methods)


def _publish(entry: Any, call: Callable[..., Any], numpy: Any, methods: str) -> Callable[..., Any]:
    """Make `call` answer for NumPy functions, and be methods (`__radd__` with its operands
    swapped); note both.
    """
    entry.numpy = numpy if isinstance(numpy, tuple) else (numpy,)
    entry.methods = tuple(methods.split())
    for f in entry.numpy:
        DISPATCH[f] = call if isinstance(f, np.ufunc) else Form(f, call)
    for method in entry.methods:
        setattr(
            Tensor,
            method,
            (lambda self, other: call(other, self)) if method in _REFLECTED else call,
        )
    return call


_REFLECTED = {
    f"__r{name}__"
    for name in [
        "add",
        "sub",
        "mul",
        "truediv",
        "floordiv",
        "mod",
        "divmod",
        "pow",
        "matmul",
        "and",
        "or",
        "xor",
    ]
}


def _guarded(rule: Rule) -> Rule:
    """A user's rule, which gives out copies of the arrays that it was given to read."""

    @functools.wraps(rule)
    def wrapper(g: Any, *args: Any) -> Any:
        def fresh(c: Any) -> Any:
            return (
                c.copy() if isinstance(c, np.ndarray) and any(c is value for value in args) else c
            )

        answer = rule(g, *args)
        return tuple(map(fresh, answer)) if isinstance(answer, (tuple, list)) else fresh(answer)

    return wrapper
