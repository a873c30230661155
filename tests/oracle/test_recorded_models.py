"""Recorded outputs and defaults are equal to those of transformers.

After `MODELS` has changed, `PYTHONPATH=tests python tests/oracle/test_recorded_models.py` records
them again.
"""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from support.environment import needs
from support.published import load_theirs, make, outputs, read_settings, settings_of, transformers
from support.published_settings import MODELS
from support.recorded_models import (
    NUMBER,
    PATH,
    arrays_named,
    packed,
    projected,
    recorded,
    unpacked,
)

import nn
from minigrad.io.safetensors import SafetensorsFile, write_safetensors
from nn.published.gguf import ARCHITECTURES
from nn.published.load import FAMILIES

pytestmark = pytest.mark.filterwarnings("ignore")


def record(name: str, path: Path) -> dict[str, Any]:
    """Return the record of a model."""
    model = make(name, path)
    file = SafetensorsFile(path / "model.safetensors")
    shapes = {array: file.read(array).shape for array in file}
    write_safetensors(path / "model.safetensors", arrays_named(shapes), {"format": "pt"})
    found, _, is_real = outputs(load_theirs(type(model), path), nn.load(path))
    settings = read_settings(path)
    del settings["transformers_version"]
    rows = found.detach().numpy()[is_real]
    return {"settings": settings, "arrays": packed(shapes), "outputs": projected(rows)}


def defaults_of(model_type: str) -> dict[str, Any]:
    """Return all settings of a configuration class without arguments."""
    settings = settings_of(transformers.CONFIG_MAPPING[model_type]())
    return {key: value for key, value in settings.items() if key != "transformers_version"}


@pytest.mark.parametrize("name", MODELS)
def test_recorded_model_is_one_of_transformers(tmp_path: Path, name: str) -> None:
    found, expected = recorded()["models"][name], record(name, tmp_path)
    np.testing.assert_allclose(found.pop("outputs"), expected.pop("outputs"), 2e-4, 2e-4)
    assert found == json.loads(json.dumps(expected))


def test_recorded_defaults_are_those_of_transformers() -> None:
    assert recorded()["defaults"] == {name: defaults_of(name) for name in FAMILIES}


def gguf_names(architecture: str) -> dict[str, str]:
    """Return the names of arrays in transformers by those in GGUF files, as the package has them.

    Only those of the first layer, without heads and "model.".
    """
    gguf = needs("gguf")
    known = {name: key for key, name in gguf.MODEL_ARCH_NAMES.items()}
    model_type = ARCHITECTURES[architecture].model_type
    names = gguf.get_tensor_name_map(known.get(architecture, gguf.MODEL_ARCH.LLAMA), 9)
    arrays = {
        array
        for name, entry in recorded()["models"].items()
        if name.partition(",")[0] == model_type
        for array in unpacked(entry["arrays"])
    }
    found = {
        names.get_name(name, (".weight", ".bias")): name
        for name in sorted(arrays, key=len)
        if {*NUMBER.findall(name)} <= {"0"}
    }
    return {
        stored: name.removeprefix("model.")
        for stored, name in found.items()
        if stored is not None and not stored.startswith("cls.")
    }


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_recorded_names_of_gguf_files_are_those_of_the_package(architecture: str) -> None:
    assert recorded()["gguf"][architecture] == gguf_names(architecture)


def write() -> None:
    """Record all models, one a line."""
    models = {}
    for name in MODELS:
        with TemporaryDirectory() as path:
            models[name] = record(name, Path(path))
    parts = {
        "models": models,
        "defaults": {name: defaults_of(name) for name in FAMILIES},
        "gguf": {name: gguf_names(name) for name in ARCHITECTURES},
    }
    lines = [
        f"{json.dumps(part)}: {{\n"
        + ",\n".join(f"{json.dumps(name)}: {json.dumps(entry)}" for name, entry in entries.items())
        + "\n}"
        for part, entries in parts.items()
    ]
    PATH.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    write()
