"""Mean of the weights of the last checkpoints: Vaswani et al. (2017), section 6.1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from minigrad.io import load_arrays
from minigrad.io.safetensors import misfit

__all__ = ["average_weights"]


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
    first: dict[str, np.ndarray] | None = None
    for path in paths:
        arrays, _ = load_arrays(path)
        if first is None:
            first, sums = arrays, {name: np.zeros(a.shape) for name, a in arrays.items()}
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
