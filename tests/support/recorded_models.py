"""Outputs of transformers for the models of `MODELS`, and its defaults, recorded in a file.

They are the reference of fast tests, which need neither PyTorch nor transformers. The weights of a
recorded model are drawn by `arrays_named`, from the names and shapes of its arrays.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

PATH = Path(__file__).with_name("recorded_models.json")
Shapes = Mapping[str, tuple[int, ...]]
NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")  # of a layer


def recorded() -> dict[str, dict[str, Any]]:
    """Return `models`, with `settings`, `arrays` and `outputs`, `defaults` of families, and names.

    The names are those in transformers by those in GGUF files, by `gguf` and architecture.
    """
    return json.loads(PATH.read_text(encoding="utf-8"))


def arrays_named(shapes: Shapes) -> dict[str, np.ndarray]:
    """Return arrays with values that depend on their names alone."""
    arrays = {}
    for name, shape in shapes.items():
        x = np.random.default_rng(zlib.crc32(name.encode())).standard_normal(shape)
        arrays[name] = np.float32(0.3 * x if len(shape) > 1 else 0.5 + 0.1 * x)
    return arrays


def projected(outputs: np.ndarray) -> list[float]:
    """Return a product of each row of outputs and one vector, with five digits."""
    width = outputs.shape[-1]
    vector = np.cos(np.arange(width)) / np.sqrt(width)
    return [float(f"{x:.5g}") for x in (outputs.astype(float) @ vector).ravel()]


def packed(shapes: Shapes) -> dict[str, list[Any]]:
    """Return shapes by names without numbers, each with the numbers of all names."""
    entries: dict[str, list[Any]] = {}
    for name, shape in shapes.items():
        entry = entries.setdefault(NUMBER.sub("#", name), [[*shape], []])
        assert entry[0] == [*shape]
        entry[1].append([*map(int, NUMBER.findall(name))])
    return entries


def unpacked(entries: Mapping[str, list[Any]]) -> dict[str, tuple[int, ...]]:
    """Return the shapes by names from which `packed` made the entries."""
    return {
        name.replace("#", "{}").format(*numbers): tuple(shape)
        for name, (shape, places) in entries.items()
        for numbers in places
    }
