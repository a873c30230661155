"""Headers of GGUF files, written byte by byte: places of arrays, types of metadata, bounds."""

from __future__ import annotations

import os
import struct
import tracemalloc
from enum import IntEnum
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays as hypothesis_arrays
from support.edges import alignments, encodable

from minigrad.io import gguf
from minigrad.io.gguf import MAX_ITEMS, GGUFHeader


class Kind(IntEnum):
    """Types of arrays."""

    F32 = 0
    F16 = 1
    Q8_0 = 8


LIBRARY = SimpleNamespace(
    GGMLQuantizationType=Kind, GGML_QUANT_SIZES={0: (1, 4), 1: (1, 2), 8: (32, 34)}
)
Tensor = tuple[Kind, tuple[int, ...]]


def string(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def entry(key: str, kind: int, value: bytes) -> bytes:
    """Return an entry of metadata."""
    return string(key) + struct.pack("<I", kind) + value


def array(kind: int, count: int, items: bytes = b"") -> bytes:
    return struct.pack("<IQ", kind, count) + items


def size_of(tensor: Tensor) -> int:
    height, size = LIBRARY.GGML_QUANT_SIZES[tensor[0]]
    return int(np.prod(tensor[1])) // height * size


def gguf_bytes(
    tensors: list[Tensor],
    entries: list[bytes] | None = None,
    alignment: int = 32,
    offsets: dict[int, int] | None = None,
    kinds: dict[int, Kind] | None = None,
    version: int = 3,
) -> bytes:
    """Return a file whose arrays are 1, 2, 3 ..., with other offsets or types in the header."""
    entries, infos, data = [*(entries or ())], b"", b""
    if alignment != 32:
        entries.append(entry("general.alignment", 4, struct.pack("<I", alignment)))
    for i, (kind, shape) in enumerate(tensors):
        offset = (offsets or {}).get(i, len(data))
        infos += string(f"t{i}") + struct.pack(f"<I{len(shape)}Q", len(shape), *shape[::-1])
        infos += struct.pack("<IQ", (kinds or {}).get(i, kind), offset)
        data += bytes([i + 1]) * size_of((kind, shape))
        data += bytes(-len(data) % alignment)
    header = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(entries))
    header += b"".join(entries) + infos
    return header + bytes(-len(header) % alignment) + data


def read(path: Path, data: bytes) -> GGUFHeader:
    path.write_bytes(data)
    return GGUFHeader(path, LIBRARY)


shapes = st.lists(st.integers(1, 9), min_size=1, max_size=3).map(tuple)
arrays = st.lists(
    st.tuples(st.sampled_from([Kind.F32, Kind.F16]), shapes)
    | st.tuples(st.just(Kind.Q8_0), st.sampled_from([(32,), (2, 64), (1, 32)])),
    max_size=4,
)


@given(arrays, alignments)
@example([(Kind.F16, (3,)), (Kind.F32, (1,))], 64)
@example([(Kind.F16, (3,)), (Kind.F32, (1,))], 1)
def test_header_has_the_places_of_the_arrays(
    tmp_path_factory: Any, tensors: list[Tensor], alignment: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "places.gguf"
    header = read(path, gguf_bytes(tensors, alignment=alignment))
    assert [*header.tensors] == [f"t{i}" for i in range(len(tensors))]
    for i, (tensor, written) in enumerate(zip(header.tensors.values(), tensors)):
        assert (tensor.kind, tensor.shape) == written
        data = header.bytes[tensor.start : tensor.end]
        assert len(data) == size_of(written) and (data == i + 1).all()


larger = st.tuples(st.just(Kind.F32), shapes) | st.tuples(
    st.just(Kind.F16), st.sampled_from([(32,), (2, 64)])
)
"""Arrays that another type can store in fewer bytes."""


@given(arrays, larger, arrays, alignments, st.data())
def test_header_with_a_smaller_type_of_an_array_raises(
    tmp_path_factory: Any,
    before: list[Tensor],
    larger: Tensor,
    after: list[Tensor],
    alignment: int,
    data: st.DataObject,
) -> None:
    """Also if the next array is where it would be: bytes between arrays are zero."""
    tensors, i = [*before, larger, *after], len(before)
    smaller = [kind for kind in Kind if size_of((kind, larger[1])) < size_of(larger)]
    kind = data.draw(st.sampled_from(smaller))
    path = tmp_path_factory.getbasetemp() / "types.gguf"
    with pytest.raises(ValueError, match="types.gguf: not a whole GGUF file"):
        read(path, gguf_bytes(tensors, alignment=alignment, kinds={i: kind}))


@pytest.mark.parametrize("shape", [(2, 16), (32, 1), (3, 33)])
def test_header_of_rows_that_are_no_whole_blocks_raises(
    tmp_path: Path, shape: tuple[int, ...]
) -> None:
    with pytest.raises(ValueError, match="Q8_0 needs rows of a multiple of 32 values, got shape"):
        read(tmp_path / "m.gguf", gguf_bytes([(Kind.Q8_0, shape)]))


TWO: list[Tensor] = [(Kind.F32, (3, 5)), (Kind.F16, (7,))]


@pytest.mark.parametrize("offset", [0, 32, 60, 96, 2**63])
def test_header_with_another_offset_raises(tmp_path: Path, offset: int) -> None:
    with pytest.raises(
        ValueError, match=f"t1: its offset must be 64, behind zeros, got {offset:,}"
    ):
        read(tmp_path / "m.gguf", gguf_bytes(TWO, offsets={1: offset}))


@pytest.mark.parametrize("more", [b"\0", b"x", bytes(1000)])
def test_header_of_longer_file_raises(tmp_path: Path, more: bytes) -> None:
    with pytest.raises(ValueError, match="its arrays must end at"):
        read(tmp_path / "m.gguf", gguf_bytes(TWO) + more)


def test_file_with_another_beginning_or_text_that_is_no_utf_8_raises(tmp_path: Path) -> None:
    data = gguf_bytes(TWO, [entry("k", 8, string("ab").replace(b"ab", b"\xff\xfe"))])
    with pytest.raises(ValueError, match="k must be UTF-8"):
        read(tmp_path / "m.gguf", data).metadata["k"]
    with pytest.raises(ValueError, match="it must begin with b'GGUF', got b'GGUX'"):
        read(tmp_path / "m.gguf", data.replace(b"GGUF", b"GGUX"))


def test_header_of_shorter_file_reads_all_arrays_or_raises(tmp_path: Path) -> None:
    whole, path = gguf_bytes(TWO), tmp_path / "m.gguf"
    padding = 32 - size_of(TWO[1])
    for size in range(len(whole)):
        if size >= len(whole) - padding:
            read(path, whole[:size])
        else:
            with pytest.raises(ValueError, match=f"^{path}: not a whole GGUF file"):
                read(path, whole[:size])


@pytest.mark.parametrize(
    "value",
    [struct.pack("<I", n) for n in (0, 24, 33)]
    + [array(4, 1, struct.pack("<I", 64)), string("64"), struct.pack("<f", 64)],
)
def test_header_with_impossible_alignment_raises(tmp_path: Path, value: bytes) -> None:
    kind = 4 if len(value) == 4 else 9 if len(value) == 16 else 8
    with pytest.raises(ValueError, match="general.alignment must be a power of 2, got"):
        read(tmp_path / "m.gguf", gguf_bytes(TWO, [entry("general.alignment", kind, value)]))


CODES = {
    0: "u1",
    1: "i1",
    2: "<u2",
    3: "<i2",
    4: "<u4",
    5: "<i4",
    6: "<f4",
    7: "?",
    10: "<u8",
    11: "<i8",
    12: "<f8",
}
texts = st.text(encodable, max_size=3).map(lambda text: (8, string(text), text))


@st.composite
def values(draw: Any) -> tuple[int, bytes, Any]:
    """Draw the type, the bytes and the value of a number, a string or a list."""
    kind, count = draw(st.sampled_from([*CODES, 8])), draw(st.none() | st.integers(0, 3))
    if kind == 8:
        parts = draw(st.lists(texts, min_size=count or 1, max_size=count or 1))
        data, items = b"".join(part[1] for part in parts), [part[2] for part in parts]
    else:
        numbers = draw(hypothesis_arrays(CODES[kind], (count or 1,)))
        data, items = numbers.tobytes(), numbers.tolist()
    return (kind, data, items[0]) if count is None else (9, array(kind, count, data * (count > 0)), items * (count > 0))  # fmt: skip


@given(st.lists(values(), max_size=3), st.integers(1, 4))
@example([(8, string("猫"), "猫"), (9, array(8, 2, string("x") + string("")), ["x", ""])], 3)
def test_metadata_of_every_type_are_plain_data(
    tmp_path_factory: Any, parts: list[Any], version: int
) -> None:
    path, entries = (
        tmp_path_factory.getbasetemp() / "m.gguf",
        [entry(f"k{i}", kind, data) for i, (kind, data, _) in enumerate(parts)],
    )
    data = gguf_bytes([], entries, version=version)
    if version not in (2, 3):
        with pytest.raises(ValueError, match=f"version must be 2 or 3, .*, got {version}"):
            read(path, data)
        return
    metadata = read(path, data).metadata
    expected = {f"k{i}": value for i, (_, _, value) in enumerate(parts)}
    assert repr(dict(metadata)) == repr(expected) and metadata.get("g") is None


def test_every_byte_of_padding_must_be_zero(tmp_path: Path) -> None:
    """Check bytes behind the header, between arrays and after the last one."""
    tensors: list[Tensor] = [(Kind.F16, (3,)), (Kind.F16, (5,))]
    data, path = gguf_bytes(tensors), tmp_path / "m.gguf"
    header = read(path, data)
    used = {i for x in header.tensors.values() for i in range(x.start, x.end)}
    padding = sorted({*range(len(data) - 96, len(data))} - used)
    first = header.tensors["t0"].start
    assert len(padding) > 26 + 22 and data[first - 1] == 0
    for i in [i for i in padding if i >= first or i == first - 1]:
        changed = bytearray(data)
        changed[i] = 1
        with pytest.raises(ValueError, match="its offset must be .*, behind zeros|must end at"):
            read(path, bytes(changed))


def test_metadata_of_the_largest_and_smallest_numbers(tmp_path: Path) -> None:
    """Tell signed from unsigned types, and floats of both sizes, by their limits."""
    for kind, code in CODES.items():
        dtype = np.dtype(code)
        limits = np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype if code != "?" else "u1")
        numbers = np.array([False, True] if code == "?" else [limits.min, limits.max], dtype)
        entries = [entry(f"k{i}", kind, x.tobytes()) for i, x in enumerate(numbers)]
        entries.append(entry("all", 9, array(kind, 2, numbers.tobytes())))
        found = dict(read(tmp_path / "m.gguf", gguf_bytes([], entries)).metadata)
        first, last = numbers.tolist()
        assert repr(found) == repr({"k0": first, "k1": last, "all": [first, last]}), code


def sparse(path: Path, data: bytes, size: int) -> Path:
    """Write a file whose other bytes are zero and take no space."""
    path.write_bytes(data)
    os.truncate(path, size)
    return path


def test_metadata_that_nobody_uses_are_not_read(tmp_path: Path) -> None:
    """A file of 900 MB with one huge string."""
    size = 900 << 20
    start = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + string("tokenizer.huge")
    start += struct.pack("<I", 8)
    path = sparse(tmp_path / "m.gguf", start + struct.pack("<Q", size - len(start) - 8), size)
    tracemalloc.start()
    header = GGUFHeader(path, LIBRARY)
    assert [*header.metadata] == ["tokenizer.huge"]
    message = f"^{path}: tokenizer.huge must have at most 67,108,864 bytes, got 943,"
    with pytest.raises(ValueError, match=message):
        header.metadata["tokenizer.huge"]
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


@pytest.mark.parametrize("kind", [0, 8])
def test_header_with_too_many_items_raises_before_it_reads_them(tmp_path: Path, kind: int) -> None:
    for counts in ([500_000_000], [MAX_ITEMS, 1], [2**64 - 1]):
        entries = [entry(f"k{i}", 9, array(kind, n)) for i, n in enumerate(counts)]
        if len(counts) > 1 and kind == 8:
            continue  # its items would be read first
        data = b"GGUF" + struct.pack("<IQQ", 3, 0, len(entries))
        path = sparse(tmp_path / "m.gguf", data + entries[0], 1 << 32)
        if len(counts) > 1:
            with path.open("r+b") as file:
                file.seek(len(data) + len(entries[0]) + counts[0])
                file.write(entries[1])
        with pytest.raises(
            ValueError, match="arrays of metadata must have at most 4,000,000 items"
        ):
            GGUFHeader(path, LIBRARY)


@pytest.mark.parametrize("part", ["key", "array"])
def test_header_with_a_long_name_raises(tmp_path: Path, part: str) -> None:
    counts = (0, 1) if part == "key" else (1, 0)
    data = b"GGUF" + struct.pack("<IQQQ", 3, *counts, 1 << 29)
    with pytest.raises(ValueError, match="names must have at most 1,000 bytes, got 536,870,912"):
        GGUFHeader(sparse(tmp_path / "m.gguf", data, 1 << 30), LIBRARY)


def test_header_without_memory_for_the_map_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: Any, **options: Any) -> Any:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(np, "memmap", refuse)
    path = tmp_path / "m.gguf"
    with pytest.raises(OSError, match=f"Cannot allocate memory: '{path}'"):
        read(path, gguf_bytes(TWO))


def number(key: str) -> bytes:
    return entry(key, 0, b"\1")


LIMITS: dict[str, tuple[str, int, Any, str]] = {
    "keys": ("MAX_ENTRIES", 3, lambda n: gguf_bytes([], [number(f"k{i}") for i in range(n)]), "must have at most 3 keys, got 4"),
    "arrays": ("MAX_ENTRIES", 3, lambda n: gguf_bytes([(Kind.F32, (1,))] * n), "must have at most 3 arrays, got 4"),
    "names": ("MAX_NAME", 5, lambda n: gguf_bytes([], [number("k" * n)]), "names must have at most 5 bytes, got 6"),
    "items": (
        "MAX_ITEMS", 6, lambda n: gguf_bytes([], [entry("a", 9, array(0, 3, b"123")), entry("b", 9, array(0, n - 3, b"1" * (n - 3)))]),
        "must have at most 6 items, got 7",
    ),
    "axes": ("VERSIONS", 4, lambda n: gguf_bytes([(Kind.F32, (1,) * n)]), "must have at most 4 axes, got 5"),
}  # fmt: skip
"""A constant, its value, a file of n things, and the error of one more."""


@pytest.mark.parametrize("name", LIMITS)
def test_header_has_counts_up_to_its_limits(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    constant, most, made, message = LIMITS[name]
    if constant.startswith("MAX"):
        monkeypatch.setattr(gguf, constant, most)
    path = tmp_path / "m.gguf"
    for n in (most - 1, most):
        path.write_bytes(made(n))
        header = GGUFHeader(path, LIBRARY)
        assert len(header.metadata) + len(header.tensors) > 0
    path.write_bytes(made(most + 1))
    with pytest.raises(ValueError, match=message):
        GGUFHeader(path, LIBRARY)


def test_values_are_read_up_to_their_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A longer value raises an error when it is used, and others are read."""
    monkeypatch.setattr(gguf, "MAX_VALUE", 8 + 16)
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf_bytes([], [entry(f"s{n}", 8, string("x" * n)) for n in (15, 16, 17)]))
    metadata = GGUFHeader(path, LIBRARY).metadata
    assert (metadata["s15"], metadata["s16"]) == ("x" * 15, "x" * 16)
    with pytest.raises(ValueError, match=f"{path}: s17 must have at most 24 bytes, got 25"):
        metadata["s17"]


def test_names_and_types_of_a_header_are_checked(tmp_path: Path) -> None:
    path, f32 = tmp_path / "m.gguf", (Kind.F32, (2,))
    for data, message in (
        (gguf_bytes([], [number("a"), number("a")]), "the names of its arrays and keys must be different"),
        (gguf_bytes([f32, f32]).replace(b"t1", b"t0"), "the names of its arrays and keys must be different"),
        (gguf_bytes([], [entry("a", 13, b"1")]), "types of metadata must be from 0 to 12, got 13"),
        (gguf_bytes([], [entry("a", 9, array(9, 0))]), "arrays of metadata must hold numbers or strings, got type 9"),
        (gguf_bytes([(Kind.F32, (0,))]), "t0: F32 needs rows of a multiple of 1 values, got shape"),
        *(
            (gguf_bytes([], [entry("general.alignment", kind, struct.pack(f"<{code}", value))]), "general.alignment must be a power of 2, got")
            for kind, code, value in ((5, "i", -8), (5, "i", -1), (4, "I", 0), (4, "I", 24), (7, "?", True), (6, "f", 32.0))
        ),
        (gguf_bytes([f32])[:-1] + b"\1", "its arrays must end at"),
        (gguf_bytes([f32]) + bytes(32), "its arrays must end at"),
        (gguf_bytes([f32, f32]).replace(b"\1" * 8 + b"\0", b"\1" * 9), "t1: its offset must be 32, behind zeros, got 32"),
        (gguf_bytes([f32], version=1), "its version must be 2 or 3, little-endian, got 1"),
        (gguf_bytes([f32], version=4), "its version must be 2 or 3, little-endian, got 4"),
    ):  # fmt: skip
        path.write_bytes(data)
        with pytest.raises(ValueError, match=message):
            GGUFHeader(path, LIBRARY)
    for end in (None, -24):  # the padding of the last array may be missing
        path.write_bytes(gguf_bytes([f32], version=2)[:end])
        assert GGUFHeader(path, LIBRARY).tensors["t0"].shape == (2,)
    path.write_bytes(gguf_bytes([f32], version=2))
    assert GGUFHeader(path, LIBRARY).tensors["t0"].shape == (2,)
