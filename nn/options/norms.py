"""RMS norms: Zhang, Sennrich (2019), arXiv:1910.07467, and the norms that a configuration names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from minigrad.arguments import check_choice
from minigrad.ops.network import rms_norm
from minigrad.tensor import Tensor

from ..layers import LayerNorm, TrailingNorm, normalize_trailing_axes
from ..module import Parameter, as_input

__all__ = ["RMSNorm"]


class RMSNorm(TrailingNorm):
    """RMS normalization: the last axes divided by the root of their mean square, times `weight`.

    Other parameters: as `LayerNorm`.

    Parameters
    ----------
    eps : float, optional
        Added to the mean square; by default the machine epsilon of the input's dtype.
    dtype : dtype, default float32
        Floating dtype of `weight`.
    zero_centred : bool, default False
        Multiply by 1 + `weight` instead of `weight`, as Gemma does.

    References
    ----------
    Zhang, Sennrich (2019), arXiv:1910.07467.
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
        *,
        dtype: Any = np.float32,
        zero_centred: bool = False,
    ) -> None:
        if zero_centred and not elementwise_affine:
            raise ValueError(
                "RMSNorm: zero_centred must be False without elementwise_affine, got True"
            )
        super().__init__(normalized_shape, eps)
        self.zero_centred = zero_centred
        initial = np.full(self.normalized_shape, 0 if zero_centred else 1, dtype)
        self.weight = Parameter(initial) if elementwise_affine else None

    def forward(self, x: Any) -> Tensor:
        """Return x (..., *normalized_shape), normalized."""
        shape, weight = self.normalized_shape, self.weight
        x = x if weight is None else as_input(self, x, weight.dtype)
        scale = weight + 1 if self.zero_centred and weight is not None else weight
        return normalize_trailing_axes(rms_norm, "RMSNorm", x, shape, self.eps, weight=scale)


NORMS = ("layer", "layer_no_bias", "rms", "rms_zero_centred")


def norm_named(kind: str, d: int, eps: float, dtype: Any) -> LayerNorm | RMSNorm:
    """Return a new norm."""
    check_choice("", "norm", kind, *NORMS)
    if kind.startswith("layer"):
        return LayerNorm(d, eps, bias=kind == "layer", dtype=dtype)
    return RMSNorm(d, eps, dtype=dtype, zero_centred=kind == "rms_zero_centred")
