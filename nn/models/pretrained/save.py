"""Saving: a model to a folder that others load."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from minigrad.files.atomic import write_bytes
from minigrad.files.json import write_json
from minigrad.files.safetensors import write_safetensors

from ..base import Model
from .adopt import adopted, in_halves
from .families import FAMILIES
from .folder import Origin
from .load import SUFFIXES, parameter_at, plan

__all__ = ["save"]


def save(directory: str | Path, model: Any, text: Any = None, *, dtype: str | None = None) -> None:
    """Write a model into a folder that transformers, and all that read its files, can load.

    A model that `nn.load` gave is saved in the names and with the settings of the folder that it came from;
    one that was trained here as a Marian, GPT-2, Llama or BERT folder, whichever it fits. `text`, from
    `nn.text.load`, has its files written beside it. `dtype` is that of the weights in the file, such as
    "bfloat16"; None: that of the model.
    """
    directory = Path(directory)
    if model.config.pruned_heads:
        raise ValueError("save: a model with pruned heads has no form that others read; nn.save_weights keeps it")
    if any(name.endswith(".lora_a") for name, _ in model.named_parameters()):
        raise ValueError(
            "save: the model has adapters; make them part of it by merge_lora, or keep them by save_adapter"
        )
    origin = model.origin or adopted(model)
    write_safetensors(directory / "model.safetensors", _arrays(model, origin), {"format": "pt"}, dtype)
    write_json(directory / "config.json", _settings(model, origin, dtype), 2)
    for name, data in origin.files.items():
        write_bytes(directory / name, data)
    if text is not None:
        text.save(directory)


def _arrays(model: Model, origin: Origin) -> dict[str, np.ndarray]:
    """All arrays of the file, by their names."""
    family, own = FAMILIES[origin.family], {name: p.data for name, p in model.named_parameters()}
    if model.config.positions == "sinusoidal":
        own = {name: in_halves(name, array, model.config.d_model) for name, array in own.items()}
    arrays = {
        name: place.join([own[ours] for ours in place.ours])
        for name, place in plan(model, family, origin.head, origin.prefix).items()
    }
    for name in origin.copies:
        ours = next(o for n, o in family.copies.items() if n.replace("@", origin.prefix) == name)
        parameter = parameter_at(model, ours)
        if parameter is not None:
            arrays[name] = parameter.data
    arrays.update(origin.kept)
    if origin.head == "none" and family.pooler:
        width = model.config.d_model
        arrays.setdefault(f"{origin.prefix}{family.pooler}.weight", np.zeros((width, width), model.config.dtype))
        arrays.setdefault(f"{origin.prefix}{family.pooler}.bias", np.zeros(width, model.config.dtype))
    return {origin.spelled.get(name, name): array for name, array in arrays.items()}


def _settings(model: Model, origin: Origin, dtype: str | None) -> dict[str, Any]:
    """config.json: what was read, with what changed since."""
    settings, stored = dict(origin.settings), dtype or model.config.dtype
    for name in {"dtype", "torch_dtype"} & set(settings) or {"torch_dtype"}:
        settings[name] = stored
    if origin.head:
        settings["architectures"] = [_architecture(settings, origin)]
    if origin.head in ("classes", "tokens"):
        count, labels = model.config.num_classes, settings.get("id2label") or {}
        if len(labels) != count:
            settings["id2label"] = {str(i): f"LABEL_{i}" for i in range(count)}
            settings["label2id"] = {f"LABEL_{i}": i for i in range(count)}
    return settings


def _architecture(settings: dict[str, Any], origin: Origin) -> str:
    """The class of theirs; the one that was read, if its head is still there."""
    read = settings.get("architectures")
    return read[0] if origin.native and read else FAMILIES[origin.family].base + SUFFIXES[origin.head]
