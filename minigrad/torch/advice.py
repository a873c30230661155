"""Advice for names of PyTorch that do not exist here, from `advice.json`."""

from __future__ import annotations

import json
import re
import sys
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from ..registry import FUNCTIONS, OPS
from ..tensor import DISPATCH, Tensor

_TABLES = {  # tables of `advice.json` by module
    "Tensor": ["Tensor"],
    "minigrad": ["minigrad", "data", "nn.functional"],
    "nn": ["nn", "data"],
    "nn.functional": ["nn.functional"],
    "minigrad.optim": ["optim"],
    "minigrad.optim.lr_scheduler": ["optim"],
}


@cache
def tables() -> dict[str, dict[str, dict[str, str]]]:
    """Return sentences by table, then by name ("names") or regular expression ("patterns")."""
    loaded: Any = json.loads(Path(__file__).with_name("advice.json").read_text(encoding="utf-8"))
    return loaded


def advice(module: str, name: str) -> str:
    """Return the replacement of a missing name, such as "write np.f(...)", or ""."""
    sentences = {n: s for table in _TABLES[module] for n, s in tables()[table]["names"].items()}
    if name in sentences or name.startswith("__"):
        return sentences.get(name, "")
    if module in ("minigrad", "nn.functional"):
        method = f"write x.{name}(...)" if hasattr(Tensor, name) else advice("Tensor", name)
        if method:
            return method
    kinds = tables()["Tensor" if module == "Tensor" else "modules"]["patterns"]
    if text := next((text for kind, text in kinds.items() if re.fullmatch(kind, name)), ""):
        return text
    if module == "Tensor" and (name in OPS or name in FUNCTIONS):
        is_public = name in vars(sys.modules["minigrad"])
        return f"write {'minigrad' if is_public else 'np'}.{name}(x, ...)"
    if module == "Tensor" and hasattr(np.ndarray, name):
        return f"write x.data.{name}"
    if name.endswith("_"):
        base = name[:-1]
        method = f"write x.{base}(...)" if hasattr(Tensor, base) else advice(module, base)
        return (
            method and f"tensors are not changed in place; {method.replace('write ', 'write x = ')}"
        )
    numpy = getattr(np, name, None) if module == "minigrad" else None
    if not callable(numpy):
        return ""
    return f"write np.{name}(...)" + (", without gradient" if numpy not in DISPATCH else "")


def missing(module: str, name: str) -> NoReturn:
    """Raise the AttributeError of a module for a name that it does not have."""
    replacement = advice(module, name)
    text = f"module {module!r} has no attribute {name!r}"
    text = f"{text}: {replacement}" if replacement else text
    # with `obj`, Python's traceback suggests similar names
    raise AttributeError(text, name=name, obj=sys.modules.get(module))


def _missing_of_tensor(self: Tensor, name: str) -> Any:
    """Raise the AttributeError for a name that tensors do not have."""
    general = "help(minigrad.Tensor) lists the methods, and functions are called as np.f(x)"
    text = f"no `{name}`: {advice('Tensor', name) or general}"
    raise AttributeError(text, name=name, obj=self)


Tensor.__getattr__ = _missing_of_tensor  # type: ignore
