"""Settings that are numbers: checked once, and what is wrong said in one sentence."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

import numpy as np

__all__ = ["checked_count", "checked_flag", "checked_number"]


def checked_number(
    owner: str,
    name: str,
    value: Any,
    low: float = 0.0,
    high: float = math.inf,
    *,
    above: bool = False,
) -> float:
    """A finite number with low <= value < high, or with `above` low < value: else an error that
    names `owner`.
    """
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{owner}: expected a number for {name}, got {value!r}")
    number = float(value)
    if (
        not math.isfinite(number)
        or not (low < number if above else low <= number)
        or not number < high
    ):
        wanted = f"{name} {'>' if above else '>='} {low:g}" + (
            f" and < {high:g}" if high < math.inf else ""
        )
        raise ValueError(f"{owner}: expected a finite {wanted}, got {value!r}")
    return number


def checked_count(owner: str, name: str, value: Any, low: int = 1) -> int:
    """A whole number of at least `low`, or an error that names `owner`."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{owner}: expected a whole number for {name}, got {value!r}")
    if value < low:
        raise ValueError(f"{owner}: expected {name} >= {low}, got {value}")
    return int(value)


def checked_flag(owner: str, name: str, value: Any) -> bool:
    """Return a boolean, or raise an error that names `owner`."""
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{owner}: {name} must be True or False, got {value!r}")
    return bool(value)
