"""Fused operations.

A kernel works in place on blocks of rows that fit the cache, and saves little. The definition
beside it is a composition of ops: the documentation, the reference for the tests, and the function
that `create_graph` differentiates.
"""

from .attention import attention_weights as attention_weights
from .attention import checked_mask as checked_mask
from .attention import forward_attention as forward_attention
from .attention import softmax_in_place as softmax_in_place
from .blocks import BLOCK as BLOCK
from .blocks import row_blocks as row_blocks
from .definitions import use_definitions as use_definitions
from .embedding import forward_embedding as forward_embedding
from .gelu import gelu_in_place as gelu_in_place
from .normalization import forward_row_norm as forward_row_norm
