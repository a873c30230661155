"""Low-rank adaptation: Hu et al. (2022), "LoRA: low-rank adaptation of large language models", arXiv:2106.09685.

Adapters are kept in files as PEFT reads and writes them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

import minigrad as mg
from minigrad.core.tensor import Tensor
from minigrad.files.json import Settings, read_json, write_json
from minigrad.files.safetensors import SafetensorsFile, write_safetensors

from ..layers import init
from ..layers.linear import Linear
from ..layers.module import Module, Parameter
from .base import Model
from .pretrained.adopt import adopted
from .pretrained.families import FAMILIES
from .pretrained.folder import Origin, listed

__all__ = ["LoRALinear", "load_adapter", "lora", "merge_lora", "save_adapter"]

_STEM = "base_model.model."
HEADS = ("dense", "output")
"""The parts of a classifier that are trained whole beside the adapters."""


class LoRALinear(Linear):
    """x @ (W + scale · B A).T + bias, of which A (rank, in) and B (out, rank) are trained.

    B starts as zeros, so that nothing changes at first. W and the bias are those of `linear`.
    """

    def __init__(
        self, linear: Linear, rank: int, scale: float, dropout: float = 0.0,
        generator: np.random.Generator | None = None,
    ) -> None:  # fmt: skip
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight, self.bias = linear.weight, linear.bias
        self.rank, self.scale, self.dropout, self.generator = rank, scale, dropout, generator
        dtype = linear.weight.dtype
        self.lora_a = Parameter(np.empty((rank, linear.in_features), dtype))
        init.kaiming_uniform_(self.lora_a, math.sqrt(5), generator)
        self.lora_b = Parameter(np.zeros((linear.out_features, rank), dtype))

    def forward(self, x: Any) -> Tensor:
        """(..., out_features) from x (..., in_features)."""
        inside = mg.linear(mg.dropout(x, self.dropout, self.training, self.generator), self.lora_a)
        return super().forward(x) + mg.linear(inside, self.lora_b) * self.scale

    def merged(self) -> Linear:
        """A plain map that does the same, with a weight of its own; copies for inference are made of it."""
        plain = Linear.__new__(Linear)
        plain.in_features, plain.out_features, plain.bias = self.in_features, self.out_features, self.bias
        weight = self.weight.data + self.scale * (self.lora_b.data @ self.lora_a.data)
        plain.weight = Parameter(weight.astype(self.weight.dtype, copy=False))
        return plain

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, rank={self.rank}, scale={self.scale:g}"


def _linears(model: Module, kind: type[Linear] = Linear) -> Iterator[tuple[str, Module, str, Any]]:
    """Each linear map of a model: its name, the module that holds it, and its name there."""
    for prefix, module in model.named_modules():
        for name, child in list(module.named_children()):
            if isinstance(child, kind):
                yield f"{prefix}.{name}" if prefix else name, module, name, child


def lora(
    model: Model, rank: int = 8, alpha: float = 16.0, targets: Sequence[str] = ("q_proj", "v_proj"), *,
    dropout: float = 0.0, generator: np.random.Generator | None = None,
) -> Model:  # fmt: skip
    """Add adapters of a rank, times alpha / rank, to the linear maps whose names end in one of `targets`, in place.

    Nothing else is trained but a classifier's head. Names are ours: "q_proj", "k_proj", "v_proj", "out_proj",
    "linear1", "gate", "linear2", or longer parts such as "decoder.layers.0.self_attention.q_proj". An
    optimizer is to be made afterwards, of the parameters that require gradients.
    """
    if rank < 1:
        raise ValueError(f"lora: expected a rank of at least 1, got {rank}")
    found = [entry for entry in _linears(model) if _ends_in(entry[0], targets)]
    names = [name for name, *_ in _linears(model)]
    if missing := [t for t in targets if not any(_ends_in(name, [t]) for name in names)]:
        ends = sorted({name.rpartition(".")[2] for name in names})
        raise ValueError(f"lora: no linear map is named {', '.join(missing)}; there are {', '.join(ends)}")
    if any(isinstance(linear, LoRALinear) for *_, linear in found):
        raise ValueError("lora: there are adapters already; merge_lora makes them part of the weights")
    for parameter in model.parameters():
        parameter.requires_grad = False
    for _, holder, name, linear in found:
        setattr(holder, name, LoRALinear(linear, rank, alpha / rank, dropout, generator))
    for _, part in _heads(model):
        part.requires_grad_(True)
    return model


def _ends_in(name: str, targets: Sequence[str]) -> bool:
    return any(name == target or name.endswith("." + target) for target in targets)


def _heads(model: Model) -> list[tuple[str, Module]]:
    """What is trained whole: the head of a classifier."""
    if not getattr(model.config, "num_classes", 0):
        return []
    return [(name, child) for name, child in model.named_children() if name in HEADS]


def merge_lora(model: Model) -> Model:
    """Make the adapters part of the weights, in place; all parameters are trained again."""
    for _, holder, name, linear in list(_linears(model, LoRALinear)):
        setattr(holder, name, linear.merged())
    model.requires_grad_(True)
    return model


# -- adapter files --------------------------------------------------------------------------------------------


def _their_modules(model: Model) -> tuple[Origin, dict[str, tuple[str, ...]]]:
    """Their linear maps, by name, each with those of ours that it is made of."""
    origin = model.origin or adopted(model)
    names = {name for name, *_ in _linears(model)}
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
    adapters = {name: linear for name, _, _, linear in _linears(model, LoRALinear)}
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
    heads = {theirs: ours[0] for theirs, ours in modules.items() if ours[0] in dict(_heads(model))}
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
    file = SafetensorsFile(directory / "adapter_model.safetensors")
    _, modules = _their_modules(model)
    if any(True for _ in _linears(model, LoRALinear)):
        raise ValueError("load_adapter: there are adapters already; merge_lora makes them part of the weights")
    stems = {n.removesuffix(".lora_A.weight") for n in file if n.endswith(".lora_A.weight")}
    paths = {stem: stem.removeprefix(_STEM) for stem in stems}
    others = {n: n.removeprefix(_STEM) for n in file if n.rpartition(".lora_")[0] not in stems}
    wrong = [p for p in paths.values() if p not in modules]
    wrong += [p for p in others.values() if p.rpartition(".")[0] not in modules]
    if wrong:
        raise ValueError(f"{file.path}: the model has no map {listed(wrong)}; it has {listed(modules, 4)}")
    loaded = {stem: _adapter(file, stem, model, modules[path]) for stem, path in paths.items()}
    for parameter in model.parameters():
        parameter.requires_grad = False
    for stem, path in paths.items():
        scale = _scale(settings, path)
        a, parts = loaded[stem]
        for name, b in zip(modules[path], parts):
            holder, _, leaf = name.rpartition(".")
            adapter = LoRALinear(attrgetter(name)(model), len(a), scale, settings.number("lora_dropout", 0.0, 0, 1))
            adapter.lora_a.replace(a.copy())
            adapter.lora_b.replace(b)
            setattr(attrgetter(holder)(model), leaf, adapter)
    for name, path in others.items():
        module, _, leaf = path.rpartition(".")
        getattr(attrgetter(modules[module][0])(model), leaf).replace(file.read(name, model.config.dtype))
    for _, part in _heads(model):
        part.requires_grad_(True)
    return model


def _adapter(
    file: SafetensorsFile, stem: str, model: Model, ours: Sequence[str]
) -> tuple[np.ndarray, list[np.ndarray]]:
    """A, and the rows of B for each of ours, after a check of their shapes."""
    linears = [attrgetter(name)(model) for name in ours]
    ends = np.cumsum([linear.out_features for linear in linears])
    names = f"{stem}.lora_A.weight", f"{stem}.lora_B.weight"
    if names[1] not in file:
        raise ValueError(f"{file.path}: {names[1]} is missing")
    rank = file[names[0]].shape[0]
    for name, shape in zip(names, ((rank, linears[0].in_features), (int(ends[-1]), rank))):
        if file[name].shape != shape:
            raise ValueError(f"{file.path}: {name}: expected {shape}, got {file[name].shape}")
    a, b = (file.read(name, linears[0].weight.dtype) for name in names)
    return a, [np.array(part) for part in np.split(b, ends[:-1])]


def _scale(settings: Settings, path: str) -> float:
    """alpha / rank of one map, or alpha / √rank."""

    def of(pattern: str, default: float) -> float:
        found = settings.object(pattern, {}) or {}
        return next((float(v) for k, v in found.items() if re.fullmatch(rf"(.*\.)?({k})", path)), default)

    rank, alpha = of("rank_pattern", settings.integer("r")), of("alpha_pattern", settings.number("lora_alpha", 8))
    return alpha / math.sqrt(rank) if settings.flag("use_rslora", False) else alpha / rank
