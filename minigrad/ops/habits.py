"""PyTorch's names for what is here under NumPy's; `advice.py` has the names that are not here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core.changes import mark_changed
from ..core.creation import ints
from ..core.device import device
from ..core.errors import GradientError
from ..core.nested import on_arrays
from ..core.protocols import writable
from ..core.registry import function
from ..core.tensor import Tensor
from .axes import Axis, one_axis, shape_of
from .elementwise import add, divide, multiply, subtract
from .indexing import compress, getitem
from .joining import concatenate, unstack
from .reduction import max as maximum_of
from .reduction import min as minimum_of
from .shape import astype, broadcast_to, ravel, reshape, swapaxes

__all__ = ["amax", "amin", "cat", "chunk", "expand", "flatten"]


@function()
def cat(tensors: Sequence[Any], axis: int = 0) -> Tensor:
    """`concatenate`, by PyTorch's name."""
    return concatenate(tensors, axis)


@function(methods="chunk")
def chunk(x: Any, chunks: int, axis: int = 0) -> list[Tensor]:
    """x cut along `axis` into at most that many parts of one length, the last one shorter, as in
    PyTorch.
    """
    axis = one_axis("chunk", axis, np.ndim(x))
    if chunks < 1:
        raise ValueError(f"chunk: expected at least one part, got {chunks}")
    n = shape_of(x)[axis]
    length = max(-(-n // chunks), 1)
    return [x[(slice(None),) * axis + (slice(i, i + length),)] for i in range(0, max(n, 1), length)]


@function(methods="expand")
def expand(x: Any, *shape: Any) -> Tensor:
    """x broadcast to a shape, as ints or one tuple, in which -1 is the length that there is."""
    wanted, own = ints(shape), shape_of(x)
    own = (-1,) * (len(wanted) - len(own)) + own
    if len(own) != len(wanted) or any(n == m == -1 for n, m in zip(own, wanted)):
        raise ValueError(f"expand: cannot expand shape {shape_of(x)} to {wanted}")
    return broadcast_to(x, tuple([n if m == -1 else m for n, m in zip(own, wanted)]))


@function(methods="amax")
def amax(x: Any, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """`max`, by the name that means the same in PyTorch."""
    return maximum_of(x, axis, keepdims=keepdims)


@function(methods="amin")
def amin(x: Any, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """`min`, by the name that means the same in PyTorch."""
    return minimum_of(x, axis, keepdims=keepdims)


@function(methods="flatten")
def flatten(x: Any, start_dim: int = 0, end_dim: int = -1, *, order: str = "C") -> Tensor:
    """x with the axes from `start_dim` to `end_dim`, both counted in, as one; as in NumPy of all
    axes in `order`.
    """
    if isinstance(start_dim, str) or order != "C":  # NumPy's flatten("F")
        return ravel(x, start_dim if isinstance(start_dim, str) else order)
    shape = shape_of(x) or (1,)
    first, last = (one_axis("flatten", axis, len(shape)) for axis in (start_dim, end_dim))
    if first > last:
        raise ValueError(
            f"flatten: expected start_dim <= end_dim, got {start_dim} and {end_dim} of shape "
            f"{shape}"
        )
    return reshape(x, (*shape[:first], math.prod(shape[first : last + 1]), *shape[last + 1 :]))


def as_dtype(name: str, to: Any) -> Any:
    """The dtype that `to` asks for: a dtype, the tensor that has it, or None for the device "cpu"."""
    if isinstance(to, (Tensor, np.ndarray)):
        return to.dtype
    if isinstance(to, str) and to.partition(":")[0] in ("cpu", "cuda", "mps", "xpu", "meta"):
        if to != "cpu":
            raise ValueError(f"{name}: no device {to!r}; everything is on the CPU")
        return None
    try:
        return np.dtype(to)
    except TypeError:
        raise TypeError(
            f"{name}: expected a dtype, a tensor, or the device 'cpu', got {to!r}"
        ) from None


def _to(self: Tensor, to: Any) -> Tensor:
    """x in the dtype `to`, or in that of the tensor `to`; the device "cpu", where everything is,
    changes nothing.
    """
    dtype = as_dtype("to", to)
    return self if dtype is None or dtype == self.dtype else astype(self, dtype)


def _alpha(f: Any, sign: str) -> Any:
    def method(self: Tensor, other: Any, **options: Any) -> Tensor:
        if options:
            raise TypeError(
                f"{f.__name__}: {', '.join(options)}= is not supported; write x {sign} other, "
                "scaled before"
            )
        return f(self, other)

    method.__doc__ = f"x {sign} other."
    return method


def _in_place(name: str, otherwise: str) -> Any:
    """A method of NumPy's that writes into x, and returns None; where a gradient flows it is
    refused.
    """

    def method(self: Tensor, *args: Any, **options: Any) -> None:
        if options.keys() & {"dim", "descending"}:
            raise TypeError(
                f"{name}: PyTorch returns a pair, NumPy sorts in place; write np.sort(x) and "
                "np.argsort(x)"
            )
        if not writable(self, name, args, options):
            raise GradientError(
                f"{name}: in place, the gradient of x would be lost; write {otherwise}"
            )
        on_arrays(getattr(self.data, name), args, options)
        mark_changed(self.data)

    method.__name__ = method.__qualname__ = name
    method.__doc__ = (
        f"As NumPy's, in place, where no gradient flows through x; otherwise write {otherwise}."
    )
    return method


_METHODS: dict[str, Any] = {
    "view": lambda self, *shape: reshape(self, *shape) if shape else getitem(self, ...),
    "compress": lambda self, condition, axis=None: compress(condition, self, axis),
    "sort": _in_place("sort", "np.sort(x)"),
    "partition": _in_place("partition", "np.partition(x, kth)"),
    "fill": _in_place("fill", "np.full_like(x, value)"),
    "numel": lambda self: self.data.size,
    "dim": lambda self: self.data.ndim,
    "t": lambda self: self if self.ndim < 2 else swapaxes(self, 0, 1),
    "contiguous": lambda self: self,
    "cpu": lambda self: self,
    "to": _to,
    "unbind": unstack,
    "float": lambda self: astype(self, np.float32),
    "double": lambda self: astype(self, np.float64),
    "half": lambda self: astype(self, np.float16),
    "long": lambda self: astype(self, np.int64),
    "int": lambda self: astype(self, np.int32),
    "bool": lambda self: astype(self, bool),
    "add": _alpha(add, "+"),
    "sub": _alpha(subtract, "-"),
    "mul": _alpha(multiply, "*"),
    "div": _alpha(divide, "/"),
}
for _name, _method in _METHODS.items():
    setattr(Tensor, _name, _method)


Tensor.device = property(lambda self: device(), doc='The device "cpu".')  # type: ignore[assignment]
Tensor.flat = property(ravel, doc="The elements one after the other.")  # type: ignore[assignment]
