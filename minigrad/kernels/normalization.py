"""Layer norm (Ba, Kiros, Hinton 2016, arXiv:1607.06450) and RMS norm (Zhang, Sennrich 2019, arXiv:1910.07467)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..op import function, op
from ..ops.elementwise import sqrt, square
from ..ops.reduction import mean
from ..tensor import Tensor
from .blocks import as_rows, ones, row_blocks

__all__ = ["layer_norm", "rms_norm"]


def layer_norm_definition(x: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Tensor:
    """(x - mean) / √(variance + eps) · weight + bias, of each row."""
    centred = x - mean(x, -1, True)
    y = centred / sqrt(mean(square(centred), -1, True) + eps)
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def _layer_norm_vjp(g: Any, x: Any, weight: Any, bias: Any, eps: Any, kept: Any, needs: Any) -> tuple[Any, Any, Any]:
    g, rows = as_rows(g), as_rows(x)
    middle, scale = kept
    width = rows.shape[1]
    one = ones(width, rows.dtype) / width
    gx = np.empty_like(rows)
    gw, gb = np.zeros(width, rows.dtype), np.zeros(width, rows.dtype)
    for block in row_blocks(*rows.shape):
        gr, s = g[block], scale[block]
        normal = rows[block] - middle[block]
        normal *= s
        if needs[1]:
            gw += np.add.reduce(gr * normal, axis=0)
        if needs[2]:
            gb += np.add.reduce(gr, axis=0)
        if needs[0]:
            gn = gr if weight is None else gr * weight
            slope = np.vecdot(gn, normal)[:, None] / width
            out = np.subtract(gn, gn @ one, out=gx[block])
            np.multiply(normal, slope, out=normal)
            np.subtract(out, normal, out=out)
            np.multiply(out, s, out=out)
    return gx.reshape(x.shape) if needs[0] else None, gw if needs[1] else None, gb if needs[2] else None


@op(vjp=_layer_norm_vjp, definition=layer_norm_definition)
def _layer_norm(x, weight, bias, /, eps=1e-5):
    rows = as_rows(x)
    width = rows.shape[1]
    one = ones(width, rows.dtype) / width
    y = np.empty_like(rows)
    middle, scale = (np.empty((len(rows), 1), rows.dtype) for _ in range(2))
    for block in row_blocks(*rows.shape):
        part, m, s = y[block], middle[block], scale[block]
        np.matmul(rows[block], one, out=m)
        np.subtract(rows[block], m, out=part)
        s[:, 0] = np.vecdot(part, part)
        s /= width
        s += eps
        np.sqrt(s, out=s)
        np.reciprocal(s, out=s)
        part *= s
        if weight is not None:
            part *= weight
        if bias is not None:
            part += bias
    return y.reshape(x.shape), (middle, scale)


@function()
def layer_norm(x: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Tensor:
    """Each row of x (its last axis) brought to mean 0 and variance 1, times `weight`, plus `bias`.

    The variance is the biased one, as in PyTorch; `weight` and `bias` have the length of a row.
    """
    return _layer_norm(x, weight, bias, eps=eps)


def rms_norm_definition(x: Any, weight: Any = None, eps: float = 1e-5) -> Tensor:
    """x / √(mean of squares + eps) · weight, of each row."""
    y = x / sqrt(mean(square(x), -1, True) + eps)
    return y if weight is None else y * weight


def _rms_norm_vjp(g: Any, x: Any, weight: Any, eps: Any, kept: Any, needs: Any) -> tuple[Any, Any]:
    g, rows = as_rows(g), as_rows(x)
    width = rows.shape[1]
    gx = np.empty_like(rows)
    gw = np.zeros(width, rows.dtype)
    for block in row_blocks(*rows.shape):
        gr, s = g[block], kept[block]
        normal = rows[block] * s
        if needs[1]:
            gw += np.add.reduce(gr * normal, axis=0)
        if needs[0]:
            gn = gr if weight is None else gr * weight
            normal *= np.vecdot(gn, normal)[:, None] / width
            np.subtract(gn, normal, out=gx[block])
            gx[block] *= s
    return gx.reshape(x.shape) if needs[0] else None, gw if needs[1] else None


@op(vjp=_rms_norm_vjp, definition=rms_norm_definition)
def _rms_norm(x, weight, /, eps=1e-5):
    rows = as_rows(x)
    y = np.empty_like(rows)
    scale = np.empty((len(rows), 1), rows.dtype)
    for block in row_blocks(*rows.shape):
        part, s = rows[block], scale[block]
        s[:, 0] = np.vecdot(part, part)
        s /= rows.shape[1]
        s += eps
        np.sqrt(s, out=s)
        np.reciprocal(s, out=s)
        np.multiply(part, s, out=y[block])
        if weight is not None:
            y[block] *= weight
    return y.reshape(x.shape), scale


@function()
def rms_norm(x: Any, weight: Any = None, eps: float = 1e-5) -> Tensor:
    """Each row of x (its last axis) divided by the root of its mean square, times `weight`."""
    return _rms_norm(x, weight, eps=eps)
