"""Edges that properties share: counts beside a limit, alignments, arguments that change later."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from hypothesis import strategies as st

alignments = st.integers(0, 12).map(lambda exponent: 2**exponent)
"""Alignments of arrays in files and in memory: 1 to 4,096 bytes."""
encodable = st.characters(exclude_categories=["Cs"])
"""Characters of UTF-8, as by default, for which hypothesis first encodes all that exist."""


def beside(*limits: int, low: int = 0) -> st.SearchStrategy[int]:
    """Draw a limit, or the count before or behind it, of at least `low`."""
    counts = {limit + step for limit in limits for step in (-1, 0, 1)}
    return st.sampled_from(sorted(count for count in counts if count >= low))


def overwrite(value: Any) -> None:
    """Change all arrays and lists in a value, as a caller does that reads the next batch into them."""
    if isinstance(value, np.ndarray):
        if value.dtype.kind in "iub":
            value[...] = np.logical_not(value)
        elif value.dtype.kind == "f":
            value[...] = np.nan
    elif isinstance(value, dict):
        overwrite([*value.values()])
    elif isinstance(value, (list, tuple)):
        for i, part in enumerate(value):
            if isinstance(value, list) and isinstance(part, (int, float)):
                value[i] = not part
            overwrite(part)
    elif dataclasses.is_dataclass(value):
        overwrite(vars(value))
