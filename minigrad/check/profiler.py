"""Profiler: the time of a computation by op."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from ..numpy.watch import Watch
from .memory import bytes_saved
from .report import Shown

__all__ = ["profile"]


@dataclass
class Row:
    """Calls of one op, their seconds, and the bytes that their nodes save."""

    name: str
    calls: int = 0
    forward: float = 0.0
    backward: float = 0.0
    saved: int = 0


@dataclass
class Event:
    """One forward or backward call of an op; `exclusive` is without the ops inside it."""

    name: str
    phase: str
    start: float
    seconds: float
    exclusive: float
    saved: int = 0


class profile(Shown, Watch):
    """Context manager that times every op, forward and backward.

    The time of an op does not include ops that it calls, for example a derivative under
    `create_graph`. The remaining time is spent in Python, in the optimizer, and in NumPy outside of
    ops.

    Attributes
    ----------
    rows : dict of str to Row
        Totals by name of op.
    seconds : float
        Length of the block.

    Examples
    --------
    >>> with minigrad.profile() as p:
    ...     model.loss(source, target).backward()
    >>> print(p)  # a table by op
    >>> p.save_trace("step.json")  # for chrome://tracing or ui.perfetto.dev
    """

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.seconds = 0.0
        self._nested = [0.0]  # at each level: the seconds of ops inside the running op

    def __enter__(self) -> profile:
        self._start = time.perf_counter()
        return super().__enter__()

    def __exit__(self, *exc: object) -> None:
        super().__exit__(*exc)
        self.seconds += time.perf_counter() - self._start

    @property
    def rows(self) -> dict[str, Row]:
        """Totals by name of op."""
        rows: dict[str, Row] = {}
        for event in self.events:
            row = rows.setdefault(event.name, Row(event.name))
            row.calls += event.phase == "forward"
            row.saved += event.saved
            setattr(row, event.phase, getattr(row, event.phase) + event.exclusive)
        return rows

    def _time_call(self, name: str, phase: str, run: Callable[..., Any], *args: Any) -> Any:
        self._nested.append(0.0)
        start = time.perf_counter()
        try:
            return run(*args)
        finally:
            seconds = time.perf_counter() - start
            exclusive = seconds - self._nested.pop()
            self._nested[-1] += seconds
            self.events.append(Event(name, phase, start, seconds, exclusive))

    def forward(
        self, op: Any, function: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]
    ) -> Any:
        """Time a forward call."""
        return self._time_call(op.name, "forward", super().forward, op, function, args, options)

    def backward(self, node: Any, rule: Callable[..., Any], g: Any, args: tuple[Any, ...]) -> Any:
        """Time the call of a rule."""
        return self._time_call(node.op.name, "backward", super().backward, node, rule, g, args)

    def recorded(self, node: Any) -> None:
        """Count the bytes that a node saves."""
        super().recorded(node)
        self.events[-1].saved = bytes_saved(node)

    def __str__(self) -> str:
        rows = sorted(self.rows.values(), key=lambda row: -(row.forward + row.backward))
        inside = sum(row.forward + row.backward for row in rows)
        whole = max(self.seconds, inside, 1e-12)
        sums = [sum(column) for column in zip(*[astuple(row)[1:] for row in rows])]
        total = Row(f"all, {whole * 1e3:.2f} ms", *sums)
        width = max(len(row.name) for row in [*rows, total, Row("outside of ops")])

        def line(row: Row) -> str:
            return (
                f"{row.name:{width}}{row.calls:8}{row.forward * 1e3:12.2f}"
                f"{row.backward * 1e3:13.2f}{row.saved / 1e6:10.2f}"
            )

        rest = whole - inside
        lines = [f"{'op':{width}}   calls  forward ms  backward ms  saved MB  share"]
        lines += [f"{line(row)}{(row.forward + row.backward) / whole:7.1%}" for row in rows]
        lines.append(f"{'outside of ops':{width}}{rest * 1e3:20.2f}{rest / whole:30.1%}")
        return "\n".join([*lines, line(total)])

    def save_trace(self, path: str | Path) -> None:
        """Write every call as an event of Chrome's trace format.

        Parameters
        ----------
        path : str or Path
            A JSON file.
        """
        from ..io.json import write_json

        events = [
            {
                "name": event.name,
                "cat": event.phase,
                "ph": "X",
                "ts": event.start * 1e6,
                "dur": event.seconds * 1e6,
                "pid": 0,
                "tid": 0,
                "args": {"bytes saved": event.saved} if event.saved else {},
            }
            for event in self.events
        ]
        write_json(path, {"traceEvents": events, "displayTimeUnit": "ms"})
