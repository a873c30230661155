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
# # 4 · Learn in a batch, write alone
#
# To translate 我 有 一只 猫, a Transformer writes *I*, then *have*, then *a*, then *cat*. At each step it has only what it
# wrote before. But it learns from whole sentences, 64 at a time, and computes all their words at once. **What must
# hold so that it can do alone, word by word, what it learned in a batch of whole sentences?**
#
# In this lesson you train a Transformer that fails at this, find out why, and mend it. Then you ask what each word needs
# from the source sentence, and what a batch may have to do with a sentence in it.

# %% tags=["hide-input"] jupyter={"source_hidden": true}
import numpy as np
from exercises.transformer_notes import grade, solution
from grading import check
from pictures import figure, growing
from toy_translation import SOURCE, TARGET, Corpus, loss_with_mask, train

import minigrad as mg
import nn

# %%
corpus = Corpus()
sources, targets = zip(*corpus.held_out)
for source, target in corpus.train[:3]:
    print(" ".join(source), "→", " ".join(target))
print(len(corpus.train), "pairs to learn from,", len(sources), "held out")

# %% [markdown]
# ## All words at once
#
# A Transformer has two parts: the *encoder* reads the source, and the *decoder* writes the target. The pieces that
# they read and write, words and marks, are called *tokens*. For a network each token has a number, its *id*. With a
# mark for its beginning and one for its end, the target becomes `<bos>` *I have a cat* `<eos>`, and it holds five
# tasks: after `<bos>` comes *I*, after *I* comes *have*, and so on to the end, `<eos>`. One pass can do all of them:
# the decoder reads the target without its last token, and at each position the answer is the next token.
#
# ### Exercise: what it reads and what it should answer
#
# From target ids (N, L), make two arrays (N, L - 1): what the decoder reads, and the next token at each position.


# %%
def shifted(target):
    """Return a pair: what the decoder reads and the tokens wanted, (N, L - 1) each."""
    ...


shifted = grade(shifted, "shifted")

# %% tags=["hide-output"] jupyter={"outputs_hidden": true}
# Run this cell to see a solution. A script prints it if it runs with --solutions.
solution("shifted")

# %%
words = corpus.target_vocab.tokens
source_ids, target_ids = corpus.sources([SOURCE]), corpus.targets([TARGET])
read, wanted = shifted(target_ids)
for name, ids in (("reads", read), ("wanted", wanted)):
    print(f"{name:7}", *(f"{words[i]:6}" for i in ids[0]))

# %% [markdown]
# ## A first attempt: every word sees every word
#
# Let us train an encoder and a decoder with the layers of lesson 3, in which every word of the target sees the whole
# target. Training makes the *loss* small, which says how wrong the answers are: the mean of $-\log p$, where $p$ is
# the probability that the model gives to the right next token. **Before you go on:** will the loss be small? Will the
# translations be right?

# %%
open_model, _ = train(corpus, masked=False)


def rate_right(model):
    """Return the rate of held-out sentences that are written right, word by word."""
    found = nn.greedy_search(model, corpus.sources(sources), max_len=16)
    return np.mean([corpus.target_vocab.decode(h.tokens) == t for h, t in zip(found, targets)])


def loss(model, mask):
    """Return the loss on held-out sentences; mask[i, j]: position i of the target sees position j."""
    with mg.no_grad():
        ids = corpus.targets(targets)
        return loss_with_mask(model, corpus.sources(sources), ids, mask).item()


L = corpus.targets(targets).shape[1] - 1
every = np.ones((L, L), bool)
seen, written = loss(open_model, every), rate_right(open_model)

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(
    seen < 0.03 and written < 0.3, "loss {:.3f}, but only {:.1%} are written right", seen, written
)

# %% [markdown]
# The loss is nearly zero, and the translations are wrong. Look at the task again: at the position of *I* the answer is
# *have*, and *have* is the next word in what the decoder reads. Does it copy? Hide from each position only the *next*
# word, and measure the loss again.

# %%
without_next = loss(open_model, every & ~np.eye(L, k=1, dtype=bool))

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(
    without_next > 30 * seen, "loss {:.3f} → {:.2f} with the next word hidden", seen, without_next
)


# %%
def decoder_weights(model, mask):
    """Return the weights of self-attention in the decoder for I have a cat, mean of heads (5, 5)."""
    with mg.no_grad(), nn.record_attention(model) as recorded:
        loss_with_mask(model, source_ids, target_ids, mask)
    return next(w[0] for name, w in recorded.items() if "decoder" in name)[0].mean(0)


copied = decoder_weights(open_model, np.ones((5, 5), bool))
assert (copied.argmax(1)[:4] == [1, 2, 3, 4]).all()

# %% tags=["hide-input"] jupyter={"source_hidden": true}
rows = [words[i] for i in read[0]]
steps = [("weight", copied, "sees all words")]
with figure(
    4, 2.6, "Weights of five words by five; much weight is right of the diagonal."
) as drawn:
    growing(drawn, rows, steps)

# %% [markdown]
# It copies. A row is a word that the decoder reads, a column a word that it attends to. The first four rows have their
# largest weight at the next word, which is the answer. When the decoder writes, the next word is not there yet. **What a
# position uses in training must be there when it writes.**
#
# ## A mask
#
# So hide later words: each position sees itself and those before it, as with the second mask of lesson 2. The
# question is where. The simplest is to set the weights of later words to 0, after the softmax.

# %%
rng = np.random.default_rng(0)
past = np.tri(5, dtype=bool)  # a lower triangle: row i sees columns 0 to i


def softmax(scores):
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


scores = rng.standard_normal((5, 5))
other = scores.copy()
other[:, 4] += 3  # another last word
late, late_other = softmax(scores) * past, softmax(other) * past

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(
    late.sum(1).min() < 0.5 and late_other[0, 0] < late[0, 0] / 2,
    "rows sum to {:.2f} to 1; another last word changes the first weight from {:.2f} to {:.2f}",
    late.sum(1).min(),
    late[0, 0],
    late_other[0, 0],
)

# %% [markdown]
# This fails twice. Rows do not sum to 1 any more. And later words still have influence, through the sum that divides.
#
# ### Exercise: weights of the past
#
# Hide the *scores* of later words instead, before the softmax, so that neither the numerator nor the sum contains them.
# What score has the exponential 0?


# %%
def weights_of_past(scores):
    """Return weights (L, L) of scores (L, L): row i is a softmax over columns 0 to i, then zeros."""
    ...


weights_of_past = grade(weights_of_past, "weights_of_past")

# %% tags=["hide-output"] jupyter={"outputs_hidden": true}
# Run this cell to see a solution. A script prints it if it runs with --solutions.
solution("weights_of_past")

# %% [markdown]
# Train the same network once more, with this mask.

# %%
model, _ = train(corpus)
before = weights_of_past(scores)[:4]
seen, written = loss(model, np.tri(L, dtype=bool)), rate_right(model)

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(
    np.allclose(before, weights_of_past(other)[:4]) and written > 0.9,
    "loss {:.3f}, and {:.1%} are written right",
    seen,
    written,
)

# %%
masked = decoder_weights(model, past)

# %% tags=["hide-input"] jupyter={"source_hidden": true}
steps += [("weight", masked, "sees the past")]
with figure(6, 2.6, "Beside it, weights with the mask: nothing right of the diagonal.") as drawn:
    growing(drawn, rows, steps)

# %% [markdown]
# The loss is larger than before, and the translations are right. A smaller loss is better only if the task is the same.
#
# The library makes this mask in `nn/attention.py`, and hides the scores in `minigrad/ops/attention.py`, before the softmax,
# too. Their places in the whole are in [Read the code in an evening](../reading.md#a-batch-becomes-a-loss).
#
# ## What a word needs from the source
#
# The decoder has a second attention, to the encoder. It has the same formula as the first, $\operatorname{softmax}(Q
# K^\top / \sqrt{d'}) V$, but two origins. The question comes from what is written: $Q$ is made from the decoder's words.
# The answer comes from the source: $K$ and $V$ are made from the encoder's output, its *memory*.
#
# ### Exercise: cross-attention
#
# Compute it for one head, with words $x$ of the decoder and the memory. The source may have another length than the
# target.


# %%
def cross_attention(x, memory, W_Q, W_K, W_V):
    """Return (L, d') from words x (L, d) and memory (M, d), with matrices (d, d')."""
    ...


cross_attention = grade(cross_attention, "cross_attention")

# %% tags=["hide-output"] jupyter={"outputs_hidden": true}
# Run this cell to see a solution. A script prints it if it runs with --solutions.
solution("cross_attention")

# %% [markdown]
# The weights of the trained model, in the next picture, suggest that *cat* is made from 猫. But
# weights are not yet a reason. Hide one source word at a time from the second attention, and see
# how much probability each target word loses.

# %%
maps = nn.attention_maps(model, source_ids, target_ids[0, 1:])
cross = maps["cross"][0].mean(0)  # (5, 4)
memory = model.encode(source_ids).data


def probabilities(visible):
    """Return the probability of each wanted word (5,), if visible[j] says which source words are."""
    with mg.no_grad():
        hidden = model.decode(read, mg.Tensor(memory), np.array([visible]))
        return mg.softmax(model.output(hidden)).data[0, np.arange(5), wanted[0]]


hidden_one = np.stack([probabilities(row) for row in ~np.eye(4, dtype=bool)], 1)
lost = probabilities(np.ones(4, bool))[:, None] - hidden_one  # (5, 4)
own, others = np.diag(lost), lost[~np.eye(5, 4, dtype=bool)]

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(
    own.min() > 0.5 and others.max() < 0.1,
    "lost without the word's own source word: {:.2f}, {:.2f}, {:.2f}, {:.2f}; without any other: at most {:.2f}",
    *own,
    others.max(),
)

steps += [("weight", cross, "sees the source"), ("output", lost, "lost without it")]
with figure(
    10, 2.6, "Also weights of five words by four source words, and what is lost without each."
) as drawn:
    growing(drawn, rows, steps)

# %% [markdown]
# In the two last matrices the columns are 我, 有, 一只, 猫. Now the suggestion is tested: in this sentence, each word needs the
# source word of the same position, and `<eos>` needs none of them, though it has weights as every row has.
#
# ## What a batch has to do with a sentence
#
# The mask concerns the words of a sentence. What about the other sentences of the batch? Attention does not mix them.
# But between the parts of a Transformer there is a *norm*, without which values may explode, as lesson 5 shows:
# subtract a mean, and divide by the standard deviation. The mean of what? Write all words of a batch below each
# other, a matrix with a row for each word. *Batch norm* normalises the columns: each feature over all words. *Layer
# norm* normalises the rows: each word by itself.
#
# ### Exercise: both norms in one function
#
# Let `axis` be the axis along which mean and variance are taken. Add `eps` to the variance before its root, so that
# nothing is divided by zero.


# %%
def normalise(x, axis, eps=1e-5):
    """Return x with mean 0 and variance 1 along an axis."""
    ...


normalise = grade(normalise, "normalise")

# %% tags=["hide-output"] jupyter={"outputs_hidden": true}
# Run this cell to see a solution. A script prints it if it runs with --solutions.
solution("normalise")

# %% [markdown]
# Both are one function with another axis. Which one keeps our condition? Put our sentence into two batches.

# %%
sentence, one, two = (
    model.source_embedding(corpus.sources(s)).data.reshape(-1, 64)  # a row for each word
    for s in ([SOURCE], sources[:63], sources[63:126])
)
batches = [np.concatenate([sentence, companions]) for companions in (one, two)]
by_column, by_row = (
    abs(np.subtract(*(normalise(batch, axis)[:4] for batch in batches))).max() for axis in (0, 1)
)

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(
    by_column > 0.1 and by_row < 1e-6,
    "in another batch the sentence changes by {:.2f} with columns, by {:.0e} with rows",
    by_column,
    by_row,
)

# %%
alone = [abs(normalise(sentence[:1], axis)).max() for axis in (0, 1)]

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(
    alone[0] == 0 and alone[1] > 1,
    "largest value of a word alone: {:.2f} with columns, {:.2f} with rows",
    alone[0],
    alone[1],
)

# %% [markdown]
# With columns, a sentence depends on its companions, and a single word becomes zeros: it is its own mean. (Libraries let
# batch norm remember means of training and use them later; then it computes one thing in training and another
# afterwards.) With rows, a word is treated alike in any company. The Transformer has layer norm.
#
# ## The answer
#
# A mask for later words, a norm for each word. If both do what they should, the probability of *I have a cat* is the same
# in four ways: in one pass or word by word, alone or among 200 sentences.

# %%
many = corpus.sources([SOURCE, *sources])
reads = corpus.targets([TARGET, *targets])[:, :-1]
in_one_pass = []
for ids, target in ((source_ids, read), (many, reads)):
    with mg.no_grad():
        logits = model(ids, target)[0, :5]  # of our sentence
        in_one_pass.append(-mg.cross_entropy(logits, wanted[0], reduction="sum").item())
found = [nn.greedy_search(model, ids, max_len=16)[0] for ids in (source_ids, many)]
ways = [*in_one_pass, *(h.log_prob for h in found)]
text = [corpus.target_vocab.decode(h.tokens) for h in found]

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(
    text == [TARGET, TARGET] and np.ptp(ways) < 1e-4,
    "log-probability in one pass: {:.5f}, {:.5f}; word by word: {:.5f}, {:.5f}",
    *ways,
)

# %% [markdown]
# ## What you have now
#
# One condition, and two parts of the Transformer that follow from it: **what a position uses in training must be
# there when it writes**. Without the mask the network copied the answer; with a norm over the batch it would lean on
# other sentences. And one habit: a picture of weights suggests what a word needs, and hiding the word tests it.
# Lesson 5 follows two words through all parts, number by number, and in lesson 7 you build all of them.
#
# The lesson follows notes of 2024 in Chinese, *多头自注意力机制与Transformer* (Multi-head self-attention and the Transformer).
# The [appendix](statements_transformer_notes.md) computes each of their statements, for example those on
# [*masked attention*](statements_transformer_notes.md#the-decoder-block-masked-attention) and on
# [*both norms*](statements_transformer_notes.md#layer-or-batch-normalisation).
