"""Averages of weights along a run: they translate better than the last weights alone.

Of the last checkpoints: Vaswani et al. (2017), section 6.1; at every step: Polyak, Juditsky (1992).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from minigrad.serialization import load_arrays

from ..layers.module import Module

__all__ = ["MovingAverage", "average_weights"]


def average_weights(paths: Sequence[str | Path]) -> dict[str, np.ndarray]:
    """The mean of the weights in these files, in their dtypes, summed in float64; for `load_state_dict`.

    All files must hold the same names and shapes (ValueError, which begins with the file). Arrays of
    integers are taken from the last file.
    """
    if not paths:
        raise ValueError("average_weights: expected at least one file, got none")
    sums: dict[str, np.ndarray] = {}
    last: dict[str, np.ndarray] = {}
    for path in paths:
        last, _ = load_arrays(path)
        if not sums:
            sums = {name: np.zeros(array.shape, float) for name, array in last.items()}
        _check_same(path, {name: a.shape for name, a in sums.items()}, {name: a.shape for name, a in last.items()})
        for name, array in last.items():
            sums[name] += array
    mean = lambda name, dtype: (sums[name] / len(paths)).astype(dtype)
    return {name: mean(name, a.dtype) if a.dtype.kind == "f" else a for name, a in last.items()}


def _check_same(path: str | Path, expected: Mapping[str, Any], got: Mapping[str, Any]) -> None:
    for name in sorted({*expected, *got}):
        if expected.get(name) != got.get(name):
            raise ValueError(
                f"{path}: {name} has shape {got.get(name, 'none (it is missing)')}, but "
                f"{expected.get(name, 'no such array is')} in the files before it; average checkpoints of one run"
            )


class MovingAverage:
    """The exponential moving average of a model's weights: average ← average + (1 - d) (weights - average).

    At update t, d is the smaller of `decay` and (1 + t) / (10 + t), so that the first weights, which
    are random, are soon forgotten. With `applied(model)` as a context, the model computes with the average.
    """

    def __init__(self, model: Module, decay: float = 0.999) -> None:
        if not 0 <= decay < 1:
            raise ValueError(f"MovingAverage: expected 0 <= decay < 1, got {decay}")
        self.decay = decay
        self.updates = 0
        self.average = {name: array.copy() for name, array in model.state_dict().items()}

    def update(self, model: Module) -> None:
        """Take in the model's weights: after each step of its optimizer."""
        self.updates += 1
        rate = 1 - min(self.decay, (1 + self.updates) / (10 + self.updates))
        for name, array in model.state_dict().items():
            own = self.average[name]
            if own.dtype.kind == "f":
                own += own.dtype.type(rate) * (array - own)
            else:
                own[...] = array

    @contextmanager
    def applied(self, model: Module) -> Iterator[None]:
        """The averaged weights are in the model; at the end its own come back."""
        own = {name: array.copy() for name, array in model.state_dict().items()}
        model.load_state_dict(self.average)
        try:
            yield
        finally:
            model.load_state_dict(own)

    def state_dict(self) -> dict[str, np.ndarray]:
        """The average, and how many updates it has had, as arrays; they rate its memory."""
        return {**self.average, "updates": np.array([self.updates])}

    def load_state_dict(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Continue from a `state_dict`; names and shapes must be those of the model (ValueError)."""
        own, new = ({name: np.shape(a) for name, a in state.items()} for state in (self.state_dict(), arrays))
        if own != new:
            raise ValueError(f"MovingAverage: expected arrays {own}, got {new}")
        for name, array in self.average.items():
            array[...] = arrays[name]
        self.updates = int(arrays["updates"][0])
