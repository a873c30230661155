"""Kernels in place of their definitions, and the other way round where that is asked for."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from ..core.op import op
from ..core.tensor import Tensor

__all__ = ["use_definitions"]

KERNELS: dict[str, Callable[..., Tensor]] = {}
"""Every kernel by its name: the function that `use_definitions` switches."""

_replaced: ContextVar[frozenset[str]] = ContextVar("kernels replaced by their definitions", default=frozenset())


def kernel(
    *, definition: Callable[..., Tensor], vjp: Callable[..., Any] | None = None, **rules: Any
) -> Callable[[Callable[..., Any]], Callable[..., Tensor]]:
    """Declare an op, as `minigrad.core.op.op` does, that has a definition to give way to."""

    def declare(forward: Callable[..., Any]) -> Callable[..., Tensor]:
        fused = op(definition=definition, vjp=vjp, **rules)(forward)
        name = fused.op.name  # type: ignore[attr-defined]

        @functools.wraps(fused)
        def call(*args: Any, **options: Any) -> Tensor:
            return (definition if name in _replaced.get() else fused)(*args, **options)

        KERNELS[name] = call
        return call

    return declare


@contextmanager
def use_definitions(*names: str) -> Iterator[None]:
    """Within this block kernels give way to their definitions, compositions of ops: all, or those named.

    To see what a kernel computes, what it gains, or whether it is to blame. It holds for this thread,
    or task, and for processes that `DataParallel` forks within the block.
    """
    if unknown := sorted(set(names) - set(KERNELS)):
        raise ValueError(f"use_definitions: no kernel is named {', '.join(unknown)}; there are {', '.join(KERNELS)}")
    token = _replaced.set(_replaced.get() | (set(names) or set(KERNELS)))
    try:
        yield
    finally:
        _replaced.reset(token)
