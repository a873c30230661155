"""Averages of weights along a run, which often translate better than the last weights.

Of the last checkpoints: Vaswani et al. (2017), section 6.1. At every step: Polyak and Juditsky
(1992).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from minigrad.arguments import checked_number
from minigrad.io import load_arrays
from minigrad.io.safetensors import misfit

from ..module import Module

__all__ = ["MovingAverage", "average_weights"]


def average_weights(paths: Sequence[str | Path]) -> dict[str, np.ndarray]:
    """Return the mean of the weights in files, for `load_state_dict`.

    Parameters
    ----------
    paths : sequence of paths
        Safetensors files with the same names, dtypes and shapes.

    Returns
    -------
    dict of str to ndarray
        Means in the dtypes of the files, summed in float64. Arrays of integers are those of the
        last file.

    Raises
    ------
    ValueError
        If the files differ in names, dtypes or shapes, or contain values that are not finite.
    """
    if not paths:
        raise ValueError("average_weights: paths must contain at least one file, got none")
    sums: dict[str, np.ndarray] = {}
    for path in paths:
        arrays, _ = load_arrays(path)
        if not sums:
            first = arrays
            sums = {name: np.zeros(a.shape) for name, a in arrays.items()}
        _check(first, arrays, str(path))
        for name, array in arrays.items():
            sums[name] += array
    return {
        name: (sums[name] / len(paths)).astype(a.dtype) if a.dtype.kind == "f" else a
        for name, a in arrays.items()
    }


def _check(
    expected: Mapping[str, np.ndarray], arrays: Mapping[str, np.ndarray], where: str
) -> None:
    """Refuse arrays of other names, dtypes or shapes, and values that are not finite."""
    for name in sorted({*expected, *arrays}):
        before, now = (
            f"{a[name].dtype} {a[name].shape}" if name in a else "absent"
            for a in (expected, arrays)
        )
        if before != now:
            raise ValueError(
                f"{where}: {name} must be {before}, as in the other weights, got {now}; average "
                "weights of one run"
            )
        if wrong := misfit(name, arrays[name], arrays[name].dtype):
            raise ValueError(f"{where}: {wrong}")


class MovingAverage:
    """Exponential moving average of a model's weights.

    At update t, average ← average + (1 - d) (weights - average), where d is the smaller of `decay`
    and (1 + t) / (10 + t), so that the first, random weights are soon forgotten.

    Parameters
    ----------
    model : Module
        Its weights are the first average.
    decay : float
        At least 0 and less than 1.
    """

    def __init__(self, model: Module, decay: float = 0.999) -> None:
        self.decay = checked_number("MovingAverage", "decay", decay, high=1.0)
        self.updates = 0
        self.average = {name: array.copy() for name, array in model.state_dict().items()}

    def update(self, model: Module) -> None:
        """Add the model's weights, after a step of its optimizer.

        Parameters
        ----------
        model : Module
            The model of the average.
        """
        self.updates += 1
        rate = 1 - min(self.decay, (1 + self.updates) / (10 + self.updates))
        for name, array in model.state_dict().items():
            average = self.average[name]
            if average.dtype.kind == "f":
                average += average.dtype.type(rate) * (array - average)
            else:
                average[...] = array

    @contextmanager
    def applied(self, model: Module) -> Iterator[None]:
        """Return a context in which the model has the averaged weights.

        Parameters
        ----------
        model : Module
            The model of the average.

        Yields
        ------
        None
            The block has no value.
        """
        weights = {name: array.copy() for name, array in model.state_dict().items()}
        model.load_state_dict(self.average)
        try:
            yield
        finally:
            model.load_state_dict(weights)

    def state_dict(self) -> dict[str, np.ndarray]:
        """Return the average and the number of updates.

        Returns
        -------
        dict of str to ndarray
            Weights by name, and "updates".
        """
        return {**self.average, "updates": np.array([self.updates])}

    def load_state_dict(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Continue from a `state_dict`.

        Parameters
        ----------
        arrays : mapping of str to ndarray
            With the names, dtypes and shapes of the model's weights, and "updates".

        Raises
        ------
        ValueError
            If names, dtypes or shapes differ.
        """
        _check(self.state_dict(), arrays, "MovingAverage")
        for name, array in self.average.items():
            array[...] = arrays[name]
        self.updates = int(arrays["updates"][0])
