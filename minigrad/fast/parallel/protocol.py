"""Interface of the steps of a training run, and its implementation for one process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...optim import Optimizer
from ...tensor import Tensor
from ..stepper import BlockedStepper

__all__ = ["SingleProcess"]


class SingleProcess:
    """Training steps of a single process, and the interface of shared ones.

    A run has `size` ranks, and this process is rank `rank`. All ranks take the same steps. Each
    rank calls `backward` with its own shards of a batch, at most `parts`, then `step`. Only rank 0
    writes files. The gradients of all shards of all ranks are summed. Random numbers differ between
    shards. The states of the default generator and of the generators of modules are equal on all
    ranks.

    Parameters
    ----------
    optimizer : Optimizer
    loss : function
        Takes a shard and returns a scalar. Values that change between steps belong in the shard.
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
        if not isinstance(optimizer.stepper, BlockedStepper):
            raise TypeError(
                f"{type(self).__name__}: optimizer must take its steps in blocks, got a "
                f"{type(optimizer.stepper).__name__}"
            )
        self.optimizer = optimizer
        self.stepper = optimizer.stepper
        self.loss = loss
        self.model = model

    def backward(self, shards: Sequence[Any], add: bool = False) -> list[float]:
        """Return the losses of shards, after adding up their gradients.

        Parameters
        ----------
        shards : sequence
            At most `parts`.
        add : bool
            Add to earlier gradients instead of replacing them; False by default.
        """
        return [self._backward(shard, add or i > 0) for i, shard in enumerate(shards)]

    def step(self) -> float | None:
        """Change the parameters by the sum of all gradients.

        Returns
        -------
        float
            Norm of all gradients, before clipping.
        """
        return self.optimizer.step()

    def sum(self, numbers: Sequence[float]) -> list[float]:
        """Return the sum of each number over all ranks.

        Parameters
        ----------
        numbers : sequence of float
            Numbers of this rank, equally many on all ranks.
        """
        return list(numbers)

    def barrier(self) -> None:
        """Wait for all ranks."""

    def agree(self, facts: Mapping[str, Any]) -> None:
        """Raise a ValueError on all ranks unless each passes the same names and JSON values.

        Parameters
        ----------
        facts : mapping of str to Any
            Plain data by name, for the message.
        """

    def close(self) -> None:
        """Release the resources of the steps; a later `backward` acquires them again."""

    def __enter__(self) -> SingleProcess:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _backward(self, shard: Any, add: bool) -> float:
        if not add:
            self.optimizer.zero_grad()
        if shard is None:  # the batch has no rows for this process
            return 0.0
        loss = self.loss(shard)
        if not isinstance(loss, Tensor):
            raise TypeError(
                f"{type(self).__name__}: loss must return a Tensor, got a {type(loss).__name__}"
            )
        loss.backward()
        return loss.item()
