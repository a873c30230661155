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
from minigrad.kernels import attention_weights

from .attention import PROBE, MultiHeadAttention
from .module import Module

__all__ = ["attentions_of", "gate_heads", "record_attention", "with_weights"]


Attend = Callable[..., Tensor]


def attentions_of(model: Module) -> dict[str, MultiHeadAttention]:
    """Every multi-head attention of `model`, by its name."""
    return {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, MultiHeadAttention)
    }


@contextmanager
def attending(model: Module, probe: Callable[[str, Attend], Attend]) -> Iterator[None]:
    """Let each attention of `model` call `probe(name, function)` instead of `function`.

    `function` has the signature of `minigrad.scaled_dot_product_attention`, which it is unless a
    block outside this one has replaced it.
    """
    names = {id(module): name for name, module in attentions_of(model).items()}
    outer = PROBE.get()

    def replace(module: MultiHeadAttention, function: Attend) -> Attend:
        function = function if outer is None else outer(module, function)
        name = names.get(id(module))
        return function if name is None else probe(name, function)

    token = PROBE.set(replace)
    try:
        yield
    finally:
        PROBE.reset(token)


@contextmanager
def recording(model: Module, see: Callable[..., Any]) -> Iterator[dict[str, list[Any]]]:
    """Append `see(q, k, mask, bias, scale)` to a list for each attention of `model`, by its name."""
    recorded: dict[str, list[Any]] = {name: [] for name in attentions_of(model)}

    def probe(name: str, function: Attend) -> Attend:
        def attend(
            q: Any, k: Any, v: Any, mask: Any, *, bias: Any, scale: float, **options: Any
        ) -> Tensor:
            heads = function(q, k, v, mask, bias=bias, scale=scale, **options)
            with mg.no_grad():
                recorded[name].append(see(q, k, mask, bias, scale))
            return heads

        return attend

    with attending(model, probe):
        yield recorded


def record_attention(model: Module) -> AbstractContextManager[dict[str, list[np.ndarray]]]:
    """Append the weights of each multi-head attention of `model` to a list, by its name.

    Each entry is (N, h, L_q, L_kv), before dropout, one for each call within the block.
    """
    return recording(model, lambda *seen: unwrap(attention_weights(*seen)))


@contextmanager
def gate_heads(model: Module, gates: Mapping[str, Any]) -> Iterator[None]:
    """Multiply the output of each head by its gate, before the output projection.

    `gates` has, by the name of a multi-head attention in `model` (the names that `record_attention`
    gives), one number for each head (h,), or for each sequence and head (N, h). A gate of 0
    silences a head; the gradient at a gate of 1 is how much the loss depends on it.
    """
    names = list(attentions_of(model))
    if unknown := sorted(set(gates) - set(names)):
        raise KeyError(f"gate_heads: no multi-head attention is named {unknown}; there are {names}")

    def probe(name: str, function: Attend) -> Attend:
        def attend(*arguments: Any, **options: Any) -> Tensor:
            return _gated(function(*arguments, **options), gates[name])

        return attend if name in gates else function

    with attending(model, probe):
        yield


def _gated(heads: Tensor, gate: Any) -> Tensor:
    """Multiply heads (N, h, L_q, d_k) by their gates (h,) or (N, h)."""
    n, h = heads.shape[:2]
    gate = mg.astype(gate, heads.dtype)
    if gate.shape not in ((h,), (n, h)):
        raise ValueError(f"gate_heads: expected a gate of shape ({h},) or {n, h}, got {gate.shape}")
    return heads * gate[..., None, None]


def with_weights(
    attention: MultiHeadAttention, *arguments: Any, **options: Any
) -> tuple[Tensor, np.ndarray]:
    """What `attention(*arguments, **options)` returns, and the weights of its heads (N, h, L_q,
    L_kv).
    """
    with record_attention(attention) as recorded:
        return attention(*arguments, **options), recorded[""][-1]
