"""What a rank of a training run does: the protocol of a trainer, and its form for one process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..core.tensor import Tensor
from ..optim import Optimizer

__all__ = ["Alone"]


class Alone:
    """One process that takes steps by itself; and the protocol of those that share them.

    A run has `size` ranks, and this process is number `rank`. All take the same steps. Each calls
    `backward` with the shards of a batch that are its own (at most `parts`), then `step`. Only rank
    0 writes files. The gradients of all shards of all ranks are summed. Random numbers differ
    between shards; the default generator, and those of modules, have one state on all ranks.

    Parameters
    ----------
    optimizer : Optimizer
    loss : function
        Takes a shard and returns a scalar. Values that change from step to step belong in the
        shard.
    model : Module or None
        The module that `loss` uses; several in a `ModuleList`.
    """

    rank = 0
    size = 1
    parts = 1

    def __init__(
        self, optimizer: Optimizer, loss: Callable[[Any], Tensor], *, model: Any = None
    ) -> None:
        if model is not None and not hasattr(model, "modules"):
            raise TypeError(
                f"{type(self).__name__}: model must be a module or None, got {model!r:.60}"
            )
        self.optimizer = optimizer
        self.loss = loss
        self.model = model

    def backward(self, shards: Sequence[Any], add: bool = False) -> list[float]:
        """Compute the losses of these shards, and their gradients.

        They replace earlier gradients, or with `add` add to them.
        """
        return [self._backward(shard, add or i > 0) for i, shard in enumerate(shards)]

    def step(self) -> float | None:
        """Change the parameters by the sum of all gradients, and return their norm."""
        return self.optimizer.step()

    def sum(self, numbers: Sequence[float]) -> list[float]:
        """Return the sums of these numbers over all ranks."""
        return list(numbers)

    def barrier(self) -> None:
        """Wait for all ranks."""

    def agree(self, facts: Mapping[str, Any]) -> None:
        """Raise a ValueError on all ranks unless each passes the same facts.

        These are names, and values that JSON can hold.
        """

    def close(self) -> None:
        """Give back what is held for the steps; a later `backward` begins anew."""

    def __enter__(self) -> Alone:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _backward(self, shard: Any, add: bool) -> float:
        if not add:
            self.optimizer.zero_grad()
        if shard is None:  # there is no part for this process
            return 0.0
        loss = self.loss(shard)
        loss.backward()
        return loss.item()
