"""Functions of `torch` with PyTorch's arguments, results and default dtype.

Here are those that differ from NumPy's, such as `max(x, dim)`, or have another name. The package
takes the others from minigrad. The documentation of PyTorch describes them.
"""

from __future__ import annotations

import builtins
import contextlib
from collections.abc import Callable
from operator import eq, ge, gt, le, lt, ne
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from numpy import finfo, iinfo

import minigrad as mg
from minigrad import Tensor
from minigrad.numpy.creation import on_cpu
from minigrad.random import default_generator
from minigrad.tensor import unwrap

from .names import split_by_size as split
from .names import transpose_matrix

__all__ = [
    "Generator", "acos", "acosh", "arange", "argsort", "as_tensor", "asin", "asinh", "atan",
    "atan2", "atanh", "autocast", "bernoulli", "concat", "cuda", "device", "diagonal", "div",
    "einsum", "empty", "eq", "equal", "eye", "finfo", "full", "ge", "gt", "iinfo", "inference_mode",
    "is_tensor", "le", "linspace", "load", "lt", "max", "median", "meshgrid", "min", "mul",
    "multinomial", "ne", "neg", "nonzero", "norm", "normal", "numel", "ones", "rand", "randint",
    "randn", "randperm", "repeat_interleave", "scatter_add", "sort", "split", "std", "sub",
    "swapaxes", "t", "tensor", "topk", "transpose", "unbind", "var", "zeros",
]  # fmt: skip

inference_mode = mg.no_grad
acos, acosh, asin, asinh = mg.arccos, mg.arccosh, mg.arcsin, mg.arcsinh
atan, atan2, atanh = mg.arctan, mg.arctan2, mg.arctanh
concat, div, mul, neg, sub = mg.concatenate, mg.divide, mg.multiply, mg.negative, mg.subtract
unbind = mg.unstack


# -- results that differ from NumPy's


class Selected(NamedTuple):
    """Elements of a tensor and their indices."""

    values: Tensor
    indices: Tensor


def _select(x: Any, indices: np.ndarray, dim: int, keepdim: bool = True) -> Selected:
    values = mg.take_along_axis(x, indices, dim)
    if keepdim:
        return Selected(values, Tensor(indices))
    return Selected(mg.squeeze(values, dim), Tensor(indices.squeeze(dim)))


def _extreme(reduce: Any, elementwise: Any, position: Any) -> Callable[..., Any]:
    def function(x: Any, dim: Any = None, keepdim: bool = False) -> Any:
        if isinstance(dim, (Tensor, np.ndarray)):
            return elementwise(x, dim)
        if dim is None:
            return reduce(x)
        return _select(x, position(unwrap(x), dim, keepdims=True), dim, keepdim)

    function.__name__ = function.__qualname__ = reduce.__name__
    function.__doc__ = (
        f"Return the {elementwise.__name__}, the pair (values, indices) along `dim`, or an "
        f"elementwise {elementwise.__name__}."
    )
    return function


max = _extreme(mg.max, mg.maximum, np.argmax)
min = _extreme(mg.min, mg.minimum, np.argmin)


def median(x: Any, dim: int | None = None, keepdim: bool = False) -> Any:
    """Return the lower median, or the pair (values, indices) along `dim`; NaN wins."""
    if dim is None:
        return median(mg.reshape(x, -1), 0).values
    array = np.asarray(unwrap(x))
    middle = np.argsort(array, dim, kind="stable").take([(array.shape[dim] - 1) // 2], dim)
    is_nan = np.isnan(array)
    indices = np.where(is_nan.any(dim, keepdims=True), is_nan.argmax(dim, keepdims=True), middle)
    return _select(x, indices, dim, keepdim)


def sort(x: Any, dim: int = -1, descending: bool = False, *, stable: bool = False) -> Selected:
    """Return the sorted elements and their indices; NaN counts as largest."""
    array = np.asarray(unwrap(x))
    if not descending:
        return _select(x, np.argsort(array, dim, kind="stable"), dim)
    reversed_order = np.argsort(np.flip(array, dim), dim, kind="stable")
    return _select(x, array.shape[dim] - 1 - np.flip(reversed_order, dim), dim)


def argsort(x: Any, dim: int = -1, descending: bool = False, *, stable: bool = False) -> Tensor:
    """Return the indices that sort x."""
    return sort(x, dim, descending).indices


def topk(x: Any, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Selected:
    """Return the k largest or smallest elements in order, and their indices."""
    indices = sort(x, dim, largest).indices.data
    if not 0 <= k <= indices.shape[dim]:
        raise ValueError(f"topk: k must be from 0 to {indices.shape[dim]}, got {k}")
    return _select(x, indices.take(np.arange(k), dim), dim)


def var(
    x: Any,
    dim: Any = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: int = 1,
) -> Tensor:
    """Return the variance, which divides by n - `correction`."""
    if isinstance(dim, bool):  # var(x, False)
        dim, unbiased = None, dim
    correction = correction if unbiased is None else int(unbiased)
    return mg.var(x, dim, correction=correction, keepdims=keepdim)


def std(x: Any, *args: Any, **options: Any) -> Tensor:
    """Return the standard deviation. Parameters: as `var`."""
    return mg.sqrt(var(x, *args, **options))


def nonzero(x: Any, *, as_tuple: bool = False) -> Any:
    """Return the indices of nonzero elements, shape (n, ndim), or a tuple of arrays."""
    array = np.asarray(unwrap(x))
    indices = np.nonzero(array) if array.ndim else ()
    if as_tuple:
        return tuple(map(Tensor, indices))
    return Tensor(np.stack(indices, -1) if indices else np.zeros((int(array != 0), 0), np.int64))


def equal(x: Any, other: Any) -> bool:
    """Return whether two tensors have one shape and the same elements."""
    return builtins.bool(np.array_equal(unwrap(x), unwrap(other)))


def norm(x: Any, p: Any = 2.0, dim: Any = None, keepdim: bool = False) -> Tensor:
    """Return the p-norm of all elements, or along `dim`."""
    return mg.vector_norm(x, axis=dim, keepdims=keepdim, ord=2.0 if p == "fro" else p)


def _renamed(f: Callable[..., Any], **names: str) -> Callable[..., Any]:
    def function(*args: Any, **options: Any) -> Any:
        return f(*args, **{names.get(name, name): value for name, value in options.items()})

    function.__name__ = function.__qualname__ = f.__name__
    function.__doc__ = f"As `minigrad.{f.__name__}`, with {', '.join(names)}."
    return function


diagonal = _renamed(mg.diagonal, dim1="axis1", dim2="axis2")
swapaxes = _renamed(mg.swapaxes, axis0="axis1", axis1="axis2")
transpose = _renamed(mg.swapaxes, dim0="axis1", dim1="axis2")


def _unpacked(tensors: tuple[Any, ...]) -> Any:
    """Return the operands, which may be passed as one list."""
    is_list = len(tensors) == 1 and isinstance(tensors[0], (list, tuple))
    return tensors[0] if is_list else tensors


def meshgrid(*tensors: Any, indexing: str = "ij") -> Any:
    """Return coordinate matrices, in the order of the tensors by default."""
    return mg.meshgrid(*_unpacked(tensors), indexing=indexing)


def einsum(equation: str, *operands: Any) -> Tensor:
    """As `minigrad.einsum`, also of a list of operands."""
    return mg.einsum(equation, *_unpacked(operands))


def repeat_interleave(x: Any, repeats: Any, dim: int | None = None) -> Tensor:
    """Repeat each element along `dim`, or of the flattened x."""
    y: Any = np.repeat(x if isinstance(x, Tensor) else Tensor(x), unwrap(repeats), dim)
    return y


def scatter_add(x: Any, dim: int, index: Any, src: Any) -> Tensor:
    """Add elements of `src` to the elements of x at `index` along `dim`."""
    at = np.asarray(unwrap(index))
    grid: list[Any] = list(np.indices(at.shape, sparse=True))
    grid[dim] = at
    corner = tuple(slice(n) for n in at.shape)
    return mg.index_add(x, index=tuple(grid), values=src[corner])


def t(x: Any) -> Tensor:
    """Transpose a matrix; return a vector or scalar unchanged."""
    return transpose_matrix(mg.as_tensor(x))


def numel(x: Tensor) -> int:
    """Return the number of elements."""
    return x.data.size


def is_tensor(x: Any) -> bool:
    """Return whether x is a Tensor."""
    return isinstance(x, Tensor)


# -- creation: float32 by default


def tensor(
    data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """Return a tensor with a copy of `data`; Python's floats become float32."""
    return mg.tensor(data, dtype=_dtype_of(data, dtype), device=device, requires_grad=requires_grad)


def as_tensor(data: Any, dtype: Any = None, device: Any = None) -> Tensor:
    """Return a tensor that shares the memory of an array; Python's floats become float32."""
    return mg.as_tensor(data, dtype=_dtype_of(data, dtype), device=device)


def _dtype_of(data: Any, dtype: Any) -> Any:
    if dtype is not None or isinstance(data, (Tensor, np.ndarray, np.generic)):
        return dtype
    if isinstance(data, (list, tuple)) and builtins.any(
        isinstance(x, (Tensor, np.ndarray)) for x in data
    ):
        return None
    return np.float32 if np.asarray(data).dtype == np.float64 else None


def _creator(create: Any) -> Callable[..., Tensor]:
    def function(*size: Any, dtype: Any = np.float32, **options: Any) -> Tensor:
        options.pop("layout", None), options.pop("pin_memory", None)
        if "generator" in options:
            options["generator"] = _source(options["generator"])
        return create(*size, dtype=dtype or np.float32, **options)

    function.__name__ = function.__qualname__ = create.__name__
    function.__doc__ = f"As `minigrad.{create.__name__}`, in float32 by default."
    return function


zeros, ones, empty = _creator(mg.zeros), _creator(mg.ones), _creator(mg.empty)
eye, rand, randn = _creator(mg.eye), _creator(mg.rand), _creator(mg.randn)


def full(size: Any, fill_value: Any, *, dtype: Any = None, **options: Any) -> Tensor:
    """Return a tensor of one value; a float becomes float32."""
    return mg.full(size, fill_value, dtype=_dtype_of(fill_value, dtype), **options)


def arange(
    start: Any = 0, end: Any = None, step: Any = 1, *, dtype: Any = None, **options: Any
) -> Tensor:
    """Return numbers from `start` to below `end`: int64, or float32 if one argument is a float."""
    start, end = (0, start) if end is None else (start, end)
    if dtype is None:
        dtype = (
            np.float32
            if builtins.any(isinstance(x, float) for x in (start, end, step))
            else np.int64
        )
    return mg.arange(start, end, step, dtype=dtype, **options)


def linspace(start: Any, end: Any, steps: int, *, dtype: Any = None, **options: Any) -> Tensor:
    """Return `steps` numbers at equal distances, with both ends."""
    return mg.linspace(start, end, steps, dtype=dtype or np.float32, **options)


# -- random numbers


class Generator:
    """Source of random numbers. Its numbers differ from those of PyTorch for one seed."""

    def __init__(self, device: Any = "cpu") -> None:
        on_cpu(device)
        self.numpy = np.random.default_rng()

    def manual_seed(self, seed: int) -> Generator:
        """Start again from a seed."""
        self.numpy = np.random.default_rng(seed)
        return self


def _source(generator: Any) -> np.random.Generator:
    """Return the generator of NumPy."""
    return default_generator(generator.numpy if isinstance(generator, Generator) else generator)


def randint(*bounds: Any, generator: Any = None, dtype: Any = np.int64, **options: Any) -> Tensor:
    """Return random integers: randint(high, size), or randint(low, high, size)."""
    *limits, size = bounds
    low, high = limits if len(limits) == 2 else (0, *limits)
    return mg.randint(low, high, size, generator=_source(generator), dtype=dtype, **options)


def randperm(n: int, *, generator: Any = None, **options: Any) -> Tensor:
    """Return the integers below n in random order."""
    return mg.randperm(n, generator=_source(generator), **options)


def normal(mean: Any, std: Any, size: Any = None, *, generator: Any = None) -> Tensor:
    """Return normal random numbers, float32 unless mean or std is a tensor."""
    dtype = next((x.dtype for x in (mean, std) if isinstance(x, Tensor)), np.float32)
    mean, std = unwrap(mean), unwrap(std)
    return Tensor(_source(generator).normal(mean, std, size).astype(dtype))


def bernoulli(x: Any, *, generator: Any = None) -> Tensor:
    """Return ones with the probabilities x, and zeros."""
    return Tensor((_source(generator).random(x.shape) < unwrap(x)).astype(x.dtype))


def multinomial(
    x: Any, num_samples: int, replacement: bool = False, *, generator: Any = None
) -> Tensor:
    """Return indices drawn with the probabilities x of each row."""
    return mg.multinomial(x, num_samples, replacement, generator=_source(generator))


# -- files and devices


class device(str):
    """Device "cpu"; any other name raises a ValueError."""

    type = "cpu"

    def __new__(cls, name: Any = "cpu") -> device:  # noqa: D102
        return super().__new__(cls, on_cpu(name))


cuda = SimpleNamespace(is_available=lambda: False, device_count=lambda: 0)


def load(f: Any, map_location: Any = None, *, weights_only: bool = True) -> Any:
    """Return what `save` wrote. Pickled files of PyTorch are not read."""
    on_cpu(map_location)
    return mg.load(f)


class autocast(contextlib.nullcontext):
    """Context of mixed precision, which must not be enabled."""

    def __init__(
        self, device_type: Any = "cpu", dtype: Any = None, enabled: bool = True, **options: Any
    ) -> None:
        if enabled:
            raise ValueError(
                "autocast: enabled must be False, since there is no mixed precision; leave the "
                "context out"
            )
        super().__init__()
