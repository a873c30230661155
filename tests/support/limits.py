"""Numbers at and beside the limits of formulas and of floating-point formats."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

MAX_EXPONENT = 60.0
"""Size of logits up to which `needs_shift` of the kernels allows exponentials as they are."""


@cache
def value_limits(dtype: Any, largest: float = np.inf) -> np.ndarray:
    """Return numbers of both signs: each limit, its neighbours, and what is 1 less or more.

    Parameters
    ----------
    dtype : dtype
        The limits are the ends of its range, of its normal numbers and of its integers, the
        numbers whose squares or exponentials are there, and `MAX_EXPONENT`.
    largest : float
        Numbers of at most this size are returned.
    """
    info = np.finfo(dtype)
    ends = np.array([info.max, info.smallest_normal, info.smallest_subnormal, info.eps])
    roots, logs = np.sqrt(ends), np.abs(np.log(ends))
    limits = np.concatenate([ends, 1 / ends[3:], roots, logs, [MAX_EXPONENT, 1, 0]]).astype(dtype)
    with np.errstate(over="ignore"):
        sides = [np.nextafter(limits, end, dtype=dtype) for end in (-np.inf, np.inf)]
        values = np.concatenate([limits, *sides, limits - 1, limits + 1])
    values = np.unique(np.concatenate([values, -values]))
    values = values[np.isfinite(values) & (np.abs(values) <= largest)]
    values.setflags(write=False)
    return values
