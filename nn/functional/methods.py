"""Methods of modules with PyTorch's names."""

from __future__ import annotations

from typing import Any

from minigrad.numpy.creation import as_dtype
from minigrad.registry import add_methods

from ..module import Module


def to(self: Module, to: Any) -> Module:
    """Return the module, converted to a dtype. The device "cpu" changes nothing.

    Parameters
    ----------
    to : dtype, Tensor, array or "cpu"
        A dtype, or an array that has it.
    """
    dtype = as_dtype("Module.to", to)
    return self if dtype is None else self.astype(dtype)


add_methods(Module, {"to": to})
