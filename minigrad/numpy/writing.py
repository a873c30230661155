"""Writes into tensors: `t[i] = u`, `t += u`, and NumPy's functions that write.

Each is NumPy's own write into the memory, which `write_log.py` records if gradients are involved.
Look at `write`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..arrays import OtherArray, all_values
from ..changes import NEVER, mark_changed, owner_of, time_of_change
from ..errors import GradientError
from ..graph import Node
from ..modes import MODE
from ..nested import needs_gradient, without_tensors
from ..ops.shape import getitem, plain_index
from ..protocols import check_writable
from ..tensor import (
    DISPATCH,
    Tensor,
    as_operand,
    extension,
    first_of,
    frozen_node,
    seen_of,
    unwrap,
)
from .creation import tensor
from .forms import ADAPTED
from .indexing import index_add
from .nested import check_classes, fitting, on_arrays
from .write_log import (
    THROUGH_ANOTHER,
    UNDER_NO_GRAD,
    Entry,
    Log,
    are_one_view,
    log_of,
    place_of,
    read,
    set_node,
)


def write(t: Tensor, index: Any, value: Any, name: str) -> None:
    """Write a value into `t[index]`, and record where it came from; `name` is for errors."""
    is_recorded, is_tensor = MODE.get().record, isinstance(value, Tensor)
    if isinstance(value, (list, tuple)) and needs_gradient(value):
        value, is_tensor = tensor(value), True
    if is_tensor and type(value) is not Tensor and value.dtype.kind == "c" and value.requires_grad:
        raise TypeError(
            f"{name}: a complex value that requires gradients cannot be written; write "
            "np.stack([...]) of the elements"
        )
    first, node, is_view = first_of(t), None, False
    new = value._array if is_tensor else value
    if is_tensor and is_recorded:
        is_view = first_of(value) is first
        node = None if is_view else value._node
    _check_memory(t, new, name)
    if node is None and not is_view and not _has_nodes(t, first):
        index = without_tensors(index)
        change(t, lambda: t._array.__setitem__(index, new))
        return
    index = plain_index(index)
    parts = index if type(index) is tuple else (index,)
    if [p for p in parts if type(p) not in _BASIC and isinstance(p, _SELECTS)]:
        view, index = t._array, _copied_in_c_order(index)
        if isinstance(new, np.ndarray) and not isinstance(view, OtherArray):
            new = np.asarray(new, order="C")  # NumPy writes in the order of memory
    else:  # a view, also of one element
        view, index = t._array[parts if ... in parts else (*parts, ...)], ...
    if is_view:
        if index is ... and are_one_view(all_values(new), all_values(view)):
            return  # t[i] += u, which has reached the memory
        node = value._node
    if node is not None:
        _check_receives(t, name)
    _record(first, view, index, node, name, new)


_BASIC = frozenset({int, slice, type(...), type(None)})
_SELECTS = (np.ndarray, OtherArray, bool, np.bool_)
"""Types in an index that selects elements, so that the result is a copy."""


def change(t: Tensor, function: Callable[[], Any]) -> None:
    """Call a function that writes values without a gradient into the memory of `t`."""
    first = first_of(t)
    has_nodes = _has_nodes(t, first)
    if has_nodes or (first._last_node is None and frozen_node(first) is None):
        _record(first, t._array, ..., None, "a write", function=function, keeps_old=has_nodes)
    else:
        function()
        mark_changed(t._array)


def update(t: Tensor, ufunc: np.ufunc, other: Any) -> None:
    """Write ufunc(t, other) into the memory of `t`."""
    name = ufunc.__name__
    if t._last_node is None and t._node is None and not needs_gradient(other):
        _check_memory(t, unwrap(other), name)
        change(t, lambda: ufunc(t._array, unwrap(other), out=t._array))
        return
    y = DISPATCH[ufunc](t, other)
    array, new = t._array, y._array
    if array.shape != new.shape or array.dtype != new.dtype:
        y = fitting(t, name, y)
        new = y._array
    _check_memory(t, new, name)
    first, node = first_of(t), y._last_node
    if node is not None:
        if t._last_node is None:
            _check_receives(t, name)
    elif not _has_nodes(t, first):
        change(t, lambda: array.__setitem__(..., new))
        return
    time = _record(first, array, ..., node, name, new)
    if first is t and (node is not None or MODE.get().record):
        set_node(t, node)
        t._seen = time


def _has_nodes(t: Tensor, first: Tensor) -> bool:
    """Return whether a tensor or its memory is known to have nodes, other than that of a leaf."""
    node = first._last_node
    if node is not None:
        return node.op is not None
    return t._last_node is not None or bool(getattr(first, "_written", None))


def _check_receives(t: Tensor, name: str) -> None:
    """Raise an error if a tensor cannot receive a value that has a gradient."""
    if t._array.dtype.kind != "f":
        raise TypeError(
            f"{name}: the tensor must have a floating dtype to keep the gradient of the value, got "
            f"{t.dtype}; convert it first, as in t = t.astype(float)"
        )
    if not getattr(t, "_written", None) and seen_of(t) == NEVER:
        raise GradientError(
            f"{name}: a result of detach(), or a view that was made under no_grad(), stays "
            "constant and cannot receive a value that requires gradients; write through the tensor "
            "that it was made of, or into a clone() of it"
        )


def _copied_in_c_order(index: Any) -> Any:
    """Return an index with copies of its arrays in C order, in which NumPy then writes."""
    if isinstance(index, tuple):
        return tuple(map(_copied_in_c_order, index))
    return index.copy() if isinstance(index, np.ndarray) else index


def _check_memory(t: Tensor, value: Any, name: str) -> None:
    """Raise an error if the memory of a tensor is read-only, or that of all examples of vmap."""
    array = all_values(t._array)
    if array is t._array and isinstance(value, OtherArray):
        raise GradientError(
            f"{name}: inside vmap, values that differ by example cannot be written into a tensor "
            "that all examples share; make it of an argument x, as in np.zeros_like(x), or "
            "write minigrad.zeros(3) + 0 * x[0] for another shape"
        )
    if not array.flags.writeable:
        raise ValueError(
            f"{name}: the memory of the tensor is read-only, as that of a view that repeats "
            "elements, of a diagonal, or of an argument inside vmap; write t = t.copy() first"
        )


def _record(
    first: Tensor,
    view: Any,
    index: Any,
    node: Node | None,
    name: str,
    new: Any = None,
    function: Callable[[], Any] | None = None,
    keeps_old: bool = True,
) -> int:
    """Write values into `view[index]`, or call a function that does; add an entry to the log.

    Return its time. An entry of constants among constants does not keep the old values.
    """
    values = all_values(view)
    log = log_of(values) or Log(owner_of(values))
    place = log.place if values.base is None else place_of(values, log.address)
    cut = UNDER_NO_GRAD if not MODE.get().record else "" if keeps_old else THROUGH_ANOTHER
    i, old = log.replaced(place, index, keeps_old), None
    if i < len(log.entries):
        old = log.entries[i].old
    elif keeps_old:
        if log.foreign:
            raise GradientError(
                f"{name}: the memory of the tensor must belong to a NumPy array, got memory of a "
                f"{log.foreign}; write t = t.clone() first"
            )
        if index is ... and not place.is_c and place.repeats():
            raise GradientError(
                f"{name}: a view that repeats elements cannot be changed in place; write t = t + u "
                "instead of t += u, or change a clone() of it"
            )
        old = view.copy() if index is ... else view[index]
    if function is None:
        view[index] = new
    else:
        function()
    written = getattr(first, "_written", None)
    if written is None:
        written = first._written = {}
    for e in log.entries[i:]:
        written.pop(e.time, None)
    log.time = time = time_of_change()
    log.entries[i:] = [Entry(time, place, values is not view, index, cut, old, node is not None)]
    log.views.clear()
    if node is not None:
        written[time] = node
        if log.first_node is NEVER:
            log.first_node = time
    if first._last_node is not None and first._last_node.notes is not None:
        read((first,))
    return time


extension.write, extension.update = write, update


# -- NumPy's functions that write


def _writes(name: str, numpy: Callable[..., Any], first: str, values: str, i: int) -> Any:
    """Return a function that calls `numpy`, which moves `values` into its argument `first`.

    `values` is the name of the i-th of its other arguments.
    """

    def call(*args: Any, **options: Any) -> None:
        target, *rest = args or (options.pop(first),)
        is_constant = not needs_gradient([rest, options])
        if not isinstance(target, Tensor):
            if not is_constant:
                raise _lost(name)
            on_arrays(numpy, (target, *rest), options)
            mark_changed(target)
            return
        check_writable(target, name)
        _check_memory(target, None, name)
        operands = map(unwrap, (target, *rest, *options.values()))
        is_plain = not any(isinstance(x, OtherArray) for x in operands)
        if is_constant and is_plain and not _has_nodes(target, first_of(target)):
            change(target, lambda: on_arrays(numpy, (target, *rest), options))
            return
        given: Any = rest if len(rest) > i else options
        place: Any = i if len(rest) > i else values
        source = as_operand(given[place])
        given[place] = np.arange(source.size).reshape(source.shape)
        if any(isinstance(unwrap(x), OtherArray) for x in (*rest, *options.values())):
            raise TypeError(
                f"{name}: inside vmap, a mask or an index must be the same for all examples; write "
                "t = np.where(mask, values, t) for another mask"
            )
        moved = np.full(target.shape, -1)
        on_arrays(numpy, (moved, *rest), options)
        mask = moved >= 0
        write(target, mask, getitem(source.reshape(-1), moved[mask]), name)

    return call


for _name, _first, _values, _i in (
    ("copyto", "dst", "src", 0), ("put", "a", "v", 1), ("place", "arr", "vals", 1),
    ("putmask", "a", "values", 1), ("fill_diagonal", "a", "val", 0),
    ("put_along_axis", "arr", "values", 1),
):  # fmt: skip
    _numpy = getattr(np, _name)
    ADAPTED[_numpy] = _writes(f"np.{_name}", _numpy, _first, _values, _i)


def at(ufunc: np.ufunc, target: Any, index: Any, *values: Any) -> None:
    """Call `ufunc.at`; values that have gradients can be added and subtracted."""
    name = f"np.{ufunc.__name__}.at"
    if not isinstance(target, Tensor):
        if needs_gradient(values):
            raise _lost(name)
        on_arrays(ufunc.at, (target, index, *values), {})
        mark_changed(target)
        return
    check_writable(target, name)
    check_classes(index, *values)
    for x in values:
        _check_memory(target, unwrap(x), name)
    if not needs_gradient((target, values)):
        change(target, lambda: on_arrays(ufunc.at, (target, index, *values), {}))
        return
    if ufunc not in (np.add, np.subtract):
        raise GradientError(
            f"{name}: only np.add.at and np.subtract.at have a rule for gradients; write "
            f"t[index] = np.{ufunc.__name__}(t[index]{', values' * len(values)}) for an index "
            "without repetitions"
        )
    moved = values[0] if ufunc is np.add else np.negative(values[0])
    write(target, ..., index_add(target, index=index, values=moved), name)


def _lost(name: str) -> GradientError:
    return GradientError(
        f"{name}: the written values would lose their gradient in an ndarray; make it a tensor, or "
        "write np.where(mask, source, target), or np.broadcast_to(value, shape) instead of np.full"
    )
