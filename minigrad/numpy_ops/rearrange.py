"""Functions that turn, repeat, pad and pick windows: most let NumPy rearrange the positions of
elements, and pick.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..core.forms import numpy_form
from ..core.nested import needs_gradient
from ..core.registry import function, op
from ..core.tensor import Tensor, unwrap
from ..ops.axes import all_axes, one_axis, shape_of
from ..ops.indexing import getitem, plain_index, take
from ..ops.shape import clone, moveaxis, ravel

__all__ = [
    "flip",
    "fliplr",
    "flipud",
    "rot90",
    "roll",
    "repeat",
    "tile",
    "pad",
    "sliding_window_view",
    "unfold",
]


def _picked(numpy: Callable[..., Any], x: Any, *args: Any, **options: Any) -> Tensor:
    """numpy(x, ...), for a function that only rearranges elements."""
    places = numpy(np.arange(np.size(x)).reshape(shape_of(x)), *map(unwrap, args), **options)
    return getitem(ravel(x), places)


@function(numpy=np.flip, methods="flip")
def flip(x: Any, axis: int | Sequence[int] | None = None) -> Tensor:
    """x with the order of its elements reversed along `axis` (all axes where it is None)."""
    axes = all_axes("flip", axis, np.ndim(x))
    return getitem(
        x, tuple([slice(None, None, -1 if i in axes else None) for i in range(np.ndim(x))])
    )


@function(numpy=np.fliplr)
def fliplr(x: Any) -> Tensor:
    """x with its columns in reversed order."""
    return flip(x, 1)


@function(numpy=np.flipud)
def flipud(x: Any) -> Tensor:
    """x with its rows in reversed order."""
    return flip(x, 0)


@function(numpy=np.rot90)
def rot90(x: Any, k: int = 1, axes: Sequence[int] = (0, 1)) -> Tensor:
    """x turned by k right angles in the plane of `axes`, from the first towards the second."""
    return _picked(np.rot90, x, k, axes)


@function(numpy=np.roll, methods="roll")
def roll(x: Any, shift: int | Sequence[int], axis: int | Sequence[int] | None = None) -> Tensor:
    """x with its elements moved on by `shift` along `axis`, those pushed out coming in again in
    front.
    """
    return _picked(np.roll, x, shift, axis)


@function(methods="repeat")
def repeat(x: Any, repeats: int | Sequence[int], axis: int | None = None, *more: int) -> Tensor:
    """x with each element repeated in place along `axis`, or of the flattened x where it is None."""
    if more:
        raise TypeError(
            f"repeat: to repeat x as a whole along each axis, write tile(x, "
            f"{(repeats, axis, *more)})"
        )
    return _picked(np.repeat, x, plain_index(repeats), axis)


numpy_form(np.repeat)(lambda a, repeats, axis=None: repeat(a, repeats, axis))


@function(numpy=np.tile, methods="tile")
def tile(x: Any, reps: int | Sequence[int]) -> Tensor:
    """x repeated as a whole, `reps` times along each axis (the last axes, where they are fewer)."""
    return _picked(np.tile, x, reps)


# -- windows
# -----------------------------------------------------------------------------------------


@function(numpy=np.lib.stride_tricks.sliding_window_view)
def sliding_window_view(x: Any, window_shape: Any, axis: Any = None) -> Tensor:
    """The windows of `window_shape` elements along `axis`: (..., n, ...) becomes (..., n - size +
    1, ..., size).
    """
    return _picked(np.lib.stride_tricks.sliding_window_view, x, window_shape, axis)


@function(methods="unfold")
def unfold(x: Any, axis: int, size: int, step: int = 1) -> Tensor:
    """The windows of `size` elements along `axis`, every `step`, as a new last axis, as PyTorch's
    `Tensor.unfold`.
    """
    axis = one_axis("unfold", axis, np.ndim(x))
    n = shape_of(x)[axis]
    if not 0 < size <= n:
        raise ValueError(f"unfold: a window of {size} does not fit into {n} elements")
    starts = np.arange(0, n - size + 1, step)
    return moveaxis(take(x, starts[:, None] + np.arange(size), axis), axis + 1, -1)


# -- padding
# -----------------------------------------------------------------------------------------


@op(
    x=lambda g, x_shape, widths: g[
        tuple([slice(before, before + n) for (before, _), n in zip(widths, x_shape)])
    ]
)
def _pad(x, /, widths, value):
    return np.pad(x, widths, constant_values=value)


@function(numpy=np.pad)
def pad(
    x: Any, pad_width: Any, mode: str = "constant", *, constant_values: Any = None, **options: Any
) -> Tensor:
    """x with `pad_width` elements added before and after each axis, as in `np.pad`.

    Modes: "constant", and those that repeat elements of x: "edge", "reflect", "symmetric" and
    "wrap".
    """
    shape = shape_of(x)
    widths = _pairs(pad_width, len(shape))
    given = options if constant_values is None else {"constant_values": constant_values, **options}
    if not shape:
        np.pad(
            np.zeros(()), pad_width, mode, **{name: unwrap(value) for name, value in given.items()}
        )  # type: ignore[call-overload]  # refuses what it refuses
        return clone(x)
    for name, value in given.items():
        if needs_gradient(value):
            raise TypeError(
                f"pad: {name}= cannot be tensors that require gradients; use concatenate"
            )
    if mode == "constant" and not options:
        return _pad(
            x, widths=widths, value=0 if constant_values is None else unwrap(constant_values)
        )
    if (
        mode in ("edge", "reflect", "symmetric", "wrap")
        and options.get("reflect_type", "even") == "even"
    ):
        return _picked(np.pad, x, pad_width, mode=mode, **given)
    raise ValueError(
        "pad: mode= must be 'constant', 'edge', 'reflect', 'symmetric' or 'wrap', got "
        f"{mode!r} with {options}; concatenate x with what you compute"
    )


def _pairs(value: Any, ndim: int) -> list[tuple[Any, Any]]:
    """(before, after) for each axis, of what NumPy takes for it."""
    if isinstance(value, dict):
        pairs = [(0, 0)] * ndim
        for axis, pair in value.items():
            pairs[axis] = tuple(np.broadcast_to(pair, 2).tolist())
        return pairs
    return [tuple(pair) for pair in np.broadcast_to(np.asarray(unwrap(value)), (ndim, 2)).tolist()]
