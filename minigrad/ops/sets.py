"""Distinct values, their sets, and how often values occur: values have gradients, counts have none."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.forms import numpy_form
from ..core.nested import needs_gradient
from ..core.tensor import Tensor, unwrap
from . import reduction
from .calculus import diff
from .elementwise import divide
from .indexing import getitem, index_add, take
from .joining import concatenate
from .ranges import linspace
from .shape import astype, ravel

# -- sets
# -------------------------------------------------------------------------------------------- Of
# equal values the first is picked, and has the gradient.


@numpy_form(np.unique)
def unique(
    ar: Any,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    *,
    equal_nan: bool = True,
    sorted: bool = True,
) -> Any:
    """The distinct values of ar, rising, or its distinct parts along `axis`; and where and how
    often they occur.
    """
    wanted = (True, return_index, return_inverse, return_counts)
    _, index, *others = np.unique(unwrap(ar), True, True, True, axis, equal_nan=equal_nan)
    results = [
        result
        for result, is_wanted in zip((take(ar, index, axis), index, *others), wanted)
        if is_wanted
    ]
    return results[0] if len(results) == 1 else tuple(results)


def _as_array_api(numpy: Any) -> None:
    @numpy_form(numpy)
    def named(x: Any) -> Any:
        result = numpy(unwrap(x))
        values = take(x, np.unique_all(unwrap(x)).indices)
        return result._replace(values=values) if hasattr(result, "values") else values


for _numpy in (np.unique_all, np.unique_counts, np.unique_inverse, np.unique_values):
    _as_array_api(_numpy)


@numpy_form(np.union1d)
def union1d(ar1: Any, ar2: Any) -> Tensor:
    """The distinct values of both."""
    return unique(concatenate((ar1, ar2), axis=None))


@numpy_form(np.intersect1d)
def intersect1d(
    ar1: Any, ar2: Any, assume_unique: bool = False, return_indices: bool = False
) -> Any:
    """The values that both have, from the first."""
    _, first, second = np.intersect1d(unwrap(ar1), unwrap(ar2), assume_unique, True)
    values = astype(take(ar1, first), np.result_type(*[np.asarray(unwrap(x)) for x in (ar1, ar2)]))
    return (values, first, second) if return_indices else values


@numpy_form(np.setdiff1d)
def setdiff1d(ar1: Any, ar2: Any, assume_unique: bool = False) -> Tensor:
    """The distinct values of the first that the second has not."""
    ar1 = ravel(ar1) if assume_unique else unique(ar1)
    return getitem(ar1, ~np.isin(unwrap(ar1), unwrap(ar2), assume_unique=True))


@numpy_form(np.setxor1d)
def setxor1d(ar1: Any, ar2: Any, assume_unique: bool = False) -> Tensor:
    """The distinct values that one of both has."""
    both = concatenate([x if assume_unique else unique(x) for x in (ar1, ar2)], axis=None)
    _, index, counts = np.unique(unwrap(both), True, return_counts=True, equal_nan=False)
    return getitem(both, index[counts == 1])


# -- counts
# ------------------------------------------------------------------------------------------


@numpy_form(np.bincount)
def bincount(x: Any, weights: Any = None, minlength: int = 0) -> Tensor:
    """How often each integer from 0 occurs in the vector x, or the sum of its weights."""
    counts = np.bincount(unwrap(x), minlength=minlength)
    return (
        Tensor(counts)
        if weights is None
        else index_add(np.zeros(len(counts)), index=unwrap(x), values=astype(weights, float))
    )


@numpy_form(np.histogram_bin_edges)
def histogram_bin_edges(a: Any, bins: Any = 10, range: Any = None, weights: Any = None) -> Tensor:
    """The edges of bins: `bins` themselves, or that many (or as a rule of NumPy's by name has it)
    of one width.
    """
    edges = np.histogram_bin_edges(unwrap(a), unwrap(bins), range, unwrap(weights))
    if np.ndim(bins) or range is not None or not needs_gradient(a) or not np.size(a):
        return bins if needs_gradient(bins) else Tensor(edges)
    low, high = reduction.min(a), reduction.max(a)
    if low.data == high.data:
        low, high = low - 0.5, high + 0.5
    return linspace(low, high, len(edges))


@numpy_form(np.histogram)
def histogram(
    a: Any, bins: Any = 10, range: Any = None, density: bool | None = None, weights: Any = None
) -> tuple[Tensor, Tensor]:
    """How many elements of a (or what sum of their weights) each bin has, and the edges of the
    bins.

    With `density` the counts are divided by their sum and by the widths. Counts have no gradient;
    sums of weights have, and so have edges that follow from a.
    """
    edges = histogram_bin_edges(a, bins, range, weights)
    counts: Any
    counts, ends = np.histogram(unwrap(a), unwrap(bins), range, None, unwrap(weights))
    if needs_gradient(weights):
        values = np.ravel(unwrap(a))
        inside = (values >= ends[0]) & (values <= ends[-1])
        places = np.searchsorted(ends[:-1], values[inside], "right") - 1
        counts = index_add(
            np.zeros(counts.shape, counts.dtype),
            index=places,
            values=getitem(ravel(weights), inside),
        )
    if density:
        counts = divide(counts, astype(diff(edges), float)) / counts.sum()
    return counts if isinstance(counts, Tensor) else Tensor(counts), edges
