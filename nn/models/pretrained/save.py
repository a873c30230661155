"""Saving: a model to a folder that others load."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from minigrad.files.atomic import write_bytes
from minigrad.files.json import write_json
from minigrad.files.safetensors import write_safetensors

from ..base import Model
from .families import FAMILIES
from .folder import Origin
from .load import parameter_at, plan

__all__ = ["save"]


def save(directory: str | Path, model: Any, text: Any = None, *, dtype: str | None = None) -> None:
    """Write a model into a folder that transformers, and all that read its files, can load.

    A model that `nn.load` gave is saved in the names and with the settings of the folder that it came from;
    one that was trained here as a Marian, GPT-2, Llama or BERT folder, whichever it fits. `text`, from
    `nn.text.load`, has its files written beside it. `dtype` is that of the weights in the file, such as
    "bfloat16"; None: that of the model.
    """
    directory = Path(directory)
    if getattr(model.config, "pruned_heads", None):
        raise ValueError("save: a model with pruned heads has no form that others read; nn.save_weights keeps it")
    origin = getattr(model, "origin", None)
    if origin is None:
        raise ValueError("TODO")
    FAMILIES[origin.family]
    write_safetensors(directory / "model.safetensors", _arrays(model, origin), {"format": "pt"}, dtype)
    write_json(directory / "config.json", _settings(model, origin, dtype), 2)
    for name, data in origin.files.items():
        write_bytes(directory / name, data)
    if text is not None:
        text.save(directory)


def _arrays(model: Model, origin: Origin) -> dict[str, np.ndarray]:
    """All arrays of the file, by their names."""
    family, own = FAMILIES[origin.family], dict(model.named_parameters())
    arrays = {
        name: place.join([own[ours].data for ours in place.ours])
        for name, place in plan(model, family, origin.head, origin.prefix).items()
    }
    for name in origin.copies:
        ours = next(o for n, o in family.copies.items() if n.replace("@", origin.prefix) == name)
        parameter = parameter_at(model, ours)
        if parameter is not None:
            arrays[name] = parameter.data
    arrays.update(origin.kept)
    return {origin.spelled.get(name, name): array for name, array in arrays.items()}


def _settings(model: Model, origin: Origin, dtype: str | None) -> dict[str, Any]:
    """config.json: what was read, with what changed since."""
    settings, stored = dict(origin.settings), dtype or model.config.dtype
    for name in ("dtype", "torch_dtype"):
        if name in settings:
            settings[name] = stored
    if not {"dtype", "torch_dtype"} & set(settings):
        settings["torch_dtype"] = stored
    return settings
