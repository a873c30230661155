"""Layers for inference: subclasses that compute the same values, to rounding, without gradients.

`for_inference` replaces the layers of a model by them. Inside a stack, they pass arrays to each
other, and only hooks get Tensors. A single row is computed with scalars and vectors, because calls
of NumPy take most of the time there.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from minigrad.fast import (
    forward_attention,
    forward_row_norm,
    gelu_in_place,
    softmax_in_place,
)
from minigrad.fast.runtime import get_num_threads, in_parallel
from minigrad.io.mapped import copy_and_release
from minigrad.tensor import Tensor, unwrap

from ..attention import KeysAndValues, MultiHeadAttention, hide_later
from ..block import Decoder, Encoder, TransformerDecoderLayer, TransformerEncoderLayer
from ..layers import Dropout, Embedding, FeedForward, LayerNorm, Linear
from ..module import CALL, Module, in_dtype
from ..options.extended_layers import (
    CappedLinear,
    ExtendedAttention,
    ExtendedDecoderLayer,
    ExtendedEncoderLayer,
    ExtendedFeedForward,
)
from ..options.norms import RMSNorm
from ..options.parts import ExtendedDecoder, ExtendedEncoder
from ..options.rotary import rotate_in_place
from .int8 import Int8Matrix, Int8Stack
from .products import in_fast_layout, product

__all__ = ["FAST"]


def plain(x: Any, layer: Any = None) -> np.ndarray:
    """Return the array of x, which must not require a gradient, in the dtype of a layer."""
    if isinstance(x, Tensor):
        if x._node is not None:
            raise RuntimeError(
                "a copy for inference has no gradients: use the model that it was made of"
            )
        x = x._array
    elif not isinstance(x, np.ndarray):
        x = np.asarray(x)
    if layer is not None and x.dtype != (dtype := layer.weight.dtype):
        x = in_dtype(layer, x, dtype)
    return x


class FastLayer(Module):
    """Base of the layers: `compute` takes and returns arrays, and `forward` Tensors.

    A call with an array returns an array. Hooks get Tensors.
    """

    def __call__(self, x: Any, *args: Any, **options: Any) -> Any:
        """Return the result of `compute` or `forward`, which hooks can change."""
        if type(x) is not np.ndarray:
            return super().__call__(x, *args, **options)
        if not self.has_hooks and CALL.get() is None:
            return self.compute(x, *args, **options)
        return plain(super().__call__(Tensor(x), *args, **options))

    def forward(self, x: Any, *args: Any, **options: Any) -> Tensor:
        """Return the result of `compute`."""
        return Tensor(self.compute(plain(x), *args, **options))

    def compute(self, x: np.ndarray, *args: Any, **options: Any) -> np.ndarray:
        """Return the result of the layer."""
        raise NotImplementedError


def affine(
    x: np.ndarray, weight: np.ndarray | Int8Matrix | Int8Stack, bias: np.ndarray | None
) -> np.ndarray:
    """Return x @ weight.T + bias, in new memory."""
    y = product(x.reshape(-1, x.shape[-1]), weight)
    if bias is not None:
        y += bias
    return y.reshape(*x.shape[:-1], weight.shape[0])


class FastLinear(FastLayer, Linear):
    def compute(self, x: np.ndarray) -> np.ndarray:
        weight: Any = self.weight
        bias = None if self.bias is None else self.bias._array
        matrix = weight if isinstance(weight, Int8Matrix) else weight._array
        return affine(plain(x, self), matrix, bias)


class FastCappedLinear(FastLinear, CappedLinear):
    def compute(self, x: np.ndarray) -> np.ndarray:
        return unwrap(self.bounded(super().compute(x)))


class FastEmbedding(Embedding):
    """Lookup table that may be an `Int8Matrix`, whose rows are widened when they are looked up."""

    def forward(self, indices: Any) -> Tensor:
        if not isinstance(self.weight, Int8Matrix):
            return super().forward(indices)
        indices = np.asarray(indices)
        if indices.size and not 0 <= indices.min() <= indices.max() < self.num_embeddings:
            raise IndexError(
                f"embedding: indices must be from 0 to {self.num_embeddings - 1}, got "
                f"{indices.min()} to {indices.max()}"
            )
        return Tensor(self.weight.take(indices))


class FastDropout(FastLayer, Dropout):
    def compute(self, x: np.ndarray) -> np.ndarray:
        return x


class FusedLayers:
    """Linear layers of one input, computed by one product.

    Their weights and biases become views of the arrays of this object.
    """

    weight: np.ndarray | Int8Stack

    def __init__(self, layers: Sequence[Linear]) -> None:
        self.layers = layers
        ends = itertools.accumulate((layer.out_features for layer in layers), initial=0)
        parts = [slice(start, end) for start, end in itertools.pairwise(ends)]
        matrices: list[Any] = [layer.weight for layer in layers]
        if isinstance(matrices[0], Int8Matrix):
            self.weight = Int8Stack(matrices)
        else:
            weight = np.empty((parts[-1].stop, layers[0].in_features), matrices[0].dtype)
            for matrix, rows in zip(matrices, parts):
                copy_and_release(matrix.data, weight[rows])
            self.weight = in_fast_layout(weight)
            self.weight.flags.writeable = False
            for matrix, rows in zip(matrices, parts):
                matrix._array = self.weight[rows]
        self.bias: np.ndarray | None = None
        if any(layer.bias is not None for layer in layers):
            self.bias = np.zeros(parts[-1].stop, self.weight.dtype)
        for layer, rows in zip(layers, parts):
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
    if not all(type(layer) is FastLinear for layer in layers):
        return None
    kinds = {type(layer.weight) for layer in layers}
    return FusedLayers(layers) if len(kinds) == 1 else None


class FastLayerNorm(FastLayer, LayerNorm):
    def compute(self, x: np.ndarray) -> np.ndarray:
        if self.weight is None or x.shape[-1:] != self.normalized_shape:
            return unwrap(LayerNorm.forward(self, x))
        x = plain(x, self)
        weight, bias = self.weight._array, None if self.bias is None else self.bias._array
        if x.size != len(weight):
            return forward_row_norm(x, weight, bias, self.eps, True)[0]
        row = x.reshape(-1)
        centred = row - float(row.sum(dtype=np.float64)) / len(row)
        return scaled_row(centred, weight, bias, self.eps, x.shape)


class FastRMSNorm(FastLayer, RMSNorm):
    def prepare(self) -> None:
        """Add 1 to a zero-centred weight once, not in each call."""
        weight = None if self.weight is None else self.weight.data
        self.factor = weight + 1 if self.zero_centred and weight is not None else weight

    def compute(self, x: np.ndarray) -> np.ndarray:
        factor = self.factor
        if factor is None or self.eps is None or x.shape[-1:] != self.normalized_shape:
            return unwrap(RMSNorm.forward(self, x))
        x = plain(x, self)
        if x.size != len(factor):
            return forward_row_norm(x, factor, None, self.eps, False)[0]
        return scaled_row(x.reshape(-1), factor, None, self.eps, x.shape)


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


class FastFeedForward(FastLayer, ExtendedFeedForward):
    """A feed-forward network with `linear1` and `gate` as one product."""

    def prepare(self) -> None:
        """Fuse them."""
        self.fused = fuse(self.linear1, *([] if self.gate is None else [self.gate]))

    def compute(self, x: np.ndarray) -> np.ndarray:
        if self.fused is None or any(layer.has_hooks for layer in self.fused.layers):
            return plain(ExtendedFeedForward.forward(self, x))
        h = self.fused(plain(x, self.linear1))
        function = _IN_PLACE.get(self.activation, self.function)
        if self.gate is None:
            return plain(self.linear2(unwrap(function(h))))
        width = self.linear1.out_features
        y = unwrap(function(np.ascontiguousarray(h[..., :width])))
        y *= h[..., width:]
        return plain(self.linear2(y))


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
    return CALL.get() is not None or any(part.has_hooks for part in parts)


class FastAttention(FastLayer, ExtendedAttention):  # type: ignore[misc]
    """Attention that calls the kernel with arrays. To a single short source, by `Absorbed`."""

    fused: FusedLayers | None = None

    def keys_and_values(self, memory: Any, value: Any = None) -> KeysAndValues:
        projected = super().keys_and_values(plain(memory), value)
        return FastMemory(unwrap(projected.keys), unwrap(projected.values))

    def compute(
        self,
        x: np.ndarray,
        memory: Any = None,
        mask: Any = None,
        cache: Any = None,
        *,
        value: Any = None,
        positions: Any = None,
    ) -> np.ndarray:
        if not isinstance(memory, FastMemory) or len(memory.keys) != 1:
            return self._compute(x, memory, mask, cache, value, positions)
        of_positions = (self.rotary, self.window, self.position_bias)
        is_alike = mask is None or (mask.shape[-2] == 1 and (mask == mask[:1]).all())
        if of_positions != (None, None, None) or not is_alike:
            rows = np.zeros(len(x), int)
            memory = KeysAndValues(memory.keys[rows], memory.values[rows])
            return self._compute(x, memory, mask, cache, value, positions)
        queries = x.reshape(1, -1, x.shape[-1])  # of all hypotheses, as one sequence
        if mask is None and Absorbed.is_worthwhile(self, memory):
            memory.absorbed = memory.absorbed or Absorbed(self, memory)
            y = memory.absorbed(queries)
        else:
            y = self._compute(queries, memory, None if mask is None else mask[:1])
        return y.reshape(*x.shape[:2], self.d_model)

    def _compute(
        self,
        x: np.ndarray,
        memory: Any,
        mask: Any,
        cache: Any = None,
        value: Any = None,
        positions: Any = None,
    ) -> np.ndarray:
        if positions is None:
            positions = 0 if cache is None else cache.length
        q, k, v = self.project(x, x if memory is None else memory, value, positions)
        if cache is not None:
            k, v = cache.append(k, v)
        heads = plain(self.attend(q, k, v, mask))
        n, h, length, d = heads.shape
        return plain(self.out_proj(heads.transpose(0, 2, 1, 3).reshape(n, length, h * d)))

    def attend(self, q: Any, k: Any, v: Any, mask: Any) -> Any:
        mask, bias, scale = self.score_options(q, k, mask).values()
        if mask is not None and mask.ndim == 2:
            mask = mask[None, None]
        return forward_attention(plain(q), plain(k), plain(v), unwrap(bias), mask, scale)

    def project(
        self, query: Any, memory: Any, value: Any = None, positions: Any = 0
    ) -> tuple[Any, Any, Any]:
        fused = self.fused if memory is query and value is None else None
        if fused is None or any(layer.has_hooks for layer in fused.layers):
            return super().project(query, memory, value, positions)
        qkv = fused(plain(query, self.q_proj))
        (n, length, _), h, kv = qkv.shape, self.num_heads, self.num_kv_heads
        heads = qkv.reshape(n, length, h + 2 * kv, self.d_k).transpose(0, 2, 1, 3)
        q, k, v = heads[:, :h], heads[:, h : h + kv], heads[:, h + kv :]
        if self.q_norm is not None and self.k_norm is not None:
            q[...], k[...] = unwrap(self.q_norm(q)), unwrap(self.k_norm(k))
        rotary: Any = self.rotary
        if rotary is not None:
            cos, sin = rotary.cos_sin(positions, length, qkv.dtype)
            rotate_in_place(heads[:, : h + kv], cos, sin)
        return q, k, v


class Absorbed:
    """Keys and values of one source, multiplied by the projections of the queries and the output.

    The score of key k in a head, (W x + b) · k / √d_k, is x · (Wᵀ k) / √d_k plus a constant. The
    output is the sum of the values times the output projection, weighted. Both products depend on
    the source only. For a short source they are smaller than the projections, and the time of a
    decoding step is that of reading memory.
    """

    def __init__(self, attention: FastAttention, memory: KeysAndValues) -> None:
        h, d = attention.num_heads, attention.d_k
        k, v = memory.keys[0], memory.values[0]  # (h, L, d_k)
        query, out = attention.q_proj, attention.out_proj
        k = k * k.dtype.type(d**-0.5 if attention.scale is None else attention.scale)
        self.shape = (-1, h, k.shape[1])
        columns = out.weight.data.reshape(-1, h, d).transpose(1, 2, 0)  # (h, d_k, d_model)
        self.keys = (k @ query.weight.data.reshape(h, d, -1)).reshape(h * k.shape[1], -1)
        self.values = (v @ columns).reshape(len(self.keys), -1)  # (h·L, d_model), as the keys
        self.constants = (
            0 if query.bias is None else (k @ query.bias.data.reshape(h, d, 1))[..., 0]
        )  # (h, L)
        self.bias = 0 if out.bias is None else out.bias.data

    @staticmethod
    def is_worthwhile(attention: FastAttention, memory: KeysAndValues) -> bool:
        """Return whether a call reads at most half as much as the projections hold."""
        projections = (attention.q_proj, attention.out_proj)
        return (
            2 * attention.num_heads * memory.keys.shape[2] <= attention.d_model
            and attention.num_kv_heads == attention.num_heads
            and attention.q_norm is None
            and attention.softcap is None
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


class FastEncoderLayer(FastLayer, ExtendedEncoderLayer):
    def prepare(self) -> None:
        """Compute queries, keys and values of the self-attention by one product."""
        attention: Any = self.self_attention
        if isinstance(attention, FastAttention):
            attention.fused = fuse(attention.q_proj, attention.k_proj, attention.v_proj)

    def compute(self, x: np.ndarray, *, mask: Any = None, **options: Any) -> np.ndarray:
        x = plain(x, self.feed_forward.linear1)
        after = self.residual(x, self.norm1, partial(self.self_attention, mask=mask, **options))
        if self.parallel:
            return plain(self.residual(x, self.norm2, self.feed_forward, onto=after))
        return plain(self.residual(after, self.norm2, self.feed_forward))


class FastDecoderLayer(FastLayer, ExtendedDecoderLayer):
    prepare = FastEncoderLayer.prepare

    def compute(
        self,
        x: np.ndarray,
        memory: Any,
        *,
        mask: Any = None,
        memory_mask: Any = None,
        cache: Any = None,
        **options: Any,
    ) -> np.ndarray:
        x = plain(x, self.feed_forward.linear1)
        mask = hide_later(None, x.shape[1], cache) if mask is None else mask
        options |= {"mask": mask, "cache": cache}
        cross_attention = partial(self.cross_attention, memory=memory, mask=memory_mask)
        y = self.residual(x, self.norm1, partial(self.self_attention, **options))
        y = self.residual(y, self.norm2, cross_attention)
        return plain(self.residual(y, self.norm3, self.feed_forward))


class FastEncoder(Encoder):
    """A stack that passes arrays from layer to layer, and splits large batches over the cores."""

    def forward(self, x: Any, mask: Any = None, caches: Any = None, positions: Any = 0) -> Tensor:
        x = plain(x)
        n, count = len(x), 1 if caches is not None or x.size < LARGE_BATCH else get_num_threads()
        run = super().forward
        if count == 1 or n < count or watched(*self.modules()):
            return Tensor(plain(run(x, mask, caches, positions)))

        def of_rows(rows: slice) -> np.ndarray:
            parts = [  # of arrays (N, h, L, L_kv) and (N, L), and neither of (L, L_kv) nor of (L,)
                z[rows] if np.ndim(z) > axes and len(z) == n else z
                for z, axes in ((mask, 2), (positions, 1))
            ]
            return plain(run(x[rows], parts[0], None, parts[1]))

        return Tensor(np.concatenate(in_parallel(of_rows, slices(n, count))))


class FastDecoder(Decoder):
    """A stack that passes arrays from layer to layer."""

    def forward(self, x: Any, *args: Any, **options: Any) -> Tensor:
        return Tensor(plain(super().forward(plain(x), *args, **options)))


class FastExtendedEncoder(FastEncoder, ExtendedEncoder):
    """An `ExtendedEncoder` with the methods of `FastEncoder`."""


class FastExtendedDecoder(FastDecoder, ExtendedDecoder):
    """An `ExtendedDecoder` with the methods of `FastDecoder`."""


def slices(length: int, count: int) -> list[slice]:
    """Return `count` slices of about equal length that cover `length` elements."""
    ends = [length * i // count for i in range(count + 1)]
    return [slice(*pair) for pair in itertools.pairwise(ends)]


LARGE_BATCH: float = 1 << 17  # values of the input from which a batch is split

FAST: dict[type[Module], type[Module]] = {
    Linear: FastLinear,
    CappedLinear: FastCappedLinear,
    Embedding: FastEmbedding,
    Dropout: FastDropout,
    LayerNorm: FastLayerNorm,
    RMSNorm: FastRMSNorm,
    FeedForward: FastFeedForward,
    ExtendedFeedForward: FastFeedForward,
    MultiHeadAttention: FastAttention,
    ExtendedAttention: FastAttention,
    TransformerEncoderLayer: FastEncoderLayer,
    ExtendedEncoderLayer: FastEncoderLayer,
    TransformerDecoderLayer: FastDecoderLayer,
    ExtendedDecoderLayer: FastDecoderLayer,
    Encoder: FastEncoder,
    ExtendedEncoder: FastExtendedEncoder,
    Decoder: FastDecoder,
    ExtendedDecoder: FastExtendedDecoder,
}
"""Classes of layers in a copy for inference, by the class in the model."""
