"""Kernels: functions of the book with a faster form beside them.

A fusible function is written as a composition of operations, its definition. A package around the
book may register a kernel for it: a function of arrays with a rule of its own, which works in
place, saves less, and takes fewer passes over memory. The definition stays the documentation, the
reference for the tests, and the function that higher derivatives use.

    @fusible
    def double(x):
        return x + x

    @fuse(double, vjp=lambda g: (2 * g,))
    def _double(x, /):
        return 2 * x

Without a kernel, and inside `use_definitions()`, a call of `double` runs the definition. Look at
`Fusible.__call__`. This is one of the extension points that `registry.py` lists.

In float16 the result is the float32 result, rounded once. A definition that rounded each of its
operations to float16 would overflow in sums, and differ from its kernel. So `Fusible` converts the
operands, and neither definitions nor kernels contain code for half precision. A function declared
with `any_dtype` only moves or scales elements, and computes in the dtype of its operands.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from .arrays import Array, Function, Options
from .registry import op
from .tensor import Tensor, as_operand

__all__ = ["use_definitions"]

FUSIBLE: dict[str, Fusible] = {}
"""Every fusible function by name."""

_REPLACED: ContextVar[frozenset[str]] = ContextVar("minigrad.definitions", default=frozenset())
"""Names of functions whose definitions run in this thread or task, although they have kernels."""


_CONVERTED = "e?bBhHiIlLqQ"  # characters of float16, bool and integers


class Fusible:
    """Function of Tensors with a slot for its kernel.

    Parameters
    ----------
    definition : callable
        Composition of operations. Its positional arguments are operands, the first one an array or
        a Tensor.
    any_dtype : bool
        Pass on operands of every dtype. Otherwise, the result for float16 operands is computed in
        float32, and the result for integers in float64.

    Attributes
    ----------
    kernel : callable or None
        Function that runs instead of the definition.
    """

    def __init__(self, definition: Callable[..., Tensor], any_dtype: bool) -> None:
        functools.update_wrapper(self, definition)
        self.name = definition.__name__.strip("_")
        self.definition = definition
        self.any_dtype = any_dtype
        self.kernel: Callable[..., Tensor] | None = None
        FUSIBLE[self.name] = self

    def __call__(self, *operands: Array, **options: Any) -> Tensor:
        """Call the kernel if there is one, otherwise the definition."""
        if not self.any_dtype and operands[0].dtype.char in _CONVERTED:
            return self._in_wider_dtype(operands, options)
        if self.kernel is None or self.name in _REPLACED.get():
            return self.definition(*operands, **options)
        return self.kernel(*operands, **options)

    def _in_wider_dtype(self, operands: tuple[Array, ...], options: Options) -> Tensor:
        """Compute float16 in float32, and integers and booleans in float64."""
        arrays = [x if x is None else as_operand(x) for x in operands]
        dtypes = [x.dtype for x in arrays if x is not None]
        is_half = set(dtypes) == {np.dtype(np.float16)}
        has_integers = any(dtype.kind in "iub" for dtype in dtypes)
        wider: Any = np.float32 if is_half else float if has_integers else np.result_type(*dtypes)
        with np.errstate(over="ignore"):  # values too large for float16 become infinite
            y = self(*[x if x is None else x.astype(wider) for x in arrays], **options)
            return y.astype(np.float16) if is_half else y


def fusible(definition: Any = None, *, any_dtype: bool = False) -> Any:
    """Declare a function for which kernels can be registered; `any_dtype` as in `Fusible`."""
    if definition is None:
        return functools.partial(fusible, any_dtype=any_dtype)
    return Fusible(definition, any_dtype)


def fuse(
    function: Fusible, *, vjp: Function | None = None, **rules: Any
) -> Callable[[Function], Callable[..., Tensor]]:
    """Register a function of arrays as the kernel of a fusible function.

    The definition of the function has the operands and options of the kernel. `vjp` and rules are
    those of `minigrad.registry.op`. The decorator returns the kernel as a function of Tensors.
    """
    if not isinstance(function, Fusible):
        name = getattr(function, "__name__", repr(function))
        raise TypeError(f"fuse: function must be marked with @fusible, got {name}")

    def declare(forward: Function) -> Callable[..., Tensor]:
        function.kernel = op(definition=function.definition, vjp=vjp, **rules)(forward)
        return function.kernel

    return declare


@contextmanager
def use_definitions(*names: str) -> Iterator[None]:
    """Replace kernels by their definitions, compositions of operations, within a `with` block.

    This shows what a kernel computes, how much time it saves, or whether an error is in the kernel.
    It applies to this thread or task, and to processes that `DataParallel` forks within the block.

    Parameters
    ----------
    *names : str
        Names of functions with kernels; all of them by default.
    """
    kernels = set(FUSIBLE)
    if unknown := sorted(set(names) - kernels):
        raise ValueError(
            f"use_definitions: names must be of {', '.join(sorted(kernels))}, got "
            f"{', '.join(unknown)}"
        )
    token = _REPLACED.set(_REPLACED.get() | (set(names) or kernels))
    try:
        yield
    finally:
        _REPLACED.reset(token)
