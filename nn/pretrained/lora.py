"""Low-rank adaptation: Hu et al. (2022), "LoRA: low-rank adaptation of large language models",
arXiv:2106.09685.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import minigrad as mg
from minigrad.core.tensor import Tensor
from minigrad.optim.settings import checked_count, checked_number

from ..layers import init
from ..layers.linear import Linear
from ..layers.module import Module, Parameter
from ..models.base import Model

__all__ = ["LoRALinear", "lora", "merge_lora"]


class LoRALinear(Linear):
    """x @ (W + scale · B A).T + bias, of which A (rank, in) and B (out, rank) are trained.

    B starts as zeros, so that nothing changes at first. W and the bias are those of `linear`.
    """

    def __init__(
        self,
        linear: Linear,
        rank: int,
        scale: float,
        *,
        dropout: float = 0.0,
        generator: np.random.Generator | None = None,
    ) -> None:
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight, self.bias = linear.weight, linear.bias
        self.rank, self.scale, self.dropout, self.generator = rank, scale, dropout, generator
        dtype = linear.weight.dtype
        self.lora_a = Parameter(np.empty((rank, linear.in_features), dtype))
        init.kaiming_uniform_(self.lora_a, math.sqrt(5), generator=generator)
        self.lora_b = Parameter(np.zeros((linear.out_features, rank), dtype))
        self.train(linear.training)

    def forward(self, x: Any) -> Tensor:
        """(..., out_features) from x (..., in_features)."""
        inside = mg.linear(
            mg.dropout(x, self.dropout, self.training, generator=self.generator), self.lora_a
        )
        return super().forward(x) + mg.linear(inside, self.lora_b) * self.scale

    def merged(self) -> Linear:
        """A plain map that does the same, with a weight of its own; copies for inference are made
        of it.
        """
        plain = Linear.__new__(Linear)
        plain.in_features, plain.out_features, plain.bias = (
            self.in_features,
            self.out_features,
            self.bias,
        )
        weight = self.weight.data + self.scale * (self.lora_b.data @ self.lora_a.data)
        plain.weight = Parameter(weight.astype(self.weight.dtype, copy=False))
        return plain

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, rank={self.rank}, scale={self.scale:g}"


def linears_of(model: Module, kind: type[Linear] = Linear) -> dict[str, Any]:
    """The linear maps of a model, by name."""
    return {name: module for name, module in model.named_modules() if isinstance(module, kind)}


def _put(model: Module, linears: Mapping[str, Linear]) -> None:
    """Other linear maps in the places of these names."""
    holders = dict(model.named_modules())
    for name, linear in linears.items():
        holder, _, leaf = name.rpartition(".")
        setattr(holders[holder], leaf, linear)


def heads_of(model: Model) -> dict[str, Module]:
    """What is trained whole: the head of a classifier."""
    trained = ("dense", "output") if getattr(model.config, "num_classes", 0) else ()
    return {name: child for name, child in model.named_children() if name in trained}


def check_plain(model: Model) -> None:
    """An error for a model that has adapters."""
    if linears_of(model, LoRALinear):
        raise ValueError(
            "lora: there are adapters already; merge_lora makes them part of the weights"
        )


def adapt(model: Model, adapters: Mapping[str, LoRALinear]) -> Model:
    """The model with these adapters; nothing else is trained but a classifier's head."""
    check_plain(model)
    model.requires_grad_(False)
    _put(model, adapters)
    for part in heads_of(model).values():
        part.requires_grad_(True)
    return model


def lora(
    model: Model,
    rank: int = 8,
    alpha: float = 16.0,
    targets: str | Sequence[str] = ("q_proj", "v_proj"),
    *,
    dropout: float = 0.0,
    generator: np.random.Generator | None = None,
) -> Model:
    """Add adapters of a rank, times alpha / rank, to the linear maps whose names end in one of
    `targets`, in place.

    Nothing else is trained but a classifier's head. Names are ours: "q_proj", "k_proj", "v_proj",
    "out_proj", "linear1", "gate", "linear2", or longer parts such as
    "decoder.layers.0.self_attention.q_proj". An optimizer is to be made afterwards, of the
    parameters that require gradients.
    """
    checked_count("lora", "rank", rank)
    checked_number("lora", "alpha", alpha)
    checked_number("lora", "dropout", dropout, high=1.0)
    linears, targets = linears_of(model), [targets] if isinstance(targets, str) else list(targets)
    if (
        missing := [t for t in targets if not any(ends_in(name, [t]) for name in linears)]
    ) or not targets:
        ends = sorted({name.rpartition(".")[2] for name in linears})
        raise ValueError(
            f"lora: no linear map is named {', '.join(missing) or targets}; there are "
            f"{', '.join(ends)}"
        )
    return adapt(model, {
        name: LoRALinear(linear, rank, alpha / rank, dropout=dropout, generator=generator)
        for name, linear in linears.items() if ends_in(name, targets)
    })  # fmt: skip


def ends_in(name: str, targets: Sequence[str]) -> bool:
    """Whether one of the targets is the name, or what it ends in behind a dot."""
    return any(f".{name}".endswith(f".{target}") for target in targets)


def merge_lora(model: Model) -> Model:
    """Make the adapters part of the weights, in place; all parameters are trained again."""
    _put(model, {name: linear.merged() for name, linear in linears_of(model, LoRALinear).items()})
    model.requires_grad_(True)
    return model
