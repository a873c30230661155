"""The weights of a model in a file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from minigrad.io import load_arrays, save_arrays
from minigrad.io.safetensors import SafetensorsFile, misfit

from ..layers.module import Module
from .config import check_sizes, flat_settings
from .model_types import KINDS, model_from_dict, model_to_dict

__all__ = [
    "differing",
    "fit_weights",
    "load_model",
    "load_run",
    "load_weights",
    "misfit",
    "save_weights",
    "settings_of",
]

_FREE = (
    "dropout",
    "attention.dropout",
    "activation_dropout",
    "head_dropout",
    "dtype",
)  # the weights fit any of them


def save_weights(path: str | Path, model: Module, **metadata: Any) -> None:
    """Write the state of a model, and plain data beside it, atomically; the settings of our models
    too.
    """
    save_arrays(
        path,
        model.state_dict(),
        {**metadata, **({"model": own} if (own := settings_of(model)) else {})},
    )


def load_weights(path: str | Path, model: Module) -> dict[str, Any]:
    """Read the state of a model; the plain data beside it. The last state of a `Trainer` holds one
    too.

    Weights of a model with other settings are a ValueError that tells which; dropout and dtype may
    differ, and `max_len` be larger. See `fit_weights` for what else is refused.
    """
    arrays, metadata = load_arrays(path)
    if isinstance(
        state := metadata.get("trainer"), dict
    ):  # beside the weights it has those of the optimizer
        arrays = {
            name[len("model.") :]: array
            for name, array in arrays.items()
            if name.startswith("model.")
        }
        metadata["model"] = state.get("model")
    if differ := differing(settings_of(model), metadata.pop("model", None)):
        raise ValueError(f"{path}: the weights of another model: this one has {differ}")
    fit_weights(model, arrays, path)
    return metadata


def settings_of(model: Module) -> dict[str, Any] | None:
    """The settings of a model as JSON gives them back; None for modules that are none of our
    models.
    """
    try:
        return dict(json.loads(json.dumps(model_to_dict(model))))  # type: ignore[arg-type]
    except TypeError:
        return None


def differing(own: Mapping[str, Any] | None, made_with: Any, free: Sequence[str] = _FREE) -> str:
    """List the settings of a model that differ from those that a file was made with.

    Returns "" if none differ. The settings of a file may be those of version 0.2.
    """
    if own is None or not isinstance(made_with, dict):
        return ""
    own, made_with = _flat(own), _flat({"model": own["model"], **made_with})
    longer = (
        isinstance(made_with.get("max_len"), int) and own.get("max_len", 0) >= made_with["max_len"]
    )
    return ", ".join(
        f"{name}={own[name]!r:.60} (expected {made_with[name]!r:.60})"
        for name in own
        if name in made_with
        and own[name] != made_with[name]
        and name not in free
        and not (name == "max_len" and longer)
    )


def fit_weights(model: Module, arrays: Mapping[str, np.ndarray], path: str | Path) -> None:
    """Copy arrays that were read from `path` into the parameters and buffers of their names.

    Names, shapes and kinds of numbers must be those of the model, and all numbers finite, in its
    dtype too; else a ValueError tells of all that is wrong, and the model is as it was.
    """
    own = model.state_dict()
    both = [name for name in own if name in arrays]
    if wrong := [found for name in both if (found := misfit(name, arrays[name], own[name].dtype))]:
        raise ValueError(
            f"{path}: {'; '.join(wrong[:5])}"
            + (f"; and {len(wrong) - 5} more" if wrong[5:] else "")
        )
    try:
        model.load_state_dict(arrays)
    except KeyError as error:
        raise ValueError(f"{path}: {error.args[0]}") from None


def load_model(data: Any, where: str, path: str | Path | None) -> Any:
    """The model of these settings, which stand in the file `where`, with the weights in `path`;
    None draws them.

    Sizes are held against those of the weights before memory is taken. What is wrong is a
    ValueError or an OSError that begins with one of the two files.
    """
    if not isinstance(data, dict):
        raise ValueError(f"{where}: expected an object of settings, got {data!r:.60}")
    file = None if path is None else SafetensorsFile(path)
    try:
        if file is not None:
            ours = (
                "model." if "trainer" in file.metadata else ""
            )  # beside the weights a trainer keeps long flat arrays
            shapes = {name: entry.shape for name, entry in file.items() if name.startswith(ours)}
            check_sizes(_flat(data), shapes, file.path.name)
        model = model_from_dict(data, init=path is None, where=where)
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        MemoryError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        text = str(error.args[0]) if error.args else type(error).__name__
        raise ValueError(text if text.startswith(where) else f"{where}: {text}") from None
    if path is not None:
        if differ := differing(settings_of(model), _made_with(path)):
            raise ValueError(f"{where}: changed since {path} was written: {differ}")
        load_weights(path, model)
    return model


def load_run(path: str | Path) -> Any:
    """The model of a run directory with its best weights, or of a file of weights, in evaluation
    mode.

    It is made from the settings that stand beside the weights of every model of `nn`; weights of
    other modules (ValueError) go by `load_weights` into one that you have built.
    """
    path = Path(path)
    path = path / "best.safetensors" if path.is_dir() else path
    settings = _made_with(path)
    if settings is None:
        raise ValueError(
            f"{path}: no settings of a model of nn stand beside these weights; build it, and "
            "load_weights"
        )
    return load_model(settings, str(path), path).eval()


def _made_with(path: str | Path) -> Any:
    """The settings in the metadata of a file."""
    notes = SafetensorsFile(path).metadata
    try:
        return (
            json.loads(notes["trainer"])["model"]
            if "trainer" in notes
            else json.loads(notes.get("model", "null"))
        )
    except (KeyError, TypeError, ValueError, RecursionError):
        return None  # load_weights tells


def _flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return `flat_settings` of plain data of this version or of version 0.2."""
    kind = settings.get("model")
    if isinstance(kind, str) and kind in KINDS:
        settings = KINDS[kind][1].grouped(settings)
    return flat_settings(settings)
