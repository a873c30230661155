"""Kernels: how they are declared, and how their definitions are put in their place."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from ..core.registry import op
from ..core.tensor import Tensor

__all__ = ["use_definitions"]

KERNELS: dict[str, Callable[..., Tensor]] = {}
"""Every kernel by its name: the function that `use_definitions` switches."""

_replaced: ContextVar[frozenset[str]] = ContextVar("minigrad.definitions", default=frozenset())


def kernel(
    *,
    definition: Callable[..., Tensor],
    vjp: Callable[..., Any] | None = None,
    single: bool = True,
    **rules: Any,
) -> Callable[[Callable[..., Any]], Callable[..., Tensor]]:
    """Declare an op, as `minigrad.core.registry.op` does, that has a definition to give way to.

    Half precision holds neither sums nor squares: of float16 operands the result is computed in
    float32 and rounded once, and so are the gradients of a `vjp`. `single=False` for a function
    that only moves numbers.
    """

    def declare(forward: Callable[..., Any]) -> Callable[..., Tensor]:
        joint = None if vjp is None else _rule_in_single(vjp)
        fused = op(definition=definition, vjp=joint, **rules)(
            _in_single(forward) if vjp is not None and single else forward
        )
        name = fused.op.name  # type: ignore[attr-defined]

        @functools.wraps(fused)
        def call(*args: Any, **options: Any) -> Tensor:
            return (definition if name in _replaced.get() else fused)(*args, **options)

        KERNELS[name] = call
        return call

    return declare


def _widened(x: Any) -> Any:
    return x.astype(np.float32) if isinstance(x, np.ndarray) and x.dtype == np.float16 else x


def _in_single(forward: Callable[..., Any]) -> Callable[..., Any]:
    """A forward function that is given float32 in place of float16, and whose result is rounded to
    float16.
    """

    @functools.wraps(forward)
    def wrapper(*args: Any, **options: Any) -> Any:
        if (
            type(args[0]) is np.ndarray and args[0].dtype.char in "fd"
        ):  # as nearly always: nothing to look up
            return forward(*args, **options)
        kinds = [x.dtype.char for x in args if type(x) is np.ndarray]
        if "e" not in kinds or "f" in kinds or "d" in kinds:  # float16 alone
            return forward(*args, **options)
        with np.errstate(over="ignore"):  # what float16 does not hold is infinite
            answer = forward(*map(_widened, args), **options)
            y, *saved = answer if isinstance(answer, tuple) else (answer,)
            return (y.astype(np.float16), *saved) if saved else y.astype(np.float16)

    return wrapper


def _rule_in_single(vjp: Callable[..., Any]) -> Callable[..., Any]:
    """A rule that is given float32 in place of float16; the engine rounds what it returns."""

    @functools.wraps(vjp)
    def wrapper(g: Any, *args: Any) -> Any:
        return vjp(_widened(g), *map(_widened, args)) if g.dtype.char == "e" else vjp(g, *args)

    return wrapper


@contextmanager
def use_definitions(*names: str) -> Iterator[None]:
    """Within this block kernels give way to their definitions, compositions of ops: all, or those
    named.

    To see what a kernel computes, what it gains, or whether it is to blame. It holds for this
    thread, or task, and for processes that `DataParallel` forks within the block.
    """
    if unknown := sorted(set(names) - set(KERNELS)):
        raise ValueError(
            f"use_definitions: no kernel is named {', '.join(unknown)}; there are "
            f"{', '.join(KERNELS)}"
        )
    token = _replaced.set(_replaced.get() | (set(names) or set(KERNELS)))
    try:
        yield
    finally:
        _replaced.reset(token)
