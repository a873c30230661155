"""Kernels; their second derivatives come from their definitions."""

from __future__ import annotations

from typing import Any

import numpy as np

import minigrad as mg

from .base import Draw, Sample, add, by_definition
from .losses import classified, negative_log_likelihood


def _linear_sample(d: Draw) -> Sample:
    x, out = d.array((*d.shape(max_ndim=2), 3)), d.one_of(1, 2, 4)
    return Sample(x, d.array((out, 3)), d.array((out,)) if d.bool() else None)


def _linear(x: np.ndarray, weight: np.ndarray, bias: Any) -> np.ndarray:
    return x @ weight.T + (0 if bias is None else bias)


add("linear", _linear_sample, _linear)

# -- norms -------------------------------------------------------------------------------------------


def _norm_sample(d: Draw) -> Sample:
    width = d.one_of(2, 3, 8)
    x = d.array((*d.shape(max_ndim=2, min_side=1), width), -1, 1) + np.arange(width)
    weight, bias = (d.array((width,)) if d.bool() else None for _ in range(2))
    return Sample(x, weight=weight, bias=bias, eps=d.one_of(1e-5, 0.1))


def _rms_norm_sample(d: Draw) -> Sample:
    sample = _norm_sample(d)
    del sample.options["bias"]
    return sample


def _rms_norm(x: np.ndarray, weight: Any, eps: float) -> np.ndarray:
    y = x / np.sqrt((x * x).mean(-1, keepdims=True) + eps)
    return y if weight is None else y * weight


def _layer_norm(x: np.ndarray, weight: Any, bias: Any, eps: float) -> np.ndarray:
    y = _rms_norm(x - x.mean(-1, keepdims=True), weight, eps)
    return y if bias is None else y + bias


for _name in ("row_norm", "layer_norm"):
    add(_name, _norm_sample, _layer_norm, mg.layer_norm)
add("rms_norm", _rms_norm_sample, _rms_norm)

# -- attention ---------------------------------------------------------------------------------------


def _attention_sample(d: Draw) -> Sample:
    """Draw attention with any of its masks, biases, scales and groups of heads."""
    n, kv, lq, lk = d.one_of(2, 3, 1, 0), d.one_of(1, 2), d.one_of(1, 3), d.one_of(1, 2, 4)
    h, dk, dv = kv * d.one_of(1, 1, 2), d.one_of(1, 2), d.one_of(1, 3)
    shapes = (None, (n, 1, 1, lk), (1, h, lq, lk), (n, h, lq, lk), (lq, lk))
    mask, bias = d.one_of(*shapes), d.one_of(*shapes, (h, lq, 1))
    query, key, value = map(d.array, ((n, h, lq, dk), (n, kv, lk, dk), (n, kv, lk, dv)))
    return Sample(
        query * d.one_of(1, 1, 100),  # exponentials of the scores would overflow
        key,
        value,
        bias=None if bias is None else d.array(bias),
        mask=None if mask is None else d.mask(mask),
        scale=d.one_of(None, 0.3),
        dropout=d.one_of(0.0, 0.4),
    )


def _attend(query: Any, key: Any, value: Any, **options: Any) -> Any:
    return mg.scaled_dot_product_attention(
        query, key, value, **options, generator=np.random.default_rng(0)
    )


for _name in ("attention", "scaled_dot_product_attention"):
    add(_name, _attention_sample, by_definition(_attend), _attend)


def _split_heads_sample(d: Draw) -> Sample:
    heads = d.one_of(1, 2, 3)
    return Sample(d.array((2, d.one_of(0, 1, 3), heads * d.one_of(1, 2))), num_heads=heads)


add(
    "split_heads",
    _split_heads_sample,
    lambda x, num_heads: np.stack(np.split(x, num_heads, -1), 1),
)
add(
    "merge_heads",
    lambda d: Sample(d.array((2, d.one_of(1, 3), d.one_of(1, 3), d.one_of(1, 2)))),
    lambda x: np.concatenate([x[:, h] for h in range(x.shape[1])], -1),
)

# -- dropout, embeddings, losses ---------------------------------------------------------------------


def _dropout_sample(d: Draw) -> Sample:
    return Sample(d.array(d.shape(), kinks=(0,)), p=d.one_of(0.1, 0.5))


def _embedding_sample(d: Draw) -> Sample:
    rows = d.one_of(2, 5, 300)  # gradients of small and large tables are computed differently
    return Sample(d.array((rows, 2)), d.integers(0, rows, d.shape(max_ndim=2, max_side=20)))


def _cross_entropy_sample(d: Draw) -> Sample:
    sample = classified(d)
    sample.options["label_smoothing"] = d.one_of(0.0, 0.1)
    return sample


def _linear_cross_entropy_sample(d: Draw) -> Sample:
    sample = _cross_entropy_sample(d)
    *rows, classes = sample.operands[0].shape
    bias = d.array((classes,)) if d.bool() else None
    sample.operands = [d.array((*rows, 3)), d.array((classes, 3))]
    sample.options["linear_bias"] = bias
    sample.options["reduction"] = d.one_of("mean", "sum")
    return sample


def _cross_entropy(x: np.ndarray, **options: Any) -> Any:
    return negative_log_likelihood(x - np.log(np.exp(x).sum(-1, keepdims=True)), **options)


def _dropout(x: Any, p: float) -> Any:
    return mg.dropout(x, p, generator=np.random.default_rng(0))


def _relu_dropout(x: Any, p: float) -> Any:
    return mg.relu_dropout(x, p=p, generator=np.random.default_rng(0))


for _call in (_dropout, _relu_dropout):
    add(_call.__name__[1:], _dropout_sample, by_definition(_call), _call)
add("embedding", _embedding_sample, lambda weight, indices: weight[indices])
add("cross_entropy", _cross_entropy_sample, _cross_entropy)
add(
    "linear_cross_entropy",
    _linear_cross_entropy_sample,
    by_definition(mg.linear_cross_entropy),
)
