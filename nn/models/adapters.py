"""Adapters in files, as PEFT reads and writes them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from minigrad.files.json import Settings, read_json, write_json
from minigrad.files.safetensors import SafetensorsFile, write_safetensors

from ..layers import init
from ..layers.linear import Linear
from ..layers.module import Parameter
from .base import Model
from .lora import LoRALinear, adapt, ends_in, heads_of, linears_of
from .pretrained.families import FAMILIES
from .pretrained.folder import Origin, listed
from .pretrained.save import adopted
from .weights import misfit

__all__ = ["load_adapter", "save_adapter"]

_STEM = "base_model.model."


def _their_modules(model: Model) -> tuple[Origin, dict[str, list[str]]]:
    """Their linear maps, by name, each with those of ours that it is made of."""
    origin, linears = model.origin or adopted(model), linears_of(model)
    found = {theirs: [name.removesuffix(".weight") for name in place.ours] for theirs, place in origin.places.items()}
    return origin, {
        theirs.removesuffix(".weight"): ours
        for theirs, ours in found.items()
        if theirs.endswith(".weight") and all(name in linears for name in ours)
    }


def save_adapter(directory: str | Path, model: Model, base: str = "") -> None:
    """Write the adapters of a model, and a classifier's head, as `adapter_model.safetensors` and `adapter_config.json`.

    `base` is what PEFT is to take for the model below: the name or the folder of one.
    """
    directory, linears = Path(directory), linears_of(model)
    first = next((linear for linear in linears.values() if isinstance(linear, LoRALinear)), None)
    if first is None:
        raise ValueError("save_adapter: the model has no adapters; nn.lora adds them")
    origin, modules = _their_modules(model)
    heads = [theirs for theirs, ours in modules.items() if ours[0] in heads_of(model)]
    arrays: dict[str, np.ndarray] = {}
    ranks: dict[str, int] = {}
    for theirs, ours in modules.items():
        parts = [linears[name] for name in ours]
        if any(isinstance(part, LoRALinear) for part in parts):
            a, b = _joined(parts)
            arrays |= {f"{_STEM}{theirs}.lora_A.weight": a, f"{_STEM}{theirs}.lora_B.weight": b}
            ranks[theirs] = len(a)
        if theirs in heads:
            arrays |= {f"{_STEM}{theirs}.{leaf}": p.data for leaf, p in parts[0].named_parameters()}
    write_safetensors(directory / "adapter_model.safetensors", arrays, {"format": "pt"})
    write_json(directory / "adapter_config.json", _adapter_settings(origin, first, ranks, heads, base), 2)


def _joined(parts: Sequence[Linear]) -> tuple[np.ndarray, np.ndarray]:
    """One adapter for maps that lie below one another: their A below one another, their B along a diagonal."""
    a = np.concatenate([part.lora_a.data for part in parts if isinstance(part, LoRALinear)])
    b = np.zeros((sum(part.out_features for part in parts), len(a)), a.dtype)
    row = column = 0
    for part in parts:
        if isinstance(part, LoRALinear):
            b[row : row + part.out_features, column : column + part.rank] = part.lora_b.data
            column += part.rank
        row += part.out_features
    return a, b


def _adapter_settings(
    origin: Origin, first: LoRALinear, ranks: Mapping[str, int], heads: Sequence[str], base: str
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
    if settings.number("lora_dropout", 0.0, 0) >= 1:
        settings.fail("lora_dropout", "less than 1")
    file = SafetensorsFile(directory / "adapter_model.safetensors")
    (_, modules), linears = _their_modules(model), linears_of(model)
    found: dict[str, dict[str, str]] = {}  # by their map: what of it, and its name in the file
    for name in file:
        stem, leaf = re.fullmatch(r"(.*?)(?:\.(lora_[AB]\.weight|weight|bias))?", name).groups("")  # type: ignore[union-attr]
        found.setdefault(stem, {})[leaf] = name
    if wrong := [path for stem in found if (path := stem.removeprefix(_STEM)) not in modules]:
        raise ValueError(f"{file.path}: the model has no map {listed(wrong)}; it has {listed(modules, 4)}")
    lora = [stem for stem, names in found.items() if any(leaf.startswith("lora") for leaf in names)]
    _check_targets(file, [stem.removeprefix(_STEM) for stem in lora], settings)
    _check_heads(file, found, modules, settings)
    adapters: dict[str, LoRALinear] = {}
    whole: list[tuple[Parameter, np.ndarray]] = []
    for stem, names in found.items():
        ours = modules[stem.removeprefix(_STEM)]
        parts = [linears[name] for name in ours]
        for leaf in sorted(names.keys() & {"weight", "bias"}):  # of a head
            if (own := getattr(parts[0], leaf)) is None:
                raise ValueError(f"{file.path}: {names[leaf]}: the map has no {leaf}")
            other = {"weight": "bias", "bias": "weight"}[leaf]
            if other not in names and getattr(parts[0], other) is not None:
                raise ValueError(f"{file.path}: {stem}.{other} is missing")
            whole.append((own, _fitting(file, names[leaf], own.shape, own.dtype)))
        if stem in lora:
            adapters |= zip(ours, _adapters(file, stem, parts, settings))
    adapt(model, adapters)
    for own, array in whole:
        own.replace(array)
    return model


def _check_targets(file: SafetensorsFile, paths: Sequence[str], settings: Settings) -> None:
    """The maps that have adapters are those that target_modules lists, where it does."""
    if not paths:
        raise ValueError(f"{file.path}: it has no adapters")
    targets = settings.take("target_modules", (str, list), None)
    if isinstance(targets, list):
        settings.list("target_modules", str)
        if idle := [t for t in targets if not any(ends_in(path, [t]) for path in paths)]:
            raise ValueError(f"{settings.where}: target_modules: {listed(idle)} has no adapter in {file.path}")
        if apart := [path for path in paths if not ends_in(path, targets)]:
            raise ValueError(f"{settings.where}: target_modules: {listed(apart)} is not among them, but in {file.path}")


def _check_heads(
    file: SafetensorsFile, found: Mapping[str, Any], modules: Mapping[str, Any], settings: Settings
) -> None:
    """What modules_to_save lists is in the file, as far as the model has it (PEFT lists names of other models too)."""
    saved = settings.list("modules_to_save", str, None) or ()
    listed_maps = [path for path in modules if any(f".{name}." in f".{path}." for name in saved)]
    if missing := [path for path in listed_maps if _STEM + path not in found]:
        raise ValueError(f"{file.path}: {listed(missing)} is missing, which modules_to_save of {settings.where} lists")


def _adapters(file: SafetensorsFile, stem: str, parts: Sequence[Linear], settings: Settings) -> list[LoRALinear]:
    """Those of maps that lie below one another in theirs: each has all of A, and its own rows of B."""
    names, dtype = [f"{stem}.lora_{x}.weight" for x in "AB"], parts[0].weight.dtype
    rank = file[names[0]].shape[:1] if names[0] in file else (0,)
    ends = np.cumsum([part.out_features for part in parts])
    a = _fitting(file, names[0], (*rank, parts[0].in_features), dtype)
    b = _fitting(file, names[1], (int(ends[-1]), *rank), dtype)
    scale, dropout = _scale(settings, stem.removeprefix(_STEM), len(a), file), settings.number("lora_dropout", 0.0)
    with init.skipped():
        adapters = [LoRALinear(part, len(a), scale, dropout) for part in parts]
    for adapter, rows in zip(adapters, np.split(b, ends[:-1])):
        adapter.lora_a.replace(a.copy())
        adapter.lora_b.replace(rows.copy())
    return adapters


def _fitting(file: SafetensorsFile, name: str, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """An array of the file, which must have this shape, and finite numbers."""
    if name not in file:
        raise ValueError(f"{file.path}: {name} is missing")
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
        return next((found.number(key, low=0, high=1e30) for key in found if _matches(found, key, path)), default)

    expected = of("rank_pattern", settings.integer("r"))
    alpha = of("alpha_pattern", settings.number("lora_alpha", 8, 0, 1e30))
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
