"""Where the arrays of a model are in a folder that others read: as it came, or as one of a family that they know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from minigrad.files.json import Settings

from ..base import Model
from ..config import LanguageModelConfig, TransformerConfig
from .families import FAMILIES, HEADS
from .tables import Place, new_name, places, rules_of, write_table

__all__ = ["Origin", "adopted", "new_origin"]


@dataclass
class Origin:
    """Where a model was loaded from, as far as saving it needs to know.

    `settings` are those of its config.json; `places` tells, by the names of the file, which parameters its arrays
    hold, `kept` has those that the model does not use, `files` those beside the weights. `generation` are
    options for `generate`.
    """

    family: str
    settings: dict[str, Any]
    head: str
    places: dict[str, Place]
    kept: dict[str, np.ndarray] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    generation: dict[str, Any] = field(default_factory=dict)


def new_origin(name: str, model: Model, head: str, settings: Mapping[str, Any]) -> Origin:
    """That of a model with a head that no folder holds, as one of the family of this name.

    Its weights are placed by the tables, but those of adapters, which are nowhere; `settings` are theirs.
    """
    family, config, kept = FAMILIES[name], model.config, dict[str, np.ndarray]()
    settings = {**settings, "architectures": [family.base + family.suffixes[head]]}
    if head in ("classes", "tokens") and len(settings.get("id2label") or {}) != config.num_classes:
        settings["id2label"] = {str(i): f"LABEL_{i}" for i in range(config.num_classes)}
        settings["label2id"] = {f"LABEL_{i}": i for i in range(config.num_classes)}
    table = family.heads.get(head, "") + "\n" + family.table(config)
    rules = rules_of(table, family.prefixes[-1 if head == "none" else 0])
    for rule in rules:
        if head == "none" and rule.mark == "zeros":
            kept[f"{rule.theirs}.weight"] = np.zeros((config.d_model, config.d_model), config.dtype)
            kept[f"{rule.theirs}.bias"] = np.zeros(config.d_model, config.dtype)
    names = (name for name, _ in model.named_parameters() if ".lora_" not in name)
    return Origin(name, settings, head, places((name, *new_name(name, rules)) for name in names), kept)


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
    return new_origin(name, model, head, settings)


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
