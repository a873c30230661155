"""Python's protocols for Tensor: representation, iteration, conversion, copies, pickling.

A tensor converts to a number only if no gradient is lost. A first reader can skip this file.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from .arrays import Array
from .errors import GradientError
from .methods import Methods
from .modes import MODE

_KEEP = (
    "to keep it, write NumPy's functions instead of those of math (np.sin(x), not math.sin(x)), "
    "and np.stack([...]) or a tensor such as minigrad.zeros(3) instead of an ndarray that values "
    "are written into; without it, write x.item()"
)


class DataModel(Methods):
    """Base of Tensor with the methods that Python itself calls."""

    __slots__ = ()

    _array: np.ndarray
    _node: Any
    grad: Any

    def __repr__(self) -> str:
        values = np.array2string(self._array, separator=", ", prefix="tensor(")
        try:
            node = self._node
        except GradientError:  # a write cut the gradient
            node = None
        made_by = ""
        if node is not None:
            made_by = ", requires_grad=True" if node.op is None else f", op={node.op.name}"
        return f"tensor({values}, dtype={self._array.dtype}{made_by})"

    def __format__(self, spec: str) -> str:
        return (
            format(self._array.item(), spec)
            if spec and self._array.size == 1
            else format(str(self), spec)
        )

    def __len__(self) -> int:
        return len(self._array)

    def __iter__(self: Any) -> Iterator[Any]:
        if self.ndim == 0:
            raise TypeError("iteration over a 0-d tensor")
        return (self[i] for i in range(len(self)))

    def __contains__(self, value: Array) -> bool:
        return bool(
            (self._array == (value._array if isinstance(value, DataModel) else value)).any()
        )

    def __bool__(self) -> bool:
        return bool(self._array)

    def __float__(self) -> float:
        return float(self._number("float"))

    def __int__(self) -> int:
        return int(self._number("int"))

    def __complex__(self) -> complex:
        return complex(self._number("complex"))

    def _number(self: Any, kind: str) -> Any:
        """Return the value of one element as a number, which has no gradient."""
        mode = MODE.get()
        if self._node is not None and mode.traced and mode.record:
            raise GradientError(
                f"{kind}() of a tensor inside a function that is being differentiated would lose "
                f"its gradient; {_KEEP}"
            )
        if self._node is not None and mode.record:
            warnings.warn(
                f"{kind}() of a tensor that requires gradients returns a number without a "
                f"gradient; {_KEEP}",
                stacklevel=3,
            )
        return self.item()

    def __index__(self) -> int:
        return self._array.__index__()

    __hash__ = object.__hash__

    def __copy__(self: Any) -> Any:
        """Return a leaf with a copy of the array, or `clone()` of a computed tensor."""
        if self.is_leaf:
            return type(self)(self._array.copy(), self.requires_grad)
        return self.clone()

    def __deepcopy__(self: Any, memo: dict[int, Any]) -> Any:
        if not self.is_leaf:
            raise GradientError(
                "deepcopy: only a leaf can be copied with its gradient; use detach() or clone()"
            )
        copy = object.__new__(type(self))
        memo[id(self)] = copy
        copy._array = self._array.copy()
        copy._node = copy._first = None
        copy.requires_grad = self.requires_grad
        if self.grad is not None:
            copy.__setstate__(self.grad._array.copy())
        return copy

    def __reduce__(self: Any) -> Any:
        if not self.is_leaf:
            raise GradientError("pickle: only a leaf can be pickled; use detach()")
        return (
            type(self),
            (self._array, self.requires_grad),
            None if self.grad is None else self.grad._array,
        )

    def __setstate__(self: Any, gradient: np.ndarray) -> None:
        requires_grad = self.requires_grad
        self.requires_grad = True  # a frozen tensor can have a gradient, too
        self.grad = gradient
        self.requires_grad = requires_grad
