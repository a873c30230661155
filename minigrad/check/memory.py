"""Memory that a graph saves for its backward pass."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..arrays import all_values
from ..changes import owner_of
from ..graph import Node, topological
from ..tensor import Tensor, unwrap
from .report import Shown

__all__ = ["memory_report"]


def arrays_in(value: Any) -> Iterator[Any]:
    """Yield the arrays, NumPy scalars and floats in tensors, collections and objects."""
    value = all_values(unwrap(value))
    if isinstance(value, (np.ndarray, np.generic, float)):
        yield value
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from arrays_in(part)
    elif isinstance(value, dict):
        yield from arrays_in(list(value.values()))
    elif hasattr(value, "__dict__") and not callable(value):
        yield from arrays_in(vars(value))


def _saved_arrays(node: Node) -> dict[int, np.ndarray]:
    """Return the arrays that a node saves by id, without arrays of leaves."""
    buffers: dict[int, np.ndarray] = {}
    for _, rule, args in node.edges or ():
        for value, origin in zip(args, node.op.origins(rule, node)):
            if not (isinstance(origin, Node) and origin.op is None):
                arrays = [x for x in arrays_in(value) if isinstance(x, np.ndarray)]
                buffers |= {id(owner): owner for owner in map(owner_of, arrays)}
    return buffers


def bytes_saved(node: Node) -> int:
    """Return the bytes of the arrays that a node saves, without arrays of leaves."""
    return sum(array.nbytes for array in _saved_arrays(node).values())


class memory_report(Shown):
    """Table by op of the memory that the graph of a result saves for its backward pass.

    An array that several nodes save counts for the oldest of them. Leaves, such as parameters, are
    not counted.

    Parameters
    ----------
    result : Tensor

    Attributes
    ----------
    by_op : dict of str to (int, int)
        The number of nodes of each op, and the bytes that they save.
    total : int
        The bytes of all ops.
    """

    def __init__(self, result: Tensor) -> None:
        counted: set[int] = set()
        self.by_op: dict[str, tuple[int, int]] = {}
        for node in topological([result._needed_node("memory_report")]):
            if node.op is None:
                continue
            saved = _saved_arrays(node)
            count, size = self.by_op.get(node.op.name, (0, 0))
            size += sum(array.nbytes for key, array in saved.items() if key not in counted)
            self.by_op[node.op.name] = count + 1, size
            counted |= saved.keys()
        self.total = sum(size for _, size in self.by_op.values())

    def __str__(self) -> str:
        rows = sorted(self.by_op.items(), key=lambda item: -item[1][1])
        rows.append(("all", (sum(count for _, (count, _) in rows), self.total)))
        width = max(len(name) for name, _ in rows)
        lines = [f"{name:{width}}{count:8}{size / 1e6:10.2f}" for name, (count, size) in rows]
        return "\n".join([f"{'op':{width}}{'nodes':>8}{'saved MB':>10}", *lines])
