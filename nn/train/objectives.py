"""What a model is trained for: how the loss of a batch is taken, what it is divided by, how a batch
is split.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minigrad.core.tensor import Tensor

from ..layers.module import Module

__all__ = ["FunctionLoss", "ModelLoss", "Objective", "as_objective"]


class Objective:
    """The sum of the losses of a batch, and their number. A step follows the mean over all its
    batches.

    Subclasses define `total`, and `count` where losses are not one for each row. `model.training`
    tells training from evaluation.
    """

    def count(self, model: Any, batch: Any) -> float:
        """How many losses `total` adds up: by default one for each row."""
        return _rows(batch)

    def total(self, model: Any, batch: Any) -> Tensor:
        """The sum of the losses, a scalar tensor."""
        raise NotImplementedError

    def split(self, batch: Any, parts: int) -> list[Any]:
        """At most `parts` batches that make up this one, of like sizes: by default every `parts`-th
        row.
        """
        return [_every(batch, i, parts) for i in range(min(parts, _rows(batch)))]


class ModelLoss(Objective):
    """`model.loss(*batch)`, with these options in training and without them in evaluation.

        ModelLoss(label_smoothing=0.1)

    A model that defines `num_targets(*batch)`, as those of `nn` do, is asked for the sum over its
    targets (tokens, or rows of a classifier) by `reduction="sum"`. Of another model the mean loss
    counts once for each row.
    """

    def __init__(self, **options: Any) -> None:
        smoothing = options.get("label_smoothing", 0.0)
        if (
            isinstance(smoothing, bool)
            or not isinstance(smoothing, (int, float))
            or not 0 <= smoothing <= 1
        ):
            raise ValueError(f"ModelLoss: expected 0 <= label_smoothing <= 1, got {smoothing!r}")
        self.options = options

    def count(self, model: Any, batch: Any) -> float:
        counted = getattr(model, "num_targets", None)
        return _rows(batch) if counted is None else counted(*_as_arguments(batch))

    def total(self, model: Any, batch: Any) -> Tensor:
        options = self.options if model.training else {}
        if hasattr(model, "num_targets"):
            return model.loss(*_as_arguments(batch), reduction="sum", **options)
        return model.loss(*_as_arguments(batch), **options) * _rows(batch)


class FunctionLoss(Objective):
    """`function(model, batch)`, the mean loss over the rows of a batch."""

    def __init__(self, function: Callable[[Any, Any], Tensor]) -> None:
        self.function = function

    def total(self, model: Any, batch: Any) -> Tensor:
        return self.function(model, batch) * _rows(batch)


def as_objective(objective: Any, model: Module) -> Any:
    """An objective from one, from a function (model, batch) -> mean loss, or from None: the model's
    own `loss`.
    """
    if objective is None:
        if not callable(getattr(model, "loss", None)):
            name = type(model).__name__
            raise TypeError(
                f"objective: {name} has no loss(); pass a function (model, batch) -> mean loss"
            )
        return ModelLoss()
    if all(callable(getattr(objective, name, None)) for name in ("count", "total", "split")):
        return objective
    if callable(objective):
        return FunctionLoss(objective)
    raise TypeError(
        f"objective: expected a function (model, batch) -> mean loss, or an Objective, got "
        f"{objective!r:.80}"
    )


def _as_arguments(batch: Any) -> Sequence[Any]:
    return batch if isinstance(batch, (tuple, list)) else (batch,)


def _rows(batch: Any) -> int:
    """The rows of a batch: an array, or a tuple, list or dict of arrays with the same number of
    rows.
    """
    arrays = list(batch.values()) if isinstance(batch, dict) else _as_arguments(batch)
    sizes = {len(a) for a in arrays if np.ndim(a)}
    if len(sizes) != 1:
        raise ValueError(
            f"a batch: expected arrays with the same number of rows, got "
            f"{[np.shape(a) for a in arrays]}; "
            "an Objective of your own can count and split other batches"
        )
    return sizes.pop()


def _every(batch: Any, start: int, step: int) -> Any:
    if isinstance(batch, dict):
        return {name: _every(a, start, step) for name, a in batch.items()}
    if isinstance(batch, (tuple, list)):
        parts = [_every(a, start, step) for a in batch]
        return type(batch)(*parts) if hasattr(batch, "_fields") else type(batch)(parts)
    return batch[start::step] if np.ndim(batch) else batch
