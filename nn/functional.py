"""What PyTorch calls torch.nn.functional: the functions of layers and losses, in its order of
arguments.

    from nn import functional as F

The functions of minigrad are those of the same names, with these exceptions: `embedding` and
`layer_norm` take their arguments in another order there, and `scaled_dot_product_attention` takes
heads side by side.
"""

from __future__ import annotations

import typing as _typing
from collections.abc import Sequence
from typing import Any

import numpy as np

import minigrad as mg
from minigrad import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    cross_entropy,
    dropout,
    elu,
    gelu,
    huber_loss,
    kl_div,
    l1_loss,
    leaky_relu,
    linear,
    log_softmax,
    mse_loss,
    nll_loss,
    one_hot,
    relu,
    sigmoid,
    silu,
    smooth_l1_loss,
    softmax,
    softplus,
    tanh,
)
from minigrad import log_sigmoid as logsigmoid
from minigrad.core.tensor import Tensor
from minigrad.ops.axes import check_broadcast, number
from minigrad.ops.reduction import is_half

from .layers.norm import normalize_trailing_axes

__all__ = [
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "cosine_similarity",
    "cross_entropy",
    "dropout",
    "elu",
    "embedding",
    "gelu",
    "huber_loss",
    "kl_div",
    "l1_loss",
    "layer_norm",
    "leaky_relu",
    "linear",
    "log_softmax",
    "logsigmoid",
    "mse_loss",
    "nll_loss",
    "normalize",
    "one_hot",
    "relu",
    "scaled_dot_product_attention",
    "sigmoid",
    "silu",
    "smooth_l1_loss",
    "softmax",
    "softplus",
    "tanh",
]


def embedding(input: Any, weight: Any, padding_idx: int | None = None) -> Tensor:
    """Rows of `weight` (n, d) at integers `input` (...): (..., d)."""
    return mg.embedding(weight, input, padding_idx)


def layer_norm(
    input: Any,
    normalized_shape: Sequence[int],
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalize the last axes, of lengths `normalized_shape`, to mean 0 and variance 1.

    The result is multiplied by `weight` and `bias` is added, both of shape `normalized_shape`.
    """
    shape = tuple(normalized_shape)
    return normalize_trailing_axes(mg.layer_norm, "layer_norm", input, shape, weight, bias, eps=eps)


def scaled_dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
) -> Tensor:
    """softmax(query · keyᵀ · scale) · value, for (..., L, d), (..., S, d) and (..., S, dv): (...,
    L, dv).

    `attn_mask` broadcasts to (..., L, S): booleans, True = may attend, or numbers that are added to
    the scores. `scale` is 1 / √d unless given. As in PyTorch, `dropout_p` acts in evaluation too:
    pass 0 there.
    """
    if is_causal and attn_mask is not None:
        raise ValueError("scaled_dot_product_attention: expected attn_mask or is_causal, not both")
    name = "scaled_dot_product_attention"
    scale = np.shape(query)[-1] ** -0.5 if scale is None else number(name, "scale", scale)
    if is_half(query):  # whose products may be larger than it holds
        query, key, value = (mg.astype(x, np.float32) for x in (query, key, value))
        found = scaled_dot_product_attention(
            query, key, value, attn_mask, dropout_p, is_causal, scale=scale
        )
        return mg.astype(found, np.float16)
    scores = mg.matmul(query, mg.swapaxes(key, -1, -2)) * scale
    mask: Any = np.tri(*scores.shape[-2:], dtype=bool) if is_causal else attn_mask
    if mask is None or is_causal:
        weights = mg.softmax(scores, where=mask)
    else:
        mask = mask if isinstance(mask, Tensor) else np.asarray(mask)
        check_broadcast(name, "attn_mask", mask, scores.shape, "the scores")
        if mask.dtype == bool:
            weights = mg.softmax(scores, where=mask)
        elif mask.dtype.kind == "f":
            weights = mg.softmax(scores + mg.astype(mask, scores.dtype))
        else:
            raise TypeError(
                f"{name}: attn_mask must be boolean (True = may attend) or floating, got "
                f"{mask.dtype}; write attn_mask.astype(bool)"
            )
    return mg.matmul(mg.dropout(weights, dropout_p), value)


def normalize(input: Any, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Tensor:
    """x divided by its p-norm over `dim`, or by `eps` where that is larger."""
    return mg.divide(input, mg.maximum(mg.vector_norm(input, axis=dim, keepdims=True, ord=p), eps))


def cosine_similarity(x1: Any, x2: Any, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """The cosine of the angle between x1 and x2 along `dim`; lengths count as `eps` at least."""
    lengths = [mg.maximum(mg.vector_norm(x, axis=dim, keepdims=True), eps) for x in (x1, x2)]
    return mg.sum(mg.multiply(mg.divide(x1, lengths[0]), mg.divide(x2, lengths[1])), dim)


if not _typing.TYPE_CHECKING:  # for type checkers a name that is not here is an error

    def __getattr__(name: str) -> _typing.NoReturn:
        from minigrad.missing import missing

        missing("nn.functional", name)
