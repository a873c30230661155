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
# # 6 · What is each part for?
#
# The article of lesson 5, [*The Random Transformer*](https://osanseviero.github.io/hackerllama/blog/posts/random_transformer/)
# by Omar Sanseviero, ends with eight questions: what are positions for, what is adding for, what if attention is too small?
# One can look up the answers. **Can you also measure them?** Take a part out, train, and look at what breaks. In this
# lesson you do it with three parts of a Transformer, and with the way it chooses its words.

# %% tags=["hide-input"] jupyter={"source_hidden": true}
import itertools
from dataclasses import replace

import numpy as np
from exercises.random_transformer_exercises import grade, solution
from grading import check
from labels import label
from pictures import COLOUR, figure
from random_transformer import CONFIG, INDEX, exact_matches, train

import minigrad as mg
import nn
from minigrad.optim import Adam

# %% [markdown]
# ## Without positions
#
# The task is small: translate all 27 sentences of three words out of *hello*, *world* and *?*, word
# by word. Two models learn it; they come from `nn`, which has layers and whole models made of
# `minigrad`. They have the same sizes, but one adds no positions to its words.

# %%
spanish = {"hello": "hola", "world": "mundo", "?": "?"}
pairs = [(words, [spanish[w] for w in words]) for words in itertools.product(spanish, repeat=3)]
small = replace(
    CONFIG, d_model=16, num_encoder_layers=1, num_decoder_layers=1, d_ff=32, dtype="float32"
)
with_part, without = [
    nn.Transformer(replace(small, positions=kind), np.random.default_rng(0))
    for kind in ("sinusoidal", "none")
]

there, back = (np.array([[INDEX[w] for w in s.split()]]) for s in ("hello world", "world hello"))
gaps = [
    abs(model.encode(there).data[0] - model.encode(back).data[0, ::-1]).max()
    for model in (with_part, without)
]

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(
    gaps[0] > 0.1 and gaps[1] < 1e-5,
    "vectors of hello world and of world hello differ by {:.2f}; without positions by {:.0e}",
    gaps[0],
    gaps[1],
)

# %% [markdown]
# Without positions, the encoder gives *hello* the same vector in both sentences. The decoder averages these vectors, and an
# average does not depend on their order: it sees a *bag* of words. **Before you go on:** how many of the 27 sentences can
# such a model get right at most?
#
# ### Exercise: the most that a bag allows
#
# Sources with the same words in another order get the same answer. The best answer is their most
# frequent target. A source or a target is a tuple or a list of words.


# %%
def most_right(pairs):
    """Return how many pairs (source, target) a model can get right that does not know the order."""
    ...


most_right = grade(most_right, "most_right")

# %% tags=["hide-output"] jupyter={"outputs_hidden": true}
# Run this cell to see a solution. A script prints it if it runs with --solutions.
solution("most_right")

# %%
for model in (with_part, without):
    train(model, pairs, 200)
right = [int(exact_matches(model, pairs).sum()) for model in (with_part, without)]

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(
    right[0] == 27 and right[1] <= most_right(pairs),
    "right of 27: {}; without positions {}, and at most {}",
    right[0],
    right[1],
    most_right(pairs),
)

# %%
board = {"positions": (right[0] / 27, right[1] / 27)}


# %% tags=["hide-input"] jupyter={"source_hidden": true}
def draw_board(drawn):
    """Draw the rate of right answers with each part and without it."""
    axes = drawn.add_subplot()
    rows = np.arange(len(board))
    for shift, kind, name, rates in zip(
        (-0.2, 0.2), ("output", "x"), ("with it", "without it"), zip(*board.values())
    ):
        bars = axes.barh(rows + shift, rates, 0.38, color=COLOUR[kind], label=label(name))
        axes.bar_label(bars, [f"{rate:.0%}" for rate in rates], padding=3)
    axes.set_yticks(rows, [label(part) for part in board])
    axes.set_xlim(0, 1.15)
    axes.set_xticks([])
    axes.invert_yaxis()
    axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=2)


with figure(7, 1.2, "Right answers with positions and without them.") as drawn:
    draw_board(drawn)

# %% [markdown]
# The first part is on the board.
#
# ## Without adding
#
# In lesson 5, the norm kept values in bounds, and adding the input of a layer to its output did not. Then what is
# adding for? Stack 24 feed-forward layers. Their task is to learn 300 examples by heart: do the first two values of
# $x$ have the same sign? `mg.cross_entropy` is the loss of lesson 4, and `Adam` takes the steps of lesson 0. You
# write both in lesson 7.

# %%
DEPTH, SIZE = 24, 16
rng = np.random.default_rng(100)
examples = rng.standard_normal((300, SIZE)).astype(np.float32)
same_sign = (examples[:, 0] * examples[:, 1] > 0).astype(int)
norm = nn.LayerNorm(SIZE)
JOINS = {
    "bare": lambda h, layer: layer(h),
    "norm": lambda h, layer: norm(layer(h)),
    "add": lambda h, layer: h + layer(h),
}


def stack(join):
    """Return the layers, and a function from x to the values after each layer and the scores."""
    rng = np.random.default_rng(0)
    layers = [nn.FeedForward(SIZE, 32, dtype="float32", generator=rng) for _ in range(DEPTH)]
    output = nn.Linear(SIZE, 2, generator=rng)

    def run(x):
        values = [mg.Tensor(x)]
        for layer in layers:
            values.append(join(values[-1], layer))
        return values, output(values[-1])

    return [*layers, output], run


def fit(modules, loss, steps, lr=1e-3):
    """Minimize the loss with Adam."""
    optimizer = Adam([p for m in modules for p in m.parameters()], lr)
    for _ in range(steps):
        value = loss()
        optimizer.zero_grad()
        value.backward()
        optimizer.step()


def learnt(join):
    modules, run = stack(join)
    fit(modules, lambda: mg.cross_entropy(run(examples)[1], same_sign), 150)
    return float((run(examples)[1].data.argmax(-1) == same_sign).mean())


rates = {name: learnt(join) for name, join in JOINS.items()}

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(rates["bare"] < 0.6, "24 bare layers: {:.0%} of the examples are learnt", rates["bare"])

# %% [markdown]
# That is the rate of guessing. The bare stack does not even learn what it sees. A stack of slopes shows what may happen.
# Let each layer be a function of one value, with slope $f'$.
#
# ### Exercise: slopes in a row
#
# `slopes` is an array with $f'$ of each layer. What is the slope of all layers together: of $h \to
# f(h)$ one after the other, and of $h \to h + f(h)$? Return a number.


# %%
def slope_of_stack(slopes, add):
    """Return the slope of layers in a row; with `add`, each layer adds its input to its output."""
    ...


slope_of_stack = grade(slope_of_stack, "slope_of_stack")

# %% tags=["hide-output"] jupyter={"outputs_hidden": true}
# Run this cell to see a solution. A script prints it if it runs with --solutions.
solution("slope_of_stack")

# %%
slopes = np.random.default_rng(0).uniform(-0.3, 0.3, DEPTH)
ends = [abs(slope_of_stack(slopes, add)) for add in (False, True)]

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(
    ends[0] < 1e-12 and ends[1] > 0.01,
    "24 slopes between -0.3 and 0.3 in a row: {:.0e}; with adding {:.2f}",
    ends[0],
    ends[1],
)

# %% [markdown]
# A slope works in both directions. Forward, it says how much of a difference between two inputs is left. Backward, it says
# how much of the gradient is left. Measure both in the real stacks before training: the spread of the 300 examples
# after each layer, and the gradient at the weights of the first layer.


# %%
def spread_and_gradient(join):
    modules, run = stack(join)
    values, scores = run(examples)
    (gradient,) = mg.gradients(mg.cross_entropy(scores, same_sign), [modules[0].linear1.weight])
    return [v.data.std(0).mean() for v in values], np.linalg.norm(gradient.data)


measured = {name: spread_and_gradient(join) for name, join in JOINS.items()}
for name, (spread, gradient) in measured.items():
    print(f"{name:5} spread {spread[-1]:.0e}   gradient {gradient:.0e}   learnt {rates[name]:.0%}")

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(
    measured["bare"][0][-1] < 1e-5 and measured["bare"][1] < 1e-12,
    "bare: spread {:.0e}, gradient {:.0e}",
    measured["bare"][0][-1],
    measured["bare"][1],
)
check(
    measured["norm"][1] > 1e-4 and rates["norm"] < 0.6 and rates["add"] > 0.95,
    "learnt with adding {:.0%}; with the norm alone {:.0%}",
    rates["add"],
    rates["norm"],
)

with figure(
    7, 3, "The spread of the examples by layer: it falls unless inputs are added."
) as drawn:
    axes = drawn.add_subplot()
    for (name, (spread, _)), kind in zip(measured.items(), ("x", "key", "output")):
        axes.semilogy(spread, "o-", ms=3, color=COLOUR[kind], label=label(name))
    axes.set_xlabel(label("layer"))
    axes.set_ylabel(label("spread of the examples"))
    axes.legend(frameon=False)

# %%
board["adding"] = rates["add"], rates["bare"]

# %% tags=["hide-input"] jupyter={"source_hidden": true}
with figure(7, 1.9, "Beside it, examples learnt by 24 layers with adding and without it.") as drawn:
    draw_board(drawn)

# %% [markdown]
# One usually reads that adding saves the gradient. It does: in the bare stack almost nothing of it arrives. But look at the norm alone: a
# gradient arrives, and the stack learns nothing either. What is missing there is the way *forward*: all inputs look
# nearly the same after 24 layers. Of the three stacks, only the one with adding keeps both, and only that one learns. The norm is for the other
# danger, which lesson 5 showed: values that explode.
#
# ## A query that is too short
#
# A query and a key have $d_k$ values. Fewer are cheaper. What is lost?
#
# ### Exercise: keys that can win
#
# Attention gives most weight to the key with the largest score. Take 50 random keys and 5000 random
# queries. How many of the keys win at least once?


# %%
def winners(Q, K):
    """Return how many of the keys K (m, d) have the largest score for a query of Q (n, d)."""
    ...


winners = grade(winners, "winners")

# %% tags=["hide-output"] jupyter={"outputs_hidden": true}
# Run this cell to see a solution. A script prints it if it runs with --solutions.
solution("winners")

# %%
rng = np.random.default_rng(0)
winning = {
    d_k: winners(rng.standard_normal((5000, d_k)), rng.standard_normal((50, d_k)))
    for d_k in (1, 2, 8)
}

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(
    winning[1] == 2 < winning[2] < winning[8],
    "keys of 50 that win: {}",
    ", ".join(f"{n} (d_k = {d})" for d, n in winning.items()),
)

# %% [markdown]
# With one value, a positive query prefers the largest key and a negative one the smallest. All other keys never win. So
# the larger the better? Let attention learn to find one of 8 keys. A query agrees with its key in 4 of 32 values, up to
# some noise. There are 500 examples to learn from, and 2000 new ones to judge by. **Before you go on:** guess the best $d_k$.


# %%
def lookup_task(rng, n):
    """Return queries (n, 1, 32), keys (n, 8, 32), and the index of the right key (n,)."""
    keys, queries = rng.standard_normal((n, 8, 32)), rng.standard_normal((n, 1, 32))
    right = rng.integers(8, size=n)
    queries[:, 0, :4] = keys[np.arange(n), right, :4] + 0.3 * rng.standard_normal((n, 4))
    return queries.astype(np.float32), keys.astype(np.float32), right


def found(d_k, seed):
    """Return the rate of keys found after training: of the examples, and of new ones."""
    rng = np.random.default_rng(seed)
    seen, new = lookup_task(rng, 500), lookup_task(rng, 2000)
    WQ, WK = (nn.Linear(32, d_k, bias=False, generator=rng) for _ in range(2))
    scores = lambda queries, keys: (WQ(queries) @ WK(keys).swapaxes(1, 2))[:, 0] / np.sqrt(d_k)
    fit([WQ, WK], lambda: mg.cross_entropy(scores(*seen[:2]), seen[2]), 200, lr=1e-2)
    return [float((scores(*t[:2]).data.argmax(-1) == t[2]).mean()) for t in (seen, new)]


by_size = {d_k: np.mean([found(d_k, seed) for seed in range(2)], 0) for d_k in (1, 2, 4, 8, 64)}
for d_k, (seen, new) in by_size.items():
    print(f"d_k = {d_k:2}: {seen:4.0%} of the examples, {new:3.0%} of new ones")

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(
    by_size[1][0] < 0.5 and by_size[64][0] > 0.98 and by_size[64][1] < by_size[4][1] - 0.05,
    "new keys found: {:.0%} with d_k = 1, {:.0%} with 4, {:.0%} with 64",
    by_size[1][1],
    by_size[4][1],
    by_size[64][1],
)

# %%
board["d_k = 4, not 1"] = by_size[4][1], by_size[1][1]

# %% tags=["hide-input"] jupyter={"source_hidden": true}
with figure(7, 2.6, "And new keys found with queries of 4 values and of 1.") as drawn:
    draw_board(drawn)

# %% [markdown]
# Too short, and attention cannot learn even its examples. Too long, and it learns them by heart: with 64 values it finds
# all keys that it has seen and fewer of the new ones. Between them lies a best size. It depends on the task and on the
# number of examples, so this is no rule for other networks.
#
# ## The likeliest word
#
# A trained decoder gives a probability to each next word. To take the likeliest each time, as lesson 5 did, is called
# *greedy*. Is the sentence the likeliest, too? Ten sentences serve as a model: its probability of a word is how often the
# word follows the same beginning.

# %%
sentences = 3 * ["how a ?"] + 2 * ["how c ?"] + ["how world ?"] + 4 * ["hola mundo"]
tree = {}  # beginning -> {next word: probability}
for words in map(str.split, sentences):
    for i in range(len(words)):
        beginning = tuple(words[:i])
        same = [s.split() for s in sentences if tuple(s.split()[:i]) == beginning]
        tree[beginning] = {w: np.mean([s[i] == w for s in same]) for w in {s[i]: 0 for s in same}}
for beginning, next_words in tree.items():
    print(" ".join(beginning) or "(start)", {w: round(float(p), 2) for w, p in next_words.items()})

# %% [markdown]
# Six sentences begin with *how*, so greedy takes it and cannot go back. *Beam search* keeps several beginnings at each
# step: the `width` most probable ones.
#
# ### Exercise: beam search
#
# Start with the empty beginning `()` and probability 1. Replace each beginning by its continuations, each with the product
# of the probabilities. A beginning that is not in the tree is a finished sentence and stays. Keep the best `width`, until
# all are finished.


# %%
def beam_search(tree, width):
    """Return the best sentence found, as (words, probability), with a beam of `width` beginnings."""
    ...


beam_search = grade(beam_search, "beam_search")

# %% tags=["hide-output"] jupyter={"outputs_hidden": true}
# Run this cell to see a solution. A script prints it if it runs with --solutions.
solution("beam_search")

# %%
(greedy, p_greedy), (best, p_best) = (beam_search(tree, width) for width in (1, 2))

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(
    greedy[0] == "how" and best == ("hola", "mundo") and p_best > p_greedy,
    "greedy: {}, {:.1f}; beam of 2: {}, {:.1f}",
    " ".join(greedy),
    p_greedy,
    " ".join(best),
    p_best,
)

# %% [markdown]
# ![A tree of beginnings: how has 0.60 and leads to sentences of 0.30 and 0.20; hola has 0.40 and leads to hola mundo with 0.40, which a beam of two finds.](../pictures/beam.svg)
#
# The likeliest first word leads away from the likeliest sentence. A beam finds it here; it is no guarantee, since a beam
# sees only a few of all sentences.
#
# ## What you have now
#
# A way to answer "what is it for?": take it out and measure. Positions tell orders apart. Adding lets differences
# forward and gradients backward through many layers. A query needs enough values for its task, and too many learn by heart.
# The [appendix](statements_random_transformer_exercises.md) answers the other questions of the article by computations,
# among them [*Why is the decoder slower than the
# encoder?*](statements_random_transformer_exercises.md#5-why-is-the-decoder-slower-than-the-encoder)
