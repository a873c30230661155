"""Copies of mapped arrays: the same values, without the pages of the file in memory."""

from __future__ import annotations

import re
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import nn
from minigrad.io import mapped
from minigrad.io.safetensors import SafetensorsFolder, write_safetensors


def mapped_array(directory: Path, array: np.ndarray) -> np.ndarray:
    """Write an array to a file, and return a view of the file."""
    write_safetensors(directory / "model.safetensors", {"w": array})
    return SafetensorsFolder(directory).array("w")


def random_array(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("shape", [(), (0, 3), (700, 300), (3, 500, 7)])
@pytest.mark.parametrize("block", [1, 5000, 1 << 24])
def test_copy_and_release_returns_equal_values_in_same_order(
    shape: tuple[int, ...], block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mapped, "_BLOCK", block)
    values = random_array(*shape).T
    copy = mapped.copy_and_release(mapped_array(tmp_path, values.T).T)
    assert copy.flags.owndata and copy.strides == values.strides
    assert_array_equal(copy, values)


def test_copy_and_release_keeps_pages_that_were_written(tmp_path: Path) -> None:
    values = random_array(1000, 300)
    array = mapped_array(tmp_path, values)
    array[500, 7] = values[500, 7] = 5
    assert_array_equal(mapped.copy_and_release(array), values)
    assert_array_equal(array, values)


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
def test_for_inference_leaves_weights_of_loaded_model_in_memory_once(tmp_path: Path) -> None:
    config = nn.LanguageModelConfig(1000, 256, 4, 1, 1024, max_len=16)
    nn.save(tmp_path, nn.LanguageModel(config, np.random.default_rng(0)))
    model = nn.load(tmp_path)
    nn.for_inference(model)
    file = tmp_path / "model.safetensors"
    sizes = re.findall(rf"{file}\n(?:.*\n)*?Rss: +(\d+) kB", Path("/proc/self/smaps").read_text())
    # a page is mapped with its neighbors
    assert sizes and 1024 * sum(map(int, sizes)) < 0.2 * file.stat().st_size


def test_for_inference_allocates_each_weight_once() -> None:
    """Give the embeddings, which are also the output layer, another layout only once."""
    model = nn.LanguageModel(nn.LanguageModelConfig(8000, 128, 4, 1, 512, max_len=16))
    size = sum(p.data.nbytes for p in model.parameters())
    tracemalloc.start()
    copy = nn.for_inference(model)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert sum(p.data.nbytes for p in copy.parameters()) == size and peak < 1.1 * size
