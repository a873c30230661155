"""Self-attention, step by step and as matrices, and what "it" attends to.

"Thoughts on self-attention" (the text, 003_8f2a173a50e2ad60.txt): how to understand it, the five single steps, the
matrix form, several heads. The last section of the text, on segmentation, is open; lesson 6 fills it.

For the sentence of the text, "The animal didn't cross the street because it was too tired", nothing is drawn by
hand: a small encoder is trained on generated sentences to name the noun that "it" stands for. It never sees "animal"
and "street" in one sentence, and nobody tells it where to look.

    python examples/course/05_self_attention.py
"""

from __future__ import annotations

from lesson import Lesson  # first: Ctrl-C is one line from here on

# isort: split
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import minigrad as mg
import nn
from minigrad import optim
from minigrad.extras import require
from nn.inspection.style import SHADES

# -- sentences in which "it" must be understood ------------------------------------------------------------

ANIMALS = ("animal", "dog", "cat", "horse", "cow", "sheep", "fox", "goose")
PLACES = ("street", "road", "river", "bridge", "field", "lake", "path", "valley")
OF_ANIMALS = ("tired", "hungry", "scared", "lazy", "sick", "weak", "young", "sleepy")
OF_PLACES = ("wide", "long", "deep", "busy", "crowded", "icy", "muddy", "flooded")
FORMS = (
    "the {animal} didn't cross the {place} because it was too {word}",
    "the {place} stopped the {animal} because it was too {word}",
    "because it was too {word} the {animal} didn't cross the {place}",
    "the {place} was not crossed by the {animal} because it was too {word}",
)
TIRED, WIDE = (
    FORMS[0].format(animal="animal", place="street", word=word) for word in ("tired", "wide")
)
WORDS = ["<pad>", *sorted(set(" ".join(FORMS).split()) - {"{animal}", "{place}", "{word}"}), *ANIMALS, *PLACES,
         *OF_ANIMALS, *OF_PLACES]  # fmt: skip
IDS = {word: i for i, word in enumerate(WORDS)}
LENGTH = 13  # of the longest sentence


def encode(sentences: Sequence[str]) -> np.ndarray:
    """Sentences as padded ids (N, 13)."""
    ids = [[IDS[word] for word in sentence.split()] for sentence in sentences]
    return np.array([row + [0] * (LENGTH - len(row)) for row in ids])


def corpus() -> tuple[list[str], np.ndarray, np.ndarray]:
    """All 4,096 sentences, the noun (an id) that "it" stands for in each, and which are held out from training.

    An animal is tired, a street is wide: the last adjective decides. Held out are all with "animal" and "street",
    and a fifth of the others.
    """
    sentences, nouns = [], []
    for form in FORMS:
        for animal in ANIMALS:
            for place in PLACES:
                for word in OF_ANIMALS + OF_PLACES:
                    sentences.append(form.format(animal=animal, place=place, word=word))
                    nouns.append(IDS[animal if word in OF_ANIMALS else place])
    both = np.array(["animal" in sentence and "street" in sentence for sentence in sentences])
    return (
        sentences,
        np.array(nouns),
        both | (np.random.default_rng(0).random(len(sentences)) < 0.2),
    )


def settings(d_model: int, num_heads: int, num_layers: int) -> nn.EncoderConfig:
    return nn.EncoderConfig(
        len(WORDS), d_model, num_heads, num_layers, 2 * d_model, dropout=0.0, norm_first=True, max_len=LENGTH,
        num_classes=len(WORDS),
    )  # fmt: skip


class Resolver(nn.EncoderClassifier):
    """An encoder that names the noun that "it" stands for, from what it made of the token "it"."""

    def __init__(self, config: nn.EncoderConfig, seed: int = 0) -> None:
        super().__init__(config, np.random.default_rng(seed))

    def forward(self, ids: Any, blocked: Any = None) -> mg.Tensor:
        """Scores of words (N, vocabulary); "it" may not attend to the positions `blocked` (N,)."""
        mask = np.repeat(nn.padding_mask_of(ids)[:, None], ids.shape[1], 1)  # (N, L, L)
        n, it = np.arange(len(ids)), where(ids, ["it"])
        if blocked is not None:
            mask[n, it, blocked] = False
        x = self.encoder(self.embedding(ids), mask[:, None])  # (N, L, d)
        return self.output(x[n, it])

    def answer(self, ids: np.ndarray, blocked: Any = None) -> np.ndarray:
        """The likeliest noun (N,)."""
        with mg.no_grad():
            return self(ids, blocked).data.argmax(-1)

    def looks(self, ids: np.ndarray) -> np.ndarray:
        """What "it" attends to, (N, layers, heads, L)."""
        with mg.no_grad(), nn.record_attention(self) as recorded:
            self(ids)
        n, it = np.arange(len(ids)), where(ids, ["it"])
        return np.stack([calls[0][n, :, it] for calls in recorded.values()], 1)


def where(ids: np.ndarray, words: Sequence[str]) -> np.ndarray:
    """The position of the first of these words in each sentence, (N,)."""
    return np.isin(ids, [IDS[word] for word in words]).argmax(1)


def train(model: Resolver, steps: int = 350, lr: float = 3e-3, seed: int = 0) -> Resolver:
    """Sentences that are not held out, 32 in a batch, and the cross-entropy of the noun."""
    sentences, nouns, held = corpus()
    ids, allowed = encode(sentences), np.flatnonzero(~held)
    optimizer = optim.Adam(model.parameters(), lr=lr, clip_norm=1.0)
    schedule = optim.Schedule(optimizer, optim.cosine_schedule(steps, warmup=20))
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        batch = rng.choice(allowed, 32)
        loss = mg.cross_entropy(model(ids[batch]), nouns[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    model.eval()
    return model


def what_it_stands_for(lesson: Lesson) -> Resolver:
    lesson.section('How to understand it: what "it" stands for')
    lesson.say(
        """The text's idea: we look at parts of a scene, and attention does so in weights between the parts, words of
        a sentence or pixels of an image. In "The animal didn't cross the street because it was too tired", the
        weights of "it" should help to find what "it" stands for. We train an encoder of two layers and two heads to
        name the noun, and then look at its weights."""
    )
    lesson.predict(
        'The word that decides is *tired* or *wide*: an animal is tired, a street is wide. To which words must "it" attend, to which need it not?',
        "To the adjective, which says of what kind the noun is, and to the nouns, to take the one of that kind; not necessarily in one step, nor to the noun that is not meant. What the model does is measured below.",
    )
    sentences, nouns, held = corpus()
    ids, nouns = encode(sentences)[held], nouns[held]
    model = train(Resolver(settings(32, 2, 2)))
    lesson.say(
        f"""Trained on {(~held).sum():,} of {len(held):,} sentences; {held.sum()} are held out, among them every one
        with both "animal" and "street"."""
    )
    right = (model.answer(ids) == nouns).mean()
    lesson.fact(
        'a model with self-attention finds what "it" stands for',
        right > 0.97,
        f"{right:.1%} of the held-out",
    )
    tired, wide = (WORDS[noun] for noun in model.answer(encode([TIRED, WIDE])))
    lesson.fact(
        "in the text's sentence it is the animal",
        tired == "animal",
        f'"... because it was too tired": {tired}',
    )
    lesson.fact("one word flips it", wide == "street", f'"... because it was too wide": {wide}')
    what_it_attends_to(lesson, model, ids, nouns)
    lesson.picture(
        "it.png",
        lambda path: draw_it(path, model),
        caption="What it attends to when the animal is too tired and when the street is too wide, in each head.",
        alt="Two heat maps of four heads by eleven words; the weight lies on animal in the first and on street in the second.",
    )
    return model


def what_it_attends_to(lesson: Lesson, model: Resolver, ids: np.ndarray, nouns: np.ndarray) -> None:
    animal, place, word = (
        where(ids, words) for words in (ANIMALS, PLACES, OF_ANIMALS + OF_PLACES)
    )  # (N,) each
    of_animal = np.isin(nouns, [IDS[a] for a in ANIMALS])
    noun, other = np.where(of_animal, animal, place), np.where(of_animal, place, animal)
    n, looks = np.arange(len(ids)), model.looks(ids)
    total = looks.sum((1, 2))  # (N, L), over layers and heads
    more = (total[n, noun] > total[n, other]).mean()
    lesson.fact(
        '"it" attends to the noun that it stands for more than to the other',
        more > 0.75 and total[n, noun].mean() > 2 * total[n, other].mean(),
        f"in {more:.0%} of the sentences; on average {total[n, noun].mean() / 4:.0%} of the weight against "
        f"{total[n, other].mean() / 4:.0%}, and {total[n, word].mean() / 4:.0%} for the adjective",
    )
    lesson.say(
        'Weights may only go along with an answer. So we forbid "it" to attend to one word, and count right answers:'
    )
    blocked = {"that noun": noun, "the other noun": other, "the adjective": word}
    rates = {name: float((model.answer(ids, at) == nouns).mean()) for name, at in blocked.items()}
    lesson.table(
        ['"it" may not attend to', "right answers"],
        [[name, f"{rate:.1%}"] for name, rate in rates.items()],
    )
    lesson.fact(
        "the connection to the right noun is what finds the answer",
        rates["that noun"] < 0.7 and rates["the other noun"] > 0.9,
        "without it the answer is lost; the other noun is not needed",
    )
    apart = (
        abs(looks[:, :, 0] - looks[:, :, 1]).sum(-1).max(1) / 2
    )  # (N,), total variation between the two heads
    lesson.fact(
        "the two heads attend to different positions",
        apart.mean() > 0.2,
        f"in one of the layers, {apart.mean():.0%} of their weight lies on different words",
    )


def draw_it(path: Path, model: Resolver) -> None:
    """What "it" attends to in both sentences: a row for each head of each layer."""
    figure = require("matplotlib.figure", "plotting").Figure(figsize=(9, 4.6), layout="constrained")
    for i, sentence in enumerate((TIRED, WIDE)):
        ids = encode([sentence])
        words = sentence.split()
        looks = model.looks(ids)[0].reshape(-1, LENGTH)[:, : len(words)]  # (layers · heads, L)
        axes = figure.add_subplot(2, 1, i + 1)
        image = axes.imshow(looks, cmap=SHADES, vmin=0, vmax=1, aspect="auto")
        axes.set_xticks(range(len(words)), words)
        axes.set_yticks(
            range(4),
            [f"layer {layer + 1}, head {head + 1}" for layer in range(2) for head in range(2)],
        )
        axes.tick_params(length=0)
        for at, label in enumerate(axes.get_xticklabels()):
            label.set_fontweight("bold" if words[at] in ("it", "animal", "street") else "normal")
        for (row, column), weight in np.ndenumerate(looks):
            if weight >= 0.1:
                axes.text(column, row, f"{weight:.2f}", ha="center", va="center", fontsize=8,
                          color="white" if weight > 0.6 else "black")  # fmt: skip
        axes.set_title(f"it = {WORDS[model.answer(ids)[0]]}", fontsize=11, loc="left")
    figure.colorbar(image, ax=figure.axes, label='attention of "it"', shrink=0.8)
    figure.savefig(path, dpi=150)


# -- the calculation -----------------------------------------------------------------------------------------

D_MODEL, D_K, D_V = 16, 8, 6


def softmax(scores: np.ndarray) -> np.ndarray:
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def single_steps(X: np.ndarray, W_Q: np.ndarray, W_K: np.ndarray, W_V: np.ndarray) -> np.ndarray:
    """Steps 2 to 5 of the text, word by word: X (L, d_model) to z (L, d_v)."""
    L, d_k = len(X), W_K.shape[1]
    q = [x @ W_Q for x in X]  # (2) one query (d_k,) for each word,
    k = [x @ W_K for x in X]  #     one key (d_k,),
    v = [x @ W_V for x in X]  #     one value (d_v,)
    z = []
    for i in range(L):
        similarity = [q[i] @ k[j] for j in range(L)]  # (3) a number for each word
        scaled = [s / np.sqrt(d_k) for s in similarity]  # (4) steady gradients,
        total = sum(np.exp(s) for s in scaled)
        S = [np.exp(s) / total for s in scaled]  #     and softmax: weights that sum to 1
        z.append(sum(S[j] * v[j] for j in range(L)))  # (5) the values, weighted
    return np.array(z)


def matrix_form(X: Any, W_Q: Any, W_K: Any, W_V: Any) -> Any:
    """The same in three lines; X may be a Tensor, and then so is the result."""
    Q, K, V = X @ W_Q, X @ W_K, X @ W_V  # (L, d_k), (L, d_k), (L, d_v)
    S = mg.softmax(Q @ K.T / np.sqrt(K.shape[1]))  # (L, L)
    return S @ V  # (L, d_v)


def the_single_steps(lesson: Lesson) -> tuple[np.ndarray, ...]:
    lesson.section("The calculation in single steps")
    lesson.say("""What does an attention layer do to come to such weights? The text takes it apart into five steps:
    (1) each word is a vector $x_i$; (2) three matrices make a query $q_i$, a key $k_i$ and a value $v_i$ of it; (3)
    a word's query times each key is the similarity of the two; (4) these are divided by $\\sqrt{d_k}$, and a
    softmax makes weights of them; (5) the values are added up by these weights.""")
    lesson.quote(
        "我们需要评估它和所有其他词向量相关性", "we must judge how it relates to all other words"
    )
    lesson.formula(
        r"s_{ij} = \frac{q_i \cdot k_j}{\sqrt{d_k}} \qquad S_{ij} = \frac{e^{s_{ij}}}{\sum_m e^{s_{im}}} \qquad z_i = \sum_j S_{ij} v_j"
    )
    lesson.code(single_steps)
    rng = np.random.default_rng(1)
    words = TIRED.split()
    embedding = nn.Embedding(len(WORDS), D_MODEL, dtype=float, generator=rng)
    X = embedding(encode([TIRED])[0, : len(words)]).data  # (L, d_model)
    W_Q, W_K, W_V = (rng.normal(0, D_MODEL**-0.5, (D_MODEL, width)) for width in (D_K, D_K, D_V))
    q, k, v = X @ W_Q, X @ W_K, X @ W_V
    lesson.fact(
        "(1) each word becomes a vector",
        X.shape == (len(words), D_MODEL),
        f"{len(words)} words: $X$ {X.shape}",
    )
    lesson.fact(
        "(1) the same word, the same vector",
        (X[0] == X[4]).all(),
        '"the" twice: without positions they are alike',
    )
    lesson.fact(
        "(2) $W^Q$, $W^K$ and $W^V$ make query, key and value of each",
        (q.shape, k.shape, v.shape) == ((11, D_K), (11, D_K), (11, D_V)),
        f"$q$ {q.shape}, $k$ {k.shape}, $v$ {v.shape}",
    )
    z = single_steps(X, W_Q, W_K, W_V)
    order = rng.permutation(len(words))
    lesson.fact(
        "(2) all words share the three matrices",
        np.allclose(single_steps(X[order], W_Q, W_K, W_V), z[order], rtol=1e-12),
        "words in another order give the same $z$ in that order",
    )
    leaves = [mg.Tensor(W, requires_grad=True) for W in (W_Q, W_K, W_V)]
    checked = mg.gradcheck(lambda *W: matrix_form(X, *W), leaves, elementwise=False)
    lesson.fact(
        "(2) the matrices are learned",
        checked,
        "the gradient of each agrees with finite differences",
    )
    the_similarity(lesson, q, k, v, z)
    return X, W_Q, W_K, W_V


def the_similarity(
    lesson: Lesson, q: np.ndarray, k: np.ndarray, v: np.ndarray, z: np.ndarray
) -> None:
    similarity = q @ k.T  # (L, L)
    lesson.fact(
        "(3) the similarity is a dot product, a number for each pair of words",
        similarity.shape == (11, 11),
    )
    lesson.erratum(
        "(3) and (5) the index of a similarity",
        "$S_i$ for the words $i$ and $j$, later $S_j$",
        "$S_{ij}$",
        not np.allclose(similarity, similarity.T),
        r"a number for each pair, and $q_i \cdot k_j$ is not $q_j \cdot k_i$: "
        f"{similarity[7, 1]:.2f} from it to animal, {similarity[1, 7]:.2f} back",
    )
    S = softmax(similarity / np.sqrt(D_K))  # (L, L)
    apart = np.where(np.eye(len(q), dtype=bool), -np.inf, similarity / np.sqrt(D_K))
    lesson.erratum(
        "(3) which words are compared",
        "all other words",
        "all words, the word itself among them",
        np.allclose(S @ v, z) and not np.allclose(softmax(apart) @ v, z, atol=0.01),
        f'"it" gives itself the weight {S[7, 7]:.2f}; $z$ changes if that is left out',
    )


def the_scale(lesson: Lesson) -> None:
    lesson.section("(4) Why the similarity is divided by the root of the key's size")
    lesson.say("""Why step (4) divides is the question of lesson 4. Here it is once more at the size of our
    sentence, eleven words, and with the derivatives that the text has in mind: of the weights by the similarities.""")
    rng = np.random.default_rng(2)
    table = []
    for d_k in (4, 16, 64, 256, 1024):
        scores = np.einsum(
            "nd,njd->nj", rng.standard_normal((4000, d_k)), rng.standard_normal((4000, 11, d_k))
        )
        slopes = []
        for scaled in (scores, scores / np.sqrt(d_k)):
            S = softmax(scaled)[:, :, None]  # (4000, 11, 1)
            jacobian = S * np.eye(11) - S * S.swapaxes(1, 2)  # dS_i/ds_j = S_i (δ_ij - S_j)
            slopes.append(float(np.sqrt((jacobian**2).sum((1, 2))).mean()))
        table.append((d_k, scores.var(), scores.var() / d_k, *slopes))
    _, variance, scaled, without, with_scale = np.array(table).T
    lesson.table(
        [
            "$d_k$",
            r"variance of $q \cdot k$",
            r"of $q \cdot k / \sqrt{d_k}$",
            "softmax gradient",
            r"with $\sqrt{d_k}$",
        ],
        [[d_k, f"{v:.1f}", f"{s:.3f}", f"{g:.4f}", f"{h:.4f}"] for d_k, v, s, g, h in table],
    )
    sizes = np.array([row[0] for row in table])
    lesson.fact(
        "similarities grow with the size of the key, and the root undoes it",
        np.allclose(variance / sizes, 1, atol=0.05) and np.allclose(scaled, 1, atol=0.05),
        "the variance of $q \\cdot k$ is $d_k$, that of $q \\cdot k / \\sqrt{d_k}$ is 1",
    )
    lesson.fact(
        "dividing by $\\sqrt{d_k}$ keeps gradients steady",
        np.ptp(with_scale) < 0.05 and without[-1] < without[0] / 3,
        f"from $d_k$ = 4 to 1024 the gradient goes from {without[0]:.2f} to {without[-1]:.2f} without it, from "
        f"{with_scale[0]:.2f} to {with_scale[-1]:.2f} with it",
    )


def the_result(
    lesson: Lesson, X: np.ndarray, W_Q: np.ndarray, W_K: np.ndarray, W_V: np.ndarray
) -> None:
    lesson.section("(4) and (5): weights, and the weighted values")
    z = single_steps(X, W_Q, W_K, W_V)
    S = softmax((X @ W_Q) @ (X @ W_K).T / np.sqrt(D_K))  # (L, L)
    lesson.fact(
        "(4) softmax normalises the similarities of each word",
        np.allclose(S.sum(-1), 1) and (S > 0).all(),
        "each row is positive and sums to 1",
    )
    v = X @ W_V
    inside = (z >= v.min(0) - 1e-12).all() and (z <= v.max(0) + 1e-12).all()
    lesson.fact(
        "(5) $z_i$ is the sum over $j$ of $S_{ij} v_j$",
        np.allclose(z[7], sum(S[7, j] * v[j] for j in range(11))),
    )
    lesson.fact(
        "(5) the weights scale the values: each $z$ is a mean of values",
        inside,
        "none leaves their range",
    )
    lesson.erratum(
        "(5) what $z_i$ is",
        'a "score"',
        "a vector",
        z[0].shape == (D_V,),
        f"of the size of a value, {z[0].shape}",
    )
    lesson.show('$z$ of "it"', z[7])


def the_matrix_form(
    lesson: Lesson, X: np.ndarray, W_Q: np.ndarray, W_K: np.ndarray, W_V: np.ndarray
) -> None:
    lesson.section("The calculation with matrices")
    lesson.say("""Word by word, every step is the same multiplication again. Put the words below each other as rows
    of a matrix, and each step is one product for all of them:""")
    lesson.code(matrix_form)
    z = single_steps(X, W_Q, W_K, W_V)
    gap = abs(matrix_form(X, W_Q, W_K, W_V).data - z).max()
    lesson.fact(
        "$\\softmax(QK^\\top / \\sqrt{d_k})\\,V$ is the five steps at once",
        gap < 1e-12,
        f"largest gap {gap:.0e}",
    )
    Q, K, V = (x[None] for x in (X @ W_Q, X @ W_K, X @ W_V))  # (1, L, d)
    heads = (x[None] for x in (Q, K, V))  # (1, 1, L, d): one sequence, one head
    for name, found in (
        ("`mg.scaled_dot_product_attention`", mg.scaled_dot_product_attention(*heads)[0]),
        ("`nn.DotProductAttention`", nn.DotProductAttention()(Q, K, V)),
    ):
        gap = abs(found.data[0] - z).max()
        lesson.fact(f"{name} is the same", gap < 1e-12, f"largest gap {gap:.0e}")


def several_heads(lesson: Lesson) -> None:
    lesson.section("Several heads")
    lesson.say("""In the sentence above "it" has to find an adjective and a noun. With one set of matrices it has
    one set of weights for both. So a layer has several, its heads; what they give, $Z_1$ to $Z_h$, is put side by
    side, and one more matrix, $W^O$, makes vectors of the old size of it.""")
    lesson.formula(r"Z = [Z_1 \; Z_2 \; \dots \; Z_h] \, W^O")
    rng = np.random.default_rng(3)
    heads, L = 4, 11
    attention = nn.MultiHeadSelfAttention(D_MODEL, heads, bias=False, dtype=float, generator=rng)
    X = rng.standard_normal((L, D_MODEL))
    d_k = attention.d_k  # 4
    Z = []
    for h in range(
        heads
    ):  # each head has matrices W^Q, W^K, W^V of its own: columns of the large ones
        own = slice(h * d_k, (h + 1) * d_k)
        W_Q, W_K, W_V = (
            p.weight.data[own].T for p in (attention.q_proj, attention.k_proj, attention.v_proj)
        )
        Z.append(single_steps(X, W_Q, W_K, W_V))  # (L, d_k)
    W_O = attention.out_proj.weight.data.T  # (h · d_k, d_model)
    result = np.concatenate(Z, 1) @ W_O  # (L, d_model)
    lesson.fact(
        "there are several sets of $W^Q$, $W^K$, $W^V$, and so several $Z$",
        len(Z) == heads and not np.allclose(Z[0], Z[1]),
        f"{heads} of {Z[0].shape}",
    )
    gap = abs(attention(X[None]).data[0] - result).max()
    lesson.fact(
        "$W^O$ makes one of them: the layer of the library is this",
        gap < 1e-12,
        f"largest gap {gap:.0e}",
    )
    net = nn.FeedForward(D_MODEL, 4 * D_MODEL, dtype=float, generator=rng)
    lesson.fact(
        "its result fits the input of the feed-forward net",
        net(result).shape == X.shape == result.shape,
        f"$Z$ side by side {(L, heads * d_k)} times $W^O$ {W_O.shape} is {result.shape}",
    )
    attention(X[None]).sum().backward()
    lesson.fact(
        "$W^O$ is trained too",
        abs(attention.out_proj.weight.grad.data).max() > 0,
        "it has a gradient",
    )


def main(argv: Sequence[str] | None = None) -> int:
    lesson = Lesson("05_self_attention", __doc__ or "", argv)
    lesson.source(
        "Thoughts on self-attention",
        "a blog's entry, in Chinese",
        "003_8f2a173a50e2ad60.txt",
        note="It was written after reading [The Illustrated Transformer](https://jalammar.github.io/illustrated-transformer/).",
    )
    what_it_stands_for(lesson)
    parts = the_single_steps(lesson)
    the_scale(lesson)
    the_result(lesson, *parts)
    the_matrix_form(lesson, *parts)
    several_heads(lesson)
    lesson.section("Self-attention for segmentation")
    lesson.say("The text leaves this section open. Lesson 6 is about it.")
    lesson.exercise(
        "Give `single_steps` a mask: an array of booleans (L, L) that says which $j$ each $i$ may use. Which line changes, and how do you test it?",
        "`S` is made only of the `j` with `mask[i, j]`; or, as the library has it, all other scores become $-\\infty$. Test it with the lower triangle: then $z_1$ does not change whatever you put into $x_2$ and those after it.",
    )
    lesson.exercise(
        "Block *it* from attending to the adjective, and see which sentences still come out right. Why any?",
        "Call `model.answer(ids, at)` with the adjective's place. Other words attend to it in the first layer, and *it* reads them in the second.",
    )
    return lesson.end()


if __name__ == "__main__":
    raise SystemExit(main())
