"""Vectors of sentences, by a folder of sentence-transformers (Reimers, Gurevych 2019, arXiv:1908.10084)."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
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
from ..text.tokenize import check_texts
from .config import EncoderConfig, TransformerConfig
from .pretrained.families import FAMILIES
from .pretrained.load import HOW, load
from .pretrained.tables import read_table
from .weights import load_weights

__all__ = ["SentenceEncoder", "sentence_encoder"]

_POOLS = {"cls": "first", "mean": "mean", "lasttoken": "last", "max": "max"}
_OF_TOKENS = """
=transformer_task:feature-extraction =module_output_name:token_embeddings|null =processing_kwargs:null|{}
=query_length:null =document_length:null =query_expansion:null
=modality_config:null|{"text":{"method":"forward","method_output_name":"last_hidden_state"}}
"""
_OF_VECTORS = """
=module_input_name:sentence_embedding|null =module_output_name:sentence_embedding|null =use_residual:false
"""
"""What the settings of modules must be, where they tell."""
_KINDS = ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
_SIMILARITIES = ("cosine", "dot", "euclidean", "manhattan")
_ACTIVATIONS: dict[str, Any] = {"Tanh": mg.tanh, "Identity": lambda x: x, "ReLU": mg.relu}


class SentenceEncoder:
    """Sentences to vectors, alike where the sentences mean alike.

    `pool` makes one vector of those of a sentence's tokens: "mean", "first", "last" or "max". `maps` are linear
    maps that follow, each with a function; with `normalize` the vectors have length 1. Longer sentences are cut off
    at `max_len` tokens (None: as the tokenizer's files tell). `prompts` are texts, by name, that can be put before
    sentences, `default_prompt_name` is that of the one that is (None: none); where not `include_prompt`, its tokens
    would be left out of the pooling, which is refused. `similarity_fn_name` is "cosine", "dot", "euclidean" or
    "manhattan".
    """

    def __init__(
        self, model: Any, text: ModelText, pool: str = "mean", normalize: bool = True, max_len: int | None = None,
        maps: Sequence[tuple[Linear, Any]] = (), *, prompts: Mapping[str, str] | None = None,
        default_prompt_name: str | None = None, include_prompt: bool = True, similarity_fn_name: str = "cosine",
    ) -> None:  # fmt: skip
        if pool not in _POOLS.values():
            raise ValueError(f"pool: expected one of {', '.join(_POOLS.values())}, got {pool!r}")
        if similarity_fn_name not in _SIMILARITIES:
            raise ValueError(
                f"similarity_fn_name: expected one of {', '.join(_SIMILARITIES)}, got {similarity_fn_name!r}"
            )
        self.model, self.text, self.pool, self.normalize, self.maps = model, text, pool, normalize, list(maps)
        self.max_len = min(max_len or text.max_len or model.config.max_len, model.config.max_len)
        self.prompts, self.default_prompt_name = dict(prompts or {}), default_prompt_name
        self.include_prompt, self.similarity_fn_name = include_prompt, similarity_fn_name
        self._prompt(None, None)  # refuses what is wrong

    def encode(
        self, sentences: Any, batch_size: int = 32, *, prompt: str | None = None, prompt_name: str | None = None
    ) -> np.ndarray:
        """The vectors (n, d) of n sentences, or (d,) of one; longer ones are cut off at `max_len` tokens.

        `prompt` is put before each, or that of `prompts` called `prompt_name`; without them the default one, if there
        is one. Batches of sentences of like length run at once, as many as matrix products may use threads.
        """
        if isinstance(sentences, str):
            return self.encode([sentences], prompt=prompt, prompt_name=prompt_name)[0]
        before, sentences = self._prompt(prompt, prompt_name), list(sentences)
        check_texts([before, *sentences])
        checked_count("encode", "batch_size", batch_size)
        rows = self.text.encode([before + s for s in sentences], max_len=self.max_len) if len(sentences) else []
        if [] in rows:
            raise ValueError(f"encode: the tokenizer makes no tokens of {sentences[rows.index([])]!r:.60}")
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
        parts = [order[i : i + batch_size] for i in range(0, len(order), batch_size)]
        found = in_parallel(lambda part: self._vectors([rows[i] for i in part]), parts)
        vectors = np.concatenate(found, dtype=np.float32) if found else np.empty((0, 0), np.float32)
        return vectors[np.argsort(order)]

    def _prompt(self, prompt: str | None, name: str | None) -> str:
        """What is put before sentences."""
        if prompt is not None and name is not None:
            raise ValueError("encode: expected a prompt or a prompt_name, got both")
        name = self.default_prompt_name if name is None else name
        if prompt is None and name is not None and name not in self.prompts:
            raise ValueError(f"prompt_name: expected one of {', '.join(self.prompts) or 'none'}, got {name!r}")
        prompt = prompt if prompt is not None else "" if name is None else self.prompts[name]
        if prompt and not self.include_prompt:
            raise ValueError(f"encode: a pooling without the prompt's tokens is not supported, got {prompt!r:.60}")
        return prompt

    def similarity(self, a: Any, b: Any) -> np.ndarray:
        """How alike each of the vectors a (n, d) is to each of b (m, d), (n, m); larger is more alike.

        By `similarity_fn_name`: the cosine, the product, or the distance below zero.
        """
        a, b = np.atleast_2d(a), np.atleast_2d(b)
        if self.similarity_fn_name in ("euclidean", "manhattan"):
            order = 2 if self.similarity_fn_name == "euclidean" else 1
            return -np.stack([np.linalg.norm(a - row, order, -1) for row in b], -1)
        if self.similarity_fn_name == "cosine":
            a, b = _of_length_one(a), _of_length_one(b)
        return np.asarray(a @ b.T)

    def _vectors(self, rows: list[list[int]]) -> np.ndarray:
        ids, real = padded(rows, self.text.pad_id or 0), padded([[1] * len(row) for row in rows], 0) > 0  # (n, L)
        with no_grad(), evaluating():
            x = self._pooled(self.model.hidden(ids, real).data, real)  # (n, d)
            for linear, function in self.maps:
                x = function(linear(x)).data
        return _of_length_one(x) if self.normalize else x

    def _pooled(self, x: np.ndarray, real: np.ndarray) -> np.ndarray:
        if self.pool == "first":
            return x[:, 0]
        if self.pool == "last":
            return x[np.arange(len(x)), real.sum(-1) - 1]
        if self.pool == "max":
            return np.where(real[..., None], x, -np.inf).max(1)
        weights = (real / real.sum(-1, keepdims=True)).astype(x.dtype)
        return (weights[:, None] @ x)[:, 0]


def _of_length_one(x: np.ndarray) -> np.ndarray:
    return np.asarray(x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-12))


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
    options = _use(directory)
    if os.path.lexists(path):
        options |= _modules(path, model.config.d_model)
    elif (directory / "1_Pooling").exists():
        raise FileNotFoundError(f"{path}: no such file, though there is 1_Pooling, which it would tell of")
    text = load_text(directory)
    return SentenceEncoder(model, text, max_len=_longest(directory, text), **options)


def _use(directory: Path) -> dict[str, Any]:
    """What is put before sentences, and how their vectors are compared."""
    settings = read_if_any(directory / "config_sentence_transformers.json")
    read_table(EncoderConfig, "=model_type:SentenceTransformer", settings)
    prompts = settings.object("prompts", Settings({}, settings.where))
    return {
        "prompts": {name: prompts.text(name, "") for name in prompts},
        "default_prompt_name": settings.text("default_prompt_name", None, [*prompts]),
        "similarity_fn_name": settings.text("similarity_fn_name", "cosine", _SIMILARITIES),
    }


def _modules(path: Path, width: int) -> dict[str, Any]:
    """What follows vectors of this width: how they become one, linear maps, and whether the length is made 1."""
    modules = [Settings(data, str(path)) for data in read_list(path, dict)]
    kinds = [module.text("type").rpartition(".")[2] for module in modules]
    if not re.fullmatch("Transformer Pooling( Dense)*( Normalize)?", " ".join(kinds)):
        order = "Transformer, Pooling, Dense (any number) and Normalize (or not), in this order"
        raise ValueError(f"{path}: expected {order}, got {', '.join(kinds)}")
    if modules[0].text("path", ""):
        modules[0].fail("path", "an empty one: the model in the folder itself")
    folders = [path.parent / module.text("path", "") for module in modules]
    pooling, maps = _pool(read_json(folders[1] / "config.json"), width), list[tuple[Linear, Any]]()
    for folder in folders[2 : 2 + kinds.count("Dense")]:
        maps.append(_dense(folder, width))
        width = maps[-1][0].out_features
    if kinds[-1] == "Normalize":
        read_table(EncoderConfig, _OF_VECTORS, read_if_any(folders[-1] / "config.json"))
    return {**pooling, "maps": maps, "normalize": kinds[-1] == "Normalize"}


def _longest(directory: Path, text: ModelText) -> int | None:
    """How many tokens the model is given, if the folder tells."""
    paths = [directory / f"sentence_{kind}_config.json" for kind in _KINDS]
    settings = read_if_any(next(filter(os.path.lexists, paths), paths[0]))
    read_table(EncoderConfig, _OF_TOKENS, settings)
    if settings.flag("do_lower_case", False):
        normalizer = text.tokenizer.normalizer
        if normalizer is None or "A" in normalizer.normalize_str("A"):
            settings.fail("do_lower_case", "false, since the tokenizer tells capital letters apart")
    return settings.integer("max_seq_length", None)


def _pool(settings: Settings, width: int) -> dict[str, Any]:
    """How vectors of this width become one."""
    chosen = settings.get("pooling_mode")
    if chosen is None:  # as files had it before: a flag for each
        flags = {name: settings.flag(name) for name in settings if name.startswith("pooling_mode_")}
        names = [name.removeprefix("pooling_mode_") for name in flags if flags[name]]
        chosen = [name.removesuffix("_token").removesuffix("_tokens") for name in names]
    chosen = chosen if isinstance(chosen, list) else [chosen]
    if len(chosen) != 1 or chosen[0] not in list(_POOLS):
        raise ValueError(f"{settings.where}: pooling_mode: expected one of {', '.join(_POOLS)}, got {chosen!r:.60}")
    for name in ("embedding_dimension", "word_embedding_dimension"):
        if settings.integer(name, width) != width:
            settings.fail(name, f"{width}, the width of the model")
    return {"pool": _POOLS[chosen[0]], "include_prompt": settings.flag("include_prompt", True)}


def _dense(folder: Path, width: int) -> tuple[Linear, Any]:
    """A linear map from vectors of this width, and the function that follows."""
    settings = read_json(folder / "config.json")
    read_table(EncoderConfig, _OF_VECTORS, settings)
    function = settings.text("activation_function", "torch.nn.modules.activation.Tanh").rpartition(".")[2]
    if function not in _ACTIVATIONS:
        settings.fail("activation_function", f"one of {', '.join(_ACTIVATIONS)}")
    if settings.integer("in_features", width) != width:
        settings.fail("in_features", f"{width}, the width of the vectors before it")
    with init.skipped():
        linear = Linear(width, settings.integer("out_features", high=1 << 16), settings.flag("bias", True))
    load_weights(folder / "model.safetensors", ModuleDict({"linear": linear}))
    return linear, _ACTIVATIONS[function]
