"""Embeddings of images: Dosovitskiy et al. (2021), arXiv:2010.11929."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.random import Generator

import minigrad as mg
from minigrad.tensor import Tensor

from .. import init
from ..layers import Dropout
from ..module import Module, Parameter, as_input
from .parts import table_of_positions

__all__ = ["PatchEmbedding"]


class PatchEmbedding(Module):
    """Embeddings of images: a learned vector, then that of each patch, row by row.

    Parameters: as `EncoderModel`.

    References
    ----------
    Dosovitskiy et al. (2021), arXiv:2010.11929.
    """

    def __init__(self, config: Any, generator: Generator | None = None) -> None:
        channels, side = config.num_channels, config.patch_size
        d_model, dtype = config.d_model, config.dtype
        self.shape = (channels, config.image_size, config.image_size)
        self.first = Parameter(np.zeros((1, d_model), dtype))
        self.weight = init.xavier_uniform_(
            Parameter(np.zeros((d_model, channels, side, side), dtype)), 1, generator
        )
        self.bias = Parameter(np.zeros(d_model, dtype))
        self.positions = table_of_positions(config, d_model, generator)
        self.dropout = Dropout(config.dropout, generator=generator)

    def forward(self, images: Any, positions: Any = 0, types: Any = None) -> Tensor:
        """Return the vectors of images."""
        shape, dtype = np.shape(images), getattr(images, "dtype", None)
        if shape[1:] != self.shape or np.dtype(dtype).kind != "f":
            raise ValueError(
                f"images must be floats (N, {', '.join(map(str, self.shape))}), got {dtype} {shape}"
            )
        (n, channels, size, _), (d_model, *_, side) = shape, self.weight.shape
        x = as_input(self, images, self.weight.dtype)
        x = mg.reshape(x, n, channels, size // side, side, size // side, side)
        x = mg.transpose(x, (0, 2, 4, 1, 3, 5))
        patches = mg.reshape(x, n, (size // side) ** 2, channels * side * side)
        x = mg.linear(patches, mg.reshape(self.weight, d_model, -1), self.bias)
        x = mg.concatenate([mg.broadcast_to(self.first, (n, 1, d_model)), x], 1)
        return self.dropout(x if self.positions is None else self.positions(x))
