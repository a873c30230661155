"""Where weights lie in memory, for decoding.

A step of decoding multiplies a few rows by every weight, and mostly waits for memory. BLAS reads a
weight (out, in) that is at least as high as wide sooner where it lies column by column, and one product
with the weights of query, key and value costs less than three.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from ..layers.attention import MultiHeadSelfAttention
from ..layers.linear import JoinedLinear, Linear
from ..layers.module import Module, Parameter

__all__ = ["lay_out_for_decoding"]

M = TypeVar("M", bound=Module)


def lay_out_for_decoding(model: M) -> M:
    """Move the weights of `model` in memory, to where decoding is fastest; the model itself is returned.

    Values, shapes and names stay. Gradients are dropped, and an optimizer made before refuses its next
    step; one made afterwards moves the weights again, to where it trains fastest. `load_marian` and
    `Translator.load` call this.
    """
    for module in model.modules():
        if isinstance(module, MultiHeadSelfAttention):
            maps = [module.q_proj, module.k_proj, module.v_proj]
            biases = [m.bias for m in maps if m.bias is not None]
            if len(biases) in (0, 3):
                module.joined = JoinedLinear(maps, _joined([m.weight for m in maps]), _joined(biases))
        elif isinstance(module, Linear):
            weight = module.weight
            if module.out_features >= module.in_features and weight.data.flags.c_contiguous:
                weight.replace(np.asfortranarray(weight.data))
    return model


def _joined(parts: Sequence[Parameter]) -> np.ndarray | None:
    """One below the other, column by column."""
    return np.asfortranarray(np.concatenate([p.data for p in parts])) if parts else None
