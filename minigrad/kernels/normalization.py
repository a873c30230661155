"""Layer norm (Ba, Kiros, Hinton 2016, arXiv:1607.06450) and RMS norm (Zhang, Sennrich 2019, arXiv:1910.07467).

One kernel does both, alone or of a residual sum, x + dropout(update), whose parts it then need not keep.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..core.op import function, op
from ..core.tensor import Tensor
from ..ops.elementwise import sqrt, square
from ..ops.reduction import mean
from .blocks import BLOCK, as_rows, row_blocks, shares
from .dropout import checked_p, keep_mask

__all__ = ["layer_norm", "rms_norm"]


def row_norm_definition(
    x: Any, update: Any, weight: Any, bias: Any, eps: float, centred: bool, keep: Any, keep_scale: float
) -> Tensor:
    """c / √(mean of c² + eps) · weight + bias of each row, where c is the sum, less its mean if `centred`."""
    if update is not None:
        x = x + (update if keep is None else update * keep * keep_scale)
    c = x - mean(x, -1, True) if centred else x
    y = c / sqrt(mean(square(c), -1, True) + eps)
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def _row_norm_vjp(
    g: Any, x: Any, update: Any, weight: Any, bias: Any, eps: Any, centred: Any, keep: Any, keep_scale: Any,
    saved: Any, needs: Any,
) -> tuple[Any, ...]:  # fmt: skip
    """With n the normalised rows, s their factor and h = g · weight: s (h - mean(h) - n mean(h n))."""
    shape = g.shape
    g = as_rows(g)
    normal, scale = saved
    width = g.shape[1]
    mean_column = shares(width, g.dtype)
    gx = np.empty_like(g)
    updates = needs[1] and keep is not None
    gu = np.empty_like(g) if updates else gx
    kept_rows: Any = None if keep is None else keep.reshape(g.shape)
    gw, gb = np.zeros(width, g.dtype), np.zeros(width, g.dtype)
    work = np.empty((min(len(g), 1 + BLOCK // width), width), g.dtype)
    for block in row_blocks(*g.shape):
        h, n, s, out = g[block], normal[block], scale[block], gx[block]
        part = np.multiply(h, n, out=work[: len(h)])
        if needs[2]:
            gw += np.add.reduce(part, axis=0)
        if needs[3]:
            gb += np.add.reduce(h, axis=0)
        if weight is not None:
            h = np.multiply(h, weight, out=out)
        slope = np.vecdot(h, n)[:, None]
        slope /= width
        np.multiply(n, slope, out=part)
        if centred:
            part += h @ mean_column
        np.subtract(h, part, out=out)
        out *= s
        if updates:
            np.multiply(out, kept_rows[block], out=gu[block])
            gu[block] *= keep_scale
    if needs[0] and needs[1] and not updates:
        gu = gx.copy()
    found = (gx.reshape(shape), gu.reshape(shape), gw, gb)
    return tuple(c if needed else None for c, needed in zip(found, needs))


def _one_row(c: Any, weight: Any, bias: Any, eps: float, centred: bool) -> tuple[Any, Any, Any]:
    """The norm of one row c (d,), with numbers for what are columns in `_row_norm`: in half the time."""
    if centred:
        c = c - float(np.dot(c, shares(len(c), c.dtype)[:, 0]))
    variance = float(np.dot(c, c)) / len(c) + eps
    scale = variance**-0.5 if variance > 0 else math.inf
    normal = c * scale
    y = normal.copy() if weight is None else normal * weight
    if bias is not None:
        y += bias
    return y, normal, scale


@op(vjp=_row_norm_vjp, definition=row_norm_definition)
def _row_norm(x, update, weight, bias, /, eps, centred, keep, keep_scale):
    rows = as_rows(x)
    n, width = rows.shape
    if update is not None and update.shape != x.shape:
        raise ValueError("expected an update of the shape of x")
    updates = None if update is None else as_rows(update)
    if n == 1 and width and keep is None:
        c = rows[0] if updates is None else rows[0] + updates[0]
        row, *kept = _one_row(c, weight, bias, eps, centred)
        return row.reshape(x.shape), (kept[0][None], np.full((1, 1), kept[1], rows.dtype))
    kept_rows: Any = None if keep is None else keep.reshape(n, width)
    mean_column = shares(width, rows.dtype)
    normal, scale = np.empty_like(rows), np.empty((n, 1), rows.dtype)
    y = np.empty_like(rows)
    for block in row_blocks(n, width):
        c, part, s = rows[block], normal[block], scale[block]
        if updates is not None and kept_rows is None:
            c = np.add(c, updates[block], out=part)
        elif updates is not None:
            np.multiply(updates[block], kept_rows[block], out=part)
            np.multiply(part, keep_scale, out=part)
            c = np.add(part, c, out=part)
        if centred:
            c = np.subtract(c, c @ mean_column, out=part)
        s[:, 0] = np.vecdot(c, c)
        s /= width
        s += eps
        np.sqrt(s, out=s)
        np.reciprocal(s, out=s)
        np.multiply(c, s, out=part)
        if weight is not None:
            part = np.multiply(part, weight, out=y[block])
        if bias is not None or weight is None:
            np.add(part, 0 if bias is None else bias, out=y[block])
    return y.reshape(x.shape), (normal, scale)


def _normalised(
    x: Any, update: Any, weight: Any, bias: Any, eps: float, centred: bool, p: float, generator: Any
) -> Tensor:
    keep, keep_scale = keep_mask(np.shape(x), p, generator) if update is not None and checked_p(p) else (None, 1.0)
    return _row_norm(x, update, weight, bias, eps, centred, keep, keep_scale)


@function()
def layer_norm(
    x: Any,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    update: Any = None,
    dropout: float = 0.0,
    generator: np.random.Generator | None = None,
) -> Tensor:
    """Each row of x (its last axis) brought to mean 0 and variance 1, times `weight`, plus `bias`.

    The variance is the biased one, as in PyTorch; `weight` and `bias` have the length of a row. With
    `update`, of the shape of x, it is the sum x + dropout(update, p) that is normalised, for the
    probability p = `dropout`.
    """
    return _normalised(x, update, weight, bias, eps, True, dropout, generator)


@function()
def rms_norm(
    x: Any,
    weight: Any = None,
    eps: float = 1e-5,
    update: Any = None,
    dropout: float = 0.0,
    generator: np.random.Generator | None = None,
) -> Tensor:
    """Each row of x (its last axis) divided by the root of its mean square, times `weight`.

    `update` and `dropout` as in `layer_norm`.
    """
    return _normalised(x, update, weight, None, eps, False, dropout, generator)
