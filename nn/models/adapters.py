"""Adapters in files, as PEFT reads and writes them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from minigrad.files.json import Settings, read_json, write_json
from minigrad.files.safetensors import SafetensorsFile, listed, write_safetensors

from ..layers import init
from ..layers.linear import Linear
from .base import Model
from .lora import LoRALinear, adapt, ends_in, heads_of, linears_of
from .pretrained.families import FAMILIES
from .pretrained.origin import Origin, adopted
from .pretrained.tables import Place
from .weights import misfit

__all__ = ["load_adapter", "save_adapter"]

_STEM = "base_model.model."


def _their_maps(model: Model, origin: Origin) -> dict[str, dict[str, Any]]:
    """Their linear maps, by name, each as those of ours that it is made of, by their names."""
    linears, ends = linears_of(model), ".weight"
    found = {theirs: [o.removesuffix(ends) for o in place.ours] for theirs, place in origin.places.items()}
    return {
        theirs.removesuffix(ends): {name: linears[name] for name in ours}
        for theirs, ours in found.items()
        if theirs.endswith(ends) and all(name in linears for name in ours)
    }


def save_adapter(directory: str | Path, model: Model, base: str = "") -> None:
    """Write the adapters of a model, and a classifier's head, as `adapter_model.safetensors` and `adapter_config.json`.

    `base` is what PEFT is to take for the model below: the name or the folder of one.
    """
    directory, first = Path(directory), next(iter(linears_of(model, LoRALinear).values()), None)
    if first is None:
        raise ValueError("save_adapter: the model has no adapters; nn.lora adds them")
    origin = model.origin or adopted(model)
    maps = _their_maps(model, origin)
    heads = [theirs for theirs, ours in maps.items() if heads_of(model).keys() & ours]
    arrays: dict[str, np.ndarray] = {}
    ranks: dict[str, int] = {}
    for theirs, ours in maps.items():
        parts = list(ours.values())
        if any(isinstance(part, LoRALinear) for part in parts):
            a, b = _joined(parts, origin.places[f"{theirs}.weight"])
            arrays |= {f"{_STEM}{theirs}.lora_A.weight": a, f"{_STEM}{theirs}.lora_B.weight": b}
            ranks[theirs] = len(a)
        if theirs in heads:
            arrays |= {f"{_STEM}{theirs}.{leaf}": p.data for leaf, p in parts[0].named_parameters()}
    write_safetensors(directory / "adapter_model.safetensors", arrays, {"format": "pt"})
    write_json(directory / "adapter_config.json", _adapter_settings(origin, first, ranks, heads, base), 2)


def _joined(parts: Sequence[Linear], place: Place) -> tuple[np.ndarray, np.ndarray]:
    """One adapter for maps of one array: their A below one another, their B along a diagonal, in its order of rows."""
    a = np.concatenate([part.lora_a.data for part in parts if isinstance(part, LoRALinear)])
    b = np.zeros((sum(part.out_features for part in parts), len(a)), a.dtype)
    row = column = 0
    for part in parts:
        if isinstance(part, LoRALinear):
            b[row : row + part.out_features, column : column + part.rank] = part.lora_b.data
            column += part.rank
        row += part.out_features
    return a, place.rows.join(np.split(b, np.cumsum([part.out_features for part in parts])[:-1]))


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
    origin = model.origin or adopted(model)
    maps = _their_maps(model, origin)
    parts = {path: list(ours.values()) for path, ours in maps.items()}
    arrays, scales = _arrays(file, parts, settings)
    adapters: dict[str, LoRALinear] = {}
    for path, scale in scales.items():
        a, b = (arrays[f"{path}.lora_{x}.weight"] for x in "AB")
        shapes = [(part.out_features, len(a)) for part in parts[path]]
        rows = origin.places[f"{path}.weight"].rows.split(b, shapes)
        adapters |= zip(maps[path], _adapters(a, rows, parts[path], scale, settings.number("lora_dropout", 0.0)))
    adapt(model, adapters)
    for path in maps:
        for leaf, own in parts[path][0].named_parameters():
            if (name := f"{path}.{leaf}") in arrays:  # of a head
                own.replace(arrays[name])
    return model


def _arrays(
    file: SafetensorsFile, parts: Mapping[str, Sequence[Linear]], settings: Settings
) -> tuple[dict[str, np.ndarray], dict[str, float]]:
    """The arrays of the file, all of which fit the maps, by name; and the scales of the maps that have adapters."""
    names, saved = {name.removeprefix(_STEM): name for name in file}, settings.list("modules_to_save", str, None) or ()
    if wrong := {re.sub(r"\.(lora_[AB]\.weight|weight|bias)$", "", name) for name in names} - parts.keys():
        raise ValueError(f"{file.path}: the model has no map {listed(wrong)}; it has {listed(parts, 4)}")
    _check_targets(file, [path for path in parts if any(f"{path}.lora_{x}.weight" in names for x in "AB")], settings)
    shapes: dict[str, tuple[int, ...]] = {}
    scales: dict[str, float] = {}
    for path, maps in parts.items():
        if f"{path}.weight" in names or f"{path}.bias" in names or any(f".{name}." in f".{path}." for name in saved):
            shapes |= {f"{path}.{leaf}": p.shape for leaf, p in maps[0].named_parameters()}
        pair = [f"{path}.lora_{x}.weight" for x in "AB"]
        if there := [names[name] for name in pair if name in names]:
            rank = _of(settings, "rank_pattern", path, settings.integer("r"))
            alpha = _of(settings, "alpha_pattern", path, settings.number("lora_alpha", 8, 0, 1e30))
            if rank < 1 or rank not in file[there[0]].shape:
                raise ValueError(f"{settings.where}: r: {rank} for {path}, but its adapter in {file.path} has another")
            shapes |= zip(pair, ((rank, maps[0].in_features), (sum(part.out_features for part in maps), rank)))
            scales[path] = alpha / (math.sqrt(rank) if settings.flag("use_rslora", False) else rank)
    if missing := shapes.keys() - names.keys():
        raise ValueError(f"{file.path}: {listed(missing)} is missing")
    if unknown := names.keys() - shapes.keys():
        raise ValueError(f"{file.path}: the model has no {listed(unknown)}")
    dtype = next(iter(parts.values()))[0].weight.dtype
    return {name: _fitting(file, names[name], shape, dtype) for name, shape in shapes.items()}, scales


def _check_targets(file: SafetensorsFile, paths: Sequence[str], settings: Settings) -> None:
    """The maps that have adapters are those that target_modules lists, where it does."""
    if not paths:
        raise ValueError(f"{file.path}: it has no adapters")
    if isinstance(settings.take("target_modules", (str, list), None), list):
        targets = settings.list("target_modules", str)
        if idle := [t for t in targets if not any(ends_in(path, [t]) for path in paths)]:
            raise ValueError(f"{settings.where}: target_modules: {listed(idle)} has no adapter in {file.path}")
        if apart := [path for path in paths if not ends_in(path, targets)]:
            raise ValueError(f"{settings.where}: target_modules: {listed(apart)} is not among them, but in {file.path}")


def _fitting(file: SafetensorsFile, name: str, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """An array of the file, which must have this shape, and finite numbers."""
    if file[name].shape != shape:
        raise ValueError(f"{file.path}: {name}: expected {shape}, got {file[name].shape}")
    array = file.read(name)
    if wrong := misfit(name, array, dtype):
        raise ValueError(f"{file.path}: {wrong}")
    return array.astype(dtype, copy=False)


def _adapters(
    a: np.ndarray, b: Sequence[np.ndarray], parts: Sequence[Linear], scale: float, dropout: float
) -> Iterator[LoRALinear]:
    """Those of maps that are one of theirs: each has all of A, and its own rows of B."""
    for part, rows in zip(parts, b):
        with init.skipped():
            adapter = LoRALinear(part, len(a), scale, dropout)
        adapter.lora_a.replace(a.copy())
        adapter.lora_b.replace(rows.copy())
        yield adapter


def _of(settings: Settings, patterns: str, path: str, default: float) -> Any:
    """The number of the first pattern that is the name of a map, or what it ends in, or a regular expression for it."""
    found = settings.object(patterns, {})
    for pattern in found:
        if re.search(r"\)[*+?{]", pattern) or len(re.findall(r"[*+{]", pattern)) > 3:  # some of these never end
            raise ValueError(f"{found.where}: {pattern!r:.60}: expected a name, or a simpler regular expression")
        try:
            if re.fullmatch(rf"(.*\.)?({pattern})", path):
                return found.number(pattern, low=0, high=1e30)
        except re.error as error:
            raise ValueError(f"{found.where}: {pattern!r:.60}: not a regular expression ({error})") from None
    return default
