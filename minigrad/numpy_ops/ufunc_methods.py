"""Methods of NumPy's ufuncs for tensors: `np.add.reduce`, `np.multiply.outer` and others."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.forms import check_ufunc_options
from ..core.tensor import DISPATCH, Tensor
from ..ops.reduction import logsumexp
from ..ops.shape import reshape
from . import special as special


def _along_first(function: Any) -> Any:
    """Return a function whose axis is 0 by default, as in the methods of ufuncs."""
    return lambda x, axis=0, **options: function(x, axis, **options)


DISPATCH[np.add, "reduce"] = _along_first(DISPATCH[np.sum])
DISPATCH[np.multiply, "reduce"] = _along_first(DISPATCH[np.prod])
DISPATCH[np.maximum, "reduce"] = _along_first(DISPATCH[np.max])
DISPATCH[np.minimum, "reduce"] = _along_first(DISPATCH[np.min])
DISPATCH[np.logaddexp, "reduce"] = _along_first(logsumexp)
DISPATCH[np.add, "accumulate"] = _along_first(DISPATCH[np.cumsum])
DISPATCH[np.multiply, "accumulate"] = _along_first(DISPATCH[np.cumprod])


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
    DISPATCH[_ufunc, "outer"] = _outer(_ufunc)
