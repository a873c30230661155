"""R-Drop (Liang et al. 2021, arXiv:2106.14448): an objective for `nn.Trainer` and multi30k.py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import minigrad as mg
from minigrad.arguments import checked_number
from minigrad.tensor import Tensor
from nn import ModelLoss
from nn.models import IGNORED

__all__ = ["RDrop"]


class RDrop(ModelLoss):
    """Loss of a `Transformer` in two passes with different dropout, and their divergence.

    For each target token it is (L1 + L2) / 2 + alpha / 2 * (KL(p1 || p2) + KL(p2 || p1)) / 2, half
    of the paper's, so that `alpha=0` gives the plain loss. In evaluation it is the plain loss. A
    step takes two to three times as long, and holds the logits of a whole batch: take small
    batches and accumulate them.

    Parameters
    ----------
    alpha : float
        Weight of the divergence.
    label_smoothing : float
    """

    def __init__(self, alpha: float = 5.0, label_smoothing: float = 0.0) -> None:
        super().__init__(label_smoothing=label_smoothing)
        self.alpha = checked_number("RDrop", "alpha", alpha)

    def total(self, model: Any, batch: Any) -> Tensor:
        if not model.training:
            return super().total(model, batch)
        source, target = (np.asarray(ids) for ids in batch)
        twice = lambda ids: np.concatenate([ids, ids])
        hidden = model.hidden(twice(source), twice(target[:, :-1]))  # (2N, L, d_model)
        targets = model.targets(source, target)
        real = targets != IGNORED
        first, second = (
            model.output(part[real]) for part in (hidden[: len(source)], hidden[len(source) :])
        )
        loss = lambda logits: mg.cross_entropy(
            logits, targets[real], reduction="sum", **self.options
        )
        return 0.5 * (loss(first) + loss(second)) + 0.5 * self.alpha * _divergence(first, second)


def _divergence_vjp(g: Any, first: Any, second: Any) -> tuple[Any, Any]:
    gradients = []
    for block in _blocks(first):
        (logp, p), (logq, q) = _softmax(first[block]), _softmax(second[block])
        apart = logp - logq
        of_first = p * (apart - (p * apart).sum(-1, keepdims=True)) + (p - q)
        of_second = q * (apart - (q * apart).sum(-1, keepdims=True)) + (p - q)
        gradients.append((g * 0.5 * of_first, g * -0.5 * of_second))
    first, second = zip(*gradients)
    return np.concatenate(first), np.concatenate(second)


@mg.custom_op(vjp=_divergence_vjp)
def _divergence(first: Any, second: Any, /) -> Any:
    """Return Σ (p - q) (log p - log q) / 2, the sum of (KL(p ‖ q) + KL(q ‖ p)) / 2 over rows.

    p and q are the softmax of the rows of `first` and `second`, (rows, vocabulary).
    """
    total = first.dtype.type(0)
    for block in _blocks(first):
        (logp, p), (logq, q) = _softmax(first[block]), _softmax(second[block])
        total += 0.5 * ((p - q) * (logp - logq)).sum()
    return np.asarray(total)


def _blocks(logits: Any) -> Iterator[slice]:
    """Return slices of rows that fit into the cache of a core."""
    rows = max(1, (1 << 16) // logits.shape[1])
    return (slice(start, start + rows) for start in range(0, max(1, len(logits)), rows))


def _softmax(logits: Any) -> tuple[Any, Any]:
    """Return log-probabilities and probabilities of each row of logits."""
    logits = logits - logits.max(-1, keepdims=True)
    exponentials = np.exp(logits)
    total = exponentials.sum(-1, keepdims=True)
    return logits - np.log(total), exponentials / total
