# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 11 · Which heads matter?
#
# A layer of the paper's Transformer has eight heads. They are built alike, begin with different
# random weights, and do different things after training (lesson 3). **Does the network need all of
# them, and how would you find out?**
#
# In this lesson you measure what each head is worth, in three ways of which one fails. Then you remove the heads that are
# worth least, until the network is smaller and still right. The idea is from [Michel, Levy and Neubig
# (2019)](https://arxiv.org/abs/1905.10650), *Are sixteen heads really better than one?*

# %% tags=["hide-input"] jupyter={"source_hidden": true}
import numpy as np
from exercises.pruning_heads import grade, solution
from grading import check
from labels import label
from pictures import COLOUR, figure, growing
from pronouns import Resolver, corpus, encode, settings, train

import minigrad as mg
import nn

# %%
LAYERS, HEADS, D_MODEL = 2, 8, 64
sentences, nouns, held_out = corpus()
ids, nouns = encode(sentences)[held_out][::3], nouns[held_out][::3]
models = [
    train(Resolver(settings(D_MODEL, HEADS, LAYERS), seed), 400, seed=seed) for seed in range(3, 6)
]
right = [float((model.answer(ids) == nouns).mean()) for model in models]

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(min(right) > 0.97, "right on held-out sentences: {}", ", ".join(f"{r:.1%}" for r in right))

# %% [markdown]
# These are the sentences of lesson 1: the network names the noun that *it* stands for. Here it has two layers of eight
# heads, and we train it three times. What holds for one network only may be chance.
#
# ## Silence a head
#
# Multiply the output of each head by a number, its **gate**. At 1 the head is as it was; at 0 it is silent. So the
# simplest measurement is an *ablation*: silence one head, and look how much the loss grows, the mean of $-\log p$ of
# the right answers. For all heads this needs one pass over the sentences each.
#
# ### Exercise: one silent head at a time
#
# Make the gates of these passes: an array (layers · heads, layers, heads) of ones, with one 0 in each matrix, in the order
# of the heads.


# %%
def one_silent(layers, heads):
    """Return gates (layers * heads, layers, heads); matrix i has a 0 at head i and ones elsewhere."""
    ...


one_silent = grade(one_silent, "one_silent")

# %% tags=["hide-output"] jupyter={"outputs_hidden": true}
# Run this cell to see a solution. A script prints it if it runs with --solutions.
solution("one_silent")

# %%
NAMES = [f"encoder.layers.{i}.self_attention" for i in range(LAYERS)]


def scores(model, gates):
    """Return scores of words (N, words) with the gates (layers, heads) or (layers, N, heads)."""
    with nn.gate_heads(model, dict(zip(NAMES, gates))):
        return model(ids)


def loss(model, gates):
    with mg.no_grad():
        return mg.cross_entropy(scores(model, gates), nouns).item()


all_on = np.ones((LAYERS, HEADS))
growth = [
    np.reshape([loss(model, gates) for gates in one_silent(LAYERS, HEADS)], (LAYERS, HEADS))
    - loss(model, all_on)
    for model in models
]
largest, middle = (np.array([f(g) for g in growth]) for f in (np.max, np.median))

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(
    (largest > 10 * abs(middle)).all(),
    "growth of the loss, largest: {:.3f}, {:.3f}, {:.3f}; median: {:.4f}, {:.4f}, {:.4f}",
    *largest,
    *middle,
)

steps = [("output", growth[0], "growth without the head")]
with figure(4, 1.8, "The growth of the loss without each of two layers of eight heads.") as drawn:
    growing(drawn, ["1", "2"], steps)

# %% [markdown]
# In each of the three networks a few heads carry most, and half of the heads are worth next to nothing.
#
# ## A first attempt to save work: the derivative
#
# An ablation takes one pass for each head: 16 here, 144 in BERT, a published model. The derivative of the loss with
# respect to all gates takes a single backward pass. It says how much the loss changes if a gate moves away from 1 a
# little. Take the size of this derivative as the worth of the head, and compare: do both measurements order the heads
# alike? The *rank correlation* is 1 for the same order and about 0 for orders that have nothing to do with each
# other.


# %%
def derivatives(model):
    """Return the derivative of the loss of each sentence with respect to each gate, (N, layers, heads)."""
    gates = [mg.Tensor(np.ones((len(ids), HEADS), np.float32), requires_grad=True) for _ in NAMES]
    total = mg.cross_entropy(scores(model, gates), nouns, reduction="sum")
    return np.stack([g.data for g in mg.gradients(total, gates)], 1)


def rank_correlation(a, b):
    return np.corrcoef([x.ravel().argsort().argsort() for x in (a, b)])[0, 1]


by_sentence = [derivatives(model) for model in models]
of_mean = [abs(d.mean(0)) for d in by_sentence]  # the derivative of the mean loss
first = [rank_correlation(a, b) for a, b in zip(of_mean, growth)]

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(
    np.mean(first) < 0.6,
    "rank correlation with the ablation: {:.2f}, {:.2f}, {:.2f}",
    *first,
)

steps += [("output", of_mean[0], "derivative of the mean")]
with figure(
    8, 1.8, "Beside it, the derivative of the mean loss with respect to each gate."
) as drawn:
    growing(drawn, ["1", "2"], steps)

# %% [markdown]
# The orders are far from alike. What went wrong? The derivative of the mean is the mean of the derivatives, one for each
# sentence. Some are positive, some negative. Compare the size of their mean with the mean of their sizes.

# %%
cancelled = [1 - (abs(d.mean(0)) / abs(d).mean(0)).mean() for d in by_sentence]

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(min(cancelled) > 0.3, "lost in the mean: {:.0%}, {:.0%}, {:.0%}", *cancelled)

# %% [markdown]
# Much of it cancels: a head that is good for some sentences and bad for others seems to do nothing.
#
# ### Exercise: importance
#
# The repair of Michel, Levy and Neubig is to take sizes first and the mean afterwards: $I_h = \frac{1}{N} \sum_n |\partial
# L_n / \partial g_h|$, where $L_n$ is the loss of sentence $n$ and $g_h$ the gate of head $h$.


# %%
def importance(derivatives):
    """Return the importance of each head (layers, heads) from derivatives (N, layers, heads)."""
    ...


importance = grade(importance, "importance")

# %% tags=["hide-output"] jupyter={"outputs_hidden": true}
# Run this cell to see a solution. A script prints it if it runs with --solutions.
solution("importance")

# %%
of_sizes = [importance(d) for d in by_sentence]
second = [rank_correlation(a, b) for a, b in zip(of_sizes, growth)]

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(
    np.mean(second) > np.mean(first) + 0.1,
    "rank correlation with the ablation: {:.2f}, {:.2f}, {:.2f}",
    *second,
)

steps += [("output", of_sizes[0], "mean size of derivatives")]
with figure(11, 1.8, "The growth, the derivative of the mean, and the mean size.") as drawn:
    growing(drawn, ["1", "2"], steps)

# %% [markdown]
# Now one backward pass orders the heads nearly as sixteen ablations do. It is not the same question, though: a derivative
# knows small changes only, and silence is a large one.
#
# ## How many can be silent?
#
# Silence one head after the other, least important first, but leave one head in each layer.
#
# ### Exercise: the order of removal
#
# From the importance (layers, heads), make a list of pairs (layer, head), the least important first. The most important
# head of each layer is not in the list.


# %%
def removal_order(importance):
    """Return pairs (layer, head) from least to most important, without the best of each layer."""
    ...


removal_order = grade(removal_order, "removal_order")

# %% tags=["hide-output"] jupyter={"outputs_hidden": true}
# Run this cell to see a solution. A script prints it if it runs with --solutions.
solution("removal_order")


# %%
def without(heads):
    gates = np.ones((LAYERS, HEADS))
    for head in heads:
        gates[head] = 0
    return gates


def curve(model, order):
    """Return the rate of right answers with 0, 1, 2, ... heads of the order silent."""
    with mg.no_grad():
        answers = [scores(model, without(order[:n])).data.argmax(-1) for n in range(len(order) + 1)]
    return np.array([(answer == nouns).mean() for answer in answers])


rng = np.random.default_rng(0)
curves = {
    "by ablation": [curve(m, removal_order(g)) for m, g in zip(models, growth)],
    "by size of derivatives": [curve(m, removal_order(i)) for m, i in zip(models, of_sizes)],
    "at random": [curve(m, removal_order(rng.random((LAYERS, HEADS)))) for m in models],
    "most important first": [curve(m, removal_order(-i)) for m, i in zip(models, of_sizes)],
}
silent = {
    name: [int(np.argmax([*(c < c[0] - 0.01), True])) - 1 for c in runs]
    for name, runs in curves.items()
}
for name, numbers in silent.items():
    print(f"{name:22}", *numbers)

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(
    min(silent["by ablation"]) >= 5 and min(silent["by size of derivatives"]) >= 4,
    "heads of 16 that can be silent for at most 1 % of the answers: {}, {}, {}",
    *silent["by ablation"],
)

with figure(7, 3.4, "Right answers by the number of silent heads, in four orders.") as drawn:
    axes = drawn.add_subplot()
    for (name, runs), kind in zip(curves.items(), ("output", "query", "key", "value")):
        axes.plot(np.mean(runs, 0), "-o", color=COLOUR[kind], label=label(name), ms=3)
    axes.set_xlabel(label("silent heads, of 16"))
    axes.set_ylabel(label("right answers, mean of three networks"))
    axes.legend(frameon=False)

# %% [markdown]
# About half of the heads can be silent. In the reverse order the networks fail soon: which heads are silent matters more
# than how many.
#
# **Before you go on:** you know by how much the loss grows without each head alone. Take the ten heads that are worth
# least. Does the loss grow by the sum, if all ten are silent?

# %%
together, separately = [], []
for model, g in zip(models, growth):
    ten = removal_order(g)[:10]
    together.append(loss(model, without(ten)) - loss(model, all_on))
    separately.append(sum(g[head] for head in ten))

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(
    all(t > 5 * s for t, s in zip(together, separately)),
    "growth of the loss together: {:.3f}, {:.3f}, {:.3f}; sum of each alone: {:.3f}, {:.3f}, {:.3f}",
    *together,
    *separately,
)

# %% [markdown]
# No: it grows many times as much. A head that is worth nothing alone may be worth much once others are silent, as two
# people who can both drive. So "worth nothing" only means: *nothing beside all the others*. An importance measured one head
# at a time is a good order for the first removals, and no more.
#
# ## Really removed
#
# A gate of 0 costs as much as a gate of 1. To save memory and time, the parameters must go: the rows of $W^Q$, $W^K$, $W^V$
# that make the head, and the columns of $W^O$ that read it.
#
# ### Exercise: parameters of a head
#
# How many parameters do `count` heads have? Each has `size` rows of length `d_model` and `size` biases in each of three
# matrices, and `size` columns of length `d_model` in the fourth. The bias of the fourth belongs to no head.


# %%
def parameters_of(count, d_model, size):
    """Return the number of parameters of `count` heads of this size."""
    ...


parameters_of = grade(parameters_of, "parameters_of")

# %% tags=["hide-output"] jupyter={"outputs_hidden": true}
# Run this cell to see a solution. A script prints it if it runs with --solutions.
solution("parameters_of")

# %%
model, order = models[0], removal_order(growth[0])
small = Resolver(model.config)
small.load_state_dict(model.state_dict())
small.eval()
small.prune_heads(
    {name: [h for i, h in order[:10] if i == layer] for layer, name in enumerate(NAMES)}
)

with mg.no_grad():
    gap = abs(small(ids).data - scores(model, without(order[:10])).data).max()
gone = model.num_parameters() - small.num_parameters()

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(
    gap < 1e-4 and gone == parameters_of(10, D_MODEL, D_MODEL // HEADS),
    "{:,} of {:,} parameters are gone; outputs differ from silent heads by {:.0e}",
    gone,
    model.num_parameters(),
    gap,
)

# %% [markdown]
# With ten of sixteen heads gone the network makes mistakes. Train the small one a little.

# %%
before = (small.answer(ids) == nouns).mean()
train(small, steps=150, lr=1e-3, seed=1)
after = (small.answer(ids) == nouns).mean()

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(after > 0.97, "six heads left: {:.1%} right; after 150 more steps: {:.1%}", before, after)

# %% [markdown]
# ## What you have now
#
# A way to ask what a part of a network is worth: put a gate on it and close it. A cheap substitute, the derivative at the
# gate, which works only if sizes are taken before the mean. And a warning: parts stand in for each other, so the worth of
# a part depends on the parts beside it. That six heads are enough here says nothing about a network for translation;
# the measurement would have to be made again.
#
# The question comes from the discussion of lesson 3, in Chinese, among readers of *Dive into Deep Learning*, about its
# chapter [*多头注意力*](https://zh.d2l.ai/chapter_attention-mechanisms/multihead-attention.html) (Multi-head attention). The
# [appendix](statements_pruning_heads.md) has the measurements, for example
# [*How many can be silent?*](statements_pruning_heads.md#how-many-can-be-silent)
