"""Aliases with PyTorch's names of functions, methods and options.

The engine and the operations do not use these names. Functions and methods that have `axis=` or
`keepdims=` accept `dim=` and `keepdim=` by a form of `registry.FORMS`. The package
`minigrad.torch` contains functions and classes whose meaning differs from NumPy's.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..arguments import checked_count, ints, one_axis, shape_of
from ..arrays import Axis
from ..numpy.creation import as_dtype
from ..numpy.elementwise import clip as clamp
from ..numpy.joining import array_split, unstack
from ..numpy.linalg import inv as inverse
from ..numpy.shape import moveaxis as movedim
from ..numpy.shape import ravel
from ..numpy.sorting import top_k as topk
from ..ops.arithmetic import absolute as abs
from ..ops.arithmetic import add, divide, multiply, subtract
from ..ops.arithmetic import power as pow
from ..ops.network import matmul as bmm
from ..ops.network import matmul as mm
from ..ops.reduce import max as maximum_of
from ..ops.reduce import min as minimum_of
from ..ops.shape import astype, broadcast_to, clone, getitem, reshape, swapaxes
from ..ops.shape import concatenate as cat
from ..ops.shape import expand_dims as unsqueeze
from ..ops.shape import transpose as permute
from ..registry import FORMS, add_methods, function
from ..tensor import Tensor, extension

__all__ = [
    "abs",
    "amax",
    "amin",
    "bmm",
    "cat",
    "chunk",
    "clamp",
    "expand",
    "flatten",
    "inverse",
    "mm",
    "movedim",
    "permute",
    "pow",
    "topk",
    "unsqueeze",
]


@function(methods="chunk")
def chunk(x: Any, chunks: int, axis: int = 0) -> list[Tensor]:
    """Return views of at most `chunks` parts of x along `axis`, of equal length.

    The last part can be shorter.

    Parameters
    ----------
    x : Tensor
    chunks : int
        Largest number of parts.
    axis : int
        0 by default.
    """
    axis = one_axis("chunk", axis, np.ndim(x))
    checked_count("chunk", "chunks", chunks)
    n = shape_of(x)[axis]
    length = max(-(-n // chunks), 1)
    return [x[(slice(None),) * axis + (slice(i, i + length),)] for i in range(0, max(n, 1), length)]


@function(methods="expand")
def expand(x: Any, *shape: Any) -> Tensor:
    """Return a view of x that is broadcast to a shape.

    Parameters
    ----------
    x : Tensor
    *shape : int or tuple of int
        Lengths of the axes, as ints or one tuple; -1 keeps the length of an axis.
    """
    target, current = ints(shape), shape_of(x)
    current = (-1,) * (len(target) - len(current)) + current
    if len(current) != len(target) or any(n == m == -1 for n, m in zip(current, target)):
        raise ValueError(
            f"expand: shape must extend {shape_of(x)} and have a length for each new axis, got "
            f"{target}"
        )
    return broadcast_to(x, tuple([n if m == -1 else m for n, m in zip(current, target)]))


@function(methods="amax")
def amax(x: Any, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Return the maximum over `axis`, as `max` does.

    Parameters and result: as `sum`.
    """
    return maximum_of(x, axis, keepdims=keepdims)


@function(methods="amin")
def amin(x: Any, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Return the minimum over `axis`, as `min` does.

    Parameters and result: as `sum`.
    """
    return minimum_of(x, axis, keepdims=keepdims)


@function(methods="flatten")
def flatten(x: Any, start_dim: int = 0, end_dim: int = -1, *, order: str = "C") -> Tensor:
    """Return a copy of x with the axes from `start_dim` to `end_dim`, both included, joined.

    Parameters
    ----------
    x : Tensor
    start_dim, end_dim : int
        First and last axis to join; all axes by default.
    order : {"C", "F"}
        Order of the elements, as in NumPy's `flatten`; "F" joins all axes.
    """
    if isinstance(start_dim, str) or order != "C":  # NumPy's flatten("F")
        return clone(ravel(x, start_dim if isinstance(start_dim, str) else order))
    shape = shape_of(x) or (1,)
    first, last = (one_axis("flatten", axis, len(shape)) for axis in (start_dim, end_dim))
    if first > last:
        raise ValueError(
            f"flatten: start_dim must be at most end_dim, got {start_dim} and {end_dim} of shape "
            f"{shape}"
        )
    joined = (*shape[:first], math.prod(shape[first : last + 1]), *shape[last + 1 :])
    return clone(reshape(x, joined))


def split_by_size(x: Any, split_size: int | Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """Return views of parts of x along `dim`, of one length or of several lengths.

    Parameters
    ----------
    x : Tensor
    split_size : int or sequence of int
        Length of each part, of which the last can be shorter, or the lengths of all parts.
    dim : int
        0 by default.
    """
    axis = one_axis("split", dim, np.ndim(x))
    length = shape_of(x)[axis]
    if isinstance(split_size, (int, np.integer)):
        step = checked_count("split", "split_size", split_size)
        return tuple(array_split(x, range(step, length, step), axis))
    sizes = list(split_size)
    if sum(sizes) != length or min(sizes, default=0) < 0:
        raise ValueError(
            f"split: split_size must add up to {length}, the length of axis {axis}, got {sizes}; "
            "minigrad.split takes the indices of the cuts"
        )
    return tuple(array_split(x, np.cumsum(sizes)[:-1], axis))


def _to(
    self: Tensor, to: Any, dtype: Any = None, non_blocking: bool = False, copy: bool = False
) -> Tensor:
    """Convert to the dtype `to`, or to the dtype of the tensor `to`.

    Parameters
    ----------
    to : dtype, Tensor or str
        Dtype, tensor of this dtype, or the device "cpu", which changes nothing.
    dtype : dtype, optional
        Dtype, beside a device.
    non_blocking : bool
        Without effect.
    copy : bool
        Return a copy if the dtype does not change; False by default.

    Returns
    -------
    Tensor
        Converted tensor, or this tensor if nothing changes.
    """
    dtype = as_dtype("to", to if dtype is None else dtype)
    return astype(self, self.dtype if dtype is None else dtype, copy=copy)


def _view(self: Tensor, *shape: Any) -> Tensor:
    """Reshape x; without a shape, return a view of the same shape.

    Parameters
    ----------
    *shape : int or tuple of int
        Lengths of the axes, as ints or one tuple. The dtype of x has the effect of no shape.

    Returns
    -------
    Tensor
        View of x if its memory layout permits.
    """
    if shape and isinstance(shape[0], (type, str, np.dtype)):
        if shape == (self.dtype,):
            return getitem(self, ...)
        raise TypeError(
            f"view: shape must be integers, got {shape[0]!r}; convert to a dtype with astype, or "
            "reinterpret the memory with x.data.view(dtype)"
        )
    return reshape(self, *shape) if shape else getitem(self, ...)


class Size(int):
    """Number of elements. A call returns the shape, or the length of one axis."""

    shape: tuple[int, ...]

    def __call__(self, dim: int | None = None) -> Any:
        """Return the shape, or the length of axis `dim`."""
        return self.shape if dim is None else self.shape[dim]


def _size(array: Any) -> Size:
    size = Size(array.size)
    size.shape = array.shape
    return size


def _dlpack(self: Tensor, /, **options: Any) -> Any:
    """Return the array as a DLPack capsule, which torch.as_tensor and jax.numpy.asarray read.

    `options` are those of the method of an ndarray.
    """
    if self.requires_grad:
        raise BufferError("__dlpack__: the tensor must not require gradients; write x.detach()")
    array = self.data
    if any(stride < 0 for stride in array.strides):  # PyTorch has no negative strides
        array = array.copy()
    return array.__dlpack__(**options)


def _dlpack_device(self: Tensor) -> Any:
    """Return the device of the array, the CPU."""
    return self.data.__dlpack_device__()


def transpose_matrix(self: Tensor) -> Tensor:
    """Return the transpose of a matrix, or a vector or scalar unchanged."""
    if self.ndim > 2:
        raise ValueError(f"t: x must have at most two axes, got shape {self.shape}")
    return self if self.ndim < 2 else swapaxes(self, 0, 1)


def _described(summary: str, method: Any) -> Any:
    method.__doc__ = summary
    return method


def _conversion(dtype: Any) -> Any:
    return _described(f"Convert to {np.dtype(dtype)}.", lambda self: astype(self, dtype))


def _comparison(name: str) -> Any:
    compare = getattr(operator, name)
    return _described(f"As `operator.{name}`.", lambda self, other: compare(self, other))


METHODS: dict[str, Any] = {
    **{name: _comparison(name) for name in ("eq", "ge", "gt", "le", "lt", "ne")},
    "__dlpack__": _dlpack,
    "__dlpack_device__": _dlpack_device,
    "add": add,
    "bool": _conversion(bool),
    "clamp": clamp,
    "contiguous": _described("Return x; operations accept any strides.", lambda self: self),
    "cpu": _described("Return x.", lambda self: self),
    "device": property(lambda self: "cpu", doc='Device "cpu".'),
    "dim": _described("Return the number of axes.", lambda self: self.data.ndim),
    "div": divide,
    "double": _conversion(np.float64),
    "float": _conversion(np.float32),
    "half": _conversion(np.float16),
    "int": _conversion(np.int32),
    "long": _conversion(np.int64),
    "movedim": movedim,
    "mul": multiply,
    "numel": _described("Return the number of elements.", lambda self: self.data.size),
    "permute": permute,
    "pow": pow,
    "split": split_by_size,
    "sub": subtract,
    "swapdims": swapaxes,
    "t": transpose_matrix,
    "to": _to,
    "topk": topk,
    "unbind": unstack,
    "unsqueeze": unsqueeze,
    "view": _view,
}
"""Methods and properties of tensors with PyTorch's names."""

OPTIONS = {"dim": "axis", "dims": "axis", "keepdim": "keepdims"}
"""NumPy's names of options by PyTorch's names."""

OTHER_RESULTS = {
    "max": "x.max(axis=...), and x.argmax(axis=...) for the positions",
    "min": "x.min(axis=...), and x.argmin(axis=...) for the positions",
    "median": "median(x, axis=...), which averages the two middle elements",
    "sort": "np.sort(x, axis), and np.argsort(x, axis) for the positions",
    "split": "x.split(length, dim=...), or split(x, indices, axis=...)",
    "std": "x.std(axis=..., correction=1): PyTorch divides by n - 1, NumPy by n",
    "var": "x.var(axis=..., correction=1): PyTorch divides by n - 1, NumPy by n",
}
"""Advice for functions whose results differ from PyTorch's."""


KEEPDIM_THIRD = {
    "all", "any", "argmax", "argmin", "max", "mean", "median", "min", "nanmean", "nansum", "prod",
    "sum",
}  # fmt: skip
"""Functions whose third positional argument in PyTorch is `keepdim`."""


def translate_options(name: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return options with NumPy's names; raise a TypeError if PyTorch's result differs."""
    if not options.keys() & OPTIONS.keys():
        return options
    if name in OTHER_RESULTS and not options.keys() & {"correction", "ddof", "unbiased"}:
        raise TypeError(
            f"{name}: dim= has another result in PyTorch than axis= here; write "
            f"{OTHER_RESULTS[name]}"
        ) from None
    translated = {
        OPTIONS.get(word, word): tuple(value) if isinstance(value, list) else value
        for word, value in options.items()
    }
    if len(translated) < len(options):
        raise TypeError(
            f"{name}: the same option was given twice, by NumPy's name and by PyTorch's: "
            f"{sorted(options)}"
        ) from None
    return translated


def _by_torch_names(
    function: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]
) -> Callable[[], Any] | None:
    """Return the call of a function with NumPy's names in place of PyTorch's, or None."""
    name = function.__name__
    is_keepdim = len(args) == 3 and isinstance(args[2], bool) and "keepdim" not in options
    if is_keepdim and name in KEEPDIM_THIRD:
        args, options = args[:2], {**options, "keepdim": args[2]}
    translated = translate_options(name, options)
    return None if translated is options else functools.partial(function, *args, **translated)


FORMS.append(_by_torch_names)

OPERANDS = (
    "condition", "input", "tensors", "tensor", "other", "mat2", "vec2", "exponent", "shifts",
    "dims", "shape", "split_size_or_sections", "diagonal", "low", "high", "mean", "std", "size",
)  # fmt: skip
"""Names of PyTorch's arguments that are passed by position here, in the order of signatures."""


def by_keyword(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that also accepts the arguments in `OPERANDS` by PyTorch's names."""

    @functools.wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        if options:
            args += tuple([options.pop(name) for name in OPERANDS if name in options])
        return function(*args, **options)

    return call


add_methods(Tensor, METHODS)
extension.size = _size
