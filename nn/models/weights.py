"""The weights of a model in a file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from minigrad.serialization import load_arrays, save_arrays

from ..layers.module import Module

__all__ = ["fit_weights", "load_weights", "save_weights"]


def save_weights(path: str | Path, model: Module, **metadata: Any) -> None:
    """Write the state of a model, and plain data beside it, atomically."""
    save_arrays(path, model.state_dict(), metadata)


def load_weights(path: str | Path, model: Module) -> dict[str, Any]:
    """Read the state of a model; the plain data beside it. See `fit_weights` for what is refused."""
    arrays, metadata = load_arrays(path)
    fit_weights(model, arrays, path)
    return metadata


def fit_weights(model: Module, arrays: Mapping[str, np.ndarray], path: str | Path) -> None:
    """Copy arrays that were read from `path` into the parameters and buffers of their names.

    Names, shapes and kinds of numbers must be those of the model, and all numbers finite, in its dtype
    too; else a ValueError tells of all that is wrong, and the model is as it was.
    """
    own = model.state_dict()
    wrong = []
    for name in own:
        if name not in arrays:
            continue
        array, kind = arrays[name], own[name].dtype
        if (array.dtype.kind == "f") != (kind.kind == "f"):
            wrong.append(f"{name}: expected {kind}, got {array.dtype}")
        elif kind.kind == "f":
            with np.errstate(over="ignore"):
                bad = array.size - np.count_nonzero(np.isfinite(array.astype(kind, copy=False)))
            if bad:
                wrong.append(f"{name}: {bad:,} of its {array.size:,} numbers are NaN or infinite in {kind}")
    if wrong:
        raise ValueError(f"{path}: {'; '.join(wrong[:5])}" + (f"; and {len(wrong) - 5} more" if wrong[5:] else ""))
    try:
        model.load_state_dict(arrays)
    except KeyError as error:
        raise ValueError(f"{path}: {error.args[0]}") from None
