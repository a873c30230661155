"""Functions of layers and losses, with the arguments of torch.nn.functional.

    from nn import functional as F

Most are functions of minigrad. In minigrad, `embedding` and `layer_norm` take their arguments in
another order, and `scaled_dot_product_attention` takes an additive mask as `bias`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

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
from minigrad.arguments import check_broadcast
from minigrad.check.namespace import namespace
from minigrad.tensor import Tensor

from ..layers import normalize_trailing_axes

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
    "rms_norm",
    "scaled_dot_product_attention",
    "sigmoid",
    "silu",
    "smooth_l1_loss",
    "softmax",
    "softplus",
    "tanh",
]


def embedding(input: Any, weight: Any, padding_idx: int | None = None) -> Tensor:
    """Return rows (..., d) of a table.

    Parameters
    ----------
    input : array of int, shape (...)
        Indices of rows.
    weight : Tensor, shape (n, d)
    padding_idx : int, optional
        Index of a row that gets no gradient.
    """
    return mg.embedding(weight, input, padding_idx)


def layer_norm(
    input: Any,
    normalized_shape: Sequence[int],
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
) -> Tensor:
    """Return `input` with mean 0 and variance 1 over the last axes.

    Parameters
    ----------
    input : Tensor
    normalized_shape : sequence of int
        Lengths of the last axes of `input`.
    weight, bias : Tensor, shape `normalized_shape`, optional
        Factor and summand of the result.
    eps : float, default 1e-5
        Added to the variance.
    """
    shape = tuple(normalized_shape)
    return normalize_trailing_axes(
        mg.layer_norm, "layer_norm", input, shape, eps, weight=weight, bias=bias
    )


def rms_norm(
    input: Any, normalized_shape: Sequence[int], weight: Any = None, eps: float | None = None
) -> Tensor:
    """Return `input`, divided by the root of the mean square over the last axes.

    Other parameters: as `layer_norm`.

    Parameters
    ----------
    eps : float, optional
        Added to the mean square; by default the machine epsilon of the dtype.
    """
    shape = tuple(normalized_shape)
    return normalize_trailing_axes(mg.rms_norm, "rms_norm", input, shape, eps, weight=weight)


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
    """Compute softmax(query @ key.T * scale) @ value, as PyTorch does.

    Parameters
    ----------
    query : Tensor, shape (..., L, d_k)
    key : Tensor, shape (..., S, d_k)
    value : Tensor, shape (..., S, d_v)
    attn_mask : array of bool or float, broadcastable to (..., L, S), optional
        Booleans, True = may attend. Floats are added to the scores.
    dropout_p : float, default 0
        Probability of setting a weight to 0, in evaluation too: pass 0 there.
    is_causal : bool
        Position i attends to the positions up to i. Excludes `attn_mask`.
    scale : float, optional
        Factor of the scores; 1 / sqrt(d_k) by default.
    """
    if is_causal and attn_mask is not None:
        raise ValueError(
            "scaled_dot_product_attention: attn_mask must be None with is_causal, got both"
        )
    operands = [x if isinstance(x, Tensor) else np.asarray(x) for x in (query, key, value)]
    try:
        leading = np.broadcast_shapes(*[x.shape[:-2] for x in operands])
    except ValueError:
        shapes = ", ".join(str(x.shape) for x in operands)
        raise ValueError(
            "scaled_dot_product_attention: query, key and value must have axes before the last two "
            f"that broadcast, got {shapes}; minigrad.scaled_dot_product_attention shares heads of "
            "keys and values"
        ) from None
    n, heads = math.prod(leading[:-1]), (leading or (1,))[-1]
    query, key, value = (
        mg.reshape(mg.broadcast_to(x, (*leading, *x.shape[-2:])), n, heads, *x.shape[-2:])
        for x in operands
    )
    shape = (query.shape[2], key.shape[2])
    mask: Any = np.tri(*shape, dtype=bool) if is_causal else attn_mask
    if mask is not None:
        name = "scaled_dot_product_attention"
        mask = mask if isinstance(mask, Tensor) else np.asarray(mask)
        check_broadcast(name, "attn_mask", mask, (*leading, *shape), "the scores")
        if mask.dtype.kind not in "bf":
            raise TypeError(
                f"{name}: attn_mask must be boolean (True = may attend) or floating, got "
                f"{mask.dtype}; write attn_mask.astype(bool)"
            )
        mask = mg.reshape(mg.broadcast_to(mask, (*leading, *shape)), n, heads, *shape)
    is_bias = mask is not None and mask.dtype != bool
    y = mg.scaled_dot_product_attention(
        query,
        key,
        value,
        None if is_bias else mask,
        bias=mask if is_bias else None,
        scale=scale,
        dropout=dropout_p,
    )
    return mg.reshape(y, *leading, *y.shape[2:])


def normalize(input: Any, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Tensor:
    """Return `input`, divided by its p-norm along an axis.

    Parameters
    ----------
    input : Tensor
    p : float, default 2
        Order of the norm.
    dim : int, default 1
        Axis along which norms are computed.
    eps : float, default 1e-12
        Smallest divisor.
    """
    return mg.divide(input, mg.maximum(mg.vector_norm(input, axis=dim, keepdims=True, ord=p), eps))


def cosine_similarity(x1: Any, x2: Any, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """Compute the cosine of the angle between vectors along the axis `dim`.

    Parameters
    ----------
    x1, x2 : Tensor
    dim : int, default 1
        Axis of the vectors.
    eps : float, default 1e-8
        Smallest length of a vector.
    """
    x1, x2 = mg.broadcast_arrays(x1, x2)  # an axis of length 1 counts as often as it is repeated
    lengths = [mg.maximum(mg.vector_norm(x, axis=dim, keepdims=True), eps) for x in (x1, x2)]
    return mg.sum(mg.multiply(mg.divide(x1, lengths[0]), mg.divide(x2, lengths[1])), dim)


if not TYPE_CHECKING:  # type checkers report a missing name
    __all__, __getattr__, __dir__ = namespace(__name__)
