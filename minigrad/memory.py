"""Keeping freed memory in the process, so that the next step finds it there.

A training step asks for the same arrays again and again. By default the C library hands large freed
blocks back to the system, which clears and maps them anew page by page when they are asked for again:
that can take longer than the arithmetic done in them.
"""

from __future__ import annotations

import os
from functools import cache

__all__ = ["keep_freed_memory"]

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of glibc's <malloc.h>


@cache
def keep_freed_memory() -> bool:
    """Tell glibc's malloc to keep freed blocks for reuse; whether it could be told.

    Optimizers and decoding call this. It holds for the whole process, whose memory then stays at its
    peak. Setting the environment variable MINIGRAD_MALLOC=default leaves malloc as it is.
    """
    if os.environ.get("MINIGRAD_MALLOC") == "default":
        return False
    try:
        import ctypes

        mallopt = ctypes.CDLL(None).mallopt
        return bool(mallopt(_M_MMAP_THRESHOLD, 1 << 30) and mallopt(_M_TRIM_THRESHOLD, (1 << 31) - 1))
    except (ImportError, OSError, AttributeError, TypeError):  # another C library
        return False
