"""Hidden states of a model, and attributions of its predictions to tokens."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import numpy as np

import minigrad as mg
from minigrad.grad import gradients
from minigrad.tensor import Tensor, unwrap

from ..block import InputEmbedding, TransformerDecoderLayer, TransformerEncoderLayer
from ..models import Model, Transformer
from ..module import Module, evaluating
from ..options.images import PatchEmbedding

__all__ = ["attribute", "record_hidden"]


@contextmanager
def record_hidden(model: Module) -> Iterator[dict[str, list[np.ndarray]]]:
    """Return a context that records the results of the embeddings and layers of a model.

    Parameters
    ----------
    model : Module
        A model of `nn`, or a module that contains its layers.

    Yields
    ------
    dict of str to list of ndarray, shape (N, L, d_model)
        For each module by name, an array for each call.
    """
    kinds = (InputEmbedding, PatchEmbedding, TransformerEncoderLayer, TransformerDecoderLayer)
    recorded: dict[str, list[np.ndarray]] = {}

    def record(name: str, module: Module, inputs: Any, result: Any) -> None:
        recorded[name].append(unwrap(result))

    with ExitStack() as stack:
        for name, module in model.named_modules():
            if isinstance(module, kinds):
                recorded[name] = []
                stack.callback(module.register_forward_hook(partial(record, name)).remove)
        yield recorded


def attribute(
    model: Model, ids: Any, goal: int | None = None, *, target: Any = None, padding_mask: Any = None
) -> Any:
    """Return how much each token adds to a logit, to first order: gradient × input.

    For a classifier, the logit of a class; for other models, of the token after the last real one.

    Parameters
    ----------
    model : Model
        In evaluation mode while it computes.
    ids : array of int, shape (L,)
        The sequence, or a Transformer's source.
    goal : int, optional
        Class or token; the most probable one by default.
    target : array of int, shape (L_t,), optional
        A Transformer's target.
    padding_mask : array of bool, shape (L,), optional
        True = a real token.

    Returns
    -------
    ndarray, shape (L,)
        With a target, a pair for the tokens of source (L,) and target (L_t,).

    References
    ----------
    Simonyan et al. (2013), arXiv:1312.6034. Denil et al. (2014), arXiv:1412.6815.
    """
    inputs: list[Tensor] = []

    def leaf(module: Module, arguments: Any, result: Any) -> Tensor:
        inputs.append(Tensor(unwrap(result), requires_grad=True))
        return inputs[-1]

    tables = [m.tokens for m in model.modules() if isinstance(m, InputEmbedding)]
    rows = [np.atleast_2d(np.asarray(x)) for x in ((ids,) if target is None else (ids, target))]
    if (
        not tables
        or any(len(row) != 1 for row in rows)
        or (target is None) == isinstance(model, Transformer)
    ):
        raise ValueError(
            "attribute: ids must be one sequence, and target another for a model with a source; "
            f"got shapes {[row.shape for row in rows]}"
        )
    with ExitStack() as stack:
        for table in tables:
            stack.callback(table.register_forward_hook(leaf).remove)
        stack.enter_context(evaluating())
        stack.enter_context(mg.enable_grad())
        mask = None if padding_mask is None else np.atleast_2d(padding_mask)
        logits = model(*rows, mask)[0]
        if logits.ndim == 2:
            real = model._batch("ids", rows[-1], mask if target is None else None).mask
            logits = logits[-1 if real is None else np.flatnonzero(real).max(initial=0)]
        index = np.argmax(logits.data) if goal is None else goal
        grads = gradients(logits[index], inputs)
    attributions = [(unwrap(g) * x.data).sum(-1)[0] for g, x in zip(grads, inputs)]
    return attributions[0] if target is None else tuple(attributions)
