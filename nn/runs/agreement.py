"""Digests of what the ranks of a run, or a run and its continuation, must have in common."""

from __future__ import annotations

import hashlib
import json
import platform
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import numpy as np

import minigrad
from minigrad.optim import Schedule
from minigrad.tensor import unwrap


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
    """Return the learning rates of a schedule at some steps, which differ for other functions.

    Of a `ReduceLROnPlateau`, return its settings.
    """
    if not isinstance(schedule, Schedule):
        state = {} if schedule is None else schedule.state_dict()
        return {name: x for name, x in describe(schedule).items() if name not in state}
    values: list[Any] = []
    for step in (digit * 10**power for power in range(6) for digit in (1, 2, 5)):
        try:
            values.append(schedule.rates(step))
        except Exception as error:  # of the caller's function, past its end
            values.append(str(error))
    return values


def losses(objective: Any) -> Any:
    """Return the class, the settings and the code of an objective."""
    functions = [type(objective).total, getattr(objective, "function", None)]
    return [describe(objective), [_function(function) for function in functions]]


def _function(function: Any) -> Any:
    """Return the name and code of a function, and the numbers and strings that it is bound to."""
    if isinstance(function, partial):
        values = [*function.args, *function.keywords.values()]
        return [_function(function.func), _scalars(values)]
    function = getattr(function, "__func__", function)  # of a method
    if not isinstance(function, FunctionType):
        return describe(function)
    values = [*(function.__defaults__ or ())]
    for cell in function.__closure__ or ():
        with suppress(ValueError):  # of a variable that has no value yet
            values.append(cell.cell_contents)
    return [function.__qualname__, _bytecode(function.__code__), _scalars(values)]


def _scalars(values: list[Any]) -> list[str]:
    """Return the values that are numbers or strings."""
    return [repr(value) for value in values if isinstance(value, (bool, int, float, str))]


def _bytecode(value: Any) -> Any:
    """Return the instructions, names and constants of a code object, or a constant."""
    if isinstance(value, CodeType):
        constants = [_bytecode(constant) for constant in value.co_consts]
        return [value.co_code.hex(), value.co_names, constants]
    return sorted(map(repr, value)) if isinstance(value, frozenset) else repr(value)


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
