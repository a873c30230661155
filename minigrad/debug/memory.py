"""What a graph saves for its backward pass."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.changes import owner_of
from ..core.graph import Node, topological
from ..core.tensor import Tensor
from ..report import Shown

__all__ = ["memory_report"]


def _buffers(value: Any, found: dict[int, np.ndarray]) -> None:
    """Add the arrays in a saved value to `found`: each buffer once, whatever views there are of it."""
    if isinstance(value, np.ndarray):
        owner = owner_of(value)
        found[id(owner)] = owner
    elif isinstance(value, (tuple, list)):
        for part in value:
            _buffers(part, found)
    elif hasattr(value, "__dict__") and not callable(value):
        for part in vars(value).values():
            _buffers(part, found)


def _saved(node: Node) -> dict[int, np.ndarray]:
    """The buffers that a node holds for its gradient; those of leaves are there anyway."""
    found: dict[int, np.ndarray] = {}
    for _, rule, args in node.edges or ():
        for value, origin in zip(args, node.op.origins(rule, node)):
            if not (isinstance(origin, Node) and origin.op is None):
                _buffers(value, found)
    return found


def bytes_saved(node: Node) -> int:
    """The bytes of all arrays that a node holds for its gradient, but for those of leaves."""
    return sum(array.nbytes for array in _saved(node).values())


class memory_report(Shown):
    """What the graph of `result` saves for its backward pass; print it for a table by op.

    `by_op` has (nodes, bytes) of each op, `total` the bytes of all. An array that several nodes
    hold counts for the oldest of them; leaves, such as parameters, are not counted.
    """

    def __init__(self, result: Tensor) -> None:
        seen: dict[int, np.ndarray] = {}
        self.by_op: dict[str, tuple[int, int]] = {}
        for node in topological([result._needed_node("memory_report")]):
            if node.op is None:
                continue
            new = {key: array for key, array in _saved(node).items() if key not in seen}
            seen |= new
            count, size = self.by_op.get(node.op.name, (0, 0))
            self.by_op[node.op.name] = count + 1, size + sum(array.nbytes for array in new.values())
        self.total = sum(size for _, size in self.by_op.values())

    def __str__(self) -> str:
        width = max(map(len, [*self.by_op, "all"]))
        rows = sorted(self.by_op.items(), key=lambda item: -item[1][1])
        rows.append(("all", (sum(count for count, _ in self.by_op.values()), self.total)))
        lines = [f"{name:{width}}{count:8}{size / 1e6:10.2f}" for name, (count, size) in rows]
        return "\n".join([f"{'op':{width}}{'nodes':>8}{'saved MB':>10}", *lines])
