"""Saving: a model to a folder that others load."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from minigrad.files.atomic import write_bytes
from minigrad.files.json import write_json
from minigrad.files.safetensors import write_safetensors

from ..base import Model
from .adopt import adopted, in_halves
from .folder import INDEX, WHOLE, Origin

__all__ = ["save"]


def save(
    directory: str | Path, model: Any, text: Any = None, *, dtype: str | None = None, max_shard_size: int | str = "50GB"
) -> None:
    """Write a model into a folder that transformers, and all that read its files, can load.

    A model that `nn.load` gave is saved in the names and with the settings of the folder that it came from;
    one that was trained here as a Marian, GPT-2, Llama or BERT folder, whichever it fits. `text`, from
    `nn.text.load`, has its files written beside it. `dtype` is that of the weights in the file, such as
    "bfloat16"; None: that of the model. Weights of more than `max_shard_size` bytes (or "200MB", "5GB") are
    written into several files with an index.
    """
    directory = Path(directory)
    if model.config.pruned_heads:
        raise ValueError("save: a model with pruned heads has no form that others read; nn.save_weights keeps it")
    if any(name.endswith(".lora_a") for name, _ in model.named_parameters()):
        raise ValueError(
            "save: the model has adapters; make them part of it by merge_lora, or keep them by save_adapter"
        )
    origin = model.origin or adopted(model)
    _write_weights(directory, _arrays(model, origin), dtype, _bytes(max_shard_size))
    stored = dtype or model.config.dtype
    names = {"dtype", "torch_dtype"} & set(origin.settings) or {"torch_dtype"}
    write_json(directory / "config.json", {**origin.settings, **dict.fromkeys(names, stored)}, 2)
    for name, data in origin.files.items():
        write_bytes(directory / name, data)
    if text is not None:
        text.save(directory)


def _bytes(size: int | str) -> int:
    """A number of bytes, also as "200MB" or "5GB"."""
    units = {"KB": 10**3, "MB": 10**6, "GB": 10**9}
    if isinstance(size, str) and size[:-2].isdecimal() and size[-2:] in units:
        size = int(size[:-2]) * units[size[-2:]]
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise ValueError(f'save: expected max_shard_size such as 5_000_000_000 or "5GB", got {size!r}')
    return size


def _arrays(model: Model, origin: Origin) -> dict[str, np.ndarray]:
    """All arrays of the file, by their names."""
    own = {name: p.data for name, p in model.named_parameters()}
    if model.config.positions == "sinusoidal":
        own = {name: in_halves(name, array, model.config.d_model) for name, array in own.items()}
    return {name: place.join([own[o] for o in place.ours]) for name, place in origin.places.items()} | origin.kept


def _write_weights(directory: Path, arrays: Mapping[str, np.ndarray], dtype: str | None, most: int) -> None:
    """The weights in one file, or in several with an index; what an earlier model left there is removed."""
    shards = list(_shards(arrays, dtype, most))
    count = len(shards)
    files = [WHOLE] if count == 1 else [f"model-{i + 1:05}-of-{count:05}.safetensors" for i in range(count)]
    for file, shard in zip(files, shards):
        write_safetensors(directory / file, shard, {"format": "pt"}, dtype)
    if count > 1:
        places = {name: file for file, shard in zip(files, shards) for name in shard}
        size = sum(_size(array, dtype) for array in arrays.values())
        write_json(directory / INDEX, {"metadata": {"total_size": size}, "weight_map": places}, 2)
    for old in {directory / WHOLE, directory / INDEX, *directory.glob("model-*-of-*.safetensors")}:
        if old.name not in files and not (count > 1 and old.name == INDEX):
            old.unlink(missing_ok=True)


def _size(array: np.ndarray, dtype: str | None) -> int:
    """The bytes of an array in the file."""
    if dtype is None or array.dtype.kind != "f":
        return array.nbytes
    return array.size * (2 if dtype == "bfloat16" else np.dtype(dtype).itemsize)


def _shards(arrays: Mapping[str, np.ndarray], dtype: str | None, most: int) -> Iterator[dict[str, np.ndarray]]:
    """The arrays in parts of at most so many bytes, but one array at least."""
    shard: dict[str, np.ndarray] = {}
    held = 0
    for name, array in arrays.items():
        if shard and held + _size(array, dtype) > most:
            yield shard
            shard, held = {}, 0
        shard[name] = array
        held += _size(array, dtype)
    yield shard
