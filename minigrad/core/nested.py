"""Tensors inside lists, tuples and dicts, as NumPy's functions take and return them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .changes import mark_changed
from .modes import MODE
from .tensor import Tensor, wrap


def needs_gradient(value: Any) -> bool:
    """Whether `value` is, or holds at any depth, a tensor whose operations are being recorded."""
    return MODE.get().record and _is_tracked(value)


def _is_tracked(value: Any) -> bool:
    if isinstance(value, Tensor):
        return value._node is not None
    if isinstance(value, (list, tuple)):
        return any(map(_is_tracked, value))
    return isinstance(value, dict) and any(map(_is_tracked, value.values()))


def without_tensors(value: Any) -> Any:
    """The arrays inside tensors, at any depth."""
    if isinstance(value, Tensor):
        return value._array
    if isinstance(value, dict):
        return {key: without_tensors(part) for key, part in value.items()}
    return _rebuilt(value, without_tensors)


def untracked_options(name: str, options: dict[str, Any]) -> dict[str, Any]:
    """The options of the op `name`, for which no rule knows a gradient, with arrays in place of
    tensors.
    """
    for option, value in options.items():
        if needs_gradient(value):
            raise TypeError(refusal(name, option, value))
    return without_tensors(options)


def refusal(name: str, option: str, value: Any) -> str:
    """Why an option cannot be followed back."""
    if option == "out":
        return f"{name}: out= cannot hold the result of a tensor that requires gradients; use what is returned"
    shown = f"={value!r}" if isinstance(value, (str, int, float)) else "="
    return f"{name}: {option}{shown} has no rule for tensors that require gradients; use .detach() where none is needed"


def numpy_name(function: Any) -> str:
    """A function of NumPy as a user writes it: np.linalg.norm."""
    return f"{(getattr(function, '__module__', None) or 'numpy').replace('numpy', 'np', 1)}.{function.__name__}"


def as_tensors(value: Any) -> Any:
    """The arrays and scalars of a result as tensors, inside lists, tuples and named tuples too."""
    if isinstance(value, (np.ndarray, np.generic)):
        return wrap(np.asarray(value), None)
    return _rebuilt(value, as_tensors)


def _rebuilt(value: Any, function: Callable[[Any], Any]) -> Any:
    """A list, tuple or named tuple of what `function` makes of its parts; anything else as it is."""
    if not isinstance(value, (list, tuple)):
        return value
    parts = [function(part) for part in value]
    return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)


def on_arrays(function: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
    """The call with the arrays inside tensors, at any depth."""
    if isinstance(kwargs.get("out"), Tensor):
        raise TypeError(
            f"{function.__name__}: a Tensor cannot be given as out=; use the result instead"
        )
    result = function(*without_tensors(args), **without_tensors(kwargs))
    if isinstance(kwargs.get("out"), np.ndarray):
        mark_changed(kwargs["out"])
    return result
