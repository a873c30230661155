"""Damaged files: cases of damage for a directory, and limits for what reads it."""

from __future__ import annotations

import functools
import json
import operator
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from support.environment import needs

from minigrad.io import load_arrays, save_arrays
from minigrad.io.safetensors import SafetensorsFile, write_safetensors

resource = needs("resource")  # limits of memory, which a browser lacks

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

    The file keeps its former checksum if `checksum` is True; otherwise it has none.
    """
    path = run_dir / "last.safetensors"
    kept = {"minigrad.crc32": SafetensorsFile(path).metadata["minigrad.crc32"]} if checksum else {}
    write_safetensors(path, arrays, {"trainer": json.dumps(state), **kept})


def rewritten(change: Callable[[bytes], bytes]) -> Damage:
    """Return the damage that replaces the content of a file."""
    return lambda path: path.write_bytes(change(path.read_bytes()))


CONTENTS: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "cut in half": lambda data: data[: len(data) // 2],
    "without its last byte": lambda data: data[:-1],
    "zeros": lambda data: bytes(len(data)),
    "twice": lambda data: data + data,
    "not UTF-8": lambda data: b"\xff\xfe" + data,
    "deep": lambda data: b"[" * 100_000,
    "long digits": lambda data: b'{"a": ' + b"1" * 5000 + b"}",
    "null": lambda data: b"null",
    "hostile": lambda data: HOSTILE.encode(),
}
FILES: dict[str, Damage] = {
    "missing": Path.unlink,
    "a directory": lambda path: (path.unlink(), path.mkdir()),
    "a link to itself": lambda path: (path.unlink(), path.symlink_to(path.name)),
    "a pipe": lambda path: (path.unlink(), os.mkfifo(path)),
    **{name: rewritten(change) for name, change in CONTENTS.items()},
}
"""Damage for any file."""


def paths_in(data: Any, depth: int = 4) -> Iterator[tuple[Any, ...]]:
    """Yield the path of each entry of plain data; of a list, only the first and the last."""
    keys = list(data) if isinstance(data, dict) else sorted({0, len(data) - 1}) if data else []
    for key in keys:
        yield (key,)
        if depth > 1 and isinstance(data[key], (dict, list)):
            yield from ((key, *rest) for rest in paths_in(data[key], depth - 1))


def edited(where: tuple[Any, ...], change: Callable[[Any, Any], Any]) -> Damage:
    """Return the damage that calls `change` with the dict or list of a JSON entry, and its key."""

    def damage(path: Path) -> None:
        data = json.loads(path.read_text(encoding="utf-8"))
        change(functools.reduce(operator.getitem, where[:-1], data), where[-1])
        path.write_text(json.dumps(data), encoding="utf-8")

    return damage


def json_damages(path: Path, rng: np.random.Generator) -> dict[str, Damage]:
    """Return damage for each entry of a JSON file: three odd values, removed."""
    damages: dict[str, Damage] = {}
    for where in paths_in(json.loads(path.read_text(encoding="utf-8"))):
        for i in rng.permutation(len(ODD_VALUES))[:3].tolist():
            set_odd = lambda data, key, i=i: operator.setitem(data, key, ODD_VALUES[i])
            damages[f"{where} = odd value {i}"] = edited(where, set_odd)
        damages[f"without {where}"] = edited(where, operator.delitem)
    return damages


ARRAY_CHANGES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "NaN": lambda a: a * np.nan,
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
        header = data[8:end].replace(json.dumps(old).encode(), json.dumps(new).encode(), 1)
        return len(header).to_bytes(8, "little") + header + data[end:]

    return rewritten(change)


def array_damages(path: Path, rng: np.random.Generator) -> dict[str, Damage]:
    """Return damage for arrays of a safetensors file, and for their names."""
    arrays, _ = load_arrays(path)
    names = sorted(name for name, a in arrays.items() if a.dtype.kind == "f" and a.ndim)
    damages: dict[str, Damage] = {}
    for name in rng.permutation(names)[:5].tolist():
        for kind, change in ARRAY_CHANGES.items():
            damages[f"{name}: {kind}"] = changed(name, change)
        for new in (name + "x", HOSTILE, "x" * 100_000):
            damages[f"{name} is called {new:.20}"] = renamed(name, new)
    return damages


def damages_of(directory: Path, rng: np.random.Generator) -> list[tuple[str, str, Damage]]:
    """Return (file, description, damage) of all cases for the files of a directory."""
    cases = []
    for path in sorted(p for p in directory.rglob("*") if p.is_file()):
        damages = {".json": json_damages, ".safetensors": array_damages}.get(path.suffix)
        of_entries = damages(path, rng) if damages else {}
        file = str(path.relative_to(directory))
        cases += [(file, name, damage) for name, damage in (FILES | of_entries).items()]
    return cases
