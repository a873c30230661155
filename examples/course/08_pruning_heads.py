"""Which heads matter, and what happens when the others are removed.

"Multi-head attention" (the text, 004_36d00249ebd8060a.txt) says that the heads learn different things, each for a part
of the features. Then some should matter more than others. This lesson trains a model of 16 heads on the sentences of
lesson 5, asks of each head how much the loss depends on it, in two ways, and removes the least important: their
parameters are gone, and the model is smaller and faster.

After Michel, Levy, Neubig (2019), "Are sixteen heads really better than one?",
[arXiv:1905.10650](https://arxiv.org/abs/1905.10650).

    python examples/course/08_pruning_heads.py
"""

from __future__ import annotations

from lesson import Lesson, fastest  # first: Ctrl-C is one line from here on

# isort: split
import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import minigrad as mg
import nn
from minigrad.extras import require
from nn.inspection.style import SHADES

course = importlib.import_module("05_self_attention")

HEADS, LAYERS, D_MODEL, STEPS = 8, 2, 64, 400
NAMES = [f"encoder.layers.{i}.self_attention" for i in range(LAYERS)]
Gates = np.ndarray  # (layers, heads), 1 or 0


def gated(model: Any, gates: Any, ids: np.ndarray) -> mg.Tensor:
    """Scores (N, words) with the output of each head times its gate: gates (layers, h), or (layers, N, h)."""
    with nn.gate_heads(model, dict(zip(NAMES, gates))):
        return model(ids)


def loss_and_accuracy(
    model: Any, gates: Gates, ids: np.ndarray, nouns: np.ndarray
) -> tuple[float, float]:
    with mg.no_grad():
        scores = gated(model, gates, ids)
        return mg.cross_entropy(scores, nouns).item(), float(
            (scores.data.argmax(-1) == nouns).mean()
        )


def importance_by_gradient(model: Any, ids: np.ndarray, nouns: np.ndarray) -> np.ndarray:
    """The mean over sentences of |dL/dgate|, with a gate of 1 for each sentence and head: (layers, heads)."""
    gates = [
        mg.Tensor(np.ones((len(ids), HEADS), np.float32), requires_grad=True) for _ in NAMES
    ]  # (N, h) each
    loss = mg.cross_entropy(
        gated(model, gates, ids), nouns, reduction="sum"
    )  # each gate has its sentence's gradient
    return np.stack([abs(g.data).mean(0) for g in mg.gradients(loss, gates)])  # (layers, h)


def importance_by_ablation(model: Any, ids: np.ndarray, nouns: np.ndarray) -> np.ndarray:
    """How much the loss grows without each head: (layers, heads)."""
    whole, _ = loss_and_accuracy(model, np.ones((LAYERS, HEADS)), ids, nouns)
    grows = np.zeros((LAYERS, HEADS))
    for head in np.ndindex(LAYERS, HEADS):
        gates = np.ones((LAYERS, HEADS))
        gates[head] = 0
        grows[head] = loss_and_accuracy(model, gates, ids, nouns)[0] - whole
    return grows


def removal_order(importance: np.ndarray) -> list[tuple[int, int]]:
    """All heads but one of each layer, the least important first."""
    order = [divmod(int(i), HEADS) for i in importance.ravel().argsort()]
    last = {
        layer: max((h for h in order if h[0] == layer), key=order.index) for layer in range(LAYERS)
    }
    return [head for head in order if head != last[head[0]]]


def without(heads: Sequence[tuple[int, int]]) -> Gates:
    gates = np.ones((LAYERS, HEADS))
    for head in heads:
        gates[head] = 0
    return gates


def ranks_agree(a: np.ndarray, b: np.ndarray) -> float:
    """Spearman's correlation: that of the ranks."""
    return float(np.corrcoef(*(x.ravel().argsort().argsort() for x in (a, b)))[0, 1])


# -- the lesson --------------------------------------------------------------------------------------------


def the_model(lesson: Lesson) -> tuple[Any, np.ndarray, np.ndarray]:
    lesson.section("A model of sixteen heads")
    model = course.train(course.Resolver(course.settings(D_MODEL, HEADS, LAYERS)), steps=STEPS)
    sentences, nouns, held = course.corpus()
    ids, nouns = course.encode(sentences)[held], nouns[held]
    loss, accuracy = loss_and_accuracy(model, np.ones((LAYERS, HEADS)), ids, nouns)
    lesson.say(
        f"""It names the noun that "it" stands for, as in lesson 5, with {LAYERS} layers of {HEADS} heads of
        size {D_MODEL // HEADS} and {model.num_parameters():,} parameters. On the {len(ids)} held-out sentences its loss
        is {loss:.4f}."""
    )
    lesson.fact(
        "the model has learned its task",
        accuracy > 0.97,
        f"{accuracy:.1%} of the held-out sentences",
    )
    looks = model.looks(ids)  # (N, layers, h, L)
    apart = [
        abs(looks[:, i, a] - looks[:, i, b]).sum(-1).mean() / 2
        for i in range(LAYERS) for a in range(HEADS) for b in range(a)
    ]  # fmt: skip
    lesson.fact(
        "after training the heads are different",
        np.mean(apart) > 0.1,
        f'two heads of a layer lay {np.mean(apart):.0%} of the weight of "it" on different words, on average',
    )
    return model, ids, nouns


def importance(
    lesson: Lesson, model: Any, ids: np.ndarray, nouns: np.ndarray
) -> dict[str, np.ndarray]:
    lesson.section("How important is each head?")
    lesson.say(
        """The output of each head gets a gate, a number that it is multiplied by: 1 leaves it, 0 silences it. Now
        one can ask two questions. By *ablation*: how much does the loss grow when the gate of a head is 0? That
        takes one pass over the data for each head. By *gradient*: how much does the loss of a sentence change with
        the gate, at 1, on average? That takes one pass for all of them."""
    )
    lesson.formula(
        r"I_h = \frac{1}{N} \sum_{n} |\partial L_n / \partial g_h|",
        "$g_h$ is the gate of head $h$, taken at 1; $L_n$ the loss of sentence $n$.",
    )
    lesson.code(importance_by_gradient, importance_by_ablation)
    gradient_of_a_gate(lesson, model, ids, nouns)
    found = {
        "gradient": importance_by_gradient(model, ids, nouns),
        "ablation": importance_by_ablation(model, ids, nouns),
    }
    for name, values in found.items():
        lesson.show(f"importance by {name} (layers, heads)", values)
    agree = ranks_agree(*found.values())
    lesson.fact(
        "both ways agree on the whole",
        agree > 0.3,
        f"Spearman's correlation of the two rankings (1 if they are the same, 0 if they have nothing in common) is {agree:.2f}",
    )
    lesson.say(
        """The gradient is the cheaper one, and sees only what a small change does; to silence a head is a large one.
        Michel et al. divide the importances of each layer by their norm before they compare layers; here the plain
        ones order the heads as well."""
    )
    spread = found["ablation"].max() / max(np.median(found["ablation"]), 1e-9)
    lesson.fact(
        "some heads matter much more than others",
        spread > 3,
        f"without the most important the loss grows by {found['ablation'].max():.3f}, {spread:.0f} times the median",
    )
    return found


def gradient_of_a_gate(lesson: Lesson, model: Any, ids: np.ndarray, nouns: np.ndarray) -> None:
    gate = mg.Tensor(np.ones((LAYERS, HEADS), np.float32), requires_grad=True)
    total = mg.cross_entropy(gated(model, [gate[i] for i in range(LAYERS)], ids), nouns)
    (slope,) = mg.gradients(total, [gate])
    step, (i, j) = 0.05, np.unravel_index(abs(slope.data).argmax(), slope.shape)
    near = []
    for sign in (1, -1):
        gates = np.ones((LAYERS, HEADS))
        gates[i, j] += sign * step
        near.append(loss_and_accuracy(model, gates, ids, nouns)[0])
    difference = (near[0] - near[1]) / (2 * step)
    lesson.fact(
        "the gradient at a gate is the change of the loss with it",
        np.isclose(difference, slope.data[i, j], rtol=0.1),
        f"layer {i + 1}, head {j + 1}: {slope.data[i, j]:+.5f}, by differences {difference:+.5f}",
    )


def how_many_can_go(
    lesson: Lesson, model: Any, found: dict[str, np.ndarray], ids: np.ndarray, nouns: np.ndarray
) -> tuple[dict[str, list[float]], int]:
    """Accuracy by the number of silent heads, for several orders; how many can go at no more than 1 %."""
    lesson.section("How many can be silent?")
    rng = np.random.default_rng(0)
    orders = {
        "least by gradient first": removal_order(found["gradient"]),
        "least by ablation first": removal_order(found["ablation"]),
        "most by gradient first": removal_order(-found["gradient"]),
    }
    curves = {
        name: [
            loss_and_accuracy(model, without(order[:n]), ids, nouns)[1]
            for n in range(len(order) + 1)
        ]
        for name, order in orders.items()
    }
    drawn = [removal_order(rng.random((LAYERS, HEADS))) for _ in range(5)]
    curves["at random (mean of 5)"] = [
        float(
            np.mean(
                [loss_and_accuracy(model, without(order[:n]), ids, nouns)[1] for order in drawn]
            )
        )
        for n in range(len(drawn[0]) + 1)
    ]
    curve = curves["least by gradient first"]
    free = max(n for n in range(len(curve)) if min(curve[: n + 1]) >= curve[0] - 0.01)
    lesson.predict(
        "Sixteen heads, and the importances above. How many can be silenced, the least important first, before one more sentence in a hundred goes wrong?",
        f"{free}: those that remain are the few whose importance stands out.",
    )
    lesson.say(
        """We silence one head after the other, in four orders, and count right answers. One head of each layer is
        always left."""
    )
    rows = [
        [name, *(f"{accuracy:.0%}" for accuracy in curve[::2])] for name, curve in curves.items()
    ]
    lesson.table(
        ["heads silenced", *range(0, 15, 2)], rows, f"Accuracy on {len(ids)} held-out sentences"
    )
    area = {name: float(np.mean(curve)) for name, curve in curves.items()}
    least, most, random = (
        area[name]
        for name in ("least by gradient first", "most by gradient first", "at random (mean of 5)")
    )
    lesson.fact(
        "the gradient tells which heads can go",
        least > most + 0.1 and least > random - 0.02,
        f"mean accuracy along the way: {least:.0%} in its order, {random:.0%} at random, {most:.0%} in reverse",
    )
    lesson.fact(
        "many heads are not needed",
        free >= 3,
        f"{free} of 16 can be silent at a cost of at most 1 % of accuracy",
    )
    return curves, free


def remove(
    lesson: Lesson, model: Any, order: list[tuple[int, int]], free: int, ids: np.ndarray
) -> None:
    lesson.section("Really removed")
    heads = {name: [h for i, h in order[:free] if i == layer] for layer, name in enumerate(NAMES)}
    lesson.say(
        f"A gate of 0 costs as much as one of 1. `prune_heads` takes the rows of these heads out of $W_q$, $W_k$ and $W_v$, and their columns out of $W_o$: `{heads}`."
    )
    pruned = copied(model)
    pruned.prune_heads(heads)
    with mg.no_grad():
        silent, removed = gated(model, without(order[:free]), ids).data, pruned(ids).data
    lesson.fact(
        "the result is that of silent heads",
        np.allclose(silent, removed, atol=1e-4),
        f"largest gap {abs(silent - removed).max():.0e}",
    )
    size = D_MODEL // HEADS
    gone = free * (
        4 * size * D_MODEL + 3 * size
    )  # rows of three matrices and biases, columns of the fourth
    before, after = (m.num_parameters() for m in (model, pruned))
    lesson.fact(
        "their parameters are gone", before - after == gone, f"{before:,} before, {after:,} after"
    )


def remove_most(
    lesson: Lesson, model: Any, order: list[tuple[int, int]], ids: np.ndarray, nouns: np.ndarray
) -> None:
    lesson.section("Most of them removed, and trained on")
    count = 10
    small = copied(model)
    heads = {name: [h for i, h in order[:count] if i == layer] for layer, name in enumerate(NAMES)}
    small.prune_heads(heads)
    rate = lambda m: float((m.answer(ids) == nouns).mean())
    first = rate(small)
    course.train(small, steps=150, lr=1e-3, seed=1)  # makes a new optimizer, as one must
    last = rate(small)
    lesson.fact(
        f"with {16 - count} of 16 heads left, a little training brings the accuracy back",
        last > 0.97,
        f"{first:.1%} after pruning, {last:.1%} after 150 more steps",
    )
    again = course.Resolver(small.config)  # config.pruned_heads says which heads are gone
    again.load_state_dict(small.state_dict())
    lesson.fact(
        "a pruned model is loaded from its configuration and weights",
        np.array_equal(again.eval().answer(ids), small.answer(ids)),
        f"`config.pruned_heads = {small.config.pruned_heads}`",
    )
    x = np.random.default_rng(0).standard_normal((256, course.LENGTH, D_MODEL)).astype(np.float32)
    layer = NAMES[0]
    large, little = (dict(m.named_modules())[layer] for m in (model, small))
    with mg.no_grad():
        one, other = fastest(lambda: large(x), lambda: little(x))
        whole, part = fastest(lambda: model(ids), lambda: small(ids), rounds=5)
    fraction = little.num_heads / HEADS
    rows = []
    for name, m, attention, everything, accuracy in (
        ("as trained", model, one, whole, rate(model)), ("pruned", small, other, part, last),
    ):  # fmt: skip
        left = sum(dict(m.named_modules())[name].num_heads for name in NAMES)
        times = f"{1e3 * attention:.2f} ms", f"{1e3 * everything:.1f} ms"
        rows.append([name, f"{m.num_parameters():,}", left, *times, f"{accuracy:.1%}"])
    lesson.table(["", "parameters", "heads", "one attention", "whole model", "accuracy"], rows)
    lesson.measured(
        f"""It is faster too: attention with {fraction:.0%} of its heads took {other / one:.0%} of the time; the whole model,
        whose feed-forward nets are as they were, {part / whole:.0%}."""
    )


def copied(model: Any) -> Any:
    """A model of its own with the same weights."""
    other = course.Resolver(model.config)
    other.load_state_dict(model.state_dict())
    return other.eval()


def draw(path: Path, found: dict[str, np.ndarray], curves: dict[str, list[float]]) -> None:
    """The importance of each head, and accuracy by how many are silent."""
    figure = require("matplotlib.figure", "plotting").Figure(figsize=(11, 4), layout="constrained")
    maps = figure.subfigures(1, 2, width_ratios=[1, 1.25])
    cells = maps[0].subplots(2, 1)
    for axes, (name, values) in zip(cells, found.items()):
        image = axes.imshow(values, cmap=SHADES, vmin=0, aspect="auto")
        axes.set_xticks(range(HEADS), range(1, HEADS + 1))
        axes.set_yticks(range(LAYERS), [f"layer {i + 1}" for i in range(LAYERS)])
        axes.set_title(f"importance by {name}", fontsize=10)
        maps[0].colorbar(image, ax=axes)
    cells[-1].set_xlabel("head")
    axes = maps[1].subplots()
    for (name, curve), style in zip(curves.items(), ("-o", "--s", "-v", ":")):
        axes.plot(range(len(curve)), curve, style, label=name, ms=4, lw=1.4)
    axes.set_xlabel("heads silenced, of 16")
    axes.set_ylabel("accuracy on held-out sentences")
    axes.grid(alpha=0.25)
    axes.legend(frameon=False, fontsize=9)
    figure.savefig(path, dpi=150)


def main(argv: Sequence[str] | None = None) -> int:
    lesson = Lesson("08_pruning_heads", __doc__ or "", argv)
    lesson.source(
        "Multi-head attention (多头注意力)",
        "a discussion among readers of a course",
        "004_36d00249ebd8060a.txt",
        note="It discusses the chapter [Multi-head attention](https://zh.d2l.ai/chapter_attention-mechanisms/multihead-attention.html) of Dive into Deep Learning.",
    )
    lesson.quote(
        "初始时是一样的，学习之后不一样，每个参数学到的东西不同，就不一样了。",
        "At first they are alike; after learning they are not: what each parameter learns is different.",
    )
    model, ids, nouns = the_model(lesson)
    found = importance(lesson, model, ids, nouns)
    curves, free = how_many_can_go(
        lesson, model, found, ids[::3], nouns[::3]
    )  # 120 passes over the data
    lesson.picture(
        "heads.png",
        lambda path: draw(path, found, curves),
        caption="How important each head is, by two measures, and what silencing them costs in different orders.",
        alt="Two heat maps of two layers by eight heads, and curves of accuracy against the number of silenced heads.",
    )
    order = removal_order(found["gradient"])
    remove(lesson, model, order, free, ids)
    remove_most(lesson, model, order, ids, nouns)
    lesson.exercise(
        "A head's gate has the gradient 0 for every sentence. May the head be removed?",
        "Not for that alone: a gradient of 0 says that small changes do nothing. A head whose loss has its minimum just at the gate 1 has it too. Ablation tells.",
    )
    lesson.exercise(
        "Why does each layer keep at least one head here?",
        "A layer without heads would pass on only its residual connection and a bias; one can try it, but then the layer is not pruned, it is gone.",
    )
    return lesson.end()


if __name__ == "__main__":
    raise SystemExit(main())
