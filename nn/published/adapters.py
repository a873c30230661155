"""Adapters in files, as PEFT reads and writes them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from minigrad.io.atomic import read_together, replace_together
from minigrad.io.json import Settings, read_json, write_json
from minigrad.io.reading import listed, printable
from minigrad.io.safetensors import SafetensorsFile, misfit, write_safetensors

from .. import init
from ..layers import Linear
from ..models import Model
from .family import EncoderDecoder, StoredArray, expect_values
from .load import Origin, check_arrays
from .lora import LoRALinear, adapt, check_plain, ends_in, heads_of, linears_of
from .save import origin_of_trained

__all__ = ["load_adapter", "save_adapter"]

LABELS = "labels.json"
"""File of the names of the classes in the directory of an adapter, which PEFT ignores."""
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
"""Supported values of settings, the default first. Others change more than the adapters, as the
initializations PiSSA and OLoRA change the weights below them.
"""


def _module_arrays(origin: Origin) -> dict[str, StoredArray]:
    """Return the arrays of a model by the names of the modules of transformers.

    The modules below a head have the prefix of the family, although some files lack it. A tied
    output projection, which has no array, is added.
    """
    names = origin.family.names_of_head(origin.head, _prefix(origin))
    arrays = {_module_name(origin, name): stored for name, stored in origin.arrays.items()}
    for path, target in names.items():
        if target == "output":
            name = _module_name(origin, f"{path}.weight")
            arrays.setdefault(name, StoredArray(("output.weight",)))
    return arrays


def _prefix(origin: Origin) -> str:
    return "" if origin.head == "none" else origin.family.prefix


def _module_name(origin: Origin, array: str) -> str:
    """Return the name in transformers of a parameter by its name in the file."""
    family, prefix = origin.family, _prefix(origin)
    bare, _, end = array.removeprefix(family.prefix).rpartition(".")
    names = family.names_of_head(origin.head, prefix)
    path = next((n for n in names if bare == n.removeprefix(family.prefix)), prefix + bare)
    for stored, name in family.modules.items():
        path = path.replace(stored, name)
    return f"{path}.{end}"


def _linears_by_path(model: Model, arrays: Mapping[str, StoredArray]) -> dict[str, dict[str, Any]]:
    """Return our layers, by name, in each linear layer of PEFT's model, by its path.

    Those of a classifier's head may also be norms.
    """
    linears = linears_of(model) | heads_of(model)
    end = ".weight"
    paths = {}
    for array, stored in arrays.items():
        names = [name.removesuffix(end) for name in stored.parameters]
        if array.endswith(end) and all(name in linears for name in names):
            paths[array.removesuffix(end)] = {name: linears[name] for name in names}
    return paths


def save_adapter(directory: str | Path, model: Model, base: str = "") -> None:
    """Write the adapters of a model as PEFT does: `adapter_model.safetensors` and its settings.

    Linear layers that are trained without an adapter, such as the head of a classifier, are written
    whole. So is a head with an adapter, which becomes part of its weights.

    Parameters
    ----------
    directory : str or Path
        A directory, which is made if it does not exist.
    model : Model
        A model with adapters, see `lora`.
    base : str
        Name or directory of the model without adapters, which PEFT's
        `AutoPeftModelForCausalLM.from_pretrained(directory)` loads.

    Raises
    ------
    ValueError
        The model has no adapters, or trains other parameters, which an adapter cannot contain.
    """
    head = heads_of(model).keys()
    adapters = [x for name, x in linears_of(model, LoRALinear).items() if name not in head]
    if not adapters:
        raise ValueError("model must have adapters outside of its head; nn.lora adds them")
    origin = getattr(model, "origin", None) or origin_of_trained(model)
    stored_arrays = _module_arrays(origin)
    paths = _linears_by_path(model, stored_arrays)
    kept = {name for parts in paths.values() for name in parts}
    if lost := linears_of(model, LoRALinear).keys() - kept:
        raise ValueError(
            "model must have adapters only on layers of its family, got one on "
            f"{listed(sorted(lost))}"
        )
    stored_names = {name for stored in origin.arrays.values() for name in stored.parameters}
    whole = {
        path: parts
        for path, parts in paths.items()
        if stored_names.issuperset(stored_arrays[f"{path}.weight"].parameters)
        and (head & parts.keys() or any(map(_is_trained, parts.values())))
    }
    _check_saved(model, whole)
    arrays: dict[str, np.ndarray] = {}
    ranks: dict[str, int] = {}
    alphas: dict[str, float] = {}
    for path, parts in paths.items():
        if path in whole:
            data: dict[str, np.ndarray] = {}
            for name, part in parts.items():
                part = part.merged() if isinstance(part, LoRALinear) else part
                data |= {f"{name}.{leaf}": p.data for leaf, p in part.named_parameters()}
            for name, stored in _arrays_of(stored_arrays, path).items():
                arrays[_STEM + name] = stored.join(data)
        elif any(isinstance(part, LoRALinear) for part in parts.values()):
            a, b, scale = _join_adapters(parts, stored_arrays[f"{path}.weight"])
            arrays |= zip(_names_of(_STEM + path), (a, b))
            ranks[path] = len(a)
            alphas[path] = scale * len(a)
    settings = _adapter_settings(origin, adapters[0], ranks, alphas, whole, base)
    labels = origin.settings.get("id2label")
    with replace_together(
        directory, "adapter_config.json", [("adapter_config.json", LABELS)]
    ) as part:
        write_safetensors(part / "adapter_model.safetensors", arrays, {"format": "pt"})
        write_json(part / "adapter_config.json", settings, 2)
        if head and labels:
            write_json(part / LABELS, {"id2label": labels}, 2)


def _is_trained(part: Linear) -> bool:
    """Return whether a linear layer is trained itself, rather than by an adapter."""
    return not isinstance(part, LoRALinear) and any(p.requires_grad for p in part.parameters())


def _names_of(path: str) -> tuple[str, str]:
    """Return the names of A and B of the adapter of a linear layer."""
    return f"{path}.lora_A.weight", f"{path}.lora_B.weight"


def _arrays_of(arrays: Mapping[str, StoredArray], path: str) -> dict[str, StoredArray]:
    """Return the weight and, if there is one, the bias of a linear layer."""
    names = (f"{path}.weight", f"{path}.bias")
    return {name: arrays[name] for name in names if name in arrays}


def _check_saved(model: Model, whole: Mapping[str, Mapping[str, Linear]]) -> None:
    """Raise a ValueError if a parameter is trained that the adapter does not contain."""
    saved = {
        id(p) for parts in whole.values() for part in parts.values() for p in part.parameters()
    }
    unsaved = [
        name
        for name, p in model.named_parameters()
        if p.requires_grad and ".lora_" not in name and id(p) not in saved
    ]
    if unsaved:
        raise ValueError(
            f"model must train only adapters, linear layers and a head, but it trains "
            f"{listed(unsaved)}; nn.save keeps all parameters"
        )


def _join_adapters(
    parts: Mapping[str, Linear], stored: StoredArray
) -> tuple[np.ndarray, np.ndarray, float]:
    """Return A, B and the scale of one adapter for the linear layers in one array.

    If all layers have the same A, as those of `load_adapter`, the result is that A. Otherwise their
    A are stacked, and their B are the blocks of a diagonal.
    """
    adapters = [part for part in parts.values() if isinstance(part, LoRALinear)]
    all_a = [part.lora_a.data for part in adapters]
    is_shared = len(all_a) == len(parts) and all(np.array_equal(a, all_a[0]) for a in all_a)
    a = all_a[0] if is_shared else np.concatenate(all_a)
    scale = next((part.scale for part in adapters if part.scale), 0.0)
    rows: dict[str, np.ndarray] = {}
    start = 0
    for name, part in parts.items():
        b = rows[f"{name}.weight"] = np.zeros((part.out_features, len(a)), a.dtype)
        if isinstance(part, LoRALinear):
            factor = part.scale / scale if scale else 1.0  # one scale is written for all
            b[:, start : start + part.rank] = part.lora_b.data * factor
            start += 0 if is_shared else part.rank
    return a, replace(stored, transposed=False).join(rows), scale


def _adapter_settings(
    origin: Origin,
    first: LoRALinear,
    ranks: Mapping[str, int],
    alphas: Mapping[str, float],
    whole: Iterable[str],
    base: str,
) -> dict[str, Any]:
    tasks = {"classes": "SEQ_CLS", "tokens": "TOKEN_CLS", "none": "FEATURE_EXTRACTION", "mlm": None}
    is_translator = isinstance(origin.family, EncoderDecoder)
    task = tasks.get(origin.head, "SEQ_2_SEQ_LM" if is_translator else "CAUSAL_LM")
    alpha = first.scale * first.rank
    inside = origin.family.prefix  # a pooler in the encoder has its whole path
    is_inside = lambda path: origin.head == "none" or path.startswith(inside)
    modules = {path if is_inside(path) else path.partition(".")[0] for path in whole}
    return {
        "peft_type": "LORA", "task_type": task, "base_model_name_or_path": base, "r": first.rank,
        "lora_alpha": alpha, "lora_dropout": first.dropout, "target_modules": sorted(ranks),
        "rank_pattern": {path: rank for path, rank in ranks.items() if rank != first.rank},
        "alpha_pattern": {path: value for path, value in alphas.items() if value != alpha},
        "fan_in_fan_out": any(x.transposed for x in origin.arrays.values()), "bias": "none",
        "modules_to_save": sorted(modules) or None,
    }  # fmt: skip


def load_adapter(directory: str | Path, model: Model) -> Model:
    r"""Return the model, with the adapters of a directory added in place.

    Only the adapters, linear layers that the directory has whole, and the head of a classifier are
    trained afterwards.

    A key of `rank_pattern` and `alpha_pattern` is the end of a layer's name, or a regular
    expression for it. Since matching could take exponential time, an expression may only contain
    characters, ".", r"\.", r"\d", ranges such as "[0-9]", at most two of "*" and "+", and at most
    two groups such as "(q_proj|v_proj)".

    Parameters
    ----------
    directory : str or Path
        With `adapter_config.json` and `adapter_model.safetensors` of PEFT or `save_adapter`.
    model : Model
        The model that the adapters were trained with, without adapters.

    Raises
    ------
    ValueError, OSError
        The directory does not fit the model, which is left unchanged.
    """
    with read_together(directory, "adapter_config.json") as directory:
        return _load_adapter(directory, model)


def _load_adapter(directory: Path, model: Model) -> Model:
    settings = read_json(
        directory / "adapter_config.json",
        "expected a directory with adapter_config.json and adapter_model.safetensors",
    )
    settings.text("peft_type", choices=["LORA"])
    expect_values(settings, _SUPPORTED)
    if (dropout := settings.number("lora_dropout", 0.0, 0)) >= 1:
        settings.fail("lora_dropout", "less than 1")
    check_plain(model)
    file = SafetensorsFile(directory / "adapter_model.safetensors")
    stem = _STEM if any(name.startswith(_STEM) for name in file) else ""
    origin = getattr(model, "origin", None) or origin_of_trained(model)
    arrays = _named_arrays(origin, stem, file)
    paths = _linears_by_path(model, arrays)
    parameters = dict(model.named_parameters())
    stored_names = {name for stored in origin.arrays.values() for name in stored.parameters}
    for name, linear in linears_of(model).items():
        parameters.setdefault(f"{name}.weight", linear.weight)  # that of a tied layer
    sizes = {name: parameter.shape for name, parameter in parameters.items()}
    adapted = [path for path in paths if file.keys() & _names_of(stem + path)]
    alpha = settings.number("lora_alpha", 8, 0, 1e30)
    ranks = _by_path(settings, "rank_pattern", paths, settings.integer("r"), Settings.integer)
    alphas = _by_path(
        settings, "alpha_pattern", paths, alpha, partial(Settings.number, low=0, high=1e30)
    )
    saved = settings.list("modules_to_save", str, None) or ()
    whole: dict[str, StoredArray] = {}
    for path in paths:
        own = _arrays_of(arrays, path)
        is_saved = any(f".{part}." in f".{path}." for part in saved)
        is_stored = stored_names.issuperset(arrays[f"{path}.weight"].parameters)
        if is_stored and (is_saved or any(stem + name in file for name in own)):
            whole |= own
    without_effect = {_module_name(origin, name).removesuffix(".weight") for name in origin.unused}
    others = {*without_effect, *(path for path in paths if f"{path}.weight" in whole)}
    _check_targets(settings, adapted, others, file)
    for path in adapted:  # PEFT writes the weight of an output projection below its adapter
        base = f"{path}.base_layer.weight"
        if stem + base in file:
            whole[base] = arrays[f"{path}.weight"]
    shapes = {stem + name: stored.shape(sizes) for name, stored in whole.items()}
    weights = {path: replace(arrays[f"{path}.weight"], transposed=False) for path in adapted}
    for path, weight in weights.items():
        out_features, in_features = weight.shape(sizes)
        rank = ranks[path]
        shapes |= zip(_names_of(stem + path), ((rank, in_features), (out_features, rank)))
    check_arrays(
        f"{file.path}: the arrays do not fit adapter_config.json",
        file,
        shapes,
        missing=shapes.keys() - file.keys(),
        unknown=file.keys()
        - shapes.keys()
        - {name for path in without_effect for name in _names_of(stem + path)},
    )
    data = {name.removeprefix(stem): file.read(name) for name in shapes}
    for name, array in data.items():
        if wrong := misfit(stem + name, array, np.dtype(model.config.dtype)):
            raise ValueError(f"{file.path}: {wrong}")
    adapters: dict[str, LoRALinear] = {}
    has_root = settings.flag("use_rslora", False)
    for path in adapted:
        a, b = (data[name] for name in _names_of(path))
        scale = alphas[path] / (math.sqrt(len(a)) if has_root else len(a))
        rows = weights[path].split(b, sizes)
        for name, layer in paths[path].items():
            with init.skipped():
                adapters[name] = LoRALinear(layer, len(a), scale, dropout=dropout)
            adapters[name].lora_a.data[...] = a
            adapters[name].lora_b.data[...] = rows[f"{name}.weight"]
    adapt(model, adapters)
    for name, stored in whole.items():
        for parameter, array in stored.split(data[name], sizes).items():
            parameters[parameter].data[...] = array
            parameters[parameter].requires_grad_(".base_layer." not in name)
    return model


def _named_arrays(origin: Origin, stem: str, file: SafetensorsFile) -> dict[str, StoredArray]:
    """Return the arrays of a model by the names of the file.

    An adapter may be of a model without head, or have the names of files.
    """
    arrays = _module_arrays(origin)
    prefix = origin.family.prefix
    bare = {name.removeprefix(prefix): stored for name, stored in arrays.items()}
    for named in (arrays, bare, origin.arrays):
        if any(file.keys() & _names_of(stem + name.removesuffix(".weight")) for name in named):
            return named
    return arrays


def _check_targets(
    settings: Settings, adapted: Collection[str], others: Collection[str], file: SafetensorsFile
) -> None:
    """Raise a ValueError unless `target_modules` lists the linear layers with adapters.

    It may also list `others`, which are saved whole or not used, and those of `exclude_modules`, to
    which PEFT adds no adapters.
    """
    if not adapted:
        layers = {name.removesuffix(".lora_A.weight") for name in file if "lora_A" in name}
        raise ValueError(
            f"{file.path} must have adapters for linear layers of the model, got adapters for "
            f"{listed(layers, 3) or 'no layer'}; load the model with the head that the adapter was "
            "trained with, as nn.load(directory, head=..., num_classes=...)"
        )
    if isinstance(settings.take("target_modules", str | list, None), list):
        targets = settings.list("target_modules", str)
        needed = [] if settings.get("exclude_modules") else targets
        wrong = [t for t in needed if not any(ends_in(path, [t]) for path in (*adapted, *others))]
        wrong += [path for path in adapted if not ends_in(path, targets)]
        if wrong:
            raise ValueError(
                f"{settings.where}: target_modules must list the layers with adapters in "
                f"{file.path}, but not so {listed(wrong)}"
            )


def _by_path(
    settings: Settings, key: str, paths: Collection[str], default: Any, read: Callable[..., Any]
) -> dict[str, Any]:
    """Return a value for each path: that of the first pattern that matches it, or the default."""
    values = settings.object(key, {})
    patterns: dict[re.Pattern[str], Any] = {}
    if len(values) > len(paths):
        raise ValueError(
            f"{values.where} must have at most {len(paths)} entries, one for each linear layer of "
            f"the model, got {len(values):,}"
        )
    for pattern in values:
        if not _is_simple(pattern):
            raise ValueError(
                f"{values.where}: '{printable(pattern)}' must be a name or a simpler regular "
                "expression; write an entry for each layer"
            )
        try:
            expression = re.compile(rf"(.*\.)?({pattern})")
        except re.error as error:
            raise ValueError(
                f"{values.where}: '{printable(pattern)}' must be a regular expression ({error})"
            ) from None
        patterns[expression] = read(values, pattern)
    return {
        path: next((v for pattern, v in patterns.items() if pattern.fullmatch(path)), default)
        for path in paths
    }


def _is_simple(pattern: str) -> bool:
    """Return whether matching a regular expression takes polynomial time of low degree."""
    atom = r"(?:[\w.-]|\\[.d]|\[[\w.-]+\])[*+]?"
    names = r"\(\w+(?:\|\w+)*\)"
    return (
        len(pattern) <= 1000
        and re.fullmatch(rf"\^?(?:{atom}|{names})*\$?", pattern) is not None
        and len(re.findall(r"[*+]", pattern)) <= 2
        and pattern.count("(") <= 2
    )
