"""Declaration of ops, their tables by name and by NumPy function, and the extension points.

`op` declares a primitive operation (see the top of `op.py`), `ufunc` the op of a NumPy ufunc, and
`function` a composition of ops. Look at `op` first.

The files of the book are those directly in `minigrad/`, `minigrad/ops/` and `nn/`. Packages around
the book extend it at six points. Beside them, they add names to `Tensor` and entries to tables:

- `fuse.fuse`: a kernel that runs instead of the definition of a function.
- `function` and `op` with `numpy=`, and `tensor.OTHERS`: a function that answers a function of
  NumPy for tensors. `answering` adapts its arguments.
- `optimizer.Optimizer.stepper_type`: the parts of parameters to which the formula of an optimizer
  is applied, and further options.
- `arrays.OtherArray`: another type of array, in place of ndarrays.
- `watch.Watch`: a tool that sees every operation.
- Subclasses of `Optimizer`, `Watch`, and the modules and models of `nn`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np

from . import protocols as protocols  # sets NumPy's protocols on Tensor
from .nested import needs_gradient
from .op import Op, Rule
from .tensor import DISPATCH, Tensor

__all__ = ["custom_op"]

OPS: dict[str, Op] = {}
"""Every registered op by name: the source of the table in the docs and of the generated tests."""

answering: Callable[[Any, Callable[..., Any]], Callable[..., Any]] | None = None
"""Returns what answers a NumPy function; `minigrad.numpy.forms` adapts arguments here."""

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
    """Declare and register an op.

    Parameters
    ----------
    numpy : callable or tuple of callable
        NumPy functions that the op answers for tensors.
    methods : str
        Names of methods of Tensor, separated by spaces.
    vjp, definition, view, **rules
        As in `Op`.
    """

    def declare(forward: Callable[..., Any]) -> Callable[..., Tensor]:
        entry = Op(forward, rules, vjp=vjp, definition=definition, view=view)
        return _register(entry, numpy, methods)

    return declare


def ufunc(
    function: np.ufunc, summary: str, methods: str = "", **rules: Rule
) -> Callable[..., Tensor]:
    """Declare and register the op of a NumPy ufunc.

    Parameters
    ----------
    function : numpy.ufunc
        Computes the result.
    summary : str
        First line of the docstring; `elementwise_doc` adds the sections.
    methods : str
        Names of methods of Tensor, separated by spaces.
    **rules : callable
        The rule of each operand, as in `Op`.

    Returns
    -------
    callable
        The function of Tensors.
    """
    doc = elementwise_doc(summary, *rules)
    return _register(Op(function, rules, doc=doc), function, methods)


def elementwise_doc(summary: str, *operands: str, result: str = "Tensor") -> str:
    """Return the docstring of an elementwise function.

    Parameters
    ----------
    summary : str
        First line.
    *operands : str
        Names of one or two operands.
    result : str
        Type of the result; "Tensor" by default.
    """
    if len(operands) == 1:
        parameters, shape = f"{operands[0]} : array_like", f"Shape of {operands[0]}."
    else:
        parameters = f"{', '.join(operands)} : array_like\n    Shapes that broadcast."
        shape = f"Broadcast shape of {' and '.join(operands)}."
    return (
        f"{summary}\n\nParameters\n----------\n{parameters}\n\n"
        f"Returns\n-------\n{result}\n    {shape}\n"
    )


def custom_op(
    *, vjp: Rule | None = None, **rules: Rule | None
) -> Callable[[Callable[..., Any]], Callable[..., Tensor]]:
    """Turn a function of ndarrays into a differentiable function of Tensors.

    The parameters of the function before the `/` are operands, or all parameters if there is no
    `/`. The others are options. Rules written in NumPy functions can be differentiated again. Check
    them with `gradcheck`.

    Parameters
    ----------
    vjp : callable, optional
        One rule for all operands, which returns a tuple of their gradients.
    **rules : callable or None
        The rule of each operand. Its first parameter is the gradient of the result. The other
        parameters name the values that it reads: operands, options, `y` for the result, `x_shape`
        for the shape of operand `x`. None is for an operand whose derivative is 0. Another operand
        without a rule must not require gradients.

    Returns
    -------
    callable
        A decorator.

    Examples
    --------
    >>> @custom_op(x=lambda g, x: g * 3 * x**2)
    ... def cube(x, /):
    ...     return x**3
    """

    def declare(forward: Callable[..., Any]) -> Callable[..., Tensor]:
        _check_function("the operation", forward, np.ufunc)
        for name, rule in {**rules, **({"vjp": vjp} if vjp else {})}.items():
            if rule is not None:
                _check_function(f"{name}=", rule)
        guarded_rules = {name: _guard(rule) for name, rule in rules.items() if rule is not None}
        entry = Op(forward, guarded_rules, vjp=_guard(vjp) if vjp else None)
        unknown = set(rules) - set(entry.operands)
        if unknown:
            raise TypeError(
                f"{entry.name}: rules must be named as operands, {entry.operands}, got {unknown}"
            )
        return refusing_gradients(
            entry,
            {*entry.operands} - {*rules} - {*entry.rules},
            "it has no rule; pass its rule to custom_op, or None if its derivative is 0",
        )

    return declare


def refusing_gradients(entry: Op, names: set[str], reason: str) -> Callable[..., Any]:
    """Return the function of an op, for which the operands `names` must not require gradients."""
    if not names:
        return entry.function

    @functools.wraps(entry.function)
    def call(*operands: Any, **options: Any) -> Any:
        given = dict(zip(entry.operands, operands)) | options
        for name in entry.operands:
            if name in names and needs_gradient(given.get(name)):
                raise TypeError(
                    f"{entry.name}: {name} must not require gradients, because {reason}"
                )
        return entry.function(*operands, **options)

    return call


def function(
    *, numpy: Any = (), methods: str = ""
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a public function that is a composition of ops, or that has no gradient.

    Parameters
    ----------
    numpy, methods
        As in `op`.
    """

    def declare(composed: Callable[..., Any]) -> Callable[..., Any]:
        FUNCTIONS[composed.__name__] = composed
        return _publish(composed, composed, numpy, methods)

    return declare


def _register(entry: Op, numpy: Any, methods: str) -> Callable[..., Tensor]:
    if entry.name in OPS:
        raise TypeError(f"the name of an op must be new, got {entry.name!r}")
    OPS[entry.name] = entry
    return _publish(entry, entry.function, numpy, methods)


def _publish(entry: Any, call: Callable[..., Any], numpy: Any, methods: str) -> Callable[..., Any]:
    """Let `call` answer NumPy functions, and set it as methods of Tensor."""
    entry.numpy = numpy if isinstance(numpy, tuple) else (numpy,)
    entry.methods = tuple(methods.split())
    for f in entry.numpy:
        DISPATCH[f] = call if answering is None or isinstance(f, np.ufunc) else answering(f, call)
    for method in entry.methods:
        is_reflected = method.startswith("__r") and method not in ("__round__", "__rshift__")
        setattr(Tensor, method, (lambda self, other: call(other, self)) if is_reflected else call)
    return call


def _check_function(what: str, value: Any, *others: type) -> None:
    """Raise a TypeError for a callable whose parameters cannot be read, such as a partial."""
    if not isinstance(inspect.unwrap(value), (FunctionType, *others)):
        raise TypeError(
            f"custom_op: {what} must be a function, got a {type(value).__name__}; write a def or "
            "lambda that calls it"
        )


def _guard(rule: Rule) -> Rule:
    """Wrap a user's rule so that nothing writes into the arrays that it returns."""

    @functools.wraps(rule)
    def wrapper(g: Any, *args: Any) -> Any:
        def unshared(c: Any) -> Any:
            if not isinstance(c, np.ndarray):
                return c
            is_argument = any(c is value for value in args)
            return c.copy() if is_argument else c.view()  # a leaf keeps only an array without base

        result = rule(g, *args)
        is_joint = isinstance(result, (tuple, list))
        return tuple(map(unshared, result)) if is_joint else unshared(result)

    return wrapper
