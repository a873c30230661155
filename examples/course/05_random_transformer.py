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
# # 5 · A Transformer by hand
#
# *hello world* becomes *hola mundo*. **What happens to two words on their way through a
# Transformer?** The model of this lesson is so small that you can follow every number: each word is
# a vector of 4 values. It is the model of the article
# [*The Random Transformer*](https://osanseviero.github.io/hackerllama/blog/posts/random_transformer/) by Omar Sanseviero.
# Its parameters, the *weights*, are drawn at random, so that its answers mean nothing at first. But they show why it needs
# a part that looks like decoration.

# %% tags=["hide-input"] jupyter={"source_hidden": true}
import numpy as np
import random_transformer as article
from exercises.random_transformer import grade, solution
from grading import check
from labels import label
from pictures import figure, growing

import minigrad as mg
import nn

# %%
words = ["hello", "world"]
E = np.array([[1.0, 2, 3, 4], [2, 3, 4, 5]])  # a row for each word

# %% [markdown]
# ## Where a word stands
#
# Attention, which comes next, does not see the order of words: lesson 6 measures that *hello world*
# and *world hello* are the same to it. So each position gets a vector of its own, which is added to
# the word. For the positions $t = 0, 1, 2, \ldots$, columns $2i$ and $2i + 1$ hold the sine and the
# cosine of $t / 10000^{2i/d}$, where $d$ is the number of columns.
#
# ### Exercise: positions


# %%
def positions(length, d):
    """Return the vectors of the first positions: (length, d)."""
    ...


positions = grade(positions, "positions")

# %% tags=["hide-output"] jupyter={"outputs_hidden": true}
# Run this cell to see a solution. A script prints it if it runs with --solutions.
solution("positions")

# %%
x = E + positions(2, 4)

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(np.allclose(x[0], [1, 3, 3, 5]), "hello with its position: {}", x[0])

sums = [("x", E, "words"), ("weight", positions(2, 4), "+ positions"), ("x", x, "= words x")]
with figure(9, 1.4, "Two words as rows of four numbers, plus their positions.") as drawn:
    growing(drawn, words, sums, numbers=True)

# %% [markdown]
# ## What the words take from each other
#
# A *head* of attention is that of lesson 1: three matrices make queries, keys and values, the products of queries and
# keys are divided by the root of the size of a key, and their softmax weighs the values. There you trained it. Here
# you look at its numbers.
#
# ### Exercise: one head
#
# Compute it for all words at once. Subtract the largest score of each row before $e^s$, as in lesson 1.


# %%
def head(x, WQ, WK, WV):
    """Return (L, d_v) from words x (L, d), with matrices (d, d_k), (d, d_k) and (d, d_v)."""
    ...


head = grade(head, "head")

# %% tags=["hide-output"] jupyter={"outputs_hidden": true}
# Run this cell to see a solution. A script prints it if it runs with --solutions.
solution("head")

# %% [markdown]
# The matrices of the two heads contain only 0 and 1, so that you can compute every number in the picture in your head. The
# 8 of the first query is 3 + 5: the second and the fourth value of *hello*.

# %%
q, k, v = x @ article.WQ1, x @ article.WK1, x @ article.WV1

# %% tags=["hide-input"] jupyter={"source_hidden": true}
steps = [
    ("x", x, "words x"),
    ("query", q, "queries q"),
    ("key", k, "keys k"),
    ("value", v, "values v"),
]
with figure(10, 1.4, "The words, and the queries, keys and values of the first head.") as drawn:
    growing(drawn, words, steps, numbers=True)

# %% [markdown]
# Next, the scores of the first head, its weights, and its outputs.

# %%
scores = q @ k.T
softmax = lambda s: mg.softmax(mg.Tensor(s)).data
weights = softmax(scores / np.sqrt(3))

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(
    weights[:, 1].min() > 0.99,
    "weights of world in the first head: {:.4f} and {:.4f}",
    weights[0, 1],
    weights[1, 1],
)

steps = [
    ("key", scores, "scores q · k"),
    ("key", scores / np.sqrt(3), "÷ √3"),
    ("weight", weights, "weights"),
    ("output", head(x, article.WQ1, article.WK1, article.WV1), "outputs"),
]
with figure(10, 1.4, "Scores, divided scores, weights and outputs of the first head.") as drawn:
    growing(drawn, words, steps, numbers=True)

# %% [markdown]
# Both words receive the same. The scores are so large that softmax gives nearly all weight to *world*. Keep this in mind:
# large values make attention rigid. For the time being, the article divides the scores by 30 in place of $\sqrt{3}$
# ([*Encoder 4.3.4*](statements_random_transformer.md#encoder-434-the-values-weighted) in the appendix). The results of
# both heads, of size 3, stand side by side, and one more matrix makes vectors of size 4 of them again: $Z$.

# %%
mild = softmax(scores / 30)
second = softmax((x @ article.WQ2) @ (x @ article.WK2).T / 30) @ (x @ article.WV2)
z = np.concatenate([mild @ v, second], axis=1)  # (2, 6)
attended = z @ article.W  # (2, 4)

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(
    weights[0, 0] < 1e-3 < 0.1 < mild[0, 0],
    "weight of hello for itself: {:.0e}, and {:.2f} with 30",
    weights[0, 0],
    mild[0, 0],
)

steps = [
    ("key", scores / 30, "÷ 30"),
    ("weight", mild, "weights"),
    ("output", z, "both heads"),
    ("output", attended, "Z"),
]
with figure(12, 1.4, "The same with scores divided by 30, for both heads, and Z.") as drawn:
    growing(drawn, words, steps, numbers=True)

# %% [markdown]
# The article has other numbers for *world*. It takes the number of the column for $i$ in the formula of positions, so that
# the second value of *world* is 3.99 there and 3.54 here.
#
# ## Six blocks
#
# A block is attention and, after it, a *feed-forward layer*. A linear layer multiplies by a matrix
# and adds a vector, the bias. A feed-forward layer is two of them, with a ReLU between that
# replaces negative values by 0. The model has six blocks, and each takes what the one before gives.
# Draw all weights from a normal distribution and watch the largest value.
#
# ### Exercise: the feed-forward layer


# %%
def feed_forward(x, W1, b1, W2, b2):
    """Return ReLU(x W1 + b1) W2 + b2 for x (L, d), W1 (d, n), b1 (n,), W2 (n, d) and b2 (d,)."""
    ...


feed_forward = grade(feed_forward, "feed_forward")

# %% tags=["hide-output"] jupyter={"outputs_hidden": true}
# Run this cell to see a solution. A script prints it if it runs with --solutions.
solution("feed_forward")


# %%
def block(x, rng, after=lambda new, old: new):
    """Return a block with new random weights; `after` joins the output of a part with its input."""
    draw = lambda *shape: rng.standard_normal(shape)
    heads = [head(x, draw(4, 3), draw(4, 3), draw(4, 3)) for _ in range(2)]
    x = after(np.concatenate(heads, axis=1) @ draw(6, 4), x)
    return after(feed_forward(x, draw(4, 8), draw(8), draw(8, 4), draw(4)), x)


def largest_values(after, seed):
    """Return the largest value after each of six blocks."""
    rng, h, found = np.random.default_rng(seed), x, []
    for _ in range(6):
        h = block(h, rng, after)
        found.append(abs(h).max())
    return found


bare = np.median([largest_values(lambda new, old: new, seed) for seed in range(100)], axis=0)
print("largest values:", *(f"{value:,.0f}" for value in bare))
growth = (bare[-1] / bare[0]) ** (1 / 5)

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(
    growth > 5,
    "median growth of the largest value: {:.0f} times a block, to {:.0e}",
    growth,
    bare[-1],
)

# %% [markdown]
# The values explode. In the article they become NaN, "not a number" ([*Encoder
# 5.2*](statements_random_transformer.md#encoder-52-six-random-blocks-nan) in the appendix), because its softmax
# computes $e^{s}$ of such scores, which overflows. Yours or ours subtracts the largest score first.
#
# ## The repair: add and norm
#
# The Transformer does two things after each part. The output of the part is *added* to its input instead of replacing
# it. And the sum goes through the layer norm of lesson 4: each row gets mean 0 and variance 1. Which of the two keeps
# the values in bounds?
#
# ### Exercise: the norm
#
# Write it for rows alone. Add 1e-6 to the variance before you take the root, so that nothing is divided by 0.


# %%
def layer_norm(x):
    """Return x (L, d) with mean 0 and variance 1 of each row."""
    ...


layer_norm = grade(layer_norm, "layer_norm")

# %% tags=["hide-output"] jupyter={"outputs_hidden": true}
# Run this cell to see a solution. A script prints it if it runs with --solutions.
solution("layer_norm")

# %%
add_and_norm = lambda new, old: layer_norm(old + new)
tame = np.median([largest_values(add_and_norm, seed) for seed in range(100)], axis=0)
only_add = np.median(
    [largest_values(lambda new, old: old + new, seed) for seed in range(100)], axis=0
)

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(
    tame.max() <= np.sqrt(3) and only_add[-1] > 1e4,
    "after six blocks: add and norm {:.2f}, add alone {:.0e}",
    tame[-1],
    only_add[-1],
)

with figure(
    7, 3, "The largest value after each block: it explodes without a norm and stays with it."
) as drawn:
    axes = drawn.add_subplot()
    for values, name in ((bare, "bare"), (only_add, "add"), (tame, "add and norm")):
        axes.semilogy(range(1, 7), values, "o-", label=label(name))
    axes.set_xlabel(label("block"))
    axes.set_ylabel(label("largest value"))
    axes.legend()

# %% [markdown]
# It is the norm that bounds the values: four values with mean 0 and variance 1 are at most
# $\sqrt{3}$. Adding alone does not. What adding is for, lesson 6 measures.
#
# ## From vectors to words
#
# The six blocks that read *hello world* are the *encoder*. A second stack of blocks, the *decoder*, writes the answer
# as in lesson 4, one token after the other. It is built of the same parts. It starts with the token SOS, the start of
# a sentence, attends to its own tokens and to the output of the encoder, and its last layer gives a probability to
# each of ten tokens. The likeliest is appended, until EOS, the end of the sentence. With random weights the result is
# noise.

# %%
stuck = article.random_transformer(3)
print("random weights:", " ".join(word for word, _ in article.generate(stuck, words)))

# %% [markdown]
# Now train it on three pairs of sentences: 200 steps against the gradient of the loss of lesson 4, as lesson 0 takes
# them. Train once from these random weights, and five times from smaller ones. **Before you go on:** does it matter
# where training starts?

# %%
pairs = [(["hello", "world"], ["hola", "mundo"]), (["hello"], ["hola"]), (["world"], ["mundo"])]
rngs = [np.random.default_rng(seed) for seed in range(5)]
models = [article.at_text_size(nn.Transformer(article.CONFIG, rng), rng) for rng in rngs]
end, *ends = (article.train(model, pairs, 200)[-1] for model in (stuck, *models))
small = models[np.argmin(ends)]

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(
    end > 0.5 and np.median(ends) < 0.1,
    "loss after 200 steps: from N(0, 1) {:.2f}, from smaller weights {:.3f} in the median",
    end,
    np.median(ends),
)

# %%
said = [word for word, _ in article.generate(small, words)]

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(
    said == ["hola", "mundo", "EOS"] and article.exact_matches(small, pairs).all(),
    "hello world → {}",
    " ".join(said),
)

# %% [markdown]
# ## What you have now
#
# The whole path: words, positions, heads, a feed-forward layer, six blocks kept in bounds by a norm, and a decoder that
# says one word after the other.
#
# Two things in the article are wrong and easily missed. When it generates, it passes only the last token to the decoder,
# and draws new weights for each token, so that such a model could not learn anything. And it calls BART a model with a
# decoder only, like GPT-2, but BART has an encoder, too. The [appendix](statements_random_transformer.md) compares every
# number of the article with a computation.
