"""Layers for inference: subclasses that compute the same values, to rounding, without gradients.

`for_inference` replaces the layers of a model by them. A single row is computed with scalars and
vectors, because calls of NumPy take most of the time there.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minigrad.core.tensor import Tensor, unwrap
from minigrad.io.mapped import copy_and_release
from minigrad.kernels import (
    forward_attention,
    forward_embedding,
    forward_row_norm,
    gelu_in_place,
    softmax_in_place,
)
from minigrad.runtime import (
    get_num_threads,
    has_avx2_kernels,
    has_blas,
    has_small_kernels,
    in_parallel,
)

from ..layers.attention import (
    PROBE,
    MultiHeadAttention,
    MultiHeadCrossAttention,
    MultiHeadSelfAttention,
)
from ..layers.cache import KeysAndValues
from ..layers.feedforward import FeedForward
from ..layers.linear import Dropout, Embedding, Linear
from ..layers.module import Module
from ..layers.norm import LayerNorm, RMSNorm
from ..layers.rotary import rotate_in_place
from ..models.stacks import Encoder

__all__ = ["FAST"]


def plain(x: Any) -> np.ndarray:
    """Return the array of x, which must not require a gradient."""
    if not isinstance(x, Tensor):
        return np.asarray(x)
    if x._node is not None:
        raise RuntimeError(
            "a copy for inference has no gradients: use the model that it was made of"
        )
    return x._array


LARGEST_SMALL = 10**6  # multiplications of a product that OpenBLAS computes without packing
LARGEST_PANEL = 1024  # values of such a product
LARGEST_SLICE = 1 << 21  # values of a weight that stay in the cache between two rows


def in_fast_layout(weight: np.ndarray) -> np.ndarray:
    """Return the weight (out, in) as `product` reads it fastest, in the same memory if possible.

    OpenBLAS multiplies one row by a tall weight fastest if it lies column by column, and by a wide
    one row by row. Panels are rows.
    """
    is_tall = weight.shape[0] >= weight.shape[1]
    by_columns = is_tall and has_blas() and not suits_panels(weight)
    if weight.flags.f_contiguous if by_columns else weight.flags.c_contiguous:
        return weight
    copy = np.empty(weight.shape, weight.dtype, order="F" if by_columns else "C")
    copy_and_release(weight, copy)
    copy.flags.writeable = False
    return copy


def suits_panels(weight: np.ndarray) -> bool:
    """Return whether slices of the weight's rows are multiplied faster than the whole weight.

    A second thread gains more than the slices do.
    """
    return is_large(weight) and has_small_kernels() and get_num_threads() == 1


def is_large(weight: np.ndarray) -> bool:
    """Return whether it matters how the weight is multiplied: large, and float32, as measured."""
    return weight.shape[1] >= 256 and weight.size >= 1 << 17 and weight.dtype == np.float32


def product(rows: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Return rows (n, in) @ weight.T for a weight (out, in), in new memory.

    The limits are those below which each way was faster than the next.
    """
    (n, size), height = rows.shape, len(weight)
    if 1 < n <= 96 and has_blas():
        most = 62_500 if height >= size else 49_152
        if n <= 64 and n * size <= most and weight.flags.c_contiguous and suits_panels(weight):
            return panel_product(rows, weight)
        if is_large(weight) and weight.size >= 1 << 18 and has_avx2_kernels():
            several = get_num_threads() > 1
            if n <= (4 if several else 3):
                return product_row_by_row(rows, weight)
            if n % 8 >= (5 if several else 6) and (n < 16 or height >= size):
                zeros = np.zeros((-n % 8, size), rows.dtype)  # 8 rows take less time than 6
                return product(np.concatenate((rows, zeros)), weight)[:n]
        if height < size or (height <= 4 * size and weight.flags.c_contiguous):
            return np.ascontiguousarray((weight @ rows.T).T)
    return rows @ weight.T


def product_row_by_row(rows: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Return rows @ weight.T, one row at a time, which needs no packing of the weight.

    The rows are multiplied by a slice of the weight at a time, so that the next row finds it in the
    cache.
    """
    y = np.empty((len(rows), len(weight)), weight.dtype)
    for part in slices(len(weight), math.ceil(weight.size / LARGEST_SLICE)):
        np.matmul(rows[:, None], weight[part].T, out=y[:, None, part])
    return y


def panel_product(rows: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Return rows @ weight.T, slice by slice of the weight's rows, each read once and in order.

    For 2 rows and more OpenBLAS would pack the whole weight first, which takes longer than the
    product. Its kernels for small products, which processors with AVX-512 have, read the weight
    where it is.
    """
    n, size = rows.shape
    most = min(LARGEST_PANEL // n, LARGEST_SMALL // (n * size))
    height = 1 << (most.bit_length() - 1)
    whole = len(weight) // height * height
    x = aligned_copy(rows)
    y = np.empty((n, len(weight)), weight.dtype)
    panels = weight[:whole].reshape(-1, height, size).transpose(0, 2, 1)  # (panels, in, height)
    np.matmul(x, panels, out=y[:, :whole].reshape(n, -1, height).transpose(1, 0, 2))
    np.matmul(x, weight[whole:].T, out=y[:, whole:])
    return y


def aligned_copy(x: np.ndarray) -> np.ndarray:
    """Return a copy that begins at a cache line: the kernels read whole lines."""
    memory = np.empty(x.nbytes + 64, np.uint8)
    start = -memory.ctypes.data % 64
    copy = memory[start : start + x.nbytes].view(x.dtype).reshape(x.shape)
    copy[...] = x
    return copy


def affine(x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
    """Return x @ weight.T + bias, in new memory."""
    y = product(x.reshape(-1, x.shape[-1]), weight)
    if bias is not None:
        y += bias
    return y.reshape(*x.shape[:-1], len(weight))


class FastLinear(Linear):
    def forward(self, x: Any) -> Tensor:
        bias = None if self.bias is None else self.bias._array
        return Tensor(affine(plain(x), self.weight._array, bias))


class FusedLayers:
    """Linear layers of one input, computed by one product.

    Parameters
    ----------
    layers : sequence of Linear
        Their weights and biases become views of the arrays of this object.
    """

    def __init__(self, layers: Sequence[Linear]) -> None:
        self.layers = layers
        ends = itertools.accumulate((layer.out_features for layer in layers), initial=0)
        parts = [slice(start, end) for start, end in itertools.pairwise(ends)]
        weight = np.empty((parts[-1].stop, layers[0].in_features), layers[0].weight.dtype)
        for layer, rows in zip(layers, parts):
            copy_and_release(layer.weight.data, weight[rows])
        self.weight = in_fast_layout(weight)
        self.weight.flags.writeable = False
        self.bias: np.ndarray | None = None
        if any(layer.bias is not None for layer in layers):
            self.bias = np.zeros(len(self.weight), self.weight.dtype)
        for layer, rows in zip(layers, parts):
            layer.weight._array = self.weight[rows]
            if layer.bias is not None and self.bias is not None:
                self.bias[rows] = layer.bias.data
                layer.bias._array = self.bias[rows]
                layer.bias._array.flags.writeable = False

    def __reduce__(self) -> Any:  # the weights are those of the layers
        return FusedLayers, (self.layers,)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Return the outputs of the layers side by side, in new memory."""
        return affine(x, self.weight, self.bias)


def fuse(*layers: Linear) -> FusedLayers | None:
    """Return linear layers of one input as one, or None if one of them has an adapter."""
    return FusedLayers(layers) if all(type(layer) is FastLinear for layer in layers) else None


class FastEmbedding(Embedding):
    def forward(self, indices: Any) -> Tensor:
        ids, table = np.asarray(indices), self.weight._array
        if ids.dtype.kind not in "iu" or not ids.size or ids.min() < 0 or ids.max() >= len(table):
            return super().forward(indices)  # raises the error
        return Tensor(forward_embedding(table, ids, None))


class FastDropout(Dropout):
    def forward(self, x: Any) -> Tensor:
        return x


class FastLayerNorm(LayerNorm):
    def forward(self, x: Any) -> Tensor:
        x = plain(x)
        if self.weight is None or x.shape[-1:] != self.normalized_shape:
            return super().forward(x)
        weight, bias = self.weight._array, None if self.bias is None else self.bias._array
        if x.size != len(weight):
            return Tensor(forward_row_norm(x, weight, bias, self.eps, True)[0])
        row = x.reshape(-1)
        centred = row - float(row.sum(dtype=np.float64)) / len(row)
        return Tensor(scaled_row(centred, weight, bias, self.eps, x.shape))


class FastRMSNorm(RMSNorm):
    def prepare(self) -> None:
        """Add 1 to a zero-centred weight once, not in each call."""
        weight = None if self.weight is None else self.weight.data
        self.factor = weight + 1 if self.zero_centred and weight is not None else weight

    def forward(self, x: Any) -> Tensor:
        x, factor = plain(x), self.factor
        if factor is None or self.eps is None or x.shape[-1:] != self.normalized_shape:
            return super().forward(x)
        if x.size != len(factor):
            return Tensor(forward_row_norm(x, factor, None, self.eps, False)[0])
        return Tensor(scaled_row(x.reshape(-1), factor, None, self.eps, x.shape))


def scaled_row(
    x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None, eps: float, shape: tuple[int, ...]
) -> np.ndarray:
    """Return a row (d,) over the root of its mean square, times `weight`, plus `bias`."""
    square = float(np.dot(x, x)) / len(x) + eps
    y = x * (square**-0.5 if square > 0 else math.inf)
    y *= weight
    if bias is not None:
        y += bias
    return y.reshape(shape)


class FastFeedForward(FeedForward):
    """A feed-forward network with `linear1` and `gate` as one product."""

    def prepare(self) -> None:
        """Fuse them."""
        self.fused = fuse(self.linear1, *([] if self.gate is None else [self.gate]))

    def forward(self, x: Any) -> Tensor:
        if self.fused is None or any(layer.has_hooks for layer in self.fused.layers):
            return super().forward(x)
        h, function = self.fused(plain(x)), _IN_PLACE.get(self.activation, self.function)
        if self.gate is None:
            return self.linear2(function(h))
        width = self.linear1.out_features
        y = unwrap(function(np.ascontiguousarray(h[..., :width])))
        y *= h[..., width:]
        return self.linear2(y)


def silu_in_place(x: np.ndarray) -> np.ndarray:
    """Replace x by silu(x), and return it."""
    with np.errstate(over="ignore"):  # divided by infinity: zero
        y = np.exp(-x)
    y += 1
    x /= y
    return x


_IN_PLACE: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "relu": lambda x: np.maximum(x, 0, out=x),
    "gelu": gelu_in_place,
    "gelu_tanh": lambda x: gelu_in_place(x, "tanh"),
    "silu": silu_in_place,
}


class FastMemory(KeysAndValues):
    """Keys and values of a memory. `select` does not repeat those of a single source."""

    absorbed: Absorbed | None = None

    def select(self, rows: np.ndarray) -> None:
        if len(self.keys) > 1:
            super().select(rows)


def watched(*parts: Module) -> bool:
    """Return whether a probe or a hook reads or changes values inside these modules."""
    return PROBE.get() is not None or any(part.has_hooks for part in parts)


class FastAttention(MultiHeadAttention):
    """Attention that calls the kernel with arrays."""

    def attend(self, q: Any, k: Any, v: Any, mask: Any) -> Any:
        if PROBE.get() is not None:
            return super().attend(q, k, v, mask)
        bias = None
        if self.position_bias is not None:
            bias = unwrap(self.position_bias(q.shape[2], k.shape[2]))
        q, k, v = plain(q), plain(k), plain(v)
        heads = forward_attention(q, k, v, bias, mask, self.scale)
        n, h, length, d = heads.shape
        return heads.transpose(0, 2, 1, 3).reshape(n, length, h * d)


class FastSelfAttention(FastAttention, MultiHeadSelfAttention):
    """Self-attention with queries, keys and values as one product, rotated in place."""

    def prepare(self) -> None:
        """Fuse the projections."""
        self.fused = fuse(self.q_proj, self.k_proj, self.v_proj)

    def project(self, query: Any, key: Any, value: Any, positions: Any) -> tuple[Any, Any, Any]:
        if self.fused is None or any(p.has_hooks for p in self.fused.layers):
            return super().project(query, key, value, positions)
        qkv = self.fused(plain(query))
        (n, length, _), h, kv = qkv.shape, self.num_heads, self.num_kv_heads
        heads = qkv.reshape(n, length, h + 2 * kv, self.d_k).transpose(0, 2, 1, 3)
        q, k, v = heads[:, :h], heads[:, h : h + kv], heads[:, h + kv :]
        if self.q_norm is not None and self.k_norm is not None:
            q[...], k[...] = unwrap(self.q_norm(q)), unwrap(self.k_norm(k))
        if self.rotary is not None:
            cos, sin = self.rotary.cos_sin(positions, length, qkv.dtype)
            rotate_in_place(heads[:, : h + kv], cos, sin)
        return q, k, v


class FastCrossAttention(FastAttention, MultiHeadCrossAttention):
    """Attention to a memory; for a single short source, by `Absorbed`."""

    def keys_and_values(self, key: Any, value: Any = None) -> KeysAndValues:
        return FastMemory(*map(unwrap, super().keys_and_values(plain(key), value)))

    def forward(  # type: ignore[override]
        self, x_q: Any, x_kv: Any, mask: Any = None, **options: Any
    ) -> Tensor:
        x = plain(x_q)
        if not isinstance(x_kv, FastMemory) or len(x_kv.keys) != 1:
            return super().forward(x, x_kv, mask, **options)
        queries = x.reshape(1, -1, x.shape[-1])  # of all hypotheses, as one sequence
        if mask is None and Absorbed.is_worthwhile(self, x_kv):
            x_kv.absorbed = x_kv.absorbed or Absorbed(self, x_kv)
            y = x_kv.absorbed(queries)
        else:
            mask = None if mask is None else mask[:1]
            y = plain(super().forward(queries, x_kv, mask, **options))
        return Tensor(y.reshape(*x.shape[:2], self.d_model))


class Absorbed:
    """Keys and values of one source, multiplied by the projections of the queries and the output.

    The score of key k in a head, (W x + b) · k / √d_k, is x · (Wᵀ k) / √d_k plus a constant. The
    output is the sum of the values times the output projection, weighted. Both products depend on
    the source only. For a short source they are smaller than the projections, and the time of a
    decoding step is that of reading memory.
    """

    def __init__(self, attention: MultiHeadAttention, memory: KeysAndValues) -> None:
        h, d = attention.num_heads, attention.d_k
        k, v = (x[0] for x in memory)  # (h, L, d_k)
        query, out = attention.q_proj, attention.out_proj
        k = k * k.dtype.type(attention.scale)
        self.shape = (-1, h, k.shape[1])
        columns = out.weight.data.reshape(-1, h, d).transpose(1, 2, 0)  # (h, d_k, d_model)
        self.keys = (k @ query.weight.data.reshape(h, d, -1)).reshape(h * k.shape[1], -1)
        self.values = (v @ columns).reshape(len(self.keys), -1)  # (h·L, d_model), as the keys
        self.constants = (
            0 if query.bias is None else (k @ query.bias.data.reshape(h, d, 1))[..., 0]
        )  # (h, L)
        self.bias = 0 if out.bias is None else out.bias.data

    @staticmethod
    def is_worthwhile(attention: MultiHeadAttention, memory: KeysAndValues) -> bool:
        """Return whether a call reads at most half as much as the projections hold."""
        projections = (attention.q_proj, attention.out_proj)
        return (
            2 * attention.num_heads * memory.keys.shape[2] <= attention.d_model
            and attention.num_kv_heads == attention.num_heads
            and attention.q_norm is None
            and all(type(p) is FastLinear for p in projections)
            and not watched(*projections)
        )

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Return the attention's output (1, L_q, d_model) for x of the same shape."""
        weights = (x[0] @ self.keys.T).reshape(self.shape)  # (L_q, h, L)
        weights += self.constants
        softmax_in_place(weights, None, 1.0)
        y = weights.reshape(len(weights), -1) @ self.values
        y += self.bias
        return y[None]


class FastEncoder(Encoder):
    """A stack that splits large batches over the cores."""

    def forward(
        self, x: Any, mask: Any = None, caches: Any = None, positions: Any = None
    ) -> Tensor:
        x = plain(x)
        n, count = len(x), 1 if caches is not None or x.size < LARGE_BATCH else get_num_threads()
        if count == 1 or n < count or watched(*self.modules()):
            return super().forward(x, mask, caches, positions)
        run = super().forward

        def of_rows(rows: slice) -> np.ndarray:
            parts = [z[rows] if np.ndim(z) and len(z) == n else z for z in (mask, positions)]
            return unwrap(run(x[rows], parts[0], None, parts[1]))

        return Tensor(np.concatenate(in_parallel(of_rows, slices(n, count))))


def slices(length: int, count: int) -> list[slice]:
    """Return `count` slices of about equal length that cover `length` elements."""
    ends = [length * i // count for i in range(count + 1)]
    return [slice(*pair) for pair in itertools.pairwise(ends)]


LARGE_BATCH: float = 1 << 17  # values of the input from which a batch is split

FAST: dict[type[Module], type[Module]] = {
    Linear: FastLinear,
    Embedding: FastEmbedding,
    Dropout: FastDropout,
    LayerNorm: FastLayerNorm,
    RMSNorm: FastRMSNorm,
    FeedForward: FastFeedForward,
    MultiHeadSelfAttention: FastSelfAttention,
    MultiHeadCrossAttention: FastCrossAttention,
    Encoder: FastEncoder,
}
"""Classes of layers in a copy for inference, by the class in the model."""
