"""Functions without gradients: comparisons, logic, rounding, indices."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ..registry import function
from .forms import ADAPTED
from .nested import as_tensors, on_arrays

__all__ = [
    "greater",
    "greater_equal",
    "less",
    "less_equal",
    "equal",
    "not_equal",
    "isclose",
    "allclose",
    "array_equal",
    "logical_not",
    "logical_and",
    "logical_or",
    "logical_xor",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "bitwise_not",
    "bitwise_left_shift",
    "bitwise_right_shift",
    "any",
    "all",
    "isnan",
    "isinf",
    "isfinite",
    "signbit",
    "floor",
    "ceil",
    "trunc",
    "round",
    "rint",
    "floor_divide",
    "argmax",
    "argmin",
    "nonzero",
    "argwhere",
    "count_nonzero",
    "searchsorted",
]


def _on_arrays(*numpy: Any, methods: str = "", summary: str = "") -> Callable[..., Any]:
    """Register the first of some NumPy functions for the arrays of tensors, also for the others."""
    return _declare(numpy[0], numpy, methods, summary or numpy[0].__doc__)


def _declare(signed: Any, numpy: tuple[Any, ...], methods: str, doc: str | None) -> Any:
    """Register a function with the name and the signature of `signed`."""

    @functools.wraps(signed)
    def call(*args: Any, **options: Any) -> Any:
        result = on_arrays(numpy[0], args, options)
        return result if isinstance(result, tuple) else as_tensors(result)

    call.__module__, call.__doc__ = __name__, doc
    declared = function(numpy=numpy, methods=methods)(call)
    ADAPTED.update(dict.fromkeys(numpy, declared))
    return declared


def _elementwise(
    ufunc: np.ufunc, summary: str, methods: str = "", *, name: str = ""
) -> Callable[..., Any]:
    """Register a NumPy ufunc for the arrays of tensors; `name` is its own by default."""

    def of_one(x, /):
        pass

    def of_two(a, b, /):
        pass

    signed = of_one if ufunc.nin == 1 else of_two
    signed.__name__ = signed.__qualname__ = name or ufunc.__name__
    return _declare(signed, (ufunc,), methods, summary)


# -- comparisons

greater = _elementwise(np.greater, "Compute a > b for each element.")
greater_equal = _elementwise(np.greater_equal, "Compute a >= b for each element.")
less = _elementwise(np.less, "Compute a < b for each element.")
less_equal = _elementwise(np.less_equal, "Compute a <= b for each element.")
equal = _elementwise(np.equal, "Compute a == b for each element.")
not_equal = _elementwise(np.not_equal, "Compute a != b for each element.")


isclose = _on_arrays(np.isclose, summary="Compute |a - b| <= atol + rtol * |b| for each element.")
allclose = _on_arrays(
    np.allclose, summary="Return True if |a - b| <= atol + rtol * |b| for all elements."
)
array_equal = _on_arrays(
    np.array_equal, summary="Return True if a and b have the same shape and elements."
)

# -- logic

logical_not = _elementwise(np.logical_not, "Compute `not x` for each element.")
logical_and = _elementwise(np.logical_and, "Compute `a and b` for each element.")
logical_or = _elementwise(np.logical_or, "Compute `a or b` for each element.")
logical_xor = _elementwise(np.logical_xor, "Return True where exactly one of a and b is true.")
bitwise_and = _elementwise(
    np.bitwise_and, "Compute a & b for booleans or integers.", "__and__ __rand__"
)
bitwise_or = _elementwise(
    np.bitwise_or, "Compute a | b for booleans or integers.", "__or__ __ror__"
)
bitwise_xor = _elementwise(
    np.bitwise_xor, "Compute a ^ b for booleans or integers.", "__xor__ __rxor__"
)
bitwise_not = _elementwise(
    np.invert, "Compute ~x for booleans or integers.", "__invert__", name="bitwise_not"
)
bitwise_left_shift = _elementwise(
    np.left_shift,
    "Shift the bits of a by b to the left.",
    "__lshift__ __rlshift__",
    name="bitwise_left_shift",
)
bitwise_right_shift = _elementwise(
    np.right_shift,
    "Shift the bits of a by b to the right.",
    "__rshift__ __rrshift__",
    name="bitwise_right_shift",
)
any = _on_arrays(
    np.any, methods="any", summary="Return True where any element along `axis` is true."
)
all = _on_arrays(
    np.all, methods="all", summary="Return True where all elements along `axis` are true."
)
isnan = _elementwise(np.isnan, "Return True where x is NaN.")
isinf = _elementwise(np.isinf, "Return True where x is inf or -inf.")
isfinite = _elementwise(np.isfinite, "Return True where x is not NaN, inf or -inf.")
signbit = _elementwise(np.signbit, "Return True where x is negative, including -0.0.")

# -- rounding

floor = _elementwise(np.floor, "Round down to integers.", "floor")
ceil = _elementwise(np.ceil, "Round up to integers.", "ceil")
trunc = _elementwise(np.trunc, "Round towards zero to integers.", "trunc")
rint = _elementwise(np.rint, "Round to the nearest integers, halves to even.")
floor_divide = _elementwise(
    np.floor_divide, "Compute a / b, rounded down.", "__floordiv__ __rfloordiv__"
)


round = _on_arrays(
    np.round, np.around, methods="round", summary="Round to a number of decimals, halves to even."
)

# -- indices

argmax = _on_arrays(
    np.argmax, methods="argmax", summary="Return the index of the largest element along `axis`."
)
argmin = _on_arrays(
    np.argmin, methods="argmin", summary="Return the index of the smallest element along `axis`."
)
nonzero = _on_arrays(
    np.nonzero, methods="nonzero", summary="Return the indices of the elements that are not zero."
)
argwhere = _on_arrays(
    np.argwhere, summary="Return the indices of the elements that are not zero, one row for each."
)
count_nonzero = _on_arrays(
    np.count_nonzero, summary="Count the elements along `axis` that are not zero."
)
searchsorted = _on_arrays(
    np.searchsorted,
    summary="Return the indices at which values would be inserted into a sorted vector.",
)

for _numpy in (
    np.shape,
    np.ndim,
    np.size,
    np.result_type,
    np.can_cast,
    np.iscomplexobj,
    np.isrealobj,
    np.may_share_memory,
    np.shares_memory,
    np.zeros_like,
    np.ones_like,
    np.empty_like,
    np.array_repr,
    np.array_str,
    np.array2string,
    np.isneginf,
    np.isposinf,
    np.nanargmax,
    np.nanargmin,
    np.argpartition,
    np.digitize,
    np.linalg.matrix_rank,
    np.fix,
    np.angle,
    np.iscomplex,
    np.isreal,
    np.imag,
    np.isin,
    np.array_equiv,
    np.diag_indices_from,
    np.tril_indices_from,
    np.triu_indices_from,
    np.common_type,
    np.min_scalar_type,
    np.einsum_path,
):
    _on_arrays(_numpy)
