"""Functions without gradients: comparisons, logic, rounding, positions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..core.nested import as_tensors, on_arrays
from ..core.registry import function
from ..core.tensor import DISPATCH

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


def _on_arrays(
    numpy: Any, doc: str, methods: str = "", name: str | None = None
) -> Callable[..., Any]:
    """Register a NumPy function, or the first of several, for the arrays of tensors."""
    several = numpy if isinstance(numpy, tuple) else (numpy,)
    numpy = several[0]

    def call(*args: Any, **options: Any) -> Any:
        result = on_arrays(numpy, args, options)
        return result if isinstance(result, (tuple, list)) else as_tensors(result)

    call.__name__ = call.__qualname__ = name or numpy.__name__
    call.__doc__ = doc
    declared = function(numpy=several, methods=methods)(call)
    DISPATCH.update(dict.fromkeys(several, declared))
    return declared


greater = _on_arrays(np.greater, "a > b.", "__gt__")
greater_equal = _on_arrays(np.greater_equal, "a >= b.", "__ge__")
less = _on_arrays(np.less, "a < b.", "__lt__")
less_equal = _on_arrays(np.less_equal, "a <= b.", "__le__")
equal = _on_arrays(np.equal, "a == b, element by element.", "__eq__")
not_equal = _on_arrays(np.not_equal, "a != b, element by element.", "__ne__")
isclose = _on_arrays(np.isclose, "Compare a and b within a tolerance, element by element.")
allclose = _on_arrays(np.allclose, "Return True if all of a and b are equal within a tolerance.")
array_equal = _on_arrays(np.array_equal, "Return True if a and b have the same shape and elements.")

logical_not = _on_arrays(np.logical_not, "not x, element by element.")
logical_and = _on_arrays(np.logical_and, "a and b, element by element.")
logical_or = _on_arrays(np.logical_or, "a or b, element by element.")
logical_xor = _on_arrays(np.logical_xor, "Either a or b but not both, element by element.")
bitwise_and = _on_arrays(np.bitwise_and, "a & b, for booleans and integers.", "__and__ __rand__")
bitwise_or = _on_arrays(np.bitwise_or, "a | b, for booleans and integers.", "__or__ __ror__")
bitwise_xor = _on_arrays(np.bitwise_xor, "a ^ b, for booleans and integers.", "__xor__ __rxor__")
bitwise_not = _on_arrays(np.invert, "~x, for booleans and integers.", "__invert__", "bitwise_not")
any = _on_arrays(np.any, "Return True if any element is true, over all axes or `axis`.", "any")
all = _on_arrays(np.all, "Return True if all elements are true, over all axes or `axis`.", "all")
isnan = _on_arrays(np.isnan, "Where x is NaN.")
isinf = _on_arrays(np.isinf, "Where x is infinite.")
isfinite = _on_arrays(np.isfinite, "Where x is neither infinite nor NaN.")
signbit = _on_arrays(np.signbit, "Where x is negative, -0.0 included.")

floor = _on_arrays(np.floor, "Round down to an integer.", "floor")
ceil = _on_arrays(np.ceil, "Round up to an integer.", "ceil")
trunc = _on_arrays(np.trunc, "x without its fraction.", "trunc")
round = _on_arrays((np.round, np.around), "x rounded to `decimals`, halves to even.", "round")
rint = _on_arrays(np.rint, "Round to the nearest integer, halves to even.")
floor_divide = _on_arrays(np.floor_divide, "a / b, rounded down.", "__floordiv__ __rfloordiv__")

argmax = _on_arrays(
    np.argmax, "Return the index of the largest element of all, or along `axis`.", "argmax"
)
argmin = _on_arrays(
    np.argmin, "Return the index of the smallest element of all, or along `axis`.", "argmin"
)
nonzero = _on_arrays(
    np.nonzero,
    "Return the indices of the elements that are not zero, a tuple of ndarrays.",
    "nonzero",
)
argwhere = _on_arrays(
    np.argwhere, "Return the indices of the elements that are not zero, a row for each."
)
count_nonzero = _on_arrays(np.count_nonzero, "Count the elements that are not zero.")
searchsorted = _on_arrays(np.searchsorted, "Where values would be inserted into a sorted x.")

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
    _on_arrays(_numpy, f"np.{_numpy.__name__}, of the arrays inside tensors.")
