"""Creation of tensors from data, constants, ranges and random numbers; float64 by default."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..arguments import checked_count, ints, shape_of
from ..arrays import as_array
from ..errors import GradientError
from ..nested import needs_gradient, without_tensors
from ..ops.shape import astype, broadcast_to, clone, stack
from ..random import default_generator
from ..tensor import Tensor, to_array, unwrap
from .batched import VMAPPED, BatchedArray
from .forms import numpy_form
from .shape import moveaxis

__all__ = [
    "tensor",
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
    "as_tensor",
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
    """Return a tensor with a copy of `data`.

    Parameters
    ----------
    data : array_like or Tensor
        A tensor keeps its gradient. Lists may contain tensors and numbers.
    requires_grad : bool
        Record operations on the tensor; False by default.
    dtype : dtype, optional
        Dtype of `data` by default.
    device : str, optional
        Only "cpu" is supported.

    Returns
    -------
    Tensor
        Leaf, or the result of `clone` if `data` requires gradients.
    """
    on_cpu(device)
    if _needs_stacking(data):
        if requires_grad and needs_gradient(data):
            raise GradientError(
                "tensor: data must not require gradients if requires_grad=True; write "
                "data.detach() for a new leaf, or leave out requires_grad"
            )
        stacked = _stack(data, np.result_type(*_arrays_in(data)))
        result = clone(stacked) if dtype is None else stacked.astype(dtype)
        return result.requires_grad_() if requires_grad else result
    return Tensor(np.array(as_array(without_tensors(data)), dtype), requires_grad)


def on_cpu(device: Any) -> Any:
    """Return None or "cpu"; raise a ValueError for another device."""
    if device is not None and str(device).partition(":")[0] != "cpu":
        raise ValueError(f"device must be 'cpu', got {str(device)!r}; leave it out")
    return None if device is None else "cpu"


def as_dtype(name: str, to: Any) -> Any:
    """Return the dtype `to`, the dtype of the tensor `to`, or None for the device "cpu"."""
    if isinstance(to, (Tensor, np.ndarray)):
        return to.dtype
    try:
        return None if isinstance(to, str) and to == "cpu" else np.dtype(to)
    except TypeError:
        raise TypeError(
            f"{name}: the argument must be a dtype, a tensor, or the device 'cpu', got {to!r}"
        ) from None


def _arrays_in(data: Any) -> list[Any]:
    if isinstance(data, (list, tuple)):
        return [array for part in data for array in _arrays_in(part)]
    kinds = (Tensor, np.ndarray, np.generic, BatchedArray)
    return [unwrap(data)] if isinstance(data, kinds) else []


def _needs_stacking(data: Any) -> bool:
    """Return whether the tensors in `data` need a gradient, or contain the examples of `vmap`."""
    return needs_gradient(data) or (
        VMAPPED.get() and any(isinstance(array, BatchedArray) for array in _arrays_in(data))
    )


def _stack(data: Any, dtype: Any) -> Any:
    if isinstance(data, (list, tuple)):
        return stack([_stack(part, dtype) for part in data])
    return data if isinstance(data, (Tensor, np.ndarray)) else as_array(data, dtype)


def zeros(
    *shape: Any, dtype: Any = float, requires_grad: bool = False, device: Any = None
) -> Tensor:
    """Return a tensor of zeros.

    Parameters
    ----------
    *shape : int or tuple of int
        Lengths of the axes, as ints or one tuple.
    dtype : dtype, optional
        Dtype of the result; float64 by default.
    requires_grad : bool
        Record operations on the tensor; False by default.
    device : str, optional
        Only "cpu" is supported.
    """
    return Tensor(np.zeros(ints(shape), dtype, device=on_cpu(device)), requires_grad)


def ones(
    *shape: Any, dtype: Any = float, requires_grad: bool = False, device: Any = None
) -> Tensor:
    """Return a tensor of ones.

    Parameters: as `zeros`.
    """
    return Tensor(np.ones(ints(shape), dtype, device=on_cpu(device)), requires_grad)


def empty(
    *shape: Any, dtype: Any = float, requires_grad: bool = False, device: Any = None
) -> Tensor:
    """Return a tensor whose elements are not set.

    Parameters: as `zeros`.
    """
    return Tensor(np.empty(ints(shape), dtype, device=on_cpu(device)), requires_grad)


def check_fill_value(name: str, fill_value: Any, dtype: Any) -> None:
    """Raise a TypeError for a complex value that would lose its imaginary part."""
    if np.iscomplexobj(fill_value) and np.dtype(dtype).kind not in "cO":
        raise TypeError(
            f"{name}: fill_value must be real for dtype {np.dtype(dtype)}, got {fill_value}; pass "
            "dtype=complex"
        )


def full(
    shape: Any,
    fill_value: Any,
    dtype: Any = None,
    *,
    requires_grad: bool = False,
    device: Any = None,
) -> Tensor:
    """Return a tensor whose elements are all `fill_value`.

    Parameters: as `numpy.full` and `zeros`.
    """
    if dtype is not None:
        check_fill_value("full", fill_value, dtype)
    return Tensor(np.full(shape, as_array(fill_value), dtype, device=on_cpu(device)), requires_grad)


def arange(
    *bounds: Any, dtype: Any = None, requires_grad: bool = False, device: Any = None
) -> Tensor:
    """Return evenly spaced values, as `np.arange`.

    Other parameters: as `zeros`.

    Parameters
    ----------
    *bounds : number
        The stop, or start and stop, or start, stop and step; their dtype is the default.
    """
    return Tensor(np.arange(*bounds, dtype=dtype, device=on_cpu(device)), requires_grad)


def linspace(
    start: Any,
    stop: Any,
    num: int = 50,
    *,
    dtype: Any = None,
    requires_grad: bool = False,
    device: Any = None,
) -> Tensor:
    """Return `num` evenly spaced values from `start` to `stop`, both included.

    Parameters: as `numpy.linspace` and `zeros`.
    """
    on_cpu(device)
    if needs_gradient((start, stop)):
        return np.linspace(start, stop, num, dtype=dtype)  # type: ignore[return-value]
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
    """Return a matrix with ones on a diagonal and zeros elsewhere.

    Other parameters: as `zeros`.

    Parameters
    ----------
    n : int
        Number of rows.
    m : int, optional
        Number of columns; `n` by default.
    k : int
        Index of the diagonal; positive above the main diagonal.
    """
    return Tensor(np.eye(n, m, k, dtype, device=on_cpu(device)), requires_grad)


def _draw(
    name: str, shape: Any, dtype: Any, generator: Generator | None, requires_grad: bool, device: Any
) -> Tensor:
    """Return random numbers from the generator's method `name`, drawn in `dtype` if it can."""
    on_cpu(device)
    dtype = np.dtype(dtype)
    if dtype.kind != "f":
        raise TypeError(
            f"dtype of random numbers must be floating-point, got {dtype}; pass dtype=float, or "
            "call randint for integers"
        )
    drawn = dtype if dtype in (np.float32, np.float64) else np.dtype(float)
    sample = getattr(default_generator(generator), name)(ints(shape), dtype=drawn)
    return Tensor(sample.astype(dtype, copy=False), requires_grad)


def rand(
    *shape: Any,
    dtype: Any = float,
    generator: Generator | None = None,
    requires_grad: bool = False,
    device: Any = None,
) -> Tensor:
    """Return uniform random numbers from [0, 1).

    Other parameters: as `zeros`.

    Parameters
    ----------
    generator : numpy.random.Generator, optional
        Source of random numbers; the default generator by default.
    """
    return _draw("random", shape, dtype, generator, requires_grad, device)


def randn(
    *shape: Any,
    dtype: Any = float,
    generator: Generator | None = None,
    requires_grad: bool = False,
    device: Any = None,
) -> Tensor:
    """Return normal random numbers with mean 0 and standard deviation 1.

    Parameters: as `rand`.
    """
    return _draw("standard_normal", shape, dtype, generator, requires_grad, device)


def randint(
    low: int,
    high: int,
    size: Any = (),
    *,
    dtype: Any = np.int64,
    generator: Generator | None = None,
    device: Any = None,
) -> Tensor:
    """Return random integers from `low` to `high` - 1.

    Other parameters: as `rand`.

    Parameters
    ----------
    low, high : int
        Smallest value, and the first value above the range.
    size : int or tuple of int
        Shape; a scalar by default.
    dtype : dtype, optional
        Dtype of the result; int64 by default.
    """
    on_cpu(device)
    for name, bound in (("low", low), ("high", high)):
        array = to_array(bound)
        if array.ndim or array.dtype.kind not in "iu":
            raise TypeError(
                f"randint: {name} must be an integer, got {bound!r}; write randint(0, high, size)"
            )
    return Tensor(default_generator(generator).integers(low, high, size, dtype))


def randperm(
    n: int, *, dtype: Any = np.int64, generator: Generator | None = None, device: Any = None
) -> Tensor:
    """Return the integers from 0 to n - 1 in random order.

    Other parameters: as `randint`.

    Parameters
    ----------
    n : int
        Number of integers.
    """
    on_cpu(device)
    return Tensor(default_generator(generator).permutation(n).astype(dtype))


def as_tensor(data: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Return `data` as a tensor, without a copy if possible.

    Other parameters: as `tensor`.

    Parameters
    ----------
    data : array_like or Tensor
    """
    on_cpu(device)
    if isinstance(data, Tensor):
        return data if dtype is None or data.dtype == dtype else data.astype(dtype)
    return (
        tensor(data, dtype=dtype)
        if _needs_stacking(data)
        else Tensor(without_tensors(data), dtype=dtype)
    )


def from_numpy(array: np.ndarray) -> Tensor:
    """Return a tensor that shares the memory of `array`.

    Parameters
    ----------
    array : ndarray
    """
    if not isinstance(array, np.ndarray):
        raise TypeError(f"from_numpy: array must be an ndarray, got a {type(array).__name__}")
    return Tensor(array)


def zeros_like(
    x: Any, dtype: Any = None, *, requires_grad: bool = False, device: Any = None
) -> Tensor:
    """Return zeros with the shape and dtype of `x`.

    Parameters: as `numpy.zeros_like` and `zeros`.
    """
    return Tensor(np.zeros_like(unwrap(x), dtype, device=on_cpu(device)), requires_grad)


def ones_like(
    x: Any, dtype: Any = None, *, requires_grad: bool = False, device: Any = None
) -> Tensor:
    """Return ones with the shape and dtype of `x`.

    Parameters: as `zeros_like`.
    """
    return Tensor(np.ones_like(unwrap(x), dtype, device=on_cpu(device)), requires_grad)


def empty_like(
    x: Any, dtype: Any = None, *, requires_grad: bool = False, device: Any = None
) -> Tensor:
    """Return a tensor with the shape and dtype of `x` whose elements are not set.

    Parameters: as `zeros_like`.
    """
    return Tensor(np.empty_like(unwrap(x), dtype, device=on_cpu(device)), requires_grad)


def full_like(
    x: Any, fill_value: Any, dtype: Any = None, *, requires_grad: bool = False, device: Any = None
) -> Tensor:
    """Return a tensor of `fill_value` with the shape and dtype of `x`.

    Parameters: as `numpy.full_like` and `zeros`.
    """
    check_fill_value("full_like", fill_value, to_array(x).dtype if dtype is None else dtype)
    return Tensor(np.full_like(unwrap(x), fill_value, dtype, device=on_cpu(device)), requires_grad)


def rand_like(
    x: Any,
    *,
    dtype: Any = None,
    generator: Generator | None = None,
    requires_grad: bool = False,
    device: Any = None,
) -> Tensor:
    """Return uniform random numbers from [0, 1) with the shape and dtype of `x`.

    Parameters: as `zeros_like` and `rand`.
    """
    x = to_array(x)
    return _draw("random", x.shape, dtype or x.dtype, generator, requires_grad, device)


def randn_like(
    x: Any,
    *,
    dtype: Any = None,
    generator: Generator | None = None,
    requires_grad: bool = False,
    device: Any = None,
) -> Tensor:
    """Return normal random numbers with the shape and dtype of `x`.

    Parameters: as `rand_like`.
    """
    x = to_array(x)
    return _draw("standard_normal", x.shape, dtype or x.dtype, generator, requires_grad, device)


# -- NumPy's functions of tensors


def _weak(x: Any) -> Any:
    """Return the array of x, or a Python number unchanged, so that it changes no dtype."""
    return x if isinstance(x, (int, float)) else to_array(x)


@numpy_form(np.linspace)
def _np_linspace(
    start: Any, stop: Any, num: int = 50, *, dtype: Any = None, axis: int = 0
) -> Tensor:
    """Return `num` values from `start` to `stop`, evenly spaced along a new axis."""
    checked_count("linspace", "num", num, 0)
    shape = np.broadcast_shapes(shape_of(start), shape_of(stop))
    fraction = (np.arange(num) / max(num - 1, 1)).reshape(-1, *[1] * len(shape))
    fraction = fraction.astype(np.result_type(*map(_weak, (start, stop)), 0.0))
    y = moveaxis((1 - fraction) * start + fraction * stop, 0, axis)
    return y if dtype is None else astype(y, dtype)


@numpy_form(np.full_like)
def _np_full_like(a: Any, fill_value: Any, dtype: Any = None, *, shape: Any = None) -> Tensor:
    """Return `fill_value`, which may be a tensor, in the shape and dtype of `a` by default."""
    like = np.empty_like(unwrap(a), dtype, shape=shape)
    check_fill_value("full_like", fill_value, like.dtype)
    if isinstance(fill_value, int):
        fill_value = as_array(fill_value, like.dtype)  # raises NumPy's error out of range
    return clone(broadcast_to(astype(fill_value, like.dtype), like.shape))
