"""Objectives: the loss of a batch, what it is divided by, and how a batch is split."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minigrad.nested import leaves, rebuilt
from minigrad.tensor import Tensor

from ..module import Module
from ..options.padding import warn_of_batch

__all__ = ["ModelLoss", "Objective"]


class Objective:
    """Sum of the losses of a batch, and their number.

    A step follows the mean over all its batches. Subclasses define `total`, and `count` if there is
    not one loss for each row. `model.training` is False in evaluation.
    """

    def count(self, model: Any, batch: Any) -> float:
        """Return the number of losses that `total` adds up; by default one for each row.

        Parameters
        ----------
        model : Module
            The model in training.
        batch : any
            A batch, or one of the parts that `split` returned.
        """
        return _rows(batch)

    def total(self, model: Any, batch: Any) -> Tensor:
        """Return the sum of the losses, a scalar.

        Parameters: as `Objective.count`.
        """
        raise NotImplementedError

    def split(self, batch: Any, parts: int) -> list[Any]:
        """Return batches of similar size that make up this one.

        By default each contains every `parts`-th row.

        Parameters
        ----------
        batch : any
            A batch.
        parts : int
            Largest number of batches.

        Returns
        -------
        list of batches
            At most `parts` batches, each with at least one row.
        """
        return [_every(batch, i, parts) for i in range(min(parts, _rows(batch)))]


class ModelLoss(Objective):
    """`model.loss(*batch)`, with options in training and without them in evaluation.

        ModelLoss(label_smoothing=0.1)

    A model with a method `num_targets(*batch)`, as those of `nn`, returns with `reduction="sum"`
    the sum over its targets (tokens, or rows of a classifier). Of another model the mean loss
    counts once for each row.

    Parameters
    ----------
    **options : any
        Keyword arguments of `model.loss`, such as `label_smoothing` from 0 to 1.
    """

    def __init__(self, **options: Any) -> None:
        smoothing = options.get("label_smoothing", 0.0)
        is_number = isinstance(smoothing, (int, float)) and not isinstance(smoothing, bool)
        if not is_number or not 0 <= smoothing <= 1:
            raise ValueError(
                f"ModelLoss: label_smoothing must be a number from 0 to 1, got {smoothing!r}"
            )
        self.options = options

    def count(self, model: Any, batch: Any) -> float:
        """Return the number of targets, or of rows if the model does not count them."""
        counted = getattr(model, "num_targets", None)
        return _rows(batch) if counted is None else counted(*_as_arguments(batch))

    def total(self, model: Any, batch: Any) -> Tensor:
        """Return the sum of the model's losses."""
        options = self.options if model.training else {}
        if hasattr(model, "num_targets"):
            warn_of_batch(model, _as_arguments(batch))
            return model.loss(*_as_arguments(batch), reduction="sum", **options)
        rows = _some_rows(batch)
        return _checked_loss(model.loss(*_as_arguments(batch), **options)) * rows


class FunctionLoss(Objective):
    """Mean loss over the rows of a batch, by a function."""

    def __init__(self, function: Callable[[Any, Any], Tensor]) -> None:
        self.function = function

    def total(self, model: Any, batch: Any) -> Tensor:
        """Return the mean loss of the function times the number of rows."""
        rows = _some_rows(batch)
        return _checked_loss(self.function(model, batch)) * rows


def check_has_parts(objective: Any, model: Any) -> None:
    """Raise a ValueError for an objective that returns only the mean loss of a whole batch.

    How much the mean of a part counts is not known: its rows may have different numbers of targets.
    """
    if isinstance(objective, FunctionLoss):
        name = "a function"
    elif isinstance(objective, ModelLoss) and not hasattr(model, "num_targets"):
        name = f"the loss of {type(model).__name__}, which has no num_targets()"
    else:
        return
    raise ValueError(
        f"objective: {name} returns the mean loss of a whole batch, of which several processes or "
        "ranks cannot compute parts; pass an nn.Objective, whose total() returns the sum of the "
        "losses of a part and count() their number"
    )


def as_objective(objective: Any, model: Module) -> Any:
    """Return an objective."""
    if objective is None:
        if not callable(getattr(model, "loss", None)):
            name = type(model).__name__
            raise TypeError(
                f"objective must be given, since {name} has no loss(); pass a function "
                "(model, batch) -> mean loss"
            )
        return ModelLoss()
    if all(callable(getattr(objective, name, None)) for name in ("count", "total", "split")):
        return objective
    if callable(objective):
        return FunctionLoss(objective)
    raise TypeError(
        "objective must be a function (model, batch) -> mean loss, or an Objective, got "
        f"{objective!r:.80}"
    )


def _checked_loss(loss: Any) -> Tensor:
    if not isinstance(loss, Tensor):
        raise TypeError(
            f"the loss must be a Tensor, got {loss!r:.60}; return it without item() or numpy()"
        )
    return loss


def _as_arguments(batch: Any) -> Sequence[Any]:
    return batch if isinstance(batch, (tuple, list)) else (batch,)


def _is_part(batch: Any) -> Callable[[Any], bool]:
    """Return which values in a batch have rows: arrays, and lists within other containers."""
    return lambda value: isinstance(value, list) and value is not batch


def _rows(batch: Any) -> int:
    """Return the number of rows of a batch."""
    parts = leaves(batch, _is_part(batch))
    sizes = {len(part) for part in parts if np.ndim(part)}
    if len(sizes) != 1:
        raise ValueError(
            "a batch must contain arrays with the same number of rows, got shapes "
            f"{[np.shape(part) for part in parts]}; write an Objective whose `count` and `split` "
            "fit other batches"
        )
    return sizes.pop()


def _some_rows(batch: Any) -> int:
    """Return the number of rows of a batch, whose mean loss is needed."""
    if not (rows := _rows(batch)):
        raise ValueError("a batch must have at least one row, got none; leave it out")
    return rows


def _every(batch: Any, start: int, step: int) -> Any:
    """Return every `step`-th row of a batch."""
    parts = leaves(batch, _is_part(batch))
    rows = [part[start::step] if np.ndim(part) else part for part in parts]
    return rebuilt(batch, rows, _is_part(batch))
