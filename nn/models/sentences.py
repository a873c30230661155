"""Vectors of sentences, by a folder of sentence-transformers (Reimers, Gurevych 2019, arXiv:1908.10084)."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from pathlib import Path
from typing import Any

import numpy as np

from minigrad.core.modes import no_grad
from minigrad.files.json import Settings, read_json, read_list
from minigrad.files.safetensors import SafetensorsFile

from ..layers.module import evaluating
from ..text.loading import load as load_text
from ..text.pretrained import ModelText
from .config import EncoderConfig
from .pretrained.families import FAMILIES
from .pretrained.folder import HOW
from .pretrained.load import load

__all__ = ["SentenceEncoder", "sentence_encoder"]

_POOLS = {
    "pooling_mode_cls_token": "first", "pooling_mode_mean_tokens": "mean", "pooling_mode_lasttoken": "last",
    "pooling_mode_max_tokens": "max",
}  # fmt: skip
_ACTIVATIONS: dict[str, Any] = {"Tanh": np.tanh, "Identity": lambda x: x, "ReLU": lambda x: np.maximum(x, 0)}


class SentenceEncoder:
    """Sentences to vectors, alike where the sentences mean alike.

    `pool` makes one vector of those of a sentence's tokens: "mean", "first", "last" or "max". `maps` are
    (weight, bias, function) that follow; with `normalize` the vectors have length 1.
    """

    def __init__(
        self, model: Any, text: ModelText, pool: str = "mean", normalize: bool = True, max_len: int | None = None,
        maps: Sequence[tuple[np.ndarray, Any, Any]] = (),
    ) -> None:  # fmt: skip
        if pool not in _POOLS.values():
            raise ValueError(f"pool: expected one of {', '.join(_POOLS.values())}, got {pool!r}")
        self.model, self.text, self.pool, self.normalize, self.maps = model, text, pool, normalize, list(maps)
        self.max_len = min(n for n in (max_len, text.max_len, model.config.max_len) if n)

    def encode(self, sentences: Any, batch_size: int = 32, threads: int = 2) -> np.ndarray:
        """The vectors (n, d) of n sentences, or (d,) of one; longer ones are cut off at `max_len` tokens.

        Batches of sentences of like length run in `threads` at once.
        """
        if isinstance(sentences, str):
            return self.encode([sentences])[0]
        rows = self.text.encode(sentences, max_len=self.max_len) if len(sentences) else []
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
        parts = [order[i : i + batch_size] for i in range(0, len(order), batch_size)]
        with ThreadPoolExecutor(max(1, threads)) as pool:
            contexts = [copy_context() for _ in parts]
            found = list(pool.map(lambda c, part: c.run(self._vectors, [rows[i] for i in part]), contexts, parts))
        result = np.empty((len(rows), found[0].shape[1] if found else 0), np.float32)
        for part, vectors in zip(parts, found):
            result[part] = vectors
        return result

    def _vectors(self, rows: list[list[int]]) -> np.ndarray:
        width = max(map(len, rows))
        real = np.arange(width) < np.array([len(row) for row in rows])[:, None]  # (n, L)
        ids = np.full(real.shape, self.text.pad_id or 0)
        ids[real] = np.concatenate(rows)
        with no_grad(), evaluating():
            x = self.model.hidden(ids, real).data  # (n, L, d)
        x = self._pooled(x, real)
        for weight, bias, function in self.maps:
            x = function(x @ weight.T + bias)
        if self.normalize:
            x = x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-12)
        return np.asarray(x)

    def _pooled(self, x: np.ndarray, real: np.ndarray) -> np.ndarray:
        if self.pool == "first":
            return x[:, 0]
        if self.pool == "last":
            return x[np.arange(len(x)), real.sum(-1) - 1]
        if self.pool == "max":
            return np.where(real[..., None], x, -np.inf).max(1)
        share = (real / real.sum(-1, keepdims=True)).astype(x.dtype)
        return (share[:, None] @ x)[:, 0]


def sentence_encoder(directory: str | Path) -> SentenceEncoder:
    """The sentence encoder in a folder: with modules.json as sentence-transformers writes it, or any encoder's.

    Without modules.json the vectors are means over the tokens, of length 1. Needs the `tokenizers` package.
    """
    directory = Path(directory)
    options: dict[str, Any] = {"pool": "mean", "normalize": True, "maps": []}
    limit = directory / "sentence_bert_config.json"
    if limit.is_file():
        options["max_len"] = read_json(limit).integer("max_seq_length", None)
    path = directory / "modules.json"
    if path.is_file():
        options["normalize"] = False
        for module in read_list(path, dict):
            _add(options, Settings(module, str(path)), directory)
    return SentenceEncoder(load(directory, **_bare(directory)), load_text(directory), **options)


def _bare(directory: Path) -> dict[str, Any]:
    """An encoder is loaded without a head; a language model has no other."""
    kind = read_json(directory / "config.json", HOW).text("model_type", "")
    return {"head": "none"} if kind in FAMILIES and FAMILIES[kind].kind is EncoderConfig else {}


def _add(options: dict[str, Any], module: Settings, directory: Path) -> None:
    """What one of the modules adds."""
    kind = module.text("type").rpartition(".")[2]
    folder = directory / module.text("path", "")
    if kind == "Pooling":
        settings = read_json(folder / "config.json")
        chosen = [pool for name, pool in _POOLS.items() if settings.flag(name, False)]
        others = [n for n in settings if n.startswith("pooling_mode_") and n not in _POOLS and settings[n] is True]
        if len(chosen) != 1 or others:
            raise ValueError(f"{settings.where}: expected one of {', '.join(_POOLS)}, got {chosen + others}")
        options["pool"] = chosen[0]
    elif kind == "Dense":
        settings, file = read_json(folder / "config.json"), SafetensorsFile(folder / "model.safetensors")
        function = settings.text("activation_function", "torch.nn.modules.activation.Tanh").rpartition(".")[2]
        if function not in _ACTIVATIONS:
            settings.fail("activation_function", f"one of {', '.join(_ACTIVATIONS)}")
        bias = file.read("linear.bias", np.float32) if "linear.bias" in file else 0
        options["maps"].append((file.read("linear.weight", np.float32), bias, _ACTIVATIONS[function]))
    elif kind == "Normalize":
        options["normalize"] = True
    elif kind != "Transformer":
        module.fail("type", "Transformer, Pooling, Dense or Normalize (others are not supported)")
