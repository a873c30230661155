"""Array types: names for annotations, and the types that may stand in for ndarrays.

Operations and their rules call NumPy's functions, so they also work on other array types that
answer NumPy's protocols. `vmap` of `minigrad.numpy` passes an array that shows a function one
example of a batch. This is one of the extension points that `registry.py` lists. A first reader can
skip this file: for ndarrays, `as_array` is `np.asarray`.
"""

from __future__ import annotations

from collections.abc import Callable
from numbers import Number
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = Any
"""An ndarray, a Tensor, or an `OtherArray`: what operations and their rules compute with."""

ArrayLike: TypeAlias = Any
"""An `Array`, a number, or nested lists of numbers."""

Ids: TypeAlias = Any
"""An `Array` of integers, or nested lists of them."""

Mask: TypeAlias = Any
"""An array of booleans, or None."""

DType: TypeAlias = Any
"""A dtype, or what NumPy makes one of, such as float or "float32"."""

Shape: TypeAlias = tuple[int, ...]
Axis: TypeAlias = int | Shape | None

Index: TypeAlias = Any
"""What NumPy takes between brackets: integers, slices, arrays, or a tuple of them."""

Tree: TypeAlias = Any
"""An `Array`, or nested dicts, lists, tuples and named tuples of them."""

Function: TypeAlias = Callable[..., Any]
Options: TypeAlias = dict[str, Any]
"""Keyword arguments of a function."""


class OtherArray:
    """Base of array types that operations accept in place of ndarrays.

    A subclass implements `__array_ufunc__`, `__array_function__` and the methods of ndarray that
    rules use. Its method `all()` returns whether all of its elements are True.

    Attributes
    ----------
    values : ndarray
        All elements.
    """

    __slots__ = ()

    values: np.ndarray

    def astype(self, dtype: DType, **options: Any) -> Array:
        """Return the elements in another dtype."""
        raise NotImplementedError

    def in_this_type(self, x: Array) -> Array:
        """Return an array of any type as an array of this type."""
        raise NotImplementedError

    def gradient_for(self, shape: Shape, gradient: Array, collected: bool) -> Array:
        """Return a gradient of this type as the gradient of an operand of shape `shape`.

        `gradient` is this array, or a Tensor of it. `collected` is True if the backward pass adds
        to the gradients of leaves.
        """
        raise NotImplementedError


def as_array(x: Array, dtype: DType = None) -> Array:
    """Return an ndarray, or an OtherArray if x is one."""
    if isinstance(x, OtherArray):
        return x if dtype is None else x.astype(dtype, copy=False)
    if isinstance(x, np.generic):  # as most results of no axes
        return np.asarray(x, dtype)
    try:
        y = np.asarray(x, dtype)
    except (TypeError, ValueError):
        check_class(x)
        raise
    if y.dtype.kind == "O" or (y is not x and isinstance(x, np.ndarray)):
        check_class(x)
    return y


def as_result(y: Array) -> Array:
    """Return a result as an array: a number as a read-only one, since `+=` replaces numbers."""
    if not isinstance(y, np.generic):
        return as_array(y)
    number = np.asarray(y)
    number.setflags(False)  # type: ignore[call-arg]  # by name twice as slow
    return number


def is_number(x: Array) -> bool:
    """Return whether NumPy would have a number in place of an array of no axes."""
    return not x.ndim and not all_values(x).flags.writeable


ADAPTERS: list[Callable[[Array], OtherArray | None]] = []
"""Functions that return an operand of another library as an `OtherArray`, or None."""


def as_forward_operand(x: Array) -> Array:
    """Return an operand that is no ndarray as NumPy's functions take it: a list as an array."""
    if isinstance(x, (list, tuple)):
        return as_array(x)
    if isinstance(x, (np.generic, OtherArray)):
        return x
    for adapt in ADAPTERS:
        if (other := adapt(x)) is not None:
            return other
    as_array(x)  # checks the class
    return x


def check_class(x: Array) -> None:
    """Raise a TypeError for an array of a class whose meaning an ndarray does not have."""
    if hasattr(x, "filled"):
        fix = "x.filled(value), or x.compressed() for the elements that are not masked"
    elif isinstance(x, np.matrix):
        fix = "np.asarray(x), and @ for products of matrices"
    elif hasattr(x, "toarray"):
        fix = "x.toarray(), or minigrad.matmul(x, t) for a product"
    elif isinstance(x, Number) or getattr(x, "dtype", None) == np.dtype(object):
        fix = "np.array(x, dtype=float) for numbers"
    else:
        return
    raise TypeError(
        f"an array must contain numbers and be an ndarray or a tensor, got a {type(x).__name__}; "
        f"write {fix}"
    )


def all_values(x: Array) -> Array:
    """Return the ndarray with all elements of an OtherArray, and anything else unchanged."""
    return x.values if isinstance(x, OtherArray) else x
