"""Kernels. The references are loops over rows; the second derivatives come from the kernels' definitions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import minigrad as mg
from minigrad.kernels.dropout import dropout_mask

from .base import Draw, Sample, add


def _rows_of(x: np.ndarray) -> np.ndarray:
    return x.reshape(math.prod(x.shape[:-1]), x.shape[-1])


def _linear(d: Draw) -> Sample:
    x = d.array((*d.shape(max_ndim=2), 3), 0.2, 1)
    out = d.one_of(1, 2, 4)
    bias = d.array((out,), 0.1, 1) if d.bool() else None
    weight = (
        d.array((out, 3), 0.2, 1) * d.rng.choice([-1, 1], (out, 1))
        if bias is None
        else d.array((out, 3), 0.2, 1)
    )
    return Sample([x, weight, bias])


def _linear_reference(x: np.ndarray, weight: np.ndarray, bias: Any) -> np.ndarray:
    y = np.array([[math.fsum(row * w) for w in weight] for row in _rows_of(x)]).reshape(
        *x.shape[:-1], len(weight)
    )
    return y if bias is None else y + bias


add(
    "linear",
    _linear_reference,
    _linear,
    analytic=False,
    errors=[
        (
            lambda: mg.linear(np.ones((2, 3)), np.ones((4, 2))),
            ValueError,
            r"linear: expected x \(..., in\).*x \(2, 3\) float64",
        ),
    ],
)


def _normalised(d: Draw) -> Sample:
    width = d.one_of(2, 3, 8)
    x = d.array((*d.shape(max_ndim=2, min_side=1), width), -1, 1) + np.arange(width)
    weight, bias = (d.array((width,)) if d.bool() else None for _ in range(2))
    return Sample([x, weight, bias], {"eps": d.one_of(1e-5, 0.1)})


def _layer_norm(x: np.ndarray, weight: Any, bias: Any, eps: float) -> np.ndarray:
    rows = [
        (r - r.mean()) / math.sqrt(sum((r - r.mean()) ** 2) / len(r) + eps) for r in _rows_of(x)
    ]
    y = np.array(rows).reshape(x.shape) * (1 if weight is None else weight)
    return y if bias is None else y + bias


def _layer_norm_call(x: Any, weight: Any, bias: Any, **options: Any) -> Any:
    return mg.layer_norm(x, weight=weight, bias=bias, **options)


def _rms_normalised(d: Draw) -> Sample:
    sample = _normalised(d)
    del sample.operands[2]
    return sample


def _rms_norm(x: np.ndarray, weight: Any, eps: float) -> np.ndarray:
    rows = [r / math.sqrt(sum(r * r) / len(r) + eps) for r in _rows_of(x)]
    return np.array(rows).reshape(x.shape) * (1 if weight is None else weight)


for _name in ("row_norm", "layer_norm"):
    add(_name, _layer_norm, _normalised, call=_layer_norm_call, analytic=False)
add(
    "rms_norm",
    _rms_norm,
    _rms_normalised,
    call=lambda x, weight, **options: mg.rms_norm(x, weight=weight, **options),
    analytic=False,
)


def _attention(d: Draw) -> Sample:
    n, kv, groups, lq, lk = (
        d.one_of(1, 2),
        d.one_of(1, 2),
        d.one_of(1, 1, 2),
        d.one_of(1, 3),
        d.one_of(1, 2, 4),
    )
    h, dk, dv = kv * groups, d.one_of(1, 2), d.one_of(1, 3)
    mask = d.one_of(None, (n, 1, 1, lk), (1, 1, lq, lk), (n, h, lq, lk), (lq, lk))
    mask = None if mask is None else d.rng.random(mask) < 0.6
    bias = d.one_of(None, (h, lq, lk), (n, 1, 1, lk), (n, h, lq, lk), (lq, 1))
    options = {"mask": mask, "scale": d.one_of(None, 0.3), "dropout": d.one_of(0.0, 0.4)}
    far = d.one_of(1, 1, 100)  # scores whose exponentials would overflow
    query, key, value = (
        d.array(shape) for shape in ((n, h, lq, dk), (n, kv, lk, dk), (n, kv, lk, dv))
    )
    return Sample([query * far, key, value, None if bias is None else d.array(bias)], options)


def _attention_call(query: Any, key: Any, value: Any, bias: Any, **options: Any) -> Any:
    return mg.scaled_dot_product_attention(
        query, key, value, bias=bias, **options, generator=np.random.default_rng(0)
    )


def _attention_reference(
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    bias: Any,
    mask: Any,
    scale: Any,
    dropout: float,
) -> np.ndarray:
    (n, num_heads, lq, dk), (kv, lk) = query.shape, key.shape[1:3]
    shape, group = (n, num_heads, lq, lk), num_heads // kv
    mask = np.broadcast_to(True if mask is None else mask, shape)
    bias = np.broadcast_to(0.0 if bias is None else bias, shape)
    keep, factor = np.ones(shape), 1.0
    if dropout:
        keep, factor = dropout_mask(shape, dropout, np.random.default_rng(0))
    y = np.zeros((n, num_heads, lq, value.shape[3]))
    for b, h, i in np.ndindex(n, num_heads, lq):
        seen = [j for j in range(lk) if mask[b, h, i, j]]
        products = [query[b, h, i] @ key[b, h // group, j] for j in seen]
        factors = 1 / math.sqrt(dk) if scale is None else scale
        scores = [p * factors + bias[b, h, i, j] for p, j in zip(products, seen)]
        exponentials = [math.exp(s - max(scores)) for s in scores]
        for j, e in zip(seen, exponentials):
            weight = e / sum(exponentials) * keep[b, h, i, j] * factor
            y[b, h, i] += weight * value[b, h // group, j]
    return y


def _attend(*shapes: tuple[int, ...], **options: Any) -> Any:
    return lambda: mg.scaled_dot_product_attention(*map(np.ones, shapes), **options)


_SHAPE = (1, 1, 2, 4)
_ATTENTION_ERRORS = [
    (_attend((1, 3, 2, 4), (1, 2, 2, 4), (1, 2, 2, 4)), ValueError, "h_kv dividing h, got"),
    (
        _attend((2, 4), (2, 4), (2, 4)),
        ValueError,
        r"must have shapes \(N, h, L_q, d_k\), .* got \(2, 4\)",
    ),
    (
        _attend(_SHAPE, _SHAPE, _SHAPE, mask=np.ones((2, 2))),
        TypeError,
        "expected booleans, True = may attend, got dtype float64",
    ),
    (
        _attend(_SHAPE, _SHAPE, _SHAPE, mask=np.ones((3, 3), bool)),
        ValueError,
        r"mask must broadcast to \(N, h, L_q, L_kv\), \(1, 1, 2, 2\), got \(3, 3\)",
    ),
    (
        _attend(_SHAPE, _SHAPE, _SHAPE, mask=np.ones((2, 2, 2), bool)),
        ValueError,
        r"mask must have two axes .* got shape \(2, 2, 2\)\. Write mask\[:, None\] for",
    ),
    (
        _attend(_SHAPE, _SHAPE, _SHAPE, bias=np.ones((2, 2, 2))),
        ValueError,
        r"bias must broadcast to \(N, h, L_q, L_kv\), \(1, 1, 2, 2\), got \(2, 2, 2\)",
    ),
]
for _name in ("attention", "scaled_dot_product_attention"):
    add(
        _name,
        _attention_reference,
        _attention,
        call=_attention_call,
        analytic=False,
        errors=_ATTENTION_ERRORS,
    )


def _split_heads(d: Draw) -> Sample:
    heads = d.one_of(1, 2, 3)
    x = d.array((d.one_of(1, 2), d.one_of(0, 1, 3), heads * d.one_of(1, 2)))
    return Sample([x], {"num_heads": heads})


add(
    "split_heads",
    lambda x, num_heads: np.stack(np.split(x, num_heads, -1), 1),
    _split_heads,
    errors=[
        (
            lambda: mg.split_heads(np.ones((1, 2, 4)), 3),
            ValueError,
            "num_heads must divide the last axis of x, got num_heads=3",
        ),
    ],
)
add(
    "merge_heads",
    lambda x: np.concatenate([x[:, h] for h in range(x.shape[1])], -1),
    lambda d: Sample([d.array((d.one_of(1, 2), d.one_of(1, 3), d.one_of(1, 3), d.one_of(1, 2)))]),
)


def _dropout_reference(x: np.ndarray, p: float) -> np.ndarray:
    mask, factor = dropout_mask(x.shape, p, np.random.default_rng(0))
    return np.where(mask, x * factor, 0)


add(
    "dropout",
    _dropout_reference,
    lambda d: Sample([d.array(d.shape())], {"p": d.one_of(0.1, 0.5)}),
    call=lambda x, p: mg.dropout(x, p, generator=np.random.default_rng(0)),
    errors=[
        (lambda: mg.dropout(np.ones(2), 1.0), ValueError, "dropout: expected 0 <= p < 1, got 1.0")
    ],
)
add(
    "relu_dropout",
    lambda x, p: _dropout_reference(np.where(x > 0, x, 0), p),
    lambda d: Sample([d.array(d.shape(), kinks=(0,))], {"p": d.one_of(0.1, 0.5)}),
    call=lambda x, p: mg.relu_dropout(x, p=p, generator=np.random.default_rng(0)),
    analytic=False,
    errors=[
        (
            lambda: mg.relu_dropout(np.ones(2), p=1.0),
            ValueError,
            "dropout: expected 0 <= p < 1, got 1.0",
        )
    ],
)


def _lookup(d: Draw) -> Sample:
    n = d.one_of(2, 5, 300)  # tables of different sizes have different gradients
    ids = d.rng.integers(0, n, d.shape(max_ndim=2, max_side=20))
    return Sample([d.array((n, 2))], {"indices": ids})


add(
    "embedding",
    lambda weight, indices: weight[indices],
    _lookup,
    errors=[
        (
            lambda: mg.embedding(np.ones((3, 2)), [0, 3]),
            IndexError,
            "embedding: expected indices from 0 to 2, got 0 to 3",
        ),
        (
            lambda: mg.embedding(np.ones((3, 2)), [0.0]),
            TypeError,
            "embedding: expected integer indices, got dtype float64",
        ),
    ],
)


def _classified(d: Draw) -> Sample:
    classes = d.one_of(2, 5)
    x = d.array((*d.shape(1, 2, 1), classes))
    targets = d.rng.integers(0, classes, x.shape[:-1])
    targets[d.rng.random(targets.shape) < 0.2] = -100
    weight = d.rng.uniform(0.5, 2, classes) if d.bool() else None
    reduction = d.one_of("mean", "sum", "none")
    return Sample(
        [x],
        {
            "target": targets,
            "weight": weight,
            "label_smoothing": d.one_of(0.0, 0.1),
            "reduction": reduction,
        },
    )


def _cross_entropy(
    x: np.ndarray, target: np.ndarray, weight: Any, label_smoothing: float, reduction: str
) -> np.ndarray:
    classes, rows, total = x.shape[-1], [], 0.0
    w = np.ones(classes) if weight is None else weight
    for row, t in zip(_rows_of(x), target.ravel()):
        logp = [v - math.log(sum(map(math.exp, row))) for v in row]
        smooth = label_smoothing / classes * sum(-w[c] * logp[c] for c in range(classes))
        rows.append(0.0 if t == -100 else -(1 - label_smoothing) * w[t] * logp[t] + smooth)
        total += 0.0 if t == -100 else w[t]
    if reduction == "none":
        return np.array(rows).reshape(target.shape)
    return np.asarray(sum(rows) / ((total or 1.0) if reduction == "mean" else 1.0))


add(
    "cross_entropy",
    _cross_entropy,
    _classified,
    analytic=False,
    errors=[
        (
            lambda: mg.cross_entropy(np.ones((2, 3)), [0, 3]),
            IndexError,
            "expected targets from 0 to 2 or -100, got 0 to 3",
        ),
        (
            lambda: mg.cross_entropy(np.ones((2, 3)), [0]),
            ValueError,
            r"expected targets of shape \(2,\), got \(1,\)",
        ),
        (
            lambda: mg.cross_entropy(np.ones((2, 3)), [0.0, 1.0]),
            TypeError,
            "expected integer targets, got dtype float64",
        ),
        (
            lambda: mg.cross_entropy(np.ones((2, 3)), [0, 1], reduction="max"),
            ValueError,
            "expected reduction 'mean', 'sum' or 'none'",
        ),
        (
            lambda: mg.cross_entropy(np.ones((2, 3)), [0, 1], np.ones(2)),
            ValueError,
            r"expected 3 class weights, got shape \(2,\)",
        ),
    ],
)


def _projected(d: Draw) -> Sample:
    sample = _classified(d)
    shape, classes = sample.operands[0].shape[:-1], sample.operands[0].shape[-1]
    sample.operands = [
        d.array((*shape, 3)),
        d.array((classes, 3)),
        d.array((classes,)) if d.bool() else None,
    ]
    sample.options["reduction"] = d.one_of("mean", "sum")
    return sample


def _projected_reference(
    x: np.ndarray, linear_weight: np.ndarray, linear_bias: Any, **options: Any
) -> np.ndarray:
    return _cross_entropy(_linear_reference(x, linear_weight, linear_bias), **options)


def _projected_call(x: Any, linear_weight: Any, linear_bias: Any, **options: Any) -> Any:
    return mg.linear_cross_entropy(x, linear_weight, linear_bias=linear_bias, **options)


add(
    "linear_cross_entropy",
    _projected_reference,
    _projected,
    call=_projected_call,
    analytic=False,
)
