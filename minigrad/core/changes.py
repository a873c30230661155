"""Arrays changed in place, which a graph that saved them must not use.

A view has changed if memory that it looks into has. So changes are noted for the array that owns
the memory, as ranges of addresses with the time of the last change to each. One clock numbers nodes
and changes alike.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.lib.array_utils import byte_bounds

from .errors import GradientError

tick = itertools.count(1).__next__
last = 0  # the time of the last change: older than a node, and nothing need be looked up for it

_changed: dict[int, tuple[weakref.ref[Any], dict[tuple[int, int], int]]] = {}


def owner_of(array: np.ndarray) -> np.ndarray:
    """The array whose memory a view looks into; itself, if it is none."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def _ranges(owner: np.ndarray) -> dict[tuple[int, int], int]:
    """The changes noted for an array that owns its memory: addresses from where to where, and when."""
    found = _changed.get(id(owner))
    return found[1] if found is not None and found[0]() is owner else {}


def mark_changed(array: np.ndarray) -> None:
    """Note that `array` was changed in place: a graph that saved it, or a view of its memory, will
    refuse.
    """
    global last
    owner = owner_of(array)
    key, ranges = id(owner), _ranges(owner)
    if not ranges:
        _changed[key] = (weakref.ref(owner, lambda _: _changed.pop(key, None)), ranges)
    last = ranges[byte_bounds(array)] = tick()


def last_change(array: np.ndarray) -> int:
    """The time of the last change that was noted for the memory of an array; 0 for none."""
    return max(_ranges(owner_of(array)).values(), default=0)


def check_unchanged(name: str, since: int, values: Iterable[Any]) -> None:
    """A GradientError if any of the values that op `name` saved at the time `since` was changed
    later.
    """
    for value in values:
        if isinstance(value, tuple):
            check_unchanged(name, since, value)
        if not isinstance(value, np.ndarray):
            continue
        ranges = _ranges(owner_of(value))
        if not ranges:
            continue
        low, high = byte_bounds(value)
        if any(
            when > since and low < end and start < high
            for (start, end), when in list(ranges.items())
        ):
            raise GradientError(
                f"{name}: an array of shape {value.shape} that its gradient needs was changed "
                "in place after it was used; change it after backward(), or use a clone() of it"
            )
