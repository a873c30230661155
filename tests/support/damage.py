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

    def set_value(where: tuple[Any, ...], value: Any) -> Damage:
        def change(data: Any) -> None:
            for key in where[:-1]:
                data = data[key]
            data[where[-1]] = value

        return edited(change)

    def remove(where: tuple[Any, ...]) -> Damage:
        def change(data: Any) -> None:
            for key in where[:-1]:
                data = data[key]
            del data[where[-1]]

        return edited(change)

    def repeat(where: tuple[Any, ...]) -> Damage:
        mark, name = '"repeated"', json.dumps(where[-1])

        def damage(path: Path) -> None:
            set_value((*where[:-1], "repeated"), 0)(path)
            path.write_text(path.read_text().replace(mark, name))

        return damage

    damages: dict[str, Damage] = {}
    for where in paths_in(json.loads(path.read_text(encoding="utf-8")), depth):
        for i in rng.permutation(len(ODD_VALUES))[:3].tolist():
            damages[f"{where} = odd value {i}"] = set_value(where, ODD_VALUES[i])
        damages[f"without {where}"] = remove(where)
        if isinstance(where[-1], str):
            damages[f"{where} twice"] = repeat(where)
    return damages


def array_damages(path: Path, rng: np.random.Generator) -> dict[str, Damage]:
    """Return damage for arrays of a safetensors file, and for bits of its header."""

    def set_first(value: float) -> Callable[[np.ndarray], np.ndarray]:
        return lambda a: np.where(np.arange(a.size).reshape(a.shape) == 0, value, a)

    def changed(name: str, change: Callable[[np.ndarray], np.ndarray | None]) -> Damage:
        def damage(path: Path) -> None:
            arrays, metadata = load_arrays(path)
            result = change(arrays.pop(name))
            if result is not None:
                arrays[name] = result
            save_arrays(path, arrays, metadata)

        return damage

    def named(old: str, new: str) -> Damage:
        def damage(path: Path) -> None:
            data = path.read_bytes()
            end = 8 + int.from_bytes(data[:8], "little")
            header = json.loads(data[8:end])
            header[new] = header.pop(old)
            text = json.dumps(header).encode()
            path.write_bytes(len(text).to_bytes(8, "little") + text + data[end:])

        return damage

    def flipped(i: int, bit: int) -> Damage:
        return rewritten(lambda data: data[:i] + bytes([data[i] ^ bit]) + data[i + 1 :])

    changes: dict[str, Callable[[np.ndarray], np.ndarray | None]] = {
        "NaN": set_first(np.nan),
        "infinity": set_first(np.inf),
        "1e300": lambda a: np.full(a.shape, 1e300),
        "integers": lambda a: a.astype(int),
        "missing": lambda a: None,
        "flat": lambda a: a.reshape(1, -1, 1),
        "longer": lambda a: np.concatenate([a, a]),
        "empty": lambda a: a[:0],
    }
    arrays, _ = load_arrays(path)
    names = sorted(name for name, a in arrays.items() if a.dtype.kind == "f" and a.ndim)
    damages: dict[str, Damage] = {}
    for name in rng.permutation(names)[:5].tolist():
        for kind, change in changes.items():
            damages[f"{name}: {kind}"] = changed(name, change)
        for new in (name + "x", HOSTILE, "x" * 100_000):
            damages[f"{name} is called {new:.20}"] = named(name, new)
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
