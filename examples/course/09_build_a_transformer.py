"""Build and train a Transformer yourself: from attention to every sentence right.

Nothing is left to a library here but arrays and their derivatives (lesson 0). The model, its training and its use are
the 120 lines of `by_hand.py`, which this lesson goes through, trains, holds against `nn` number by number, and asks
for 600 translations that it has never seen.

    python examples/course/09_build_a_transformer.py          half a minute; pictures in runs/build_a_transformer
"""

from __future__ import annotations

from lesson import Lesson, chinese_english  # first: Ctrl-C is one line from here on

# isort: split
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import by_hand
import numpy as np

import minigrad as mg
import nn
from minigrad.extras import require
from nn.text import SpaceTokenizer, Vocabulary, padded

D, D_FF, HEADS, LAYERS = 64, 128, 4, 1


class Corpus:
    """The sentences of the toy grammar: 600 are held out."""

    def __init__(self) -> None:
        pairs = [(s.split(), t.split()) for s, t in chinese_english(8000)]
        held = {*np.random.default_rng(0).permutation(len(pairs))[:600].tolist()}
        self.train = [pair for i, pair in enumerate(pairs) if i not in held]
        self.held_out = [pair for i, pair in enumerate(pairs) if i in held]
        self.source, self.target = (
            Vocabulary.build(pair[side] for pair in self.train) for side in (0, 1)
        )

    def ids(self, pairs: Sequence[Any]) -> tuple[np.ndarray, np.ndarray]:
        """Sources (N, L_s), and targets (N, L_t) from <bos> to <eos>."""
        return (
            padded([self.source.encode(s) for s, _ in pairs]),
            padded([self.target.encode(t, bos=True, eos=True) for _, t in pairs]),
        )


def the_task(lesson: Lesson, corpus: Corpus) -> None:
    lesson.section("The task")
    lesson.say(f"""A small grammar makes sentences like these. The model shall learn from {len(corpus.train):,} pairs, and then
    translate {len(corpus.held_out)} new ones. What it must learn is not word for word: Chinese has measure words, English has
    articles, plurals and `does`.""")
    lesson.listing("\n".join(f"{' '.join(s)}  →  {' '.join(t)}" for s, t in corpus.held_out[:4]))
    lesson.say(
        f"""Words become numbers, their places in a vocabulary: of {len(corpus.source)} Chinese and of
        {len(corpus.target)} English tokens. Four of them are not words: `<pad>` (0) fills short sentences up to
        the length of the longest, `<bos>` stands before a sentence, `<eos>` after it, and `<unk>` for words
        that are not known. A batch is two arrays of such ids."""
    )
    both = set(map(str, corpus.train)) & set(map(str, corpus.held_out))
    lesson.fact("no held-out sentence is learned from", not both and len(corpus.held_out) == 600)
    lesson.diagram("model", "What we are going to build.")


def the_attention(lesson: Lesson, p: by_hand.Parameters, rng: np.random.Generator) -> None:
    lesson.section("Attention")
    lesson.say("""All starts with one function. Each word asks a question, its query $q$; each word offers a key $k$
    and a value $v$. How well a question fits a key is their product; a softmax makes weights of that; the answer is
    the mean of the values by these weights.""")
    lesson.formula(
        r"\operatorname{Attention}(Q, K, V) = \operatorname{softmax}\left(\frac{QK^\top}{\sqrt{d_k}}\right) V"
    )
    lesson.diagram("head", "One head, with the shapes.")
    lesson.code(by_hand.softmax, by_hand.attention)
    lesson.say("""The heads are nothing but a reshape: $d$ features become $h$ groups of $d/h$, and the group
    becomes an axis that all products go along with.""")
    name = "encoder.layers.0.self_attention"
    x = mg.Tensor(rng.standard_normal((2, 5, D)).astype(np.float32))
    mask = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], bool)[:, None, None]
    layer = nn.MultiHeadAttention(D, HEADS)
    layer.load_state_dict(
        {key[len(name) + 1 :]: t.data for key, t in p.items() if key.startswith(name + ".")}
    )
    gap = np.abs(
        layer(x, mask=mask).data - by_hand.attention(p, name, x, x, mask, HEADS).data
    ).max()
    lesson.fact(
        "`nn.MultiHeadAttention` computes the same", gap < 1e-5, f"largest gap {gap:.0e} (float32)"
    )
    lesson.exercise(
        "Why are hidden scores set to $-10^9$ and not to 0?",
        "The softmax makes $e^0 = 1$ of a score of 0: a weight like any other. Of $-10^9$ it makes exactly 0.",
    )


def the_rest(
    lesson: Lesson, p: by_hand.Parameters, source: np.ndarray, target: np.ndarray
) -> nn.Transformer:
    lesson.section("The rest of the model")
    lesson.say(
        """Attention mixes words. The feed-forward net then works on each word by itself; a norm keeps the numbers
        at size 1; and each part is *added* to what was there, so that gradients pass. Before all this stands the
        embedding: a row of a table for each token, times $\\sqrt{d}$, because its numbers are drawn with variance
        $1/d$ and would be small beside the sines and cosines of the positions."""
    )
    lesson.formula(
        r"\operatorname{LayerNorm}(x) = \frac{x - \mu}{\sqrt{\sigma^2 + \epsilon}} \odot \gamma + \beta \qquad \operatorname{FFN}(x) = \max(x W_1 + b_1, 0) W_2 + b_2"
    )
    lesson.diagram("block", "A block of the encoder.")
    lesson.code(
        by_hand.linear,
        by_hand.norm,
        by_hand.feed_forward,
        by_hand.embed,
        by_hand.encode,
        by_hand.decode,
    )
    lesson.diagram(
        "masks", "The masks: the encoder has the first, the decoder's first attention the third."
    )
    lesson.say(
        """The loss asks of each place: how much probability did you give to the word that really comes next?"""
    )
    lesson.formula(r"L = -\frac{1}{n} \sum_{t} \log p(y_t \mid y_1 \dots y_{t-1}, x)")
    lesson.code(by_hand.loss)
    config = nn.TransformerConfig(
        len(p["source_embedding.tokens.weight"].data), len(p["output.bias"].data), d_model=D, num_heads=HEADS,
        num_encoder_layers=LAYERS, num_decoder_layers=LAYERS, d_ff=D_FF, dropout=0.0,
    )  # fmt: skip
    model = nn.Transformer(config)
    model.load_state_dict({name: t.data for name, t in p.items()})
    ours, theirs = by_hand.loss(p, source, target, HEADS, LAYERS), model.loss(source, target)
    lesson.predict(
        f"Before it has learned anything, what is the loss? The vocabulary has {len(p['output.bias'].data)} words.",
        f"About $\\log {len(p['output.bias'].data)} = {np.log(len(p['output.bias'].data)):.2f}$, the loss of guessing, and a little more, since the first weights are sure of nonsense: {ours.item():.2f}.",
    )
    lesson.fact(
        "`nn.Transformer` with the same weights has the same loss",
        np.isclose(ours.item(), theirs.item(), rtol=1e-5),
        f"here {ours.item():.6f}, there {theirs.item():.6f}",
    )
    ours.backward()
    theirs.backward()
    gaps = {
        name: float(np.abs(p[name].grad.data - q.grad.data).max())
        for name, q in model.named_parameters()
    }
    lesson.fact(
        "and the same gradients",
        max(gaps.values()) < 1e-5 and set(gaps) == set(p),
        f"of all {len(gaps)} parameters; the largest gap is {max(gaps.values()):.0e}",
    )
    for t in p.values():
        t.grad = None
    return model


def the_training(
    lesson: Lesson, p: by_hand.Parameters, source: np.ndarray, target: np.ndarray
) -> list[float]:
    lesson.section("Training")
    lesson.say(
        """The sentences are gone through in batches of 64, in another order each time; a pass over all of them is
        an *epoch*. Adam, by which the lessons before this one train, keeps two running averages for each parameter:
        of its gradient, and of the square of that. The step is one divided by the root of the other, so that each
        parameter moves at the same pace, whatever the size of its gradients. The hats undo that both averages start
        at 0. The learning rate $\\eta$ rises at first, when the averages are still poor, and falls towards the end."""
    )
    lesson.formula(
        r"m \leftarrow 0.9\,m + 0.1\,g \qquad v \leftarrow 0.98\,v + 0.02\,g^2 \qquad \theta \leftarrow \theta - \eta \frac{\hat{m}}{\sqrt{\hat{v}}}"
    )
    lesson.code(by_hand.adam, by_hand.train)
    losses = list(by_hand.train(p, source, target, HEADS, LAYERS, epochs=4, lr=3e-3))
    guessing = float(np.log(len(p["output.bias"].data)))
    lesson.picture(
        "loss.png", lambda path: draw_loss(path, losses, guessing),
        f"The loss of each of {len(losses)} steps; the dashed line is the loss of guessing.",
        "A curve of the loss on a logarithmic axis, which falls from above the line of guessing to below a hundredth.",
    )  # fmt: skip
    lesson.fact(
        "it learns",
        losses[0] > guessing > 1 > np.mean(losses[-20:]),
        f"the loss fell from {losses[0]:.2f} to {np.mean(losses[-20:]):.4f} in {len(losses)} steps",
    )
    return losses


def draw_loss(path: Path, losses: list[float], guessing: float) -> None:
    figure = require("matplotlib.figure", "plotting").Figure(figsize=(7, 3.4), layout="constrained")
    axes = figure.add_subplot()
    axes.semilogy(range(1, len(losses) + 1), losses, lw=1)
    axes.axhline(guessing, ls="--", color="#6B6B6B", lw=1)
    axes.text(len(losses), guessing, "guessing ", ha="right", va="bottom")
    axes.set_xlabel("step")
    axes.set_ylabel("loss (nats a word)")
    axes.grid()
    figure.savefig(path, dpi=150)


def the_translations(lesson: Lesson, p: by_hand.Parameters, corpus: Corpus) -> None:
    lesson.section("It translates")
    lesson.say(
        """Now the decoder is given `<bos>` alone. The likeliest token that comes out is read at the next step,
        until it is `<eos>`."""
    )
    lesson.code(by_hand.translate)
    source, target = corpus.ids(corpus.held_out)
    said = by_hand.translate(p, source, HEADS, LAYERS, target.shape[1])
    right = (said == target).all(1)
    lesson.listing(
        "\n".join(
            f"{' '.join(s)}  →  {' '.join(corpus.target.decode(ids))}"
            for (s, _), ids in list(zip(corpus.held_out, said))[:6]
        )
    )
    lesson.fact(
        "all 600 sentences that it has never seen are right",
        right.all(),
        f"{right.mean():.1%} without an error",
    )
    lesson.say("""The same model is what `examples/train_toy_translation.py` trains, with more layers, dropout,
    batches by length, a cache, and a beam. `nn` is these 120 lines made fast, checked, and general.""")


def the_look(lesson: Lesson, p: by_hand.Parameters, model: nn.Transformer, corpus: Corpus) -> None:
    lesson.section("What it looks at")
    model.load_state_dict({name: t.data for name, t in p.items()})
    model.eval()
    source, target = ["我", "有", "一只", "猫"], [*["I", "have", "a", "cat"], "<eos>"]
    read, said = (
        np.array([corpus.source.encode(source)]),
        np.array(corpus.target.encode(target[:-1], eos=True)),
    )
    maps = nn.attention_maps(model, read, said)
    cross = maps["cross"][0]  # (h, L_t, L_s)
    head = int(cross[:, 3, 3].argmax())
    page = nn.explore(
        model, read, source, said, target, title=" ".join(source), vocabulary=corpus.target.tokens
    )
    lesson.explorer(
        page,
        "The attention of the model that was just trained: choose a head, point at a word, open the matrix.",
    )
    lesson.fact(
        "to say cat, a head looks at 猫", cross[head, 3].argmax() == 3,
        f"head {head + 1} gives it {cross[head, 3, 3]:.2f} of its weight",
    )  # fmt: skip
    translator = nn.Translator(
        model, corpus.source, corpus.target, SpaceTokenizer(), SpaceTokenizer()
    )
    translator.save(lesson.out)
    nn.save_weights(lesson.out / "best.safetensors", model)
    lesson.say("""Words and weights lie now beside the pictures of this lesson, and other programs can use them:
    `python examples/translate.py runs/build_a_transformer "我 有 一只 猫"`.""")
    lesson.exercise(
        "Give `by_hand.py` a second layer, train again, and compare: does it need fewer steps?",
        "Set LAYERS = 2. It reaches the same, and each step takes more than one and a half times as long: this grammar needs one layer only.",
    )
    lesson.exercise(
        "Take the positions out of `embed` (return the table's rows alone). What does the encoder then make of the same words in another order?",
        "The same vectors in that other order: it sees a bag of words (lesson 2 measures it). The decoder still knows what comes before what, by its mask.",
    )


def main(argv: Sequence[str] | None = None) -> int:
    lesson = Lesson("build_a_transformer", __doc__ or "", argv)
    corpus, rng = Corpus(), np.random.default_rng(0)
    the_task(lesson, corpus)
    p = by_hand.new_parameters((len(corpus.source), len(corpus.target)), D, D_FF, LAYERS, rng)
    source, target = corpus.ids(corpus.train)
    the_attention(lesson, p, rng)
    model = the_rest(lesson, p, source[:64], target[:64])
    the_training(lesson, p, source, target)
    the_translations(lesson, p, corpus)
    the_look(lesson, p, model, corpus)
    return lesson.end()


if __name__ == "__main__":
    raise SystemExit(main())
