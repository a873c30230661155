"""Models in files: weights, and class and settings as plain data."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from minigrad.arguments import check_choice
from minigrad.io import load_arrays, save_arrays
from minigrad.io.safetensors import misfit

from .. import init
from ..models import LanguageModel, Model, Transformer
from ..module import Module
from ..options.config import (
    DecoderOnlyConfig,
    EncoderConfig,
    EncoderDecoderConfig,
    ExtendedConfig,
    check_sizes,
    extended,
)
from ..options.encoder import EncoderClassifier, EncoderModel, MaskedLanguageModel, TokenClassifier

__all__ = ["load_run", "load_weights", "save_weights"]

KINDS: dict[str, tuple[type[Model], type[ExtendedConfig]]] = {
    "Transformer": (Transformer, EncoderDecoderConfig),
    "LanguageModel": (LanguageModel, DecoderOnlyConfig),
    **{kind.__name__: (kind, EncoderConfig)
       for kind in (EncoderModel, EncoderClassifier, TokenClassifier, MaskedLanguageModel)},
}  # fmt: skip


def model_to_dict(model: Model) -> dict[str, Any]:
    """Return the class and the settings of a model as plain data, for JSON."""
    kinds = [name for name, (kind, _) in KINDS.items() if isinstance(model, kind)]
    if not kinds:
        raise TypeError(f"model must be one of {', '.join(KINDS)}, got {type(model).__name__}")
    return {"model": kinds[-1], **extended(model.config).to_dict()}


def config_from_dict(data: Mapping[str, Any], where: str) -> tuple[type[Model], ExtendedConfig]:
    """Return class and configuration of the model that `model_to_dict` described."""
    settings = dict(data)
    name = settings.pop("model", None)
    check_choice(where, "model", name, *KINDS)
    kind, config = KINDS[name]
    return kind, config.from_dict(settings, where)


MAY_DIFFER = ("dropout", "attention.dropout", "activation_dropout", "head_dropout", "dtype")
"""Settings that need not be those that the weights were made with."""


def save_weights(path: str | Path, model: Module, **metadata: Any) -> None:
    """Write the state of a module to a safetensors file, atomically.

    Parameters
    ----------
    path : str or Path
        The file, which is replaced if it exists.
    model : Module
        Any module. The settings of a model of `nn` are written too, so that `load_run` can build
        it.
    **metadata
        Plain data to be kept beside the weights; `load_weights` returns them.
    """
    settings = settings_of(model)
    save_arrays(path, model.state_dict(), metadata | ({"model": settings} if settings else {}))


def load_weights(path: str | Path, model: Module) -> dict[str, Any]:
    """Read the state of a module from a file.

    Parameters
    ----------
    path : str or Path
        A file of `save_weights`, or the last state of a `Trainer`.
    model : Module
        Its dropout and dtype may differ from those that the weights were made with, and its
        `max_len` may be larger.

    Returns
    -------
    dict
        The metadata given to `save_weights`.

    Raises
    ------
    ValueError
        The weights are those of another model; see also `fit_weights`.
    """
    arrays, made_with, metadata = _read(path)
    if differ := differing(settings_of(model), made_with):
        raise ValueError(f"{path}: the weights of another model: this one has {differ}")
    fit_weights(model, arrays, path)
    return metadata


def _read(
    path: str | Path, mmap: bool = False
) -> tuple[dict[str, np.ndarray], Any, dict[str, Any]]:
    """Return the arrays of the model in a file, its settings (or None), and other metadata."""
    arrays, metadata = load_arrays(path, mmap)
    made_with = metadata.pop("model", None)
    if isinstance(state := metadata.get("trainer"), dict):  # beside the arrays of the optimizer
        made_with = state.get("model")
        names = [name for name in arrays if name.startswith("model.")]
        arrays = {name.removeprefix("model."): arrays[name] for name in names}
    return arrays, made_with, metadata


def settings_of(model: Module) -> dict[str, Any] | None:
    """Return the settings of a model as in JSON, or None if it is not a model of `nn`."""
    try:
        return dict(json.loads(json.dumps(model_to_dict(model))))  # type: ignore[arg-type]
    except TypeError:
        return None


def differing(
    settings: Mapping[str, Any] | None, made_with: Any, free: Sequence[str] = MAY_DIFFER
) -> str:
    """List the settings that differ from those of the model in a file; "" if none differ."""
    if settings is None or not isinstance(made_with, dict):
        return ""
    flatten = KINDS[settings["model"]][1].flatten
    made_with = flatten({"model": settings["model"], **made_with})
    settings = flatten(settings)
    before = made_with.get("max_len")
    if isinstance(before, int) and settings.get("max_len", 0) >= before:
        free = (*free, "max_len")
    return ", ".join(
        f"{name}={settings[name]!r:.60} (expected {made_with[name]!r:.60})"
        for name in settings
        if name in made_with and settings[name] != made_with[name] and name not in free
    )


def fit_weights(model: Module, arrays: Mapping[str, np.ndarray], path: str | Path) -> None:
    """Copy arrays into the parameters and buffers of their names."""
    state = model.state_dict()
    wrong = [misfit(name, arrays[name], state[name].dtype) for name in state if name in arrays]
    if wrong := list(filter(None, wrong)):
        more = f"; and {len(wrong) - 5} more" if wrong[5:] else ""
        raise ValueError(f"{path}: {'; '.join(wrong[:5])}{more}")
    try:
        model.load_state_dict(arrays)
    except KeyError as error:
        raise ValueError(f"{path}: {error.args[0]}") from None


def load_model(data: Any, where: str, path: str | Path | None) -> Any:
    """Return the model of plain data, with the weights in `path`, or drawn weights without it."""
    if not isinstance(data, dict):
        raise ValueError(f"{where} must be an object of settings, got {data!r:.60}")
    arrays, made_with, _ = ({}, None, {}) if path is None else _read(path, mmap=True)
    try:
        kind, config = config_from_dict(data, where)
        if path is not None:
            shapes = {name: array.shape for name, array in arrays.items()}
            check_sizes(config, shapes, Path(path).name)
        with init.skipped(skip=path is not None):
            model = kind(config)
    except (ArithmeticError, LookupError, MemoryError, TypeError, ValueError) as error:
        text = str(error.args[0]) if error.args else type(error).__name__
        raise ValueError(text if text.startswith(where) else f"{where}: {text}") from None
    if differ := differing(settings_of(model), made_with):
        raise ValueError(f"{where}: changed since {path} was written: {differ}")
    if path is not None:
        load_weights(path, model)
    return model


def load_run(path: str | Path) -> Any:
    """Return the model of a run directory, with its best weights and in evaluation mode.

    Parameters
    ----------
    path : str or Path
        A run directory, or a file of `save_weights`.

    Raises
    ------
    ValueError
        The file does not contain the settings of a model of `nn`. For other modules, build one and
        use `load_weights`.
    """
    path = Path(path)
    path = path / "best.safetensors" if path.is_dir() else path
    _, settings, _ = _read(path, mmap=True)
    if settings is None:
        raise ValueError(
            f"{path} must contain the settings of a model of nn, got weights alone; build the "
            "module, and call load_weights"
        )
    return load_model(settings, str(path), path).eval()
