"""Backward passes of the explorer: gradients by attention weights, and steps of gradient ascent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import numpy as np

import minigrad as mg
from minigrad.tensor import Tensor

from ..module import Module, evaluating
from ..options.probes import attentions_of, record_attention

__all__ = ["by_kind", "choose_outputs", "differentiate"]

Recorded = dict[str, list[np.ndarray]]
"""An array for each call of each attention, by the names of the attentions."""

ASCENT_STEPS, ASCENT_RATE = 10, 0.01
LEAST_GRADIENT = 1e-6
"""A gradient of a smaller length is rounding, and no step follows it."""

MAX_GRADIENTS = 2**25
"""Number of gradients in a page; each takes up to 4 / 3 bytes."""


class Output(NamedTuple):
    """A token whose log-probability is differentiated."""

    row: int  # of the logits
    id: int
    token: str
    p: float


def choose_outputs(
    probabilities: np.ndarray,
    ids: Any,
    tokens: Sequence[str],
    vocabulary: Sequence[str] | None,
) -> list[Output]:
    """Return each token, and the most probable other token if there is a vocabulary.

    In a row after the last token, as a language model has, return the two most probable tokens.

    Parameters
    ----------
    probabilities : array, shape (L, V)
    ids : sequence or array of int
        Ids of the tokens that are predicted, for each row or for all but the last one.
    tokens : sequence of str
        The same tokens.
    vocabulary : sequence of str, optional
        Tokens by id.
    """
    outputs = []
    for row, p in enumerate(probabilities):
        chosen = {int(ids[row]): tokens[row]} if row < len(ids) else {}
        if vocabulary is not None:
            for i in np.argsort(-p)[:2].tolist():
                if len(chosen) < 2:
                    chosen.setdefault(i, vocabulary[i])
        outputs += [Output(row, i, token, float(p[i])) for i, token in chosen.items()]
    return outputs


def differentiate(
    model: Module,
    inputs: Sequence[Any],
    outputs: Sequence[Output],
    kinds: Mapping[str, str],
    first_place: int,
) -> list[dict[str, Any]]:
    """Return the backward passes of outputs, as `attention_page` takes them.

    Parameters
    ----------
    model : Module
        Returns logits (1, L, V).
    inputs : sequence of array of int
        Arguments of the model, each with one row.
    outputs : sequence of Output
        Tokens whose log-probabilities are differentiated.
    kinds : mapping of str to str
        Names of the maps of the page, by the names of the attentions.
    first_place : int
        Number of the token that the first row predicts.
    """
    results: list[dict[str, Any]] = []
    for output, gradients in zip(outputs, _gradients_by_weights(model, inputs, outputs)):
        frames, probabilities = _ascend(model, inputs, output)
        grouped = [by_kind(frame, kinds) for frame in frames]
        results.append(
            {
                "token": output.token,
                "place": first_place + output.row,
                "p": output.p,
                "gradients": by_kind(gradients, kinds),
                "ascent": None,
            }
        )
        kind, layer, head, change = _most_changed(grouped[0], grouped[-1])
        if change > 0:
            weights = np.stack([frame[kind][layer][head] for frame in grouped])
            results[-1]["ascent"] = {
                "map": kind,
                "layer": layer,
                "head": head,
                "weights": weights,
                "p": probabilities,
            }
    return results


def by_kind(recorded: Mapping[str, Sequence[Any]], kinds: Mapping[str, str]) -> dict[str, Any]:
    """Return the records of all attentions of a kind in one list."""
    grouped: dict[str, list[Any]] = {}
    for name, results in recorded.items():
        grouped.setdefault(kinds[name], []).extend(results)
    return grouped


def _gradients_by_weights(
    model: Module, inputs: Sequence[Any], outputs: Sequence[Output]
) -> list[Recorded]:
    """Return the gradient of each log-probability by each attention weight.

    Weights of 0, such as those of masked keys, have the gradient 0.
    """
    with evaluating(), mg.enable_grad(), record_attention(model, retain_grad=True) as recorded:
        log_p = mg.log_softmax(model(*inputs)[0])
    weights = [w for calls in recorded.values() for w in calls]
    count = len(outputs) * sum(w.size for w in weights)
    if count > MAX_GRADIENTS:
        raise ValueError(
            f"explore: a page with backward must have at most {MAX_GRADIENTS:,} gradients, got "
            f"{count:,}. Use a shorter sequence"
        )
    results = []
    for row, i, *_ in outputs:
        grads = mg.gradients(log_p[row, i], weights, retain_graph=True, allow_unused=True)
        arrays = iter(
            [
                np.zeros(w.shape[1:], w.dtype) if g is None else (g.data * (w.data != 0))[0]
                for g, w in zip(grads, weights)
            ]
        )
        results.append({name: [next(arrays) for _ in calls] for name, calls in recorded.items()})
    return results


def _ascend(
    model: Module, inputs: Sequence[Any], output: Output
) -> tuple[list[Recorded], list[float]]:
    """Return attention weights and the probability before and after steps that increase it.

    Each step adds the gradient, times a learning rate, to the weights of all queries and keys. The
    first step is as long as a fraction of all these weights, and no step is longer. Hooks add the
    changes, so that the parameters of the model do not change.
    """
    projections = [p for m in attentions_of(model).values() for p in (m.q_proj, m.k_proj)]
    changes: dict[Module, np.ndarray] = {
        p: np.zeros(p.weight.shape, p.weight.dtype) for p in projections
    }
    longest, steepest = ASCENT_RATE * _length([p.weight.data for p in projections]), 0.0
    leaves: dict[Module, Tensor] = {}

    def add_change(projection: Module, arguments: Any, result: Any) -> Tensor:
        return result + mg.linear(arguments[0], leaves[projection])

    weights, probabilities = [], []
    with ExitStack() as stack:
        stack.enter_context(evaluating())
        stack.enter_context(mg.enable_grad())
        for projection in projections:
            stack.callback(projection.register_forward_hook(add_change).remove)
        for step in range(ASCENT_STEPS + 1):
            leaves |= {p: Tensor(change, requires_grad=True) for p, change in changes.items()}
            with record_attention(model) as recorded:
                log_p = mg.log_softmax(model(*inputs)[0])[output.row, output.id]
            weights.append({name: [w[0] for w in calls] for name, calls in recorded.items()})
            probabilities.append(float(np.exp(log_p.item())))
            if step < ASCENT_STEPS:
                grads = mg.gradients(log_p, list(leaves.values()), allow_unused=True)
                arrays = {p: g.data for p, g in zip(leaves, grads) if g is not None}
                steepest = max(steepest, _length(arrays.values()))
                for p, g in arrays.items():
                    if steepest > LEAST_GRADIENT:
                        changes[p] = changes[p] + g * (longest / steepest)
    return weights, probabilities


def _length(arrays: Iterable[np.ndarray]) -> float:
    """Return the square root of the sum of all squares."""
    return float(np.sqrt(sum(np.square(array, dtype=float).sum() for array in arrays)))


def _most_changed(before: Recorded, after: Recorded) -> tuple[str, int, int, float]:
    """Return kind, layer and head of the attention whose weights differ most, and the sum."""
    changes = [
        (float(np.abs(b - a).sum()), kind, layer, head)
        for kind in before
        for layer, (one, other) in enumerate(zip(before[kind], after[kind]))
        for head, (a, b) in enumerate(zip(one, other))
    ]
    change, kind, layer, head = max(changes)
    return kind, layer, head, change
