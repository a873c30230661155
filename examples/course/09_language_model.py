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
# # 9 · Inside a language model (optional)
#
# A language model reads a text and gives probabilities of its next word. Give it `apple river stone cloud apple river`,
# and it says `stone`, although it never saw these words in this order. **Which parts of the model copy the word, and how
# would you find out?**
#
# In this lesson you look inside in three ways: what the model would say after each layer, what each head looks at, and
# what the model says without a head. Use a published model and a text of your own. `hf download openai-community/gpt2
# --local-dir gpt2` downloads GPT-2 (550 MB), and `hf download HuggingFaceTB/SmolLM2-135M --local-dir smollm2` the smaller
# SmolLM2 (270 MB); both need `pip install tokenizers`. Write the directory into the next cell, or into the environment
# variable `LANGUAGE_MODEL`. Without a directory, the lesson trains a small model on texts that repeat.

# %% tags=["hide-input"] jupyter={"source_hidden": true}
import os

# %%
DIRECTORY = os.environ.get("LANGUAGE_MODEL", "")
PROMPT = "apple river stone cloud tiger window apple river stone cloud"

# %% tags=["hide-input"] jupyter={"source_hidden": true}
import numpy as np
from exercises.language_model import grade, solution
from grading import check
from labels import label
from language_model import open_model
from pictures import figure, growing, show_page

import minigrad as mg
import nn

# %%
model, encode, decode = open_model(DIRECTORY)
ids = np.array(encode(PROMPT))
words = [decode(word) for word in ids]
LAYERS, HEADS = model.config.num_layers, model.config.num_heads
with mg.no_grad(), nn.record_hidden(model) as hidden, nn.record_attention(model) as attention:
    p = mg.softmax(model(ids[None])).data[0]  # (L, vocabulary)
answers = p.argmax(-1)
answer = answers[-1]
print(label("{} layers of {} heads, {:,} parameters", LAYERS, HEADS, model.num_parameters()))
for i in np.argsort(-p[-1])[:5]:
    print(f"{p[-1, i]:6.1%} {decode(i)}")

# %% [markdown]
# ## What would it say now?
#
# Each layer adds something to the vector of each word. After the last layer, a normalization and a matrix make the scores
# of all words from it. Nothing forbids to do the same with the vector after an earlier layer, as if the rest did not
# exist. This is the *logit lens* of [nostalgebraist (2020)](https://www.lesswrong.com/posts/AcKRB8wDpdaN6v6ru/).
#
# ### Exercise: the lens
#
# `states` (layers, L, d) are the vectors after each layer. `norm` and `output` are the last steps of the model; they take
# and return arrays (…, d) and (…, vocabulary). At each position, return the probability of one word, given in `words` (L,).


# %%
def lens(states, norm, output, words):
    """Return the probability of words (L,) after each layer, (layers, L)."""
    ...


lens = grade(lens, "lens")

# %% tags=["hide-output"] jupyter={"outputs_hidden": true}
# Run this cell to see a solution. A script prints it if it runs with --solutions.
solution("lens")

# %%
states = np.stack([calls[0][0] for calls in hidden.values()][1:])  # the first are the embeddings
with mg.no_grad():
    norm, output = (lambda x: model.layers.norm(x).data), (lambda x: model.output(x).data)
    seen = lens(states, norm, output, answers)
gap = abs(seen[-1] - p.max(-1)).max()

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(gap < 1e-4, "after the last layer, the lens differs from the model by {:.0e}", gap)

# %%
print(f"{decode(answer)}:", *(f"{q:.0%}" for q in seen[:, -1]))

# %% tags=["hide-input"] jupyter={"source_hidden": true}
layers = [str(i + 1) for i in range(LAYERS)]
height = 1 + 0.25 * LAYERS
steps = [("output", seen, "lens")]
with figure(4, height, "The probability of the model's answers after each layer.") as drawn:
    growing(drawn, layers, steps)

# %% [markdown]
# Rows are layers, columns are positions, and dark is a high probability of what the model says in the end. Somewhere on the
# way down a column turns dark: there the answer is found. In our small model this is in the last layer, and only where the
# text repeats; the words before cannot be known.

# %%
first = np.array([word not in ids[:i] for i, word in enumerate(ids)])  # read for the first time

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(
    DIRECTORY or seen[-1, ~first].min() > 0.9 > 0.5 > seen[-2, ~first].max(),
    "where it repeats: {:.0%} or more after the last layer",
    seen[-1, ~first].min(),
)

# %% [markdown]
# ## Who looks at the word?
#
# To copy `tiger` after the second `cloud`, something must find the first `cloud` and read the word after it. Only attention
# moves anything from one position to another. So look for a head whose weights go to *the position after the same word*. Such
# heads are called **induction heads** ([Olsson et al., 2022](https://arxiv.org/abs/2209.11895)).
#
# ### Exercise: heads that copy
#
# `weights` (h, L, L) are those of the heads of a layer, a row for each query, and `ids` (L,) are the words. For each head,
# return the mean weight that a word gives to the position after its last earlier occurrence. Words that are new in the
# text do not count.


# %%
def copying(weights, ids):
    """Return the mean weight (h,) of repeated words for the position after their earlier occurrence."""
    ...


copying = grade(copying, "copying")

# %% tags=["hide-output"] jupyter={"outputs_hidden": true}
# Run this cell to see a solution. A script prints it if it runs with --solutions.
solution("copying")

# %%
copies = np.stack([copying(calls[0][0], ids) for calls in attention.values()])  # (layers, heads)
layer, head = np.unravel_index(copies.argmax(), copies.shape)

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(
    DIRECTORY or (layer == LAYERS - 1 and copies[layer, head] > 0.5),
    "layer {}, head {}: {:.0%} of the weight",
    layer + 1,
    head + 1,
    copies[layer, head],
)

steps += [("weight", copies, "copying")]
with figure(7, height, "Beside it, the weight of each head for the word to copy.") as drawn:
    growing(drawn, layers, steps)

# %% [markdown]
# ## Silence
#
# A weight does not show what a head is worth: lesson 3 took the heads away to find out. So silence each head, which
# means that its output is multiplied by a *gate* of 0, and look how far the logarithm of the probability of the
# answer falls. A batch of the same text with another gate in each row needs one pass for each layer.

# %%
NAMES = list(attention)


def log_p(gates, rows=1):
    """Return the logarithm of the probability of the answer (N,) with the gates of some attentions."""
    with mg.no_grad(), nn.gate_heads(model, gates):
        return mg.log_softmax(model(np.tile(ids, (rows, 1)))[:, -1]).data[:, answer]


whole = np.log(p[-1, answer])
gap = abs(log_p({name: np.ones(HEADS) for name in NAMES}) - whole).max()

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(gap < 1e-4, "gates of 1 change the logarithm by {:.0e}", gap)

# %%
falls = np.stack([whole - log_p({name: 1 - np.eye(HEADS)}, HEADS) for name in NAMES])
for i in np.argsort(-falls.ravel())[:5]:
    at = np.unravel_index(i, falls.shape)
    text = "layer {}, head {}: falls by {:.2f}, copies {:.0%}"
    print(label(text, at[0] + 1, at[1] + 1, falls[at], copies[at]))

# %% tags=["hide-input"] jupyter={"source_hidden": true}
steps += [("output", np.maximum(falls, 0), "fall without the head")]
with figure(10, height, "Beside them, how far the answer falls without each head.") as drawn:
    growing(drawn, layers, steps)

# %% [markdown]
# In our small model, no head counts alone. Two heads of the second layer copy, and each replaces the other. Is the first
# layer of no use? What a head is worth alone is not what the layer is worth; lesson 11 measures this. At the second
# `cloud`, the copying head must find the first `tiger`, because a `cloud` comes before it. Nothing in the vector of
# `tiger` says so, unless the first layer has put it there. So look for heads that look one position back, and silence them
# together.

# %%
back = np.stack([np.diagonal(calls[0][0], -1, 1, 2).mean(-1) for calls in attention.values()])
gates = np.where(back[0] > 0.3, 0.0, 1.0)
together = float(whole - log_p({NAMES[0]: gates})[0])

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(
    DIRECTORY or falls[0].max() < 0.5 < 2 < together,
    "heads of layer 1, silent alone: falls by {:.2f} at most; {} together: {:.2f}",
    falls[0].max(),
    int((gates == 0).sum()),
    together,
)

steps += [("weight", back, "one back")]
with figure(12, height, "Beside them, the weight of each head for the word before.") as drawn:
    growing(drawn, layers, steps)

# %% [markdown]
# And the copying head: where does it look without them?

# %%
with mg.no_grad(), nn.gate_heads(model, {NAMES[0]: gates}), nn.record_attention(model) as changed:
    model(ids[None])
after = copying(changed[NAMES[layer]][0][0], ids)[head]

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(
    DIRECTORY or after < copies[layer, head] / 2,
    "layer {}, head {} copies with {:.0%} of its weight, without them {:.0%}",
    layer + 1,
    head + 1,
    copies[layer, head],
    after,
)

# %% [markdown]
# So the answer needs two steps in two layers: the first writes into each position which word came before, the second finds
# the position where that was the present word. A single silent head shows this only where no other stands in for it.
#
# ## Your sentence
#
# Choose a layer and a head, and point at a word.

# %% tags=["hide-input"] jupyter={"source_hidden": true}
explored = lambda language: nn.explore(model, ids, words, title=PROMPT, language=language)
show_page(explored, PROMPT)

# %% [markdown]
# ## What you have now
#
# Three questions for any model: what would it say after each layer (`nn.record_hidden`), where does each head look
# (`nn.record_attention`), and what changes without it (`nn.gate_heads`)? And a circuit of two steps, found with them. Change
# `PROMPT`, and ask again.
