"""Adapters in files, as PEFT reads and writes them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from minigrad.io.atomic import read_together, replace_together
from minigrad.io.json import Settings, read_json, write_json
from minigrad.io.reading import listed, printable
from minigrad.io.safetensors import SafetensorsFile, write_safetensors

from ..layers import init
from ..layers.linear import Linear
from ..layers.module import Module
from ..models.base import Model
from ..models.weights import fit_weights
from .families import FAMILIES
from .family import StoredArray, expect_values
from .load import Origin
from .lora import LoRALinear, adapt, check_plain, ends_in, heads_of, linears_of
from .save import origin_of_trained

__all__ = ["load_adapter", "save_adapter"]

_STEM = "base_model.model."
_SUPPORTED = {
    "bias": ("none",),
    "use_dora": (False,),
    "use_qalora": (False,),
    "use_bdlora": (None, False),
    "lora_bias": (False,),
    "alora_invocation_tokens": (None,),
    "arrow_config": (None,),
    "kasa_config": (None,),
    "monteclora_config": (None,),
    "velora_config": (None,),
    "layer_replication": (None,),
    "init_lora_weights": (True, False, None, "gaussian", "orthogonal", "eva"),
}
"""Where the adapters are all that is added: others also change the weights below them, as PiSSA and
OLoRA do.
"""


def _their_maps(model: Model, origin: Origin) -> dict[str, dict[str, Any]]:
    """Their linear maps, by name, each as those of ours that it is made of, by their names."""
    linears, ends = linears_of(model), ".weight"
    found = {
        theirs: [o.removesuffix(ends) for o in stored.parameters]
        for theirs, stored in origin.arrays.items()
    }
    return {
        theirs.removesuffix(ends): {name: linears[name] for name in ours}
        for theirs, ours in found.items()
        if theirs.endswith(ends) and all(name in linears for name in ours)
    }


def save_adapter(directory: str | Path, model: Model, base: str = "") -> None:
    """Write the adapters of a model as `adapter_model.safetensors` and `adapter_config.json`.

    Maps that are trained without one, such as a classifier's head, are written whole, and so is a
    head with one, which becomes part of its weights. `base` is what PEFT is to take for the model
    below: the name or the folder of one.
    """
    own = heads_of(model).keys()
    first = next(
        (part for name, part in linears_of(model, LoRALinear).items() if name not in own), None
    )
    if first is None:
        raise ValueError(
            "save_adapter: the model has no adapters, but for a head's; nn.lora adds them"
        )
    origin = model.origin or origin_of_trained(model)
    maps = _their_maps(model, origin)
    heads = [
        theirs
        for theirs, ours in maps.items()
        if own & ours or any(map(_is_trained, ours.values()))
    ]
    _check_kept(model, origin, {theirs: maps[theirs] for theirs in heads})
    arrays: dict[str, np.ndarray] = {}
    sizes: dict[str, tuple[int, float]] = {}  # rank and alpha
    for theirs, ours in maps.items():
        parts = list(ours.values())
        if theirs in heads:
            whole = parts[0].merged() if isinstance(parts[0], LoRALinear) else parts[0]
            arrays |= {f"{_STEM}{theirs}.{leaf}": p.data for leaf, p in whole.named_parameters()}
        elif adapted := [part for part in parts if isinstance(part, LoRALinear)]:
            a, b = _joined(parts, origin.arrays[f"{theirs}.weight"])
            arrays |= {f"{_STEM}{theirs}.lora_A.weight": a, f"{_STEM}{theirs}.lora_B.weight": b}
            sizes[theirs] = len(a), adapted[0].scale * len(a)
    settings = _adapter_settings(origin, first, sizes, heads, base)
    with replace_together(directory, "adapter_config.json") as part:
        write_safetensors(part / "adapter_model.safetensors", arrays, {"format": "pt"})
        write_json(part / "adapter_config.json", settings, 2)


def _is_trained(part: Linear) -> bool:
    """Whether a map is trained itself, rather than by an adapter."""
    return not isinstance(part, LoRALinear) and any(p.requires_grad for p in part.parameters())


def _check_kept(model: Model, origin: Origin, heads: Mapping[str, Mapping[str, Linear]]) -> None:
    """All that is trained is an adapter, or one of these maps, each of which is an array of theirs
    as it is.
    """
    kept = {id(p) for ours in heads.values() for part in ours.values() for p in part.parameters()}
    left = [
        n
        for n, p in model.named_parameters()
        if p.requires_grad and ".lora_" not in n and id(p) not in kept
    ]
    if left := left + [name for name in heads if not origin.arrays[f"{name}.weight"].is_plain]:
        raise ValueError(
            f"save_adapter: {listed(left)} is trained too, which an adapter does not hold; see "
            "nn.save"
        )


def _joined(parts: Sequence[Linear], stored: StoredArray) -> tuple[np.ndarray, np.ndarray]:
    """One adapter for maps of one array: their A below one another, their B along a diagonal, in
    its order of rows.

    Where all have the same A, as one that was loaded, it is there once.
    """
    adapters = [part for part in parts if isinstance(part, LoRALinear)]
    if len(adapters) == len(parts) and all(
        np.array_equal(x.lora_a.data, adapters[0].lora_a.data) for x in adapters
    ):
        return adapters[0].lora_a.data, replace(stored, transposed=False).join(
            [x.lora_b.data for x in adapters]
        )
    a = np.concatenate([adapter.lora_a.data for adapter in adapters])
    rows, column = list[np.ndarray](), 0
    for part in parts:
        rows.append(np.zeros((part.out_features, len(a)), a.dtype))
        if isinstance(part, LoRALinear):
            rows[-1][:, column : column + part.rank] = part.lora_b.data
            column += part.rank
    return a, replace(stored, transposed=False).join(rows)


def _adapter_settings(
    origin: Origin,
    first: LoRALinear,
    sizes: Mapping[str, tuple[int, float]],
    heads: Sequence[str],
    base: str,
) -> dict[str, Any]:
    tasks = {"classes": "SEQ_CLS", "tokens": "TOKEN_CLS", "none": "FEATURE_EXTRACTION", "mlm": None}
    task = tasks.get(
        origin.head, "SEQ_2_SEQ_LM" if "decoder_start_token_id" in origin.settings else "CAUSAL_LM"
    )
    alpha = first.scale * first.rank
    inside = FAMILIES[origin.family].prefix  # a pooler in the encoder, named whole
    whole = sorted({name if name.startswith(inside) else name.partition(".")[0] for name in heads})
    return {
        "peft_type": "LORA", "task_type": task, "base_model_name_or_path": base, "r": first.rank,
        "lora_alpha": alpha, "lora_dropout": first.dropout, "target_modules": sorted(sizes),
        "rank_pattern": {name: rank for name, (rank, _) in sizes.items() if rank != first.rank},
        "alpha_pattern": {name: own for name, (_, own) in sizes.items() if own != alpha},
        "fan_in_fan_out": origin.family == "gpt2", "bias": "none", "modules_to_save": whole or None,
    }  # fmt: skip


@init.skipped()
def load_adapter(directory: str | Path, model: Model) -> Model:
    """Add the adapters of a folder that PEFT or `save_adapter` wrote to a model, in place.

    Nothing else is trained but maps that the folder has whole, and a classifier's head. A folder
    that does not fit the model is a ValueError.
    """
    with read_together(directory, "adapter_config.json") as directory:
        return _load_adapter(directory, model)


def _load_adapter(directory: Path, model: Model) -> Model:
    settings = read_json(
        directory / "adapter_config.json",
        "expected a folder with adapter_config.json and adapter_model.safetensors",
    )
    settings.text("peft_type", choices=["LORA"])
    expect_values(settings, _SUPPORTED)
    if (dropout := settings.number("lora_dropout", 0.0, 0)) >= 1:
        settings.fail("lora_dropout", "less than 1")
    check_plain(model)
    file, expected = SafetensorsFile(directory / "adapter_model.safetensors"), Module()
    origin = model.origin or origin_of_trained(model)
    maps = _their_maps(model, origin)
    modules, pairs = _expected(file, maps, settings)
    vars(expected).update(modules)
    fit_weights(expected, {name: file.read(name) for name in file}, file.path)
    adapters: dict[str, LoRALinear] = {}
    for path, (a, b, scale) in pairs.items():
        shapes = [(part.out_features, a.out_features) for part in maps[path].values()]
        stored = replace(origin.arrays[f"{path}.weight"], transposed=False)
        rows = stored.split(b.weight.data, shapes)
        for (name, part), own in zip(maps[path].items(), rows):  # all of A, and its own rows of B
            adapters[name] = adapter = LoRALinear(part, a.out_features, scale, dropout=dropout)
            adapter.lora_a.data[...], adapter.lora_b.data[...] = a.weight.data, own
    adapt(model, adapters)
    for part in modules.values():  # those that came whole are trained whole
        part.requires_grad_(True)
    return model


def _expected(
    file: SafetensorsFile, maps: Mapping[str, Mapping[str, Linear]], settings: Settings
) -> tuple[dict[str, Linear], dict[str, tuple[Linear, Linear, float]]]:
    """The modules whose weights the file must hold, by its names for them; for each adapted map A,
    B and the scale.
    """
    stem = _STEM if any(name.startswith(_STEM) for name in file) else ""
    for name in ("rank_pattern", "alpha_pattern"):
        if (count := len(settings.object(name, {}))) > len(maps):
            raise ValueError(
                f"{settings.where}: {name}: expected at most {len(maps)} entries, one for "
                f"each of the model's maps, got {count:,}"
            )
    saved = settings.list("modules_to_save", str, None) or ()
    found = {
        re.sub(r"\.(lora_[AB]\.weight|weight|bias)$", "", name.removeprefix(stem)) for name in file
    }
    if wrong := found - maps.keys():
        raise ValueError(
            f"{file.path}: the model has no map {listed(wrong)}; it has {listed(maps, 4)}"
        )
    adapted = [
        path for path in maps if {f"{stem}{path}.lora_{x}.weight" for x in "AB"} & file.keys()
    ]
    _check_targets(file, adapted, settings)
    modules, pairs = dict[str, Linear](), dict[str, tuple[Linear, Linear, float]]()
    for path, ours in maps.items():
        told = any(f".{part}." in f".{path}." for part in saved)
        if told or {f"{stem}{path}.weight", f"{stem}{path}.bias"} & file.keys():  # of a head
            modules[stem + path] = next(iter(ours.values()))
    for path in adapted:
        name, parts = stem + path, list(maps[path].values())
        rank = _of(settings, "rank_pattern", path, settings.integer("r"))
        alpha = _of(settings, "alpha_pattern", path, settings.number("lora_alpha", 8, 0, 1e30))
        entry = file.get(f"{name}.lora_A.weight") or file[f"{name}.lora_B.weight"]
        if rank < 1 or rank not in entry.shape:
            raise ValueError(
                f"{settings.where}: r: {rank} for {path}, but its adapter in {file.path} has "
                "another"
            )
        a = Linear(parts[0].in_features, int(rank), False, dtype=parts[0].weight.dtype)
        b = Linear(
            int(rank), sum(part.out_features for part in parts), False, dtype=parts[0].weight.dtype
        )
        modules |= {f"{name}.lora_A": a, f"{name}.lora_B": b}
        pairs[path] = (
            a,
            b,
            alpha / (math.sqrt(rank) if settings.flag("use_rslora", False) else rank),
        )
    return modules, pairs


def _check_targets(file: SafetensorsFile, paths: Sequence[str], settings: Settings) -> None:
    """The maps that have adapters are those that target_modules lists, where it does."""
    if not paths:
        raise ValueError(f"{file.path}: it has no adapters")
    if isinstance(settings.take("target_modules", str | list, None), list):
        targets = settings.list("target_modules", str)
        if idle := [t for t in targets if not any(ends_in(path, [t]) for path in paths)]:
            raise ValueError(
                f"{settings.where}: target_modules: {listed(idle)} has no adapter in {file.path}"
            )
        if apart := [path for path in paths if not ends_in(path, targets)]:
            raise ValueError(
                f"{settings.where}: target_modules: {listed(apart)} is not among them, but in "
                f"{file.path}"
            )


def _of(settings: Settings, patterns: str, path: str, default: float) -> Any:
    """Return the number of the first pattern that matches a map's name, or else the default.

    A pattern is the end of a name, or a regular expression for it.
    """
    found = settings.object(patterns, {})
    for pattern in found:
        if _can_backtrack(pattern):
            raise ValueError(
                f"{found.where}: '{printable(pattern)}': expected a name, or a simpler regular "
                "expression"
            )
        try:
            if re.fullmatch(rf"(.*\.)?({pattern})", path):
                return found.number(pattern, low=0, high=1e30)
        except re.error as error:
            raise ValueError(
                f"{found.where}: '{printable(pattern)}': not a regular expression ({error})"
            ) from None
    return default


def _can_backtrack(pattern: str) -> bool:
    """Return whether matching a regular expression may take exponential time.

    Groups with extensions, such as comments and flags, could hide a repeated group.
    """
    has_groups = "(?" in pattern or re.search(r"\)[*+?{]", pattern)
    return bool(has_groups) or len(pattern) > 1000 or len(re.findall(r"[*+{]", pattern)) > 3
