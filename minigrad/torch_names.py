"""PyTorch's names for what this library has under NumPy's, and its words for options.

The engine and the operations do not know these names. `accept_torch_options` wraps the public
functions and methods that take `axis=` or `keepdims=`, so that they take `dim=` and `keepdim=` too.
`advice.json` has the names that do not exist here.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, MutableMapping, Sequence
from typing import Any

import numpy as np

from .core.creation import ints
from .core.device import device
from .core.registry import function
from .core.tensor import Tensor
from .methods import Size
from .numpy_ops.sorting import top_k as topk
from .ops.axes import Axis, one_axis, shape_of
from .ops.elementwise import absolute as abs
from .ops.elementwise import add, divide, multiply, subtract
from .ops.elementwise import clip as clamp
from .ops.elementwise import power as pow
from .ops.indexing import getitem
from .ops.joining import concatenate, unstack
from .ops.linalg import inv as inverse
from .ops.linalg import matmul as bmm
from .ops.linalg import matmul as mm
from .ops.reduction import max as maximum_of
from .ops.reduction import min as minimum_of
from .ops.shape import astype, broadcast_to, ravel, reshape, swapaxes
from .ops.shape import expand_dims as unsqueeze
from .ops.shape import moveaxis as movedim
from .ops.shape import transpose as permute

__all__ = [
    "abs",
    "amax",
    "amin",
    "bmm",
    "cat",
    "chunk",
    "clamp",
    "cuda",
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


def _size(self: Tensor) -> Size:
    size = Size(self._array.size)
    size.shape = self._array.shape
    return size


class NoDevices:
    """Answers that there are no devices of a kind."""

    @staticmethod
    def is_available() -> bool:
        """Return False."""
        return False

    @staticmethod
    def device_count() -> int:
        """Return 0."""
        return 0

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"no `{name}`: everything is in the memory of the CPU, on one device")


cuda = NoDevices()

METHODS: dict[str, Any] = {
    "add": _alpha(add, "+"),
    "bool": lambda self: astype(self, bool),
    "clamp": clamp,
    "contiguous": lambda self: self,
    "cpu": lambda self: self,
    "dim": lambda self: self.data.ndim,
    "div": _alpha(divide, "/"),
    "double": lambda self: astype(self, np.float64),
    "float": lambda self: astype(self, np.float32),
    "half": lambda self: astype(self, np.float16),
    "int": lambda self: astype(self, np.int32),
    "long": lambda self: astype(self, np.int64),
    "movedim": movedim,
    "mul": _alpha(multiply, "*"),
    "numel": lambda self: self.data.size,
    "permute": permute,
    "pow": pow,
    "sub": _alpha(subtract, "-"),
    "swapdims": swapaxes,
    "t": lambda self: self if self.ndim < 2 else swapaxes(self, 0, 1),
    "to": _to,
    "topk": topk,
    "unbind": unstack,
    "unsqueeze": unsqueeze,
    "view": lambda self, *shape: reshape(self, *shape) if shape else getitem(self, ...),
    "device": property(lambda self: device(), doc='The device "cpu".'),
    "size": property(_size, doc=Size.__doc__),
}
"""Methods and properties of tensors that only PyTorch's have."""

OPTIONS = {"dim": "axis", "dims": "axis", "keepdim": "keepdims"}
"""PyTorch's words for options, with NumPy's."""

OTHER_RESULTS = {
    "max": "x.max(axis=...), and x.argmax(axis=...) for the positions",
    "min": "x.min(axis=...), and x.argmin(axis=...) for the positions",
    "median": "median(x, axis=...), which averages the two middle elements",
    "sort": "np.sort(x, axis), and np.argsort(x, axis) for the positions",
    "split": "x.chunk(n), or x.split(indices, axis=...) with the places of the cuts",
    "std": "x.std(axis=..., correction=1): PyTorch divides by n - 1, NumPy by n",
    "var": "x.var(axis=..., correction=1): PyTorch divides by n - 1, NumPy by n",
}
"""Functions whose results differ from PyTorch's: what to write instead of `dim=`."""


def translate_options(name: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return options with NumPy's words; a TypeError if PyTorch's result is another."""
    if not options.keys() & OPTIONS.keys():
        return options
    if name in OTHER_RESULTS and not options.keys() & {"correction", "ddof", "unbiased"}:
        raise TypeError(
            f"{name}: dim= asks for what PyTorch returns, which differs here; write "
            f"{OTHER_RESULTS[name]}"
        )
    translated = {OPTIONS.get(word, word): value for word, value in options.items()}
    if len(translated) < len(options):
        raise TypeError(
            f"{name}: the same option was given twice, in NumPy's word and in PyTorch's: "
            f"{sorted(options)}"
        )
    return translated


def _takes_axis(function: Callable[..., Any]) -> bool:
    """Whether a public function has an option that PyTorch names otherwise."""
    entry = getattr(function, "op", function)
    names: set[str] = set()
    for called in (function, *[f for f in getattr(entry, "numpy", ()) if callable(f)]):
        try:
            names |= inspect.signature(called).parameters.keys()
        except ValueError:  # a function in C, before NumPy 2.4
            names |= {"axis"} if called is np.concatenate else set()
    return not names.isdisjoint(OPTIONS.values())


@functools.cache
def _with_torch_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `function` with PyTorch's words, which are translated if the call fails."""

    @functools.wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        try:
            return function(*args, **options)
        except TypeError:
            translated = translate_options(function.__name__, options)
            if translated is options:
                raise
        return function(*args, **translated)

    call.__module__ = "minigrad"  # where pickle finds it
    return call


def accept_torch_options(namespace: MutableMapping[str, Any]) -> None:
    """Let the public functions of a namespace, and the methods of Tensor, take `dim=`."""
    for name, value in [*namespace.items()]:
        if inspect.isfunction(value) and _takes_axis(value):
            namespace[name] = _with_torch_options(value)
    for name, value in [*vars(Tensor).items()]:
        if inspect.isfunction(value) and _takes_axis(value):
            setattr(Tensor, name, _with_torch_options(value))


for _name, _method in METHODS.items():
    setattr(Tensor, _name, _method)
