"""Backward passes of the explorer: gradients by attention weights, and steps of gradient ascent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import numpy as np

import minigrad as mg
from minigrad.tensor import Tensor

from ..layers import Linear
from ..module import Module, evaluating
from ..options.probes import attentions_of, record_attention

Recorded = dict[str, list[np.ndarray]]
"""An array for each call of each attention, by the names of the attentions."""

ASCENT_STEPS, ASCENT_RATE = 10, 0.01
MIN_GRADIENT = 1e-6
"""A gradient of a smaller length is rounding, and no step follows it."""

MAX_GRADIENTS = 2**25
"""Number of gradients in a page; each takes up to 4 / 3 bytes."""
MAX_TOKENS, MAX_CHANGES = 1024, 2**25
"""Size of a batch of outputs: its tokens, and its changes of weights."""


class Output(NamedTuple):
    """A token whose log-probability is differentiated."""

    row: int  # in the logits
    id: int
    token: str
    p: float


def choose_outputs(
    probabilities: np.ndarray,
    ids: Any,
    tokens: Sequence[str],
    vocabulary: Sequence[str] | None,
) -> list[Output]:
    """Return each token, and the most probable other token if there is a vocabulary (tokens by id).

    `probabilities` are (L, V). `ids` and `tokens` are those that are predicted, for each row or for
    all but the last one. In a row after the last token, as a language model has, return the two
    most probable tokens.
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

    `inputs` are arguments of the model, each with one row; it returns logits (1, L, V). `kinds` are
    names of the maps of the page, by the names of the attentions. `first_place` is the number of
    the token that the first row predicts.
    """
    tokens, projections = sum(x.size for x in inputs), _projections(model)
    size = sum(p.weight.size for p in projections)
    count = max(1, min(MAX_TOKENS // tokens, MAX_CHANGES // max(1, size)))
    results = []
    for start in range(0, len(outputs), count):
        part = outputs[start : start + count]
        batch = [np.repeat(x, len(part), axis=0) for x in inputs]
        gradients = by_kind(_gradients_by_weights(model, batch, part, len(outputs)), kinds)
        frames, probabilities = _ascend(model, batch, part)
        grouped = [by_kind(frame, kinds) for frame in frames]
        for i, output in enumerate(part):
            results.append(
                {
                    "token": output.token,
                    "place": first_place + output.row,
                    "p": output.p,
                    "gradients": {kind: [g[i] for g in grads] for kind, grads in gradients.items()},
                    "ascent": _most_changed_head(grouped, probabilities, i),
                }
            )
    return results


def by_kind(recorded: Mapping[str, Sequence[Any]], kinds: Mapping[str, str]) -> dict[str, Any]:
    """Return the records of all attentions of a kind in one list."""
    grouped: dict[str, list[Any]] = {}
    for name, results in recorded.items():
        grouped.setdefault(kinds[name], []).extend(results)
    return grouped


def _projections(model: Module) -> list[Linear]:
    """Return the linear layers of queries and keys."""
    return [p for m in attentions_of(model).values() for p in (m.q_proj, m.k_proj)]


def _log_probabilities(model: Module, batch: Sequence[Any], outputs: Sequence[Output]) -> Tensor:
    """Return the log-probability of output i in row i of the batch."""
    rows, ids = ([output[j] for output in outputs] for j in (0, 1))
    return mg.log_softmax(model(*batch))[np.arange(len(outputs)), rows, ids]


def _gradients_by_weights(
    model: Module, batch: Sequence[Any], outputs: Sequence[Output], total: int
) -> Recorded:
    """Return the gradients by attention weights, (N, h, L_q, L_kv): output i in row i of the batch.

    Weights of 0, such as those of masked keys, have the gradient 0. `total` is the number of all
    outputs of the page.
    """
    with evaluating(), mg.enable_grad(), record_attention(model, retain_grad=True) as recorded:
        y = _log_probabilities(model, batch, outputs).sum()
    weights = [w for calls in recorded.values() for w in calls]
    count = total * sum(w[0].size for w in weights)
    if count > MAX_GRADIENTS:
        raise ValueError(
            f"explore: a page with backward must have at most {MAX_GRADIENTS:,} gradients, got "
            f"{count:,}. Use a shorter sequence"
        )
    grads = mg.gradients(y, weights, allow_unused=True)
    arrays = (
        np.zeros(w.shape, w.dtype) if g is None else g.data * (w.data != 0)
        for g, w in zip(grads, weights)
    )
    return {name: [next(arrays) for _ in calls] for name, calls in recorded.items()}


def _ascend(
    model: Module, batch: Sequence[Any], outputs: Sequence[Output]
) -> tuple[list[Recorded], np.ndarray]:
    """Return attention weights and probabilities (steps + 1, N) in steps that increase outputs.

    For each output, a step adds its gradient, times a learning rate, to the weights of all queries
    and keys. The first step is as long as a fraction of all these weights, and no step is longer.
    Hooks add the changes (N, in, out), so that the parameters of the model do not change.
    """
    projections, n = _projections(model), len(outputs)
    changes: dict[Module, np.ndarray] = {
        p: np.zeros((n, *p.weight.shape[::-1]), p.weight.dtype) for p in projections
    }
    squares = sum(float(np.square(p.weight.data).sum()) for p in projections)
    longest, steepest = ASCENT_RATE * squares**0.5, np.full(n, MIN_GRADIENT)
    leaves: dict[Module, Tensor] = {}

    def add_change(projection: Module, arguments: Any, result: Any) -> Tensor:
        return result + mg.matmul(arguments[0], leaves[projection])

    weights, probabilities = [], []
    with ExitStack() as stack:
        stack.enter_context(evaluating())
        stack.enter_context(mg.enable_grad())
        for projection in projections:
            stack.callback(projection.register_forward_hook(add_change).remove)
        for step in range(ASCENT_STEPS + 1):
            leaves |= {p: Tensor(change, requires_grad=True) for p, change in changes.items()}
            with record_attention(model) as recorded:
                log_p = _log_probabilities(model, batch, outputs)
            weights.append(recorded)
            probabilities.append(np.exp(log_p.data))
            if step < ASCENT_STEPS:
                grads = mg.gradients(log_p.sum(), list(leaves.values()), allow_unused=True)
                arrays = {p: g.data for p, g in zip(leaves, grads) if g is not None}
                lengths = np.sqrt(sum(np.square(g).sum((1, 2)) for g in arrays.values()))
                steepest = np.maximum(steepest, lengths)
                rates = np.where(steepest > MIN_GRADIENT, longest / steepest, 0)
                for p, g in arrays.items():
                    changes[p] = changes[p] + g * rates[:, None, None].astype(g.dtype)
    return weights, np.stack(probabilities)


def _most_changed_head(
    frames: Sequence[Recorded], probabilities: np.ndarray, i: int
) -> dict[str, Any] | None:
    """Return the head whose weights differ most between first and last frame, in row i."""
    changes = [
        (change, kind, layer, head)
        for kind, layers in frames[0].items()
        for layer, (first, last) in enumerate(zip(layers, frames[-1][kind]))
        for head, change in enumerate(np.abs(last[i] - first[i]).sum((1, 2)))
    ]
    change, kind, layer, head = max(changes)
    if not change:
        return None
    weights = np.stack([frame[kind][layer][i, head] for frame in frames])
    p = probabilities[:, i].tolist()
    return {"map": kind, "layer": layer, "head": head, "weights": weights, "p": p}
