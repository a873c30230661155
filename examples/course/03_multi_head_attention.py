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
# # 3 · Several heads
#
# In lesson 1 the word *it* needed two things: an adjective, to know which kind of noun is meant, and then the noun. But
# attention gives a word a single mean of all values. **How can a word take different things from different words at
# once, and what does it cost?**
#
# In this lesson you see one head fail, and a plain repair fail in the same way. Then you build multi-head attention, look
# at what each head of a trained layer takes, and remove the heads one by one to test it.

# %% tags=["hide-input"] jupyter={"source_hidden": true}
import numpy as np
from exercises.multi_head_attention import grade, solution
from grading import check
from labels import label
from pictures import COLOUR, figure, growing
from several_heads import Heads, heads_differ, learn, make_alike, shifted
from torch_gaps import compare_with_torch

import minigrad as mg
import nn

# %%
inputs, targets = shifted(500, np.random.default_rng(5))
print("inputs:", inputs.shape, "targets:", targets.shape)

# %% [markdown]
# A task that needs four things at once: eight words with sixteen random features, in four **quarters** of four. A word
# should take the first quarter from the word before it, the second quarter from the word two before, and the others from
# three and four before. (Before the first word comes the last.) So that a word can find the others, its input also holds
# its position.
#
# ## A first attempt: one head
#
# **Before you go on:** guess how much of the targets one head can explain.
#
# A layer with one head learns the task, with three seeds. We measure the share of the targets' variance that is not
# explained, on new data: 0 % is perfect, and 100 % is as good as nothing.

# %%
SEEDS = range(3)
one = [Heads("split", np.random.default_rng(seed), heads=1, size=32) for seed in SEEDS]
unexplained = [learn(model, 300, seed) for seed, model in enumerate(one)]

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(
    min(unexplained) > 0.7,
    "one head, not explained: {}",
    ", ".join(f"{share:.1%}" for share in unexplained),
)

# %%
x, wanted, made = inputs[0, :, :16], targets[0], one[0](inputs[:1]).data[0]

# %% tags=["hide-input"] jupyter={"source_hidden": true}
positions = [str(i) for i in range(1, 9)]
weights = one[0].weights(inputs[:1]).data[0, 0]
steps = [("x", x, "words x"), ("output", wanted, "targets")]
first = [*steps, ("weight", weights, "weights of one head"), ("output", made, "its outputs")]
with figure(10, 2.8, "Words, targets, the weights of one head, and its outputs.") as drawn:
    growing(drawn, positions, first)

# %% [markdown]
# Three quarters are missing, with each seed. Is this bad training? A head has one row of weights $w$ for a word, and uses
# it for all features. How much of a value at distance $i$ can one predict from the weighted sum over four distances?
# Try three rows of weights.

# %%
rng = np.random.default_rng(0)
values = rng.standard_normal((100_000, 4))  # at distances 1, 2, 3 and 4
for w in ([1, 0, 0, 0], [0.5, 0.5, 0, 0], [0.25, 0.25, 0.25, 0.25]):
    explained = [np.corrcoef(values @ w, values[:, i])[0, 1] ** 2 for i in range(4)]
    print(w, "explains", *(f"{part:.2f}" for part in explained), f"mean {np.mean(explained):.2f}")

# %% [markdown]
# One word in full, two by half, or four by a quarter: the parts are $w_i^2 / \sum_j w_j^2$, whose sum is 1, and the mean
# stays at a quarter. It is not the training: one row of weights cannot do more.
#
# ## A second attempt: four heads, added up
#
# Four heads have four rows of weights $S_h$ for each word. The plainest way to use them is to let each head add up the
# same values $V$, and then to add up the four results.

# %%
summed = Heads("summed", np.random.default_rng(1))
share = learn(summed, 300)
S, V = (
    summed.weights(inputs).data,
    summed.v_proj(inputs).data[:, None],
)  # (N, 4, 8, 8), (N, 1, 8, 16)
same = np.allclose((S @ V).sum(1), S.sum(1) @ V[:, 0], atol=1e-4)

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(same and share > 0.7, "four heads added up, not explained: {:.1%}", share)

# %% [markdown]
# Nothing is gained. The cell also computed why: $\sum_h S_h V = (\sum_h S_h) V$. Four heads that share their values
# are one head, whose weights are the sum.
#
# ## The repair: values of their own
#
# Each head must have a part of the values for itself. Multi-head attention divides the *projections*, the products of
# the words with the three matrices: with $h$ heads and $p = d / h$, columns 1 to $p$ of $Q$, $K$ and $V$ belong to
# head 1, the next $p$ columns to head 2, and so on. A head still sees the whole word, since each column of $W^Q$
# reads all features.
#
# ### Exercise: split into heads
#
# Turn rows $(L, h \cdot p)$ into one matrix for each head, $(h, L, p)$. Index 0 is head 1.


# %%
def split_into_heads(x, heads):
    """Return the parts (heads, L, p) of rows (L, heads * p)."""
    ...


split_into_heads = grade(split_into_heads, "split_into_heads")

# %% tags=["hide-output"] jupyter={"outputs_hidden": true}
# Run this cell to see a solution. A script prints it if it runs with --solutions.
solution("split_into_heads")

# %% [markdown]
# ### Exercise: multi-head attention
#
# Now the whole layer. Project the words to $Q$, $K$ and $V$, split them, attend in each head as in
# lesson 1 (divide by $\sqrt{p}$, and use `mg.softmax`), put the results side by side again in the
# order of the heads, and multiply by a fourth matrix, $W^O$, which mixes what the heads found. All
# four matrices are $(d, d)$. `@` and `swapaxes` work for all heads at once: no loop is needed. The
# grader also checks your gradient.


# %%
def multi_head(x, W_Q, W_K, W_V, W_O, heads):
    """Return self-attention (L, d) of words x (L, d) with several heads."""
    ...


multi_head = grade(multi_head, "multi_head")

# %% tags=["hide-output"] jupyter={"outputs_hidden": true}
# Run this cell to see a solution. A script prints it if it runs with --solutions.
solution("multi_head")

# %% [markdown]
# This is the layer of libraries. Give the same matrices to ours and to PyTorch's (both keep matrices transposed, and
# PyTorch keeps $W^Q$, $W^K$ and $W^V$ below each other in one).
#
# Ours is `MultiHeadAttention.forward` in `nn/attention.py`, in the same order as yours: project, split, attend, merge,
# project. [Read the code in an evening](../reading.md#a-batch-becomes-a-loss) shows what comes before and after it.

# %%
words = rng.standard_normal((8, 24))
matrices = rng.standard_normal((4, 24, 24)) / 5
result = np.asarray(multi_head(words, *matrices, 4).data)
ours = nn.ExtendedAttention(24, 4, bias=False, dtype=float)
for layer, matrix in zip((ours.q_proj, ours.k_proj, ours.v_proj, ours.out_proj), matrices):
    layer.weight.data[...] = matrix.T
gap = abs(ours(words[None]).data[0] - result).max()

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(gap < 1e-12, "largest difference to minigrad: {:.0e}", gap)


# %%
def of_torch(torch):
    """Return what PyTorch's layer gives with the same matrices."""
    theirs = torch.nn.MultiheadAttention(24, 4, bias=False, batch_first=True, dtype=torch.float64)
    theirs.in_proj_weight[:] = torch.tensor(np.concatenate([m.T for m in matrices[:3]]))
    theirs.out_proj.weight[:] = torch.tensor(matrices[3].T)
    x = torch.tensor(words[None])
    return theirs(x, x, x)[0][0]


compare_with_torch(3, result, of_torch)

# %% [markdown]
# ## What each head takes
#
# The same task, with four heads that have values of their own. It has as many parameters as the layer with one head.

# %%
models = [Heads("split", np.random.default_rng(seed)) for seed in SEEDS]
unexplained = [learn(model, 300, seed) for seed, model in enumerate(models)]

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(
    max(unexplained) < 0.05 and models[0].num_parameters() == one[0].num_parameters(),
    "four heads, not explained: {}",
    ", ".join(f"{share:.1%}" for share in unexplained),
)

# %%
model = models[0]
A = model.weights(inputs).data  # (500, 4, 8, 8)

# %% tags=["hide-input"] jupyter={"source_hidden": true}
steps += [("weight", A[0, 0], "head 1"), ("weight", A[0, 1], "head 2")]
steps += [("weight", A[0, 2], "head 3"), ("weight", A[0, 3], "head 4")]
second = [*steps, ("output", model(inputs[:1]).data[0], "outputs")]
with figure(12, 2.4, "Words, targets, the weights of four heads, and the outputs.") as drawn:
    growing(drawn, positions, second)

# %% [markdown]
# A column is a word that is attended to. Each head has a diagonal: it attends to the word at one distance, and each of the
# four to another. Read it off for all three layers.

# %%
found = []
for trained in models:
    nearest = trained.weights(inputs).data.mean(0).argmax(-1)  # (4, 8)
    found.append([sorted(set((np.arange(8) - row) % 8)) for row in nearest])
    print("distances of heads 1 to 4:", *(int(d) for head in found[-1] for d in head))

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(
    all(sorted(layer) == [[1], [2], [3], [4]] for layer in found),
    "heads with one distance, the same for all words: 4 of 4 in each layer",
)

# %% [markdown]
# Nobody assigned the distances: which head takes which one differs from seed to seed.
#
# ### Exercise: the contribution of a head
#
# To put the heads side by side and to multiply by $W^O$ is a sum over heads: head $h$ meets only its own $p$ rows of $W^O$.
# Compute the terms of this sum, without adding them up.


# %%
def contributions(z, W_O):
    """Return what each head adds to the output (heads, L, d), from z (heads, L, p) and W_O (heads * p, d)."""
    ...


contributions = grade(contributions, "contributions")

# %% tags=["hide-output"] jupyter={"outputs_hidden": true}
# Run this cell to see a solution. A script prints it if it runs with --solutions.
solution("contributions")

# %% [markdown]
# Now the intervention. Subtract the contribution of one head from the outputs, and measure which quarter is lost.

# %%
V = [split_into_heads(sentence, 4) for sentence in model.v_proj(inputs).data]  # (4, 8, 4) each
W_O = model.out_proj.weight.data.T
added = np.stack([contributions(S @ v, W_O) for S, v in zip(A, V)])  # (500, 4, 8, 16)
outputs = model(inputs).data
errors = ((outputs[:, None] - added - targets[:, None]) ** 2).mean((0, 2))  # (4, 16)
lost = errors.reshape(4, 4, 4).mean(-1)  # without head i, of quarter j
print("not explained    quarter 1  2     3     4")
for h in range(4):
    print(f"without head {h + 1}: ", *(f"{share:5.0%}" for share in lost[h]))
taken = [distances[0] - 1 for distances in found[0]]
others = [lost[h, j] for h in range(4) for j in range(4) if j != taken[h]]

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(
    min(lost[range(4), taken]) > 0.9 and max(others) < 0.05,
    "lost of its own quarter at least {:.0%}, of the others at most {:.0%}",
    min(lost[range(4), taken]),
    max(others),
)

# %% [markdown]
# Without a head, its quarter is gone and no other suffers. So a head is two things: *where* it looks (its weights) and
# *what* it takes from there. The second is a **subspace**: the features that go through $W^V$ and $W^O$ of this head. Draw
# the product of the two, for each head a matrix from sixteen features to sixteen features.

# %%
blocks = np.split(model.v_proj.weight.data[:, :16], 4), np.split(W_O, 4)  # (4, 16) each
through = [W_V.T @ W for W_V, W in zip(*blocks)]  # from features to outputs, (16, 16)

# %% tags=["hide-input"] jupyter={"source_hidden": true}
features = [str(i) for i in range(1, 17)]
third = [("value", through[0], "head 1"), ("value", through[1], "head 2")]
third += [("value", through[2], "head 3"), ("value", through[3], "head 4")]
with figure(10, 3, "For each head a matrix of features by outputs: one block each.") as drawn:
    growing(drawn, features, third)

# %% [markdown]
# Each head has its block: it copies one quarter, and leaves the others alone. (The blocks are
# neighbouring features because we made the quarters so. Which of them a head uses is learned.)
#
# ## Why heads become different
#
# **Before you go on:** if all four heads began with the same weights, would training make them different?

# %%
alike = make_alike(Heads("split", np.random.default_rng(0)))
share = learn(alike, 300)
apart = [heads_differ(layer, inputs) for layer in (model, alike)]

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(
    apart[0] > 0.5 and apart[1] < 1e-3 and share > 0.7,
    "after training, the weights of two heads differ by up to {:.2f}; of heads that began alike, by {:.2f}, and {:.1%} are not explained",
    apart[0],
    apart[1],
    share,
)

# %% [markdown]
# No. Heads that are alike make the same error and get the same gradient, so each step leaves them alike: four heads, as
# poor as one. What makes heads different is their random beginning.
#
# ## Why $h \cdot p$ is the width
#
# Why does a head get $p = d / h$ columns, and not $d$? With $p = d / h$ the four matrices have $4 d^2$ parameters for any
# number of heads; with $p = d$ they would have $h$ times as many.

# %%
count = lambda heads, p: 4 * 24 * heads * p  # without biases
real = [nn.ExtendedAttention(24, heads, bias=False).num_parameters() for heads in (1, 2, 4, 8)]

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(
    real == [count(heads, 24 // heads) for heads in (1, 2, 4, 8)] == [4 * 24**2] * 4,
    "parameters with 1, 2, 4 or 8 heads: {:,}; with 8 heads of size 24: {:,}",
    real[0],
    count(8, 24),
)

# %% [markdown]
# Nothing forces this: $W^O$ brings any number of columns back to the width $d$, which the output needs since it is added to
# the word. It only makes the number of heads free of charge. Keys wider than $d$ would be a waste, though. The score $q
# \cdot k = x W^Q (W^K)^\top y^\top$ depends only on the product $W^Q (W^K)^\top$, a matrix of $d$ by $d$. So $d$ columns
# are enough for any scores: take $W^Q (W^K)^\top$ itself for the queries and the words themselves as keys.

# %%
W_Q, W_K = rng.standard_normal((2, 24, 100)) / 10
gap = abs((words @ W_Q) @ (words @ W_K).T - (words @ (W_Q @ W_K.T)) @ words.T).max()

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(
    gap < 1e-10,
    "keys of size 100 and of size 24 give the same scores: largest difference {:.0e}",
    gap,
)

# %% [markdown]
# If heads are free, why not take sixteen? They are narrower. Train with 1 to 16 heads of the same total width, and at last
# with sixteen heads whose keys have size 8 again.

# %%
numbers = [1, 2, 4, 8, 16]
shares = [learn(Heads("split", np.random.default_rng(0), h, 32 // h), 300) for h in numbers]
for h, share in zip(numbers, shares):
    print(f"heads {h:2}, key size {32 // h:2}: {share:6.1%} not explained")
wide = learn(Heads("split", np.random.default_rng(0), 16, 8), 300)
print(f"heads 16, key size  8: {wide:6.1%} not explained")

# %% tags=["hide-input"] jupyter={"source_hidden": true}
with figure(5, 2.6, "Not explained by the number of heads: least with four.") as drawn:
    axes = drawn.add_subplot()
    axes.plot(numbers, shares, "-o", color=COLOUR["output"])
    axes.set_xscale("log", base=2)
    axes.set_xticks(numbers, [str(h) for h in numbers])
    axes.set_xlabel(label("heads"))
    axes.set_ylabel(label("not explained"))

# %% [markdown]
# Two heads explain two quarters. Four explain nearly all. With more heads it gets worse again, and the last line shows
# one reason: with wider keys sixteen heads explain most of it again, at the price of more parameters. Keys of two values
# are too small here. That four is best belongs to this task, which we made of four parts.
#
# ## What you have now
#
# One head gives a word one mean. Several heads, each with values of its own, give it several at the same cost, and $W^O$ adds
# them up. In this task each head took one part from one distance, and an intervention confirmed it. A layer for language
# need not be as tidy. What its heads are worth, and how many can go, is lesson 11.
#
# The lesson follows a discussion in Chinese among readers of *Dive into Deep Learning*, about its chapter
# [*多头注意力*](https://zh.d2l.ai/chapter_attention-mechanisms/multihead-attention.html) (Multi-head attention). The
# [appendix](statements_multi_head_attention.md) computes each of their statements, for example
# [*What if the values are not split?*](statements_multi_head_attention.md#what-if-the-values-are-not-split)
