"""Adapters in files, as PEFT reads and writes them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

from minigrad.files.json import Settings, read_json, write_json
from minigrad.files.safetensors import SafetensorsFile, write_safetensors

from ..layers.module import Parameter
from .base import Model
from .lora import LoRALinear, ends_in, heads_of, linears_of
from .pretrained.adopt import adopted
from .pretrained.families import FAMILIES
from .pretrained.folder import Origin, listed
from .weights import misfit

__all__ = ["load_adapter", "save_adapter"]

_STEM = "base_model.model."


def _their_modules(model: Model) -> tuple[Origin, dict[str, tuple[str, ...]]]:
    """Their linear maps, by name, each with those of ours that it is made of."""
    origin = model.origin or adopted(model)
    names = {name for name, *_ in linears_of(model)}
    return origin, {
        theirs.removesuffix(".weight"): tuple(o.removesuffix(".weight") for o in place.ours)
        for theirs, place in origin.places.items()
        if theirs.endswith(".weight") and all(o.removesuffix(".weight") in names for o in place.ours)
    }


def save_adapter(directory: str | Path, model: Model, base: str = "") -> None:
    """Write the adapters of a model, and a classifier's head, as `adapter_model.safetensors` and `adapter_config.json`.

    `base` is what PEFT is to take for the model below: the name or the folder of one.
    """
    directory = Path(directory)
    adapters = {name: linear for name, _, _, linear in linears_of(model, LoRALinear)}
    if not adapters:
        raise ValueError("save_adapter: the model has no adapters; nn.lora adds them")
    origin, modules = _their_modules(model)
    arrays: dict[str, np.ndarray] = {}
    ranks: dict[str, int] = {}
    for theirs, ours in modules.items():
        parts = [adapters.get(name) for name in ours]
        if any(parts):
            sizes = [attrgetter(name)(model).out_features for name in ours]
            a, b = _joined(parts, sizes)
            arrays |= {f"{_STEM}{theirs}.lora_A.weight": a, f"{_STEM}{theirs}.lora_B.weight": b}
            ranks[theirs] = len(a)
    first = next(iter(adapters.values()))
    heads = {theirs: ours[0] for theirs, ours in modules.items() if ours[0] in dict(heads_of(model))}
    for theirs, ours_name in heads.items():
        for leaf, parameter in attrgetter(ours_name)(model).named_parameters():
            arrays[f"{_STEM}{theirs}.{leaf}"] = parameter.data
    write_safetensors(directory / "adapter_model.safetensors", arrays, {"format": "pt"})
    write_json(directory / "adapter_config.json", _adapter_settings(origin, first, ranks, heads, base), 2)


def _joined(parts: Sequence[LoRALinear | None], sizes: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """One adapter for maps that lie below one another: their A below one another, their B along a diagonal."""
    present = [p for p in parts if p is not None]
    a = np.concatenate([p.lora_a.data for p in present])
    b = np.zeros((sum(sizes), len(a)), a.dtype)
    row = column = 0
    for part, size in zip(parts, sizes):
        if part is not None:
            b[row : row + size, column : column + part.rank] = part.lora_b.data
            column += part.rank
        row += size
    return a, b


def _adapter_settings(
    origin: Origin, first: LoRALinear, ranks: Mapping[str, int], heads: Mapping[str, str], base: str
) -> dict[str, Any]:
    tasks = {"classes": "SEQ_CLS", "tokens": "TOKEN_CLS", "none": "FEATURE_EXTRACTION", "mlm": None}
    task = tasks.get(origin.head, "SEQ_2_SEQ_LM" if "decoder_start_token_id" in origin.settings else "CAUSAL_LM")
    wider = {name: rank for name, rank in ranks.items() if rank != first.rank}
    inside = tuple(p for p in FAMILIES[origin.family].prefixes if p)  # a pooler in the encoder, named whole
    whole = sorted({name if name.startswith(inside) else name.partition(".")[0] for name in heads})
    return {
        "peft_type": "LORA", "task_type": task, "base_model_name_or_path": base, "r": first.rank,
        "lora_alpha": first.scale * first.rank, "lora_dropout": first.dropout, "target_modules": sorted(ranks),
        "rank_pattern": wider, "alpha_pattern": {name: first.scale * rank for name, rank in wider.items()},
        "fan_in_fan_out": origin.family == "gpt2", "bias": "none", "modules_to_save": whole or None,
    }  # fmt: skip


def load_adapter(directory: str | Path, model: Model) -> Model:
    """Add the adapters of a folder that PEFT or `save_adapter` wrote to a model, in place.

    Nothing else is trained but a classifier's head. A folder that does not fit the model is a ValueError.
    """
    directory = Path(directory)
    settings = read_json(
        directory / "adapter_config.json", "expected a folder with adapter_config.json and adapter_model.safetensors"
    )
    settings.text("peft_type", choices=["LORA"])
    settings.text("bias", "none", choices=["none"])
    if settings.flag("use_dora", False):
        settings.fail("use_dora", "false (others are not supported)")
    if (dropout := settings.number("lora_dropout", 0.0, 0)) >= 1:
        settings.fail("lora_dropout", "less than 1")
    file = SafetensorsFile(directory / "adapter_model.safetensors")
    _, modules = _their_modules(model)
    if any(True for _ in linears_of(model, LoRALinear)):
        raise ValueError("load_adapter: there are adapters already; merge_lora makes them part of the weights")
    paths, others = _their_paths(file, modules, settings)
    loaded = {path: _adapter(file, stem, model, modules[path]) for stem, path in paths.items()}
    scales = {path: _scale(settings, path, len(a), file) for path, (a, _) in loaded.items()}
    heads = [_head(file, name, model, modules[path.rpartition(".")[0]]) for name, path in others.items()]
    for parameter in model.parameters():
        parameter.requires_grad = False
    for path, (a, parts) in loaded.items():
        for name, b in zip(modules[path], parts):
            holder, _, leaf = name.rpartition(".")
            adapter = LoRALinear(attrgetter(name)(model), len(a), scales[path], dropout)
            adapter.lora_a.replace(a.copy())
            adapter.lora_b.replace(b)
            setattr(attrgetter(holder)(model), leaf, adapter)
    for parameter, array in heads:
        parameter.replace(array)
    for _, part in heads_of(model):
        part.requires_grad_(True)
    return model


def _their_paths(
    file: SafetensorsFile, modules: Mapping[str, Any], settings: Settings
) -> tuple[dict[str, str], dict[str, str]]:
    """The maps of adapters, by the stem of their arrays; and what the names of other arrays mean, parts of a head."""
    stems = {n.removesuffix(".lora_A.weight") for n in file if n.endswith(".lora_A.weight")}
    paths = {stem: stem.removeprefix(_STEM) for stem in stems}
    others = {n: n.removeprefix(_STEM) for n in file if n.rpartition(".lora_")[0] not in stems}
    wrong = [p for p in paths.values() if p not in modules]
    wrong += [p for p in others.values() if p.rpartition(".")[0] not in modules]
    if wrong:
        raise ValueError(f"{file.path}: the model has no map {listed(wrong)}; it has {listed(modules, 4)}")
    if not paths:
        raise ValueError(f"{file.path}: it has no adapters")
    targets = settings.take("target_modules", (str, list), None)
    if isinstance(targets, list):
        settings.list("target_modules", str)
        if idle := [t for t in targets if not any(ends_in(path, [t]) for path in paths.values())]:
            raise ValueError(f"{settings.where}: target_modules: {listed(idle)} has no adapter in {file.path}")
        if apart := [path for path in paths.values() if not ends_in(path, targets)]:
            raise ValueError(f"{settings.where}: target_modules: {listed(apart)} is not among them, but in {file.path}")
    return paths, others


def _adapter(
    file: SafetensorsFile, stem: str, model: Model, ours: Sequence[str]
) -> tuple[np.ndarray, list[np.ndarray]]:
    """A, and the rows of B for each of ours."""
    linears = [attrgetter(name)(model) for name in ours]
    ends = np.cumsum([linear.out_features for linear in linears])
    names = f"{stem}.lora_A.weight", f"{stem}.lora_B.weight"
    if names[1] not in file:
        raise ValueError(f"{file.path}: {names[1]} is missing")
    rank, dtype = file[names[0]].shape[:1], linears[0].weight.dtype
    a = _fitting(file, names[0], (*rank, linears[0].in_features), dtype)
    b = _fitting(file, names[1], (int(ends[-1]), *rank), dtype)
    return a, [np.array(part) for part in np.split(b, ends[:-1])]


def _head(file: SafetensorsFile, name: str, model: Model, ours: Sequence[str]) -> tuple[Parameter, np.ndarray]:
    """A parameter of a head, and what it is to be."""
    own = dict(attrgetter(ours[0])(model).named_parameters())
    leaf = name.rpartition(".")[2]
    if leaf not in own:
        raise ValueError(f"{file.path}: {name}: the map has no {leaf}, but {listed(own)}")
    return own[leaf], _fitting(file, name, own[leaf].shape, own[leaf].dtype)


def _fitting(file: SafetensorsFile, name: str, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """An array of the file, which must have this shape, and finite numbers."""
    if file[name].shape != shape:
        raise ValueError(f"{file.path}: {name}: expected {shape}, got {file[name].shape}")
    array = file.read(name)
    if wrong := misfit(name, array, dtype):
        raise ValueError(f"{file.path}: {wrong}")
    return array.astype(dtype, copy=False)


def _scale(settings: Settings, path: str, rank: int, file: SafetensorsFile) -> float:
    """alpha / rank of one map, or alpha / √rank; an error if the map has another rank."""

    def of(pattern: str, default: float) -> float:
        found = settings.object(pattern, {})
        return next((found.number(key, low=0) for key in found if _matches(found, key, path)), default)

    expected, alpha = of("rank_pattern", settings.integer("r")), of("alpha_pattern", settings.number("lora_alpha", 8))
    if rank != expected or rank < 1:
        raise ValueError(f"{settings.where}: r: {expected} for {path}, but its adapter in {file.path} has {rank}")
    return alpha / math.sqrt(rank) if settings.flag("use_rslora", False) else alpha / rank


def _matches(patterns: Settings, pattern: str, path: str) -> bool:
    """Whether a map has this name, or ends in it, or in what a regular expression says."""
    if re.search(r"\)[*+?{]", pattern) or len(re.findall(r"[*+{]", pattern)) > 3:  # some of these never come to an end
        raise ValueError(f"{patterns.where}: {pattern!r:.60}: expected a name, or a simpler regular expression")
    try:
        return re.fullmatch(rf"(.*\.)?({pattern})", path) is not None
    except re.error as error:
        raise ValueError(f"{patterns.where}: {pattern!r:.60}: not a regular expression ({error})") from None
