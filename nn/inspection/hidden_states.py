"""Looking inside a model: its hidden states, and what a prediction owes to each token."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

import minigrad as mg
from minigrad.core.tensor import Tensor, unwrap
from minigrad.derivatives import gradients

from ..layers.block import TransformerDecoderLayer, TransformerEncoderLayer
from ..layers.module import Module, evaluating
from ..models.base import Model
from ..models.stacks import InputEmbedding, PatchEmbedding
from ..models.transformer import Transformer

__all__ = ["attribute", "record_hidden"]


@contextmanager
def record_hidden(model: Module) -> Iterator[dict[str, list[np.ndarray]]]:
    """Within this block, the embeddings and every layer of `model` add their results to a list, by
    their names.

    Each entry is (N, L, d_model), one for each call.
    """
    kinds = (InputEmbedding, PatchEmbedding, TransformerEncoderLayer, TransformerDecoderLayer)
    found = {name: module for name, module in model.named_modules() if isinstance(module, kinds)}
    recorded: dict[str, list[np.ndarray]] = {name: [] for name in found}
    with ExitStack() as stack:
        for name, module in found.items():
            handle = module.register_forward_hook(
                lambda _, __, y, states=recorded[name]: states.append(unwrap(y))  # type: ignore[misc]
            )
            stack.callback(handle.remove)
        yield recorded


def attribute(
    model: Model, ids: Any, goal: int | None = None, *, target: Any = None, padding_mask: Any = None
) -> Any:
    """Gradient × input: how much each token adds to the logit of `goal`, to first order; (L,) from
    ids (L,).

    The logit is that of a class of a classifier, or of the next token after `ids` (for a model with
    source and target, after `target`, and then the result is a pair: of the source's tokens and of
    the target's). `goal` None is the likeliest. Simonyan et al. (2013), arXiv:1312.6034; Denil et
    al. (2014), arXiv:1412.6815.
    """
    inputs: list[Tensor] = []

    def leaf(module: Module, arguments: Any, result: Any) -> Tensor:
        inputs.append(Tensor(unwrap(result).copy(), requires_grad=True))
        return inputs[-1]

    tables = [m.tokens for m in model.modules() if isinstance(m, InputEmbedding)]
    rows = [np.atleast_2d(np.asarray(x)) for x in ((ids,) if target is None else (ids, target))]
    if (
        not tables
        or any(len(row) != 1 for row in rows)
        or (target is None) == isinstance(model, Transformer)
    ):
        raise ValueError(
            "attribute: expected one sequence of ids, and a target where the model has one"
        )
    with ExitStack() as stack:
        for table in tables:
            stack.callback(table.register_forward_hook(leaf).remove)
        stack.enter_context(evaluating())
        stack.enter_context(mg.enable_grad())
        logits = model(*rows, None if padding_mask is None else np.atleast_2d(padding_mask))[0]
        logits = logits[-1] if logits.ndim == 2 else logits
        chosen = int(np.argmax(logits.data)) if goal is None else goal
        found = gradients(logits[chosen], inputs)
    attributions = [(unwrap(g) * x.data).sum(-1)[0] for g, x in zip(found, inputs)]
    return attributions[0] if target is None else tuple(attributions)
