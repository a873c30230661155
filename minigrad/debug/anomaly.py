"""Finding the first NaN or Inf: which operation made it, on which line of the caller's code."""

from __future__ import annotations

import linecache
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ..core.errors import AnomalyError, GradientError
from ..core.graph import Node, notes_of
from ..core.modes import Watch

__all__ = ["detect_anomaly"]

_HOME = str(Path(__file__).parent.parent)
_NN = str(Path(__file__).parent.parent.parent / "nn")


def caller_line() -> str:
    """The innermost line of the stack that is not in this library."""
    frame: Any = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith((_HOME, _NN)):
        frame = frame.f_back
    code, number = frame.f_code, frame.f_lineno
    text = linecache.getline(code.co_filename, number).strip()
    return f"{code.co_filename}:{number} in {code.co_name}" + (f": {text}" if text else "")


def _finite(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return all(map(_finite, value))
    array = getattr(value, "_data", value)
    return not isinstance(array, (np.ndarray, np.generic, float)) or bool(np.all(np.isfinite(array)))


class detect_anomaly(Watch):
    """Within this block, the first operation to make a NaN or an Inf raises an `AnomalyError`.

    It names the operation and the line that called it, in a forward pass as in `backward()` (which
    needs to be inside the block too). Values that a graph still needs and that were written to
    behind its back (`t.data[0] = 1`) raise a `GradientError` in `backward()`. All this costs time.
    """

    def forward(self, op: Any, function: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        with np.errstate(all="ignore"):
            y = super().forward(op, function, args, options)
        if not _finite(y) and _finite(args) and _finite(tuple(options.values())):
            raise AnomalyError(f"{op.name}: made {_kind(y)} from finite operands; called at {caller_line()}")
        return y

    def recorded(self, node: Node) -> None:
        super().recorded(node)
        notes = notes_of(node)
        notes.line = caller_line()
        notes.checksum = _checksum(node)

    def backward(self, node: Node, rule: Callable[..., Any], g: Any, args: tuple[Any, ...]) -> Any:
        line = node.notes.line if node.notes is not None else None
        if node.notes is not None and node.notes.checksum not in (None, _checksum(node)):
            raise GradientError(f"{node.op.name}: values that its gradient needs were changed since {line}")
        with np.errstate(all="ignore"):
            c = super().backward(node, rule, g, args)
        if not _finite(c) and _finite(g):
            raise AnomalyError(
                f"{node.op.name}: its gradient made {_kind(c)} from a finite one; the operation was called at "
                f"{line or 'a line outside detect_anomaly()'}"
            )
        return c


def _kind(value: Any) -> str:
    values = value if isinstance(value, (tuple, list)) else [value]
    arrays = [getattr(v, "_data", v) for v in values]
    return "NaN" if any(np.isnan(a).any() for a in arrays if isinstance(a, (np.ndarray, np.generic, float))) else "Inf"


def _checksum(node: Node) -> int:
    total = 0
    for _, _, args in node.edges or ():
        for value in args:
            if isinstance(value, np.ndarray):
                total = zlib.crc32(np.ascontiguousarray(value).tobytes(), total)
    return total
