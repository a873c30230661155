"""Digests of what the ranks of a run, or a run and its continuation, must have in common."""

from __future__ import annotations

import hashlib
import json
import platform
import sys
from pathlib import Path
from typing import Any

import numpy as np

import minigrad
from minigrad.core.tensor import unwrap
from minigrad.optim import Schedule


def environment() -> dict[str, str]:
    """Return versions, and digests of the code that runs."""
    script = Path(getattr(sys.modules["__main__"], "__file__", None) or "")
    return {
        "the code of minigrad": _code(),
        "the script": digest(script.read_text(encoding="utf-8") if script.is_file() else None),
        "Python": platform.python_version(),
        "NumPy": np.__version__,
    }


def _code() -> str:
    package = Path(minigrad.__file__).parent
    files = sorted([*package.rglob("*.py"), *(package.parent / "nn").rglob("*.py")])
    return digest([file.read_bytes().hex() for file in files])


def rates(schedule: Any) -> Any:
    """Return the learning rates of a schedule at some steps, which differ for other functions."""
    if not isinstance(schedule, Schedule):
        return describe(schedule)
    values: list[Any] = []
    for step in (1, 2, 10, 100, 1000, 10_000, 100_000):
        try:
            values.append(schedule.rates(step))
        except ValueError as error:  # past the end of the schedule
            values.append(str(error))
    return values


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
