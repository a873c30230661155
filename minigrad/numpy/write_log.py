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

import math
import weakref
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from ..arrays import all_values
from ..changes import LOG, NEVER, changed, check_unchanged, logs, owner_of, time_of_change
from ..errors import GradientError
from ..graph import Node, notes_of, shown_grad
from ..op import Op
from ..ops.shape import _scattered
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
        if self.is_c and self.dtype == memory.dtype:
            size = memory.itemsize
            return memory[self.low // size : self.high // size].reshape(self.shape)
        return np.ndarray(self.shape, self.dtype, memory, self.start, self.strides)

    def of(self, elements: np.ndarray, low: int, unit: int) -> np.ndarray:
        """Return the view at this place of an array that has an element for each `unit` bytes.

        Its first element is at the address `low`.
        """
        start, size = (self.start - low) // unit, elements.itemsize
        if self.is_c and unit == self.dtype.itemsize:
            return elements[start : start + math.prod(self.shape)].reshape(self.shape)
        strides = [stride // unit * size for stride in self.strides]
        return np.ndarray(self.shape, elements.dtype, elements, start * size, strides)

    def overlaps(self, other: Place) -> bool:
        """Return whether the bounds overlap those of another place."""
        return self.low < other.high and other.low < self.high

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


def address_of(array: np.ndarray) -> int:
    """Return the address of the first element."""
    flags = array.flags
    if ctypes is not None and flags.c_contiguous and flags.writeable and array.size:  # faster
        return ctypes.addressof(ctypes.c_char.from_buffer(array.data))
    address: int = array.__array_interface__["data"][0]
    return address


def place_of(array: np.ndarray, address: int) -> Place:
    """Return where an array lies in the memory of an owner at an address."""
    start = low = 0 if array.base is None or not array.size else address_of(array) - address
    shape, strides = array.shape, array.strides
    if is_c := array.flags.c_contiguous:
        high = start + array.nbytes
    else:
        ends = [stride * (length - 1) for stride, length in zip(strides, shape)]
        low += sum([end for end in ends if end < 0])
        high = start + sum([end for end in ends if end > 0]) + array.itemsize
    return Place(start, shape, strides, array.dtype, low, high, is_c)


# -- the log


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

    __slots__ = ("time", "place", "is_batched", "index", "cut", "old", "has_node")

    def __init__(self, place: Place, is_batched: bool, index: Any, cut: str, old: Any) -> None:
        self.place, self.is_batched, self.index, self.cut = place, is_batched, index, cut
        self.old, self.has_node, self.time = old, False, 0

    def is_at(self, place: Place) -> bool:
        """Return whether the elements of a place were written in their order, as by t += u."""
        return self.index is ... and self.place == place

    def hides(self, place: Place) -> bool:
        """Return whether all that lies in a place was surely written."""
        p = self.place
        is_whole = p.is_c and self.index is ... and self.old is not None
        return is_whole and p.low <= place.low and place.high <= p.high

    def paint(self, elements: np.ndarray, low: int, unit: int, number: int | None) -> None:
        """Write a number, or the positions in the values, in place of what was written.

        Other parameters: as `Place.of`.
        """
        view = _in_kind(self.place.of(elements, low, unit), self.is_batched)
        if number is None:
            positions = np.arange(math.prod(self.shape)).reshape(self.shape)
            view[self.index] = _in_kind(positions, self.is_batched)
        else:
            view[self.index] = number

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the values."""
        if self.index is ...:
            return self.place.shape
        like = _in_kind(np.broadcast_to(np.empty((), bool), self.place.shape), self.is_batched)
        return all_values(like[self.index]).shape


def _in_kind(array: np.ndarray, is_batched: bool) -> Any:
    return BatchedArray(array) if is_batched else array


class Log:
    """Writes into the memory of one owner, oldest first. It dies with the owner."""

    def __init__(self, owner: np.ndarray) -> None:
        key = id(owner)
        self.owner = weakref.ref(owner, lambda _: logs.pop(key, None))
        self.address = address_of(owner)
        self.entries: list[Entry] = []
        self.time = 0  # of the last entry
        self.first_node = NEVER  # time of the first entry with a node
        self.savers: list[weakref.ref[Node]] = []  # nodes that saved this memory, oldest first
        self.views: list[tuple[Any, Place, int | None]] = []  # nodes of views read since a write
        logs[key] = self

    def later(self, time: float, place: Place) -> list[Entry]:
        """Return entries later than a time that may be visible in a place, oldest first."""
        found: list[Entry] = []
        for e in reversed(self.entries):
            if e.time <= time:
                break
            if e.place.overlaps(place):
                found.append(e)
                if e.hides(place):
                    break
        return found[::-1]

    def replaced(self, place: Place, index: Any, cut: str, keeps_old: bool) -> Entry | None:
        """Return the last entry if a new write to a place may replace it, or None.

        No living node may have saved the memory since, whose rule asks for the values between.
        """
        e = self.entries[-1] if self.entries else None
        if e is None or e.cut != cut or index is not ... or not e.is_at(place):
            return None
        saver = self.last_saver() if keeps_old else None
        is_free = saver is None or saver.seq < e.time
        return e if is_free and keeps_old == (e.old is not None) else None

    def last_saver(self) -> Node | None:
        """Return the last living node that saved this memory, or None."""
        while self.savers:
            node = self.savers[-1]()
            if node is not None and node.edges is not None:
                return node
            self.savers.pop()
        return None

    def add(self, e: Entry, has_node: bool) -> None:
        """Append an entry, or renew the last one."""
        if not self.entries or self.entries[-1] is not e:
            self.entries.append(e)
        self.time = e.time = time_of_change()
        e.has_node = has_node
        self.views.clear()
        if has_node and self.first_node is NEVER:
            self.first_node = e.time


def log_of(array: Any) -> Log | None:
    """Return the log of the memory of an array."""
    if type(array) is not np.ndarray:
        array = all_values(array)
    base = array.base
    if base is None:
        return logs.get(id(array))
    if type(base) is not np.ndarray or base.base is not None:
        base = owner_of(array)
    return logs.get(id(base))


# -- operands


def read(values: Any) -> bool:
    """Look at the tensors among some values; return whether a value lies in logged memory."""
    is_logged = False
    for x in values:
        array = x._array if isinstance(x, Tensor) else x
        if type(array) in _ARRAYS and (log := log_of(array)) is not None:
            is_logged = True
            if array is not x and log.time > seen_of(x):
                look(x, log)
    return is_logged


_ARRAYS = frozenset({np.ndarray, BatchedArray})


def look(t: Tensor, log: Log) -> None:
    """Give a tensor the node of its values, after its memory was written."""
    array, old, first, seen = all_values(t._array), t._last_node, first_of(t), seen_of(t)
    place, origin = place_of(array, log.address), first._last_node
    if origin is not None and origin.op is None:
        if any(e.cut != UNDER_NO_GRAD for e in log.later(max(seen_of(first), origin.seq), place)):
            raise _cut_error("a leaf that requires gradients was", THROUGH_ANOTHER)
        return
    t._seen = log.time
    if first is not t and origin is not None and origin.notes is not None:
        read((first,))
        set_node(t, Node(_WRITTEN, *_through(first, log, place, _examples(t._array)), t._array))
        return
    written, e = getattr(first, "_written", {}), log.entries[-1]
    value = written.get(e.time) if e.is_at(place) else None
    if value is not None and _is_like(value, t._array):  # as after t += u
        node = Node(_WRITTEN_WHOLE, ((value, _same, ()),), (value,), t._array)
    elif entries := log.later(seen if old is not None else max(seen, log.first_node - 1), place):
        parts = _visible_parts(t, place, written, entries)
        if not parts and old is None:  # constants among constants
            return
        node = Node(_WRITTEN, *_edges(parts, _examples(t._array)), t._array)
    elif old is not None and first is not t:  # a view beside all that was written
        node = Node(_WRITTEN_WHOLE, ((old, _same, ()),), (old,), t._array)
    else:
        return
    set_node(t, node)
    if first is t:
        node.seq = e.time
    else:
        log.views.append((weakref.ref(node), place, _examples(t._array)))


def _is_like(node: Node, array: Any) -> bool:
    """Return whether a node has the shape of an array, both of one or of all examples."""
    return node.shape == array.shape and type(node.shape) is type(array.shape)


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
    is_batched = isinstance(first._array, BatchedArray)
    e = Entry(place_of(all_values(first._array), log.address), is_batched, ..., "", None)
    node: Any = first._last_node
    parts = [Part(node, mine, at, e.shape, is_batched) for _, mine, at in _visible(place, [e])[1]]
    return _edges(parts, length)


UNDER_NO_GRAD = "under no_grad()"
THROUGH_ANOTHER = "through detach(), or through another tensor or an array with the same memory"


def _cut_error(what: str, how: str) -> GradientError:
    return GradientError(
        f"{what} written {how}, so its gradient is not known; write through the tensor itself "
        "while operations are recorded, or into a clone() of it"
    )


def _visible(place: Place, entries: list[Entry]) -> tuple[np.ndarray, list[tuple[Any, Any, Any]]]:
    """Return a mask of what no entry wrote in a place, and what entries wrote there.

    The latter are tuples of the number of an entry, positions in the place, and positions in the
    values of the entry, both in C order.
    """
    size, places = place.dtype.itemsize, [place, *[e.place for e in entries]]
    low, high = min([p.low for p in places]), max([p.high for p in places])
    steps = [s for p in places for s, length in zip(p.strides, p.shape) if length > 1]
    unit = math.gcd(*[p.start - low for p in places], *steps) or size
    others = [p.dtype for p in places if p.dtype != place.dtype]
    if others or unit < size:
        raise GradientError(
            f"a tensor of dtype {place.dtype} must not share memory that was written as "
            f"{[*others, place.dtype][0]} with gradients; use a clone() of one of them"
        )
    numbers = np.full((high - low) // unit + 1, -1, np.min_scalar_type(-len(entries) - 1))
    positions = np.empty(numbers.size, int)
    is_flat = [place.is_c and e.place.is_c and e.index is ... for e in entries]
    for i, e in enumerate(entries):  # a later entry replaces an earlier one
        e.paint(numbers, low, unit, i)
        if not is_flat[i]:
            e.paint(positions, low, unit, None)
    last, source = place.of(numbers, low, unit), place.of(positions, low, unit).ravel()
    found = np.flatnonzero(last >= 0)
    found = found[np.argsort(last.ravel()[found], kind="stable")]
    starts = np.searchsorted(last.ravel()[found], np.arange(len(entries) + 1)).tolist()
    parts: list[tuple[Any, Any, Any]] = []
    for i, (e, start, end) in enumerate(zip(entries, starts, starts[1:])):
        if start == end:
            continue
        mine, shift = found[start:end], (place.low - e.place.low) // size
        first, stop = int(mine[0]), int(mine[-1]) + 1
        if not is_flat[i]:
            parts.append((i, mine, source[mine]))
        elif stop - first == end - start:  # consecutive positions
            parts.append((i, slice(first, stop), slice(first + shift, stop + shift)))
        else:
            parts.append((i, mine, mine + shift))
    return last < 0, parts


def _visible_parts(
    t: Tensor, place: Place, written: dict[int, Node], entries: list[Entry]
) -> list[Part]:
    """Return where the elements of `t` came from: its old node, or entries."""
    old, nodes = t._last_node, [written.get(e.time) for e in entries]
    is_kept, found = _visible(place, entries)
    parts: list[Part] = []
    for i, mine, at in found:
        e, node = entries[i], nodes[i]
        if (e.has_node and node is None) or (e.cut and (old is not None or any(nodes))):
            raise _cut_error("the memory of this tensor was", e.cut or THROUGH_ANOTHER)
        if node is not None:
            parts.append(Part(node, mine, at, e.shape, e.is_batched))
    if old is not None and (is_kept.any() or not (parts or entries[0].hides(place))):
        parts.append(Part(old, is_kept, None, None, isinstance(t._array, BatchedArray)))
    return parts


class Part(NamedTuple):
    """Elements `mine` of a tensor that came from positions `at` of a value of some shape.

    For the old elements, `mine` is a mask, and there is no shape.
    """

    node: Node
    mine: Any
    at: Any
    shape: tuple[int, ...] | None
    is_batched: bool  # the value has a hidden axis of examples


def _gradient(g: Any, part: Part, length: int | None) -> Any:
    """Return the gradient of a value for the gradient of the tensor."""
    if length is not None:
        g = _shown(g, axis=0, length=length)
    if part.shape is None:
        g = np.where(part.mine, g, 0)
    else:
        g, size = g.reshape(-1)[part.mine], math.prod(part.shape)
        if not (isinstance(part.at, slice) and part.at == slice(0, size)):
            g = _scattered(g, part.at, (size,))
        g = g.reshape(part.shape)
    if part.is_batched:
        g = _hidden(g, axis=0)
    extra = len(part.node.shape) - g.ndim  # axes of length 1, which NumPy removes from a value
    return g.reshape((1,) * extra + tuple(g.shape)) if extra > 0 else g


def _edges(parts: list[Part], length: int | None) -> tuple[Any, Any]:
    """Return the edges and the inputs of a node whose elements came from several values."""
    edges = [(part.node, _gradient, (part, length)) for part in parts]
    return edges, tuple([part.node for part in parts])


def _examples(array: Any) -> int | None:
    """Return the length of the hidden axis of examples, or None."""
    return len(array.values) if isinstance(array, BatchedArray) else None


def _write(value: Any, /, part: Part, length: int | None) -> Any:
    return value


def _write_whole(value: Any, /) -> Any:
    return value


def _same(g: Any) -> Any:
    return g


_WRITTEN = Op(_write, {"value": _gradient})
_WRITTEN_WHOLE = Op(_write_whole, {"value": _same})


# -- backward


class Memory:
    """Copy of the memory of an owner, which goes back in time with a backward pass."""

    def __init__(self, log: Log, owner: np.ndarray) -> None:
        self.values = owner.copy(order="K").ravel(order="K")
        self.later = list(log.entries)  # those that are not yet undone
        self.lost: list[Place] = []  # of those that cannot be undone

    def at(self, time: int, place: Place) -> np.ndarray | None:
        """Return a copy of the values at a place and a time, None if they were not kept."""
        while self.later and self.later[-1].time > time:
            e = self.later.pop()
            if e.old is None:
                self.lost.append(e.place)
            else:
                _in_kind(e.place.view(self.values), e.is_batched)[e.index] = e.old
        is_lost = any(lost.overlaps(place) for lost in self.lost)
        return None if is_lost else place.view(self.values).copy()


_SAVED = frozenset({*_ARRAYS, tuple})


def restored(memories: dict[Any, Any], name: str, since: int, edges: Any) -> Any:
    """Return the edges of a node with its saved arrays as they were at its time."""
    check_unchanged(name, since, edges)
    if not any(type(value) in _SAVED for _, _, values in edges for value in values):
        return edges
    return [
        (parent, rule, tuple([_restored(value, memories, name, since) for value in values]))
        for parent, rule, values in edges
    ]


def _restored(value: Any, memories: dict[Any, Any], name: str, since: int) -> Any:
    if type(value) is tuple:
        return tuple([_restored(part, memories, name, since) for part in value])
    log = log_of(value) if type(value) in _ARRAYS else None
    if log is None or log.time <= since or not value.size:
        return value
    array: np.ndarray = all_values(value)
    if log not in memories:
        memories[log] = Memory(log, owner_of(array))
    values = memories[log].at(since, place_of(array, log.address))
    if values is None:
        raise changed(name, array)
    return _in_kind(values, array is not value)


def saved(node: Node) -> None:
    """Add a new node to the logs of the arrays that it saves."""
    for _, _, values in node.edges or ():
        if values:
            _note(node, values)


def _note(node: Node, values: Any) -> None:
    for value in values:
        if type(value) is tuple:
            _note(node, value)
        elif type(value) in _ARRAYS:
            log = log_of(value)
            if log is not None and log.last_saver() is not node:
                log.savers.append(weakref.ref(node))


LOG.update(read=read, needed=needed, saved=saved, restored=restored)
