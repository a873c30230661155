"""Functions of the book in NumPy's argument forms, if those differ."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arguments import ints
from ..ops.shape import reordered, reshape, where
from ..tensor import Tensor, unwrap
from .forms import numpy_form


@numpy_form(np.where)
def _np_where(condition: Any, x: Any = None, y: Any = None) -> Any:
    if x is None and y is None:
        return tuple(map(Tensor, np.nonzero(unwrap(condition))))
    if x is None or y is None:
        raise ValueError("np.where: x and y must be given together")
    return where(unwrap(condition), x, y)


@numpy_form(np.reshape)
def _np_reshape(a: Any, shape: Any, order: str = "C", *, copy: bool | None = None) -> Tensor:
    y = reshape(a, shape, order=order)
    if copy is False and np.ndim(a) and not np.shares_memory(unwrap(y), unwrap(a)):
        raise ValueError("np.reshape: this shape needs a copy, and copy=False")
    return y.clone() if copy else y


numpy_form(np.transpose)(lambda a, axes=None: reordered(a, None if axes is None else ints((axes,))))
