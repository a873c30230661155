"""Safetensors files beside the reference library: the same bytes, and the same files are refused."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest
from support.environment import needs

from minigrad.io.safetensors import SafetensorsFile, write_safetensors

safetensors = needs("safetensors")
reference = needs("safetensors.numpy")

DTYPES = ("?", "u1", "i1", "<u2", "<i2", "<f2", "<u4", "<i4", "<f4", "<u8", "<i8", "<f8", "<c8")
WRONG = [
    0,
    4,
    -1,
    8.0,
    2**62,
    2**64,
    None,
    True,
    "F32",
    "U8",
    [],
    [1, 2],
    [0, 0],
    {},
    [2**40, 2**40],
    [None],
]


def random_arrays(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Return arrays of random names, shapes and dtypes."""
    arrays = {}
    for i in range(int(rng.integers(1, 7))):
        values = rng.integers(0, 100, rng.integers(0, 4, int(rng.integers(0, 4))).tolist())
        name = f"layer.{i}.wéight" + '"' * (i % 3 == 0)
        arrays[name] = np.asarray(values).astype(DTYPES[rng.integers(len(DTYPES))])
    return arrays


@pytest.mark.parametrize("metadata", [{"format": "pt"}, {}])
@pytest.mark.parametrize("seed", range(5))
def test_write_safetensors_gives_bytes_of_reference(
    tmp_path: Path, seed: int, metadata: dict[str, str]
) -> None:
    arrays = random_arrays(np.random.default_rng(seed))
    write_safetensors(tmp_path / "ours", arrays, metadata)
    assert (tmp_path / "ours").read_bytes() == reference.save(arrays, metadata or None)
    file = SafetensorsFile(tmp_path / "ours")
    assert file.metadata == metadata
    for name, array in arrays.items():
        for read in (file.read, file.map):
            np.testing.assert_array_equal(read(name), array)


def damaged(rng: np.random.Generator, data: bytes) -> bytes:
    """Return the file with another byte, length, or entry of its header."""
    length, index = struct.unpack("<Q", data[:8])[0], int(rng.integers(len(data)))
    kind = rng.integers(4)
    if kind == 0:
        return data[:index] + rng.bytes(1) + data[index + 1 :]
    if kind == 1:
        return data[:index] if rng.random() < 0.5 else data + bytes(index)
    header = json.loads(data[8 : 8 + length])
    entries = [entry for name, entry in header.items() if name != "__metadata__"]
    if kind == 2:  # unused bytes before all arrays
        for entry in entries:
            entry["data_offsets"] = [4 + i for i in entry["data_offsets"]]
        data += bytes(4)
    else:
        key = rng.choice(["dtype", "shape", "data_offsets"])
        entries[rng.integers(len(entries))][key] = WRONG[rng.integers(len(WRONG))]
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data[8 + length :]


def shapes_by_reference(path: Path) -> dict[str, tuple[int, ...]] | None:
    """Return the shapes of a file by the reference library, or None if it refuses the file."""
    try:
        with safetensors.safe_open(str(path), "numpy") as file:
            return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    except Exception:  # of several types
        return None


def test_damaged_safetensors_are_refused_as_by_reference(tmp_path: Path) -> None:
    rng, path = np.random.default_rng(0), tmp_path / "x"
    read = 0
    for _ in range(500):
        path.write_bytes(damaged(rng, reference.save(random_arrays(rng), {"format": "pt"})))
        expected = shapes_by_reference(path)
        if expected is None:
            with pytest.raises(ValueError, match="not a whole safetensors file"):
                SafetensorsFile(path)
        else:
            assert {name: e.shape for name, e in SafetensorsFile(path).items()} == expected
            read += 1
    assert 20 < read < 480
