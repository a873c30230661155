"""Declaration of kernels, and their replacement by definitions."""

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
"""Every kernel by name."""


def kernel(
    *,
    definition: Callable[..., Tensor],
    vjp: Callable[..., Any] | None = None,
    single: bool = True,
    **rules: Any,
) -> Callable[[Callable[..., Any]], Callable[..., Tensor]]:
    """Declare an op that has a definition.

    For float16 operands, the result and the gradients of a `vjp` are computed in float32 and
    rounded once.

    Parameters
    ----------
    definition, vjp, **rules
        As in `minigrad.core.registry.op`.
    single : bool
        Compute float16 operands in float32, as by default. False is for a function that only moves
        values.
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
    """Replace kernels by their definitions, compositions of ops, within a `with` block.

    This shows what a kernel computes, how much time it saves, or whether an error is in the kernel.
    It applies to this thread or task, and to processes that `DataParallel` forks within the block.

    Parameters
    ----------
    *names : str
        Names of kernels; all kernels by default.

    Yields
    ------
    None
        Kernels are replaced within the block.
    """
    if unknown := sorted(set(names) - set(KERNELS)):
        raise ValueError(
            f"use_definitions: names must be of {', '.join(KERNELS)}, got {', '.join(unknown)}"
        )
    token = DEFINITIONS.set(DEFINITIONS.get() | (set(names) or set(KERNELS)))
    try:
        yield
    finally:
        DEFINITIONS.reset(token)
