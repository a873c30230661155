"""Saving: a model to a directory that others load."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from minigrad.io.atomic import replace_together
from minigrad.io.json import Settings, write_json
from minigrad.io.safetensors import WEIGHT_FILES, write_shards

from ..models.base import Model
from ..models.config import LanguageModelConfig, TransformerConfig, flat_settings
from ..text.loading import TOKENIZER_FILES
from .families import FAMILIES
from .family import ENCODERS
from .load import Origin, new_origin, read_config

__all__ = ["save"]


def save(
    directory: str | Path,
    model: Any,
    text: Any = None,
    *,
    dtype: str | None = None,
    max_shard_size: int | str = "50GB",
) -> None:
    """Write a model into a directory that transformers, and all that read its files, can load.

    A model that `nn.load` gave is saved with the names and the config.json of its directory. One
    that was trained here is saved as GPT-2, Llama, Marian or BERT, if it has a form of these.

    All files are replaced together: after an error or a kill, `nn.load` finds the old model or the
    new one. A kill can leave a directory `.RANDOM.part`, which may be deleted.

    Parameters
    ----------
    directory : str or Path
        A directory, which is made if it does not exist.
    model : Model
        A model of nn.
    text : optional
        A tokenizer of `nn.text.load`, whose files are written beside the model.
    dtype : str, optional
        Type of the weights in the file, such as "bfloat16". Default: that of the model.
    max_shard_size : int or str
        Weights of more bytes, such as "200MB", are written into several files with an index.
    """
    if not isinstance(model, Model):
        raise TypeError(
            f"save: expected a model of nn, got {type(model).__name__}; nn.save_weights keeps any "
            "module"
        )
    if dtype not in (None, "float16", "bfloat16", "float32", "float64"):
        raise ValueError(
            f"save: dtype: expected float16, bfloat16, float32 or float64, got {dtype!r}"
        )
    if model.config.pruned_heads:
        raise ValueError(
            "save: a model with pruned heads has no form that others read; nn.save_weights keeps it"
        )
    if any(name.endswith(".lora_a") for name, _ in model.named_parameters()):
        raise ValueError(
            "save: the model has adapters; make them part of it by merge_lora, or keep them by "
            "save_adapter"
        )
    origin = model.origin or origin_of_trained(model)
    stored = dtype or model.config.dtype
    names = {"dtype", "torch_dtype"} & set(origin.settings) or {"torch_dtype"}
    settings = {**origin.settings, **dict.fromkeys(names, stored)}
    stale = (*WEIGHT_FILES, *(TOKENIZER_FILES if text is not None else ()))
    with replace_together(directory, "config.json", stale) as part:
        write_shards(part, _arrays(model, origin), dtype, max_shard_size)
        write_json(part / "config.json", settings, 2)
        origin.files.write(part)
        if text is not None:
            text.save(part)


def _arrays(model: Model, origin: Origin) -> dict[str, np.ndarray]:
    """Return all arrays of the file, by their names."""
    own = {name: p.data for name, p in model.named_parameters()}
    arrays = {
        name: stored.join([own[parameter] for parameter in stored.parameters])
        for name, stored in origin.arrays.items()
    }
    return arrays | origin.kept


def origin_of_trained(model: Model) -> Origin:
    """Return the origin of a model that was trained here: as GPT-2, Llama, Marian or BERT.

    A ValueError lists the options that the family does not have.
    """
    config: Any = model.config
    head = ""
    if isinstance(config, LanguageModelConfig):
        name = "llama" if config.norm == "rms" else "gpt2"
    elif isinstance(config, TransformerConfig):
        name = "marian"
    else:
        name = "bert"
        head = next(h for h, kind in reversed(ENCODERS.items()) if isinstance(model, kind))
    family, config = FAMILIES[name], config.effective()
    ends = config.end_ids
    settings = {
        "model_type": name,
        **family.hf_config(config),
        "bos_token_id": config.bos_id,
        **{key: getattr(config, ours) for ours, key in family.tokens.items()},
        "eos_token_id": ends[0] if len(ends) == 1 else list(ends) or None,
    }
    loaded = read_config(Settings(settings, f"save: {family.base}"), family).effective()
    expected, present = flat_settings(loaded.to_dict()), flat_settings(config.to_dict())
    if head == "classes":
        expected |= family.classifier
    else:
        expected |= {key: present[key] for key in family.classifier}
    differing = {
        key: value
        for key, value in present.items()
        if value != expected[key] and key not in _FREE and not key.endswith("dropout")
    }
    if differing:
        text = ", ".join(
            f"{key}={value!r} (expected {expected[key]!r})" for key, value in differing.items()
        )
        raise ValueError(
            f"save: not a model that {family.base} can describe: {text}; nn.save_weights keeps any"
        )
    return new_origin(name, model, head, settings)


_FREE = ("dtype", "pruned_heads", "num_classes")
"""Options that config.json does not have, or has elsewhere."""
