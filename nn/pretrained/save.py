"""Saving: a model to a folder that others load, as it came or as one of a family that they know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from minigrad.io.atomic import replace_together
from minigrad.io.json import Settings, write_json
from minigrad.io.reading import FileCopies
from minigrad.io.shards import WEIGHT_FILES, write_shards

from ..models.base import Model
from ..models.config import LanguageModelConfig, TransformerConfig
from ..text.loading import TOKENIZER_FILES
from .families import FAMILIES, HEADS
from .tables import Place, explicit, new_name, places, rules_of, write_table

__all__ = ["save"]


@dataclass
class Origin:
    """Where a model was loaded from, as far as saving it needs to know.

    `settings` are those of its config.json; `places` tells, by the names of the file, which
    parameters its arrays hold, `kept` has those that the model does not use, `files` those beside
    the weights. `generation` holds the settings that `read_generation_config` returns.
    """

    family: str
    settings: dict[str, Any]
    head: str
    places: dict[str, Place]
    kept: dict[str, np.ndarray] = field(default_factory=dict)
    files: FileCopies = field(default_factory=lambda: FileCopies("."))
    generation: Settings | None = None


def save(
    directory: str | Path,
    model: Any,
    text: Any = None,
    *,
    dtype: str | None = None,
    max_shard_size: int | str = "50GB",
) -> None:
    """Write a model into a folder that transformers, and all that read its files, can load.

    A model that `nn.load` gave is saved in the names and with the settings of the folder that it
    came from; one that was trained here as a Llama, Qwen2, GPT-2, GPT-NeoX, Marian, ViT, BERT or
    DistilBERT folder, whichever it fits. `text`, from `nn.text.load`, has its files written beside
    it. `dtype` is that of the weights in the file, such as "bfloat16"; None: that of the model.
    Weights of more than `max_shard_size` bytes (or "200MB", "5GB") are written into several files
    with an index.

    All files are replaced together: after an error or a kill, `nn.load` finds the old model or the
    new one. A kill can leave a directory `.RANDOM.part`, which may be deleted.
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
    origin = model.origin or adopted(model)
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
    """All arrays of the file, by their names."""
    own = {name: p.data for name, p in model.named_parameters()}
    if model.config.positions.kind == "sinusoidal":
        own = {name: _in_halves(name, array, model.config.d_model) for name, array in own.items()}
    return {
        name: place.join([own[o] for o in place.ours]) for name, place in origin.places.items()
    } | origin.kept


def new_origin(name: str, model: Model, head: str, settings: Mapping[str, Any]) -> Origin:
    """That of a model with a head that no folder holds, as one of the family of this name.

    Its weights are placed by the tables, but those of adapters, which are nowhere; `settings` are
    theirs.
    """
    family, config, kept = FAMILIES[name], model.config, dict[str, np.ndarray]()
    settings = {**settings, "architectures": [family.base + family.suffixes[head]]}
    if head in ("classes", "tokens") and len(settings.get("id2label") or {}) != config.num_classes:
        settings["id2label"] = {str(i): f"LABEL_{i}" for i in range(config.num_classes)}
        settings["label2id"] = {f"LABEL_{i}": i for i in range(config.num_classes)}
    table = family.heads.get(head, "") + "\n" + family.table(config)
    rules = rules_of(table, "" if head == "none" else family.prefix)
    for rule in rules:
        if head == "none" and rule.mark == "zeros":
            kept[f"{rule.theirs}.weight"] = np.zeros((config.d_model, config.d_model), config.dtype)
            kept[f"{rule.theirs}.bias"] = np.zeros(config.d_model, config.dtype)
    names = (name for name, _ in model.named_parameters() if ".lora_" not in name)
    return Origin(
        name, settings, head, places((name, *new_name(name, rules)) for name in names), kept
    )


def adopted(model: Model) -> Origin:
    """The settings under which a model is one of its family's, of those that training here can
    give.

    A ValueError lists what the family does not have.
    """
    config: Any = model.config
    head, settings = "", dict[str, Any]()
    if isinstance(config, LanguageModelConfig):
        name = "gpt_neox" if model.config.positions.kind == "rotary" else "gpt2"
        if config.norm == "rms":
            name = "qwen2" if explicit(config)["attention_bias"] == "qkv" else "llama"
        elif name == "gpt_neox":
            settings["rotary_pct"] = config.rotary().rotary_dim / config.size_of_head
    elif isinstance(config, TransformerConfig):
        name, settings = "marian", _of_marian(config)
    else:
        head = next(head for head, kind in reversed(HEADS.items()) if isinstance(model, kind))
        name = "vit" if config.patch_size else "bert" if config.num_types else "distilbert"
    family = FAMILIES[name]
    settings = {
        "model_type": name,
        **write_table(family.settings, config),
        "bos_token_id": config.bos_id,
        **settings,
    }
    expected, found = (
        _essence(family.config(Settings(settings, f"save: {family.base}"))),
        _essence(config),
    )
    if head == "classes":
        expected |= family.classes
        found |= {name: getattr(config, name) for name in family.classes}
    if differ := {
        name: value for name, value in found.items() if expected.get(name, value) != value
    }:
        text = ", ".join(
            f"{name}={value!r} (expected {expected[name]!r})" for name, value in differ.items()
        )
        raise ValueError(
            f"save: not a model that {family.base} can describe: {text}; nn.save_weights keeps any"
        )
    return new_origin(name, model, head, settings)


def _of_marian(config: TransformerConfig) -> dict[str, Any]:
    return {
        "share_encoder_decoder_embeddings": config.tie == "all", "tie_word_embeddings": config.tie in ("all", "target"),
        "scale_embedding": bool(config.embeddings.scale), "forced_eos_token_id": None, "is_encoder_decoder": True,
    }  # fmt: skip


def _essence(config: Any) -> dict[str, Any]:
    """What a configuration says about the results of its model, each thing said in one way."""
    passing = ("dropout", "dtype", "pruned_heads", "num_classes", "pool", "head_activation")
    kinds = [kind for kind in ("rotary", "relative") if kind not in config.positions.kind]
    essence = {
        name: value for name, value in explicit(config).items()
        if name not in passing and not name.endswith("_dropout") and not any(kind in name for kind in kinds)
    }  # fmt: skip
    if config.positions.kind == "sinusoidal":  # in another order: see _in_halves
        essence["positions"] = "sinusoidal_halves"
    return essence | {
        "scale_embedding": round(config.embedding_factor, 9),
        "eos_id": config.end_ids,
    }


def _in_halves(name: str, array: np.ndarray, d_model: int) -> np.ndarray:
    """A parameter of a model with interleaved sines and cosines, for one that has all sines before
    all cosines.

    The d_model numbers of a position are put in another order wherever they appear: as columns of
    what reads them, as rows of what writes them.
    """
    order = np.r_[0:d_model:2, 1:d_model:2]
    writes = any(f".{part}." in name for part in ("out_proj", "linear2")) or ".norm" in name
    reads = any(
        f".{part}." in f".{name}"
        for part in ("tokens", "q_proj", "k_proj", "v_proj", "linear1", "gate")
    )
    if writes:
        return array[order]
    return array[:, order] if array.ndim > 1 and (reads or name == "output.weight") else array
