"""Saving: a model to a folder that others load, as it came or as a model of a family that they know."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from minigrad.files.atomic import write_bytes
from minigrad.files.json import Settings, write_json
from minigrad.files.safetensors import write_safetensors

from ..base import Model
from ..config import LanguageModelConfig, TransformerConfig
from .families import FAMILIES
from .folder import INDEX, WHOLE, Origin
from .load import HEADS
from .tables import write_table

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
        own = {name: _in_halves(name, array, model.config.d_model) for name, array in own.items()}
    return {name: place.join([own[o] for o in place.ours]) for name, place in origin.places.items()} | origin.kept


def _write_weights(directory: Path, arrays: Mapping[str, np.ndarray], dtype: str | None, most: int) -> None:
    """The weights in one file, or in several with an index; what an earlier model left there is removed."""
    shards, sizes = list[dict[str, np.ndarray]](), list[int]()
    for name, array in arrays.items():
        width = array.itemsize if dtype is None or array.dtype.kind != "f" else 2 if dtype == "bfloat16" else None
        size = array.size * (width or np.dtype(dtype).itemsize)
        if not shards or sizes[-1] + size > most:  # of one array at least
            shards.append({})
            sizes.append(0)
        shards[-1][name] = array
        sizes[-1] += size
    files = [f"model-{i + 1:05}-of-{len(shards):05}.safetensors" for i in range(len(shards))] if shards[1:] else [WHOLE]
    for file, shard in zip(files, shards):
        write_safetensors(directory / file, shard, {"format": "pt"}, dtype)
    if len(files) > 1:
        places = {name: file for file, shard in zip(files, shards) for name in shard}
        write_json(directory / INDEX, {"metadata": {"total_size": sum(sizes)}, "weight_map": places}, 2)
        files.append(INDEX)
    for old in {directory / WHOLE, directory / INDEX, *directory.glob("model-*-of-*.safetensors")}:
        if old.name not in files:
            old.unlink(missing_ok=True)


def adopted(model: Model) -> Origin:
    """The settings under which a model is one of its family's: Llama, GPT-2, Marian, ViT, BERT or DistilBERT.

    A ValueError lists what the family does not have.
    """
    config: Any = model.config
    head, settings = "", dict[str, Any]()
    if isinstance(config, LanguageModelConfig):
        name = "llama" if config.norm == "rms" else "gpt2"
    elif isinstance(config, TransformerConfig):
        name, settings = "marian", _of_marian(config)
    else:
        head = next(head for head, kind in reversed(HEADS.items()) if isinstance(model, kind))
        name = "vit" if config.patch_size else "bert" if config.num_types else "distilbert"
    family = FAMILIES[name]
    settings = {"model_type": name, **write_table(family.settings, config), "bos_token_id": config.bos_id, **settings}
    expected, found = _essence(family.config(Settings(settings, name))), _essence(config)
    if head == "classes":
        expected |= family.classes
        found |= {name: getattr(config, name) for name in family.classes}
    if differ := [f"{k}={found[k]!r} (expected {expected[k]!r})" for k in found if found[k] != expected[k]]:
        raise ValueError(
            f"save: not a model that {family.base} can describe: {', '.join(differ)}; nn.save_weights keeps any"
        )
    return family.origin(name, model, head, settings)


def _of_marian(config: TransformerConfig) -> dict[str, Any]:
    return {
        "share_encoder_decoder_embeddings": config.tie == "all", "tie_word_embeddings": config.tie in ("all", "target"),
        "scale_embedding": bool(config.scale_embedding), "forced_eos_token_id": None, "is_encoder_decoder": True,
    }  # fmt: skip


def _essence(config: Any) -> dict[str, Any]:
    """What a configuration says about the results of its model, each thing said in one way."""
    passing = ("dropout", "dtype", "pruned_heads", "num_classes", "pool", "head_activation")
    kinds = [kind for kind in ("rotary", "relative") if kind not in config.positions]
    essence = {
        name: value for name, value in config.explicit().items()
        if name not in passing and not name.endswith("_dropout") and not any(kind in name for kind in kinds)
    }  # fmt: skip
    if config.positions == "sinusoidal":  # in another order: see _in_halves
        essence["positions"] = "sinusoidal_halves"
    return essence | {"scale_embedding": round(config.embedding_factor, 9), "eos_id": config.end_ids}


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
