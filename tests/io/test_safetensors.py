"""safetensors files: written by hand, by the library, and damaged."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from minigrad.io import load_arrays, save_arrays
from minigrad.io.safetensors import DTYPES, SafetensorsFile, to_bfloat16, write_safetensors


def by_hand(path: Path, header: Any, data: bytes = b"") -> Path:
    """Write a file with any header, an object or its text."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def entry(dtype: str = "F32", shape: Any = (2,), start: int = 0, end: int = 8) -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [start, end]}


def test_read_and_map_of_file_written_by_hand_return_its_arrays(tmp_path: Path) -> None:
    header = {"__metadata__": {"format": "pt"}, "b": entry("I16", (2, 1), 8, 12), "a": entry()}
    path = by_hand(tmp_path / "x", header, struct.pack("<2f2h", 1.5, -2.0, 7, -8))
    file = SafetensorsFile(path)
    assert list(file) == ["a", "b"] and file.metadata == {"format": "pt"}
    a, b = np.float32([1.5, -2]), np.int16([[7], [-8]])
    for get in (file.read, file.map):
        assert_array_equal(get("a"), a, strict=True)
        assert_array_equal(get("b"), b, strict=True)
    assert file.read("a").flags.writeable and not file.map("a").flags.writeable
    assert_array_equal(file.read("a", np.float64), a.astype(float), strict=True)
    assert_array_equal(file.read("b", np.float64), b, strict=True)


@pytest.mark.parametrize("code", sorted(set(DTYPES.values())))
@pytest.mark.parametrize("mmap", [False, True])
def test_load_arrays_returns_saved_arrays_of_any_layout(
    tmp_path: Path, code: str, mmap: bool
) -> None:
    rng = np.random.default_rng(0)
    for shape in ((), (0,), (3, 0, 2), (2, 3)):
        array = np.asarray(rng.integers(0, 2, shape)).astype(code)
        arrays = {
            "C": array,
            "F": np.array(array, order="F"),
            "reversed": array[..., ::-1] if array.ndim else array,
            "big-endian": array.astype(array.dtype.newbyteorder(">")),
        }
        save_arrays(tmp_path / "x", arrays)
        loaded, _ = load_arrays(tmp_path / "x", mmap=mmap)
        assert loaded.keys() == arrays.keys()
        for name, expected in arrays.items():
            assert loaded[name].dtype == array.dtype and type(loaded[name]) is np.ndarray
            assert_array_equal(loaded[name], expected, strict=name != "big-endian")


def test_read_of_bfloat16_returns_upper_half_of_float32(tmp_path: Path) -> None:
    bits = np.arange(1 << 16, dtype=np.uint16)
    path = by_hand(tmp_path / "x", {"a": entry("BF16", (1 << 16,), 0, 1 << 17)}, bits.tobytes())
    wide = SafetensorsFile(path).read("a")
    expected = (bits.astype(np.uint32) << 16).view(np.float32)
    assert_array_equal(wide, expected, strict=True)
    number = ~np.isnan(wide)
    assert_array_equal(to_bfloat16(wide)[number], bits[number])


@pytest.mark.parametrize(
    "bits, rounded",
    [
        (0x3F807FFF, 0x3F80),
        (0x3F808000, 0x3F80),  # a tie
        (0x3F808001, 0x3F81),
        (0x3F818000, 0x3F82),  # a tie
        (0xBF818000, 0xBF82),
        (0x7F7FFFFF, 0x7F80),  # to infinity
        (0x7F800001, 0x7FC0),  # NaN
        (0xFFFFFFFF, 0x7FC0),
    ],
)
def test_to_bfloat16_rounds_to_nearest_and_ties_to_even(bits: int, rounded: int) -> None:
    assert to_bfloat16(np.uint32([bits]).view(np.float32)) == rounded


def test_write_safetensors_as_bfloat16_keeps_integers(tmp_path: Path) -> None:
    arrays = {"a": np.float32([1 + 2**-7]), "n": np.arange(3), "s": np.float64(1.0)}
    write_safetensors(tmp_path / "x", arrays, dtype="bfloat16")
    file = SafetensorsFile(tmp_path / "x")
    assert {name: e.dtype for name, e in file.items()} == {"a": "BF16", "s": "BF16", "n": "I64"}
    assert file.read("a") == arrays["a"]


SIZES = "a: sizes must be from 0 to 2.63"
KEYS = "a must have dtype, shape and two data_offsets"
U8 = b'"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}'


@pytest.mark.parametrize(
    "header, size, message",
    [
        (b"{]", 0, "not JSON"),
        ([1], 0, "must be an object, got list"),
        (b"{" + U8 + b"," + U8 + b"}", 0, "'a' is given twice"),
        ({"__metadata__": {"a": 1}}, 0, "__metadata__"),
        ({"a": 3}, 0, KEYS),
        ({"a": {"dtype": "F32", "data_offsets": [0, 8]}}, 8, KEYS),
        ({"a": {**entry(), "data_offsets": [0, 8, 8]}}, 8, KEYS),
        ({"a": entry("F31")}, 8, "unknown dtype 'F31'"),
        ({"a": {**entry(), "dtype": []}}, 8, "unknown dtype"),
        ({"a": entry(shape=[2.0])}, 8, SIZES),
        ({"a": entry(shape=[2, True])}, 8, SIZES),
        ({"a": entry(shape=[-2, -1])}, 8, SIZES),
        ({"a": entry(shape=[2, 10**30])}, 8, SIZES),
        ({"a": entry(shape=[0, 2**62], end=0)}, 0, "larger than"),
        ({"a": entry(shape=[10**12])}, 8, "must have 4,000,000,000,000 bytes, got 8"),
        ({"a": entry(shape=[0], start=8, end=0)}, 8, "begin at 0"),
        ({"a": entry(start=4, end=12)}, 12, "begin at 0"),
        ({"a": entry(), "b": entry(start=4, end=12)}, 12, "begin at 8"),
        ({"a": entry()}, 7, "must be 8 bytes after the header, got 7"),
        ({"a": entry()}, 9, "must be 8 bytes after the header, got 9"),
    ],
)  # fmt: skip
def test_load_arrays_of_damaged_header_raises(
    tmp_path: Path, header: Any, size: int, message: str
) -> None:
    path = by_hand(tmp_path / "x.safetensors", header, bytes(size))
    with pytest.raises(ValueError, match=f"^{path}: not a whole safetensors file.*{message}"):
        load_arrays(path)


@pytest.mark.parametrize("length", [100, 10**11])
def test_header_longer_than_file_is_not_read(tmp_path: Path, length: int) -> None:
    path = tmp_path / "x"
    path.write_bytes(struct.pack("<Q", length) + b"{}")
    with pytest.raises(ValueError, match=f"a header of {length:,} bytes"):
        SafetensorsFile(path)


def test_file_cut_anywhere_raises(tmp_path: Path) -> None:
    save_arrays(tmp_path / "whole", {"a": np.ones((2, 3)), "b": np.arange(3)}, {"note": "x"})
    data = (tmp_path / "whole").read_bytes()
    for length in range(len(data)):
        (tmp_path / "cut").write_bytes(data[:length])
        with pytest.raises(ValueError, match="cut: not a whole safetensors file"):
            SafetensorsFile(tmp_path / "cut")


def test_read_of_dtype_that_numpy_lacks_raises(tmp_path: Path) -> None:
    header = {"a": entry("F8_E4M3", (2,), 0, 2), "b": entry("U8", (2,), 2, 4)}
    file = SafetensorsFile(by_hand(tmp_path / "x", header, bytes(4)))
    assert file.read("b").tolist() == [0, 0]
    with pytest.raises(ValueError, match="x: a is F8_E4M3, a dtype that NumPy does not have"):
        file.read("a")


def test_write_safetensors_of_invalid_dtype_or_name_raises(tmp_path: Path) -> None:
    with pytest.raises(
        TypeError, match="a must have a dtype of the safetensors format, got complex128"
    ):
        write_safetensors(tmp_path / "y", {"a": np.zeros(2, complex)})
    with pytest.raises(ValueError, match="'__metadata__' cannot be the name of an array"):
        write_safetensors(tmp_path / "y", {"__metadata__": np.zeros(2)})
    assert not (tmp_path / "y").exists()


@pytest.mark.parametrize(
    "old, new", [(b"[1, 2]", b"[1, 3]"), (struct.pack("<d", 5), struct.pack("<d", 6))]
)
def test_load_arrays_of_changed_file_raises(tmp_path: Path, old: bytes, new: bytes) -> None:
    path = tmp_path / "x"
    save_arrays(path, {"a": np.arange(6.0)}, {"note": [1, 2]})
    path.write_bytes(path.read_bytes().replace(old, new))
    message = f"^{path} was changed since it was written: its checksum must be"
    with pytest.raises(ValueError, match=message):
        load_arrays(path)


def test_load_arrays_without_checksum_returns_metadata(tmp_path: Path) -> None:
    """Other programs write none."""
    write_safetensors(tmp_path / "x", {"a": np.ones(1)}, {"note": "[3, 4]", "text": "x"})
    assert load_arrays(tmp_path / "x")[1] == {"note": [3, 4], "text": "x"}


def test_map_with_writable_changes_only_memory(tmp_path: Path) -> None:
    path = tmp_path / "x"
    write_safetensors(path, {"a": np.arange(4.0)})
    file, data = SafetensorsFile(path), path.read_bytes()
    a = file.map("a", writable=True)
    a[1] = 7
    assert path.read_bytes() == data
    write_safetensors(path, {"a": np.zeros(4)})
    for view in (a, file.map("a")):  # the same view of the replaced file
        assert view.tolist() == [0, 7, 2, 3]


def test_map_of_unaligned_array_is_aligned(tmp_path: Path) -> None:
    header = json.dumps({"a": entry("F64", (1,))}).encode()
    header += b" " * (8 - len(header) % 8 + 1)
    array = SafetensorsFile(by_hand(tmp_path / "x", header, struct.pack("<d", 1.5))).map("a")
    assert array.flags.aligned and not array.flags.writeable and array.tolist() == [1.5]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int64"])
@pytest.mark.parametrize("value", [1, np.nan, np.inf, -np.inf, 6e4, 3e38])
def test_is_finite_equals_numpy(tmp_path: Path, dtype: str, value: float) -> None:
    array = np.zeros(700_000, dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        array[300_000] = np.float64(value).astype(dtype)
    write_safetensors(tmp_path / "x", {"a": array})
    assert SafetensorsFile(tmp_path / "x").is_finite("a") == np.isfinite(array).all()
