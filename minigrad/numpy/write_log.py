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
from typing import Any, NamedTuple

import numpy as np

from ..arrays import all_values
from ..changes import LOG, NEVER, changed, check_unchanged, logs, owner_of, time_of_change
from ..errors import GradientError
from ..graph import Node, notes_of, shown_grad
from ..op import Op
from ..ops.shape import _scattered, _selected
from ..tensor import Tensor, first_of, frozen_node, seen_of
from .batched import BatchedArray
from .vmap import _hidden, _shown

# -- places in memory


def nodes_written(t: Tensor) -> dict[int, Node] | None:
    """Return the nodes of values that were written into the memory of a tensor, by time."""
    return getattr(t, "_written", None)


def move_gradient(node: Node, other: Node) -> None:
    """Let `other` have the gradient of a node, and retain further ones if the node did."""
    other.grad, node.grad = shown_grad(node), None
    if node.notes is not None and node.notes.retain:
        node.notes.retain = False
        notes_of(other).retain = True


class Place(NamedTuple):
    """Where a view lies in the memory of its owner, without the owner.

    `low` and `high` are the bounds. `is_c` is True for a view in C order without gaps.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    start: int
    strides: tuple[int, ...]
    low: int
    high: int
    is_c: bool

    def view(self, memory: np.ndarray) -> np.ndarray:
        """Return the view at this place, from the elements of the owner in memory order."""
        return np.ndarray(self.shape, self.dtype, memory, self.start, self.strides)

    def addresses(self) -> np.ndarray:
        """Return the address of every element, in the shape of the view."""
        at = np.array(self.start)
        for length, stride in zip(self.shape, self.strides):
            at = at[..., None] + np.arange(length) * stride
        return at

    def axes(self) -> list[tuple[int, int, int]]:
        """Return (stride, length, step in C order) of axes longer than 1, long strides first."""
        axes, step = [], 1
        for stride, length in zip(self.strides[::-1], self.shape[::-1]):
            if length > 1:
                axes.append((stride, length, step))
            step *= length
        return sorted(axes, key=lambda axis: -abs(axis[0]))

    def is_nested(self) -> bool:
        """Return whether each stride is longer than all that lies inside; no element repeats."""
        reach = self.dtype.itemsize
        for stride, length, _ in reversed([] if self.is_c else self.axes()):
            if abs(stride) < reach:
                return False
            reach += abs(stride) * (length - 1)
        return True

    def locate(self, at: np.ndarray) -> np.ndarray:
        """Return the position of each address in C order, or -1; the place must be nested."""
        rest = at - self.low
        is_inside, position = rest >= 0, np.zeros_like(at)
        for stride, length, step in self.axes():
            k, rest = np.divmod(rest, abs(stride))
            is_inside &= k < length
            position += (k if stride > 0 else length - 1 - k) * step
        return np.where(is_inside & (rest == 0), position, -1)

    def part_of(self, other: Place) -> slice:
        """Return the positions in this place, both in C order, of what lies in another one."""
        size = self.dtype.itemsize
        low, high = max(self.low, other.low), min(self.high, other.high)
        return slice((low - self.low) // size, (max(low, high) - self.low) // size)


def address_of(array: np.ndarray) -> int:
    """Return the address of the first element."""
    address: int = array.__array_interface__["data"][0]
    return address


def place_of(array: np.ndarray, address: int) -> Place:
    """Return where an array lies in the memory of an owner at an address."""
    start = address_of(array) - address
    low, high = start, start + array.itemsize
    for length, stride in zip(array.shape, array.strides):
        if stride < 0:
            low += stride * (length - 1)
        else:
            high += stride * (length - 1)
    if not array.size:
        low = high = start
    is_c = array.flags.c_contiguous
    return Place(array.shape, array.dtype, start, array.strides, low, high, is_c)


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

    def __init__(self, view: Any, address: int, index: Any, cut: str) -> None:
        values = all_values(view)
        self.place, self.is_batched = place_of(values, address), values is not view
        self.index, self.cut = index, cut
        self.time, self.old, self.has_node = 0, None, False

    def overlaps(self, place: Place) -> bool:
        """Return whether the bounds overlap those of another place."""
        return self.place.low < place.high and place.low < self.place.high

    def hides(self, place: Place) -> bool:
        """Return whether all that lies in a place was surely written."""
        p = self.place
        is_whole = p.is_c and self.index is ... and self.old is not None
        return is_whole and p.low <= place.low and place.high <= p.high

    def written(self) -> np.ndarray:
        """Return the addresses of the elements that were written, in the shape of the values."""
        at = self.place.addresses()
        return at if self.index is ... else all_values(_in_kind(at, self.is_batched)[self.index])

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the values."""
        return self.place.shape if self.index is ... else self.written().shape

    def undo(self, memory: np.ndarray) -> None:
        """Write the old values into a copy of the memory."""
        _in_kind(self.place.view(memory), self.is_batched)[self.index] = self.old


def _in_kind(array: np.ndarray, is_batched: bool) -> Any:
    return BatchedArray(array) if is_batched else array


class Log:
    """Writes into the memory of one owner, oldest first. It dies with the owner."""

    def __init__(self, owner: np.ndarray) -> None:
        key = id(owner)
        self.owner = weakref.ref(owner, lambda _: logs.pop(key, None))
        self.address = address_of(owner)
        self.entries: list[Entry] = []
        self.whole: dict[Any, Entry] = {}  # the last write to each place as a whole
        self.time = 0  # of the last entry
        self.first_node = NEVER  # time of the first entry with a node
        self.marked: Any = lambda: None  # reference to the array of the last constants
        self.savers: list[weakref.ref[Node]] = []  # nodes that saved this memory, oldest first
        self.views: list[tuple[Any, Place, int | None]] = []  # nodes of views read since a write
        logs[key] = self

    def later(self, time: float, place: Place) -> list[Entry]:
        """Return entries later than a time that may be visible in a place, oldest first."""
        found: list[Entry] = []
        for e in reversed(self.entries):
            if e.time <= time:
                break
            if e.overlaps(place):
                found.append(e)
                if e.hides(place):
                    break
        return found[::-1]

    def replaced(self, e: Entry) -> Entry | None:
        """Return the entry that a new one may replace, or None.

        It is a recent one of the same place, if nothing that overlaps was written since, and if no
        living node saved the memory since, whose rule asks for the values between.
        """
        if e.index is not ...:
            return None
        key = e.place.start, e.place.strides, e.place.shape
        before, self.whole[key] = self.whole.get(key), e
        if before is None or before.cut != e.cut:
            return None
        for later in self.entries[:-65:-1]:
            if later is before:
                saver = self.last_saver()
                return before if saver is None or saver.seq < before.time else None
            if later.overlaps(before.place):
                return None
        return None

    def last_saver(self) -> Node | None:
        """Return the last living node that saved this memory, or None."""
        while self.savers:
            node = self.savers[-1]()
            if node is not None and node.edges is not None:
                return node
            self.savers.pop()
        return None

    def add(self, e: Entry, before: Entry | None) -> None:
        """Append an entry, which may replace one."""
        if before is not None:
            self.entries.remove(before)
        self.time = e.time = time_of_change()
        self.entries.append(e)
        self.views.clear()
        if e.has_node and self.first_node is NEVER:
            self.first_node = e.time


def log_of(array: Any) -> Log | None:
    """Return the log of the memory of an array."""
    if type(array) is not np.ndarray:
        array = all_values(array)
    base = array.base
    if base is None:
        return logs.get(id(array))
    return logs.get(id(base)) or logs.get(id(owner_of(array)))


# -- operands


def look(t: Tensor) -> None:
    """Give a tensor the node of its values, if its memory was written since the last look."""
    log = log_of(t._array)
    if log is None or log.time <= (seen := seen_of(t)) or not all_values(t._array).size:
        return
    array, node, first = all_values(t._array), t._last_node, first_of(t)
    place, leaf = place_of(array, log.address), first._last_node
    if leaf is not None and leaf.op is None:
        if any(e.cut != UNDER_NO_GRAD for e in log.later(max(seen_of(first), leaf.seq), place)):
            raise _cut_error("a leaf that requires gradients was", THROUGH_ANOTHER)
        return
    if node is None:
        seen = max(seen, log.first_node - 1)
    entries = log.later(seen, place)
    if first is not t and leaf is not None and leaf.notes is not None:
        look(first)
        set_node(t, Node(_WRITTEN, *_through(first, log, place, _examples(t._array)), t._array))
    elif entries or (first is not t and node is not None):
        parts = _visible_parts(t, place, nodes_written(first) or {}, entries)
        if parts or node is not None:  # also if constants replaced all elements
            node = _node_of_parts(t, parts)
        set_node(t, node)
        if node is not None and first is t:
            node.seq = entries[-1].time
        elif node is not None:
            log.views.append((weakref.ref(node), place, _examples(t._array)))
    t._seen = log.time


def needed(t: Tensor) -> None:
    """Let the gradients of views that were read since the last write pass through a tensor.

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
    e = Entry(first._array, log.address, ..., "")
    node: Any = first._last_node
    return _edges([Part(node, *_visible(place, e), e.shape, e.is_batched)], length)


UNDER_NO_GRAD = "under no_grad()"
THROUGH_ANOTHER = "through detach(), or through another tensor or an array with the same memory"


def _cut_error(what: str, how: str) -> GradientError:
    return GradientError(
        f"{what} written {how}, so its gradient is not known; write through the tensor itself "
        "while operations are recorded, or into a clone() of it"
    )


def _visible_parts(
    t: Tensor, place: Place, written: dict[int, Node], entries: list[Entry]
) -> list[Part]:
    """Return where the elements of `t` came from: its old node, or entries."""
    old, nodes = t._last_node, [written.get(e.time) for e in entries]
    parts: list[Part] = []
    is_batched = isinstance(t._array, BatchedArray)
    visible: list[tuple[Entry, Node | None, Any, Any]]
    if not entries and old is not None:  # a view beside all that was written
        return [Part(old, _ALL, _ALL, None, False)]
    is_hidden = entries[-1].index is ... and entries[-1].place == place
    if is_hidden:  # the usual t += u
        visible = [(entries[-1], nodes[-1], _ALL, _ALL)]
    else:
        last = np.full(math.prod(place.shape), -1)
        hits = [_visible(place, e) for e in entries]
        for i, (mine, _) in enumerate(hits):  # a later entry replaces an earlier one
            last[mine] = i
        visible = []
        for i, (mine, at) in enumerate(hits):
            stays = last[mine] == i
            count = np.count_nonzero(stays)
            if count < stays.size:
                mine, at = (_numbers(positions)[stays] for positions in (mine, at))
            if count:
                visible.append((entries[i], nodes[i], mine, at))
        is_kept = last < 0
        if old is not None and is_kept.any():
            parts.append(Part(old, is_kept.reshape(place.shape), None, None, is_batched))
    for e, node, mine, at in visible:
        if (e.has_node and node is None) or (e.cut and (old is not None or any(nodes))):
            raise _cut_error("the memory of this tensor was", e.cut or THROUGH_ANOTHER)
        if node is not None:
            parts.append(Part(node, mine, at, e.shape, e.is_batched))
    if not parts and old is not None and not is_hidden and not entries[0].hides(place):
        parts.append(Part(old, np.zeros(place.shape, bool), None, None, is_batched))
    return parts


_ALL = slice(None)


def _numbers(positions: Any) -> np.ndarray:
    """Return positions as an array."""
    is_slice = isinstance(positions, slice)
    return np.arange(positions.start, positions.stop) if is_slice else positions


def set_node(t: Tensor, node: Node | None) -> None:
    """Let `t` go on with another node and its gradient. Hooks stay with the old values."""
    if node is not None:
        old = t._last_node or frozen_node(t)
        if old is not None and (old.notes is not None or old.grad is not None):
            move_gradient(old, node)
            notes_of(node)  # so that views that are read later pass through it
        t._frozen = None
    t._last_node = node


def _visible(place: Place, e: Entry) -> tuple[Any, Any]:
    """Return positions in a place, in C order, and of the values that an entry wrote there."""
    if e.place.dtype != place.dtype or (e.place.low - place.low) % place.dtype.itemsize:
        raise GradientError(
            f"a tensor of dtype {place.dtype} must not share memory that was written as "
            f"{e.place.dtype} with gradients; use a clone() of one of them"
        )
    if e.index is ... and place.is_c and e.place.is_c:
        return place.part_of(e.place), e.place.part_of(place)
    is_nested = place.is_nested()
    is_smaller = not is_nested or math.prod(place.shape) <= math.prod(e.place.shape)
    if e.index is ... and is_smaller and e.place.is_nested():
        at = e.place.locate(place.addresses().ravel())
        mine = np.flatnonzero(at >= 0)
        return mine, at[mine]
    written = e.written().ravel()
    values = np.arange(written.size)
    if e.index is not ...:  # of several values for an element, the last one was written
        _, k = np.unique(written[::-1], return_index=True)
        values = np.sort(written.size - 1 - k)
        written = written[values]
    if is_nested:
        mine = place.locate(written)
        return mine[mine >= 0], values[mine >= 0]
    order = np.argsort(written)
    addresses = place.addresses().ravel()
    k = order[np.searchsorted(written[order], addresses).clip(max=written.size - 1)]
    mine = np.flatnonzero(written[k] == addresses)
    return mine, values[k[mine]]


class Part(NamedTuple):
    """Elements `mine` of a tensor that came from positions `at` of a value of some shape.

    For the old elements, `mine` is a mask, and there is no shape.
    """

    node: Node
    mine: Any
    at: Any
    shape: tuple[int, ...] | None
    is_batched: bool  # the value has a hidden axis of examples

    def gradient(self, g: Any) -> Any:
        """Return the gradient of the value for the gradient of the tensor."""
        shape = self.shape
        c = np.where(self.mine, g, 0) if shape is None else self._received(g.reshape(-1), shape)
        if self.is_batched:
            c = _hidden(c, axis=0)
        extra = len(self.node.shape) - c.ndim  # axes of length 1, which NumPy removes from a value
        return c.reshape((1,) * extra + tuple(c.shape)) if extra > 0 else c

    def _received(self, g: Any, shape: tuple[int, ...]) -> Any:
        size = math.prod(shape)
        g = _selected(g, index=self.mine)
        if isinstance(self.at, slice):
            is_whole = self.at in (_ALL, slice(0, size))
        else:
            is_whole = np.array_equal(self.at, np.arange(size))
        return (g if is_whole else _scattered(g, self.at, (size,))).reshape(shape)


def _node_of_parts(t: Tensor, parts: list[Part]) -> Node:
    """Return the node of a tensor whose elements came from several values."""
    if not parts:
        return Node(_WRITTEN_WHOLE, (), (), t._array)
    node, shape = parts[0].node, t._array.shape
    if parts[0].at is _ALL and node.shape == shape and type(node.shape) is type(shape):
        return Node(_WRITTEN_WHOLE, ((node, _same, ()),), (node,), t._array)
    return Node(_WRITTEN, *_edges(parts, _examples(t._array)), t._array)


def _edges(parts: list[Part], length: int | None) -> tuple[Any, Any]:
    """Return the edges and the inputs of a node whose elements came from several values."""
    nodes = tuple([part.node for part in parts])
    return [(node, _gradients, (parts, length)) for node in nodes], nodes


def _examples(array: Any) -> int | None:
    """Return the length of the hidden axis of examples, or None."""
    return len(array.values) if isinstance(array, BatchedArray) else None


def _gradients(g: Any, parts: list[Part], length: int | None) -> tuple[Any, ...]:
    """Return the gradients of the values that were written."""
    if length is not None:
        g = _shown(g, axis=0, length=length)
    return tuple([part.gradient(g) for part in parts])


def _write(*values: Any, parts: list[Part], length: int | None) -> np.ndarray:
    """Return the elements of several values, which NumPy has written."""
    y = np.empty(sum(np.size(part.mine) for part in parts))
    for value, part in zip(values, parts):
        y[part.mine] = np.ravel(value)[part.at]
    return y


def _write_whole(value: Any, /) -> Any:
    return value


def _same(g: Any) -> Any:
    return g


_WRITTEN = Op(_write, {}, vjp=_gradients)
_WRITTEN_WHOLE = Op(_write_whole, {"value": _same})


# -- backward


class Memory:
    """Copy of the memory of an owner, which goes back in time with a backward pass."""

    def __init__(self, log: Log, owner: np.ndarray) -> None:
        self.values = owner.copy(order="K").ravel(order="K")
        self.later = list(log.entries)  # those that are not yet undone
        self.lost: list[Entry] = []  # those that cannot be undone

    def go_back(self, time: int) -> None:
        """Undo the entries later than a time."""
        while self.later and self.later[-1].time > time:
            e = self.later.pop()
            if e.old is None:
                self.lost.append(e)
            else:
                e.undo(self.values)


def restored(memories: dict[Any, Any], name: str, since: int, edges: Any) -> Any:
    """Return the edges of a node with its saved arrays as they were at its time."""
    check_unchanged(name, since, edges)
    if not any(_is_later(values, since) for _, _, values in edges):
        return edges

    def restore(value: Any) -> Any:
        if type(value) is tuple:
            return tuple([restore(part) for part in value])
        if not _is_later((value,), since):
            return value
        array: np.ndarray = all_values(value)
        log: Any = log_of(value)
        memory = memories.get(log)
        if memory is None:
            memory = memories[log] = Memory(log, owner_of(array))
        memory.go_back(since)
        place = place_of(array, log.address)
        if any(e.overlaps(place) for e in memory.lost):
            raise changed(name, array)
        return _in_kind(place.view(memory.values).copy(), array is not value)

    return [(parent, rule, restore(values)) for parent, rule, values in edges]


def _is_later(values: Any, since: int) -> bool:
    """Return whether the memory of an array among some values was written later."""
    for value in values:
        if type(value) is np.ndarray or type(value) is BatchedArray:
            log = log_of(value)
            if log is not None and log.time > since and value.size:
                return True
        elif type(value) is tuple and _is_later(value, since):
            return True
    return False


def note_saved(node: Node) -> None:
    """Add a new node to the logs of the arrays that it saves."""
    for _, _, values in node.edges or ():
        _note(node, values)


def _note(node: Node, values: Any) -> None:
    for value in values:
        if type(value) is np.ndarray or type(value) is BatchedArray:
            log = log_of(value)
            if log is not None and log.last_saver() is not node:
                log.savers.append(weakref.ref(node))
        elif type(value) is tuple:
            _note(node, value)


def read(tensors: Any) -> None:
    """Look at the tensors among some values."""
    for t in tensors:
        if isinstance(t, Tensor):
            look(t)


LOG.update(read=read, needed=needed, saved=note_saved, restored=restored)
