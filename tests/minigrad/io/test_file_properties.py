"""Files of drawn content: what was saved is loaded, and damage is one error that names the file."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support.damage import limits
from support.edges import encodable
from support.environment import max_examples

import minigrad as mg
from minigrad.io import load_arrays, read_json, save_arrays, write_json
from minigrad.io.safetensors import BITS, DTYPES, SafetensorsFile, write_safetensors

LAYOUTS = {
    "C": lambda a: a,
    "Fortran": np.asfortranarray,
    "reversed": lambda a: a[::-1] if a.ndim else a,
    "every second": lambda a: a[::2] if a.ndim else a,
    "transposed": np.transpose,
    "read-only": lambda a: np.broadcast_to(a[..., :1], a.shape) if a.ndim and a.size else a,
}


@dataclass(frozen=True)
class Array:
    """Description of an array of random bytes, NaN and infinity among its values."""

    code: str
    shape: tuple[int, ...]
    layout: str
    seed: int

    def make(self) -> np.ndarray:
        dtype, rng = np.dtype(self.code), np.random.default_rng(self.seed)
        if dtype.kind == "b":
            array = rng.random(self.shape) < 0.5
        else:
            data = rng.bytes(math.prod(self.shape) * dtype.itemsize)
            array = np.frombuffer(data, dtype).reshape(self.shape)
        return LAYOUTS[self.layout](np.asarray(array))


codes = st.sampled_from([c for c in DTYPES.values() if c != "<u2"] + ["<u2", ">f8", ">i4", ">c8"])
shapes = st.lists(st.integers(0, 3), max_size=3).map(tuple)
array_values = st.builds(Array, codes, shapes, st.sampled_from([*LAYOUTS]), st.integers(0, 99))
names = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=6)
named_arrays = st.dictionaries(names, array_values, max_size=4)
plain = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(encodable, max_size=5)  # fmt: skip
data_values = st.recursive(
    plain,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(encodable, max_size=3), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


def bits(array: np.ndarray) -> Any:
    """Return dtype, shape and bytes in the order of the machine, by which NaNs are compared too."""
    native = np.asarray(array).astype(array.dtype.newbyteorder("="))
    return native.dtype.str, native.shape, native.tobytes()


@given(named_arrays, st.dictionaries(names, data_values, max_size=3))
def test_load_arrays_returns_what_save_arrays_wrote(
    arrays: dict[str, Array], metadata: dict[str, Any]
) -> None:
    assume("__metadata__" not in arrays)
    made = {name: array.make() for name, array in arrays.items()}
    with TemporaryDirectory() as directory:
        path = Path(directory) / "x"
        save_arrays(path, made, metadata)
        for mmap in (False, True):
            loaded, found = load_arrays(path, mmap=mmap)
            assert json.dumps(found, sort_keys=True) == json.dumps(metadata, sort_keys=True)
            assert {n: bits(a) for n, a in loaded.items()} == {n: bits(a) for n, a in made.items()}
            assert all(a.flags.writeable is not mmap and a.flags.aligned for a in loaded.values())
        header = json.loads(
            path.read_bytes()[8:][: int.from_bytes(path.read_bytes()[:8], "little")]
        )
        ends = sorted(e["data_offsets"] for name, e in header.items() if name != "__metadata__")
        assert [start for start, _ in ends] == [0, *(end for _, end in ends)][: len(ends)]
        assert {n: bits(a) for n, a in load_arrays(path)[0].items()} == {
            n: bits(a) for n, a in made.items()
        }


leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(encodable, max_size=4)
    | array_values
)
objects = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(names, inner, max_size=3)
    ),
    max_leaves=8,
)


def made(value: Any, as_lists: bool) -> Any:
    """Return an object with arrays, or what is loaded of it: bits of arrays, and lists."""
    if isinstance(value, Array):
        return bits(value.make()) if as_lists else value.make()
    if isinstance(value, dict):
        return {key: made(item, as_lists) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return (list if as_lists else type(value))(made(item, as_lists) for item in value)
    return repr(value) if as_lists else value


def loaded(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return bits(value)
    if isinstance(value, dict):
        return {key: loaded(item) for key, item in value.items()}
    return [loaded(item) for item in value] if isinstance(value, list) else repr(value)


def paths(value: Any, at: str = "") -> list[str]:
    """Return the names of the arrays of an object in its file."""
    if isinstance(value, Array):
        return [at or "array"]
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, (list, tuple)) else []  # fmt: skip
    return [path for key, item in items for path in paths(item, f"{at}.{key}" if at else f"{key}")]


@given(objects)
def test_load_returns_what_save_wrote(value: Any) -> None:
    with TemporaryDirectory() as directory:
        path = Path(directory) / "x"
        if len({*paths(value)}) < len(paths(value)):
            with pytest.raises(ValueError, match="two arrays must not have the same path"):
                mg.save(made(value, False), path)
            return
        mg.save(made(value, False), path)
        assert loaded(mg.load(path)) == made(value, True)


@given(
    st.dictionaries(st.text(encodable, max_size=4), data_values, max_size=4),
    st.sampled_from([0, 1, 4]),
)
def test_read_json_returns_what_write_json_wrote(data: dict[str, Any], indent: int) -> None:
    with TemporaryDirectory() as directory:
        write_json(Path(directory) / "x", data, indent)
        assert read_json(Path(directory) / "x") == data


@given(array_values, st.sampled_from(["bfloat16", "float16", "float32", "float64"]))
def test_write_safetensors_with_a_dtype_rounds_floats_only(array: Array, dtype: str) -> None:
    value = array.make()
    assume(value.dtype.kind != "c")
    with TemporaryDirectory() as directory, np.errstate(all="ignore"):
        path = Path(directory) / "x"
        write_safetensors(path, {"a": value}, dtype=dtype)
        found = SafetensorsFile(path).read("a")
        if value.dtype.kind != "f":
            assert bits(found) == bits(value)
        elif dtype != "bfloat16":
            np.testing.assert_array_equal(found, value.astype(dtype), strict=True)
        else:  # 8 significant bits
            exact = value.astype(np.float32).astype(float)
            finite = np.isfinite(exact) & (np.abs(exact) < 3.3e38)
            exact = np.where(finite, exact, 0.0)
            step = np.maximum(np.abs(exact) * 2.0**-8, 2.0**-134)
            assert (np.abs(np.where(finite, found, 0.0) - exact) <= step).all()
            assert found.dtype == np.float32


# -- damage ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Change:
    """Bytes that take the place of others; `at` is a share of the file."""

    at: float
    length: int
    new: bytes

    def __call__(self, data: bytes) -> bytes:
        start = int(self.at * len(data))
        return data[:start] + self.new + data[start + self.length :]


tokens = [b'"', b"[", b"]", b"{", b"}", b",", b":", b"-", b"9", b"0", b"1e9", b"\\u0000", b"null", b"\xff", b"F16", b"U8"]  # fmt: skip
new_bytes = st.binary(max_size=4) | st.lists(st.sampled_from(tokens), max_size=3).map(b"".join)
changes = st.builds(Change, st.floats(0, 1), st.integers(0, 9), new_bytes)
cuts = st.floats(0, 1).map(lambda at: Change(at, 10**9, b""))


@max_examples(60)
@given(change=st.lists(changes, min_size=1, max_size=2) | cuts.map(lambda cut: [cut]))
def test_load_arrays_of_damaged_bytes_raises_or_returns_the_same(change: list[Change]) -> None:
    """The checksum covers names, dtypes, shapes, values and metadata."""
    arrays = {
        "weight": np.arange(6.0).reshape(2, 3),
        "n": np.int16([1, -2]),
        "empty": np.ones((0, 2)),
    }
    metadata = {"step": 3, "note": ["x", None]}
    with TemporaryDirectory() as directory:
        path = Path(directory) / "weights.safetensors"
        save_arrays(path, arrays, metadata)
        data = path.read_bytes()
        for one in change:
            data = one(data)
        path.write_bytes(data)
        try:
            with limits(10.0, 1 << 29):
                loaded, found = load_arrays(path)
        except ValueError as error:
            message = str(error)
            assert message.startswith(str(path)) and len(message) < 600 and message.isprintable()
            return
    if b'"minigrad.crc32"' in data:
        assert {n: bits(a) for n, a in loaded.items()} == {n: bits(a) for n, a in arrays.items()}
        assert found == metadata


entries = st.fixed_dictionaries(
    {},
    optional={
        "dtype": st.sampled_from([*BITS, "F31", None]),
        "shape": st.lists(st.sampled_from([0, 1, 2, 3, 2**40, 2**62, -1, True, 1.0]), max_size=3),
        "data_offsets": st.lists(st.sampled_from([0, 1, 2, 8, 12, 16, 2**63, -1, "0"]), max_size=3),
    },
)


@max_examples(60)
@given(
    st.dictionaries(st.sampled_from(["a", "b", "__metadata__", "\n"]), entries, max_size=2),
    st.integers(0, 20),
)
def test_safetensors_file_of_any_header_raises_or_has_all_bytes(
    header: dict[str, Any], size: int
) -> None:
    with TemporaryDirectory() as directory:
        path = Path(directory) / "x"
        text = json.dumps(header).encode()
        path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(size))
        try:
            with limits(10.0, 1 << 29):
                file = SafetensorsFile(path)
        except ValueError as error:
            assert str(error).startswith(f"{path}: not a whole safetensors file (")
            return
        assert sum(entry.end - entry.start for entry in file.values()) == size
        for name, entry in file.items():
            assert 8 * (entry.end - entry.start) == math.prod(entry.shape) * BITS[entry.dtype]
            if entry.dtype in DTYPES:
                assert file.read(name).shape == file.map(name).shape == entry.shape
            else:
                with pytest.raises(ValueError, match=f"{name} is {entry.dtype}, a dtype that Num"):
                    file.read(name)


@max_examples(60)
@given(
    st.lists(changes, min_size=1, max_size=3),
    st.dictionaries(st.text(encodable, max_size=3), data_values, max_size=3),
)
def test_read_json_of_damaged_bytes_raises_or_returns_an_object(
    change: list[Change], content: dict[str, Any]
) -> None:
    with TemporaryDirectory() as directory:
        path = Path(directory) / "config.json"
        write_json(path, {"a": [1, {"b": 2.5}], **content})
        data = path.read_bytes()
        for one in change:
            data = one(data)
        path.write_bytes(data)
        try:
            with limits(10.0, 1 << 29):
                read = read_json(path)
        except ValueError as error:
            message = str(error)
            assert message.startswith(str(path)) and len(message) < 600 and message.isprintable()
            return
        assert read == json.loads(data) or "NaN" in repr(read) or "nan" in repr(read)


@max_examples(40)
@given(
    arrays=st.lists(
        st.tuples(st.sampled_from(["U8", "I16", "F32"]), st.integers(0, 3), st.sampled_from([0, 0, 0, 1, -1])),
        max_size=4,
    ),
    rest=st.sampled_from([0, 0, 1, -1]),
    missing=st.sampled_from([0, 0, 0, 1]),
)  # fmt: skip
def test_safetensors_file_is_read_if_its_arrays_follow_one_another(
    arrays: list[tuple[str, int, int]], rest: int, missing: int
) -> None:
    """`missing` values of the last array have no bytes, and `rest` bytes follow all arrays."""
    header: dict[str, Any] = {}
    end = 0
    for i, (dtype, count, gap) in enumerate(arrays):
        start = max(0, end + gap)
        end = start + count * BITS[dtype] // 8
        shape = [count + (missing if i == len(arrays) - 1 else 0)]
        header[f"{i}"] = {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}
    offsets = sorted(entry["data_offsets"] for entry in header.values())
    is_whole = [start for start, _ in offsets] == [0, *(end for _, end in offsets)][: len(offsets)]
    last = max((end for _, end in offsets), default=0)
    assume(last + rest >= 0)
    with TemporaryDirectory() as directory:
        path, text = Path(directory) / "x", json.dumps(header).encode()
        path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(last + rest))
        if is_whole and rest == 0 and not (missing and arrays):
            assert {*SafetensorsFile(path)} == {*header}
        else:
            with pytest.raises(ValueError, match="x: not a whole safetensors file"):
                SafetensorsFile(path)
