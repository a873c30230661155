"""Damaged files: cases of damage for a directory, and limits for what reads it."""

from __future__ import annotations

import json
import os
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from minigrad.io import load_arrays, save_arrays
from minigrad.io.safetensors import SafetensorsFile, write_safetensors

INTENSE = os.environ.get("HYPOTHESIS_PROFILE") == "intense"
Damage = Callable[[Path], object]
"""Damage the file of this path."""

HOSTILE = "\x1b[2J\x9b31m\u202e\r\n\x07"
DEEP = json.loads("[" * 600 + "]" * 600)
ODD_VALUES = [
    None, "x", "", [], {}, [[]], float("nan"), float("inf"), -1, 10**12, 10**30, 1e308, 2.5, True, 10**4000,
    DEEP, HOSTILE, {HOSTILE: 1}, "x" * 100_000,
]  # fmt: skip


class Hang(BaseException):
    """A reader took too long."""


@contextmanager
def limits(seconds: float = 20.0, memory: int = 2 << 30) -> Iterator[None]:
    """Raise `Hang` after `seconds`, and MemoryError if the block needs `memory` more bytes."""

    def stop(number: int, frame: Any) -> None:
        raise Hang

    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    before = signal.signal(signal.SIGALRM, stop)
    resource.setrlimit(resource.RLIMIT_AS, (used + memory, hard))
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        signal.signal(signal.SIGALRM, before)


def write_state(
    run_dir: Path, arrays: dict[str, np.ndarray], state: Any, checksum: bool = False
) -> None:
    """Write the last state of a run with any values, NaN among them.

    With `checksum` the file keeps its former checksum; version 0.2 wrote none.
    """
    path = run_dir / "last.safetensors"
    kept = {"minigrad.crc32": SafetensorsFile(path).metadata["minigrad.crc32"]} if checksum else {}
    write_safetensors(path, arrays, {"trainer": json.dumps(state), **kept})


def rewritten(change: Callable[[bytes], bytes]) -> Damage:
    """Return the damage that replaces the content of a file."""
    return lambda path: path.write_bytes(change(path.read_bytes()))


def edited(change: Callable[[Any], Any]) -> Damage:
    """Return the damage that changes the data of a JSON file in place, or replaces it by a result."""

    def damage(path: Path) -> None:
        data = json.loads(path.read_text(encoding="utf-8"))
        result = change(data)
        path.write_text(json.dumps(data if result is None else result), encoding="utf-8")

    return damage


def file_damages() -> dict[str, Damage]:
    """Return damage for any file."""
    return {
        "missing": lambda path: path.unlink(),
        "a directory": lambda path: (path.unlink(), path.mkdir()),
        "a link to itself": lambda path: (path.unlink(), path.symlink_to(path.name)),
        "a pipe": lambda path: (path.unlink(), os.mkfifo(path)),
        "empty": rewritten(lambda data: b""),
        "cut in half": rewritten(lambda data: data[: len(data) // 2]),
        "without its last byte": rewritten(lambda data: data[:-1]),
        "zeros": rewritten(lambda data: bytes(len(data))),
        "twice": rewritten(lambda data: data + data),
        "not UTF-8": rewritten(lambda data: b"\xff\xfe" + data),
        "UTF-16": rewritten(lambda data: data.decode("latin-1").encode("utf-16")),
        "deep": rewritten(lambda data: b"[" * 100_000),
        "long digits": rewritten(lambda data: b'{"a": ' + b"1" * 5000 + b"}"),
        "null": rewritten(lambda data: b"null"),
        "a list": rewritten(lambda data: b"[1, 2]"),
        "hostile": rewritten(lambda data: HOSTILE.encode()),
    }


def paths_in(data: Any, depth: int) -> Iterator[tuple[Any, ...]]:
    """Yield the path of each entry of plain data; of a list, only the first and the last."""
    keys = list(data) if isinstance(data, dict) else sorted({0, len(data) - 1}) if data else []
    for key in keys:
        yield (key,)
        if depth > 1 and isinstance(data[key], (dict, list)):
            yield from ((key, *rest) for rest in paths_in(data[key], depth - 1))


def json_damages(path: Path, rng: np.random.Generator, depth: int = 4) -> dict[str, Damage]:
    """Return damage for each entry of a JSON file: three odd values, removed, given twice."""

    def at(where: tuple[Any, ...], change: Callable[[Any, Any], Any]) -> Damage:
        """Return the damage that calls `change` with a key and the dict or list that has it."""

        def damage(data: Any) -> None:
            for key in where[:-1]:
                data = data[key]
            change(data, where[-1])

        return edited(damage)

    def set_to(value: Any) -> Callable[[Any, Any], None]:
        return lambda data, key: data.__setitem__(key, value)

    def repeat(where: tuple[Any, ...]) -> Damage:
        def damage(path: Path) -> None:
            at((*where[:-1], "repeated"), set_to(0))(path)
            path.write_text(path.read_text().replace('"repeated"', json.dumps(where[-1])))

        return damage

    damages: dict[str, Damage] = {}
    for where in paths_in(json.loads(path.read_text(encoding="utf-8")), depth):
        for i in rng.permutation(len(ODD_VALUES))[:3].tolist():
            damages[f"{where} = odd value {i}"] = at(where, set_to(ODD_VALUES[i]))
        damages[f"without {where}"] = at(where, lambda data, key: data.pop(key))
        if isinstance(where[-1], str):
            damages[f"{where} twice"] = repeat(where)
    return damages


ARRAY_CHANGES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "NaN": lambda a: np.where(np.arange(a.size).reshape(a.shape) == 0, np.nan, a),
    "infinity": lambda a: np.where(np.arange(a.size).reshape(a.shape) == 0, np.inf, a),
    "1e300": lambda a: np.full(a.shape, 1e300),
    "integers": lambda a: a.astype(int),
    "flat": lambda a: a.reshape(1, -1, 1),
    "longer": lambda a: np.concatenate([a, a]),
    "empty": lambda a: a[:0],
}


def changed(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Damage:
    """Return the damage that changes one array of a safetensors file."""

    def damage(path: Path) -> None:
        arrays, metadata = load_arrays(path)
        save_arrays(path, arrays | {name: change(arrays[name])}, metadata)

    return damage


def renamed(old: str, new: str) -> Damage:
    """Return the damage that renames an array in the header of a safetensors file."""

    def change(data: bytes) -> bytes:
        end = 8 + int.from_bytes(data[:8], "little")
        names = (json.dumps(name).encode() for name in (old, new))
        header = data[8:end].replace(*names, 1)
        return len(header).to_bytes(8, "little") + header + data[end:]

    return rewritten(change)


def flipped(i: int, bit: int) -> Damage:
    """Return the damage that changes a bit of byte i."""
    return rewritten(lambda data: data[:i] + bytes([data[i] ^ bit]) + data[i + 1 :])


def array_damages(path: Path, rng: np.random.Generator) -> dict[str, Damage]:
    """Return damage for arrays of a safetensors file, and for bits of its header."""
    arrays, _ = load_arrays(path)
    names = sorted(name for name, a in arrays.items() if a.dtype.kind == "f" and a.ndim)
    damages: dict[str, Damage] = {}
    for name in rng.permutation(names)[:5].tolist():
        for kind, change in ARRAY_CHANGES.items():
            damages[f"{name}: {kind}"] = changed(name, change)
        for new in (name + "x", HOSTILE, "x" * 100_000):
            damages[f"{name} is called {new:.20}"] = renamed(name, new)
    data = path.read_bytes()
    start, end = data.index(b"}", 20), 8 + int.from_bytes(data[:8], "little")
    for i in rng.integers(start, end, 20).tolist():
        bit = 1 << int(rng.integers(8))
        damages[f"byte {i} ^ {bit}"] = flipped(i, bit)
    return damages


def damages_of(directory: Path, rng: np.random.Generator) -> list[tuple[str, str, Damage]]:
    """Return (file, description, damage) of all cases for the files of a directory."""
    cases = []
    for path in sorted(p for p in directory.rglob("*") if p.is_file()):
        damages = file_damages()
        if path.suffix == ".json":
            damages |= json_damages(path, rng)
        elif path.suffix == ".safetensors":
            damages |= array_damages(path, rng)
        cases += [(str(path.relative_to(directory)), name, d) for name, d in damages.items()]
    return cases
