"""Saving: a model to a folder that others load, as it came or as a model of a family that they know."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from minigrad.files.atomic import write_bytes
from minigrad.files.json import write_json
from minigrad.files.shards import write_shards

from ..base import Model
from .origin import Origin, adopted

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
    if not isinstance(model, Model):
        raise TypeError(f"save: expected a model of nn, got {type(model).__name__}; nn.save_weights keeps any module")
    if dtype not in (None, "float16", "bfloat16", "float32", "float64"):
        raise ValueError(f"save: dtype: expected float16, bfloat16, float32 or float64, got {dtype!r}")
    if model.config.pruned_heads:
        raise ValueError("save: a model with pruned heads has no form that others read; nn.save_weights keeps it")
    if any(name.endswith(".lora_a") for name, _ in model.named_parameters()):
        raise ValueError(
            "save: the model has adapters; make them part of it by merge_lora, or keep them by save_adapter"
        )
    origin = model.origin or adopted(model)
    write_shards(directory, _arrays(model, origin), dtype, max_shard_size)
    stored = dtype or model.config.dtype
    names = {"dtype", "torch_dtype"} & set(origin.settings) or {"torch_dtype"}
    write_json(directory / "config.json", {**origin.settings, **dict.fromkeys(names, stored)}, 2)
    for name, data in origin.files.items():
        write_bytes(directory / name, data)
    if text is not None:
        text.save(directory)


def _arrays(model: Model, origin: Origin) -> dict[str, np.ndarray]:
    """All arrays of the file, by their names."""
    own = {name: p.data for name, p in model.named_parameters()}
    if model.config.positions == "sinusoidal":
        own = {name: _in_halves(name, array, model.config.d_model) for name, array in own.items()}
    return {name: place.join([own[o] for o in place.ours]) for name, place in origin.places.items()} | origin.kept


def _in_halves(name: str, array: np.ndarray, d_model: int) -> np.ndarray:
    """A parameter of a model with interleaved sines and cosines, for one that has all sines before all cosines.

    The d_model numbers of a position are put in another order wherever they appear: as columns of what reads
    them, as rows of what writes them.
    """
    order = np.r_[0:d_model:2, 1:d_model:2]
    writes = any(f".{part}." in name for part in ("out_proj", "linear2")) or ".norm" in name
    reads = any(f".{part}." in f".{name}" for part in ("tokens", "q_proj", "k_proj", "v_proj", "linear1", "gate"))
    if writes:
        return array[order]
    return array[:, order] if array.ndim > 1 and (reads or name == "output.weight") else array
