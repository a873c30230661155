"""The layers of models that only infer: subclasses with fused and absorbed projections, without
gradients.

`for_inference` makes them of the layers of a model. They compute the same, to rounding. What one
row asks for is done with numbers and vectors, where NumPy's cost by the call would count.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

import minigrad as mg
from minigrad.core.tensor import Tensor, unwrap
from minigrad.kernels import (
    forward_attention,
    forward_embedding,
    forward_row_norm,
    gelu_in_place,
    softmax_in_place,
)
from minigrad.runtime import get_num_threads, has_blas, in_parallel

from ..layers.attention import (
    PROBE,
    MultiHeadAttention,
    MultiHeadCrossAttention,
    MultiHeadSelfAttention,
)
from ..layers.cache import KeysAndValues
from ..layers.feedforward import FeedForward
from ..layers.linear import Dropout, Embedding, Linear
from ..layers.module import Module, has_hooks
from ..layers.norm import LayerNorm, RMSNorm
from ..layers.rotary import rotate_in_place
from ..models.stacks import Encoder

__all__ = ["FAST"]


def plain(x: Any) -> np.ndarray:
    """The array of x; an error where a gradient is asked for, which would be cut here."""
    if not isinstance(x, Tensor):
        return np.asarray(x)
    if x._node is not None:
        raise RuntimeError(
            "a copy for inference has no gradients: use the model that it was made of"
        )
    return x._array


FEW = 64  # rows


def in_fast_layout(weight: np.ndarray) -> np.ndarray:
    """Return the weight (out, in) as `product` reads it fastest, in new read-only memory.

    A step of decoding multiplies a few rows by every weight, and mostly waits for memory. OpenBLAS
    reads a weight that is at least as high as wide sooner if it lies column by column, and another
    one sooner as the left factor.
    """
    order: Any = "F" if has_blas() and weight.shape[0] >= weight.shape[1] else "C"
    weight = np.array(weight, order=order)
    weight.flags.writeable = False
    return weight


def product(rows: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Return rows (n, in) @ weight.T for a weight (out, in)."""
    if 1 < len(rows) <= FEW and weight.flags.c_contiguous and has_blas():
        return np.ascontiguousarray((weight @ rows.T).T)
    return rows @ weight.T


class FastLinear(Linear):
    def prepare(self) -> None:
        """Lay the weight out for reading."""
        self.weight._array = in_fast_layout(self.weight.data)

    def forward(self, x: Any) -> Tensor:
        bias = None if self.bias is None else self.bias._array
        return Tensor(mapped(plain(x), self.weight._array, bias))


def mapped(x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
    """x @ weight.T + bias, in new memory."""
    y = product(x.reshape(-1, x.shape[-1]), weight)
    if bias is not None:
        y += bias
    return y.reshape(*x.shape[:-1], len(weight))


class FastEmbedding(Embedding):
    def forward(self, indices: Any) -> Tensor:
        ids, table = np.asarray(indices), self.weight._array
        if ids.dtype.kind not in "iu" or not ids.size or ids.min() < 0 or ids.max() >= len(table):
            return super().forward(indices)  # with its error
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
        """Add once what a norm that is centred at zero adds each time."""
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
    """`linear1` and `gate` as one product."""

    def prepare(self) -> None:
        """Put their weights one below the other."""
        self.fused, self.fused_bias = fuse(self._first_layers())

    def _first_layers(self) -> list[Linear]:
        return [self.linear1] if self.gate is None else [self.linear1, self.gate]

    def forward(self, x: Any) -> Tensor:
        if self.fused is None or has_hooks(*self._first_layers()):
            return super().forward(x)
        h = mapped(plain(x), self.fused, self.fused_bias)
        width = self.linear1.out_features
        function = _IN_PLACE.get(self.activation, self.function)
        if self.gate is None:
            return self.linear2(function(h))
        y = unwrap(function(np.ascontiguousarray(h[..., :width])))
        y *= h[..., width:]
        return self.linear2(y)


def silu_in_place(x: np.ndarray) -> np.ndarray:
    """x, which is silu(x) afterwards."""
    with np.errstate(over="ignore"):  # of the result nothing is left
        y = np.exp(-x)
    y += 1
    x /= y
    return x


_IN_PLACE: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "relu": lambda x: np.maximum(x, 0, out=x), "gelu": gelu_in_place,
    "gelu_tanh": lambda x: gelu_in_place(x, "tanh"), "silu": silu_in_place,
}  # fmt: skip


def fuse(maps: list[Linear]) -> tuple[np.ndarray | None, np.ndarray | None]:
    """The weights and biases of maps of one input, one below the other; those of the maps become
    views of them.

    None where one of the maps is more than a weight and a bias, such as one with an adapter.
    """
    if not only_linear(*maps):
        return None, None
    weight = in_fast_layout(np.concatenate([m.weight.data for m in maps]))
    bias = None
    if any(m.bias is not None for m in maps):
        parts = [
            np.zeros(m.out_features, weight.dtype) if m.bias is None else m.bias.data for m in maps
        ]
        bias = np.concatenate(parts)
        bias.flags.writeable = False
    places = np.cumsum([0, *(m.out_features for m in maps)])
    for m, start, end in zip(maps, places, places[1:]):
        m.weight._array = weight[start:end]
        if m.bias is not None and bias is not None:
            m.bias._array = bias[start:end]
    return weight, bias


def only_linear(*maps: Linear) -> bool:
    """Whether these are linear maps and nothing else."""
    return all(type(m) is FastLinear for m in maps)


class FastMemory(KeysAndValues):
    """Keys and values of a memory; those of a single source serve all rows that `select` makes of
    it.
    """

    absorbed: Absorbed | None = None

    def select(self, rows: np.ndarray) -> None:
        if len(self.keys) > 1:
            super().select(rows)


def watched(*parts: Module) -> bool:
    """Return whether a probe or a hook observes or changes what happens inside these."""
    return PROBE.get() is not None or has_hooks(*parts)


class FastAttention(MultiHeadAttention):
    """Attention by the kernel's function of arrays."""

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
    """Queries, keys and values by one product."""

    def prepare(self) -> None:
        """Put the weights of the three projections one below the other."""
        self.fused, self.fused_bias = fuse([self.q_proj, self.k_proj, self.v_proj])

    def project(self, query: Any, key: Any, value: Any, positions: Any) -> tuple[Any, Any, Any]:
        if self.fused is None or has_hooks(self.q_proj, self.k_proj, self.v_proj):
            return super().project(query, key, value, positions)
        qkv = mapped(plain(query), self.fused, self.fused_bias)
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
    """Attention to a memory that is projected once; for a short source, with the projections
    absorbed in it.
    """

    def keys_and_values(self, key: Any, value: Any = None) -> KeysAndValues:
        return FastMemory(*map(unwrap, super().keys_and_values(plain(key), value)))

    def project(self, query: Any, key: Any, value: Any, positions: Any) -> tuple[Any, Any, Any]:
        if self.q_norm is not None or self.rotary is not None or not isinstance(key, FastMemory):
            return super().project(query, key, value, positions)
        q = plain(self.q_proj(query)).reshape(*query.shape[:2], self.num_heads, self.d_k)
        return q.transpose(0, 2, 1, 3), key.keys, key.values

    def forward(self, x_q: Any, x_kv: Any, mask: Any = None, **options: Any) -> Tensor:  # type: ignore[override]
        x = plain(x_q)
        if not isinstance(x_kv, FastMemory):
            return super().forward(x, x_kv, mask, **options)
        n, one = len(x), len(x_kv.keys) == 1
        if n > 1 and one:  # queries of one sequence
            x, mask = x.reshape(1, -1, x.shape[-1]), None if mask is None else mask[:1]
        if (
            not one
            or mask is not None
            or watched(self.q_proj, self.out_proj)
            or not Absorbed.pays(self, x_kv)
        ):
            y = super().forward(x, x_kv, mask, **options)
        else:
            if x_kv.absorbed is None:
                x_kv.absorbed = Absorbed(self, x_kv)
            y = Tensor(x_kv.absorbed(x))
        return y if n == len(x) else mg.reshape(y, n, -1, self.d_model)


class Absorbed:
    """Keys and values of one source, with the projections of query and output absorbed in them.

    The score of key k in a head, (W x + b) · k / √d_k, is x · (Wᵀ k) / √d_k plus a constant, and
    the output is the sum of the values, each times its weight and the head's columns of the
    output's projection. Both products depend on the source alone. For a short source they hold
    fewer numbers than the projections do, and a step of decoding takes as long as reading them.
    """

    def __init__(self, attention: MultiHeadAttention, memory: KeysAndValues) -> None:
        h, d = attention.num_heads, attention.d_k
        k, v = (x[0] for x in memory)  # (h, L, d_k)
        query, out = attention.q_proj, attention.out_proj
        k = k * k.dtype.type(attention.scale)
        self.shape = (-1, h, k.shape[1])
        self.keys = (k @ query.weight.data.reshape(h, d, -1)).reshape(
            h * k.shape[1], -1
        )  # (h·L, d_model)
        columns = out.weight.data.reshape(-1, h, d).transpose(1, 2, 0)  # (h, d_k, d_model)
        self.values = (v @ columns).reshape(h * k.shape[1], -1)
        self.constants = (
            None if query.bias is None else (k @ query.bias.data.reshape(h, d, 1))[..., 0]
        )  # (h, L)
        self.bias = None if out.bias is None else out.bias.data

    @staticmethod
    def pays(attention: MultiHeadAttention, memory: KeysAndValues) -> bool:
        """Whether each head has keys of its own, and what is absorbed is at most half as large as
        the projections.
        """
        plain_heads = attention.num_kv_heads == attention.num_heads and attention.q_norm is None
        plain_heads = plain_heads and only_linear(attention.q_proj, attention.out_proj)
        return plain_heads and 2 * attention.num_heads * memory.keys.shape[2] <= attention.d_model

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """(1, L_q, d_model) from x of that shape."""
        weights = (x[0] @ self.keys.T).reshape(self.shape)  # (L_q, h, L)
        if self.constants is not None:
            weights += self.constants
        softmax_in_place(weights, None, 1.0)
        y = weights.reshape(len(weights), -1) @ self.values
        if self.bias is not None:
            y += self.bias
        return y[None]


class FastEncoder(Encoder):
    """A stack whose large batches are shared out to the cores."""

    def forward(
        self, x: Any, mask: Any = None, caches: Any = None, positions: Any = None
    ) -> Tensor:
        x = plain(x)
        n, count = len(x), 1 if caches is not None or x.size < LARGE_BATCH else get_num_threads()
        if count == 1 or n < count or watched(*self.modules()):
            return super().forward(x, mask, caches, positions)
        ends = [n * i // count for i in range(count + 1)]
        run = super().forward

        def of_rows(rows: slice) -> np.ndarray:
            own = [z[rows] if np.ndim(z) and len(z) == n else z for z in (mask, positions)]
            return unwrap(run(x[rows], own[0], None, own[1]))

        return Tensor(
            np.concatenate(in_parallel(of_rows, [slice(a, b) for a, b in itertools.pairwise(ends)]))
        )


LARGE_BATCH: float = 1 << 17  # numbers in the input of a stack; math.inf leaves every batch whole

FAST: dict[type[Module], type[Module]] = {
    Linear: FastLinear, Embedding: FastEmbedding, Dropout: FastDropout, LayerNorm: FastLayerNorm, RMSNorm: FastRMSNorm,
    FeedForward: FastFeedForward, MultiHeadSelfAttention: FastSelfAttention,
    MultiHeadCrossAttention: FastCrossAttention, Encoder: FastEncoder,
}  # fmt: skip
"""What stands for each layer in a copy for inference."""
