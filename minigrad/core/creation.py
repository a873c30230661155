"""New tensors: of data, constants, ranges, random numbers. float64 unless `dtype` says otherwise,
as in NumPy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .device import device as checked_device
from .errors import GradientError
from .nested import needs_gradient, without_tensors
from .random import default_generator
from .tensor import DISPATCH, Tensor, unwrap

__all__ = [
    "tensor",
    "as_tensor",
    "zeros",
    "ones",
    "empty",
    "full",
    "arange",
    "linspace",
    "eye",
    "rand",
    "randn",
    "randint",
    "randperm",
    "from_numpy",
    "zeros_like",
    "ones_like",
    "empty_like",
    "full_like",
    "rand_like",
    "randn_like",
]

if TYPE_CHECKING:
    Generator = np.random.Generator


def tensor(
    data: Any, *, requires_grad: bool = False, dtype: Any = None, device: Any = None
) -> Tensor:
    """A new tensor with a copy of `data`: of an array, a tensor with its gradient, or lists of them
    and numbers.
    """
    _on_cpu(device)
    if needs_gradient(data):
        if requires_grad:
            raise GradientError(
                "tensor: the data requires gradients already; write .detach() for a leaf of its own"
            )
        stacked = _stacked(data, np.result_type(*_arrays_in(data)))
        return DISPATCH[np.copy](stacked) if dtype is None else stacked.astype(dtype)
    return Tensor(np.array(without_tensors(data), dtype), requires_grad)


def _on_cpu(device: Any) -> Any:
    """None, or "cpu"; a ValueError for a device that is not there."""
    return None if device is None else str(checked_device(device))


def _arrays_in(data: Any) -> list[Any]:
    if isinstance(data, (list, tuple)):
        return [array for part in data for array in _arrays_in(part)]
    return [unwrap(data)] if isinstance(data, (Tensor, np.ndarray, np.generic)) else []


def _stacked(data: Any, dtype: Any) -> Any:
    if isinstance(data, (list, tuple)):
        return DISPATCH[np.stack]([_stacked(part, dtype) for part in data])
    return data if isinstance(data, (Tensor, np.ndarray)) else np.asarray(data, dtype)


def ints(values: Sequence[Any]) -> tuple[Any, ...]:
    """(2, 3), from f(2, 3), f((2, 3)), f([2, 3]) and f(array([2, 3])) alike."""
    if len(values) == 1 and (isinstance(values[0], (tuple, list)) or np.ndim(values[0])):
        return tuple(values[0])
    return tuple(values)


def zeros(
    *shape: Any, dtype: Any = float, requires_grad: bool = False, device: Any = None
) -> Tensor:
    """Zeros, of a shape given as ints or one tuple."""
    return Tensor(np.zeros(ints(shape), dtype, device=_on_cpu(device)), requires_grad)


def ones(
    *shape: Any, dtype: Any = float, requires_grad: bool = False, device: Any = None
) -> Tensor:
    """Ones, of a shape given as ints or one tuple."""
    return Tensor(np.ones(ints(shape), dtype, device=_on_cpu(device)), requires_grad)


def empty(
    *shape: Any, dtype: Any = float, requires_grad: bool = False, device: Any = None
) -> Tensor:
    """A tensor whose elements are not set, of a shape given as ints or one tuple."""
    return Tensor(np.empty(ints(shape), dtype, device=_on_cpu(device)), requires_grad)


def full(
    shape: Any,
    fill_value: Any,
    dtype: Any = None,
    *,
    requires_grad: bool = False,
    device: Any = None,
) -> Tensor:
    """A tensor whose elements are all `fill_value`, of its dtype unless another is given."""
    return Tensor(np.full(shape, fill_value, dtype, device=_on_cpu(device)), requires_grad)


def arange(
    *bounds: Any, dtype: Any = None, requires_grad: bool = False, device: Any = None
) -> Tensor:
    """arange(stop), arange(start, stop) or arange(start, stop, step), as in NumPy."""
    return Tensor(np.arange(*bounds, dtype=dtype, device=_on_cpu(device)), requires_grad)


def linspace(
    start: Any,
    stop: Any,
    num: int = 50,
    *,
    dtype: Any = None,
    requires_grad: bool = False,
    device: Any = None,
) -> Tensor:
    """`num` numbers, evenly spaced from `start` to `stop` inclusive."""
    _on_cpu(device)
    if needs_gradient((start, stop)):
        return DISPATCH[np.linspace](start, stop, num, dtype=dtype)
    return Tensor(np.linspace(start, stop, num, dtype=dtype), requires_grad)


def eye(
    n: int,
    m: int | None = None,
    k: int = 0,
    dtype: Any = float,
    *,
    requires_grad: bool = False,
    device: Any = None,
) -> Tensor:
    """An (n, m) matrix (m = n unless given) with ones on its k-th diagonal."""
    return Tensor(np.eye(n, m, k, dtype, device=_on_cpu(device)), requires_grad)


def _drawn(
    name: str, shape: Any, dtype: Any, generator: Generator | None, requires_grad: bool, device: Any
) -> Tensor:
    """Random numbers of `dtype` from the generator's method `name`, drawn in it where the generator
    can.
    """
    _on_cpu(device)
    drawn = np.dtype(dtype) if np.dtype(dtype) in (np.float32, np.float64) else np.dtype(float)
    sample = getattr(default_generator(generator), name)(ints(shape), dtype=drawn)
    return Tensor(sample.astype(dtype, copy=False), requires_grad)


def rand(
    *shape: Any,
    dtype: Any = float,
    generator: Generator | None = None,
    requires_grad: bool = False,
    device: Any = None,
) -> Tensor:
    """Uniform random numbers in [0, 1)."""
    return _drawn("random", shape, dtype, generator, requires_grad, device)


def randn(
    *shape: Any,
    dtype: Any = float,
    generator: Generator | None = None,
    requires_grad: bool = False,
    device: Any = None,
) -> Tensor:
    """Normal random numbers, of mean 0 and standard deviation 1."""
    return _drawn("standard_normal", shape, dtype, generator, requires_grad, device)


def randint(
    low: int,
    high: int,
    size: Any = (),
    *,
    dtype: Any = np.int64,
    generator: Generator | None = None,
    device: Any = None,
) -> Tensor:
    """Random integers from `low` to `high` - 1."""
    _on_cpu(device)
    return Tensor(default_generator(generator).integers(low, high, size, dtype))


def randperm(
    n: int, *, dtype: Any = np.int64, generator: Generator | None = None, device: Any = None
) -> Tensor:
    """The integers from 0 to n - 1 in random order."""
    _on_cpu(device)
    return Tensor(default_generator(generator).permutation(n).astype(dtype))


def as_tensor(data: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """`data` itself where it is a tensor, one that shares the memory of an array, or a new one."""
    _on_cpu(device)
    if isinstance(data, Tensor):
        return data if dtype is None or data.dtype == dtype else data.astype(dtype)
    return (
        tensor(data, dtype=dtype)
        if needs_gradient(data)
        else Tensor(without_tensors(data), dtype=dtype)
    )


def from_numpy(array: np.ndarray) -> Tensor:
    """A tensor that shares the memory of `array`."""
    if not isinstance(array, np.ndarray):
        raise TypeError(f"from_numpy: expected an ndarray, got a {type(array).__name__}")
    return Tensor(array)


def zeros_like(
    x: Any, dtype: Any = None, *, requires_grad: bool = False, device: Any = None
) -> Tensor:
    """Zeros, of the shape and (unless given) the dtype of x."""
    return Tensor(np.zeros_like(unwrap(x), dtype, device=_on_cpu(device)), requires_grad)


def ones_like(
    x: Any, dtype: Any = None, *, requires_grad: bool = False, device: Any = None
) -> Tensor:
    """Ones, of the shape and (unless given) the dtype of x."""
    return Tensor(np.ones_like(unwrap(x), dtype, device=_on_cpu(device)), requires_grad)


def empty_like(
    x: Any, dtype: Any = None, *, requires_grad: bool = False, device: Any = None
) -> Tensor:
    """A tensor whose elements are not set, of the shape and (unless given) the dtype of x."""
    return Tensor(np.empty_like(unwrap(x), dtype, device=_on_cpu(device)), requires_grad)


def full_like(
    x: Any, fill_value: Any, dtype: Any = None, *, requires_grad: bool = False, device: Any = None
) -> Tensor:
    """`fill_value` in the shape and (unless given) the dtype of x."""
    return Tensor(np.full_like(unwrap(x), fill_value, dtype, device=_on_cpu(device)), requires_grad)


def rand_like(
    x: Any,
    *,
    dtype: Any = None,
    generator: Generator | None = None,
    requires_grad: bool = False,
    device: Any = None,
) -> Tensor:
    """Uniform random numbers in [0, 1), of the shape and (unless given) the dtype of x."""
    return _drawn("random", np.shape(x), dtype or unwrap(x).dtype, generator, requires_grad, device)


def randn_like(
    x: Any,
    *,
    dtype: Any = None,
    generator: Generator | None = None,
    requires_grad: bool = False,
    device: Any = None,
) -> Tensor:
    """Normal random numbers, of the shape and (unless given) the dtype of x."""
    return _drawn(
        "standard_normal", np.shape(x), dtype or unwrap(x).dtype, generator, requires_grad, device
    )
