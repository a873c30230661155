"""Damage for files, drawn by a seed, and a judge of what a reader makes of it."""

from __future__ import annotations

import copy
import json
import os
import resource
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from minigrad.io import load_arrays, save_arrays
from minigrad.io.safetensors import write_safetensors

INTENSE = os.environ.get("HYPOTHESIS_PROFILE") == "intense"
Damage = tuple[str, Callable[[Path], Any]]

DEEP: list[Any] = []
for _ in range(600):
    DEEP = [DEEP]
NO_NUMBERS = [None, "x", "", [], {}, [[]], float("nan"), float("inf"), -1, -(10**12), 10**12, 10**30, 1e308, 2.5, True, "1" * 1000, 10**4000, DEEP, "\x1b[2J\x9b\u202e\n", {"\x1b[2J\x9b\u202e": 1}]  # fmt: skip


class Hang(BaseException):
    """A reader took too long."""


@contextmanager
def limits(seconds: float = 20.0, memory: int = 2 << 30) -> Iterator[None]:
    """Within it, a hang is an exception, and so is taking much more memory than now."""

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


def write_state(run_dir: Path, arrays: dict[str, np.ndarray], state: Any) -> None:
    """Write the last state of a run with any values, NaN among them."""
    write_safetensors(run_dir / "last.safetensors", arrays, {"trainer": json.dumps(state)})


class Judge:
    """Counts what became of each case; what is neither refused in a clear line nor harmless is kept in `wrong`."""

    def __init__(self, errors: tuple[type[BaseException], ...] = (ValueError, OSError)) -> None:
        self.errors = errors
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []

    def case(
        self,
        what: str,
        read: Callable[[], Any],
        right: Callable[[Any], bool],
        named: str | None,
        free: bool = False,
    ) -> None:
        """`read()` must raise one of the errors, in one line that holds `named`; or what it returns be right.

        What is `free` may be anything: nothing else tells what it was.
        """
        kind, note = "", ""
        try:
            with limits():
                found = read()
            kind = "harmless" if right(found) else "free to be so" if free else "silent"
        except Hang:
            kind = "hang"
        except self.errors as error:
            text = str(error)
            one = text.isprintable() and len(text) < 2000
            kind = (
                "refused"
                if one and (named is None or named in text)
                else "without a file name"
                if one
                else "traceback"
            )
            note = text[:300]
        except Exception as error:
            kind, note = "traceback", f"{type(error).__name__}: {error}"[:300]
        self.counts[kind] += 1
        if kind not in ("harmless", "refused", "free to be so"):
            self.wrong.append(f"{kind}: {what}: {note}")

    def report(self, name: str, least: int, tell: Callable[[str], Any]) -> None:
        """Tell the counts, and fail if there is anything wrong or there were too few cases."""
        total = sum(self.counts.values())
        names = (
            "refused",
            "harmless",
            "free to be so",
            "traceback",
            "hang",
            "silent",
            "without a file name",
        )
        tell(f"{total} {name}: " + ", ".join(f"{self.counts[n]} {n}" for n in names))
        assert not self.wrong, f"{len(self.wrong)} of {total}:\n" + "\n".join(
            self.wrong[: None if INTENSE else 40]
        )
        assert total >= least and self.counts["refused"] > total / 2


def json_damage(
    name: str, rng: np.random.Generator, depth: int = 4, most: int = 10_000
) -> Callable[[Path], list[Damage]]:
    """Cases for a JSON file of a directory: each entry replaced, removed, given twice."""

    def cases(directory: Path) -> list[Damage]:
        data = json.loads((directory / name).read_text(encoding="utf-8"))
        found: list[Damage] = []
        for path in list(_paths(data, depth)):
            for value in rng.permutation(len(NO_NUMBERS))[:6]:
                odd = NO_NUMBERS[value]
                shown = "deep" if odd is DEEP else "10**4000" if odd == 10**4000 else f"{odd!r:.30}"
                found.append(
                    (f"{name} {path} = {shown}", lambda d, p=path, v=odd: _edit(d / name, p, v))
                )
            if isinstance(path[-1], str):
                found.append((f"{name} {path} twice", lambda d, p=path: _give_twice(d / name, p)))
            found.append((f"{name} without {path}", lambda d, p=path: _edit(d / name, p, _REMOVED)))
        keep = rng.permutation(len(found))[:most]
        return [found[i] for i in sorted(keep)]

    return cases


def value_damage(name: str, rng: np.random.Generator, count: int) -> Callable[[Path], list[Damage]]:
    """Cases for a JSON file: one digit or letter of a number or text in it becomes another."""

    def cases(directory: Path) -> list[Damage]:
        data = json.loads((directory / name).read_text(encoding="utf-8"))
        found: list[Damage] = []
        leaves = [
            path for path in _paths(data, 10) if isinstance(_at(data, path), (str, int, float))
        ]
        for path in [leaves[i] for i in rng.integers(len(leaves), size=count).tolist()]:
            text = json.dumps(_at(data, path))
            places = [i for i, c in enumerate(text) if c.isalnum() and c.isascii()] or [0]
            place, turn = int(rng.choice(places)), int(rng.integers(1, 10))
            kind = "0123456789" if text[place].isdigit() else "abcdefghijklmnopqrstuvwxyz"
            new = (
                text[:place] + kind[(kind.find(text[place]) + turn) % len(kind)] + text[place + 1 :]
            )
            try:
                value = json.loads(new)
            except ValueError:
                value = new
            found.append(
                (f"{name} {path} = {value!r:.60}", lambda d, p=path, v=value: _edit(d / name, p, v))
            )
        return found

    return cases


def _at(data: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        data = data[key]
    return data


_REMOVED = object()


def _paths(data: Any, depth: int) -> Iterator[tuple[Any, ...]]:
    if isinstance(data, dict):
        for key, value in data.items():
            yield (key,)
            if depth > 1:
                yield from ((key, *rest) for rest in _paths(value, depth - 1))
    elif isinstance(data, list) and data:
        for i in {0, len(data) - 1}:
            yield (i,)
            if depth > 1:
                yield from ((i, *rest) for rest in _paths(data[i], depth - 1))


def changed(data: Any, path: tuple[Any, ...], value: Any) -> Any:
    """A copy of plain data with one entry replaced, or removed."""
    data = copy.deepcopy(data)
    place = data
    for key in path[:-1]:
        place = place[key]
    if value is _REMOVED:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return data


def _edit(path: Path, where: tuple[Any, ...], value: Any) -> None:
    path.write_text(
        json.dumps(changed(json.loads(path.read_text(encoding="utf-8")), where, value)),
        encoding="utf-8",
    )


def _give_twice(path: Path, where: tuple[Any, ...]) -> None:
    """The second time with another value."""
    mark = "given twice"
    data = changed(json.loads(path.read_text(encoding="utf-8")), (*where[:-1], mark), 0)
    path.write_text(
        json.dumps(data).replace(json.dumps(mark), json.dumps(where[-1])), encoding="utf-8"
    )


def file_damage(
    name: str, rng: np.random.Generator, header: tuple[int, int] | None = None
) -> list[Damage]:
    """Cases for any file: cut off, empty, garbage, a folder, missing, not UTF-8; bits changed between the bytes `header`."""

    def bytes_changed(change: Callable[[bytearray], Any]) -> Callable[[Path], None]:
        def apply(directory: Path) -> None:
            data = bytearray((directory / name).read_bytes())
            data = change(data) or data
            (directory / name).write_bytes(bytes(data))

        return apply

    def folder(directory: Path) -> None:
        (directory / name).unlink()
        (directory / name).mkdir()

    def loop(directory: Path) -> None:
        (directory / name).unlink()
        os.symlink(name, directory / name)

    def pipe(directory: Path) -> None:
        (directory / name).unlink()
        os.mkfifo(directory / name)

    found: list[Damage] = [
        (f"{name} missing", lambda d: (d / name).unlink()), (f"{name} a folder", folder), (f"{name} a link to itself", loop),
        (f"{name} a pipe", pipe), (f"{name} in capitals", lambda d: (d / name).rename(d / name.upper().replace("/", "_"))),
        (f"{name} zeros", bytes_changed(lambda b: bytearray(len(b)))),
        (f"{name} a zero", bytes_changed(lambda b: b[: len(b) // 2] + b"\0" + b[len(b) // 2 + 1 :])),
        (f"{name} with a BOM", bytes_changed(lambda b: bytearray(b"\xef\xbb\xbf" + bytes(b)))),
        (f"{name} with CRLF", bytes_changed(lambda b: b.replace(b"\n", b"\r\n"))),
        (f"{name} in UTF-16", bytes_changed(lambda b: bytearray(bytes(b).decode("latin-1").encode("utf-16")))),
        (f"{name} twice", bytes_changed(lambda b: b + b)),
        (f"{name} of digits", bytes_changed(lambda b: bytearray(b'{"a": ' + b"1" * 5000 + b"}"))),
        (f"{name} empty", bytes_changed(lambda b: b.clear())),
        (f"{name} garbage", bytes_changed(lambda b: bytearray(rng.bytes(100)))),
        (f"{name} not UTF-8", bytes_changed(lambda b: bytearray(b"\xff\xfe" + bytes(b)))),
        (f"{name} deep", bytes_changed(lambda b: bytearray(b"[" * 100_000))),
        (f"{name} null", bytes_changed(lambda b: bytearray(b"null"))),
        (f"{name} a list", bytes_changed(lambda b: bytearray(b"[1, 2]"))),
    ]  # fmt: skip
    for share in (0.01, 0.1, 0.3, 0.5, 0.9, 0.99):
        found.append(
            (f"{name} cut at {share}", bytes_changed(lambda b, s=share: b[: int(s * len(b))]))
        )
    if header is not None:
        for place in rng.integers(*header, 40).tolist():
            bit = 1 << int(rng.integers(8))
            found.append(
                (
                    f"{name} byte {place} ^ {bit}",
                    bytes_changed(lambda b, p=place, x=bit: b.__setitem__(p, b[p] ^ x)),
                )
            )
    return found


def digit_damage(
    name: str, rng: np.random.Generator, count: int, within: tuple[int, int] | None = None
) -> list[Damage]:
    """Cases for a file that still parses: one digit or letter of it (between two bytes) becomes another of its kind."""
    kinds = (b"0123456789", b"abcdefghijklmnopqrstuvwxyz")

    def apply(directory: Path, number: int, turn: int) -> None:
        data = bytearray((directory / name).read_bytes())
        places = [
            i for i in range(*(within or (0, len(data)))) if any(data[i] in kind for kind in kinds)
        ]
        place = places[number % len(places)]
        kind = next(kind for kind in kinds if data[place] in kind)
        data[place] = kind[(kind.index(data[place]) + turn) % len(kind)]
        (directory / name).write_bytes(bytes(data))

    draws = zip(rng.integers(1 << 30, size=count).tolist(), rng.integers(1, 10, count).tolist())
    return [
        (f"{name} character {n} + {by}", lambda d, n=n, by=by: apply(d, n, by)) for n, by in draws
    ]


def array_damage(name: str, rng: np.random.Generator, only: str = "") -> list[Damage]:
    """Cases for the arrays of a safetensors file whose names begin with `only`."""

    def arrays_changed(
        change: Callable[[dict[str, np.ndarray], str], Any],
    ) -> Callable[[Path], None]:
        def apply(directory: Path) -> None:
            arrays, metadata = load_arrays(directory / name)
            names = sorted(n for n in arrays if n.startswith(only) and arrays[n].dtype.kind == "f")
            change(arrays, names[int(rng.integers(len(names)))])
            save_arrays(directory / name, arrays, metadata)

        return apply

    def odd(value: float) -> Callable[[dict[str, np.ndarray], str], None]:
        def change(arrays: dict[str, np.ndarray], n: str) -> None:
            arrays[n] = arrays[n].copy()
            arrays[n].reshape(-1)[rng.integers(arrays[n].size)] = value

        return change

    kinds: dict[str, Callable[[dict[str, np.ndarray], str], Any]] = {
        "NaN": odd(np.nan), "Inf": odd(np.inf), "-Inf": odd(-np.inf),
        "integers": lambda a, n: a.__setitem__(n, a[n].astype(np.int64)),
        "booleans": lambda a, n: a.__setitem__(n, a[n] > 0),
        "missing": lambda a, n: a.pop(n),
        "unknown": lambda a, n: a.__setitem__(only + "unknown", a[n]),
        "renamed": lambda a, n: a.__setitem__(n + "x", a.pop(n)),
        "flat": lambda a, n: a.__setitem__(n, a[n].reshape(1, -1, 1)),
        "longer": lambda a, n: a.__setitem__(n, np.concatenate([a[n], a[n]])),
        "empty": lambda a, n: a.__setitem__(n, a[n][:0]),
        "huge": lambda a, n: a.__setitem__(n, np.full(a[n].shape, 1e300)),
    }  # fmt: skip
    return [
        (f"{name} {kind} {i}", arrays_changed(change))
        for i in range(5)
        for kind, change in kinds.items()
    ]
