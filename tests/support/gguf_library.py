"""The package `gguf`, or the part of it that `minigrad`, `nn` and `write_gguf` use, without it.

The stand-in has five types of arrays. It writes the format by its description, as the package does.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np


class GGMLQuantizationType(IntEnum):
    """Types of arrays. The package has no function that decodes the last one."""

    F32 = 0
    F16 = 1
    Q4_0 = 2
    Q8_0 = 8
    Q8_1 = 9


class GGUFValueType(IntEnum):
    """Types of metadata."""

    UINT8 = 0
    INT8 = 1
    UINT16 = 2
    INT16 = 3
    UINT32 = 4
    INT32 = 5
    FLOAT32 = 6
    BOOL = 7
    STRING = 8
    ARRAY = 9


SIZES = {kind: (32, size) for kind, size in zip(GGMLQuantizationType, (0, 0, 18, 34, 36))}
SIZES |= {GGMLQuantizationType.F32: (1, 4), GGMLQuantizationType.F16: (1, 2)}


def quantize(x: np.ndarray, kind: GGMLQuantizationType) -> np.ndarray:
    """Return the blocks of rows: a scale in float16, and 32 integers of 4 or 8 bits."""
    if kind == GGMLQuantizationType.F16:
        return x.astype(np.float16).view(np.uint8)
    blocks = x.reshape(len(x), -1, 32)
    most = {GGMLQuantizationType.Q4_0: 7, GGMLQuantizationType.Q8_0: 127}[kind]
    scale = (np.abs(blocks).max(-1, keepdims=True) / most).astype(np.float16)
    whole = np.rint(blocks / np.maximum(scale, 1e-7)).clip(-most, most).astype(np.int8)
    if most == 7:
        nibbles = (whole + 8).astype(np.uint8)
        whole = nibbles[..., :16] | nibbles[..., 16:] << 4
    raw = np.concatenate([scale.view(np.uint8), whole.view(np.uint8)], -1)
    return raw.reshape(len(x), -1)


def dequantize(raw: np.ndarray, kind: GGMLQuantizationType) -> np.ndarray:
    """Return the float32 values of rows of blocks."""
    if kind == GGMLQuantizationType.Q8_1:
        raise NotImplementedError
    if kind in (GGMLQuantizationType.F32, GGMLQuantizationType.F16):
        return raw.view("<f4" if kind == GGMLQuantizationType.F32 else "<f2").astype(np.float32)
    blocks = raw.reshape(len(raw), -1, SIZES[kind][1])
    scale, whole = blocks[..., :2].copy().view("<f2"), blocks[..., 2:].view(np.int8)
    if kind == GGMLQuantizationType.Q4_0:
        nibbles = whole.view(np.uint8)
        whole = np.concatenate([nibbles & 15, nibbles >> 4], -1).astype(np.int8) - np.int8(8)
    return (scale.astype(np.float32) * whole).reshape(len(raw), -1)


CODES = dict(zip(GGUFValueType, "BbHhIif?"))


def _text(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def _value(value: Any, kind: int, inner: int | None = None) -> bytes:
    """Return a value of metadata with its types."""
    content = lambda x, kind: _text(x) if kind == 8 else struct.pack(f"<{CODES[kind]}", x)
    if inner is None:
        return struct.pack("<I", kind) + content(value, kind)
    head = struct.pack("<IIQ", kind, inner, len(value))
    return head + b"".join(content(x, inner) for x in value)


class GGUFWriter:
    """Collects metadata and arrays, and writes them when it is closed."""

    def __init__(self, path: Path, architecture: str) -> None:
        self.path, self.arrays = path, dict[str, tuple[np.ndarray, tuple[int, ...], int]]()
        self.kv_data: list[dict[str, Any]] = [{}]
        self.add_key_value("general.architecture", architecture, GGUFValueType.STRING)
        write = lambda: None
        self.write_header_to_file = self.write_kv_data_to_file = self.write_tensors_to_file = write

    def add_key_value(self, key: str, *value: Any) -> None:
        self.kv_data[0][key] = value

    def add_float32(self, key: str, value: float) -> None:
        self.add_key_value(key, value, GGUFValueType.FLOAT32)

    def add_uint32(self, key: str, value: int) -> None:
        self.add_key_value(key, value, GGUFValueType.UINT32)

    def add_tensor(self, name: str, x: np.ndarray, raw_dtype: Any = GGUFValueType.UINT8) -> None:
        kind, shape = raw_dtype, x.shape
        if x.dtype != np.uint8:
            kind = GGMLQuantizationType.F16 if x.dtype == np.float16 else GGMLQuantizationType.F32
            x = x if x.dtype == np.float16 else x.astype(np.float32)
        else:
            shape = (*shape[:-1], shape[-1] // SIZES[kind][1] * SIZES[kind][0])
        self.arrays[name] = x, shape, kind

    def close(self) -> None:
        head = struct.pack("<4sIQQ", b"GGUF", 3, len(self.arrays), len(self.kv_data[0]))
        head += b"".join(_text(key) + _value(*value) for key, value in self.kv_data[0].items())
        data = b""
        for name, (x, shape, kind) in self.arrays.items():
            head += _text(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *shape[::-1])
            head += struct.pack("<IQ", kind, len(data))
            data += x.tobytes()
            data += bytes(-len(data) % 32)
        self.path.write_bytes(head + bytes(-len(head) % 32) + data)


STAND_IN = ModuleType("gguf")
vars(STAND_IN).update(
    GGMLQuantizationType=GGMLQuantizationType, GGUFValueType=GGUFValueType, GGUFWriter=GGUFWriter,
    GGML_QUANT_SIZES=SIZES, quantize=quantize, dequantize=dequantize,
)  # fmt: skip
try:
    import gguf
except ImportError:
    gguf = STAND_IN
