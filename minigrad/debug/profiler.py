"""Where the time of a computation goes, op by op."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..core.watch import Watch
from ..report import Shown
from .memory import bytes_saved

__all__ = ["profile"]


class Row:
    """What was seen of one op: calls, seconds forward and backward, bytes that its nodes save for
    backward.
    """

    calls = saved = 0
    forward = backward = 0.0

    def __init__(self, name: str) -> None:
        self.name = name


class profile(Shown, Watch):
    """Times every op inside a `with` block, forward and backward.

        with minigrad.profile() as p:
            model.loss(source, target).backward()
        print(p)                    a table by op
        p.save_trace("step.json")   for chrome://tracing or ui.perfetto.dev

    `rows` holds the figures by name of op, `seconds` the length of the block; what no op took is
    Python's, the optimizer's and NumPy's outside of ops. The time of an op does not include that of
    ops it runs itself, as derivatives do under `create_graph`.
    """

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}
        self.events: list[
            tuple[str, str, float, float, int]
        ] = []  # name, phase, start, seconds, bytes saved
        self.seconds = 0.0
        self._nested = [0.0]  # seconds of ops inside the one that runs, a level for each

    def __enter__(self) -> profile:
        self._start = time.perf_counter()
        return super().__enter__()

    def __exit__(self, *exc: object) -> None:
        super().__exit__(*exc)
        self.seconds += time.perf_counter() - self._start

    def _timed(self, name: str, phase: str, run: Callable[..., Any], *args: Any) -> Any:
        self._nested.append(0.0)
        start = time.perf_counter()
        try:
            return run(*args)
        finally:
            seconds = time.perf_counter() - start
            own = seconds - self._nested.pop()
            self._nested[-1] += seconds
            row = self.rows.setdefault(name, Row(name))
            if phase == "forward":
                row.calls += 1
                row.forward += own
            else:
                row.backward += own
            self.events.append((name, phase, start, seconds, 0))

    def forward(
        self, op: Any, function: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]
    ) -> Any:
        return self._timed(op.name, "forward", super().forward, op, function, args, options)

    def backward(self, node: Any, rule: Callable[..., Any], g: Any, args: tuple[Any, ...]) -> Any:
        return self._timed(node.op.name, "backward", super().backward, node, rule, g, args)

    def recorded(self, node: Any) -> None:
        super().recorded(node)
        saved = bytes_saved(node)
        self.rows[node.op.name].saved += saved
        self.events[-1] = (*self.events[-1][:4], saved)

    def __str__(self) -> str:
        rows = sorted(self.rows.values(), key=lambda row: -(row.forward + row.backward))
        inside = sum(row.forward + row.backward for row in rows)
        whole = max(self.seconds, inside, 1e-12)
        width = max([len(row.name) for row in rows] + [14])
        lines = [f"{'op':{width}}   calls  forward ms  backward ms  saved MB  share"]
        for row in rows:
            share = (row.forward + row.backward) / whole
            lines.append(
                f"{row.name:{width}}{row.calls:8}{row.forward * 1e3:12.2f}{row.backward * 1e3:13.2f}"
                f"{row.saved / 1e6:10.2f}{share:7.1%}"
            )
        rest = whole - inside
        lines.append(
            f"{'outside of ops':{width}}{'':8}{rest * 1e3:12.2f}{'':22}{rest / whole:7.1%}"
        )
        forward, backward = sum(row.forward for row in rows), sum(row.backward for row in rows)
        total = f"{forward * 1e3:12.2f}{backward * 1e3:13.2f}{sum(row.saved for row in rows) / 1e6:10.2f}"
        lines.append(
            f"{f'all, {whole * 1e3:.2f} ms':{width}}{sum(row.calls for row in rows):8}{total}"
        )
        return "\n".join(lines)

    def save_trace(self, path: str | Path) -> None:
        """Write every call as an event of Chrome's trace format, JSON."""
        from ..io import write_json

        events = [
            {
                "name": name,
                "cat": phase,
                "ph": "X",
                "ts": (start - self._start) * 1e6,
                "dur": seconds * 1e6,
                "pid": 0,
                "tid": 0,
                "args": {"bytes saved": saved} if saved else {},
            }
            for name, phase, start, seconds, saved in self.events
        ]
        write_json(path, {"traceEvents": events, "displayTimeUnit": "ms"})
