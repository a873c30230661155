"""Finding the first NaN or Inf: which operation made it, on which line of the caller's code."""

from __future__ import annotations

import linecache
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ..core.errors import AnomalyError, GradientError
from ..core.graph import Node, notes_of
from ..core.watch import Watch

__all__ = ["detect_anomaly"]

_BESIDE = Path(__file__).parent.parent.parent  # where our packages lie, and maybe other people's


def _is_ours(frame: Any) -> bool:
    """Whether a frame runs a module of `minigrad` or `nn`: by its package, and by where that
    package lies.
    """
    package = frame.f_globals.get("__name__", "").partition(".")[0]
    file = getattr(sys.modules.get(package), "__file__", None)
    return (
        package in ("minigrad", "nn") and file is not None and Path(file).parent.parent == _BESIDE
    )


def caller_line() -> str:
    """The innermost line of the stack that is not in this library."""
    frame: Any = sys._getframe(1)
    while frame.f_back is not None and _is_ours(frame):
        frame = frame.f_back
    code, number = frame.f_code, frame.f_lineno
    text = linecache.getline(code.co_filename, number).strip()
    return f"{code.co_filename}:{number} in {code.co_name}" + (f": {text}" if text else "")


def _any(test: Callable[[Any], Any], value: Any) -> bool:
    """Whether any number in a tensor, an array, or a tuple of them passes the test, such as
    np.isnan.
    """
    if isinstance(value, (tuple, list)):
        return any(_any(test, part) for part in value)
    array = getattr(value, "_array", value)
    known = (
        isinstance(array, (np.ndarray, np.generic, float)) and np.asarray(array).dtype.kind in "fc"
    )
    return known and bool(np.any(test(array)))


def _finite(value: Any) -> bool:
    return not _any(lambda array: ~np.isfinite(array), value)


class detect_anomaly(Watch):
    """Within this block, the first operation to make a NaN or an Inf raises an `AnomalyError`.

    It names the operation and the line that called it, in a forward pass as in `backward()` (which
    needs to be inside the block too). If an array that the graph needs was changed, `backward()`
    raises a `GradientError` with the line of the operation that used it. This includes changes
    through `t.data[0] = 1` and through the caller's own arrays, which go unnoticed elsewhere. A NaN that was in the
    data is reported by the first operation that passes it on. All this costs time.
    """

    def forward(
        self, op: Any, function: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]
    ) -> Any:
        with np.errstate(all="ignore"):
            y = super().forward(op, function, args, options)
        if not _finite(y) and (origin := _origin(y, (args, tuple(options.values())), "operands")):
            raise AnomalyError(f"{op.name}: {origin}; called at {caller_line()}")
        return y

    def recorded(self, node: Node) -> None:
        super().recorded(node)
        notes = notes_of(node)
        notes.line = caller_line()
        notes.checksum = _checksum(node)

    def backward(self, node: Node, rule: Callable[..., Any], g: Any, args: tuple[Any, ...]) -> Any:
        line = node.notes.line if node.notes is not None else None
        if node.notes is not None and node.notes.checksum not in (None, _checksum(node)):
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


def _origin(made: Any, given: Any, what: str) -> str | None:
    """How a NaN or an Inf came about; None for an Inf that was there before, as the -Inf of a mask
    is.
    """
    kind = "NaN" if _any(np.isnan, made) else "Inf"
    if _finite(given):
        return f"made {kind} from finite {what}"
    if kind == "Inf":
        return None
    return (
        f"passed on a NaN in its {what}"
        if _any(np.isnan, given)
        else f"made NaN from {what} with an Inf"
    )


def _checksum(node: Node) -> int:
    """A checksum of all arrays that the rules of a node read."""
    total = 0
    for array in _arrays([args for _, _, args in node.edges or ()]):
        total = zlib.crc32(np.ascontiguousarray(array).tobytes(), total)
    return total


def _arrays(value: Any) -> Iterator[np.ndarray]:
    """The arrays in nested tuples, lists and dicts, as operands, options and kernels have them."""
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from _arrays(part)
    elif isinstance(value, dict):
        yield from _arrays(list(value.values()))
