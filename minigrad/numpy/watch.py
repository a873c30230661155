"""Watch: the base class of tools that see every operation.

A watch can time an operation, check its result, or look at the graph, as the anomaly detection and
the profiler do. It is the `watch` of a `Mode`. Look at `forward` and `backward`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..modes import MODE, Mode, leave


class Watch:
    """Context manager that sees every operation inside its block.

    The base class only makes the calls. Watches nest: each calls the watch outside it.
    """

    _outer: Watch | None = None

    def forward(
        self, op: Any, function: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]
    ) -> Any:
        """Return `function(*args, **options)`, the forward call of `op`.

        Parameters
        ----------
        op : Op
            The operation.
        function : callable
            Computes the result from `args` and `options`.
        args : tuple
            Arrays of the operands.
        options : dict
            Keyword arguments of the operation.
        """
        if self._outer is None:
            return function(*args, **options)
        return self._outer.forward(op, function, args, options)

    def _name(self, node: Any) -> str:
        """Return the name of an operation in errors of the backward pass."""
        return node.op.name if self._outer is None else self._outer._name(node)

    def backward(self, node: Any, rule: Callable[..., Any], g: Any, args: tuple[Any, ...]) -> Any:
        """Return `rule(g, *args)`, the call of a rule of `node`.

        Parameters
        ----------
        node : Node
            The node of the recorded operation.
        rule : callable
            Derivative of one operand.
        g : array or Tensor
            Gradient of the result.
        args : tuple
            Saved arrays, which the rule reads.
        """
        if self._outer is None:
            return rule(g, *args)
        return self._outer.backward(node, rule, g, args)

    def recorded(self, node: Any) -> None:
        """See a new node of the graph.

        Parameters
        ----------
        node : Node
            New node of the graph.
        """
        if self._outer is not None:
            self._outer.recorded(node)

    def drawn(self) -> None:
        """See that random numbers are about to be drawn."""
        if self._outer is not None:
            self._outer.drawn()

    def __enter__(self) -> Any:
        mode = MODE.get()
        watch = mode.watch
        while watch is not None:
            if watch is self:
                raise RuntimeError(
                    f"{type(self).__name__}: the object must not be entered inside its own block; "
                    "make another one"
                )
            watch = watch._outer
        self._outer = mode.watch
        MODE.set(Mode(mode.record, self, mode.traced, mode, self))
        return self

    def __exit__(self, *exc: object) -> None:
        leave(self)
