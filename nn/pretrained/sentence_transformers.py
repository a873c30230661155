"""Folders of sentence-transformers (Reimers, Gurevych 2019): modules.json, and what it names."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import minigrad as mg
from minigrad.io.atomic import read_together
from minigrad.io.json import Settings, read_if_any, read_json, read_list
from minigrad.io.reading import printable

from ..layers import init
from ..layers.linear import Identity, Linear
from ..layers.module import ModuleDict
from ..models.transformer import Transformer
from ..models.weights import load_weights
from ..text.huggingface import ModelText
from ..text.loading import load as load_text
from .families import FAMILIES
from .family import expect_values
from .load import HOW, load
from .sentence_encoder import SIMILARITIES, SentenceEncoder

__all__ = ["sentence_encoder"]

_KINDS = ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
_POOLS = {"cls": "first", "mean": "mean", "lasttoken": "last", "max": "max"}  # ours by their names
_ACTIVATIONS: dict[str, Any] = {"Tanh": mg.tanh, "Identity": Identity(), "ReLU": mg.relu}
_TRANSFORMER: dict[str, tuple[Any, ...]] = {
    "transformer_task": ("feature-extraction",),
    "module_output_name": ("token_embeddings", None),
    "modality_config": (
        None,
        {"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
    ),
    "processing_kwargs": (None, {}),
    "query_length": (None,),
    "document_length": (None,),
    "query_expansion": (None,),
}
_AFTER_POOLING = {
    "module_input_name": ("sentence_embedding", None),
    "module_output_name": ("sentence_embedding", None),
    "use_residual": (False,),
}
"""Supported values of the settings of modules; the first is the default."""


def sentence_encoder(directory: str | Path) -> SentenceEncoder:
    """The sentence encoder in a folder: with modules.json as sentence-transformers writes it, or
    any encoder's.

    Without modules.json the vectors are means over the tokens, of length 1. Needs the `tokenizers`
    package.
    """
    with read_together(directory, "config.json") as source:
        return _sentence_encoder(Path(directory), source)


def _sentence_encoder(directory: Path, source: Path) -> SentenceEncoder:
    settings = read_json(source / "config.json", HOW)
    family = FAMILIES.get(settings.text("model_type", ""))
    models = {} if family is None else family.models
    if Transformer in models.values():
        settings.fail("model_type", "an encoder or a language model")
    path, model = (
        directory / "modules.json",
        load(directory, "none" if "none" in models else ""),
    )
    options = _use(directory)
    if os.path.lexists(path):
        options |= _modules(path, model.config.d_model)
    elif (directory / "1_Pooling").exists():
        raise FileNotFoundError(
            f"{path}: no such file, though there is 1_Pooling, which it would tell of"
        )
    text = load_text(directory)
    return SentenceEncoder(model, text, max_len=_transformer(directory, text), **options)


def _use(directory: Path) -> dict[str, Any]:
    """What is put before sentences, and how their vectors are compared."""
    settings = read_if_any(directory / "config_sentence_transformers.json")
    expect_values(settings, {"model_type": ("SentenceTransformer",)})
    prompts = settings.object("prompts", Settings({}, settings.where))
    return {
        "prompts": {name: prompts.text(name, "") for name in prompts},
        "default_prompt_name": settings.text("default_prompt_name", None, [*prompts]),
        "similarity_fn_name": settings.text("similarity_fn_name", "cosine", SIMILARITIES),
    }


def _modules(path: Path, width: int) -> dict[str, Any]:
    """What follows vectors of this width: how they become one, linear maps, and whether the length
    is made 1.
    """
    modules = [Settings(data, str(path)) for data in read_list(path, dict)]
    kinds = [module.text("type").rpartition(".")[2] for module in modules]
    if not re.fullmatch("Transformer Pooling( Dense)*( Normalize)?", " ".join(kinds)):
        order = "Transformer, Pooling, Dense (any number) and Normalize (or not), in this order"
        raise ValueError(f"{path}: expected {order}, got {printable(', '.join(kinds), 200)}")
    if modules[0].text("path", ""):
        modules[0].fail("path", "an empty one: the model in the folder itself")
    for module in modules:
        if not re.fullmatch(r"[\w. /-]{0,200}", name := module.text("path", "")) or ".." in name:
            module.fail("path", "a directory in this one")
    folders = [path.parent / module.text("path", "") for module in modules]
    pooling, maps = (
        _pooling(read_json(folders[1] / "config.json"), width),
        list[tuple[Linear, Any]](),
    )
    for folder in folders[2 : 2 + kinds.count("Dense")]:
        maps.append(_dense(folder, width))
        width = maps[-1][0].out_features
    if kinds[-1] == "Normalize":
        expect_values(read_if_any(folders[-1] / "config.json"), _AFTER_POOLING)
    return {**pooling, "maps": maps, "normalize": kinds[-1] == "Normalize"}


def _transformer(directory: Path, text: ModelText) -> int | None:
    """What is told of the first module beside its model: how many tokens it is given at most, if
    anything.
    """
    paths = [directory / f"sentence_{kind}_config.json" for kind in _KINDS]
    settings = read_if_any(next(filter(os.path.lexists, paths), paths[0]))
    expect_values(settings, _TRANSFORMER)
    if settings.flag("do_lower_case", False):
        normalizer = text.tokenizer.normalizer
        if normalizer is None or "A" in normalizer.normalize_str("A"):
            settings.fail("do_lower_case", "false, since the tokenizer tells capital letters apart")
    return settings.integer("max_seq_length", None)


def _pooling(settings: Settings, width: int) -> dict[str, Any]:
    """How vectors of this width become one."""
    chosen = settings.get("pooling_mode")
    if chosen is None:  # as files had it before: a flag for each
        flags = {name: settings.flag(name) for name in settings if name.startswith("pooling_mode_")}
        names = [name.removeprefix("pooling_mode_") for name in flags if flags[name]]
        chosen = [name.removesuffix("_token").removesuffix("_tokens") for name in names]
    chosen = chosen if isinstance(chosen, list) else [chosen]
    if len(chosen) != 1 or chosen[0] not in list(_POOLS):
        raise ValueError(
            f"{settings.where}: pooling_mode: expected one of {', '.join(_POOLS)}, got "
            f"{chosen!r:.60}"
        )
    for name in ("embedding_dimension", "word_embedding_dimension"):
        if settings.integer(name, width) != width:
            settings.fail(name, f"{width}, the width of the model")
    return {"pool": _POOLS[chosen[0]], "include_prompt": settings.flag("include_prompt", True)}


def _dense(folder: Path, width: int) -> tuple[Linear, Any]:
    """A linear map from vectors of this width, and the function that follows."""
    settings = read_json(folder / "config.json")
    expect_values(settings, _AFTER_POOLING)
    function = settings.text("activation_function", "torch.nn.modules.activation.Tanh").rpartition(
        "."
    )[2]
    if function not in _ACTIVATIONS:
        settings.fail("activation_function", f"one of {', '.join(_ACTIVATIONS)}")
    if settings.integer("in_features", width) != width:
        settings.fail("in_features", f"{width}, the width of the vectors before it")
    with init.skipped():
        linear = Linear(
            width, settings.integer("out_features", high=1 << 16), settings.flag("bias", True)
        )
    load_weights(folder / "model.safetensors", ModuleDict({"linear": linear}))
    return linear, _ACTIVATIONS[function]
