"""The training loop: for each batch, the loss, its gradients, and a step of the optimizer.

On a first reading: `TrainingLoop.fit` and `take_step`. `nn.Trainer` extends this loop by
validation, checkpoints and several processes, and overrides the other methods.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from minigrad.arguments import checked_count
from minigrad.arrays import Array
from minigrad.optimizer import Optimizer

__all__ = ["TrainingLoop"]


class TrainingLoop:
    """Training of a model whose `loss(*batch)` is the mean loss of a batch.

        TrainingLoop(model, Adam(model.parameters()), batches, max_epochs=10).fit()

    Parameters
    ----------
    model : Module
        Trained in place; in evaluation mode afterwards.
    optimizer : Optimizer
        Made from parameters of `model`.
    batches : function
        Takes the number of an epoch, from 0, and returns its batches.
    rate : function, optional
        Takes the number of a step, from 1, and returns a factor of the learning rates, as
        `noam_schedule` does. By default the rates are constant.
    max_epochs : int, optional
        Number of epochs. Without it, a subclass ends the training.
    **options
        Options of `model.loss`, such as `label_smoothing`.

    Attributes
    ----------
    epoch, step : int
        Numbers of whole epochs and of steps so far.
    losses : list of float
        Loss of each step.
    """

    epoch: int = 0
    step: int = 0

    def __init__(
        self,
        model: Any,
        optimizer: Optimizer,
        batches: Callable[[int], Iterable[Sequence[Array]]],
        *,
        rate: Callable[[int], float] | None = None,
        max_epochs: int | None = None,
        **options: Any,
    ) -> None:
        self.model, self.optimizer, self.batches = model, optimizer, batches
        self.rate, self.options = rate, options
        if max_epochs is not None:
            checked_count("TrainingLoop", "max_epochs", max_epochs, 0)
        self.max_epochs = max_epochs
        self.initial_rates = [group["lr"] for group in optimizer.param_groups]
        self.losses: list[float] = []

    def fit(self) -> list[Any]:
        """Return the loss of each step, after training to the end."""
        self.model.train()
        while not self.is_done():
            for batch in self.batches_of_epoch():
                self.take_step(batch)
                if self.is_done():
                    break
            else:
                self.end_epoch()
        self.model.eval()
        return self.losses

    def is_done(self) -> bool:
        """Return whether training has ended."""
        return self.max_epochs is not None and self.epoch >= self.max_epochs

    def batches_of_epoch(self) -> Iterable[Sequence[Array]]:
        """Return the batches of the current epoch."""
        return self.batches(self.epoch)

    def take_step(self, batch: Sequence[Array]) -> None:
        """Change the parameters against the gradient of the loss of a batch.

        Parameters
        ----------
        batch : sequence
            Arguments of `model.loss`.
        """
        self.step += 1
        if self.rate is not None:
            for group, lr in zip(self.optimizer.param_groups, self.initial_rates):
                group["lr"] = lr * self.rate(self.step)
        loss = self.model.loss(*batch, **self.options)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.losses.append(loss.item())

    def end_epoch(self) -> None:
        """Count an epoch whose batches have all been taken."""
        self.epoch += 1
