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
# # 8 · Your own text
#
# *Once upon a time a donkey named Edith lived near an old mill.* A program can continue this, letter by letter, after
# nothing but one text has been shown to it. **How much does a model learn from a text, and how does one say it in a number
# that means something?**
#
# In this lesson you train a language model on a text of your choice, in about ten seconds. You measure in bits how well
# it knows the text, and let it write. Then you turn the three knobs of every training: batch size, learning rate and
# depth. The whole lesson takes less than a minute on a laptop, and about five minutes in the browser, where products
# of matrices take longer.
#
# Write the name of a text file (UTF-8) into the next cell, or paste the text itself between three quotation marks. It should
# have 50,000 characters or more. Without a text, the lesson takes 170 fables that a small grammar generates.

# %% tags=["hide-input"] jupyter={"source_hidden": true}
import os

# %%
YOUR_TEXT = os.environ.get("YOUR_TEXT", "")
BATCH_SIZE, RATE, LAYERS = 8, 1e-2, 2  # the knobs

# %% tags=["hide-input"] jupyter={"source_hidden": true}
import zlib
from pathlib import Path

import numpy as np
from exercises.your_text import grade, solution
from fables import tales
from grading import check
from labels import label
from pictures import COLOUR, figure

import minigrad as mg
import nn
from minigrad.optim import Adam, cosine_schedule
from nn.fit import TrainingLoop

# %%
# The checks and the text below are about our text and our knobs.
changed = YOUR_TEXT or (BATCH_SIZE, RATE, LAYERS) != (8, 1e-2, 2)
text = YOUR_TEXT or tales()
if len(text) < 1000:  # the name of a file
    text = Path(text).read_text("utf-8")
if len(text) < 10_000:
    raise ValueError(f"the text must have at least 10,000 characters, got {len(text):,}")
letters = sorted(set(text))
index = {letter: i for i, letter in enumerate(letters)}
encode = lambda text: np.array([index[letter] for letter in text])
decode = lambda ids: "".join(letters[i] for i in ids)
V, LENGTH = len(letters), 64
known, new = np.split(encode(text), [len(text) * 9 // 10])  # to learn from, and held out
print(label("{:,} letters, {} different", len(text), V))
print(text[:250])

# %% [markdown]
# ## A text in pieces
#
# Every character is a letter here, also a space or the end of a line. A language model reads some letters and gives a
# probability to each letter that may come next. So a piece of 65 letters holds 64 tasks: after the first letter comes the
# second, after the first two comes the third, and so on. The targets are the letters that were read, shifted by one.
# `nn.LanguageModel.loss` makes the shift itself. It takes pieces with one letter more than the model reads.
#
# ### Exercise: pieces
#
# `ids` (n,) is the text, a number for each letter. `starts` (N,) are positions in it. From each start on, take
# `length` letters to read and one more.


# %%
def pieces(ids, starts, length):
    """Return the length + 1 letters from each start on, (N, length + 1)."""
    ...


pieces = grade(pieces, "pieces")

# %% tags=["hide-output"] jupyter={"outputs_hidden": true}
# Run this cell to see a solution. A script prints it if it runs with --solutions.
solution("pieces")

# %%
(piece,) = pieces(known, np.array([0]), 9)
for t in range(1, 10):
    print(f"{decode(piece[:t])!r:>12} → {letters[piece[t]]!r}")

# %% [markdown]
# ## What a loss means
#
# The loss is the mean of $-\log p$, where $p$ is the probability of the right letter (lesson 7). With the logarithm to base 2
# it has a unit, the *bit*. A letter with $p = 1/2$ costs 1 bit, one with $p = 1/8$ costs 3 bits: so many questions with the
# answer yes or no find one of 8 things that are equally likely. It is also a size. A program that compresses a file can
# store each letter in $-\log_2 p$ bits, if a model gives it the probabilities.
#
# ### Exercise: bits
#
# `log_p` (N, L, V) are the natural logarithms of the probabilities of all V letters, after each of the L letters that were
# read. `pieces` (N, L + 1) are the letters. Return how many bits the right letter costs on average.


# %%
def bits(log_p, pieces):
    """Return the mean number of bits for the next letter; log_p is (N, L, V) and pieces (N, L + 1)."""
    ...


bits = grade(bits, "bits")

# %% tags=["hide-output"] jupyter={"outputs_hidden": true}
# Run this cell to see a solution. A script prints it if it runs with --solutions.
solution("bits")

# %% [markdown]
# What would a letter cost without a network? Three guesses, from worse to better. All letters are equally likely. Letters are as
# likely as they are frequent. Letters are as likely as they are frequent after the letter before. All counts start at 1, so that
# nothing is impossible. The last number is what `zip` needs for the whole text.

# %%
held_out = pieces(new, np.arange(0, len(new) - LENGTH, LENGTH)[:200], LENGTH)
count, pair = np.ones(V), np.ones((V, V))
np.add.at(count, known, 1)
np.add.at(pair, (known[:-1], known[1:]), 1)
guesses = {
    "equal probabilities": np.full((V, V), 1 / V),
    "by frequency": np.tile(count / count.sum(), (V, 1)),
    "by the letter before": pair / pair.sum(1, keepdims=True),
}
costs = {name: bits(np.log(p)[held_out[:, :-1]], held_out) for name, p in guesses.items()}
costs["zip"] = 8 * len(zlib.compress(text.encode(), 9)) / len(text)
for name, cost in costs.items():
    print(f"{cost:.2f}", label(name))

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(
    abs(costs["equal probabilities"] - np.log2(V)) < 1e-6,
    "equal probabilities for {} letters: log₂ {} = {:.2f} bits",
    V,
    V,
    np.log2(V),
)

# %% [markdown]
# **Before you go on:** guess how many bits the network will need.
#
# ## It learns
#
# `TrainingLoop` is the loop of lesson 7: the loss of a batch, its gradients, a step of Adam. It is the file `nn/fit.py`
# ([Read the code in an evening](../reading.md) leads to it). The learning rate rises at first, then falls to 0.


# %%
def train(steps, batch_size=BATCH_SIZE, rate=RATE, layers=LAYERS):
    """Return a model trained on the known text, and the bits of each step."""
    rng = np.random.default_rng(0)
    config = nn.LanguageModelConfig(
        V, d_model=32, num_heads=4, num_layers=layers, d_ff=128, dropout=0.0, max_len=LENGTH
    )
    model = nn.LanguageModel(config, rng)

    def batches(epoch):
        for _ in range(steps):
            starts = rng.integers(len(known) - LENGTH, size=batch_size)
            yield (pieces(known, starts, LENGTH),)

    optimizer = Adam(model.parameters(), lr=rate, clip_norm=1.0)
    schedule = cosine_schedule(steps, warmup=steps // 10)
    losses = TrainingLoop(model, optimizer, batches, rate=schedule, max_epochs=1).fit()
    return model, np.array(losses) / np.log(2)


def measure(model):
    """Return the bits of a model on text that it has not seen."""
    with mg.no_grad():
        return bits(mg.log_softmax(model(held_out[:, :-1])).data, held_out)


STEPS = 3000
model, curve = train(STEPS)
cost = measure(model)
print(
    label("{:,} parameters, {:,} letters read", model.num_parameters(), STEPS * BATCH_SIZE * LENGTH)
)

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(
    changed or cost < costs["zip"] / 2,
    "new text costs {:.2f} bits a letter; the last pieces of known text cost {:.2f}",
    cost,
    curve[-20:].mean(),
)

with figure(
    4.7, 3.2, "The bits of each step: they fall below each of the four dashed lines."
) as drawn:
    axes = drawn.add_subplot()
    axes.plot(curve, color=COLOUR["output"], lw=1.2)
    for name, value in costs.items():
        axes.axhline(value, ls="--", lw=1, color="#6B6B6B")
        axes.text(len(curve), value + 0.06, label(name), ha="right", va="bottom")
    axes.set_ylim(0, 1.15 * max(costs.values()))
    axes.set_xlabel(label("step"))
    axes.set_ylabel(label("bits a letter"))

# %% [markdown]
# The curve passes the three guesses one after the other: the model first learns which letters are frequent, then which
# follow each other, then words and sentences. At the end it needs less than half of the bits of `zip`. The fables are
# easy, since a grammar made them. What people write is harder: new pages of this documentation, 126,000 letters in all,
# cost 4.0 bits after the same training, and pages that the model had read 2.8.
#
# So compare the two numbers. If new text costs much more than known text, the model has learned the known text by heart, and
# more text helps, or fewer steps. If both cost much, more steps help, or a larger model.
#
# ## It writes
#
# The model gives probabilities. Which letter should it take? Always the likeliest, and it repeats itself. One that is drawn by
# the probabilities, and it makes mistakes. Between the two there is one number, the **temperature** $T$: divide the logits by
# it before softmax. Below 1 likely letters become likelier, above 1 all become more alike.
#
# ### Exercise: sample
#
# Each row of `logits` (N, V) gives probabilities, the softmax of the logits divided by the temperature. Lay them side by
# side, in the order of the letters: they fill the line from 0 to 1. Return for each row the letter in whose part the random
# number `u` (N,) lies. Subtract the largest value first, as in every softmax.


# %%
def sample(logits, temperature, u):
    """Return the letter (N,) in whose part of the line from 0 to 1 the number u (N,) lies."""
    ...


sample = grade(sample, "sample")

# %% tags=["hide-output"] jupyter={"outputs_hidden": true}
# Run this cell to see a solution. A script prints it if it runs with --solutions.
solution("sample")


# %%
def write(prompt, length, temperature, rows=8):
    """Return texts (rows, L) that continue a prompt."""
    rng = np.random.default_rng(0)
    written = np.tile(encode(prompt), (rows, 1))
    for _ in range(length):
        with mg.no_grad():
            logits = model(written[:, -LENGTH:]).data[:, -1]
        written = np.column_stack([written, sample(logits, temperature, rng.random(rows))])
    return written


PROMPT = text[:40] if YOUR_TEXT else "Once upon a time a "
RUN = 6  # letters in a row
runs_of = lambda text: {text[i : i + RUN] for i in range(len(text) - RUN + 1)}
in_text, rates = runs_of(text), {}
for temperature in (0.1, 0.7, 1.0, 1.5, 3.0):
    texts = [decode(row[len(PROMPT) :]) for row in write(PROMPT, 250, temperature)]
    written = set().union(*map(runs_of, texts))
    rates[temperature] = len(written & in_text) / len(written)
    summary = "T = {}: {:,} different runs of 6 letters, {:.0%} of them in the text"
    print("---", label(summary, temperature, len(written), rates[temperature]))
    print(PROMPT + texts[0] + "\n")

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(
    changed or rates[0.1] > 0.9 > 0.3 > rates[3.0],
    "runs of 6 letters that are in the text: {:.0%} at T = 0.1, {:.0%} at T = 3",
    rates[0.1],
    rates[3.0],
)

# %% [markdown]
# At a low temperature nearly all runs of 6 letters are in the text, and they soon repeat. At a high one hardly any is. Programs
# that write often use 0.7 to 1. Look at the story, too: its animal changes from sentence to sentence. The model sees 64 letters, and
# does not copy reliably what is in them. Lesson 9 shows what a model needs to copy a word.
#
# The next picture shows the temperature for one letter, the first after the prompt.

# %% tags=["hide-input"] jupyter={"source_hidden": true}
with mg.no_grad():
    logits = model(encode(PROMPT)[None, -LENGTH:]).data[0, -1]
likely, visible = np.argsort(-logits)[:9], {" ": "␣", "\n": "↵"}
with figure(
    4.7, 2.8, "Probabilities of the next letter: one high bar at T = 0.3, even bars at T = 3."
) as drawn:
    axes = drawn.add_subplot()
    for i, (temperature, kind) in enumerate(zip((0.3, 1, 3), ("query", "output", "key"))):
        p = mg.softmax(logits / temperature).data[likely]
        at = np.arange(len(likely)) + 0.27 * (i - 1)
        axes.bar(at, p, 0.27, color=COLOUR[kind], label=f"T = {temperature}")
    axes.set_xticks(range(len(likely)), [visible.get(letters[i], letters[i]) for i in likely])
    axes.set_ylabel(label("probability"))
    axes.legend(frameon=False)

# %% [markdown]
# Each new letter reads the last 64 letters again. As long as no letter drops out, their keys and values stay the same, since no
# letter sees those after it. `nn.generate` keeps them, and computes only those of the new letter:
#
# ![With a cache, each new token computes one query, key and value; the keys and values of earlier tokens are kept.](../pictures/cache.svg)
#
# ## Turn the knobs
#
# The knobs are the same for every network. Turn them one at a time, in runs with a sixth of the letters. **Before you
# go on:** guess for each of the three which value is the best.
#
# - **Batch size**: pieces in a step. All runs read the same number of letters, so small batches take more steps.
# - **Learning rate**: the size of a step.
# - **Depth**: the number of layers.

# %%
PIECES = 4000  # that each run reads
MIDDLE = {"batch_size": 8, "rate": 1e-2, "layers": 2}
KNOBS = {"batch_size": (4, 8, 32), "rate": (3e-4, 1e-2, 0.3), "layers": (1, 2, 4)}
NAMES = {"batch_size": "batch size", "rate": "learning rate", "layers": "depth"}
runs, done = {}, {}
for knob, values in KNOBS.items():
    for value in values:
        options = {**MIDDLE, knob: value}
        key = tuple(options.values())
        if key not in done:  # the middle values are one run
            other, losses = train(PIECES // options["batch_size"], **options)
            done[key] = losses, measure(other)
        runs[knob, value] = done[key]
        print(label(NAMES[knob]), value, label("{:.2f} bits", runs[knob, value][1]))
after = {key: cost for key, (_, cost) in runs.items()}

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(
    changed or after["batch_size", 4] < after["batch_size", 32],
    "batches of 4: {:.2f} bits; of 32, with as many letters: {:.2f}",
    after["batch_size", 4],
    after["batch_size", 32],
)
check(
    changed or after["rate", 1e-2] + 0.5 < min(after["rate", 3e-4], after["rate", 0.3]),
    "too small a rate: {:.2f} bits; too large a rate: {:.2f}",
    after["rate", 3e-4],
    after["rate", 0.3],
)
check(
    changed or after["layers", 1] < min(after["layers", 2], after["layers", 4]) + 0.3,
    "with 1, 2 and 4 layers: {:.2f}, {:.2f} and {:.2f} bits",
    *(after["layers", n] for n in KNOBS["layers"]),
)

with figure(
    9.2, 3.2, "The bits of nine runs by the letters read, for three values of each knob."
) as drawn:
    panels = drawn.subplots(1, 3, sharey=True)
    for axes, (knob, values) in zip(panels, KNOBS.items()):
        for value, kind in zip(values, ("query", "output", "key")):
            losses, _ = runs[knob, value]
            smooth = np.convolve(losses, np.full(20, 1 / 20), "valid")
            read = np.linspace(0, PIECES * LENGTH / 1000, len(smooth))
            axes.plot(read, smooth, color=COLOUR[kind], lw=1.2, label=f"{value:g}")
        axes.set_title(label(NAMES[knob]))
        axes.set_xlabel(label("thousand letters read"))
        axes.legend(frameon=False)
    panels[0].set_ylabel(label("bits a letter"))

# %% [markdown]
# The curves are means of 20 steps. **Small batches** win here: with as many letters, batches of 4 take 8 times as many
# steps as batches of 32. Their curve is less smooth, since each step sees less of the text. A computer that computes a
# large batch as fast as a small one saves time with large batches.
#
# **The rate** is the knob to turn first, in factors of 3 or 10. If it is too small, the model has hardly left its beginning. If it
# is too large, each step destroys what the one before has learned. Here only the frequencies of the letters are left.
#
# **Depth** needs time. After so few steps, more layers do not help much, if at all, and four are often far behind one:
# they learn later. With six times as many steps, models of 1, 2 and 4 layers cost 0.33, 0.28 and 0.27 bits, and the
# order is the reverse. Each layer takes the same time again, and the gain becomes smaller.
#
# ## What you have now
#
# A model of your own text, a number of bits that says how well it knows it, and a writer with one more number, its temperature.
# Set the knobs at the top of the notebook, and take a text of your own: another language, source code, or a play.
#
# The [appendix](../char_gpt.md) is a program for longer runs, `examples/char_gpt.py`. It trains a larger model with several
# processes, keeps the best weights, and can be interrupted. In lesson 9 you look inside a language model.
