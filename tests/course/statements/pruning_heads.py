"""Statements of "Multi-head attention" about the heads that matter."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from exercises.pruning_heads import removal_order
from pronouns import Resolver, corpus, encode, settings, train
from support.statements import Statements

import minigrad as mg
import nn

HEADS, LAYERS, D_MODEL, STEPS = 8, 2, 64, 400
NAMES = [f"encoder.layers.{i}.self_attention" for i in range(LAYERS)]
Gates = np.ndarray  # (layers, heads), 1 or 0


def gated(model: Any, gates: Any, ids: np.ndarray) -> mg.Tensor:
    """Return scores (N, words) with the outputs of heads times gates (layers, h) or (layers, N, h)."""
    with nn.gate_heads(model, dict(zip(NAMES, gates))):
        return model(ids)


def loss_and_accuracy(
    model: Any, gates: Gates, ids: np.ndarray, nouns: np.ndarray
) -> tuple[float, float]:
    with mg.no_grad():
        scores = gated(model, gates, ids)
    right = scores.data.argmax(-1) == nouns
    return mg.cross_entropy(scores, nouns).item(), float(right.mean())


def importance_by_gradient(model: Any, ids: np.ndarray, nouns: np.ndarray) -> np.ndarray:
    """Return the mean over sentences of |dL/dgate| at gates of 1, (layers, heads)."""
    gates = [
        mg.Tensor(np.ones((len(ids), HEADS), np.float32), requires_grad=True) for _ in NAMES
    ]  # (N, h) each
    loss = mg.cross_entropy(
        gated(model, gates, ids), nouns, reduction="sum"
    )  # each gate has its sentence's gradient
    return np.stack([abs(g.data).mean(0) for g in mg.gradients(loss, gates)])  # (layers, h)


def importance_by_ablation(model: Any, ids: np.ndarray, nouns: np.ndarray) -> np.ndarray:
    """Return the growth of the loss without each head, (layers, heads)."""
    whole, *losses = (
        loss_and_accuracy(model, without(heads), ids, nouns)[0]
        for heads in ([], *([head] for head in np.ndindex(LAYERS, HEADS)))
    )
    return np.reshape(losses, (LAYERS, HEADS)) - whole


def without(heads: Sequence[tuple[int, int]]) -> Gates:
    gates = np.ones((LAYERS, HEADS))
    for head in heads:
        gates[head] = 0
    return gates


def ranks_agree(a: np.ndarray, b: np.ndarray) -> float:
    """Return Spearman's correlation, the correlation of the ranks."""
    return float(np.corrcoef(*(x.ravel().argsort().argsort() for x in (a, b)))[0, 1])


# -- the text --------------------------------------------------------------------------------------------


def the_model(text: Statements) -> tuple[Any, np.ndarray, np.ndarray]:
    text.section("A model of sixteen heads")
    model = train(Resolver(settings(D_MODEL, HEADS, LAYERS)), steps=STEPS)
    sentences, nouns, held = corpus()
    ids, nouns = encode(sentences)[held], nouns[held]
    loss, accuracy = loss_and_accuracy(model, np.ones((LAYERS, HEADS)), ids, nouns)
    text.fact(
        "the model has learned its task",
        accuracy > 0.97,
        f"{accuracy:.1%} of the held-out sentences",
    )
    looks = model.weights_of_it(ids)  # (N, layers, h, L)
    apart = [
        abs(a - b).sum(-1).mean() / 2
        for layer in looks.swapaxes(0, 1) for a, b in itertools.combinations(layer.swapaxes(0, 1), 2)
    ]  # fmt: skip
    text.fact(
        "after training the heads are different",
        np.mean(apart) > 0.1,
        f'two heads of a layer lay {np.mean(apart):.0%} of the weight of "it" on different words, on average',
    )
    return model, ids, nouns


def importance(text: Statements, model: Any, ids: np.ndarray, nouns: np.ndarray) -> np.ndarray:
    text.section("How important is each head?")
    gate = mg.Tensor(np.ones((LAYERS, HEADS), np.float32), requires_grad=True)
    total = mg.cross_entropy(gated(model, [gate[i] for i in range(LAYERS)], ids), nouns)
    (slope,) = mg.gradients(total, [gate])
    step, (i, j) = 0.05, np.unravel_index(abs(slope.data).argmax(), slope.shape)
    gates = np.ones((2, LAYERS, HEADS))
    gates[:, i, j] += step, -step
    up, down = (loss_and_accuracy(model, both, ids, nouns)[0] for both in gates)
    difference = (up - down) / (2 * step)
    text.fact(
        "the gradient at a gate is the change of the loss with it",
        np.isclose(difference, slope.data[i, j], rtol=0.1),
        f"layer {i + 1}, head {j + 1}: {slope.data[i, j]:+.5f}, by differences {difference:+.5f}",
    )
    gradient = importance_by_gradient(model, ids, nouns)
    ablation = importance_by_ablation(model, ids, nouns)
    agree = ranks_agree(gradient, ablation)
    text.fact(
        "both ways agree on the whole",
        agree > 0.3,
        f"Spearman's correlation of the two rankings (1 if they are the same, 0 if they have nothing in common) is {agree:.2f}",
    )
    spread = ablation.max() / max(np.median(ablation), 1e-9)
    text.fact(
        "some heads matter much more than others",
        spread > 3,
        f"without the most important the loss grows by {ablation.max():.3f}, {spread:.0f} times the median",
    )
    return gradient


def how_many_can_go(
    text: Statements, model: Any, gradient: np.ndarray, ids: np.ndarray, nouns: np.ndarray
) -> int:
    """Return how many heads can be silent at a cost of at most 1 % of accuracy."""
    text.section("How many can be silent?")
    rng = np.random.default_rng(0)
    accuracies = lambda order: [
        loss_and_accuracy(model, without(order[:n]), ids, nouns)[1] for n in range(len(order) + 1)
    ]
    curve = accuracies(removal_order(gradient))
    most = np.mean(accuracies(removal_order(-gradient)))
    random = [np.mean(accuracies(removal_order(rng.random((LAYERS, HEADS))))) for _ in range(5)]
    least, free = np.mean(curve), int((np.minimum.accumulate(curve) >= curve[0] - 0.01).sum()) - 1
    text.fact(
        "the order in which heads go matters, in this one network",
        least > most + 0.1,
        f"mean accuracy along the way: {least:.0%} in the order of the gradient, {most:.0%} in reverse, "
        f"{min(random):.0%} to {max(random):.0%} in five random orders. Whether the gradient is better than chance "
        "cannot be said from one network",
    )
    text.fact(
        "many heads are not needed",
        free >= 3,
        f"{free} of 16 can be silent at a cost of at most 1 % of accuracy",
    )
    return free


def remove(
    text: Statements, model: Any, order: list[tuple[int, int]], free: int, ids: np.ndarray
) -> None:
    text.section("Really removed")
    heads = {name: [h for i, h in order[:free] if i == layer] for layer, name in enumerate(NAMES)}
    pruned = copied(model)
    pruned.prune_heads(heads)
    with mg.no_grad():
        silent, removed = gated(model, without(order[:free]), ids).data, pruned(ids).data
    text.equal("the result equals the result with silent heads", removed, silent, 1e-4)
    gone = free * D_MODEL // HEADS * (4 * D_MODEL + 3)  # rows of four matrices, and of three biases
    before, after = (m.num_parameters() for m in (model, pruned))
    text.fact(
        "their parameters are gone", before - after == gone, f"{before:,} before, {after:,} after"
    )


def remove_most(
    text: Statements, model: Any, order: list[tuple[int, int]], ids: np.ndarray, nouns: np.ndarray
) -> None:
    text.section("Most of them removed, and trained on")
    count = 10
    small = copied(model)
    heads = {name: [h for i, h in order[:count] if i == layer] for layer, name in enumerate(NAMES)}
    small.prune_heads(heads)
    rate = lambda m: float((m.answer(ids) == nouns).mean())
    first = rate(small)
    train(small, steps=150, lr=1e-3, seed=1)  # makes a new optimizer, as one must
    last = rate(small)
    text.fact(
        f"with {16 - count} of 16 heads left, a little training brings the accuracy back",
        last > 0.97,
        f"{first:.1%} after pruning, {last:.1%} after 150 more steps",
    )
    again = Resolver(small.config)  # config.pruned_heads says which heads are gone
    again.load_state_dict(small.state_dict())
    text.fact(
        "a pruned model is loaded from its configuration and weights",
        np.array_equal(again.eval().answer(ids), small.answer(ids)),
        f"`config.pruned_heads = {small.config.pruned_heads}`",
    )


def copied(model: Any) -> Any:
    """Return another model with the same weights."""
    other = Resolver(model.config)
    other.load_state_dict(model.state_dict())
    return other.eval()


def state(text: Statements) -> None:
    text.about(
        "Multi-head attention (多头注意力)",
        "a discussion among readers of a course",
        "004_36d00249ebd8060a.txt",
        note="It discusses the chapter [Multi-head attention](https://zh.d2l.ai/chapter_attention-mechanisms/multihead-attention.html) of Dive into Deep Learning.",
    )
    model, ids, nouns = the_model(text)
    gradient = importance(text, model, ids, nouns)
    free = how_many_can_go(text, model, gradient, ids[::3], nouns[::3])
    order = removal_order(gradient)
    remove(text, model, order, free, ids)
    remove_most(text, model, order, ids, nouns)
