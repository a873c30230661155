"""Normalization of rows: layer norm and RMS norm.

Look at `_row_norm`, which is both norms in four lines. Its gradient follows from the operations in
it.

Ba, Kiros, Hinton (2016), arXiv:1607.06450; Zhang, Sennrich (2019), arXiv:1910.07467.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arrays import as_array
from ..fuse import fusible
from ..registry import function
from ..tensor import Tensor
from .arithmetic import sqrt, square
from .reduce import centring_mean, mean

__all__ = ["layer_norm", "rms_norm"]


@fusible
def _row_norm(x: Any, weight: Any, bias: Any, eps: float, centred: bool) -> Tensor:
    """Compute c / √(mean(c²) + eps) · weight + bias for each row; c = row - mean if `centred`."""
    c = x - centring_mean(x, -1) if centred else x
    y = c / sqrt(mean(square(c), -1, keepdims=True) + eps)
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def _checked_row(name: str, x: Any, weight: Any, bias: Any) -> Any:
    """Return x; raise a ValueError unless weight and bias have the shape of a row, or are None."""
    x = x if isinstance(x, Tensor) else as_array(x)
    if not x.shape:
        raise ValueError(f"{name}: x must have rows, a last axis, got a scalar")
    for argument, value in (("weight", weight), ("bias", bias)):
        if value is None:
            continue
        shape = value.shape if isinstance(value, Tensor) else np.shape(value)
        if shape != x.shape[-1:]:
            raise ValueError(
                f"{name}: {argument} must have the shape of a row, {tuple(x.shape[-1:])}, got "
                f"{shape}"
            )
    return x


@function()
def layer_norm(x: Any, *, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Tensor:
    """Normalize each row (last axis) of x to mean 0 and variance 1.

    Parameters
    ----------
    x : Tensor, shape (..., d)
    weight : Tensor, shape (d,), optional
        Factor of the normalized rows.
    bias : Tensor, shape (d,), optional
        Added to the normalized rows.
    eps : float
        Added to the variance, whose divisor is d; 1e-5 by default.

    Returns
    -------
    Tensor, shape (..., d)
        Normalized rows.
    """
    x = _checked_row("layer_norm", x, weight, bias)
    return _row_norm(x, weight, bias, eps=eps, centred=True)


@function()
def rms_norm(x: Any, *, weight: Any = None, eps: float | None = None) -> Tensor:
    """Divide each row (last axis) of x by its root mean square.

    Other parameters and the result: as `layer_norm`.

    Parameters
    ----------
    eps : float, optional
        Added to the mean square; the machine epsilon of the dtype of x by default.
    """
    x = _checked_row("rms_norm", x, weight, None)
    if eps is None:
        eps = float(np.finfo(x.dtype if x.dtype.kind == "f" else float).eps)
    return _row_norm(x, weight, None, eps=eps, centred=False)
