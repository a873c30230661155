"""Fused operations: each does in one pass what its definition, beside it, says in several.

A kernel works in blocks of rows that fit the cache, in place, and saves little. Its definition is a
composition of ops: the documentation, the truth that tests hold it to, and what is differentiated
under `create_graph`.
"""

from .attention import attention_weights as attention_weights
from .attention import checked_mask as checked_mask
from .attention import forward_attention as forward_attention
from .attention import softmax_in_place as softmax_in_place
from .blocks import BLOCK as BLOCK
from .embedding import forward_embedding as forward_embedding
from .gelu import gelu_in_place as gelu_in_place
from .normalization import forward_row_norm as forward_row_norm
