"""Directories of sentence-transformers: modules.json, and the directories that it names."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import minigrad as mg
from minigrad.io.atomic import read_together
from minigrad.io.json import Settings, read_if_any, read_json, read_list
from minigrad.io.reading import printable

from .. import init
from ..layers import Linear
from ..models import Transformer
from ..options.activations import Identity
from ..options.modules import ModuleDict
from ..text.hub import find_model
from ..text.huggingface import ModelText
from ..text.loading import TOKENIZER_PATTERNS
from ..text.loading import load as load_text
from .family import expect_values
from .load import EXPECTED_FILES, FAMILIES, load_for_hidden, refuse_gguf
from .sentence_encoder import SIMILARITIES, SentenceEncoder
from .weights import load_weights

__all__ = ["sentence_encoder"]

_FILES = ("modules.json", "*sentence_*.json", "[0-9]_*/config.json", "[0-9]_*/model.safetensors")
"""Patterns of the files on the Hub."""
_KINDS = ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
_POOLS = {"cls": "first", "mean": "mean", "lasttoken": "last", "max": "max"}
"""Names of poolings in `SentenceEncoder` by those in the files."""
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
    """Return a sentence encoder in evaluation mode.

    The `tokenizers` package is needed.

    Parameters
    ----------
    directory : str or Path
        A directory of sentence-transformers, or of any encoder or language model, which may lack
        its output projection, or its name on the Hub, as in `nn.load`. Without modules.json,
        vectors are the means over the tokens, divided by their lengths.
    """
    directory = find_model(directory, [*_FILES, *TOKENIZER_PATTERNS], weights=True)
    refuse_gguf(directory)
    with read_together(directory, "config.json") as source:
        settings = read_json(source / "config.json", EXPECTED_FILES)
        family = FAMILIES.get(settings.text("model_type", ""))
        models = {} if family is None else family.models
        if Transformer in models.values():
            settings.fail("model_type", "an encoder or a language model")
        text = load_text(directory)  # before the model, since it may need a missing package
        model = load_for_hidden(directory)
        options = _options(directory)
        modules = directory / "modules.json"
        if os.path.lexists(modules):
            options |= _modules(modules, model.config.d_model)
        elif (directory / "1_Pooling").exists():
            raise FileNotFoundError(f"{modules}: no such file, though there is 1_Pooling")
        return SentenceEncoder(model, text, max_len=_max_len(directory, text), **options)


def _options(directory: Path) -> dict[str, Any]:
    """Return prompts and similarity from `config_sentence_transformers.json`."""
    settings = read_if_any(directory / "config_sentence_transformers.json")
    expect_values(settings, {"model_type": ("SentenceTransformer",)})
    prompts = settings.object("prompts", Settings({}, settings.where))
    return {
        "prompts": {name: prompts.text(name, "") for name in prompts},
        "default_prompt_name": settings.text("default_prompt_name", None, [*prompts]),
        "similarity_fn_name": settings.text("similarity_fn_name", "cosine", SIMILARITIES),
    }


def _modules(path: Path, width: int) -> dict[str, Any]:
    """Return pooling, linear layers and normalization from modules.json, for vectors of a width."""
    modules = [Settings(data, str(path)) for data in read_list(path, dict)]
    kinds = [module.text("type").rpartition(".")[2] for module in modules]
    if not re.fullmatch("Transformer Pooling( Dense)*( Normalize)?", " ".join(kinds)):
        order = "Transformer, Pooling, Dense (any number) and Normalize (or not), in this order"
        raise ValueError(f"{path} must contain {order}, got {printable(', '.join(kinds), 200)}")
    names = [module.text("path", "") for module in modules]
    if names[0]:
        modules[0].fail("path", "an empty one: the model in the directory itself")
    for module, name in zip(modules, names):
        if not re.fullmatch(r"[\w. /-]{0,200}", name) or ".." in name:
            module.fail("path", "a directory in this one")
    directories = [path.parent / name for name in names]
    maps: list[tuple[Linear, Any]] = []
    options = _pooling(read_json(directories[1] / "config.json"), width)
    for directory in directories[2 : 2 + kinds.count("Dense")]:
        maps.append(_dense(directory, width))
        width = maps[-1][0].out_features
    has_norm = kinds[-1] == "Normalize"
    if has_norm:
        expect_values(read_if_any(directories[-1] / "config.json"), _AFTER_POOLING)
    return {**options, "maps": maps, "normalize": has_norm}


def _max_len(directory: Path, text: ModelText) -> int | None:
    """Return `max_seq_length` from `sentence_bert_config.json`, or a file of an older name."""
    paths = [directory / f"sentence_{kind}_config.json" for kind in _KINDS]
    settings = read_if_any(next(filter(os.path.lexists, paths), paths[0]))
    expect_values(settings, _TRANSFORMER)
    if settings.flag("do_lower_case", False):
        normalizer = text.tokenizer.normalizer
        if normalizer is None or "A" in normalizer.normalize_str("A"):
            settings.fail("do_lower_case", "false, since the tokenizer keeps capital letters")
    return settings.integer("max_seq_length", None)


def _pooling(settings: Settings, width: int) -> dict[str, Any]:
    """Return the options of a pooling of vectors of this width."""
    modes = settings.get("pooling_mode")
    if modes is None:  # older files have a flag for each
        flags = [name for name in settings if name.startswith("pooling_mode_")]
        modes = [
            re.sub("^pooling_mode_|_tokens?$", "", name) for name in flags if settings.flag(name)
        ]
    modes = modes if isinstance(modes, list) else [modes]
    if len(modes) != 1 or modes[0] not in list(_POOLS):
        raise ValueError(
            f"{settings.where}: pooling_mode must be one of {', '.join(_POOLS)}, got {modes!r:.60}"
        )
    names = ("embedding_dimension", "word_embedding_dimension")
    expect_values(settings, dict.fromkeys(names, (width, None)))
    return {"pool": _POOLS[modes[0]], "include_prompt": settings.flag("include_prompt", True)}


def _dense(directory: Path, width: int) -> tuple[Linear, Any]:
    """Load a linear layer for vectors of this width, and its activation."""
    settings = read_json(directory / "config.json")
    expect_values(settings, {**_AFTER_POOLING, "in_features": (width, None)})
    path = settings.text("activation_function", "torch.nn.modules.activation.Tanh")
    activation = path.rpartition(".")[2]
    if activation not in _ACTIVATIONS:
        settings.fail("activation_function", f"one of {', '.join(_ACTIVATIONS)}")
    with init.skipped():
        out_features = settings.integer("out_features", high=1 << 16)
        linear = Linear(width, out_features, settings.flag("bias", True))
    load_weights(directory / "model.safetensors", ModuleDict({"linear": linear}))
    return linear, _ACTIVATIONS[activation]
