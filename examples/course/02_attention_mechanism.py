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
# # 2 · The attention mechanism
#
# Six things lie on a table. Five are grey and one is red, and your eyes go to the red one before you decide anything: a
# reflex. Now look for the *star*. Your eyes go elsewhere, although nothing on the table has changed. **How can a network
# look where a question points?**
#
# In this lesson you build a mechanism that does, and ask of each part of its formula what happens without it.

# %% tags=["hide-input"] jupyter={"source_hidden": true}
import numpy as np
from exercises.attention_mechanism import grade, solution
from grading import check
from pictures import figure
from things import CIRCLE, STAR, arrows, draw, lay, train
from torch_gaps import compare_with_torch

import minigrad as mg
import nn

# %%
rng = np.random.default_rng(0)
learned, new = lay(1000, rng), lay(500, rng)  # tables to learn from, and new ones
lies_grey = lambda shape: ((new.shapes == shape) & ~new.red).any(1)
at = int(np.argmax(lies_grey(STAR) & lies_grey(CIRCLE)))  # the table of the pictures

# %% tags=["hide-input"] jupyter={"source_hidden": true}
steps = [("x", None, "the table")]
with figure(9, 2.5, "A table with six things of different shapes; one is red.") as drawn:
    draw(drawn, new, at, steps)

# %% [markdown]
# Each thing carries a number. The question names a shape, and the answer is the number on the thing of this shape.
# For a network a thing is a vector of $D$ = 20 values: 8 for the shape, 2 for grey or red, 10 for the number. A table
# is $L$ = 6 such vectors, and a *batch*, several tables that are computed at once, is an array $N \times L \times D$.
# Sentences will have the same form: $L$ words.
#
# ## A first attempt: the reflex
#
# What stands out is what differs from the rest.
#
# ### Exercise: what stands out
#
# Compute for each thing the squared distance of its vector to the mean vector of its table. Replace the dots. The grader
# tries your function on arrays that you do not see.


# %%
def salience(x):
    """Return how far each thing (N, L, D) is from the mean of its table: squared distances (N, L)."""
    ...


salience = grade(salience, "salience")

# %% tags=["hide-output"] jupyter={"outputs_hidden": true}
# Run this cell to see a solution. A script prints it if it runs with --solutions.
solution("salience")

# %%
stands_out = salience(new.x[:, :, :10])  # of shape and colour
rows = np.arange(len(new.x))
found = stands_out.argmax(1)
to_red = float(new.red[rows, found].mean())
right = float((new.numbers[rows, found] == new.answer).mean())

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(
    to_red == 1 and right < 0.35,
    "looks at the red thing: {:.0%}; right answers: {:.0%}",
    to_red,
    right,
)

# %%
reflex = mg.softmax(3 * stands_out).data

# %% tags=["hide-input"] jupyter={"source_hidden": true}
steps += [("weight", reflex[at], "without a question")]
with figure(9, 2.5, "The table, and beside it a large disc behind the red thing.") as drawn:
    draw(drawn, new, at, steps)

# %% [markdown]
# The reflex works, and is of no use here. It is computed from the table alone, so it looks at the same thing for every
# question.
#
# ## A second attempt: look it up
#
# So the question must take part. In lesson 1 each word had a query, a key and a value. Here the question is the
# **query** $q$, and each thing has a **key** $k_j$ and a **value** $v_j$. Choose the thing with the largest product
# $q \cdot k_j$, and read its value. If we take the shape as key and the number as value, this is a dictionary, and
# always right. But we had to say which of the 20 values are the shape. A network should find the matrices of $q = x
# W^Q$ and $k = x W^K$ itself. Start with random ones, change them a little, and look which answers change.


# %%
def look_up(question, keys, numbers):
    return numbers[rows, np.einsum("nd,njd->nj", question, keys).argmax(1)]


by_shape = look_up(new.question, new.x[:, :, :8], new.numbers)
W_Q, W_K = rng.standard_normal((8, 16)), rng.standard_normal((20, 16))
moved = W_Q + 1e-6 * rng.standard_normal(W_Q.shape)
before, after = (look_up(new.question @ W, new.x @ W_K, new.numbers) for W in (W_Q, moved))

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(
    (by_shape == new.answer).all() and (before == after).all(),
    "right with the shape as key: {:.0%}, with random matrices: {:.0%}; answers that a small change changes: {}",
    (by_shape == new.answer).mean(),
    (before == new.answer).mean(),
    (before != after).sum(),
)

# %% [markdown]
# Nothing changes: the derivative of a choice is 0, and training has no direction to go.
#
# ## Choose a little of everything
#
# The repair is to choose softly, with the softmax of lesson 1: the output is the mean of all values, with positive
# weights whose sum is 1. So lesson 1's formula is the answer to this question, too:
#
# $$
# \operatorname{Attention}(Q, K, V) = \operatorname{softmax}\left(\frac{Q K^\top}{\sqrt{d_k}}\right) V
# $$
#
# ### Exercise: attention for a batch
#
# Write the formula for $N$ tables at once. An einsum names the axes by letters: `mg.einsum("nid,njd->nij", q, k)` multiplies
# query $i$ and key $j$ of the same table $n$, and adds up over $d$, which the result does not have. `mg.softmax` works on
# the last axis. The grader also checks your gradient.


# %%
def attention(q, k, v):
    """Return outputs (N, L_q, d_v) of queries (N, L_q, d_k), keys (N, L_k, d_k), values (N, L_k, d_v)."""
    ...


attention = grade(attention, "attention")

# %% tags=["hide-output"] jupyter={"outputs_hidden": true}
# Run this cell to see a solution. A script prints it if it runs with --solutions.
solution("attention")

# %% [markdown]
# Now the three matrices are trained on 1,000 tables and tried on 500 new ones.

# %%
W_Q, W_K, W_V = (
    mg.Tensor(rng.standard_normal(shape) / 4, requires_grad=True)
    for shape in ((8, 16), (20, 16), (20, 10))
)


def answer(tables):
    """Return a score for each number, (N, 10)."""
    return attention(tables.question[:, None] @ W_Q, tables.x @ W_K, tables.x @ W_V)[:, 0]


train([W_Q, W_K, W_V], lambda: answer(learned), learned.answer)
right = float((answer(new).data.argmax(-1) == new.answer).mean())

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(right > 0.99, "right on new tables: {:.1%}", right)

# %%
star, circle = (
    mg.softmax((W_Q.data[shape] @ (new.x[at] @ W_K.data).T) / 4).data for shape in (STAR, CIRCLE)
)

# %% tags=["hide-input"] jupyter={"source_hidden": true}
steps += [
    ("query", star, "asked for the star"),
    ("query", circle, "asked for the circle"),
]
with figure(9, 2.5, "Four times the table; asked for a shape, the disc is behind it.") as drawn:
    draw(drawn, new, at, steps)

# %% [markdown]
# The same table, another question, other weights. Nobody said which values are the shape: training found it. Does the
# answer still depend on the red, or on the order of the things? Paint all grey, and lay them in reverse order.

# %%
grey = new.x[:, ::-1].copy()
grey[:, :, 8:10] = [1, 0]
same = float((answer(new._replace(x=grey)).data.argmax(-1) == new.answer).mean())

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(same > 0.99, "right on grey tables in reverse order: {:.1%}", same)

# %% [markdown]
# It does not: the thing is found wherever it lies, and the reflex is gone.
#
# ## Why two matrices
#
# Here a question asks things; this is **cross-attention**. In **self-attention** the things ask each other, so that queries
# and keys come from the same vectors $X$. Then why not save a matrix, and compare $XW$ with itself? Try it: each thing
# has an arrow to another thing, and the arrows go round in a circle. Each must find the thing that its arrow points to.

# %%
x, target = arrows(1000, rng)
rates = {}
for count in (1, 2):
    W = [mg.Tensor(rng.standard_normal((16, 16)) / 4, requires_grad=True) for _ in range(count)]
    scores = lambda x, W=W: mg.einsum("nid,njd->nij", x @ W[0], x @ W[-1]) / 4
    train(W, lambda: scores(x[:500]).reshape(-1, 6), target[:500].ravel())  # noqa: B023
    rates[count] = float((scores(x[500:]).data.argmax(-1) == target[500:]).all(1).mean())

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(
    rates[1] == 0 and rates[2] > 0.99,
    "circles found with one matrix: {:.0%}, with two: {:.0%}",
    rates[1],
    rates[2],
)

# %% [markdown]
# One matrix fails on every table, and no training can help. Its scores are symmetric, $s_{ij} = s_{ji}$. Follow the
# arrows: thing 2 must prefer thing 3 to thing 1, so $s_{23} > s_{21} = s_{12}$; thing 3 must prefer thing 4, so $s_{34} >
# s_{23}$. Each score must be larger than the one before, all round the circle, and the first larger than the last.
# With two matrices, thing 1 can attend to thing 2 and thing 2 not to thing 1.
#
# ## Why the root
#
# The score is a sum of $d_k$ products. If queries and keys have independent values of variance 1, each product has variance
# 1, and the sum $d_k$. Measure it, and the largest of six weights, before anything is learned.

# %%
print("  d_k  variance  largest weight  with root")
table = {}
for d_k in (4, 64, 1024):
    scores = np.einsum(
        "nd,njd->nj", rng.standard_normal((2000, d_k)), rng.standard_normal((2000, 6, d_k))
    )
    largest = [mg.softmax(s).data.max(1).mean() for s in (scores, scores / np.sqrt(d_k))]
    table[d_k] = scores.var(), *largest
    print(f"{d_k:5} {scores.var():9.1f} {largest[0]:15.2f} {largest[1]:10.2f}")

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(
    all(abs(table[d_k][0] / d_k - 1) < 0.1 for d_k in table)
    and table[1024][1] > 0.95
    and table[1024][2] < 0.5,
    "largest weight at d_k = 1024: {:.2f}, with the root: {:.2f}",
    *table[1024][1:],
)

# %% [markdown]
# Without the root, wide random vectors give one thing nearly all the weight. That is close to the hard choice again,
# whose derivative is 0, as lesson 1 measured. With the root the largest weight is about the same for each width.
#
# ## Why a mask
#
# One table of a batch may have fewer things than another, as one sentence has fewer words. Short ones are filled up, and
# the filling must not be attended to. A **mask** is True where a query may use a key. One case is easily forgotten: a row without any
# True, an empty table.
#
# ![Three masks of five queries and five keys: padding hides the last two keys from all queries, causal hides later keys, and a decoder uses both.](../pictures/masks.svg)
#
# The first mask of the picture hides the filling, here of a sentence of three words. The second hides what comes later:
# lesson 4 needs it to write word by word. A decoder, the part that writes, has both.
#
# ### Exercise: weights with a mask
#
# Return the softmax over the visible keys, and 0 for hidden ones. In a row where all keys are hidden, all weights are 0.
# Use NumPy.


# %%
def masked_weights(scores, mask):
    """Return softmax over the keys where the mask is True; 0 elsewhere, and in rows without a True."""
    ...


masked_weights = grade(masked_weights, "masked_weights")

# %% tags=["hide-output"] jupyter={"outputs_hidden": true}
# Run this cell to see a solution. A script prints it if it runs with --solutions.
solution("masked_weights")

# %%
visible = np.arange(6) < np.array([[6], [4], [0]])  # three tables: 6 things, 4, none
q, k, v = new.question[:3] @ W_Q.data, new.x[:3] @ W_K.data, new.x[:3] @ W_V.data
S = masked_weights(np.einsum("nd,njd->nj", q, k) / 4, visible)
z = np.einsum("nj,njd->nd", S, v)
alone = attention(q[1:2, None], k[1:2, :4], v[1:2, :4]).data[0, 0]
gap = abs(z[1] - alone).max()

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(gap < 1e-12, "filled up or alone, largest difference: {:.0e}", gap)
check((z[2] == 0).all(), "the empty table gives {:.0f}, not NaN", z[2, 0])

# %% [markdown]
# ## The layer in libraries
#
# A library has all of this as one layer, with several heads (lesson 3) and a fourth matrix after them. Put our parameters into
# PyTorch's layer, and both give the same. Only the mask is the other way round: in PyTorch's
# `key_padding_mask`, True *hides*.

# %%
layer = nn.MultiHeadAttention(16, 4, dtype=float, generator=rng)
questions, things = rng.standard_normal((2, 3, 16)), rng.standard_normal((2, 6, 16))
ours = layer(questions, things, visible[:2, None, None]).data
fewer = layer(questions[1:], things[1:, :4]).data
gap = abs(ours[1] - fewer[0]).max()

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(gap < 1e-12, "the layer, filled up or alone: {:.0e}; output {}", gap, ours.shape)


# %%
def of_torch(torch):
    """Return what PyTorch's layer gives with our parameters."""
    theirs = torch.nn.MultiheadAttention(16, 4, batch_first=True, dtype=torch.float64)
    parts = layer.q_proj, layer.k_proj, layer.v_proj
    theirs.in_proj_weight[:] = torch.tensor(np.concatenate([p.weight.data for p in parts]))
    theirs.in_proj_bias[:] = torch.tensor(np.concatenate([p.bias.data for p in parts]))
    theirs.out_proj.weight[:] = torch.tensor(layer.out_proj.weight.data)
    theirs.out_proj.bias[:] = torch.tensor(layer.out_proj.bias.data)
    a, b = torch.tensor(questions), torch.tensor(things)
    return theirs(a, b, b, key_padding_mask=torch.tensor(~visible[:2]))[0]


compare_with_torch(2, ours, of_torch)

# %% [markdown]
# ## What you have now
#
# Each part of the formula has its reason: the query, or every question gets the same answer; the softmax, or nothing
# can be learned; two matrices, or attention goes both ways at once; the root, or the width decides; the mask, or
# filling counts. In lesson 3 one such formula is not enough.
#
# The lesson follows lecture notes in Chinese, *注意力机制* (The attention mechanism). The
# [appendix](statements_attention_mechanism.md) computes each of their statements, for example
# [*Why a linear map?*](statements_attention_mechanism.md#why-a-linear-map)
