"""Checks of arguments that are numbers or flags."""

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
    """Return a finite number as a float, or raise an error.

    Parameters
    ----------
    owner, name : str
        Function or class, and its argument, for the error.
    value : Any
        Argument to check.
    low, high : float
        low <= value < high must be true; 0 and infinity by default.
    above : bool
        Require low < value; False by default.

    Returns
    -------
    float
        `value`.
    """
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{owner}: {name} must be a number, got {value!r}")
    number = float(value)
    if not math.isfinite(number) or not low <= number < high or (above and number == low):
        least = f", {'greater than' if above else 'at least'} {low:g}" if low > -math.inf else ""
        most = f", less than {high:g}" if high < math.inf else ""
        raise ValueError(f"{owner}: {name} must be finite{least}{most}, got {value!r}")
    return number


def checked_count(owner: str, name: str, value: Any, low: int = 1) -> int:
    """Return a whole number as an int, or raise an error.

    Parameters
    ----------
    owner, name : str
        Function or class, and its argument, for the error.
    value : Any
        Argument to check.
    low : int
        Smallest number that is allowed.

    Returns
    -------
    int
        `value`.
    """
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{owner}: {name} must be a whole number, got {value!r}")
    if value < low:
        raise ValueError(f"{owner}: {name} must be at least {low}, got {value}")
    return int(value)


def checked_flag(owner: str, name: str, value: Any) -> bool:
    """Return a boolean as a bool, or raise an error.

    Parameters
    ----------
    owner, name : str
        Function or class, and its argument, for the error.
    value : Any
        Argument to check.

    Returns
    -------
    bool
        `value`.
    """
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{owner}: {name} must be True or False, got {value!r}")
    return bool(value)
