"""Methods of NumPy's ufuncs for tensors: `np.add.reduce`, `np.multiply.outer` and others."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.forms import check_ufunc_options
from ..core.tensor import DISPATCH, Tensor
from ..ops import reduction
from ..ops.reduction import cumprod, cumsum, logsumexp, prod
from ..ops.shape import reshape
from . import special as special


def _reduce(reduction: Any) -> Any:
    """Return a reduction whose axis is 0 by default, as in `ufunc.reduce`."""
    return lambda x, axis=0, **options: reduction(x, axis, **options)


DISPATCH[np.add, "reduce"] = _reduce(reduction.sum)
DISPATCH[np.multiply, "reduce"] = _reduce(prod)
DISPATCH[np.maximum, "reduce"] = _reduce(reduction.max)
DISPATCH[np.minimum, "reduce"] = _reduce(reduction.min)
DISPATCH[np.logaddexp, "reduce"] = _reduce(logsumexp)
DISPATCH[np.add, "accumulate"] = lambda x, axis=0, **options: cumsum(x, axis, **options)
DISPATCH[np.multiply, "accumulate"] = lambda x, axis=0, **options: cumprod(x, axis, **options)


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
