"""Probes: record or change multi-head attention from outside, in one thread or task."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np

import minigrad as mg
from minigrad.io.reading import listed
from minigrad.ops.attention import attention_weights, checked_mask
from minigrad.tensor import Tensor, unwrap

from ..attention import MultiHeadAttention
from ..module import CALL, Module
from .extended_layers import ExtendedAttention

__all__ = ["attentions_of", "gate_heads", "record_attention", "with_weights"]


Attend = Callable[[Any, Any, Any, Any], Any]
"""`attend` of an attention: a function of queries, keys, values and a mask."""


def attentions_of(model: Module) -> dict[str, MultiHeadAttention]:
    """Return all multi-head attentions of a model, by name, as `named_modules` orders them.

    Parameters
    ----------
    model : Module
        Model to search.
    """
    return {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, MultiHeadAttention)
    }


def expect_attentions(owner: str, argument: str, model: Module, names: Iterable[str]) -> None:
    """Raise a KeyError that lists the names that are not those of attentions of a model."""
    attentions = attentions_of(model)
    if unknown := sorted(set(names) - set(attentions)):
        raise KeyError(
            f"{owner}: {argument} must have names of attentions ({listed(attentions)}), got "
            f"{listed(unknown)}"
        )


@contextmanager
def attending(
    model: Module, probe: Callable[[str, MultiHeadAttention, Attend], Attend]
) -> Iterator[None]:
    """Replace `attend` of each attention within this block; outer blocks wrap inner ones."""
    names = {id(module): name for name, module in attentions_of(model).items()}
    outer = CALL.get()

    def call(module: Any, args: Any, kwargs: Any) -> Any:
        name = names.get(vars(module).get("probed_id", id(module)))
        if name is not None:  # a copy, since other threads may call the module
            original, module = module, object.__new__(type(module))
            vars(module).update({"probed_id": id(original)} | vars(original))
            vars(module)["attend"] = probe(name, module, module.attend)
        if outer is not None:
            return outer(module, args, kwargs)
        inner = module._call
        return module.forward(*args, **kwargs) if inner is None else inner(module, args, kwargs)

    token = CALL.set(call)
    try:
        yield
    finally:
        CALL.reset(token)


def scores_of(attention: Any, q: Any, k: Any, mask: Any) -> dict[str, Any]:
    """Return the arguments of `attention_weights` beside queries and keys."""
    if isinstance(attention, ExtendedAttention):
        return attention.score_options(q, k, mask)
    return {"mask": mask, "bias": None, "scale": q.shape[-1] ** -0.5}


@contextmanager
def recording(model: Module, see: Callable[..., Any]) -> Iterator[dict[str, list[Any]]]:
    """Record `see(q, k, mask, bias, scale)` of each call of an attention, in lists by name."""
    recorded: dict[str, list[Any]] = {name: [] for name in attentions_of(model)}

    def probe(name: str, attention: MultiHeadAttention, function: Attend) -> Attend:
        def attend(q: Any, k: Any, v: Any, mask: Any) -> Any:
            heads = function(q, k, v, mask)
            with mg.no_grad():
                recorded[name].append(see(q, k, *scores_of(attention, q, k, mask).values()))
            return heads

        return attend

    with attending(model, probe):
        yield recorded


def record_attention(
    model: Module, *, retain_grad: bool = False
) -> AbstractContextManager[dict[str, list[Any]]]:
    """Record the weights of each multi-head attention within this block.

    Parameters
    ----------
    model : Module
        Any model with `MultiHeadAttention` layers.
    retain_grad : bool, default False
        Record Tensors of the graph instead of arrays. `mg.gradients(y, weights)` returns the
        gradients of a result by them, and `y.backward()` sets their `.grad`. To combine it with
        `gate_heads`, enter `gate_heads` first.

    Returns
    -------
    context manager
        Its value is a dict of lists, by the names of the attentions. Each list has the weights
        (N, h, L_q, L_kv) of each call, without dropout.
    """
    if retain_grad:
        return _recording_in_graph(model)
    return recording(model, lambda *seen: unwrap(attention_weights(*seen)))


@contextmanager
def _recording_in_graph(model: Module) -> Iterator[dict[str, list[Tensor]]]:
    recorded: dict[str, list[Tensor]] = {name: [] for name in attentions_of(model)}

    def probe(name: str, attention: MultiHeadAttention, function: Attend) -> Attend:
        if "attend" in vars(attention):
            raise ValueError(
                "record_attention: retain_grad must be False if another probe is entered inside "
                "its block, got True. Enter gate_heads first, and record_attention inside it"
            )

        def attend(q: Any, k: Any, v: Any, mask: Any) -> Tensor:
            scores = scores_of(attention, q, k, mask)
            if scores["mask"] is not None:
                scores["mask"] = checked_mask(scores["mask"], (*q.shape[:3], k.shape[2]))
            weights = attention_weights(q, k, **scores)
            if mg.is_grad_enabled():
                if not weights.requires_grad:  # all that comes before is frozen
                    weights = Tensor(weights.data, requires_grad=True)
                weights.retain_grad()
            recorded[name].append(weights)
            if attention.training and attention.dropout:
                weights = mg.dropout(weights, attention.dropout, generator=attention.generator)
            return mg.matmul(weights, mg.repeat(v, q.shape[1] // v.shape[1], axis=1))

        return attend

    with attending(model, probe):
        yield recorded


@contextmanager
def gate_heads(model: Module, gates: Mapping[str, Any]) -> Iterator[None]:
    """Multiply the output of each head by a gate within this block.

    A gate of 0 removes a head. The gradient at a gate of 1 is the influence of the head on the
    loss.

    Other parameters: as `record_attention`.

    Parameters
    ----------
    gates : mapping of str to array or Tensor, shape (h,) or (N, h)
        By the names of multi-head attentions: see `attentions_of`.

    Yields
    ------
    None
        The block has no value.
    """
    expect_attentions("gate_heads", "gates", model, gates)

    def probe(name: str, attention: MultiHeadAttention, function: Attend) -> Attend:
        def attend(q: Any, k: Any, v: Any, mask: Any) -> Any:
            heads = function(q, k, v, mask)  # (N, h, L_q, d_k)
            gate, (n, h) = mg.astype(gates[name], heads.dtype), heads.shape[:2]
            if gate.shape not in ((h,), (n, h)):
                raise ValueError(
                    f"gate_heads: a gate must have shape ({h},) or {n, h}, got {gate.shape}"
                )
            return heads * gate[..., None, None]

        return attend if name in gates else function

    with attending(model, probe):
        yield


def with_weights(
    attention: MultiHeadAttention, *arguments: Any, **options: Any
) -> tuple[Tensor, np.ndarray]:
    """Call an attention, and record the weights of its heads.

    Parameters
    ----------
    attention : MultiHeadAttention
        Attention to call.
    *arguments, **options
        Arguments of `attention`.

    Returns
    -------
    result : Tensor
        Result of the attention.
    weights : array, shape (N, h, L_q, L_kv)
        Weights before dropout.
    """
    with record_attention(attention) as recorded:
        return attention(*arguments, **options), recorded[""][-1]
