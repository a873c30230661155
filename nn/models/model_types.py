"""Models as plain data: what a run directory holds to build one again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .base import Model
from .config import EncoderConfig, LanguageModelConfig, ModelConfig, TransformerConfig
from .encoder import EncoderClassifier, EncoderModel, MaskedLanguageModel, TokenClassifier
from .language_model import LanguageModel
from .transformer import Transformer

__all__ = ["model_from_dict", "model_to_dict"]

KINDS: dict[str, tuple[type[Model], type[ModelConfig]]] = {
    "Transformer": (Transformer, TransformerConfig),
    "LanguageModel": (LanguageModel, LanguageModelConfig),
    **{kind.__name__: (kind, EncoderConfig)
       for kind in (EncoderModel, EncoderClassifier, TokenClassifier, MaskedLanguageModel)},
}  # fmt: skip
OLDER = {"sos_id": "bos_id"}
"""Settings of a translator by the names that they had before models had kinds."""


def model_to_dict(model: Model) -> dict[str, Any]:
    """The kind of a model, as "model", and its settings: plain data, for JSON."""
    kinds = [name for name, (kind, _) in KINDS.items() if isinstance(model, kind)]
    if not kinds:
        raise TypeError(
            f"model_to_dict: expected one of {', '.join(KINDS)}, got {type(model).__name__}"
        )
    return {"model": kinds[-1], **model.config.to_dict()}


def model_from_dict(data: Mapping[str, Any], init: bool = False, where: str = "model") -> Any:
    """The model that `model_to_dict` described; its weights are to be loaded, unless `init` draws
    them.

    Settings that are unknown, of another type or out of range are a ValueError that begins with
    `where`.
    """
    settings = dict(data)
    name = settings.pop("model", None)
    if (
        name is None and "source_vocab_size" in settings
    ):  # of an older version, which knew translators only
        name, settings = (
            "Transformer",
            {OLDER.get(key, key): value for key, value in settings.items()},
        )
    if not isinstance(name, str) or name not in KINDS:
        raise ValueError(f"{where}: unknown model {name!r:.60}; expected one of {', '.join(KINDS)}")
    kind, config = KINDS[name]
    return kind(config.from_dict(settings, where), init=init)
