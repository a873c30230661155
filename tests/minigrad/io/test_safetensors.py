"""safetensors files: written by hand, by the library, and damaged."""

from __future__ import annotations

import json
import os
import re
import struct
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import minigrad as mg
from minigrad.io import load_arrays, read_json, safetensors, save_arrays
from minigrad.io.reading import read_text
from minigrad.io.safetensors import BITS, SafetensorsFile, misfit, to_bfloat16, write_safetensors


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
    assert [file.read(name, float).dtype for name in "ab"] == [np.float64, np.int16]


@pytest.mark.parametrize("dtype", BITS)
def test_eight_values_take_the_bits_that_the_dtype_names(dtype: str, tmp_path: Path) -> None:
    size = int(re.sub(r"\D*(\d+).*", r"\1", dtype.replace("BOOL", "B8")))
    for n in (size - 1, size, size + 1):
        path = by_hand(tmp_path / "x", {"a": entry(dtype, (2, 4), 0, n)}, bytes(n))
        if n == size:
            assert SafetensorsFile(path)["a"].shape == (2, 4)
        else:
            with pytest.raises(ValueError, match=f"must have {size} bytes, got {n}"):
                SafetensorsFile(path)


@pytest.mark.parametrize("names", ["ab", "ba"])
def test_arrays_of_no_values_can_begin_where_another_begins(names: str, tmp_path: Path) -> None:
    """In any order of the header."""
    entries = {"a": entry(), "b": entry("F32", (0,), 0, 0)}
    file = SafetensorsFile(by_hand(tmp_path / "x", {n: entries[n] for n in names}, bytes(8)))
    assert [file.read(name).shape for name in "ab"] == [(2,), (0,)]


@pytest.mark.parametrize(
    "bits, rounded",
    [
        (0x3F808000, 0x3F80),  # a tie
        (0x3F808001, 0x3F81),
        (0x3F818000, 0x3F82),  # a tie
        (0x7F7FFFFF, 0x7F80),  # to infinity
        (0xFFFFFFFF, 0x7FC0),  # NaN
    ],
)
def test_to_bfloat16_rounds_to_nearest_and_ties_to_even(bits: int, rounded: int) -> None:
    assert to_bfloat16(np.uint32([bits]).view(np.float32)) == rounded


def test_write_safetensors_as_bfloat16_keeps_upper_half_of_floats_and_integers(
    tmp_path: Path,
) -> None:
    upper = (np.arange(1 << 16, dtype=np.uint32) << 16).view(np.float32)
    write_safetensors(tmp_path / "x", {"a": upper, "n": np.arange(3)}, dtype="bfloat16")
    file = SafetensorsFile(tmp_path / "x")
    assert file["a"].dtype == "BF16" and file["n"].dtype == "I64"
    assert_array_equal(file.read("a"), upper, strict=True)


SIZES = "a: sizes must be from 0 to 2.63"
KEYS = "a must have dtype, shape and two data_offsets"
U8 = b'"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}'


@pytest.mark.parametrize(
    "header, size, message",
    [
        (b"{]", 0, "not JSON"),
        (b"{" + U8 + b"," + U8 + b"}", 0, "'a' is given twice"),
        ({"__metadata__": {"a": 1}}, 0, "__metadata__"),
        ({"__metadata__": []}, 0, "__metadata__"),
        ([], 0, "its header must be an object, got list"),
        ({"a": entry([])}, 8, "unknown dtype"),
        ({"a": entry(end=-8)}, 8, SIZES),
        ({"a": {**entry(), "data_offsets": [0, 8, 8]}}, 8, KEYS),
        ({"a": entry("F31")}, 8, "unknown dtype 'F31'"),
        ({"a": entry(shape=[2, True])}, 8, SIZES),
        ({"a": entry(shape=[-2, -1])}, 8, SIZES),
        ({"a": entry(shape=[0, 2**62], end=0)}, 0, "larger than"),
        ({"a": entry(shape=[10**12])}, 8, "must have 4,000,000,000,000 bytes, got 8"),
        ({"a": entry(shape=[0], start=8, end=0)}, 8, "begin at 0"),
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


def test_file_cut_anywhere_raises(tmp_path: Path) -> None:
    save_arrays(tmp_path / "whole", {"a": np.ones((2, 3))}, {"note": "x"})
    data = (tmp_path / "whole").read_bytes()
    for length in range(len(data)):
        (tmp_path / "cut").write_bytes(data[:length])
        with pytest.raises(ValueError, match="cut: not a whole safetensors file"):
            SafetensorsFile(tmp_path / "cut")


@pytest.mark.parametrize("dtype", ["F8_E4M3", "F8_E4M3FNUZ", "F8_E5M2FNUZ"])
def test_read_of_dtype_that_numpy_lacks_raises(tmp_path: Path, dtype: str) -> None:
    header = {"a": entry(dtype, (2,), 0, 2), "b": entry("U8", (1,), 2, 3)}
    file = SafetensorsFile(by_hand(tmp_path / "x", header, b"\0\0\7"))
    assert file.read("b").tolist() == [7]
    with pytest.raises(ValueError, match=f"x: a is {dtype}, a dtype that NumPy does not have"):
        file.read("a")


def test_write_safetensors_of_invalid_dtype_or_name_raises(tmp_path: Path) -> None:
    for array, error, message in (
        ({"a": np.zeros(2, complex)}, TypeError, "a must have a dtype of .*, got complex128"),
        ({"__metadata__": np.zeros(2)}, ValueError, "'__metadata__' cannot be the name of an"),
    ):
        with pytest.raises(error, match=message):
            write_safetensors(tmp_path / "y", array)
    for options, message in (
        ({"dtype": int}, "dtype must be floating-point or 'bfloat16', got int64"),
        ({"metadata": {"step": 1}}, r"metadata must be strings by name, got \('step', 1\)"),
        ({"metadata": {1: "step"}}, r"metadata must be strings by name, got \(1, 'step'\)"),
    ):
        with pytest.raises(TypeError, match=message):
            write_safetensors(tmp_path / "y", {"a": np.ones(2)}, **options)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("old, new", [(b"[1, 2]", b"[1, 3]"), (b"abc", b"abd")])
def test_load_arrays_of_changed_file_raises(tmp_path: Path, old: bytes, new: bytes) -> None:
    path = tmp_path / "x"
    save_arrays(path, {"a": np.frombuffer(b"abcd", np.int32)}, {"note": [1, 2]})
    path.write_bytes(path.read_bytes().replace(old, new))
    with pytest.raises(ValueError, match=f"^{path} was changed since .* its checksum must be"):
        load_arrays(path)


@pytest.mark.parametrize(
    "old, new",
    [(b'"first"', b'"third"'), (b'"I32"', b'"U32"'), (b"[2,3]", b"[3,2]"), (b'"note"', b'"nose"'), (b"abc", b"abd")],
)  # fmt: skip
def test_checksum_is_of_names_dtypes_shapes_and_values(
    tmp_path: Path, old: bytes, new: bytes
) -> None:
    path = tmp_path / "x"
    array = np.frombuffer(b"abcd" * 6, "<i4").reshape(2, 3)
    for order in ("<i4", ">i4"):
        save_arrays(path, {"first": array.astype(order).T.copy().T}, {"note": [1, 2]})
        np.testing.assert_array_equal(load_arrays(path)[0]["first"], array)
    data = path.read_bytes()
    assert data.count(old) >= 1
    path.write_bytes(data.replace(old, new, 1))
    with pytest.raises(ValueError, match=f"^{path} was changed since .* its checksum must be"):
        load_arrays(path)
    assert load_arrays(path, mmap=True)[0].keys() <= {"first", "third"}  # not verified


def test_saved_array_has_a_name_that_other_programs_read(tmp_path: Path) -> None:
    mg.save(np.arange(3), tmp_path / "x")
    assert mg.load(tmp_path / "x").tolist() == [0, 1, 2]
    assert [*load_arrays(tmp_path / "x")[0]] == ["array"]
    for value, error, message in (
        ({"a": {1: 2}}, TypeError, "keys must be strings, got 1 in 'a'"),
        ({"a": {"b": np.ones(1)}, "a.b": np.ones(1)}, ValueError, "two arrays must not have the same path, got 'a.b' twice"),
        ([1, {"a": object()}], TypeError, "'1.a' must consist of dicts, lists, arrays and plain data"),
    ):  # fmt: skip
        with pytest.raises(error, match=message):
            mg.save(value, tmp_path / "y")


def test_save_arrays_with_the_name_of_the_checksum_raises(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="metadata must not contain 'minigrad.crc32'"):
        save_arrays(tmp_path / "x", {}, {"minigrad.crc32": "0"})
    assert list(tmp_path.iterdir()) == []


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


@pytest.mark.parametrize(
    ("entries", "size", "message"),
    [
        ([("a", "F32", [1], 0, 4), ("b", "F32", [1], 8, 12)], 12, "b: data_offsets must begin at 4"),
        ([("a", "F32", [1], 4, 8)], 8, "a: data_offsets must begin at 0, got 4"),
        ([("a", "F32", [2], 0, 8), ("b", "F32", [1], 4, 8)], 8, "b: data_offsets must begin at 8"),
        ([("a", "F4", [3], 0, 1)], 1, "a: F4 .* must have 1 bytes, got 1"),
        ([("a", "F4", [3], 0, 2)], 2, "a: F4 .* must have 1 bytes, got 2"),
        ([("a", "F32", [1], 0, 4)], 5, "there must be 4 bytes after the header, got 5"),
    ],
)  # fmt: skip
def test_arrays_that_leave_or_share_bytes_are_refused(
    tmp_path: Path, entries: list[Any], size: int, message: str
) -> None:
    header = {n: {"dtype": d, "shape": s, "data_offsets": [a, b]} for n, d, s, a, b in entries}
    path = by_hand(tmp_path / "x", json.dumps(header).encode(), bytes(size))
    with pytest.raises(ValueError, match=message):
        SafetensorsFile(path)


def test_dtype_of_a_file_is_that_of_real_arrays_and_metadata_are_strings(tmp_path: Path) -> None:
    arrays = {
        "f": np.ones(2),
        "c": np.ones(2, np.complex64),
        "i": np.ones(2, int),
        "b": np.ones(2, bool),
    }
    for dtype, stored in (("float16", "F16"), ("bfloat16", "BF16"), (None, "F64")):
        write_safetensors(tmp_path / "x", arrays, {"a": "b"}, dtype)
        found = {name: x.dtype for name, x in SafetensorsFile(tmp_path / "x").items()}
        assert found == {"f": stored, "c": "C64", "i": "I64", "b": "BOOL"}
    for wrong in ({"a": "b", "c": 1}, {"a": None, "c": "d"}, {"a": "b", 1: "c"}):
        with pytest.raises(TypeError, match="metadata must be strings by name, got"):
            write_safetensors(tmp_path / "x", arrays, wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("writable", [False, True])
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (2, 3)])
@pytest.mark.parametrize("dtype", [None, "bfloat16", "float16"])
def test_map_of_any_array_is_writable_only_if_wanted(
    tmp_path: Path, dtype: str | None, shape: tuple[int, ...], writable: bool
) -> None:
    values = np.arange(int(np.prod(shape)), dtype="f4").reshape(shape)
    write_safetensors(tmp_path / "x", {"a": values, "b": np.arange(3)}, dtype=dtype)
    for array in (SafetensorsFile(tmp_path / "x").map(name, writable) for name in ("a", "b", "a")):
        assert array.flags.writeable == writable
    np.testing.assert_array_equal(array, values)
    assert array.shape == shape


def test_map_of_unaligned_array_is_aligned(tmp_path: Path) -> None:
    header = json.dumps({"a": entry("F64", (1,))}).encode()
    header += b" " * (8 - len(header) % 8 + 1)
    array = SafetensorsFile(by_hand(tmp_path / "x", header, struct.pack("<d", 1.5))).map("a")
    assert array.flags.aligned and not array.flags.writeable and array.tolist() == [1.5]


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
@pytest.mark.parametrize("value, count", [(6e4, 0), (np.nan, 1), (-np.inf, 1)])
def test_misfit_counts_values_that_are_not_finite(
    tmp_path: Path, dtype: str, value: float, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("minigrad.io.safetensors._BLOCK", 1000)
    array = np.zeros((7, 10_000), dtype)
    array[3, 5] = value
    if np.isnan(value):  # a signalling one, which other programs may write
        bits = {"f2": 0x7C01, "f4": 0x7F800001, "f8": 0x7FF0000000000001}
        array.view(f"u{array.itemsize}")[3, 5] = bits[dtype]
    write_safetensors(tmp_path / "x", {"a": array})
    for a in (array, SafetensorsFile(tmp_path / "x").map("a"), array.T):
        reason = f"a: {count} of its 70,000 values are NaN or infinite in {array.dtype}"
        assert misfit("a", a, array.dtype) == (reason if count else "")


def test_misfit_of_another_kind_of_dtype_names_both() -> None:
    whole, real = np.zeros(2, int), np.zeros(2)
    assert misfit("a", real, whole.dtype) == "a must be int64, got float64"
    assert misfit("a", whole, real.dtype) == "a must be float64, got int64"
    assert misfit("a", whole, np.dtype("i4")) == misfit("a", real, np.dtype("f4")) == ""


def test_misfit_of_values_too_large_for_the_dtype_counts_them() -> None:
    """Squares that overflow are no fault."""
    array = np.full(200_000, 1e30)
    assert misfit("a", array, np.dtype("f4")) == ""
    array[[1, 199_999]] = 1e39
    assert misfit("a", array, np.dtype("f4")).startswith("a: 2 of its 200,000")


# -- files that are replaced ---------------------------------------------------------------------------


def test_safetensors_file_reads_the_file_that_it_opened(tmp_path: Path) -> None:
    path, names = tmp_path / "a", ["x", "y"]
    old = {name: np.full((3, 2), i, np.float32) for i, name in enumerate(names)}
    write_safetensors(path, old)
    file = SafetensorsFile(path)
    write_safetensors(path, {name: np.full((9, 9), np.nan, np.float32) for name in names})
    for name in names:
        np.testing.assert_array_equal(file.read(name), old[name])
        np.testing.assert_array_equal(file.map(name), old[name])
    path.unlink()
    np.testing.assert_array_equal(file.read("y"), old["y"])


@pytest.mark.parametrize("mmap", [False, True])
def test_load_arrays_while_the_file_is_replaced_reads_one_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mmap: bool
) -> None:
    arrays = [{name: np.full(5, i) for name in "abc"} for i in range(2)]
    save_arrays(tmp_path / "f", arrays[0], {"i": 0})

    def then_replace(method: Any) -> Any:
        def call(*args: Any) -> Any:
            result = method(*args)
            save_arrays(tmp_path / "f", arrays[1], {"i": 1})
            return result

        return call

    for name in ("read", "map"):
        monkeypatch.setattr(SafetensorsFile, name, then_replace(getattr(SafetensorsFile, name)))
    for i in (0, 1):
        found, metadata = load_arrays(tmp_path / "f", mmap)
        assert metadata["i"] == i and all((array == i).all() for array in found.values())


@pytest.mark.skipif(not hasattr(os, "preadv"), reason="needs Linux")
def test_safetensors_file_is_read_by_several_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system returns at most 2 GiB at once, or fewer bytes after a signal."""
    preadv = os.preadv
    monkeypatch.setattr(os, "preadv", lambda fd, buffers, at: preadv(fd, [buffers[0][:7]], at))
    arrays = {"x": np.arange(9.0), "y": np.arange(5, dtype=np.int8)}
    write_safetensors(tmp_path / "f", arrays)
    file = SafetensorsFile(tmp_path / "f")
    for name, array in arrays.items():
        np.testing.assert_array_equal(file.read(name), array, strict=True)


@pytest.mark.parametrize("has_preadv", [True, False])
def test_safetensors_file_is_read_by_several_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_preadv: bool
) -> None:
    if not has_preadv:
        monkeypatch.delattr(os, "preadv", raising=False)
    arrays = {str(i): np.full(3000 + i, i) for i in range(40)}
    write_safetensors(tmp_path / "f", arrays)
    file = SafetensorsFile(tmp_path / "f")
    with ThreadPoolExecutor(8) as pool:
        for name, found in zip(arrays, pool.map(file.read, [*arrays] * 5)):
            np.testing.assert_array_equal(found, arrays[name])


def test_safetensors_file_that_becomes_shorter_raises(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "f", {"x": np.ones(1000)})
    file = SafetensorsFile(tmp_path / "f")
    os.truncate(tmp_path / "f", 500)
    for method in (file.read, file.map):
        with pytest.raises(ValueError, match="the file became shorter while it was read"):
            method("x")


def test_safetensors_file_is_closed_when_it_is_freed(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "f", {"x": np.ones(3)})
    file = SafetensorsFile(tmp_path / "f")
    descriptor = file._descriptor
    array = file.map("x")
    del file
    with pytest.raises(OSError):
        os.fstat(descriptor)
    assert array.sum() == 3


# -- pointers of Git LFS -----------------------------------------------------------------------------


def test_lfs_pointer_is_named_in_the_error(tmp_path: Path) -> None:
    text = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 5472\n"
    (tmp_path / "model.safetensors").write_text(text)
    (tmp_path / "config.json").write_text(text)
    for read in (SafetensorsFile, read_json, read_text):
        name = "model.safetensors" if read is SafetensorsFile else "config.json"
        with pytest.raises(
            ValueError, match=f"{name}.*a Git LFS pointer to the file; run `git lfs"
        ):
            read(tmp_path / name)


def header_bytes(entries: dict[str, Any], size: int = 0) -> bytes:
    """Return a file whose header has these entries, and `size` bytes behind it."""
    text = json.dumps(entries).encode()
    return struct.pack("<Q", len(text)) + text + bytes(size)


def empty(*shape: int, name: str = "a", **more: Any) -> dict[str, Any]:
    return {name: {"dtype": "U8", "shape": [*shape], "data_offsets": [0, 0], **more}}


@pytest.mark.parametrize(
    ("constant", "most", "made", "message"),
    [
        ("_MAX_ARRAYS", 3, lambda n: {k: v for i in range(n) for k, v in empty(0, name=f"a{i}").items()}, "must have at most 3 arrays, got 4"),
        ("_MAX_NAME", 5, lambda n: empty(0, name="a" * n), "must have at most 5 printable characters, got"),
        ("_MAX_AXES", 4, lambda n: empty(*[0] * n), "an array has at most 4 axes, got 5"),
        ("_MAX_AXES", 64, lambda n: empty(*[0] * n), "an array has at most 64 axes, got 65"),
        ("", 59, lambda n: empty(0, 2**n), "is larger than any array"),
    ],
)  # fmt: skip
def test_file_has_counts_up_to_its_limits(
    constant: str, most: int, made: Any, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    if constant:
        monkeypatch.setattr(safetensors, constant, most)
    path = tmp_path / "x"
    for n in (most - 1, most):
        path.write_bytes(header_bytes(made(n)))
        assert len(SafetensorsFile(path)) > 0
    path.write_bytes(header_bytes(made(most + 1)))
    with pytest.raises(ValueError, match=message):
        SafetensorsFile(path)


def test_header_is_read_up_to_its_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, data = tmp_path / "x", header_bytes({})
    for size in range(8):
        path.write_bytes(data[:size])
        with pytest.raises(ValueError, match=f"it has {size} bytes"):
            SafetensorsFile(path)
    path.write_bytes(data)
    for most in (2, 1):
        monkeypatch.setattr(safetensors, "_MAX_HEADER", most)
        if most == 2:
            assert len(SafetensorsFile(path)) == 0
        else:
            with pytest.raises(ValueError, match="a header of 2 bytes"):
                SafetensorsFile(path)


def test_metadata_may_be_missing_or_null_and_must_be_strings(tmp_path: Path) -> None:
    path = tmp_path / "x"
    for metadata in ({}, None, {"a": "b"}):
        path.write_bytes(header_bytes({"__metadata__": metadata}))
        assert SafetensorsFile(path).metadata == (metadata or {})
    for wrong in ({"a": 1}, [], "a", {"a": None}):
        path.write_bytes(header_bytes({"__metadata__": wrong}))
        with pytest.raises(ValueError, match="its __metadata__ must be an object of strings"):
            SafetensorsFile(path)


def test_equal_data_give_equal_files_with_aligned_arrays(tmp_path: Path) -> None:
    arrays = {
        "b": np.ones(3, np.int8),
        "a": np.ones(1),
        "c": np.ones((2, 3), ">f4").T,
        "d": np.array(True),
    }
    notes = {"y": "1", "x": "2"}
    write_safetensors(tmp_path / "1", arrays, notes)
    write_safetensors(tmp_path / "2", dict(reversed(arrays.items())), dict(reversed(notes.items())))
    assert (tmp_path / "1").read_bytes() == (tmp_path / "2").read_bytes()
    file = SafetensorsFile(tmp_path / "1")
    assert [*file] == ["a", "c", "b", "d"] and file.metadata == notes
    for n in range(8):
        write_safetensors(tmp_path / "2", arrays, {"x": "y" * n})
        data = (tmp_path / "2").read_bytes()
        header = data[8:][: int.from_bytes(data[:8], "little")]
        assert len(header) % 8 == 0 and len(header) - len(header.rstrip()) < 8
    for name, array in arrays.items():
        for found in (file.read(name), file.map(name)):
            np.testing.assert_array_equal(found, array)
            assert found.dtype == array.dtype.newbyteorder("=") and found.dtype.isnative
