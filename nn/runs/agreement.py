"""Digests of what the ranks of a run, or a run and its continuation, must have in common."""

from __future__ import annotations

import hashlib
import json
import platform
from contextlib import suppress
from functools import partial
from types import FunctionType
from typing import Any

import numpy as np

import minigrad
from minigrad.tensor import unwrap


def environment() -> dict[str, str]:
    """Return the versions of the programs that compute."""
    return {
        "minigrad": minigrad.__version__,
        "Python": platform.python_version(),
        "NumPy": np.__version__,
    }


def schedule_settings(schedule: Any) -> Any:
    """Return the settings of a schedule, and those of its functions."""
    state = {} if schedule is None else schedule.state_dict()
    settings = {name: x for name, x in describe(schedule).items() if name not in state}
    return [settings | {"factors": None}, function_settings(getattr(schedule, "factors", None))]


def function_settings(value: Any, inside: tuple[Any, ...] = ()) -> Any:
    """Return the name of a function, and the numbers, strings and functions that it is bound to."""
    if isinstance(value, (list, tuple)):
        return [function_settings(part, inside) for part in value]
    if isinstance(value, partial):
        parts = [value.func, *value.args, *value.keywords.values()]
        return function_settings(parts, (*inside, value))
    value = getattr(value, "__func__", value)
    if isinstance(value, FunctionType) and value not in inside:
        bound = [*(value.__defaults__ or ())]
        for cell in value.__closure__ or ():
            with suppress(ValueError):  # a variable that has no value yet
                bound.append(cell.cell_contents)
        return [value.__qualname__, function_settings(bound, (*inside, value))]
    if isinstance(value, (bool, int, float, str)):
        return repr(value)
    return type(value).__name__ if inside else describe(value)


def digest(value: Any) -> str:
    """Return a checksum of arrays, numbers and strings, in lists, tuples and dicts."""
    text = json.dumps(value, default=_as_json, skipkeys=True)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _as_json(value: Any) -> Any:
    value = unwrap(value)
    if isinstance(value, (np.ndarray, np.generic)):
        bits = hashlib.blake2b(np.ascontiguousarray(value).data, digest_size=8)
        return [str(value.dtype), value.shape, bits.hexdigest()]
    return value.fingerprint() if hasattr(value, "fingerprint") else type(value).__name__


def describe(value: Any) -> Any:
    """Return the class of an object, and its public attributes that are data.

    Of arrays above 64 MB and lists above 100,000 items, only some rows are read.
    """
    data = (bool, int, float, str, list, tuple, dict, np.ndarray, type(None))
    attributes = {
        name: _sample(attribute)
        for name, attribute in getattr(value, "__dict__", {}).items()
        if not name.startswith("_")
        and (isinstance(attribute, data) or hasattr(attribute, "fingerprint"))
    }
    return {"class": type(value).__name__, **attributes}


def _sample(value: Any) -> Any:
    """Return the length of an array or list, and every n-th row so that few are left."""
    if isinstance(value, list):
        return [len(value), value[:: 1 + len(value) // 100_000]]
    if isinstance(value, np.ndarray) and value.ndim:
        return [len(value), value[:: 1 + (value.nbytes >> 26)]]
    return value
