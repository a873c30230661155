"""Tensors inside lists, tuples and dicts, as NumPy's functions take and return them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..arrays import as_array, as_result, is_number
from ..changes import mark_changed, shares_memory
from ..nested import map_parts, numpy_name, without_tensors
from ..protocols import check_writable
from ..tensor import Tensor, extension, wrap
from .batched import BatchedArray

IN_C: dict[Any, Callable[..., Any]] = {  # functions without a signature before NumPy 2.4
    np.where: lambda condition, x=None, y=None, /: ...,
    np.concatenate: lambda arrays, /, axis=0, out=None, *, dtype=None, casting="same_kind": ...,
    np.dot: lambda a, b, out=None: ...,
    np.vdot: lambda a, b, /: ...,
    np.inner: lambda a, b, /: ...,
    np.bincount: lambda x, /, weights=None, minlength=0: ...,
}


def signature(numpy: Any) -> inspect.Signature:
    """Return the signature of a NumPy function."""
    return inspect.signature(IN_C.get(numpy, numpy))


def as_tensors(value: Any, arguments: Any = ()) -> Any:
    """Replace arrays and scalars in lists and tuples at any depth by tensors.

    An array that shares the memory of a tensor in `arguments` becomes a view of it.
    """
    if not isinstance(value, (np.ndarray, np.generic, BatchedArray)):
        return map_parts(value, lambda part: as_tensors(part, arguments))
    t = wrap(as_result(value), None)
    for x in _tensors_in(arguments):
        if shares_memory(t._array, x._array):
            if is_number(x._array):
                return wrap(t._array.copy(), None)
            t._share(x)
    return t


def _tensors_in(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _tensors_in(part)


def fitting(t: Tensor, name: str, y: Tensor) -> Tensor:
    """Return the result of an operation in the dtype of `t`, in whose place it is written."""
    if y.shape == t.shape and y.dtype == t.dtype:
        return y
    if y.shape != t.shape or not np.can_cast(y.dtype, t.dtype, "same_kind"):
        raise ValueError(
            f"{name}: a result of shape {y.shape} and dtype {y.dtype} does not fit in place of "
            f"shape {t.shape} and dtype {t.dtype}; write t = t + u instead of t += u"
        )
    return y.astype(t.dtype)


def write_out(name: str, out: Any, y: Any) -> Any:
    """Write a result into the tensor `out`, and return it."""
    check_writable(out, name)
    extension.write(out, ..., fitting(out, name, y), name)
    return out


def check_classes(*values: Any) -> None:
    """Raise a TypeError for an array of a class whose meaning an ndarray does not have."""
    for x in values:
        if not isinstance(x, (Tensor, list, tuple)):
            as_array(x)


def on_arrays(function: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
    """Call `function` with the arrays of all tensors."""
    outputs = _outputs(function, args, kwargs)
    check_classes(*args, *kwargs.values(), *outputs)
    if any(isinstance(x, Tensor) for x in outputs):
        raise TypeError(
            f"{numpy_name(function)}: out must be an ndarray, got a Tensor; use the result instead"
        )
    result = function(*without_tensors(args), **without_tensors(kwargs))
    for x in outputs:
        if x is not None:
            mark_changed(x)
    return result


def _outputs(function: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """Return the arguments that `function` writes into, given as `out=` or by position."""
    if "out" in kwargs:
        out = kwargs["out"]
        return out if isinstance(out, tuple) else (out,)
    if isinstance(function, np.ufunc):
        return tuple(args[function.nin :])
    i = _position_of_out(function)
    return () if i is None else tuple(args[i : i + 1])


@functools.lru_cache(1024)
def _position_of_out(function: Callable[..., Any]) -> int | None:
    """Return the position of the parameter `out`, or None if it has none."""
    try:
        parameters = signature(function).parameters
    except ValueError:  # a function in C
        return None
    names = [name for name, p in parameters.items() if p.kind is not p.KEYWORD_ONLY]
    return names.index("out") if "out" in names else None


def aligned(
    like: Any, tree: Any, is_leaf: Callable[[Any], bool] = lambda value: False
) -> list[Any]:
    """Return the parts of `tree` at the leaves of `like`, a tree of the same structure."""
    if is_leaf(like) or not isinstance(like, (dict, list, tuple)):
        return [tree]
    if isinstance(like, dict):
        if not isinstance(tree, dict) or tree.keys() != like.keys():
            raise ValueError(
                f"the tree must be a dict with the keys {sorted(map(str, like))}, got "
                f"{_describe(tree)}"
            )
        return [leaf for key in like for leaf in aligned(like[key], tree[key], is_leaf)]
    if not isinstance(tree, (list, tuple)) or len(tree) != len(like):
        raise ValueError(f"the tree must have {len(like)} parts, got {_describe(tree)}")
    return [leaf for part, other in zip(like, tree) for leaf in aligned(part, other, is_leaf)]


def _describe(tree: Any) -> str:
    if isinstance(tree, dict):
        return f"the keys {sorted(map(str, tree))}"
    return f"{len(tree)}" if isinstance(tree, (list, tuple)) else f"a {type(tree).__name__}"
