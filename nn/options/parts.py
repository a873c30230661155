"""Embeddings and stacks of models with all options, made from an `ExtendedConfig`.

Look at `layer_options`: what the layers of a stack share, and in what they differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np
from numpy.random import Generator

from minigrad.tensor import Tensor

from ..block import (
    Decoder,
    Encoder,
    InputEmbedding,
    TransformerDecoderLayer,
    TransformerEncoderLayer,
)
from ..layers import Dropout, Embedding, LearnedPositions, Linear, SinusoidalPositions
from ..module import Module, ModuleList
from .activations import Identity
from .extended_layers import ExtendedDecoderLayer, ExtendedEncoderLayer
from .heads import prune_heads
from .norms import norm_named
from .position_bias import POSITION_BIASES


class ExtendedEmbedding(InputEmbedding):
    """Embeddings of tokens with segment types, a norm and a width of their own.

    As `InputEmbedding`, without an effect of `scale`, which `config` has. `std` of the weights is
    d_model ** -0.5 by default if embeddings are scaled, otherwise 1.
    """

    types: Embedding | None = None
    norm: Module | None = None
    projection: Linear | None = None

    def __init__(
        self,
        config: Any,
        vocab_size: int,
        generator: Generator | None = None,
        *,
        scale: float = 1.0,
        std: float | None = None,
        num_types: int = 0,
    ) -> None:
        embeddings = config.effective.embeddings
        d_model, width = config.d_model, embeddings.size
        self.scale = embeddings.scale
        if std is None:
            std = 1.0 if self.scale == 1 else d_model**-0.5
        shared: dict[str, Any] = {"dtype": config.dtype, "generator": generator}
        self.tokens = Embedding(vocab_size, width, config.masked_id, std=std, **shared)
        if num_types:
            self.types = Embedding(num_types, width, None, std=std, **shared)
        self.positions = table_of_positions(config, width, generator)
        if config.embeddings.norm:
            self.norm = norm_named(config.norm, width, config.norm_eps, config.dtype)
        self.dropout = Dropout(config.dropout, generator=generator)
        if width != d_model:
            self.projection = Linear(width, d_model, **shared)

    def forward(self, ids: Any, positions: Any = 0, types: Any = None) -> Tensor:
        """Return the vectors of tokens with segment types (N, L), 0 by default."""
        x = self.tokens(ids)
        if self.scale != 1:
            x = x * self.scale
        if self.types is not None:
            x = x + self.types(np.zeros_like(ids) if types is None else types)
        if self.positions is not None:
            x = self.positions(x, positions)
        for part in (self.norm, self.dropout, self.projection):
            x = x if part is None else part(x)
        return x


class HalvedPositions(SinusoidalPositions):
    """Sinusoidal positions with all sines first, then all cosines, as in the OPUS-MT models.

    Parameters: as `SinusoidalPositions`.
    """

    def table(self, length: int) -> np.ndarray:
        """Return the vectors of the first positions, (length, d_model)."""
        table = super().table(length)
        return np.concatenate([table[:, ::2], table[:, 1::2]], axis=1)


class LastPositions(SinusoidalPositions):
    """Halved positions whose last exponent is 1, as in tensor2tensor and fairseq.

    Parameters: as `SinusoidalPositions`.
    """

    def table(self, length: int) -> np.ndarray:
        """Return the vectors of the first positions, (length, d_model)."""
        d = self.d_model
        angle = np.arange(length)[:, None] / 10000 ** (np.arange(0, d, 2) / max(d - 2, 1))
        return np.concatenate([np.sin(angle), np.cos(angle)], axis=1)


SINUSOIDS: dict[str, type[SinusoidalPositions]] = {
    "sinusoidal": SinusoidalPositions,
    "sinusoidal_halves": HalvedPositions,
    "sinusoidal_last": LastPositions,
}


def table_of_positions(config: Any, size: int, generator: Generator | None) -> Module | None:
    """Return the module that adds positions to vectors of a size, or None."""
    kind = config.positions.kind
    table: dict[str, Any] = {"dtype": config.dtype, "offset": config.positions.offset}
    if kind.startswith("learned"):
        return LearnedPositions(config.max_len, size, generator=generator, **table)
    return SINUSOIDS[kind](config.max_len, size, **table) if kind in SINUSOIDS else None


def layer_options(
    config: Any, count: int, *, causal: bool, cross: bool, generator: Generator | None
) -> list[dict[str, Any]]:
    """Return the options of each layer of a stack, which differ in their self-attention."""
    names = ("dropout", "activation", "norm_eps", "norm_first", "norm_after", "bias", "dtype",
             "activation_dropout", "gated", "norm")  # fmt: skip
    common = {name: getattr(config, name) for name in names}
    attention, positions = config.effective.attention, config.positions
    bias: Any = attention.bias
    if isinstance(bias, str):
        bias = {name: name[0] in bias for name in ("q", "k", "v", "out")}
    shared = {
        "num_kv_heads": attention.num_kv_heads,
        "head_dim": attention.head_dim,
        "scale": attention.scale,
        "softcap": attention.softcap,
        "bias": bias,
        "qk_norm": config.norm_eps if attention.qk_norm else None,
        "zero_centred": config.norm == "rms_zero_centred",
        "dropout": attention.dropout,
    }
    common |= (
        {"cross_attention": shared} if cross else {"parallel": getattr(config, "parallel", False)}
    )
    of_positions: dict[str, Any] = {}
    if positions.kind == "rotary":
        of_positions["rotary"] = config.rotary()
    elif positions.kind in POSITION_BIASES:
        make_bias = POSITION_BIASES[positions.kind]
        of_positions["position_bias"] = make_bias(config, not causal, generator)
    layers = []
    windowed = config.rotary(positions.rotary_window_base) if positions.rotary_window_base else None
    for i in range(count):
        changes: dict[str, Any] = {}
        if attention.window_layers is None or i in attention.window_layers:
            changes["window"] = attention.window
            changes |= {} if windowed is None else {"rotary": windowed}
        if i in positions.no_rotary_layers:
            changes["rotary"] = None
        layers.append({**common, "attention": shared | of_positions | changes})
    return layers


def set_layers(
    stack: Any, config: Any, count: int, generator: Generator | None, *, causal: bool, cross: bool
) -> None:
    """Make the layers and the norm of a stack, without the heads that were pruned."""
    kind = config.parts[stack.layer_class]
    sizes = config.d_model, config.num_heads, config.d_ff
    options = layer_options(config, count, causal=causal, cross=cross, generator=generator)
    stack.layers = ModuleList([kind(*sizes, generator=generator, **layer) for layer in options])
    if stack.layers and not config.first_norm:
        if config.norm_after:
            stack.layers[0].norm1.before = Identity()
        else:
            stack.layers[0].norm1 = Identity()
    stack.norm = None
    if config.effective.final_norm:
        stack.norm = norm_named(config.norm, config.d_model, config.norm_eps, config.dtype)
    name = "decoder" if cross else "layers" if causal else "encoder"  # of a stack in a model
    for path, heads in config.pruned_heads.items():
        of_stack, _, path = path.partition(".")
        if of_stack == name:
            prune_heads(dict(stack.named_modules())[path], heads)


class ExtendedEncoder(Encoder):
    """A stack of encoder layers with all options; a shared one is used `num_layers` times."""

    def __init__(
        self,
        config: Any,
        num_layers: int,
        generator: Generator | None = None,
        *,
        causal: bool = False,
        shared: bool = False,
    ) -> None:
        self.causal, self.repeats = causal, num_layers if shared else 1
        self.output_scale = config.output_scale if causal else 1.0  # its output is the model's
        count = min(num_layers, 1) if shared else num_layers
        set_layers(self, config, count, generator, causal=causal, cross=False)

    def forward(self, x: Any, *args: Any, **options: Any) -> Tensor:
        """Return the output of the last layer, times `output_scale`."""
        x = super().forward(x, *args, **options)
        return x if self.output_scale == 1 else x * self.output_scale

    def calls(self, positions: Any) -> Iterable[Callable[..., Tensor]]:
        """Return the layers in the order of their calls, with the positions for rotation."""
        return [partial(layer, positions=positions) for layer in self.layers] * self.repeats


class ExtendedDecoder(Decoder):
    """A stack of decoder layers with all options.

    Parameters: as `Decoder`.
    """

    def __init__(self, config: Any, num_layers: int, generator: Generator | None = None) -> None:
        self.output_scale = config.output_scale
        set_layers(self, config, num_layers, generator, causal=True, cross=True)

    def forward(self, x: Any, *args: Any, **options: Any) -> Tensor:
        """Return the output of the last layer, times `output_scale`."""
        x = super().forward(x, *args, **options)
        return x if self.output_scale == 1 else x * self.output_scale


PARTS: dict[type, type] = {
    InputEmbedding: ExtendedEmbedding,
    Encoder: ExtendedEncoder,
    Decoder: ExtendedDecoder,
    TransformerEncoderLayer: ExtendedEncoderLayer,
    TransformerDecoderLayer: ExtendedDecoderLayer,
}
"""Classes of the parts of a model with all options, by the classes that they replace."""
