"""Loaded models beside outputs and defaults of transformers that were recorded in a file."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.published_settings import MODELS, draw_target, inputs_of
from support.recorded_models import arrays_named, projected, recorded, unpacked

import nn
from minigrad.io.json import Settings, read_json
from minigrad.io.safetensors import write_safetensors
from nn.published.load import FAMILIES, family_of, read_config

RECORDED = recorded()


@pytest.mark.parametrize("name", MODELS)
def test_loaded_model_has_outputs_of_transformers_and_is_saved_again(
    tmp_path: Path, name: str
) -> None:
    entry = RECORDED["models"][name]
    (tmp_path / "config.json").write_text(json.dumps(entry["settings"]))
    weights = tmp_path / "model.safetensors"
    write_safetensors(weights, arrays_named(unpacked(entry["arrays"])), {"format": "pt"})
    model = nn.load(tmp_path)
    x, mask = inputs_of(entry["settings"]["model_type"])
    if isinstance(model, nn.Transformer):
        target = draw_target()
        found, is_real = model(x, target, mask).data, np.ones(target.shape, bool)
    else:
        architecture = entry["settings"]["architectures"][0]
        is_bare = architecture.endswith("Model") and "Head" not in architecture
        found = (model.hidden if is_bare else model)(x, None if mask.all() else mask).data
        is_real = mask if found.ndim == 3 else np.ones(3, bool)
    np.testing.assert_allclose(projected(found[is_real]), entry["outputs"], 2e-4, 2e-4)
    nn.save(tmp_path / "again", model)
    assert (tmp_path / "again" / weights.name).read_bytes() == weights.read_bytes()
    files = [read_json(path / "config.json") for path in (tmp_path / "again", tmp_path)]
    again, first = (read_config(file, family_of(file)) for file in files)
    assert again == first


@pytest.mark.parametrize("name", FAMILIES)
def test_read_config_without_defaults_equals_config_with_defaults(name: str) -> None:
    """Keys that must not be missing are read as all settings of the class of transformers are."""
    default, sizes = RECORDED["defaults"][name], {"model_type": name}

    def effective(settings: dict[str, Any]) -> Any:
        return read_config(Settings(settings, "config.json"), FAMILIES[name]).effective()

    expected = effective(default)
    while True:
        try:
            assert effective(sizes) == expected
            return
        except ValueError as error:
            (key,) = re.findall(r"config.json: (\w+) is missing", str(error))
            sizes[key] = default[key]
