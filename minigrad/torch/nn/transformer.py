"""Attention and Transformers in PyTorch's form: its arguments, masks and names of parameters.

In these classes True in a boolean mask means "may not attend", and sequences have shape (L, N, E)
unless `batch_first` is True. The documentation of PyTorch describes the parameters. The layers of
`nn`, such as `nn.MultiHeadAttention`, are the paper's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np

import minigrad as mg
from minigrad import Tensor
from minigrad.tensor import unwrap
from nn import Dropout, LayerNorm, Linear, Module, ModuleList, Parameter, init
from nn import functional as F

__all__ = [
    "MultiheadAttention",
    "Transformer",
    "TransformerDecoder",
    "TransformerDecoderLayer",
    "TransformerEncoder",
    "TransformerEncoderLayer",
]


def _added(name: str, mask: Any, dtype: Any) -> Any:
    """Return a mask as numbers that are added to the scores."""
    if mask is None:
        return None
    mask = mask if isinstance(mask, Tensor) else np.asarray(mask)
    if mask.dtype.kind not in "bf":
        raise TypeError(
            f"{name} must be boolean (True = may not attend) or float, got {mask.dtype}"
        )
    return mg.astype(np.where(unwrap(mask), -np.inf, 0) if mask.dtype == bool else mask, dtype)


class MultiheadAttention(Module):
    """Attention with several heads, with the parameters of `torch.nn.MultiheadAttention`.

    `kdim` and `vdim` must equal `embed_dim`, and `dtype` is a dtype of NumPy, float32 by default.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        *,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        dtype: Any = np.float32,
    ) -> None:
        if embed_dim % num_heads:
            raise ValueError(f"num_heads must divide embed_dim ({embed_dim}), got {num_heads}")
        if (kdim or embed_dim) != embed_dim or (vdim or embed_dim) != embed_dim:
            raise ValueError(
                f"kdim and vdim must equal embed_dim ({embed_dim}), got {kdim} and {vdim}; write "
                "nn.ExtendedAttention, which takes them"
            )
        self.embed_dim, self.num_heads, self.batch_first = embed_dim, num_heads, batch_first
        self.dropout = dropout
        self.in_proj_weight = Parameter(np.zeros((3 * embed_dim, embed_dim), dtype))
        self.in_proj_bias = Parameter(np.zeros(3 * embed_dim, dtype)) if bias else None
        self.out_proj = Linear(embed_dim, embed_dim, bias, dtype=dtype)
        init.xavier_uniform_(self.in_proj_weight)
        if self.out_proj.bias is not None:
            init.zeros_(self.out_proj.bias)

    def forward(
        self,
        query: Any,
        key: Any,
        value: Any,
        key_padding_mask: Any = None,
        need_weights: bool = True,
        attn_mask: Any = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Return the output, and the attention weights (N, L, S) or None."""
        if is_causal and attn_mask is None:
            raise ValueError("attn_mask must be given with is_causal, got None")
        operands = [x if isinstance(x, Tensor) else mg.as_tensor(x) for x in (query, key, value)]
        is_single = operands[0].ndim == 2
        if is_single:
            operands = [x[None] for x in operands]
        elif not self.batch_first:
            operands = [mg.swapaxes(x, 0, 1) for x in operands]
        weights = mg.chunk(self.in_proj_weight, 3)
        biases = [None] * 3 if self.in_proj_bias is None else mg.chunk(self.in_proj_bias, 3)
        n, heads, d = operands[0].shape[0], self.num_heads, self.embed_dim // self.num_heads
        q, k, v = (
            mg.swapaxes(mg.reshape(mg.linear(x, w, b), *x.shape[:2], heads, d), 1, 2)
            for x, w, b in zip(operands, weights, biases)
        )
        mask = self._mask(q.shape[2], k.shape[2], n, q.dtype, attn_mask, key_padding_mask)
        dropout = self.dropout if self.training else 0.0
        if need_weights:
            scores = mg.matmul(q / math.sqrt(d), mg.swapaxes(k, 2, 3))
            attention = mg.softmax(scores if mask is None else scores + mask)
            y = mg.matmul(mg.dropout(attention, dropout, training=dropout > 0), v)
        else:
            y = F.scaled_dot_product_attention(q, k, v, mask, dropout)
        y = self.out_proj(mg.reshape(mg.swapaxes(y, 1, 2), *operands[0].shape))
        if is_single:
            y = y[0]
        elif not self.batch_first:
            y = mg.swapaxes(y, 0, 1)
        if not need_weights:
            return y, None
        shown = mg.mean(attention, 1) if average_attn_weights else attention
        return y, shown[0] if is_single else shown

    def _mask(self, length: int, s: int, n: int, dtype: Any, attn_mask: Any, padding: Any) -> Any:
        """Return what is added to the scores (N, heads, L, S), or None."""
        mask = _added("attn_mask", attn_mask, dtype)
        padding = _added("key_padding_mask", padding, dtype)
        if mask is not None:
            shapes = ((length, s), (n * self.num_heads, length, s))
            if mask.shape not in shapes:
                raise ValueError(
                    f"attn_mask must have shape {shapes[0]} or {shapes[1]}, got {mask.shape}"
                )
            mask = mask if mask.ndim == 2 else mask.reshape(n, self.num_heads, length, s)
        if padding is not None:
            padding = padding.reshape(n, 1, 1, s)
        return mask if padding is None else padding if mask is None else mask + padding


class _Layer(Module):
    self_attn: MultiheadAttention
    multihead_attn: MultiheadAttention
    norm1: LayerNorm
    norm2: LayerNorm
    norm3: LayerNorm

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Any = "relu",
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        *,
        dtype: Any = np.float32,
    ) -> None:
        for name in ("self_attn", "multihead_attn")[: 1 + self.has_memory]:
            attention = MultiheadAttention(
                d_model, nhead, dropout, bias, batch_first=batch_first, dtype=dtype
            )
            setattr(self, name, attention)
        self.linear1 = Linear(d_model, dim_feedforward, bias, dtype=dtype)
        self.linear2 = Linear(dim_feedforward, d_model, bias, dtype=dtype)
        for name in ("norm1", "norm2", "norm3")[: 2 + self.has_memory]:
            setattr(self, name, LayerNorm(d_model, layer_norm_eps, bias=bias, dtype=dtype))
        self.dropout, self.norm_first = Dropout(dropout), norm_first
        if activation not in ("relu", "gelu") and not callable(activation):
            raise ValueError(f"activation must be 'relu', 'gelu' or a function, got {activation!r}")
        self.activation = getattr(F, activation) if isinstance(activation, str) else activation

    has_memory = False

    def _residual(self, x: Any, norm: Module, sublayer: Callable[[Any], Any]) -> Tensor:
        if self.norm_first:
            return x + self.dropout(sublayer(norm(x)))
        return norm(x + self.dropout(sublayer(x)))

    def _feed_forward(self, x: Any) -> Tensor:
        return self.linear2(self.dropout(self.activation(self.linear1(x))))


class TransformerEncoderLayer(_Layer):
    """Encoder layer, with the parameters of `torch.nn.TransformerEncoderLayer`."""

    def forward(
        self,
        src: Any,
        src_mask: Any = None,
        src_key_padding_mask: Any = None,
        is_causal: bool = False,
    ) -> Tensor:
        """Return the encoded sequences."""
        attend = _attending(self.self_attn, None, src_mask, src_key_padding_mask, is_causal)
        x = self._residual(src, self.norm1, attend)
        return self._residual(x, self.norm2, self._feed_forward)


class TransformerDecoderLayer(_Layer):
    """Decoder layer, with the parameters of `torch.nn.TransformerDecoderLayer`."""

    has_memory = True

    def forward(
        self,
        tgt: Any,
        memory: Any,
        tgt_mask: Any = None,
        memory_mask: Any = None,
        tgt_key_padding_mask: Any = None,
        memory_key_padding_mask: Any = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """Return the decoded sequences."""
        own = (tgt_mask, tgt_key_padding_mask, tgt_is_causal)
        x = self._residual(tgt, self.norm1, _attending(self.self_attn, None, *own))
        read = (memory_mask, memory_key_padding_mask, memory_is_causal)
        x = self._residual(x, self.norm2, _attending(self.multihead_attn, memory, *read))
        return self._residual(x, self.norm3, self._feed_forward)


def _attending(attention: Module, memory: Any, mask: Any, padding: Any, is_causal: bool) -> Any:
    def attend(x: Any) -> Tensor:
        source = x if memory is None else memory
        y: Tensor = attention(x, source, source, padding, False, mask, is_causal=is_causal)[0]
        return y

    return attend


class _Stack(Module):
    def __init__(self, decoder_layer: Module, num_layers: int, norm: Module | None = None) -> None:
        self.layers = ModuleList([deepcopy(decoder_layer) for _ in range(num_layers)])
        self.norm = norm

    def _norm(self, x: Tensor) -> Tensor:
        y: Tensor = x if self.norm is None else self.norm(x)
        return y


class TransformerEncoder(_Stack):
    """Copies of an encoder layer, one after the other, and a norm.

    `enable_nested_tensor` and `mask_check` change nothing.
    """

    def __init__(
        self,
        encoder_layer: Module,
        num_layers: int,
        norm: Module | None = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ) -> None:
        super().__init__(encoder_layer, num_layers, norm)

    def forward(
        self,
        src: Any,
        mask: Any = None,
        src_key_padding_mask: Any = None,
        is_causal: bool | None = None,
    ) -> Tensor:
        """Return the encoded sequences."""
        for layer in self.layers:
            src = layer(src, mask, src_key_padding_mask, bool(is_causal))
        return self._norm(src)


class TransformerDecoder(_Stack):
    """Copies of a decoder layer, one after the other, and a norm."""

    def forward(self, tgt: Any, memory: Any, *masks: Any, **options: Any) -> Tensor:
        """Return the decoded sequences."""
        for layer in self.layers:
            tgt = layer(tgt, memory, *masks, **options)
        return self._norm(tgt)


class Transformer(Module):
    """Encoder and decoder without embeddings, with the parameters of `torch.nn.Transformer`.

    `sizes` and `options` are the parameters of the layers from `dim_feedforward` on.
    """

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        *sizes: Any,
        **options: Any,
    ) -> None:
        encoder_layer = TransformerEncoderLayer(d_model, nhead, *sizes, **options)
        decoder_layer = TransformerDecoderLayer(d_model, nhead, *sizes, **options)
        self.encoder = TransformerEncoder(encoder_layer, num_encoder_layers, encoder_layer.norm1)
        self.decoder = TransformerDecoder(decoder_layer, num_decoder_layers, decoder_layer.norm1)
        for parameter in self.parameters():
            if parameter.ndim > 1:
                init.xavier_uniform_(parameter)

    def forward(
        self,
        src: Any,
        tgt: Any,
        src_mask: Any = None,
        tgt_mask: Any = None,
        memory_mask: Any = None,
        src_key_padding_mask: Any = None,
        tgt_key_padding_mask: Any = None,
        memory_key_padding_mask: Any = None,
    ) -> Tensor:
        """Return the decoded sequences."""
        memory = self.encoder(src, src_mask, src_key_padding_mask)
        y: Tensor = self.decoder(
            tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask
        )
        return y

    @staticmethod
    def generate_square_subsequent_mask(sz: int, device: Any = None, dtype: Any = None) -> Tensor:
        """Return a float mask (sz, sz): -inf above the diagonal, 0 elsewhere."""
        return Tensor(np.triu(np.full((sz, sz), -np.inf, dtype or np.float32), 1))
