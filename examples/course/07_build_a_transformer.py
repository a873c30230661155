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
# # 7 · Build a Transformer
#
# *我 有 一只 猫* is *I have a cat*. Eight functions stand between you and a machine that says so. In this lesson you write
# them: softmax, attention, norm, embedding, encoder, decoder, loss and Adam. Then **your** Transformer learns from 7,400
# sentences in about a minute, and translates 600 others that it has never seen.
#
# You need arrays and their derivatives (lesson 0), and attention (lesson 1). Each function has a grader. If one does not
# come right, the notebook goes on with our version, so that you can return to it later.

# %% tags=["hide-input"] jupyter={"source_hidden": true}
import inspect
import json
from pathlib import Path

import numpy as np
from by_hand import BOS, EOS, PAD, Parameters, feed_forward, linear, new_parameters, train
from exercises.build_a_transformer import grade, solution
from grading import check
from labels import label
from pictures import figure, growing, show_page
from watch import Recording, watch_page

import minigrad as mg
import nn
from nn.text.batches import padded
from nn.text.tokenize import SpaceTokenizer
from nn.text.toy_corpora import chinese_english
from nn.text.vocabulary import Vocabulary

# %%
pairs = [(source.split(), target.split()) for source, target in chinese_english(8000)]
order = np.random.default_rng(0).permutation(len(pairs))
held_out, known = ([pairs[i] for i in rows] for rows in (order[:600], order[600:]))
shared = {*map(str, held_out)} & {*map(str, known)}

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(not shared, "sentences both known and held out: {}", len(shared))

# %%
for source, target in held_out[:4]:
    print(" ".join(source), "→", " ".join(target))

# %% [markdown]
# ## Why a dictionary is not enough
#
# The simplest translator looks up each word. From the known pairs, take for each Chinese word the English word that
# occurs with it most often, compared with how often that word occurs at all.

# %%
together, alone = {}, {}
for source, target in known:
    for english in set(target):
        alone[english] = alone.get(english, 0) + 1
        for chinese in set(source):
            row = together.setdefault(chinese, {})
            row[english] = row.get(english, 0) + 1
dictionary = {
    chinese: max(row, key=lambda english: row[english] ** 2 / alone[english])
    for chinese, row in together.items()
}
by_words = [[dictionary.get(word, "?") for word in source] for source, _ in held_out]
right = sum(said == target for said, (_, target) in zip(by_words, held_out)) / 600
print(" ".join(held_out[0][0]), "→", " ".join(by_words[0]), "; right:", " ".join(held_out[0][1]))

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(right < 0.2, "sentences that the dictionary translates without an error: {:.1%}", right)

# %% [markdown]
# Chinese has measure words and no articles, plurals or *does*. What comes out depends on other words of both sentences.
# That is what attention is for.
#
# ## Numbers for words
#
# A sentence becomes a row of ids. Four ids are no words: `PAD` (0) fills short sentences up to the longest, `BOS` (1) stands
# before a sentence and `EOS` (2) after it, and 3 is for unknown words. All weights are in one dictionary `p`, by names
# like `encoder.layers.0.self_attention.q_proj.weight`.

# %%
source_words, target_words = (Vocabulary.build(pair[side] for pair in known) for side in (0, 1))


def ids_of(pairs):
    """Return the ids of sources (N, L_s), and of targets (N, L_t) from BOS to EOS."""
    sources = [source_words.encode(source) for source, _ in pairs]
    targets = [target_words.encode(target, bos=True, eos=True) for _, target in pairs]
    return padded(sources), padded(targets)


D, D_FF, HEADS, LAYERS = 64, 128, 4, 1
sizes = len(source_words), len(target_words)
p = new_parameters(sizes, D, D_FF, LAYERS, np.random.default_rng(0))
source, target = ids_of(known)
print(source[0], target[0], f"{sum(t.size for t in p.values()):,} weights in {len(p)} arrays")

# %% [markdown]
# ## 1 · Softmax
#
# $\operatorname{softmax}(s)_j = e^{s_j} / \sum_m e^{s_m}$ along the last axis. `scores` is a tensor: write it with `np.exp` and
# methods, and gradients come by themselves. Subtract the largest score first; `scores.data` is its array.


# %%
def softmax(scores):
    """Return positive weights with sum 1 along the last axis."""
    ...


softmax = grade(softmax, "softmax")

# %% tags=["hide-output"] jupyter={"outputs_hidden": true}
# Run this cell to see a solution. A script prints it if it runs with --solutions.
solution("softmax")

# %% [markdown]
# ## 2 · Attention
#
# Queries come from `x`, keys and values from `source`; in self-attention both are the same.
# `linear(p, f"{name}.q_proj", x)` applies a matrix and a bias of this attention. The heads are a
# reshape: of $d$ values, each of $h$ heads gets $d_k = d / h$, as an axis of its own.
#
# 1. Apply `q_proj` to `x`, `k_proj` and `v_proj` to `source`, and give each the shape $(N, h, L, d_k)$: `reshape(N, -1, h,
#    d_k)`, then `transpose(0, 2, 1, 3)`.
# 2. The scores are $Q K^\top / \sqrt{d_k}$. Where the mask is False, put $-10^9$ (`np.where`).
# 3. Softmax, times the values. Undo the transpose and the reshape, and apply `out_proj`.
#
# Write constants as `np.float32(...)`: a float64 makes the result float64, which takes twice the memory.


# %%
def attention(p, name, x, source, mask, h):
    """Return what x (N, L_q, d) finds in source (N, L_kv, d), with h heads.

    The mask has four axes, (N or 1, 1, L_q or 1, L_kv), and True where a query may attend.
    """
    ...


attention = grade(attention, "attention")

# %% tags=["hide-output"] jupyter={"outputs_hidden": true}
# Run this cell to see a solution. A script prints it if it runs with --solutions.
solution("attention")

# %% [markdown]
# ## 3 · Norm
#
# Sums of many parts grow. The norm keeps each vector at mean 0 and variance 1, and lets training choose another scale:
# $\operatorname{norm}(x) = (x - \mu) / \sqrt{\sigma^2 + 10^{-5}} \cdot w + b$, with `p[f"{name}.weight"]` and
# `p[f"{name}.bias"]`.


# %%
def norm(p, name, x):
    """Return x with mean 0 and variance 1 of each vector, scaled and shifted."""
    ...


norm = grade(norm, "norm")

# %% tags=["hide-output"] jupyter={"outputs_hidden": true}
# Run this cell to see a solution. A script prints it if it runs with --solutions.
solution("norm")

# %% [markdown]
# ## 4 · Embedding
#
# A token is a row of the table `p[f"{side}_embedding.tokens.weight"]`, times $\sqrt{d}$. Attention does not see the order of
# words, so the position is added: at position $t$, the values $2i$ and $2i + 1$ are the sine and the cosine of $t /
# 10000^{2i/d}$.


# %%
def embed(p, side, ids):
    """Return rows of the table times √d, plus sines and cosines of the position: (N, L, d).

    `side` is "source" or "target", and `ids` are (N, L).
    """
    ...


embed = grade(embed, "embed")

# %% tags=["hide-output"] jupyter={"outputs_hidden": true}
# Run this cell to see a solution. A script prints it if it runs with --solutions.
solution("embed")

# %% [markdown]
# ## 5 · Encoder
#
# A layer has two parts: self-attention mixes words, and `feed_forward(p, name, x)` works on each word by itself. Each part
# is added to its input, and the sum is normed: `x = norm(..., x + part)`. The names in layer `i` are
# `encoder.layers.{i}.self_attention`, `.norm1`, `.feed_forward` and `.norm2`. No word may attend to padding: the mask is
# `(source != PAD)[:, None, None]`.
#
# ![One encoder block: x goes through self-attention and is added to the result, which is normed; that goes through the feed-forward net and is added to its result, which is normed.](../pictures/block.svg)


# %%
def encode(p, source, h, layers):
    """Return the vectors (N, L_s, d) of the ids of the source (N, L_s), with h heads."""
    ...


encode = grade(encode, "encode")

# %% tags=["hide-output"] jupyter={"outputs_hidden": true}
# Run this cell to see a solution. A script prints it if it runs with --solutions.
solution("encode")

# %% [markdown]
# ## 6 · Decoder
#
# The decoder reads the target so far, and gives at each position a score to each token that may come next. Such
# scores, before softmax, are called *logits*. The layers have three parts: self-attention, cross-attention to the
# `memory` (the output of the encoder), and the feed-forward layer, each followed by `norm1`, `norm2` and `norm3`. No
# word may attend to those after it: the mask of self-attention is `np.tri(L, dtype=bool)`, and True only where the
# target is not `PAD`. Cross-attention has the mask of the encoder. At the end, `linear(p, "output", x)` gives a score
# for each word of the vocabulary.
#
# ![One decoder block, from bottom to top: masked self-attention over the target so far, added to its input and normed; cross-attention to the output of the encoder, added and normed; the feed-forward layer, added and normed.](../pictures/decoder.svg)


# %%
def decode(p, target, memory, source, h, layers):
    """Return logits (N, L_t, vocabulary) of the token after each position.

    The ids of the target are (N, L_t), those of the source (N, L_s), the memory is (N, L_s, d).
    """
    ...


decode = grade(decode, "decode")

# %% tags=["hide-output"] jupyter={"outputs_hidden": true}
# Run this cell to see a solution. A script prints it if it runs with --solutions.
solution("decode")

# %% [markdown]
# ## 7 · Loss
#
# How much probability did the model give to the token that really comes next? The decoder reads `target[:, :-1]`; right is
# `target[:, 1:]`. The loss is the mean of $-\log p$ over all tokens that are not `PAD`. Take the logarithm of softmax as
# $s - \max s - \log \sum e^{s - \max s}$, so that a small probability does not become $\log 0$.


# %%
def loss(p, source, target, h, layers):
    """Return the mean of -log p of each right next token; padding does not count."""
    ...


loss = grade(loss, "loss")

# %% tags=["hide-output"] jupyter={"outputs_hidden": true}
# Run this cell to see a solution. A script prints it if it runs with --solutions.
solution("loss")

# %% [markdown]
# Your functions together are a Transformer. Is it the one of the libraries? Give `nn.Transformer` the same weights, and
# compare the loss and every gradient. **Predict first:** what is the loss of a model that knows nothing?

# %%
config = nn.TransformerConfig(
    *sizes, d_model=D, num_heads=HEADS, num_encoder_layers=LAYERS, num_decoder_layers=LAYERS, d_ff=D_FF, dropout=0.0
)  # fmt: skip
model = nn.Transformer(config)
model.load_state_dict({name: t.data for name, t in p.items()})
ours, theirs = (
    loss(p, source[:64], target[:64], HEADS, LAYERS),
    model.loss(source[:64], target[:64]),
)
guessing = float(np.log(sizes[1]))

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(
    guessing < ours.item() < guessing + 1,
    "loss {:.3f}; with equal probabilities: log {} = {:.3f}",
    ours.item(),
    sizes[1],
    guessing,
)

# %%
ours.backward()
theirs.backward()
gaps = [abs(p[name].grad.data - t.grad.data).max() for name, t in model.named_parameters()]

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(abs(ours.item() - theirs.item()) < 1e-4, "loss of nn.Transformer: {:.3f}", theirs.item())
check(max(gaps) < 1e-5, "largest difference among {} gradients: {:.0e}", len(gaps), max(gaps))

# %%
for t in p.values():
    t.grad = None

# %% [markdown]
# Why is the loss larger than $\log V$, that of equal probabilities for $V$ words? Random weights prefer some words without a
# reason. A score is a sum of $d$ products, so that scores are spread like a normal distribution with some variance $\sigma^2$.
# The mean of $e^s$ is then $e^{\sigma^2 / 2}$, not 1. So the sum in softmax is about $V e^{\sigma^2 / 2}$, and its logarithm
# $\log V + \sigma^2 / 2$. From it the loss subtracts the score of the right word. This is 0 on average. But a few words are
# right most often, and these random weights happen to dislike them a little. Measure all three parts.

# %%
answers = target[:64, 1:][target[:64, 1:] != PAD]
with mg.no_grad():
    memory = encode(p, source[:64], HEADS, LAYERS)
    scores = decode(p, target[:64, :-1], memory, source[:64], HEADS, LAYERS).data
    other_weights = (
        new_parameters(sizes, D, D_FF, LAYERS, np.random.default_rng(seed)) for seed in range(1, 21)
    )
    others = [loss(q, source[:64], target[:64], HEADS, LAYERS).item() for q in other_weights]
scores = scores[target[:64, 1:] != PAD]  # (words, V)
half = scores.var(1).mean() / 2
liked = (scores[np.arange(len(answers)), answers] - scores.mean(1)).mean()

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(
    abs(guessing + half - liked - ours.item()) < 0.05,
    "log V {:.3f} + half the variance {:.3f} - score of right words {:.3f} = {:.3f}; the loss {:.3f}",
    guessing,
    half,
    liked,
    guessing + half - liked,
    ours.item(),
)
check(
    abs(np.mean(others) - guessing - 0.5) < 0.15,
    "mean loss with 20 other random weights: {:.2f}; log V + 1/2 = {:.2f}",
    np.mean(others),
    guessing + 0.5,
)

# %% [markdown]
# ## 8 · Adam
#
# Plain descent moves a weight by its gradient; where gradients are small, it hardly moves. For each weight $\theta$
# with gradient $g$, Adam keeps two running means, $m \leftarrow m + 0.1\,(g - m)$ and $v \leftarrow v + 0.02\,(g^2 -
# v)$, and divides one by the root of the other. Both start at 0, which is undone by $\hat{m} = m / (1 - 0.9^t)$ and
# $\hat{v} = v / (1 - 0.98^t)$ in step $t$. The new value is $\theta - \eta\,\hat{m} / (\sqrt{\hat{v}} + 10^{-9})$,
# where $\eta$ is the rate `lr`. Return it with the new $m$ and $v$, and leave the arguments as they are.


# %%
def adam(value, gradient, m, v, step, lr):
    """Return the new value, m and v; all arrays have the shape of the value."""
    ...


adam = grade(adam, "adam")

# %% tags=["hide-output"] jupyter={"outputs_hidden": true}
# Run this cell to see a solution. A script prints it if it runs with --solutions.
solution("adam")

# %% [markdown]
# ## It learns
#
# `train` goes through all sentences in batches of 64, four times, and calls your `loss` and your `adam`. This takes about
# a minute.

# %%
total = 4 * (len(source) // 64)
recording = Recording(p, source_words, target_words, known, held_out, HEADS, LAYERS, total)
losses = recording.keep(
    train(p, source, target, HEADS, LAYERS, epochs=4, lr=3e-3, loss=loss, adam=adam)
)

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(
    np.mean(losses[-20:]) < 0.1, "loss after {} steps: {:.4f}", len(losses), np.mean(losses[-20:])
)

with figure(
    7, 3, "The loss of each step on a logarithmic axis, from above guessing to far below."
) as drawn:
    axes = drawn.add_subplot()
    axes.semilogy(losses, lw=1)
    axes.axhline(guessing, ls="--", color="#6B6B6B")
    axes.set_xlabel(label("step"))
    axes.set_ylabel(label("loss"))

# %% [markdown]
# `Recording` asked your model for four sentences at 32 of its steps, and kept its scores. **Before you go on:** what does it learn first, the
# beginning of a sentence or its noun? Drag the step of *your* run, and answer the question below it.

# %% tags=["hide-input"] jupyter={"source_hidden": true}
replayed = lambda language: watch_page(recording.data(), language, lesson=7)
show_page(replayed, label("Your training"), 1000)

# %% [markdown]
# ## It translates
#
# The decoder starts with `BOS` alone. Its likeliest next token is appended, again and again, until `EOS`.


# %%
def translate(source, longest):
    """Return the likeliest tokens (N, longest) from BOS on."""
    with mg.no_grad():
        memory, said = encode(p, source, HEADS, LAYERS), np.full((len(source), 1), BOS)
        while said.shape[1] < longest:
            logits = decode(p, said, memory, source, HEADS, LAYERS).data
            said = np.column_stack([said, logits[:, -1].argmax(-1)])
    ended = np.cumsum(said == EOS, axis=1) - (said == EOS) > 0
    return np.where(ended, PAD, said)


new, expected = ids_of(held_out)
said = translate(new, expected.shape[1])
for (chinese, _), row in list(zip(held_out, said))[:4]:
    print(" ".join(chinese), "→", " ".join(target_words.decode(row)))
right = (said == expected).all(1).mean()

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(right > 0.98, "new sentences translated without an error: {:.1%}", right)

# %% [markdown]
# ## What it attends to
#
# Put in a sentence of your own, of words of the corpus. Each word of the translation divides its cross-attention among the
# words of the sentence, in each of the four heads.

# %%
sentence = "我 有 一只 猫"
words = sentence.split()
one = np.array([source_words.encode(words)])
model.load_state_dict({name: t.data for name, t in p.items()})
model.eval()
row = translate(one, 20)[0]
english = target_words.decode(row)
print(sentence, "→", " ".join(english))
ids = np.array(target_words.encode(english, eos=True))
cross = nn.attention_maps(model, one, ids)["cross"][0]  # (h, L_t, L_s)
if sentence == "我 有 一只 猫":
    most = cross[:, english.index("cat"), words.index("猫")].max()
    check(most > 0.5, "largest weight of 猫 for cat in a head: {:.2f}", most)

# %% tags=["hide-input"] jupyter={"source_hidden": true}
tokens = [*english, "<eos>"]
titles = ("head 1", "head 2", "head 3", "head 4")
steps = [("weight", weights, title) for weights, title in zip(cross, titles)]
with figure(
    12, 2.4, "Weights of the words of the source for each word of the translation."
) as drawn:
    growing(drawn, tokens, steps, numbers=True)
    for axes in drawn.axes:
        axes.set_xticks(range(len(words)), words)

# %% [markdown]
# The explorer opens on the word of the translation that your model is least certain of: the colours show which weights make this
# word more or less probable. Choose another word, or its most probable alternative. Below, one head changes in ten steps that
# make the word more probable. Then choose *forward* and a head, and point at a word: here are the weights themselves.

# %% tags=["hide-input"] jupyter={"source_hidden": true}
options = {"title": sentence, "vocabulary": target_words.tokens, "backward": True}
explored = lambda language: nn.explore(model, one, words, ids, tokens, language=language, **options)
show_page(explored, sentence)

# %% [markdown]
# A weight says where a head reads, not what it does with it. Lesson 1 shows how to find that out: forbid the connection
# and see whether the answer changes.
#
# ## What you have now
#
# About a hundred lines of yours read, learn and translate, and agree with `nn.Transformer` in every gradient. The library
# adds speed, dropout, a cache for decoding, beams and checks; the parts are these. The next cell saves your model, so that
# `minigrad translate runs/build_a_transformer "我 有 一只 猫"` can use it.
#
# The same parts in the library are files that one reads in an evening: [Read the code in an
# evening](../reading.md#the-transformer) lists them in order, from the layers to the loop of training.
# These are the lines of the encoder layer, which you wrote in part 5:

# %%
layer = nn.TransformerEncoderLayer
print(inspect.getsource(layer.residual), inspect.getsource(layer.forward), sep="\n")

# %%
translator = nn.Translator(model, source_words, target_words, SpaceTokenizer(), SpaceTokenizer())
translator.save("runs/build_a_transformer")
with Path("runs/build_a_transformer/watch.json").open("w", encoding="utf-8") as file:
    json.dump(recording.data(), file)
nn.save_weights("runs/build_a_transformer/best.safetensors", model)
