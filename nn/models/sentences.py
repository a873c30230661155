"""Vectors of sentences, by a folder of sentence-transformers (Reimers, Gurevych 2019, arXiv:1908.10084)."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import minigrad as mg
from minigrad.core.modes import no_grad
from minigrad.files.json import Settings, read_if_any, read_json, read_list
from minigrad.optim.settings import checked_count
from minigrad.runtime import in_parallel

from ..layers import init
from ..layers.linear import Linear
from ..layers.module import ModuleDict, evaluating
from ..text.batches import padded
from ..text.loading import load as load_text
from ..text.pretrained import ModelText
from .config import EncoderConfig, TransformerConfig
from .pretrained.families import FAMILIES
from .pretrained.load import HOW, load
from .weights import load_weights

__all__ = ["SentenceEncoder", "sentence_encoder"]

_POOLS = {
    "pooling_mode_cls_token": "first", "pooling_mode_mean_tokens": "mean", "pooling_mode_lasttoken": "last",
    "pooling_mode_max_tokens": "max",
}  # fmt: skip
_ACTIVATIONS: dict[str, Any] = {"Tanh": mg.tanh, "Identity": lambda x: x, "ReLU": mg.relu}


class SentenceEncoder:
    """Sentences to vectors, alike where the sentences mean alike.

    `pool` makes one vector of those of a sentence's tokens: "mean", "first", "last" or "max". `maps` are linear
    maps that follow, each with a function; with `normalize` the vectors have length 1.
    """

    def __init__(
        self, model: Any, text: ModelText, pool: str = "mean", normalize: bool = True, max_len: int | None = None,
        maps: Sequence[tuple[Linear, Any]] = (),
    ) -> None:  # fmt: skip
        if pool not in _POOLS.values():
            raise ValueError(f"pool: expected one of {', '.join(_POOLS.values())}, got {pool!r}")
        self.model, self.text, self.pool, self.normalize, self.maps = model, text, pool, normalize, list(maps)
        self.max_len = min(n for n in (max_len, text.max_len, model.config.max_len) if n)

    def encode(self, sentences: Any, batch_size: int = 32) -> np.ndarray:
        """The vectors (n, d) of n sentences, or (d,) of one; longer ones are cut off at `max_len` tokens.

        Batches of sentences of like length run at once, as many as matrix products may use threads.
        """
        if isinstance(sentences, str):
            return self.encode([sentences])[0]
        sentences = list(sentences)
        checked_count("encode", "batch_size", batch_size)
        rows = self.text.encode(sentences, max_len=self.max_len) if len(sentences) else []
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
        parts = [order[i : i + batch_size] for i in range(0, len(order), batch_size)]
        found = in_parallel(lambda part: self._vectors([rows[i] for i in part]), parts)
        vectors = np.concatenate(found, dtype=np.float32) if found else np.empty((0, 0), np.float32)
        return vectors[np.argsort(order)]

    def _vectors(self, rows: list[list[int]]) -> np.ndarray:
        ids, real = padded(rows, self.text.pad_id or 0), padded([[1] * len(row) for row in rows], 0) > 0  # (n, L)
        with no_grad(), evaluating():
            x = self._pooled(self.model.hidden(ids, real).data, real)  # (n, d)
            for linear, function in self.maps:
                x = function(linear(x)).data
        return x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-12) if self.normalize else x

    def _pooled(self, x: np.ndarray, real: np.ndarray) -> np.ndarray:
        if self.pool == "first":
            return x[:, 0]
        if self.pool == "last":
            return x[np.arange(len(x)), real.sum(-1) - 1]
        if self.pool == "max":
            return np.where(real[..., None], x, -np.inf).max(1)
        weights = (real / real.sum(-1, keepdims=True)).astype(x.dtype)
        return (weights[:, None] @ x)[:, 0]


def sentence_encoder(directory: str | Path) -> SentenceEncoder:
    """The sentence encoder in a folder: with modules.json as sentence-transformers writes it, or any encoder's.

    Without modules.json the vectors are means over the tokens, of length 1. Needs the `tokenizers` package.
    """
    directory = Path(directory)
    settings = read_json(directory / "config.json", HOW)
    kind = getattr(FAMILIES.get(settings.text("model_type", "")), "kind", None)
    if kind is TransformerConfig:
        settings.fail("model_type", "an encoder or a language model")
    path, model = directory / "modules.json", load(directory, "none" if kind is EncoderConfig else "")
    if os.path.lexists(path):
        pool, maps, normalize = _modules(path, model.config.d_model)
    elif (directory / "1_Pooling").exists():
        raise FileNotFoundError(f"{path}: no such file, though there is 1_Pooling, which it would tell of")
    else:
        pool, maps, normalize = "mean", [], True
    longest = read_if_any(directory / "sentence_bert_config.json").integer("max_seq_length", None)
    return SentenceEncoder(model, load_text(directory), pool, normalize, longest, maps)


def _modules(path: Path, width: int) -> tuple[str, list[tuple[Linear, Any]], bool]:
    """What follows vectors of this width: how they become one, linear maps, and whether the length is made 1."""
    modules = [Settings(data, str(path)) for data in read_list(path, dict)]
    kinds = [module.text("type").rpartition(".")[2] for module in modules]
    if not re.fullmatch("Transformer Pooling( Dense)*( Normalize)?", " ".join(kinds)):
        order = "Transformer, Pooling, Dense (any number) and Normalize (or not), in this order"
        raise ValueError(f"{path}: expected {order}, got {', '.join(kinds)}")
    folders = [path.parent / module.text("path", "") for module in modules]
    pool, maps = _pool(read_json(folders[1] / "config.json"), width), list[tuple[Linear, Any]]()
    for folder in folders[2 : 2 + kinds.count("Dense")]:
        maps.append(_dense(folder, width))
        width = maps[-1][0].out_features
    return pool, maps, "Normalize" in kinds


def _pool(settings: Settings, width: int) -> str:
    """How vectors of this width become one."""
    chosen = [n for n in settings if n.startswith("pooling_mode_") and settings[n] is not False]
    if len(chosen) != 1 or chosen[0] not in _POOLS or not settings.flag(chosen[0]):
        raise ValueError(f"{settings.where}: expected one of {', '.join(_POOLS)}, got {chosen}")
    if settings.integer("word_embedding_dimension", width) != width:
        settings.fail("word_embedding_dimension", f"{width}, the width of the model")
    return _POOLS[chosen[0]]


def _dense(folder: Path, width: int) -> tuple[Linear, Any]:
    """A linear map from vectors of this width, and the function that follows."""
    settings = read_json(folder / "config.json")
    function = settings.text("activation_function", "torch.nn.modules.activation.Tanh").rpartition(".")[2]
    if function not in _ACTIVATIONS:
        settings.fail("activation_function", f"one of {', '.join(_ACTIVATIONS)}")
    if settings.integer("in_features", width) != width:
        settings.fail("in_features", f"{width}, the width of the vectors before it")
    with init.skipped():
        linear = Linear(width, settings.integer("out_features", high=1 << 16), settings.flag("bias", True))
    load_weights(folder / "model.safetensors", ModuleDict({"linear": linear}))
    return linear, _ACTIVATIONS[function]
