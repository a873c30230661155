"""Functions of `torch.nn.utils`: gradients and vectors of parameters, and padding in `rnn`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

import minigrad as mg
from minigrad import Tensor, no_grad
from minigrad.check.namespace import namespace
from minigrad.optim.state import clip_grad_norm_
from minigrad.tensor import unwrap

from . import rnn as rnn

__all__ = [
    "clip_grad_norm_", "clip_grad_value_", "parameters_to_vector", "vector_to_parameters",
]  # fmt: skip


def clip_grad_value_(parameters: Tensor | Iterable[Tensor], clip_value: float) -> None:
    """Limit each element of the gradients of `parameters` to [-clip_value, clip_value].

    Other parameters: as `clip_grad_norm_`.

    Parameters
    ----------
    clip_value : float
        Largest absolute value.
    """
    if not clip_value >= 0:
        raise ValueError(f"clip_grad_value_: clip_value must be at least 0, got {clip_value}")
    for parameter in [parameters] if isinstance(parameters, Tensor) else parameters:
        if parameter.grad is not None:
            clipped = np.clip(parameter.grad.data, -clip_value, clip_value)
            parameter.grad = np.asarray(clipped)  # NumPy returns a number without axes


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """Return all elements of tensors as one vector, which passes gradients on.

    Parameters
    ----------
    parameters : iterable of Tensor
    """
    return mg.concatenate([mg.reshape(parameter, -1) for parameter in parameters])


def vector_to_parameters(vec: Any, parameters: Iterable[Tensor]) -> None:
    """Write the elements of a vector into tensors, in order.

    Parameters
    ----------
    vec : Tensor, shape (n,)
    parameters : iterable of Tensor
        Tensors with n elements together.
    """
    parameters, vec = list(parameters), np.asarray(unwrap(vec))
    sizes = [parameter.data.size for parameter in parameters]
    if vec.shape != (sum(sizes),):
        raise ValueError(
            f"vector_to_parameters: vec must have shape ({sum(sizes)},), got {vec.shape}"
        )
    with no_grad():
        for parameter, part in zip(parameters, np.split(vec, np.cumsum(sizes)[:-1])):
            parameter[...] = part.reshape(parameter.shape)


if not TYPE_CHECKING:  # type checkers report a missing name
    __all__, __getattr__, __dir__ = namespace(__name__, "rnn")
