"""Error for names that a module does not have: where PyTorch's and NumPy's names are."""

from __future__ import annotations

import importlib
import sys
from opcode import opmap
from typing import NoReturn

import numpy as np

_MODULES = (
    "minigrad.torch", "minigrad.torch.nn", "minigrad.torch.nn.functional",
    "minigrad.torch.nn.init", "minigrad.torch.nn.utils", "minigrad.torch.optim",
    "minigrad.torch.optim.lr_scheduler", "minigrad.torch.utils.data",
)  # fmt: skip


def missing(module: str, name: str) -> NoReturn:
    """Raise an AttributeError, or an ImportError in an import statement.

    Parameters
    ----------
    module : str
        Module whose `__getattr__` calls this function.
    name : str
        Name that the module does not have.
    """
    text = f"module {module!r} has no attribute {name!r}"
    if not name.startswith("_"):
        text = f"{text}; {_place(module, name)}"
        frame = sys._getframe(2)  # the code that asks for the name
        if frame.f_code.co_code[frame.f_lasti] == opmap["IMPORT_FROM"]:
            raise ImportError(text, name=module)  # Python would drop the text of another error
    # with `obj`, Python's traceback suggests similar names
    raise AttributeError(text, name=name, obj=sys.modules.get(module))


def _names(module: str) -> list[str]:
    loaded = importlib.import_module(module)
    return getattr(loaded, "__all__", None) or dir(loaded)


def _place(module: str, name: str) -> str:
    """Return where a name is, or which page lists the names."""
    for place in _MODULES:
        if place != module and name in _names(place):
            return f"write from {place} import {name}"
    if module == "minigrad" and callable(getattr(np, name, None)):
        return f"NumPy's functions take tensors: write np.{name}(...)"
    return "docs/torch.md lists PyTorch's names that exist, docs/numpy.md NumPy's"
