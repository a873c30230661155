"""What a rank of a training run does: the protocol that a trainer speaks, and its form for one
process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..core.graph import Node
from ..core.tensor import Tensor
from ..optim import Optimizer

__all__ = ["Alone"]


class Alone:
    """One process that takes steps by itself; and the protocol of those that share them.

    A run has `size` ranks, and this process is number `rank`. All take the same steps. Each calls
    `backward` with the shards of a batch that are its own (at most `parts`), then `step`. Only rank
    0 writes files. `loss(shard)` gives a scalar; the gradients of all shards of all ranks are
    summed. Random numbers differ between shards; the default generator, and those of modules, have
    one state on all ranks.
    """

    rank = 0
    size = 1
    parts = 1

    def __init__(self, optimizer: Optimizer, loss: Callable[[Any], Tensor]) -> None:
        self.optimizer = optimizer
        self.loss = loss

    def backward(self, shards: Sequence[Any], add: bool = False, last: bool = False) -> list[float]:
        """The losses of these shards; their gradients replace earlier ones, or with `add` add to
        them.

        `last` says that no more are added before `step`: what concerns all ranks may begin now.
        """
        return [self._backward(shard, add or i > 0) for i, shard in enumerate(shards)]

    def step(self) -> float | None:
        """Change the parameters by the sum of all gradients, as `Optimizer.step`, whose answer it
        gives.
        """
        return self.optimizer.step()

    def sum(self, numbers: Sequence[float]) -> list[float]:
        """The sums of these numbers over all ranks."""
        return list(numbers)

    def barrier(self) -> None:
        """Wait for all ranks."""

    def agree(self, facts: Mapping[str, Any]) -> None:
        """A ValueError on all ranks, unless each passes the same facts: names, and values that JSON
        can hold.
        """

    def close(self) -> None:
        """Give back what is held for the steps; a later `backward` begins anew."""

    def __enter__(self) -> Alone:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _backward(
        self, shard: Any, add: bool, on_leaf: Callable[[Node], None] | None = None
    ) -> float:
        if not add:
            self.optimizer.zero_grad()
        if shard is None:  # there is no part for this process
            return 0.0
        loss = self.loss(shard)
        if on_leaf is None:
            loss.backward()
        else:
            loss._send_back(on_leaf=on_leaf)
        return loss.item()
