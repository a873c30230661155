"""safetensors by NumPy against the reference library: same bytes written, nothing accepted that it refuses."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest

from minigrad.io.safetensors import SafetensorsFile, write_safetensors

safetensors = pytest.importorskip(
    "safetensors", reason="the reference library is the oracle; it is not installed"
)
reference = pytest.importorskip("safetensors.numpy")

CODES = ("?", "u1", "i1", "<u2", "<i2", "<f2", "<u4", "<i4", "<f4", "<u8", "<i8", "<f8", "<c8")


def random_arrays(rng: np.random.Generator) -> dict[str, np.ndarray]:
    names = [
        f"layer.{i}.wéight" + '"' * int(i % 3 == 0)
        for i in rng.permutation(int(rng.integers(1, 7)))
    ]
    shapes = [rng.integers(0, 4, int(rng.integers(0, 4))).tolist() for _ in names]
    return {
        n: np.asarray(rng.integers(0, 100, tuple(shape))).astype(CODES[rng.integers(len(CODES))])
        for n, shape in zip(names, shapes)
    }


@pytest.mark.parametrize("seed", range(30))
def test_same_bytes_and_same_arrays(tmp_path: Path, seed: int) -> None:
    arrays = random_arrays(np.random.default_rng(seed))
    metadata = {"format": "pt"} if seed % 2 else None
    write_safetensors(tmp_path / "ours", arrays, metadata)
    reference.save_file(arrays, str(tmp_path / "theirs"), metadata)
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()
    found = SafetensorsFile(tmp_path / "theirs")
    assert found.metadata == (metadata or {})
    for name, expected in reference.load_file(str(tmp_path / "ours")).items():
        np.testing.assert_array_equal(found.read(name), expected)
        assert found.map(name).shape == expected.shape and found.map(name).dtype == expected.dtype


def damaged(rng: np.random.Generator, data: bytes) -> bytes:
    """The file with one thing changed: a byte anywhere, its length, or a number or a word in its header."""
    length = struct.unpack("<Q", data[:8])[0]
    kind = rng.integers(4)
    if kind == 0:
        place = int(rng.integers(len(data)))
        return data[:place] + bytes([int(rng.integers(256))]) + data[place + 1 :]
    if kind == 1:
        cut = int(rng.integers(len(data)))
        return data[:cut] if rng.random() < 0.5 else data + bytes(cut)
    header = json.loads(data[8 : 8 + length])
    name = str(rng.choice([n for n in header if n != "__metadata__"]))
    place = rng.choice(["dtype", "shape", "data_offsets"])
    values = [
        0,
        1,
        4,
        -1,
        8.0,
        2**62,
        2**64,
        10**30,
        None,
        True,
        "F32",
        "F8_E4M3",
        "U8",
        [],
        [1, 2],
        [0, 0],
        {},
        [2**40, 2**40],
        [None],
    ]
    header[name][place] = values[rng.integers(len(values))]
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data[8 + length :]


def test_what_the_reference_refuses_we_refuse(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    agreed = [0, 0]
    for _ in range(1500):
        (tmp_path / "x").write_bytes(
            damaged(rng, reference.save(random_arrays(rng), {"format": "pt"}))
        )
        try:
            with safetensors.safe_open(str(tmp_path / "x"), "numpy") as file:
                theirs = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
        except Exception:
            theirs = None
        try:
            ours = {name: e.shape for name, e in SafetensorsFile(tmp_path / "x").items()}
        except ValueError as error:
            ours = None
            assert str(error).startswith(f"{tmp_path / 'x'}: not a whole safetensors file (")
        assert ours == theirs, (tmp_path / "x").read_bytes()
        agreed[ours is None] += 1
    assert min(agreed) > 50, agreed
