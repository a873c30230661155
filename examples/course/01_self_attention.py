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
# # 1 · Self-attention
#
# *The animal didn't cross the street because it was too tired.* You know at once that *it* is the animal. In *because it
# was too wide* you know as quickly that it is the street. One word at the end changes the meaning of a word in the
# middle. **How can a network compute this?**
#
# In this lesson you build self-attention from this question, in five steps. Then you train a small network on such
# sentences, look at what *it* attends to, and find out how far such a look may be trusted.

# %% tags=["hide-input"] jupyter={"source_hidden": true}
import numpy as np
import pronouns
from exercises.self_attention import grade, solution
from grading import check
from pictures import figure, ramp
from pronouns import TIRED, WIDE, WORDS, encode
from torch_gaps import compare_with_torch

import minigrad as mg

# %%
sentences, nouns, held_out = pronouns.corpus()
for i in (0, 1300, 2500, 3600):
    print(f"{sentences[i]}.  it = {WORDS[nouns[i]]}")

# %% [markdown]
# ## Why rules of position fail
#
# We have 4,096 such sentences in four forms, with eight animals, eight places and sixteen adjectives. Perhaps *it* is
# always the noun that comes first? Or the one that is nearest? Count.

# %%
ids = encode(sentences)
animal = pronouns.where(ids, pronouns.ANIMALS)  # positions, (4096,)
place = pronouns.where(ids, pronouns.PLACES)
it = pronouns.where(ids, ["it"])
first = np.where(animal < place, animal, place)
nearest = np.where(abs(animal - it) < abs(place - it), animal, place)
rows = np.arange(len(ids))
of_animals = [pronouns.IDS[word] for word in pronouns.OF_ANIMALS]  # adjectives
by_word = np.where(np.isin(ids, of_animals).any(1), animal, place)
rates = [float((ids[rows, guess] == nouns).mean()) for guess in (first, nearest, by_word)]

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(
    rates == [0.5, 0.5, 1],
    "the first noun: {:.0%} right, the nearest: {:.0%}, by the adjective: {:.0%}",
    *rates,
)

# %% [markdown]
# Both are as good as tossing a coin. The position does not decide; the *content* of another word
# does. So each word needs a way to use the content of all others, and to take from some of them
# more than from others.
#
# ## A first attempt: the mean of all words
#
# A word is a vector, a row of a table. Let us write the words of a sentence below each other, as the rows of a matrix $X$
# with $L$ rows. The simplest way to give each word something of all others is the mean of all rows.

# %%
rng = np.random.default_rng(1)
words = TIRED.split()
table = rng.standard_normal((len(WORDS), 16)) / 4  # a vector of 16 values for each word
X = table[encode([TIRED])[0, : len(words)]]  # (11, 16)
mean = np.full((11, 11), 1 / 11) @ X

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(np.allclose(mean, mean[0]), "all words get the same vector")

# %% [markdown]
# Every word gets the same vector, and it is the same for any order of the words. *it* cannot take more from *tired* than
# from *the*. The weights of the mean must depend on the two words concerned.
#
# ## A second attempt: similar words
#
# A number for two vectors is their dot product: large if they point the same way. So let the weight of word $j$ for word
# $i$ be made from $x_i \cdot x_j$.

# %%
similarity = X @ X.T  # (11, 11)
at = words.index("it")
best = similarity[at].argmax()

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(
    best == at and np.allclose(similarity, similarity.T),
    "the word most similar to it: {}",
    words[best],
)

# %% [markdown]
# This fails in two ways. A vector is most similar to itself, so *it* finds *it*. And the similarity is symmetric: *it*
# needs *tired*, but *tired* does not need *it*.
#
# ## Step by step
#
# The repair is to give each word three roles, and a matrix for each. What a word looks for is its **query** $q_i = x_i
# W^Q$. By what it is found is its **key** $k_j = x_j W^K$. What it hands over is its **value** $v_j = x_j W^V$. All words
# use the same three matrices, and training finds them. Queries and keys meet in a dot product, so they have the same
# size $d_k$. Values only have to be added up, so they may have another size $d_v$.
#
# ![One attention head: X (L by d) times three matrices gives Q, K and V (L by d_k); Q times K transposed, divided by the root of d_k, masked, through a softmax by rows, gives weights (L by L), which multiply V.](../pictures/head.svg)
#
# The picture shows the whole way. You write its boxes one after the other; the mask comes last.

# %%
W_Q, W_K, W_V = (rng.standard_normal((16, width)) / 4 for width in (8, 8, 6))
q, k, v = X @ W_Q, X @ W_K, X @ W_V  # (11, 8), (11, 8), (11, 6)

# %% [markdown]
# ### Exercise: scores
#
# The score of query $i$ with key $j$ is $s_{ij} = q_i \cdot k_j / \sqrt{d_k}$. Compute all scores at once: a matrix with a
# row for each query and a column for each key. Replace the dots. The grader tries your function on matrices that you do
# not see.


# %%
def scaled_scores(q, k):
    """Return the score of each query (L_q, d_k) with each key (L_k, d_k)."""
    ...


scaled_scores = grade(scaled_scores, "scaled_scores")

# %% tags=["hide-output"] jupyter={"outputs_hidden": true}
# Run this cell to see a solution. A script prints it if it runs with --solutions.
solution("scaled_scores")

# %% [markdown]
# ### Exercise: weights
#
# Scores become weights by softmax: $S_{ij} = e^{s_{ij}} / \sum_m e^{s_{im}}$. Each row is positive and sums to 1, so that a
# row says how word $i$ divides its attention. $e^{1000}$ is too large for a float. Subtract the largest score of the row
# first; that changes nothing in the quotient.


# %%
def softmax_rows(scores):
    """Return weights (L_q, L_k): positive, each row with sum 1."""
    ...


softmax_rows = grade(softmax_rows, "softmax_rows")

# %% tags=["hide-output"] jupyter={"outputs_hidden": true}
# Run this cell to see a solution. A script prints it if it runs with --solutions.
solution("softmax_rows")

# %% [markdown]
# The last step adds up the values with these weights: $z_i = \sum_j S_{ij} v_j$. Each output is a mean of values, and now
# every word has a mean of its own.
#
# These three steps are the function `_attention` in `minigrad/ops/attention.py`: see [Read the
# code in an evening](../reading.md#a-batch-becomes-a-loss).

# %%
scores = scaled_scores(q, k)
S = softmax_rows(scores)
z = S @ v
inside = (v.min(0) <= z).all() and (z <= v.max(0)).all()

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(inside, "no output leaves the range of the values")

# %% [markdown]
# ## Why the scores are divided
#
# A product of two random vectors of size $d_k$ has variance $d_k$, so it is typically as large as $\sqrt{d_k}$.
# Without the division, larger vectors give larger scores, softmax gives nearly all weight to one word, and its
# derivative vanishes. Measure the derivative $\partial S_i / \partial s_j = S_i (\delta_{ij} - S_j)$ for eleven
# words, where $\delta_{ij}$ is 1 for $i = j$, and 0 otherwise.


# %%
def size_of_derivative(scores):
    """Return the mean norm of the derivative of softmax, for scores (N, 11)."""
    S = softmax_rows(scores)[:, :, None]
    return np.sqrt(((S * np.eye(11) - S * S.swapaxes(1, 2)) ** 2).sum((1, 2))).mean()


print("  d_k   not divided   divided")
sizes = {}
for d_k in (4, 64, 1024):
    raw = np.einsum("nd,njd->nj", *(rng.standard_normal((2000, *n, d_k)) for n in ((), (11,))))
    sizes[d_k] = size_of_derivative(raw), size_of_derivative(raw / np.sqrt(d_k))
    print(f"{d_k:5} {sizes[d_k][0]:13.3f} {sizes[d_k][1]:9.3f}")

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(
    sizes[1024][0] < sizes[4][0] / 3 and abs(sizes[1024][1] - sizes[4][1]) < 0.05,
    "from d_k = 4 to 1024 the derivative loses {:.0%} without the division",
    1 - sizes[1024][0] / sizes[4][0],
)

# %% [markdown]
# ## The same in one line, and in libraries
#
# $$
# \operatorname{Attention}(Q, K, V) = \operatorname{softmax}\left(\frac{Q K^\top}{\sqrt{d_k}}\right) V
# $$
#
# Libraries compute this line. Ours and PyTorch's give what you computed.

# %%
heads = [a[None, None] for a in (q, k, v)]  # one sentence, one head
ours = mg.scaled_dot_product_attention(*map(mg.Tensor, heads)).data[0, 0]
gap = abs(ours - z).max()

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(gap < 1e-12, "largest difference to minigrad: {:.0e}", gap)


# %%
def of_torch(torch):
    return torch.nn.functional.scaled_dot_product_attention(*map(torch.tensor, heads))[0, 0]


compare_with_torch(1, z, of_torch)

# %% [markdown]
# ## What *it* learns
#
# What you built is one *head*. A *layer* has several heads side by side, which read the same words with matrices of their own.
# A second layer reads what the first one gives, so that a word can use what other words have collected. Such a stack of
# layers is called an *encoder*.
#
# The matrices were random so far. Now an encoder with two layers of two heads learns to name the noun from its output
# at *it*. A fifth of the sentences is *held out*: training never sees it, so that it can test what was learned. Held
# out, too, is every sentence with both *animal* and *street*: the two sentences of the beginning are never seen in
# training. **Before you go on:** which words must *it* attend to?

# %%
size = pronouns.settings(32, 2, 2)  # width 32, two heads, two layers
models = [pronouns.train(pronouns.Resolver(size, seed), seed=seed) for seed in range(4)]
ids, nouns = ids[held_out], nouns[held_out]
right = [float((model.answer(ids) == nouns).mean()) for model in models]

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(
    min(right) > 0.97, "right on held-out sentences: {}", ", ".join(f"{rate:.1%}" for rate in right)
)

# %%
answers = [WORDS[models[0].answer(encode([sentence]))[0]] for sentence in (TIRED, WIDE)]

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(answers == ["animal", "street"], "too tired: {}; too wide: {}", *answers)

# %% [markdown]
# A translator needs this answer too. German has three words for *it*: a dog is *er*, a cat or a street is *sie*, and *das
# Tier*, the animal, is *es*. Use the most frequent of the three always, or the one that suits the noun of the first model.

# %%
genders = "es er sie es sie es er sie sie sie er sie es er er es".split()  # noqa: SIM905
german = {
    pronouns.IDS[noun]: word for noun, word in zip(pronouns.ANIMALS + pronouns.PLACES, genders)
}
needed = [german[noun] for noun in nouns]
chosen = [german.get(noun) for noun in models[0].answer(ids)]
always = max(needed.count(word) for word in ("er", "sie", "es")) / len(needed)
print(f"German words for it that are right: {always:.0%} with one word for all,", end=" ")
print(f"{np.mean([a == b for a, b in zip(chosen, needed)]):.0%} by the noun of the model")

# %% [markdown]
# How does the model find the noun? Look at what *it* attends to.

# %% tags=["hide-input"] jupyter={"source_hidden": true}
with figure(9, 4.6, "Weights of it in two layers of two heads, for two sentences.") as drawn:
    for i, sentence in enumerate((TIRED, WIDE)):
        axes = drawn.add_subplot(2, 1, i + 1)
        weights = models[0].weights_of_it(encode([sentence]))[0].reshape(4, -1)[:, :11]
        axes.imshow(weights, cmap=ramp("weight"), vmin=0, vmax=1, aspect="auto")
        axes.set_xticks(range(11), sentence.split())
        axes.set_yticks(range(4), [f"{layer}.{head}" for layer in (1, 2) for head in (1, 2)])
        for (row, column), weight in np.ndenumerate(weights):
            if weight >= 0.1:
                ink = "white" if weight > 0.6 else "black"
                axes.text(column, row, f"{weight:.2f}", ha="center", va="center", color=ink)

# %% [markdown]
# A row is a head: 1.2 is the second head of layer 1. Some heads attend to the adjective, others to
# nouns. It is tempting to read the picture as an explanation: *it* asks the adjective which kind is
# meant, and then takes the noun of that kind. The picture shows weights of one model. Does the
# answer depend on them?
#
# ## An intervention
#
# Forbid *it* to attend to one word, in all layers and heads, and count the right answers. Half of the sentences mean
# an animal and half a place; count them apart. And since a model is a product of chance too, do it with all four.
# They differ in their *seed*, the number from which their random numbers begin.

# %%
groups = pronouns.ANIMALS, pronouns.PLACES, pronouns.OF_ANIMALS + pronouns.OF_PLACES
animal, place, adjective = (pronouns.where(ids, words) for words in groups)
means_animal = np.isin(nouns, [pronouns.IDS[word] for word in pronouns.ANIMALS])
meant, other = np.where(means_animal, [animal, place], [place, animal])


def right_by_kind(model, blocked, for_all=False):
    """Return the rate of right answers where an animal is meant, and where a place is."""
    right = model.answer(ids, blocked, for_all) == nouns
    return float(right[means_animal].mean()), float(right[~means_animal].mean())


print("A: an animal is meant, P: a place is meant")
print("hidden  meant noun  other noun   adjective")
print("seed       A    P      A    P      A    P")
runs = []
for seed, model in enumerate(models):
    rates = [right_by_kind(model, blocked) for blocked in (meant, other, adjective)]
    runs.append(rates[2])
    print(f"{seed:4}  ", *(f"{a:5.0%} {b:4.0%} " for a, b in rates))

# %% [markdown]
# Without the other noun nothing is lost. Without the meant noun all four models lose about half of their answers or more:
# the answer comes through this connection.
#
# The last columns need care. With the adjective forbidden, the first model is still right in half of the sentences. Does
# it learn the adjective in some other way, from words that have read it in layer 1? Look at the two kinds: it is right
# for *all* places and *no* animal. It does not know the kind any more and always answers a place. Half right is what
# this constant answer gives. The second model always answers an animal. Only where *both* kinds are right more often
# than a constant answer allows has something of the adjective arrived in another way.
#
# ### Exercise: what is left
#
# Given the pairs (rate for animals, rate for places), say for each model whether it answers `"always one kind"` (one rate
# below 0.1, the other above 0.9) or `"knows more"`.


# %%
def what_is_left(runs):
    """Return "always one kind" for each run that is right on one kind only, else "knows more"."""
    ...


what_is_left = grade(what_is_left, "what_is_left")
print(what_is_left(runs))

# %% tags=["hide-output"] jupyter={"outputs_hidden": true}
# Run this cell to see a solution. A script prints it if it runs with --solutions.
solution("what_is_left")

# %% [markdown]
# If some models know more, is it really through other words? That can be tested as well: forbid the adjective to *all*
# words. Then no word can carry it to *it*.

# %%
sums = [sum(right_by_kind(model, adjective, for_all=True)) / 2 for model in models]

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(
    max(sums) < 0.6,
    "the adjective hidden from all words: {}",
    ", ".join(f"{rate:.0%}" for rate in sums),
)

# %% [markdown]
# Now every model is as good as a coin, also the one that knew more. So other words did carry the adjective there. **What
# may one conclude?** That these models need the meant noun, and mostly get the adjective directly. Not how *a* model must
# do it: four trainings found different ways. A picture of weights suggests a mechanism; only an intervention tests it,
# and one model is one sample.
#
# ## A mask
#
# You have just used a *mask*: an array that says who may attend to whom. The same tool hides the filling of short
# sentences, and in a network that writes word by word those that are not yet said.
#
# ### Exercise: attention with a mask
#
# `mask[i, j]` is True if query $i$ may use key $j$. Hidden keys get the score $-\infty$, whose exponential is exactly 0.
# Write it with `mg.softmax` and NumPy, so that tensors with gradients go through; the grader also checks your gradient.


# %%
def masked_attention(q, k, v, mask):
    """Return attention (L_q, d_v) in which query i uses key j only if mask[i, j] is True."""
    ...


masked_attention = grade(masked_attention, "masked_attention")

# %% tags=["hide-output"] jupyter={"outputs_hidden": true}
# Run this cell to see a solution. A script prints it if it runs with --solutions.
solution("masked_attention")

# %% [markdown]
# With a lower triangle as mask, no word attends to those after it: change the last word, and the
# outputs of all others stay.

# %%
mask = np.tril(np.ones((11, 11), bool))
changed = [np.concatenate([a[:-1], 2 * a[-1:]]) for a in (q, k, v)]
before, after = (
    np.asarray(masked_attention(*map(mg.Tensor, a), mask).data) for a in ((q, k, v), changed)
)
same = np.isclose(before, after).all(1)

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(same[:-1].all() and not same[-1], "outputs that stay: {} of {}", same.sum(), len(same))

# %% [markdown]
# ## What you have now
#
# Five steps: vectors, three roles, scores, weights, weighted values. They are differentiable, and
# training found the roles. But one head gives a word one mean, and here *it* needed an adjective
# and a noun; lesson 3 is about several heads.
#
# The lesson follows an entry of a blog in Chinese, *Thoughts on self-attention*, written after reading
# [*The Illustrated Transformer*](https://jalammar.github.io/illustrated-transformer/) by Jay Alammar. The
# [appendix](statements_self_attention.md) computes each of its statements, for example
# [*The calculation in single steps*](statements_self_attention.md#the-calculation-in-single-steps).
