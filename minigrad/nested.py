"""Tensors inside lists, tuples and dicts, as operations take them.

Look at `needs_gradient`, which decides whether an argument would lose a gradient, and at
`untracked`, which refuses such an argument for an option.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .modes import MODE
from .tensor import Tensor


def needs_gradient(value: Any) -> bool:
    """Return whether `value` is, or contains, a tensor whose operations are being recorded."""
    return MODE.get().record and _is_tracked(value)


def _is_tracked(value: Any) -> bool:
    if isinstance(value, Tensor):
        return value._node is not None
    if isinstance(value, (list, tuple)):
        return any(map(_is_tracked, value))
    return isinstance(value, dict) and any(map(_is_tracked, value.values()))


def without_tensors(value: Any) -> Any:
    """Replace tensors at any depth by their arrays."""
    if isinstance(value, Tensor):
        return value._array
    if isinstance(value, dict):
        return {key: without_tensors(part) for key, part in value.items()}
    return map_parts(value, without_tensors)


def untracked(name: str, option: str, value: Any) -> Any:
    """Return an option of the op `name` with arrays in place of tensors that need no gradient."""
    if needs_gradient(value):
        raise TypeError(refusal(name, option, value))
    return without_tensors(value)


def refusal(name: str, option: str, value: Any) -> str:
    """Return the error for an option that has no derivative."""
    if option == "out":
        return (
            f"{name}: out= cannot hold the result of a tensor that requires gradients; use the "
            "returned tensor"
        )
    shown = f"={value!r}" if isinstance(value, (str, int, float)) else "="
    return (
        f"{name}: {option}{shown} has no rule for tensors that require gradients; use .detach() "
        "if no gradient is needed"
    )


def map_parts(value: Any, function: Callable[[Any], Any]) -> Any:
    """Apply `function` to the parts of a list, tuple or named tuple."""
    if not isinstance(value, (list, tuple)):
        return value
    parts = [function(part) for part in value]
    return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
