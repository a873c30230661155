"""Memory: which array owns it, and whether it was changed after a graph saved it.

A rule must not read an array that has changed since its node was recorded. Changes are stored for
the array that owns the memory, as ranges of addresses with the time of the last change to each
range. A view has changed if its range of addresses overlaps a changed range. Nodes and changes are
numbered by the same clock, `tick`. Look at `mark_changed` and `check_unchanged`.

A package around the book may keep a log of writes instead, with which old values can be made again
(`logs` and `LOG`). A first reader can skip the rest.
"""

from __future__ import annotations

import itertools
import math
import weakref
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.lib.array_utils import byte_bounds

from .arrays import Array, Function, Tree, all_values
from .errors import GradientError

tick = itertools.count(1).__next__
last = 0  # the time of the last change; nodes that are newer need no check
last_marked = 0  # the time of the last change by `mark_changed`
NEVER = math.inf  # the time until which a tensor that stays constant was read

Entry = tuple[dict[tuple[int, int], int], tuple[int, int]]
"""Changes of an array that owns its memory, by ranges of addresses, and the range of a view."""

_changed: dict[int, tuple[weakref.ref[np.ndarray], dict[tuple[int, int], int]]] = {}


def owner_of(array: Array) -> np.ndarray:
    """Return the array that owns the memory of `array`, which may be a view."""
    array = all_values(array)
    base = array.base
    while base is not None:
        if isinstance(base, np.ndarray):
            array, base = base, base.base
        else:  # a sliding window hides the array
            base = getattr(base, "base", None)
    return array


def shares_memory(a: Array, b: Array) -> bool:
    """Return whether two arrays have the same owner."""
    return owner_of(a) is owner_of(b)


def _ranges(owner: np.ndarray) -> dict[tuple[int, int], int]:
    """Return the changes of an array that owns its memory: {(start, end): time}."""
    entry = _changed.get(id(owner))
    return entry[1] if entry is not None and entry[0]() is owner else {}


def entry_of(array: np.ndarray) -> Entry:
    """Return where changes of an array are stored."""
    owner = owner_of(array)
    key, ranges = id(owner), _ranges(owner)
    if not ranges:
        _changed[key] = (weakref.ref(owner, lambda _: _changed.pop(key, None)), ranges)
    return ranges, byte_bounds(array)


def mark_changed(array: Array) -> None:
    """Mark `array` as changed in place, so that a graph that saved its memory raises an error."""
    mark_entries([entry_of(all_values(array))])


def time_of_change() -> int:
    """Return a new time, which is that of the last change."""
    global last
    last = tick()
    return last


def mark_entries(entries: Iterable[Entry]) -> None:
    """Mark arrays as changed by their entries, which is faster than `mark_changed`."""
    global last_marked
    last_marked = time_of_change()
    for ranges, bounds in entries:
        ranges[bounds] = last_marked


def check_unchanged(name: str, since: int, values: Iterable[Tree]) -> None:
    """Raise a GradientError if a value that op `name` saved at time `since` was changed later."""
    for value in values if last_marked > since else ():
        if isinstance(value, tuple):
            check_unchanged(name, since, value)
        value = all_values(value)
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
            raise change_error(name, value)


def change_error(name: str, value: np.ndarray) -> GradientError:
    """Return the error for an array that op `name` saved and that was changed."""
    return GradientError(
        f"{name}: an array of shape {value.shape} that its gradient needs was changed "
        "in place after it was used; change it after backward(), or use a clone() of it "
        "(detect_anomaly() around both names the line)"
    )


# -- a log of writes

logs: dict[int, Any] = {}
"""Logs of writes by the id of the array that owns the memory; empty while nothing is written."""


def _unchanged(memory: Any, name: str, since: int, edges: Any) -> Any:
    check_unchanged(name, since, edges)
    return edges


LOG: dict[str, Function] = {"restored": _unchanged}
"""Functions of a log.

The book contains "restored"; a package that keeps `logs` sets the others.

"read" gets the operands of an operation, gives each tensor the node of its values, and returns
whether the memory of an operand has a log. "saved" then gets the new node. "needed" gets a tensor
whose gradient is asked for. These are called while a log exists. "restored" returns the edges of a
node with the values that it saved; its first argument is a dict for the copies of a backward pass.
"""
