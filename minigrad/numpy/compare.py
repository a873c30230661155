"""Functions without gradients: comparisons, logic, rounding, indices."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ..registry import elementwise_doc, function
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


def _on_arrays(*numpy: Any, methods: str = "") -> Callable[..., Any]:
    """Return a decorator that calls the first of some NumPy functions with arrays of tensors.

    The decorated function has no body. It is the signature and the documentation.
    """

    def declare(documented: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(documented)
        def call(*args: Any, **options: Any) -> Any:
            result = on_arrays(numpy[0], args, options)
            return result if isinstance(result, (tuple, list)) else as_tensors(result)

        declared = function(numpy=numpy, methods=methods)(call)
        ADAPTED.update(dict.fromkeys(numpy, declared))
        return declared

    return declare


def _elementwise(
    ufunc: np.ufunc, summary: str, methods: str = "", *, name: str = "", result: str = "of bool"
) -> Callable[..., Any]:
    """Register a NumPy ufunc for the arrays of tensors; `name` is its own by default."""

    def of_one(x, /):
        pass

    def of_two(a, b, /):
        pass

    documented, operands = (of_one, "x") if ufunc.nin == 1 else (of_two, "ab")
    documented.__name__ = documented.__qualname__ = name or ufunc.__name__
    documented.__doc__ = elementwise_doc(summary, *operands, result=f"Tensor {result}".strip())
    return _on_arrays(ufunc, methods=methods)(documented)


# -- comparisons

greater = _elementwise(np.greater, "Compute a > b for each element.")
greater_equal = _elementwise(np.greater_equal, "Compute a >= b for each element.")
less = _elementwise(np.less, "Compute a < b for each element.")
less_equal = _elementwise(np.less_equal, "Compute a <= b for each element.")
equal = _elementwise(np.equal, "Compute a == b for each element.")
not_equal = _elementwise(np.not_equal, "Compute a != b for each element.")


@_on_arrays(np.isclose)
def isclose(a, b, rtol=1e-5, atol=1e-8, equal_nan=False):
    """Compute |a - b| <= atol + rtol * |b| for each element.

    Parameters
    ----------
    a, b : array_like
        Shapes that broadcast.
    rtol : float
        Relative tolerance; 1e-5 by default.
    atol : float
        Absolute tolerance; 1e-8 by default.
    equal_nan : bool
        Treat NaN as equal to NaN; False by default.
    """


@_on_arrays(np.allclose)
def allclose(a, b, rtol=1e-5, atol=1e-8, equal_nan=False):
    """Return True if |a - b| <= atol + rtol * |b| for all elements.

    Parameters: as `isclose`.
    """


@_on_arrays(np.array_equal)
def array_equal(a, b, equal_nan=False):
    """Return True if a and b have the same shape and elements.

    Parameters
    ----------
    a, b : array_like
        Arrays to compare; they are not broadcast.
    equal_nan : bool
        Treat NaN as equal to NaN; False by default.
    """


# -- logic

logical_not = _elementwise(np.logical_not, "Compute `not x` for each element.")
logical_and = _elementwise(np.logical_and, "Compute `a and b` for each element.")
logical_or = _elementwise(np.logical_or, "Compute `a or b` for each element.")
logical_xor = _elementwise(np.logical_xor, "Return True where exactly one of a and b is true.")
bitwise_and = _elementwise(
    np.bitwise_and,
    "Compute a & b for booleans or integers.",
    "__and__ __rand__",
    result="of bool or int",
)
bitwise_or = _elementwise(
    np.bitwise_or,
    "Compute a | b for booleans or integers.",
    "__or__ __ror__",
    result="of bool or int",
)
bitwise_xor = _elementwise(
    np.bitwise_xor,
    "Compute a ^ b for booleans or integers.",
    "__xor__ __rxor__",
    result="of bool or int",
)
bitwise_not = _elementwise(
    np.invert,
    "Compute ~x for booleans or integers.",
    "__invert__",
    name="bitwise_not",
    result="of bool or int",
)
bitwise_left_shift = _elementwise(
    np.left_shift,
    "Shift the bits of a by b to the left.",
    "__lshift__ __rlshift__",
    name="bitwise_left_shift",
    result="of int",
)
bitwise_right_shift = _elementwise(
    np.right_shift,
    "Shift the bits of a by b to the right.",
    "__rshift__ __rrshift__",
    name="bitwise_right_shift",
    result="of int",
)


@_on_arrays(np.any, methods="any")
def any(x, axis=None, *, keepdims=False, where=True):
    """Return True where any element along `axis` is true.

    Parameters
    ----------
    x : array_like
    axis : int, tuple of int or None
        All axes by default.
    keepdims : bool
        Keep the reduced axes with length 1; False by default.
    where : array of bool, broadcastable to x, optional
        True = the element counts.

    Returns
    -------
    Tensor of bool
        Shape of x without the reduced axes.
    """


@_on_arrays(np.all, methods="all")
def all(x, axis=None, *, keepdims=False, where=True):
    """Return True where all elements along `axis` are true.

    Parameters and result: as `any`.
    """


isnan = _elementwise(np.isnan, "Return True where x is NaN.")
isinf = _elementwise(np.isinf, "Return True where x is inf or -inf.")
isfinite = _elementwise(np.isfinite, "Return True where x is not NaN, inf or -inf.")
signbit = _elementwise(np.signbit, "Return True where x is negative, including -0.0.")

# -- rounding

floor = _elementwise(np.floor, "Round down to integers.", "floor", result="")
ceil = _elementwise(np.ceil, "Round up to integers.", "ceil", result="")
trunc = _elementwise(np.trunc, "Round towards zero to integers.", "trunc", result="")
rint = _elementwise(np.rint, "Round to the nearest integers, halves to even.", result="")
floor_divide = _elementwise(
    np.floor_divide, "Compute a / b, rounded down.", "__floordiv__ __rfloordiv__", result=""
)


@_on_arrays(np.round, np.around, methods="round")
def round(x, decimals=0):
    """Round to a number of decimals, halves to even.

    Parameters
    ----------
    x : array_like
    decimals : int
        Number of digits after the decimal point, or before it if negative; 0 by default.

    Returns
    -------
    Tensor
        Shape and dtype of x.
    """


# -- indices


@_on_arrays(np.argmax, methods="argmax")
def argmax(x, axis=None, *, keepdims=False):
    """Return the index of the largest element along `axis`.

    Parameters
    ----------
    x : array_like
    axis : int or None
        None, the default, indexes the flattened x.
    keepdims : bool
        Keep the reduced axis with length 1; False by default.
    """


@_on_arrays(np.argmin, methods="argmin")
def argmin(x, axis=None, *, keepdims=False):
    """Return the index of the smallest element along `axis`.

    Parameters: as `argmax`.
    """


@_on_arrays(np.nonzero, methods="nonzero")
def nonzero(x) -> Any:
    """Return the indices of the elements that are not zero.

    Parameters
    ----------
    x : array_like

    Returns
    -------
    tuple of ndarray of int
        The indices along each axis, so `x[nonzero(x)]` contains the elements.
    """


@_on_arrays(np.argwhere)
def argwhere(x):
    """Return the indices of the elements that are not zero, one row for each.

    Parameters
    ----------
    x : array_like
    """


@_on_arrays(np.count_nonzero)
def count_nonzero(x, axis=None, *, keepdims=False):
    """Count the elements along `axis` that are not zero.

    Parameters: as `any`.

    Returns
    -------
    int or Tensor of int
        Number of elements; a Tensor if `axis` or `keepdims` is given.
    """


@_on_arrays(np.searchsorted)
def searchsorted(x, v, side="left", sorter=None):
    """Return the indices at which values would be inserted into a sorted vector.

    Parameters
    ----------
    x : array_like, shape (n,)
        Vector in rising order, or in any order with `sorter`.
    v : array_like
        Values to insert.
    side : {"left", "right"}
        Return the first or the last index that keeps the order; "left" by default.
    sorter : array_like of int, shape (n,), optional
        Indices that sort x, such as `argsort(x)`.

    Returns
    -------
    Tensor of int
        Shape of v.
    """


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
    _on_arrays(_numpy)(_numpy)  # with NumPy's name, signature and documentation
