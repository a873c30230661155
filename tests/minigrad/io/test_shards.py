"""Weights of a directory in one file or in shards, and directories whose index is wrong."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minigrad.io.atomic import replace_together
from minigrad.io.json import write_json
from minigrad.io.safetensors import (
    INDEX,
    WEIGHT_FILES,
    WHOLE,
    SafetensorsFile,
    SafetensorsFolder,
    _bytes,
    write_safetensors,
    write_shards,
)

RNG = np.random.default_rng(0)
ARRAYS: dict[str, np.ndarray] = {
    f"a.{n}": RNG.standard_normal((n, 5)).astype(np.float32) for n in range(1, 9)
}
ARRAYS["count"] = np.arange(40)


@pytest.mark.parametrize("dtype", [None, "bfloat16"])
@pytest.mark.parametrize("most, limit", [(1, 1), ("1KB", 1000), ("5GB", 5 * 10**9)])
def test_write_shards_keeps_maximum_size_and_arrays(
    tmp_path: Path, most: Any, limit: int, dtype: str | None
) -> None:
    write_shards(tmp_path, ARRAYS, dtype, most)
    write_safetensors(tmp_path / "expected", ARRAYS, None, dtype)
    folder, expected = SafetensorsFolder(tmp_path), SafetensorsFile(tmp_path / "expected")
    for name in ARRAYS:
        np.testing.assert_array_equal(folder.array(name), expected.read(name))
    files = [SafetensorsFile(path) for path in tmp_path.glob("model*.safetensors")]
    sizes = [sum(entry.end - entry.start for entry in file.values()) for file in files]
    assert all(size <= limit or len(file) == 1 for size, file in zip(sizes, files))
    assert (len(files) == 1) == (sum(sizes) <= limit)
    if len(files) > 1:
        assert json.loads(folder.where.read_text())["metadata"] == {"total_size": sum(sizes)}


def test_replaced_shards_leave_no_old_shards(tmp_path: Path) -> None:
    for most, shards in ((1, 9), (10**6, 0), (300, 4), (1, 9)):
        with replace_together(tmp_path, "config.json", [WEIGHT_FILES]) as part:
            write_shards(part, ARRAYS, None, most)
            write_json(part / "config.json", {})
        assert SafetensorsFolder(tmp_path).keys() == ARRAYS.keys()
        assert len(list(tmp_path.glob("model-*"))) == shards


@pytest.mark.parametrize("size", [0, 1.5, "5 gigs", "-5GB"])
def test_write_shards_of_invalid_size_raises(tmp_path: Path, size: Any) -> None:
    message = 'max_shard_size must be a number of bytes or a string such as "5GB", got'
    with pytest.raises(ValueError, match=message):
        write_shards(tmp_path, ARRAYS, None, size)


def test_folder_without_weights_raises(tmp_path: Path) -> None:
    message = f"^{tmp_path / WHOLE}: no such file; expected a model"
    with pytest.raises(FileNotFoundError, match=message):
        SafetensorsFolder(tmp_path, "expected a model")
    for other in ("model.pt", "flax_model.msgpack", "tf_model.h5", "m.gguf", "a.bin"):
        (tmp_path / other).write_bytes(b"\x80\x02.")
        message = rf"^{tmp_path}: {other} is not read, .* \(a pickle can run any code\)"
        with pytest.raises(ValueError, match=message):
            SafetensorsFolder(tmp_path)
        (tmp_path / other).unlink()


FIRST, LAST = "model-00001-of-00004.safetensors", "model-00004-of-00004.safetensors"


@pytest.mark.parametrize(
    "name, file, error, message",
    [
        ("b", FIRST, ValueError, "the files of weight_map must contain its arrays, but lack b"),
        ("a.1", LAST, ValueError, "the files of weight_map must contain its arrays, but lack a.1"),
        ("a.1", None, ValueError, "weight_map must contain all arrays of its files, but lacks a.1"),
        *(
            ("a.1", name, ValueError, "weight_map must be names of files of this directory, got '")
            for name in ("../x", "a\nb", "x" * 256, "", ".", "..", "/x", "x/")
        ),
        ("a.1", "x" * 255, FileNotFoundError, f"no such file; {INDEX} lists it as a file"),
        ("a.1", "x.safetensors", FileNotFoundError, f"no such file; {INDEX} lists it as a file"),
    ],
)
def test_folder_with_index_that_differs_from_its_files_raises(
    tmp_path: Path, name: str, file: Any, error: type[Exception], message: str
) -> None:
    """`file` is where the index says that an array is; None = the array is left out."""
    write_shards(tmp_path, ARRAYS, None, 300)
    index = json.loads((tmp_path / INDEX).read_text())["weight_map"]
    assert (index["a.1"], index["count"]) == (FIRST, LAST)
    index[name] = file
    if file is None:
        del index[name]
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": index}))
    with pytest.raises(error, match=f"^{tmp_path}/.*: {message}"):
        SafetensorsFolder(tmp_path)


EMPTY = {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}
places = st.tuples(st.sampled_from(["12", "1", "2", ""]), st.sampled_from(["1", "2", ""]))


@given(st.fixed_dictionaries({"a": places, "b": places}))
def test_index_must_list_each_array_of_its_files_once(
    tmp_path_factory: pytest.TempPathFactory, arrays: dict[str, tuple[str, str]]
) -> None:
    """Each array is in files, and is listed in a file or not at all."""
    path, index = tmp_path_factory.getbasetemp(), {n: f for n, (_, f) in arrays.items() if f}
    for file in "12":
        text = json.dumps({n: EMPTY for n, (files, _) in arrays.items() if file in files}).encode()
        (path / file).write_bytes(struct.pack("<Q", len(text)) + text)
    (path / INDEX).write_text(json.dumps({"weight_map": index or {"c": "1"}}))
    if index and all((index.get(n) == f) == (f in arrays[n][0]) for n in arrays for f in index.values()):  # fmt: skip
        assert SafetensorsFolder(path).keys() == index.keys()
    else:
        with pytest.raises(ValueError, match=f"{INDEX}: .* but lacks? "):
            SafetensorsFolder(path)


def test_shards_have_exactly_their_largest_size(tmp_path: Path) -> None:
    arrays = {name: np.ones(10, np.float32) for name in "abc"}
    for most, counts in {
        120: [3],
        119: [2, 1],
        80: [2, 1],
        79: [1, 1, 1],
        40: [1, 1, 1],
        39: [1, 1, 1],
    }.items():
        path = tmp_path / str(most)
        path.mkdir()
        write_shards(path, arrays, None, most)
        files = sorted(path.glob("*.safetensors"))
        assert [len(SafetensorsFile(file)) for file in files] == counts
    write_shards(tmp_path, arrays, "float16", 60)  # the size in the file counts
    assert (tmp_path / WHOLE).is_file() and not (tmp_path / INDEX).exists()


def test_whole_file_wins_over_an_index_and_other_formats(tmp_path: Path) -> None:
    write_shards(tmp_path, {"a": np.ones(2), "b": np.zeros(2)}, None, 1)
    write_safetensors(tmp_path / WHOLE, {"c": np.ones(1)})
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    folder = SafetensorsFolder(tmp_path)
    assert [*folder] == ["c"] and folder.where == tmp_path / WHOLE
    assert folder.checked("c", np.dtype(np.float32)).dtype == np.float32


def test_sizes_have_decimal_units() -> None:
    sizes = {"5KB": 5 * 10**3, "12MB": 12 * 10**6, "2GB": 2 * 10**9, 1: 1, 7: 7}
    assert {size: _bytes(size) for size in sizes} == sizes
    for wrong in (True, 0, "0MB", "MB", "5gb", "5 GB", "1.5GB", -1, None):
        with pytest.raises(ValueError, match="max_shard_size must be a number of bytes"):
            _bytes(wrong)  # type: ignore[arg-type]
