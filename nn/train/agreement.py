"""What the ranks of a run must have in common: code, settings, data, weights. It is compared before
the first step.
"""

from __future__ import annotations

import hashlib
import json
import platform
import sys
from pathlib import Path
from typing import Any

import numpy as np

import minigrad
from minigrad.core.random import get_rng_state
from minigrad.optim import Schedule

from .settings import COUNTS
from .state import generators_of

__all__ = ["digest", "facts"]

_STEPS = [1, 2, 10, 100, 1000, 10_000, 100_000]  # at which schedules are compared


def facts(trainer: Any) -> dict[str, Any]:
    """What all ranks must have the same of, by name; long things as checksums."""
    optimizer = trainer.optimizer.state_dict()
    return {
        "the code of minigrad": _code(),
        "the script": _script(),
        "Python": platform.python_version(),
        "NumPy": np.__version__,
        **{
            name: getattr(trainer, name)
            for name in (*COUNTS, "step", "epoch", "batch", "best", "worse")
        },
        "processes of a rank": trainer.parallel.parts,
        "the model": digest(repr(trainer.model)),
        "the weights": digest(trainer.model.state_dict()),
        "the optimizer": type(trainer.optimizer).__name__,
        "clip_norm": trainer.optimizer.clip_norm,
        **{
            f"{k} of group {i}": v
            for i, group in enumerate(optimizer["groups"])
            for k, v in group.items()
        },
        "the optimizer's state": digest(optimizer["arrays"]),
        "the objective": plain(trainer.objective),
        "the schedule": _rates(trainer.schedule),
        "the average": None if trainer.average is None else digest(plain(trainer.average)),
        "score": trainer.score is not None,
        "random numbers": digest(get_rng_state()),
        "the model's generators": digest(
            [g.bit_generator.state for g in generators_of(trainer.model)]
        ),
        "the batches": digest(plain(trainer.train)),
        "the validation batches": digest(plain(trainer.valid)),
    }


def _rates(schedule: Any) -> Any:
    """The learning rates at some steps, which tell functions apart, as do the errors where they
    have no rate.
    """
    if not isinstance(schedule, Schedule):
        return plain(schedule)
    rates: list[Any] = []
    for step in _STEPS:
        try:
            rates.append(schedule.rates(step))
        except ValueError as error:  # past the end of the schedule
            rates.append(str(error))
    return rates


def digest(value: Any) -> str:
    """A checksum of arrays, numbers and texts, in lists, tuples and dictionaries."""
    text = json.dumps(value, default=_json, skipkeys=True)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _json(value: Any) -> Any:
    """Of what JSON cannot hold: an array's checksum, an object's fingerprint or kind."""
    if isinstance(value, (np.ndarray, np.generic)):
        bits = hashlib.blake2b(np.ascontiguousarray(value).data, digest_size=8)
        return [str(value.dtype), value.shape, bits.hexdigest()]
    return value.fingerprint() if hasattr(value, "fingerprint") else type(value).__name__


def plain(value: Any) -> Any:
    """Return the kind of an object, and its public attributes that are data.

    Long arrays and lists are represented by their length and 64 slices.
    """
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    public = {k: v for k, v in getattr(value, "__dict__", {}).items() if not k.startswith("_")}
    return {
        "kind": type(value).__name__,
        **{k: _sample(v) for k, v in public.items() if _is_data(v)},
    }


def _sample(value: Any) -> Any:
    """Return the length and 64 slices of an array above 64 MB or a list above 100,000 items."""
    if isinstance(value, np.ndarray) and value.ndim:
        most = (1 << 26) // max(1, value[:1].nbytes)
    elif isinstance(value, (list, tuple)):
        most = 100_000
        value = [_sample(item) if isinstance(item, np.ndarray) else item for item in value]
    else:
        return value
    if len(value) <= most:
        return value
    size = most // 64 + 1
    starts = np.linspace(0, len(value) - size, 64).astype(int).tolist()
    return [len(value), *(value[start : start + size] for start in starts)]


def _is_data(value: Any) -> bool:
    simple = (bool, int, float, str, list, tuple, dict, np.ndarray)
    return value is None or isinstance(value, simple) or hasattr(value, "fingerprint")


def _code() -> str:
    """A checksum of the sources of minigrad and nn."""
    package = Path(minigrad.__file__).parent
    files = sorted([*package.rglob("*.py"), *(package.parent / "nn").rglob("*.py")])
    return digest([file.read_bytes().hex() for file in files])


def _script() -> str:
    """A checksum of the program that was started."""
    path = getattr(sys.modules["__main__"], "__file__", None)
    return digest(Path(path).read_text(encoding="utf-8") if path and Path(path).is_file() else None)
