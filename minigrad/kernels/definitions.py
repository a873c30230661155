"""Kernels: how they are declared, and how their definitions are put in their place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ..core.modes import DEFINITIONS
from ..core.op import in_single, rule_in_single
from ..core.registry import op
from ..core.tensor import Tensor

__all__ = ["use_definitions"]

KERNELS: dict[str, Callable[..., Tensor]] = {}
"""Every kernel by its name: the function that `use_definitions` switches."""


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
        joint = None if vjp is None else rule_in_single(vjp)
        call = op(definition=definition, vjp=joint, **rules)(
            in_single(forward) if vjp is not None and single else forward
        )
        KERNELS[call.op.name] = call  # type: ignore[attr-defined]
        return call

    return declare


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
    token = DEFINITIONS.set(DEFINITIONS.get() | (set(names) or set(KERNELS)))
    try:
        yield
    finally:
        DEFINITIONS.reset(token)
