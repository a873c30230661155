"""Models that were made here, as a model of a family that others know: its settings and its arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from minigrad.files.json import Settings

from ..base import Model
from ..config import LanguageModelConfig, TransformerConfig
from .families import FAMILIES
from .folder import Origin
from .load import HEADS
from .settings import write_table

__all__ = ["adopted", "in_halves"]


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
    kinds = [kind for kind in ("rotary", "relative") if kind != config.positions]
    essence = {
        name: value for name, value in config.explicit().items()
        if name not in passing and not name.endswith("_dropout") and not any(kind in name for kind in kinds)
    }  # fmt: skip
    if config.positions == "sinusoidal":  # in another order: see in_halves
        essence["positions"] = "sinusoidal_halves"
    return essence | {"scale_embedding": round(config.embedding_factor, 9), "eos_id": config.end_ids}


def in_halves(name: str, array: np.ndarray, d_model: int) -> np.ndarray:
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
