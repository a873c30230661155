"""How a tool sees every operation: the base of the profiler and of the search for anomalies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .modes import MODE, Mode, leave


class Watch:
    """Sees every operation inside its `with` block. The base class only passes the calls on.

    `forward` and `backward` make the call that they are given and return its result; `recorded` is
    called with each new node. Watches nest: each hands on to the one outside it.
    """

    _outer: Watch | None = None

    def forward(
        self, op: Any, function: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]
    ) -> Any:
        if self._outer is None:
            return function(*args, **options)
        return self._outer.forward(op, function, args, options)

    def backward(self, node: Any, rule: Callable[..., Any], g: Any, args: tuple[Any, ...]) -> Any:
        if self._outer is None:
            return rule(g, *args)
        return self._outer.backward(node, rule, g, args)

    def recorded(self, node: Any) -> None:
        if self._outer is not None:
            self._outer.recorded(node)

    def __enter__(self) -> Any:
        mode = MODE.get()
        self._outer = mode.watch
        MODE.set(Mode(mode.record, self, mode.traced, mode))
        return self

    def __exit__(self, *exc: object) -> None:
        leave()
