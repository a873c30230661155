"""Kernel of layer norm and RMS norm: blocks of rows, normalized in place."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..fuse import fuse
from ..ops import network
from .blocks import BLOCK, as_rows, mean_column, ones, row_blocks


def _row_norm_vjp(
    g: Any, x: Any, weight: Any, bias: Any, eps: Any, centred: Any, saved: Any, needs: Any
) -> tuple[Any, ...]:
    """Return s (h - mean(h) - c s² mean(h c)) for centred rows c, factors s and h = g · weight."""
    shape, (means, scale) = g.shape, saved
    g, rows = as_rows(g), as_rows(x)
    width = g.shape[1]
    gx = np.empty_like(g)
    gw, gb = np.zeros((1, width), g.dtype), np.zeros((1, width), g.dtype)
    work = np.empty((2, min(len(g), 1 + BLOCK // max(width, 1)), width), g.dtype)
    for block in row_blocks(*g.shape) if width else ():
        h, s, out = g[block], scale[block], gx[block]
        spare, part = work[:, : len(h)]
        c = np.subtract(rows[block], means[block], out=spare) if centred else rows[block]
        if needs[1]:
            gw += s.T @ np.multiply(h, c, out=part)
        if needs[2]:
            gb += ones(len(h), g.dtype).T @ h
        if weight is not None:
            h = np.multiply(h, weight, out=out)
        slope = np.vecdot(h, c)[:, None]
        slope *= s
        slope *= s
        slope /= width
        c = np.multiply(c, slope, out=spare)
        if centred:
            c += h @ mean_column(width, g.dtype)
        np.subtract(h, c, out=out)
        out *= s
    grads = (gx.reshape(shape), gw[0], gb[0])
    return tuple(c if needed else None for c, needed in zip(grads, needs))


_FAR = 16.0
"""Means larger than this number of standard deviations are corrected for rounding."""


def _normalize_block(
    rows: np.ndarray,
    weight: np.ndarray | None,
    bias: np.ndarray | None,
    means: np.ndarray | None,
    scale: np.ndarray,
    y: np.ndarray,
    block: slice,
    eps: float,
) -> None:
    """Write the factors of the rows `block` to `scale`, and the normalized rows to `y`."""
    c, part, s = rows[block], y[block], scale[block]
    if means is not None:
        c = np.subtract(c, means[block], out=part)
    s[:, 0] = np.vecdot(c, c)
    s /= c.shape[1]
    s += eps
    np.sqrt(s, out=s)
    np.reciprocal(s, out=s)
    np.multiply(c, s, out=part)
    if weight is not None:
        part *= weight
    if bias is not None:
        part += bias


@fuse(network._row_norm, vjp=_row_norm_vjp)
def _row_norm(x, weight, bias, /, eps, centred):
    rows = as_rows(x)
    n, width = rows.shape
    y, scale = np.empty_like(rows), np.empty((n, 1), rows.dtype)
    means = np.empty_like(scale) if centred else None
    blocks = row_blocks(n, width) if width else ()
    for block in blocks:
        if means is not None:
            np.matmul(rows[block], mean_column(width, rows.dtype), out=means[block])
        _normalize_block(rows, weight, bias, means, scale, y, block, eps)
    if means is not None and np.fmax.reduce(np.abs(means * scale), None, initial=0) > _FAR:
        # a large mean is rounded more coarsely than small deviations from it
        for block in blocks:
            means[block] += (rows[block] - means[block]) @ mean_column(width, rows.dtype)
            _normalize_block(rows, weight, bias, means, scale, y, block, eps)
    return y.reshape(x.shape), (means, scale)


forward_row_norm = _row_norm.op.forward  # type: ignore[attr-defined]  # takes arrays, returns means too
