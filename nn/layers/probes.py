"""Looking into multi-head attention, and acting on its heads, from outside: for this thread or task
alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np

import minigrad as mg
from minigrad.core.tensor import Tensor, unwrap

from .attention import ATTEND, MultiHeadAttention, attention_weights
from .module import Module

__all__ = ["attentions_of", "gate_heads", "record_attention", "with_weights"]


def attentions_of(model: Module) -> dict[str, MultiHeadAttention]:
    """Every multi-head attention of `model`, by its name."""
    return {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, MultiHeadAttention)
    }


@contextmanager
def attending(model: Module, function: Callable[..., Tensor]) -> Iterator[None]:
    """Within this block the heads of each attention of `model` do function(name, inner, module, q,
    k, v, mask).

    `inner` is what they did before, with the same arguments from `module` on.
    """
    names = {id(module): name for name, module in attentions_of(model).items()}
    before = ATTEND.get()

    def attend(module: MultiHeadAttention, *heads: Any) -> Tensor:
        name, inner = names.get(id(module)), before or type(module).attend
        return inner(module, *heads) if name is None else function(name, inner, module, *heads)

    token = ATTEND.set(attend)
    try:
        yield
    finally:
        ATTEND.reset(token)


@contextmanager
def recording(model: Module, see: Callable[..., Any]) -> Iterator[dict[str, list[Any]]]:
    """Within this block, every attention of `model` adds see(module, q, k, mask) to a list, by its
    name.
    """
    recorded: dict[str, list[Any]] = {name: [] for name in attentions_of(model)}

    def record(
        name: str, inner: Any, module: MultiHeadAttention, q: Any, k: Any, v: Any, mask: Any
    ) -> Tensor:
        with mg.no_grad():
            recorded[name].append(see(module, q, k, mask))
        return inner(module, q, k, v, mask)

    with attending(model, record):
        yield recorded


def record_attention(model: Module) -> AbstractContextManager[dict[str, list[np.ndarray]]]:
    """Within this block, every multi-head attention of `model` adds its weights to a list, by its
    name.

    Each entry is (N, h, L_q, L_kv), before dropout, one for each call.
    """
    return recording(model, lambda *seen: unwrap(attention_weights(*seen)))


@contextmanager
def gate_heads(model: Module, gates: Mapping[str, Any]) -> Iterator[None]:
    """Within this block, the output of each head is multiplied by its gate, before the output
    projection.

    `gates` has, by the name of a multi-head attention in `model` (the names that `record_attention`
    gives), one number for each head (h,), or for each sequence and head (N, h). A gate of 0
    silences a head; the gradient at a gate of 1 tells how much the loss depends on it.
    """
    found = attentions_of(model)
    if unknown := sorted(set(gates) - set(found)):
        raise KeyError(
            f"gate_heads: no multi-head attention is named {unknown}; there are {list(found)}"
        )

    def gated(name: str, inner: Any, module: MultiHeadAttention, *heads: Any) -> Tensor:
        return (
            _gated(module, inner(module, *heads), gates[name])
            if name in gates
            else inner(module, *heads)
        )

    with attending(model, gated):
        yield


def _gated(module: MultiHeadAttention, heads: Tensor, gate: Any) -> Tensor:
    """The heads side by side (N, L_q, h·d_k), each times its gate."""
    (n, length, width), h = heads.shape, module.num_heads
    gate = mg.astype(gate, heads.dtype)
    if gate.shape not in ((h,), (n, h)):
        raise ValueError(f"gate_heads: expected a gate of shape ({h},) or {n, h}, got {gate.shape}")
    parts = mg.reshape(heads, n, length, h, module.d_k)  # (N, L_q, h, d_k)
    return mg.reshape(parts * mg.reshape(gate, -1, 1, h, 1), n, length, width)


def with_weights(
    attention: MultiHeadAttention, *arguments: Any, **options: Any
) -> tuple[Tensor, np.ndarray]:
    """What `attention(*arguments, **options)` returns, and the weights of its heads (N, h, L_q,
    L_kv).
    """
    with record_attention(attention) as recorded:
        return attention(*arguments, **options), recorded[""][-1]
