"""Averages of weights along a run: they translate better than the last weights alone.

Of the last checkpoints: Vaswani et al. (2017), section 6.1; at every step: Polyak, Juditsky (1992).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from minigrad.io import load_arrays
from minigrad.optim.settings import checked_number

from ..layers.module import Module
from ..models.weights import misfit

__all__ = ["MovingAverage", "average_weights"]


def average_weights(paths: Sequence[str | Path]) -> dict[str, np.ndarray]:
    """The mean of the weights in these files, in their dtypes, summed in float64; for
    `load_state_dict`.

    All files must hold the same names and shapes, and finite numbers (ValueError, which begins with
    the file). Arrays of integers are taken from the last file.
    """
    if not paths:
        raise ValueError("average_weights: expected at least one file, got none")
    sums: dict[str, np.ndarray] = {}
    kinds: dict[str, str] = {}
    for path in paths:
        arrays, _ = load_arrays(path)
        sums = sums or {name: np.zeros(array.shape) for name, array in arrays.items()}
        kinds = kinds or _kinds(arrays)
        for name, expected, got in _differing(kinds, _kinds(arrays)):
            raise ValueError(
                f"{path}: {name} is {got or 'missing'}, but {expected or 'no such array is'} in "
                "the files before it; "
                "average checkpoints of one run"
            )
        for name, array in arrays.items():
            if wrong := misfit(name, array, array.dtype):
                raise ValueError(f"{path}: {wrong}")
            sums[name] += array
    return {
        name: (sums[name] / len(paths)).astype(a.dtype) if a.dtype.kind == "f" else a
        for name, a in arrays.items()
    }


def _kinds(arrays: Mapping[str, np.ndarray]) -> dict[str, str]:
    return {name: f"{array.dtype} {array.shape}" for name, array in arrays.items()}


def _differing(expected: Mapping[str, str], got: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """The names of which there are different kinds, and both; "" where there is no such array."""
    names = sorted({*expected, *got})
    return [
        (n, expected.get(n, ""), got.get(n, "")) for n in names if expected.get(n) != got.get(n)
    ]


class MovingAverage:
    """The exponential moving average of a model's weights: average ← average + (1 - d) (weights -
    average).

    At update t, d is the smaller of `decay` and (1 + t) / (10 + t), so that the first weights,
    which are random, are soon forgotten. With `applied(model)` as a context, the model computes
    with the average.
    """

    def __init__(self, model: Module, decay: float = 0.999) -> None:
        self.decay = checked_number("MovingAverage", "decay", decay, high=1.0)
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
        """Continue from a `state_dict`; names, dtypes and shapes must be those of the model
        (ValueError).
        """
        for name, expected, got in _differing(_kinds(self.state_dict()), _kinds(arrays)):
            raise ValueError(
                f"MovingAverage: {name}: expected {expected or 'none'}, got {got or 'none'}"
            )
        for name, array in arrays.items():
            if wrong := misfit(name, array, array.dtype):
                raise ValueError(f"MovingAverage: {wrong}")
        if arrays["updates"][0] < 0:
            raise ValueError(
                f"MovingAverage: updates: expected at least 0, got {arrays['updates'][0]}"
            )
        for name, array in self.average.items():
            array[...] = arrays[name]
        self.updates = int(arrays["updates"][0])
