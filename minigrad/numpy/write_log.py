"""Log of the writes into memory: what a write changed, and where its values came from.

A write is NumPy's own write, so all arrays that share the memory have NumPy's values. The log of
the array that owns the memory gets an `Entry`. Two functions read it:

- `look`, before an operation reads a tensor. If the memory of the tensor has entries that are later
  than the last look, its node no longer describes its values. It gets a new node: each element
  comes from the last entry that wrote it, or else from the old node.
- `restored`, in a backward pass. If an array that a node saved was written later, the rule gets a
  copy in which these writes are undone.

A view starts with the node and the time of its operand, and sees later entries only where it lies,
so a loop that reads and writes rows costs rows. A log must not keep nodes alive, because they save
arrays of its owner: the first tensor of a memory keeps them (`Tensor._written`).
"""

from __future__ import annotations

import functools
import math
import weakref
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from .. import changes
from ..arrays import all_values
from ..changes import LOG, NEVER, change_error, check_unchanged, logs, owner_of
from ..errors import GradientError
from ..graph import Node, notes_of, shown_grad
from ..ops.shape import _is_distinct, _scattered
from ..registry import Op
from ..tensor import Tensor, first_of, frozen_node, seen_of
from .batched import BatchedArray
from .vmap import _hidden, _shown

ctypes: Any = None  # missing in some builds of Python
with suppress(ImportError):
    import ctypes

# -- places in memory


class Place(NamedTuple):
    """Where a view lies in the memory of its owner, without the owner.

    `low` and `high` are the bounds. `is_c` is True for a view in C order without gaps.
    """

    start: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]
    low: int
    high: int
    is_c: bool

    def view(self, memory: np.ndarray) -> np.ndarray:
        """Return the view at this place, from the elements of the owner in memory order."""
        return np.ndarray(self.shape, self.dtype, memory, self.start, self.strides)

    def of(self, elements: np.ndarray, low: int, unit: int) -> np.ndarray:
        """Return the view at this place of an array that has an element for each `unit` bytes.

        Its first element is at the address `low`.
        """
        start, *strides = [i // unit * elements.itemsize for i in (self.start - low, *self.strides)]
        return np.ndarray(self.shape, elements.dtype, elements, start, strides)

    def repeats(self) -> bool:
        """Return whether two elements have one address."""
        reach = self.dtype.itemsize
        for stride, length in () if self.is_c else sorted(zip(map(abs, self.strides), self.shape)):
            if length > 1 and stride < reach:  # perhaps
                numbers = np.arange(math.prod(self.shape)).reshape(self.shape)
                view = self.of(np.empty(self.high - self.low, int), self.low, 1)
                view[...] = numbers
                return not np.array_equal(view, numbers)
            reach += stride * (length - 1)
        return False


_new_place: Any = functools.partial(tuple.__new__, Place)  # faster than Place(...)


def address_of(array: np.ndarray) -> int:
    """Return the address of the first element."""
    flags = array.flags
    if flags.c_contiguous and flags.writeable and array.size and ctypes is not None:  # faster
        address: int = ctypes.addressof(ctypes.c_char.from_buffer(array))
    else:
        address = array.__array_interface__["data"][0]
    return address


def place_of(array: np.ndarray, address: int) -> Place:
    """Return where an array lies in the memory of an owner at an address."""
    start = 0 if array.base is None or not array.size else address_of(array) - address
    shape, strides = array.shape, array.strides
    if array.flags.c_contiguous:
        return _new_place((start, shape, strides, array.dtype, start, start + array.nbytes, True))
    ends = [stride * (n - 1) for stride, n in zip(strides, shape)]
    low = start + sum([end for end in ends if end < 0])
    high = start + sum([end for end in ends if end > 0]) + array.itemsize
    return _new_place((start, shape, strides, array.dtype, low, high, False))


def are_one_view(a: np.ndarray, b: np.ndarray) -> bool:
    """Return whether two arrays have the same elements in memory."""
    is_alike = a.shape == b.shape and a.strides == b.strides and a.dtype == b.dtype
    return is_alike and address_of(a) == address_of(b)


class Common(NamedTuple):
    """Elements that lie in two places: an index into each, of the flat array if `is_flat`."""

    mine: Any
    at: Any
    is_flat: bool
    size: int


def common(place: Place, other: Place) -> Common | None:
    """Return what two places share, or None if it may be no slice of both."""
    if not (place.is_c and other.is_c):
        return _common_slices(place, other)
    unit, low, high = place.dtype.itemsize, max(place.low, other.low), min(place.high, other.high)
    if place.dtype != other.dtype or (place.low - other.low) % unit:
        return None
    mine = slice((low - place.low) // unit, (high - place.low) // unit)
    at = slice((low - other.low) // unit, (high - other.low) // unit)
    return Common(mine, at, True, mine.stop - mine.start)


@functools.lru_cache(256)  # a loop asks for the same places
def _common_slices(place: Place, other: Place) -> Common | None:
    both, unit = (place, other), place.dtype.itemsize
    axes = [{step: i for i, step in enumerate(p.strides) if p.shape[i] > 1} for p in both]
    indices: list[list[Any]] = [[0] * len(p.shape) + [...] for p in both]
    rest, ends = [p.start for p in both], [p.high - unit for p in both]
    limit, size, order = math.inf, 1, list[Any]()
    for step in sorted({*axes[0], *axes[1]}, reverse=True):
        which = [a.get(step) for a in axes]
        lengths = [1 if i is None else p.shape[i] for i, p in zip(which, both)]
        if step < unit or max(ends) >= limit:  # addresses are not in the order of indices
            return None
        starts, limit, rest = [r // step for r in rest], step, [r % step for r in rest]
        ends = [e - (i + n - 1) * step for e, i, n in zip(ends, starts, lengths)]
        low, high = max(starts), min([i + n for i, n in zip(starts, lengths)])
        size *= max(high - low, 0)
        for index, i, start in zip(indices, which, starts):
            if i is not None:
                index[i] = low - start if None in which else slice(low - start, high - start)
        if None not in which:
            order.append(which)
    repeats = any(sum([n > 1 for n in p.shape]) > len(a) for a, p in zip(axes, both))
    is_in_order = sorted(order) == sorted(order, key=lambda pair: pair[1])
    if repeats or rest[0] != rest[1] or not is_in_order or place.dtype != other.dtype:
        return None
    return Common(tuple(indices[0]), tuple(indices[1]), False, size)


# -- the log


@dataclass(slots=True)
class Entry:
    """Write of new values to `index` of a view, at a time.

    Attributes
    ----------
    place : Place
        Where the view lies.
    is_batched : bool
        The view has a hidden axis of examples.
    index : index of NumPy
        `...` for the whole view.
    cut : str
        How the values were written outside of the graph, so that nobody knows whether a gradient
        should pass; empty for a recorded write.
    old : array or None
        The values before; None if they were not kept.
    has_node : bool
        The values have a node, which `Tensor._written` contains.
    """

    time: int
    place: Place
    is_batched: bool
    index: Any
    cut: str
    old: Any
    has_node: bool

    def is_block(self) -> bool:
        """Return whether all between the bounds was surely written."""
        return self.place.is_c and self.index is ... and self.old is not None

    def common(self, place: Place) -> Common | None:
        """Return what its values share with a place, or None if they may not be indexed so."""
        if self.index is ...:
            return common(place, self.place)
        if self.place != place or self.is_batched:
            return None
        if not _is_distinct(self.index):
            written = np.zeros(place.shape, bool)
            written[self.index] = True
            if np.count_nonzero(written) < math.prod(self.shape):
                return None
        return Common(self.index, ..., False, math.prod(self.shape))

    def paint(self, elements: np.ndarray, low: int, unit: int, values: Any) -> None:
        """Write values in place of those that were written. Other parameters: as `Place.of`."""
        view = _in_kind(self.place.of(elements, low, unit), self.is_batched)
        view[self.index] = values

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the values."""
        return self.place.shape if self.index is ... else all_values(self.old).shape


def _in_kind(array: np.ndarray, is_batched: bool) -> Any:
    return BatchedArray(array) if is_batched else array


class Log:
    """Writes into the memory of one owner, oldest first. It dies with the owner."""

    def __init__(self, owner: np.ndarray) -> None:
        key = id(owner)
        self.owner = weakref.ref(owner, lambda _: logs.pop(key, None))
        self.foreign = "" if owner.base is None else type(owner.base).__name__
        self.address = address_of(owner)
        self.place = place_of(owner, self.address)
        self.entries: list[Entry] = []
        self.time = 0  # of the last entry
        self.first_node = NEVER  # time of the first entry with a node
        self.savers: list[weakref.ref[Node]] = []  # nodes that saved this memory, oldest first
        self.views: list[tuple[Any, Place, int | None]] = []  # nodes of views read since a write
        logs[key] = self

    def later(self, time: float, place: Place) -> list[Entry]:
        """Return entries later than a time that may be visible in a place, oldest first."""
        found: list[Entry] = []
        low, high = place.low, place.high
        for e in reversed(self.entries):
            if e.time <= time or low >= high:
                break
            p = e.place
            if p.low < high and low < p.high:
                found.append(e)
                if e.is_block():  # which hides older entries
                    low = p.high if p.low <= low else low
                    high = p.low if high <= p.high else high
        return found[::-1]

    def replaced(self, place: Place, index: Any, keeps_old: bool) -> int:
        """Return the number of the entry that a new write to a place replaces.

        The entries after it lie in the place, too. No living node may have saved the memory since,
        whose rule asks for the values between. Most writes replace none.
        """
        for i in range(len(self.entries) - 1 if index is ... else -1, -1, -1):
            e = self.entries[i]
            if e.index is ... and e.place == place:
                saver = self.last_saver() if keeps_old else None
                is_saved = saver is not None and saver.seq > e.time
                if keeps_old == (e.old is not None) and not is_saved:
                    return i
                break
            if not (place.is_c and place.low <= e.place.low and e.place.high <= place.high):
                break
        return len(self.entries)

    def last_saver(self) -> Node | None:
        """Return the last living node that saved this memory, or None."""
        while self.savers:
            node = self.savers[-1]()
            if node is not None and node.edges is not None:
                return node
            self.savers.pop()
        return None


def log_of(value: Any) -> Log | None:
    """Return the log of the memory of an array, or None."""
    if type(value) is BatchedArray:
        value = value.values
    elif type(value) is not np.ndarray:
        return None
    base = value.base
    if base is None:
        return logs.get(id(value))
    return logs.get(id(base if type(base) is np.ndarray and base.base is None else owner_of(value)))


# -- operands


def read(values: Any) -> bool:
    """Look at the tensors among some values; return whether a value lies in logged memory."""
    is_logged = False
    for x in values:
        array = x._array if isinstance(x, Tensor) else x
        if type(array) is float:
            continue
        is_owner = type(array) is np.ndarray and array.base is None
        log = logs.get(id(array)) if is_owner else log_of(array)
        if log is not None:
            is_logged = True
            if array is x or (x._last_node is None and log.first_node is NEVER):
                continue  # constants
            if log.time > seen_of(x):
                look(x, log)
    return is_logged


_SAVED = frozenset({np.ndarray, BatchedArray, tuple})
"""Types of saved values that are arrays, or may contain some."""


def look(t: Tensor, log: Log) -> None:
    """Give a tensor the node of its values, after its memory was written."""
    array, old, first, e = t._array, t._last_node, first_of(t), log.entries[-1]
    length = len(array.values) if type(array) is BatchedArray else None
    place = place_of(array if length is None else array.values, log.address)
    origin = first._last_node
    if origin is not None and origin.op is None:
        if any(e.cut != UNDER_NO_GRAD for e in log.later(max(seen_of(first), origin.seq), place)):
            raise _cut_error("a leaf that requires gradients was", THROUGH_ANOTHER)
        return
    edges, written = None, getattr(first, "_written", {})
    value = written.get(e.time) if e.index is ... and e.place == place else None
    if value is not None and (
        value.shape != array.shape or type(value.shape) is not type(array.shape)
    ):
        value = None  # of fewer axes, or of all examples
    if (
        first is not t
        and origin is not None
        and (origin.notes is not None or (value is None and _is_large_view(t, first)))
    ):
        read((first,))
        edges = _through(first, log, place, length)
    elif value is not None:  # as after t += u
        edges = _of_all(value)
    elif entries := log.later(max(seen_of(t), 0 if old else log.first_node - 1), place):
        parts = _visible_parts(t, place, written, entries)
        if parts or old is not None:  # no constants among constants
            edges = _edges(parts, length)
    elif old is not None and first is not t:  # a view beside all that was written
        edges = _of_all(old)
    t._seen = log.time  # there was no error
    if edges is None:
        return
    node = Node(_WRITTEN, *edges, array)
    set_node(t, node)
    if first is t:
        node.seq = e.time
    else:
        log.views.append((weakref.ref(node), place, length))


def _is_large_view(t: Tensor, first: Tensor) -> bool:
    """Return whether the node of the first tensor is the cheaper way for a view of it."""
    node, is_large = t._last_node, 2 * all_values(t._array).size > all_values(first._array).size
    if not is_large or node is None or not (node.op.view and node.inputs):
        return False
    parent: Any = node.inputs[0]
    if getattr(parent.op, "view", True):  # a view of a view, which may have hooks
        return False
    try:
        read((first,))
    except GradientError:  # the view may not show what was cut
        return False
    return True


def set_node(t: Tensor, node: Node | None) -> None:
    """Set another node and its gradient for `t`. Hooks stay with the old values."""
    if node is not None:
        old = t._last_node or frozen_node(t)
        if old is not None and (old.notes is not None or old.grad is not None):
            node.grad, old.grad = shown_grad(old), None
            notes = notes_of(node)  # so that views that are read later pass through it
            if old.notes is not None:
                notes.retain, old.notes.retain = old.notes.retain, False
        t._frozen = None
    t._last_node = node


def needed(t: Tensor) -> None:
    """Pass the gradients of views that were read since the last write through a tensor.

    A hook of the tensor, or a caller of `gradients`, gets what reaches its views, too.
    """
    log = log_of(t._array)
    if log is None or first_of(t) is not t:
        return
    for reference, place, length in log.views:
        node = reference()
        if node is not None and node.edges is not None:
            node.op, (node.edges, node.inputs) = _WRITTEN, _through(t, log, place, length)
    log.views.clear()


def _through(first: Tensor, log: Log, place: Place, length: int | None) -> tuple[Any, Any]:
    """Return the edges and inputs of the node of a view that is taken of `first` again."""
    whole = place_of(all_values(first._array), log.address)
    is_batched, part = isinstance(first._array, BatchedArray), common(place, whole)
    if part is None:
        e = Entry(0, whole, is_batched, ..., "", None, False)
        _, ((_, part),) = _visible(place, [e], [first._last_node])
    node: Any = first._last_node
    return _edges([Part(node, part, whole.shape, is_batched)], length)


UNDER_NO_GRAD = "under no_grad()"
THROUGH_ANOTHER = "through detach(), or through another tensor or an array with the same memory"


def _cut_error(what: str, how: str) -> GradientError:
    return GradientError(
        f"{what} written {how}, so its gradient is not known; write through the tensor itself "
        "while operations are recorded, or into a clone() of it"
    )


def _visible(
    place: Place, entries: list[Entry], nodes: list[Node | None]
) -> tuple[Any, list[tuple[int, Any]]]:
    """Return a mask of what no entry wrote in a place, and what entries wrote there.

    The mask is None if all was written. The others are pairs of the number of an entry and what it
    has in common with the place, without indices if the entry has no node.
    """
    both: list[Any] = [e.common(place) for e in entries]
    if None not in both and _are_disjoint(both):
        parts = [(i, part) for i, part in enumerate(both) if part.size]
        if sum([part.size for _, part in parts]) == math.prod(place.shape):
            return None, parts
        kept = np.ones(place.shape, bool)
        for _, (mine, _, is_flat, _) in parts:
            if type(mine) is np.ndarray and mine.dtype == bool and mine.shape == kept.shape:
                kept &= ~mine  # faster
            else:
                (kept.reshape(-1) if is_flat else kept)[mine] = False
        return kept, parts
    places = [place, *[e.place for e in entries]]
    low, high = min([p.low for p in places]), max([p.high for p in places])
    steps = [s for p in places for s, length in zip(p.strides, p.shape) if length > 1]
    unit = math.gcd(*[p.start - low for p in places], *steps) or place.dtype.itemsize
    others = [p.dtype for p in places if p.dtype != place.dtype]
    if others or unit < place.dtype.itemsize:
        raise GradientError(
            f"a tensor of dtype {place.dtype} must not share memory that was written as "
            f"{[*others, place.dtype][0]} with gradients; use a clone() of one of them"
        )
    numbers = np.zeros((high - low) // unit + 1, np.min_scalar_type(len(entries)))
    for i, e in enumerate(entries, 1):  # a later entry replaces an earlier one
        e.paint(numbers, low, unit, i)
    last, parts = place.of(numbers, low, unit), []
    counts = np.bincount(last.ravel(), minlength=len(entries) + 1).tolist()
    for i, (e, part, count) in enumerate(zip(entries, both, counts[1:])):
        if count and (part is None or part.size != count):
            mine = at = None
            if nodes[i] is not None:
                positions, mine = np.empty(numbers.size, int), np.flatnonzero(last == i + 1)
                order = np.arange(math.prod(e.shape)).reshape(e.shape)
                e.paint(positions, low, unit, _in_kind(order, e.is_batched))
                at = place.of(positions, low, unit).ravel()[mine]
            part = Common(mine, at, True, count)
        if count:
            parts.append((i, part))
    return last == 0 if counts[0] else None, parts


def _are_disjoint(parts: list[Any]) -> bool:
    """Return whether no element is in two parts of a place, as far as this is seen fast."""
    spans = sorted([(part.mine.start, part.mine.stop) for part in parts if part.is_flat])
    is_seen = len(spans) == len(parts) and all(a[1] <= b[0] for a, b in pairwise(spans))
    return is_seen or len(parts) == 1


def _visible_parts(
    t: Tensor, place: Place, written: dict[int, Node], entries: list[Entry]
) -> list[Part]:
    """Return where the elements of `t` came from: its old node, or entries."""
    old, nodes = t._last_node, [written.get(e.time) for e in entries]
    (kept, found), parts = _visible(place, entries, nodes), []
    for i, part in found:
        e, node = entries[i], nodes[i]
        if (e.has_node and node is None) or (e.cut and (old is not None or any(nodes))):
            raise _cut_error("the memory of this tensor was", e.cut or THROUGH_ANOTHER)
        if node is not None:
            parts.append(Part(node, part, e.shape, e.is_batched))
    is_hidden = bool(parts) or all(e.is_block() for e in entries)
    if old is not None and (kept is not None or not is_hidden):
        kept = np.zeros(place.shape, bool) if kept is None else kept
        parts.append(Part(old, kept, None, isinstance(t._array, BatchedArray)))
    return parts


class Part(NamedTuple):
    """Elements of a tensor that came from a value of some shape.

    For the old elements, `common` is a mask, and there is no shape.
    """

    node: Node
    common: Any
    shape: tuple[int, ...] | None
    is_batched: bool  # the value has a hidden axis of examples


def _gradient(g: Any, part: Part | None, length: int | None) -> Any:
    """Return the gradient of a value for the gradient of the tensor; None: of all of it."""
    if part is None:
        return g
    if length is not None:
        g = _shown(g, axis=0, length=length)
    if part.shape is None:
        g = np.where(part.common, g, 0)
    elif part.common.is_flat:
        g, size = g.reshape(-1)[part.common.mine], math.prod(part.shape)
        if not (isinstance(part.common.at, slice) and part.common.at == slice(0, size)):
            g = _scattered(g, part.common.at, (size,))
        g = g.reshape(part.shape)
    else:
        g = g[part.common.mine]
        if part.common.at is not ...:
            g = _scattered(g, part.common.at, part.shape)
    if part.is_batched:
        g = _hidden(g, axis=0)
    extra = len(part.node.shape) - g.ndim  # axes of length 1, which NumPy removes from a value
    return g.reshape((1,) * extra + tuple(g.shape)) if extra > 0 else g


def _of_all(node: Node) -> tuple[Any, Any]:
    return ((node, _gradient, (None, None)),), (node,)


def _edges(parts: list[Part], length: int | None) -> tuple[Any, Any]:
    """Return the edges and the inputs of a node whose elements came from several values."""
    edges = [(part.node, _gradient, (part, length)) for part in parts]
    return edges, tuple([part.node for part in parts])


def _write(value: Any, /, part: Part | None, length: int | None) -> Any:
    return value


_WRITTEN = Op(_write, {"value": _gradient})


# -- backward


class Memory:
    """Memory of an owner, which goes back in time with a backward pass, in a copy if it must."""

    def __init__(self, log: Log, owner: np.ndarray) -> None:
        self.log, self.owner = log, owner
        self.values: Any = None  # the copy
        self.later = list(log.entries)  # oldest first
        self.undone: list[Entry] = []  # but not yet in the copy
        self.low, self.high = math.inf, -math.inf  # bounds of all that were undone
        self.lost: list[Place] = []  # of those that cannot be undone

    def at(self, time: int, array: np.ndarray, name: str) -> np.ndarray:
        """Return an array as it was at a time; `name` is the op that needs it."""
        while self.later and self.later[-1].time > time:
            e = self.later.pop()
            self.undone.append(e)
            low, high = e.place.low, e.place.high
            self.low, self.high = min(self.low, low), max(self.high, high)
        place = place_of(array, self.log.address)
        if place.high <= self.low or self.high <= place.low:
            return array
        if self.values is None:
            self.values = self.owner.copy(order="K").ravel(order="K")
        for e in self.undone:
            if e.old is None:
                self.lost.append(e.place)
            else:
                _in_kind(e.place.view(self.values), e.is_batched)[e.index] = e.old
        self.undone.clear()
        if self.lost and any(p.low < place.high and place.low < p.high for p in self.lost):
            raise change_error(name, array)
        return place.view(self.values).copy()


def restored(memories: dict[Any, Any], name: str, since: int, edges: Any) -> Any:
    """Return the edges of a node with its saved arrays as they were at its time."""
    if changes.last_marked > since:
        check_unchanged(name, since, edges)
    result = edges
    for i, (parent, rule, values) in enumerate(edges):
        if values and (old := _restored(values, memories, name, since)) is not values:
            result = [*result]
            result[i] = (parent, rule, old)
    return result


def _restored(values: Any, memories: dict[Any, Any], name: str, since: int) -> Any:
    """Return saved values as they were at a time: the same tuple if none was written since."""
    result = values
    for i, value in enumerate(values):
        kind = type(value)
        if kind not in _SAVED or (
            kind is np.ndarray and value.base is None and id(value) not in logs
        ):
            continue
        old = value
        if kind is tuple:
            old = _restored(value, memories, name, since)
        elif (log := log_of(value)) is not None and log.time > since and value.size:
            array = all_values(value)
            if log not in memories:
                memories[log] = Memory(log, owner_of(array))
            old = memories[log].at(since, array, name)
            old = value if old is array else _in_kind(old, array is not value)
        if old is not value:
            result = (*result[:i], old, *result[i + 1 :])
    return result


def saved(node: Node) -> None:
    """Add a new node to the logs of the arrays that it saves."""
    for _, _, values in node.edges or ():
        for value in values:
            if type(value) in _SAVED:
                _note(node, value)


def _note(node: Node, value: Any) -> None:
    if type(value) is tuple:
        for part in value:
            _note(node, part)
    elif (log := log_of(value)) is not None and log.last_saver() is not node:
        log.savers.append(weakref.ref(node))


LOG.update(read=read, needed=needed, saved=saved, restored=restored)
