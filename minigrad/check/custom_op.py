"""`custom_op`: an operation of a user, whose rules are checked and guarded.

The operations of the library are declared by `registry.op`, without these checks.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np

from ..numpy.forms import refusing_gradients
from ..registry import Op, Rule
from ..tensor import Tensor

__all__ = ["custom_op"]


def custom_op(
    *, vjp: Rule | None = None, **rules: Rule | None
) -> Callable[[Callable[..., Any]], Callable[..., Tensor]]:
    """Turn a function of ndarrays into a differentiable function of Tensors.

    The parameters of the function before the `/` are operands, or all positional parameters if
    there is no `/`. The others are options. Rules written in NumPy functions can be differentiated
    again. Check them with `gradcheck`.

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
        arrays = [value for value in args if isinstance(value, np.ndarray)]

        def unshared(c: Any) -> Any:
            if not isinstance(c, np.ndarray):
                return c
            is_shared = any(np.may_share_memory(c, array) for array in arrays)
            return c.copy() if is_shared else c.view()  # a leaf keeps only an array without base

        result = rule(g, *args)
        is_joint = isinstance(result, (tuple, list))
        return tuple(map(unshared, result)) if is_joint else unshared(result)

    return wrapper
