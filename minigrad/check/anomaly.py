"""Detection of the first NaN or Inf, with its operation and the line of the caller's code."""

from __future__ import annotations

import linecache
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from ..errors import GradientError
from ..graph import Node
from ..numpy.watch import Watch
from .memory import arrays_in

__all__ = ["AnomalyError", "detect_anomaly"]


class AnomalyError(FloatingPointError):
    """Error of `detect_anomaly()` for the first NaN or Inf, with the operation and the line."""


_ROOT = Path(__file__).parents[2]  # contains minigrad and nn


def _is_ours(frame: Any) -> bool:
    """Return whether a frame runs a module of this `minigrad` or `nn`."""
    package = frame.f_globals.get("__name__", "").partition(".")[0]
    file = getattr(sys.modules.get(package), "__file__", None)
    return package in ("minigrad", "nn") and file is not None and Path(file).parents[1] == _ROOT


def caller_line() -> str:
    """Return the innermost line of the stack outside of this library."""
    frame: Any = sys._getframe(1)
    while frame.f_back is not None and _is_ours(frame):
        frame = frame.f_back
    code, number = frame.f_code, frame.f_lineno
    text = linecache.getline(code.co_filename, number).strip()
    return f"{code.co_filename}:{number} in {code.co_name}" + (f": {text}" if text else "")


def _any(test: Callable[[Any], Any], value: Any) -> bool:
    """Return whether a value in the arrays of `value` passes a test, such as np.isnan."""
    arrays = map(np.asarray, arrays_in(value))
    return any(bool(test(array).any()) for array in arrays if array.dtype.kind in "fc")


def _finite(value: Any) -> bool:
    return not _any(lambda array: ~np.isfinite(array), value)


class detect_anomaly(Watch):
    """Context manager that raises an `AnomalyError` for the first NaN or Inf.

    The error contains the operation and the line that called it, in the forward pass and in
    `backward()`, which must be inside the block too. A NaN in the data is reported by the first
    operation that passes it on.

    If an array that the graph needs was changed, `backward()` raises a `GradientError` with the
    line of the operation that used it. This includes changes through `t.data[0] = 1` and through
    the caller's own arrays, which are not noticed elsewhere.
    """

    def __init__(self) -> None:
        self._recorded: WeakKeyDictionary[Node, tuple[str, set[Any]]] = WeakKeyDictionary()

    def forward(
        self, op: Any, function: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]
    ) -> Any:
        """Run a forward call and check its result."""
        with np.errstate(all="ignore"):
            y = super().forward(op, function, args, options)
        if not _finite(y) and (origin := _origin(y, (args, tuple(options.values())), "operands")):
            raise AnomalyError(f"{op.name}: {origin}; called at {caller_line()}")
        return y

    def recorded(self, node: Node) -> None:
        """Store the line of the caller and checksums of the arrays that each rule reads."""
        super().recorded(node)
        checksums = {_checksum(node, rule, args) for _, rule, args in node.edges or ()}
        self._recorded[node] = caller_line(), checksums

    def _name(self, node: Node) -> str:
        """Return the name of an operation and the line that called it."""
        line = self._recorded.get(node, (None,))[0]
        return f"{node.op.name}, called at {line}" if line else node.op.name

    def backward(self, node: Node, rule: Callable[..., Any], g: Any, args: tuple[Any, ...]) -> Any:
        """Run a rule and check its saved arrays and its results."""
        line, checksums = self._recorded.get(node, (None, set()))
        if line is not None and _checksum(node, rule, args) not in checksums:
            raise GradientError(
                f"{node.op.name}: values that its gradient needs were changed since {line}; change "
                "them after backward(), or use a copy"
            )
        with np.errstate(all="ignore"):
            c = super().backward(node, rule, g, args)
        if not _finite(c) and (origin := _origin(c, g, "gradients")):
            raise AnomalyError(
                f"{node.op.name}: its gradient {origin}; the operation was called at "
                f"{line or 'a line outside detect_anomaly()'}"
            )
        return c


def _origin(results: Any, arguments: Any, what: str) -> str | None:
    """Describe the origin of a NaN or Inf; None for an Inf of the arguments, such as a mask's."""
    kind = "NaN" if _any(np.isnan, results) else "Inf"
    if _finite(arguments):
        return f"made {kind} from finite {what}"
    if kind == "Inf":
        return None
    is_passed_on = _any(np.isnan, arguments)
    return f"passed on a NaN in its {what}" if is_passed_on else f"made NaN from {what} with an Inf"


def _checksum(node: Node, rule: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Any, int]:
    """Return the rule of an operand, or None for the one rule of all, and a checksum of `args`."""
    total = 0
    for array in arrays_in(args):
        total = zlib.crc32(np.ascontiguousarray(array).data, total)
    return None if node.op.joint else rule, total
