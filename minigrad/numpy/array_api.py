"""The namespace of the array API standard for tensors: `x.__array_namespace__()`.

Libraries such as SciPy and scikit-learn take the functions for an array from there. The functions
are NumPy's, which call those of tensors, and return tensors. Only what the standard defines
otherwise is written out here.

References
----------
https://data-apis.org/array-api/2024.12
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import GradientError
from ..nested import needs_gradient
from ..ops.shape import astype as converted
from ..registry import add_methods
from ..tensor import Tensor, unwrap
from .batched import all_true
from .complex_tensor import ComplexTensor
from .creation import as_tensor, on_cpu, tensor
from .nested import as_tensors
from .scipy_special import Namespace as Special
from .sorting import argsort as positions
from .sorting import sort as ordered

CONSTANTS = """
    e inf nan newaxis pi
    bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64 complex64 complex128
"""

FUNCTIONS = """
    arange empty empty_like eye full full_like linspace meshgrid ones ones_like tril triu zeros
    zeros_like
    can_cast finfo iinfo isdtype result_type
    abs acos acosh add asin asinh atan atan2 atanh bitwise_and bitwise_invert bitwise_left_shift
    bitwise_or bitwise_right_shift bitwise_xor ceil clip conj copysign cos cosh divide equal exp
    expm1 floor floor_divide greater greater_equal hypot imag isfinite isinf isnan less less_equal
    log10 log1p log2 logaddexp logical_and logical_not logical_or logical_xor maximum minimum
    multiply negative nextafter not_equal positive pow real reciprocal remainder round sign signbit
    sin sinh sqrt square subtract tan tanh trunc
    take take_along_axis
    matmul matrix_transpose tensordot vecdot
    broadcast_arrays broadcast_to concat expand_dims flip moveaxis permute_dims repeat reshape roll
    squeeze stack tile unstack
    argmax argmin count_nonzero nonzero searchsorted where
    unique_all unique_counts unique_inverse unique_values
    cumulative_prod cumulative_sum max mean min prod std sum var
    all any diff
    convolve diag
"""
"""Functions of the standard, and at the end those that SciPy calls beside them."""

LINALG = """
    cholesky cross det diagonal eigh eigvalsh inv matmul matrix_norm matrix_power matrix_rank
    matrix_transpose outer pinv qr slogdet solve svd svdvals tensordot trace vecdot vector_norm
"""

FFT = """
    fft ifft fftn ifftn rfft irfft rfftn irfftn hfft ihfft fftfreq rfftfreq fftshift ifftshift
"""


def _of_numpy(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of NumPy that returns tensors."""

    @functools.wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        return as_tensors(function(*args, **options))

    return call


def _namespace(module: Any, names: str) -> dict[str, Any]:
    """Return the functions of a module of NumPy by name; older versions lack some of them."""
    return {n: _of_numpy(getattr(module, n)) for n in names.split() if hasattr(module, n)}


__array_api_version__ = "2024.12"
if hasattr(np, "__array_namespace_info__"):  # since NumPy 2.1
    __array_namespace_info__ = np.__array_namespace_info__
special = Special()
linalg = types.SimpleNamespace(**_namespace(np.linalg, LINALG))
fft = types.SimpleNamespace(**_namespace(np.fft, FFT))
globals().update(
    {name: getattr(np, name) for name in CONSTANTS.split()}, **_namespace(np, FUNCTIONS)
)


def log(x: Tensor, /) -> Any:
    """Compute the natural logarithm of x.

    Libraries also call it for zeros whose logarithm they replace. If a gradient is needed, it would
    be NaN, so they raise an error.
    """
    if needs_gradient(x) and not all_true(unwrap(x) != 0):
        raise GradientError(
            "log: x must not contain 0, where its gradient is NaN or infinite; by its points, "
            'RBFInterpolator needs kernel="cubic" in place of its thin plate spline'
        )
    return as_tensors(np.log(x))


def asarray(obj: Any, /, *, dtype: Any = None, device: Any = None, copy: Any = None) -> Tensor:
    """Return a tensor, which keeps its gradient, as `asarray` of the standard."""
    on_cpu(device)
    if isinstance(obj, (Tensor, ComplexTensor)):
        dtype = obj.dtype if dtype is None else np.dtype(dtype)
        if copy is False and dtype != obj.dtype:
            raise ValueError(f"asarray: copy must not be False where {obj.dtype} becomes {dtype}")
        return astype(obj, dtype, copy=bool(copy))
    if copy is False:
        obj = np.asarray(obj, dtype, copy=False)
    return tensor(obj, dtype=dtype) if copy else as_tensor(obj, dtype=dtype)


def astype(x: Tensor, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Tensor:
    """Return x in another dtype, as `astype` of the standard."""
    on_cpu(device)
    if isinstance(x, ComplexTensor):
        return x.astype(dtype, copy=copy)
    return converted(x, dtype, copy=copy)


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """Return a tensor of an array of another library, as `from_dlpack` of the standard."""
    on_cpu(device)
    array = np.from_dlpack(x)  # NumPy 2.0 has no options, and copies none
    return Tensor(array.copy() if copy else array)


def sort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """Sort along an axis, as `sort` of the standard; equal elements always keep their order."""
    return ordered(x, axis, descending=descending)


def argsort(
    x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True
) -> Tensor:
    """Return the indices that sort x along an axis, as `argsort` of the standard."""
    return positions(x, axis, "stable", descending=descending)


def _array_namespace(self: Tensor, /, *, api_version: str | None = None) -> Any:
    """Return the namespace of the array API standard."""
    if api_version not in (None, "2021.12", "2022.12", "2023.12", "2024.12"):
        raise ValueError(
            f'api_version must be "2021.12", "2022.12", "2023.12" or "2024.12", got {api_version!r}'
        )
    return sys.modules[__name__]


def to_device(self: Tensor, device: Any, /, *, stream: Any = None) -> Tensor:
    """Return x, whose device is the CPU.

    Parameters
    ----------
    device : str
        Only "cpu" is supported.
    stream : None
        Other values raise a ValueError.
    """
    on_cpu(device)
    if stream is not None:
        raise ValueError(f"to_device: stream must be None, got {stream!r}")
    return self


add_methods(Tensor, {"__array_namespace__": _array_namespace, "to_device": to_device})
