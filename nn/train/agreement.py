"""Digests of what the ranks of a run, and a run and its continuation, must have in common."""

from __future__ import annotations

import hashlib
import json
import platform
import sys
from pathlib import Path
from typing import Any

import numpy as np

import minigrad
from minigrad.optim import Schedule

__all__ = ["describe", "digest", "environment", "rates"]


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
    found: list[Any] = []
    for step in (1, 2, 10, 100, 1000, 10_000, 100_000):
        try:
            found.append(schedule.rates(step))
        except ValueError as error:  # past the end of the schedule
            found.append(str(error))
    return found


def digest(value: Any) -> str:
    """Return a checksum of arrays, numbers and strings, in lists, tuples and dicts."""
    text = json.dumps(value, default=_as_json, skipkeys=True)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _as_json(value: Any) -> Any:
    if isinstance(value, (np.ndarray, np.generic)):
        bits = hashlib.blake2b(np.ascontiguousarray(value).data, digest_size=8)
        return [str(value.dtype), value.shape, bits.hexdigest()]
    return value.fingerprint() if hasattr(value, "fingerprint") else type(value).__name__


def describe(value: Any) -> Any:
    """Return the class of an object, and its public attributes that are data.

    Long arrays and lists are represented by their length and 64 slices.
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
    """Return the length and 64 slices of an array above 64 MB or a list above 100,000 items."""
    if isinstance(value, np.ndarray) and value.ndim:
        most = (1 << 26) // max(1, value[:1].nbytes)
    elif isinstance(value, (list, tuple)):
        most = 100_000
        value = [_sample(item) if isinstance(item, np.ndarray) else item for item in value]
    else:
        return value
    if len(value) <= most:
        return value
    size = most // 64 + 1
    starts = np.linspace(0, len(value) - size, 64).astype(int).tolist()
    return [len(value), *(value[start : start + size] for start in starts)]
