"""Public names of packages, and errors for names that they do not have."""

from __future__ import annotations

import builtins
import importlib
import sys
from collections.abc import Callable
from opcode import opmap
from types import ModuleType
from typing import Any, NoReturn

import numpy as np

_MODULES = (
    "minigrad.torch", "minigrad.torch.nn", "minigrad.torch.nn.functional",
    "minigrad.torch.nn.init", "minigrad.torch.nn.utils", "minigrad.torch.optim",
    "minigrad.torch.optim.lr_scheduler", "minigrad.torch.utils.data",
)  # fmt: skip


def namespace(
    module: str, *modules: str
) -> tuple[list[str], Callable[..., Any], Callable[..., Any]]:
    """Return `__all__`, `__getattr__` and `__dir__` of a package with these public modules.

    `__all__` lacks names of builtins, which `from package import *` would replace.
    """
    contents = vars(sys.modules[module])
    names = contents.get("__all__") or [
        name
        for name, value in contents.items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    ]
    shown = sorted({*names, *modules})

    def missing(name: str, depth: int = 1) -> NoReturn:
        text = f"module {module!r} has no attribute {name!r}"
        if not name.startswith("_"):
            text = f"{text}; {_place(module, name)}"
            frame = sys._getframe(depth)  # the code that asks for the name
            if frame.f_code.co_code[frame.f_lasti] == opmap["IMPORT_FROM"]:
                raise ImportError(text, name=module)  # Python would drop another error's text
        # with `obj`, Python's traceback suggests similar names
        raise AttributeError(text, name=name, obj=sys.modules.get(module))

    return [n for n in names if not hasattr(builtins, n)], missing, lambda: shown


def _names(module: str) -> list[str]:
    loaded = importlib.import_module(module)
    return getattr(loaded, "__all__", None) or dir(loaded)


def _place(module: str, name: str) -> str:
    """Return where a name is, or which page lists the names."""
    for place in _MODULES:
        if name in _names(place):
            return f"write from {place} import {name}"
    is_numpys = module == "minigrad.torch" and name not in ("nanmedian", "select")
    if (module == "minigrad" or is_numpys) and callable(getattr(np, name, None)):
        return f"NumPy's functions take tensors: write np.{name}(...)"
    return "docs/torch.md lists PyTorch's names that exist, docs/numpy.md NumPy's"
