"""safetensors files: written by hand, by the library, and damaged."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minigrad.io import load_arrays, save_arrays
from minigrad.io.safetensors import DTYPES, SafetensorsFile, to_bfloat16, write_safetensors


def by_hand(path: Path, header: Any, data: bytes = b"") -> Path:
    """Write a file with any header, an object or its text."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def entry(dtype: str = "F32", shape: Any = (2,), start: int = 0, end: int = 8) -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [start, end]}


def test_file_written_by_hand_is_read(tmp_path: Path) -> None:
    header = {
        "__metadata__": {"format": "pt"},
        "b": entry("I16", (2, 1), 8, 12),
        "a": entry("F32", (2,), 0, 8),
    }
    path = by_hand(tmp_path / "x", header, struct.pack("<2f2h", 1.5, -2.0, 7, -8))
    file = SafetensorsFile(path)
    assert list(file) == ["a", "b"] and file.metadata == {"format": "pt"}
    assert file["b"].shape == (2, 1) and file["b"].dtype == "I16"
    for get in (file.read, file.map):
        assert get("a").tolist() == [1.5, -2.0] and get("b").tolist() == [[7], [-8]]
        assert get("a").dtype == np.float32 and get("b").dtype == np.int16
    assert file.read("a").flags.writeable and not file.map("a").flags.writeable
    assert (
        file.read("a", np.float64).dtype == np.float64
        and file.read("b", np.float64).dtype == np.int16
    )


@pytest.mark.parametrize("code", sorted(set(DTYPES.values())))
@pytest.mark.parametrize("mmap", [False, True])
def test_saved_arrays_are_loaded_in_any_layout(tmp_path: Path, code: str, mmap: bool) -> None:
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
            np.testing.assert_array_equal(loaded[name], expected, strict=name != "big-endian")


def test_equal_arrays_give_equal_bytes(tmp_path: Path) -> None:
    a = {"y": np.ones(3), "x": np.zeros(2, np.int8), "b": np.ones((2, 2), np.float32)}
    write_safetensors(tmp_path / "1", a, {"m": "1", "k": "2"})
    write_safetensors(tmp_path / "2", dict(reversed(a.items())), {"k": "2", "m": "1"})
    data = (tmp_path / "1").read_bytes()
    assert data == (tmp_path / "2").read_bytes()
    start = 8 + struct.unpack("<Q", data[:8])[0]
    assert start % 8 == 0 and all(
        e.start % np.dtype(DTYPES[e.dtype]).itemsize == 0
        for e in SafetensorsFile(tmp_path / "1").values()
    )


def test_bfloat16_is_the_upper_half_of_float32(tmp_path: Path) -> None:
    bits = np.arange(1 << 16, dtype=np.uint16)
    path = by_hand(tmp_path / "x", {"a": entry("BF16", (1 << 16,), 0, 1 << 17)}, bits.tobytes())
    (wide,) = load_arrays(path)[0].values()
    assert wide.dtype == np.float32
    np.testing.assert_array_equal(wide.view(np.uint32), bits.astype(np.uint32) << 16)
    number = ~np.isnan(wide)
    np.testing.assert_array_equal(to_bfloat16(wide)[number], bits[number])
    again = np.isnan((to_bfloat16(wide[~number]).astype(np.uint32) << 16).view(np.float32))
    assert again.all()


def test_bfloat16_rounds_to_the_nearest_and_ties_to_even(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 0x7F00 << 16, 20_000).astype(
        np.uint32
    )  # positive, finite also when rounded up
    bits[:3] = 0x3F808000, 0x3F818000, 0x3F808001  # two ties, and just above one
    x = bits.view(np.float32)
    low = (bits >> 16 << 16).view(np.float32).astype(np.float64)
    high = (((bits >> 16) + 1) << 16).view(np.float32).astype(np.float64)
    middle, even = (low + high) / 2, (bits >> 16) % 2 == 0
    up = (x > middle) | ((x == middle) & ~even)
    np.testing.assert_array_equal(to_bfloat16(x), (bits >> 16) + up)
    write_safetensors(
        tmp_path / "x", {"a": x, "n": np.arange(3), "s": np.float64(1.0)}, dtype="bfloat16"
    )
    file = SafetensorsFile(tmp_path / "x")
    assert {name: e.dtype for name, e in file.items()} == {"a": "BF16", "s": "BF16", "n": "I64"}
    np.testing.assert_array_equal(to_bfloat16(file.read("a")), to_bfloat16(x))


def test_read_converts_to_a_dtype(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "x", {"a": np.float32([1.5, 65504])}, dtype=np.float16)
    file = SafetensorsFile(tmp_path / "x")
    assert file.read("a").dtype == np.float16 and file.read("a", np.float32).tolist() == [
        1.5,
        65504,
    ]


DAMAGES: dict[str, tuple[Any, bytes, str]] = {
    "header longer than the file": (b"{}", b"", ""),
    "not JSON": (b"{]", b"", "not JSON"),
    "not UTF-8": (b'{"\xff":1}', b"", "not JSON"),
    "a list": ([1], b"", "must be an object, got list"),
    "nested too deep": (b"[" * 100_000, b"", "not JSON"),
    "a name twice": (b'{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}', b"", "'a' is given twice"),
    "NaN": (b'{"a":{"dtype":"U8","shape":[NaN],"data_offsets":[0,0]}}', b"", "sizes must be from 0 to 2.63, got .nan, 0, 0"),
    "metadata not texts": ({"__metadata__": {"a": 1}}, b"", "__metadata__"),
    "metadata a list": ({"__metadata__": ["a"]}, b"", "__metadata__"),
    "an array that is a number": ({"a": 3}, b"", "must have dtype, shape and two data_offsets"),
    "no shape": ({"a": {"dtype": "F32", "data_offsets": [0, 8]}}, bytes(8), "must have dtype"),
    "unknown dtype": ({"a": entry("F31")}, bytes(8), "unknown dtype 'F31'"),
    "dtype a list": ({"a": {**entry(), "dtype": []}}, bytes(8), "unknown dtype"),
    "a shape of texts": ({"a": {**entry(), "shape": ["2"]}}, bytes(8), "sizes must be from 0 to 2.63|must have dtype, shape and two"),
    "a fraction": ({"a": {**entry(), "shape": [2.0]}}, bytes(8), "sizes must be from 0 to 2.63|must have dtype, shape and two"),
    "true for one": ({"a": {**entry(), "shape": [2, True]}}, bytes(8), "sizes must be from 0 to 2.63|must have dtype, shape and two"),
    "a negative size": ({"a": entry(shape=(-2, -1))}, bytes(8), "sizes must be from 0 to 2.63|must have dtype, shape and two"),
    "a size beyond 64 bits": ({"a": entry(shape=(2, 10**30))}, bytes(8), "sizes must be from 0 to 2.63|must have dtype, shape and two"),
    "three offsets": ({"a": {**entry(), "data_offsets": [0, 8, 8]}}, bytes(8), "and two data_offsets"),
    "a shape of 10^12": ({"a": entry(shape=(10**12,))}, bytes(8), "must have 4,000,000,000,000 bytes, got 8"),
    "an empty shape of 2^62": ({"a": entry(shape=(0, 2**62), end=0)}, b"", "larger than"),
    "end before start": ({"a": entry(shape=(0,), start=8, end=0)}, bytes(8), "begin at 0"),
    "a hole": ({"a": entry(start=4, end=12)}, bytes(12), "begin at 0"),
    "an overlap": ({"a": entry(), "b": entry(start=4, end=12)}, bytes(12), "begin at 8"),
    "bytes missing": ({"a": entry()}, bytes(7), "there must be 8 bytes after the header, got 7"),
    "bytes without an array": ({"a": entry()}, bytes(9), "there must be 8 bytes after the header, got 9"),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_header_is_refused(tmp_path: Path, damage: str) -> None:
    header, data, message = DAMAGES[damage]
    path = by_hand(tmp_path / "x.safetensors", header, data)
    if damage == "header longer than the file":
        path.write_bytes(struct.pack("<Q", 10**7) + b"{}")
    with pytest.raises(ValueError, match=f"^{path}: not a whole safetensors file.*{message}"):
        load_arrays(path)


def test_file_cut_anywhere_is_refused(tmp_path: Path) -> None:
    save_arrays(tmp_path / "whole", {"a": np.ones((2, 3)), "b": np.arange(3)}, {"note": "x"})
    data = (tmp_path / "whole").read_bytes()
    for length in range(len(data)):
        (tmp_path / "cut").write_bytes(data[:length])
        with pytest.raises(ValueError, match="cut: not a whole safetensors file"):
            SafetensorsFile(tmp_path / "cut")


def test_header_of_gigabytes_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(struct.pack("<Q", 10**11) + b"{}")
    with pytest.raises(ValueError, match="a header of 100,000,000,000 bytes"):
        SafetensorsFile(tmp_path / "x")


def test_dtype_that_numpy_or_the_format_lacks_is_refused(tmp_path: Path) -> None:
    path = by_hand(
        tmp_path / "x", {"a": entry("F8_E4M3", (2,), 0, 2), "b": entry("U8", (2,), 2, 4)}, bytes(4)
    )
    file = SafetensorsFile(path)
    assert file.read("b").tolist() == [0, 0]
    with pytest.raises(ValueError, match="x: a is F8_E4M3, a dtype that NumPy does not have"):
        file.read("a")
    with pytest.raises(TypeError, match="a is complex128, which a safetensors file cannot hold"):
        write_safetensors(tmp_path / "y", {"a": np.zeros(2, complex)})
    with pytest.raises(ValueError, match="'__metadata__' cannot be the name of an array"):
        write_safetensors(tmp_path / "y", {"__metadata__": np.zeros(2)})
    assert not (tmp_path / "y").exists()


def test_mapped_array_survives_the_replacement_of_its_file(tmp_path: Path) -> None:
    save_arrays(tmp_path / "x", {"a": np.arange(5)})
    view = load_arrays(tmp_path / "x", mmap=True)[0]["a"]
    save_arrays(tmp_path / "x", {"a": np.zeros(5)})
    assert view.tolist() == [0, 1, 2, 3, 4]


def test_file_changed_since_it_was_written_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x"
    for dtype in (">f4", "<f4", "?", "c8", "i1"):
        save_arrays(
            path,
            {
                "a": np.ones((2, 3), dtype)[:, ::2],
                "0-d": np.ones((), dtype),
                "empty": np.ones((0, 2)),
            },
        )
        assert load_arrays(path)[1] == {}
    save_arrays(path, {"a": np.ones((2, 3))}, {"note": [1, 2]})
    whole = path.read_bytes()
    places = [whole.index(b"[1, 2]") + 1, len(whole) - 1, len(whole) - 48]
    for place in places:
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(
            ValueError, match=f"^{path} was changed since it was written: its checksum must be"
        ):
            load_arrays(path)
    file = SafetensorsFile(path)
    write_safetensors(
        path, {"a": file.read("a")}, {"note": "[3, 4]"}
    )  # by another program: no checksum
    assert load_arrays(path)[1] == {"note": [3, 4]}


def test_writable_map_changes_only_memory(tmp_path: Path) -> None:
    path = tmp_path / "x"
    write_safetensors(path, {"a": np.arange(4.0), "b": np.arange(3, dtype=np.float32)})
    file, data = SafetensorsFile(path), path.read_bytes()
    a, b = file.map("a", writable=True), file.map("b", writable=True)
    a[1] = 7
    assert path.read_bytes() == data
    write_safetensors(path, {"a": np.zeros(4)})
    np.testing.assert_array_equal(a, [0, 7, 2, 3])
    np.testing.assert_array_equal(b, [0, 1, 2])
    np.testing.assert_array_equal(file.map("a"), [0, 7, 2, 3])  # the same view of the file


def test_map_of_unaligned_values_is_aligned(tmp_path: Path) -> None:
    path = tmp_path / "x"
    write_safetensors(path, {"a": np.arange(4.0)})
    data = path.read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    header = data[8:end].rstrip() + b" "
    header += b" " * (len(header) % 2 == 0)
    path.write_bytes(len(header).to_bytes(8, "little") + header + data[end:])
    found = SafetensorsFile(path).map("a")
    assert found.flags.aligned and not found.flags.writeable
    np.testing.assert_array_equal(found, np.arange(4.0))


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int64"])
def test_is_finite_equals_numpy(tmp_path: Path, dtype: str) -> None:
    size = 700_000
    for place, value in (
        (0, 1),
        (size - 1, np.nan),
        (300_000, np.inf),
        (5, -np.inf),
        (9, 60_000),
        (7, 3e38),
    ):
        if dtype == "int64" and not np.isfinite(value):
            continue
        array = np.zeros(size, dtype)
        with np.errstate(over="ignore"):
            array[place] = (
                np.asarray(value, "float64").astype(dtype)
                if value != 3e38 or dtype != "int64"
                else 2**62
            )
        write_safetensors(tmp_path / "x", {"a": array})
        assert SafetensorsFile(tmp_path / "x").is_finite("a") == np.isfinite(array).all()
