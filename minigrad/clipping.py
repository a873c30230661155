"""Norm of gradients, and its clipping.

Look at `clip_grad_norm_`. `norm_of` is exact also if the sum of squares overflows or underflows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from .arguments import checked_number
from .changes import mark_changed
from .tensor import Tensor, grad_of, unwrap

__all__ = ["clip_grad_norm_"]


def sum_of_squares(arrays: Iterable[np.ndarray]) -> float:
    """Return Σ x² over flat arrays, computed in their dtype, so it may overflow or underflow."""
    with np.errstate(over="ignore", invalid="ignore"):
        return sum(float(np.dot(x, x)) for x in arrays)


def norm_of(arrays: Iterable[np.ndarray], squares: float) -> float:
    """Return the Euclidean norm of flat arrays; `squares` is their `sum_of_squares`.

    If the sum has overflowed, or may have lost digits by underflow, the norm is computed again from
    x / max |x| in double precision.
    """
    if 1e-20 < squares < math.inf:
        return math.sqrt(squares)
    arrays = list(arrays)
    peak = float(np.max([np.abs(x).max(initial=0.0) for x in arrays], initial=0.0))
    if peak == 0.0 or not math.isfinite(peak):
        return peak
    scaled = (np.divide(x, peak, dtype=np.float64) for x in arrays)
    return peak * math.sqrt(sum(float(np.dot(x, x)) for x in scaled))


def clip_grad_norm_(parameters: Tensor | Iterable[Tensor], max_norm: float) -> float:
    """Scale all gradients down together, in place, to a norm of at most `max_norm`.

    An optimizer's `clip_norm` does the same without an additional pass.

    Parameters
    ----------
    parameters : Tensor or iterable of Tensor
        Parameters without a gradient are skipped.
    max_norm : float
        Largest norm.

    Returns
    -------
    float
        Norm of the gradients before scaling.

    Raises
    ------
    FloatingPointError
        If a gradient is not finite.
    """
    max_norm = checked_number("clip_grad_norm_", "max_norm", max_norm)
    parameters = [parameters] if isinstance(parameters, Tensor) else parameters
    grads = [unwrap(g) for p in parameters if (g := grad_of(p)) is not None]
    flat = [g.reshape(-1).astype(np.result_type(g, np.float32), copy=False) for g in grads]
    norm = norm_of(flat, sum_of_squares(flat))
    if not math.isfinite(norm):
        raise FloatingPointError(f"clip_grad_norm_: the norm of the gradients is {norm}")
    factor = max_norm / (norm + 1e-6)
    if factor < 1:
        for g in grads:
            g *= factor
            mark_changed(g)
    return norm
