"""Fused operations.

A kernel works in place on blocks of rows that fit the cache, and saves little. It is registered for
a function of `minigrad.ops`, whose definition is a composition of operations.
"""

from . import cross_entropy as cross_entropy
from . import dropout as dropout
from . import embedding as embedding
from . import linear as linear
from . import stepper as stepper
from .attention import forward_attention as forward_attention
from .attention import softmax_in_place as softmax_in_place
from .blocks import BLOCK as BLOCK
from .blocks import row_blocks as row_blocks
from .gelu import gelu_in_place as gelu_in_place
from .normalization import forward_row_norm as forward_row_norm

__all__ = [
    "BLOCK", "forward_attention", "forward_row_norm", "gelu_in_place", "row_blocks",
    "softmax_in_place",
]  # fmt: skip


def __dir__() -> list[str]:
    return __all__
