"""Low-rank adaptation (LoRA): Hu et al. (2022), arXiv:2106.09685."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import minigrad as mg
from minigrad.arguments import checked_count, checked_number
from minigrad.tensor import Tensor

from .. import init
from ..layers import Linear
from ..models import Model
from ..module import Module, Parameter, as_input
from ..options.extended_layers import CappedLinear

__all__ = ["LoRALinear", "lora", "merge_lora"]


class LoRALinear(CappedLinear):
    """A linear layer with an adapter: x @ (weight + scale * B @ A).T + bias.

    A, (rank, in_features), and B, (out_features, rank), are trained. B is zero at first, so that
    the adapter changes nothing.

    Parameters
    ----------
    linear : Linear
        The layer whose weight and bias are used.
    rank : int
        Rank of the product of B and A.
    scale : float
        Factor of the product.
    dropout : float
        Dropout of the input of A.
    generator : numpy.random.Generator, optional
        Draws A, and the masks of dropout.
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
        self.in_features = linear.in_features
        self.out_features = linear.out_features
        self.weight = linear.weight
        self.bias = linear.bias
        self.cap = getattr(linear, "cap", None)
        self.rank, self.scale, self.dropout, self.generator = rank, float(scale), dropout, generator
        dtype = linear.weight.dtype
        self.lora_a = Parameter(np.empty((rank, linear.in_features), dtype))
        init.kaiming_uniform_(self.lora_a, math.sqrt(5), generator=generator)
        self.lora_b = Parameter(np.zeros((linear.out_features, rank), dtype))
        self.train(linear.training)

    def forward(self, x: Any) -> Tensor:
        """Return the output (..., out_features) of the layer plus that of the adapter, scaled."""
        x = as_input(self, x, self.weight.dtype)
        dropped = mg.dropout(x, self.dropout, self.training, generator=self.generator)
        change = mg.linear(mg.linear(dropped, self.lora_a), self.lora_b) * self.scale
        return self.bounded(mg.linear(x, self.weight, self.bias) + change)

    def merged(self) -> Linear:
        """Return a linear layer whose weight includes the adapter; it shares the bias."""
        plain: Any = Linear.__new__(Linear if self.cap is None else CappedLinear)
        if self.cap is not None:
            plain.cap = self.cap
        plain.in_features = self.in_features
        plain.out_features = self.out_features
        plain.bias = self.bias
        weight = self.weight.data + self.scale * (self.lora_b.data @ self.lora_a.data)
        plain.weight = Parameter(weight.astype(self.weight.dtype, copy=False))
        return plain

    def extra_repr(self) -> str:
        """Return sizes, rank and scale for `repr`."""
        return f"{super().extra_repr()}, rank={self.rank}, scale={self.scale:g}"


def linears_of(model: Module, kind: type[Linear] = Linear) -> dict[str, Any]:
    """Return the linear layers of a model by name."""
    return {name: module for name, module in model.named_modules() if isinstance(module, kind)}


def _put(model: Module, linears: Mapping[str, Linear]) -> None:
    """Replace the linear layers of these names."""
    holders = dict(model.named_modules())
    for name, linear in linears.items():
        holder, _, leaf = name.rpartition(".")
        setattr(holders[holder], leaf, linear)


def heads_of(model: Model) -> dict[str, Module]:
    """Return the layers of the head of a classifier, which are trained whole."""
    trained = ("dense", "norm", "output") if getattr(model.config, "num_classes", 0) else ()
    return {name: child for name, child in model.named_children() if name in trained}


def check_plain(model: Model) -> None:
    """Raise a ValueError if a model has adapters."""
    if linears_of(model, LoRALinear):
        raise ValueError(
            "model must have no adapters; merge_lora adds those that it has to the weights"
        )


def adapt(model: Model, adapters: Mapping[str, LoRALinear]) -> Model:
    """Put adapters into a model, which trains them and a classifier's head only."""
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
    """Return the model, with adapters added to its linear layers in place.

    Only the adapters and the head of a classifier are trained afterwards. Make the optimizer after
    this call, of the parameters that require gradients.

    Parameters
    ----------
    model : Model
        A model without adapters.
    rank : int
        Rank of each adapter.
    alpha : float
        The factor of each adapter is alpha / rank.
    targets : str or sequence of str
        Ends of the names of linear layers: "q_proj", "k_proj", "v_proj", "out_proj", "linear1",
        "gate", "linear2", or longer ones, such as "decoder.layers.0.self_attention.q_proj".
    dropout : float
        Dropout of the inputs of the adapters.
    generator : numpy.random.Generator, optional
        Draws the adapters, and the masks of dropout.
    """
    checked_count("lora", "rank", rank)
    checked_number("lora", "alpha", alpha)
    checked_number("lora", "dropout", dropout, high=1.0)
    linears = linears_of(model)
    targets = [targets] if isinstance(targets, str) else list(targets)
    missing = [t for t in targets if not any(ends_in(name, [t]) for name in linears)]
    if missing or not targets:
        ends = sorted({name.rpartition(".")[2] for name in linears})
        raise ValueError(
            f"targets must be ends of names of linear layers, such as {', '.join(ends)}, got "
            f"{', '.join(missing) or targets}"
        )
    return adapt(model, {
        name: LoRALinear(linear, rank, alpha / rank, dropout=dropout, generator=generator)
        for name, linear in linears.items() if ends_in(name, targets)
    })  # fmt: skip


def ends_in(name: str, targets: Sequence[str]) -> bool:
    """Return whether a dotted name is one of the targets, or ends in one."""
    return any(f".{name}".endswith(f".{target}") for target in targets)


def merge_lora(model: Model) -> Model:
    """Return the model, with the adapters added to its weights in place, and all trainable.

    Parameters that are not trained in the model's family, such as Marian's `final_logits_bias`,
    remain frozen.

    Parameters
    ----------
    model : Model
        A model with adapters.
    """
    _put(model, {name: linear.merged() for name, linear in linears_of(model, LoRALinear).items()})
    model.requires_grad_(True)
    parameters = dict(model.named_parameters())
    origin = getattr(model, "origin", None)
    for stored in origin.arrays.values() if origin else ():
        if not stored.trained:
            for name in stored.parameters:
                parameters[name].requires_grad_(False)
    return model
