"""Methods of NumPy's ufuncs for tensors: `np.add.reduce`, `np.multiply.outer` and others."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from ..arguments import one_axis
from ..ops.shape import reshape, stack
from ..registry import answer
from ..tensor import DISPATCH, Tensor, to_array
from . import special as special
from .elementwise import logaddexp
from .forms import ADAPTED, check_ufunc_options
from .indexing import take_along_axis
from .joining import unstack
from .reduction import logsumexp


def _along_first(function: Any) -> Any:
    """Return a function whose axis is 0 by default, as in the methods of ufuncs."""
    return lambda x, axis=0, **options: function(x, axis, **options)


answer((np.add, "reduce"), _along_first(ADAPTED[np.sum]))
answer((np.multiply, "reduce"), _along_first(ADAPTED[np.prod]))
answer((np.maximum, "reduce"), _along_first(ADAPTED[np.max]))
answer((np.minimum, "reduce"), _along_first(ADAPTED[np.min]))
answer((np.logaddexp, "reduce"), _along_first(logsumexp))
answer((np.add, "accumulate"), _along_first(ADAPTED[np.cumsum]))
answer((np.multiply, "accumulate"), _along_first(ADAPTED[np.cumprod]))


def _running(ufunc: np.ufunc) -> Any:
    """Return `ufunc.accumulate` of a maximum or minimum; equal values select the last of them."""

    def accumulate(x: Any, axis: int = 0, **options: Any) -> Tensor:
        check_ufunc_options(ufunc, options)
        array = to_array(x)
        axis = one_axis(f"{ufunc.__name__}.accumulate", axis, array.ndim)
        positions = np.arange(array.shape[axis]).reshape(-1, *[1] * (array.ndim - axis - 1))
        is_next = (array == ufunc.accumulate(array, axis)) | np.isnan(array)
        return take_along_axis(
            x, np.maximum.accumulate(np.where(is_next, positions, 0), axis), axis
        )

    return accumulate


def _logaddexp_accumulate(x: Any, axis: int = 0, **options: Any) -> Tensor:
    check_ufunc_options(np.logaddexp, options)
    axis = one_axis("logaddexp.accumulate", axis, np.ndim(x))
    return stack([*itertools.accumulate(unstack(x, axis=axis), logaddexp)], axis)


answer((np.maximum, "accumulate"), _running(np.maximum))
answer((np.minimum, "accumulate"), _running(np.minimum))
answer((np.logaddexp, "accumulate"), _logaddexp_accumulate)


# -- of all ufuncs


def _outer(ufunc: np.ufunc) -> Any:
    f = DISPATCH[ufunc]

    def outer(a: Any, b: Any, **options: Any) -> Tensor:
        check_ufunc_options(ufunc, options)
        return f(reshape(a, np.shape(a) + (1,) * np.ndim(b)), b)

    return outer


for _ufunc in [
    f for f in DISPATCH if isinstance(f, np.ufunc) and f.nin == 2 and f.signature is None
]:
    answer((_ufunc, "outer"), _outer(_ufunc))
