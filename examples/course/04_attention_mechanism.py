r"""The attention mechanism: why each part of its formula is there, and three classes that compute it.

The text is "Attention mechanism" (注意力机制, file 002_e474a81b09e7fe02.txt): sequences as $N \times L \times D$, why a
linear map, why $\sqrt{d_k}$, several heads, masks, einsum, and the classes `MultiHeadAttention`,
`MultiHeadSelfAttention` and `MultiHeadCrossAttention`. Lesson 3 said what attention computes; this one asks of each
part why it is there. The formula runs as the text prints it, by einsum, beside the classes of `nn`, and each reason is
measured.

    python examples/course/04_attention_mechanism.py            a few seconds
"""

from __future__ import annotations

from lesson import Lesson  # first: Ctrl-C is one line from here on

# isort: split
import itertools
from collections.abc import Sequence
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np

import minigrad as mg
import nn
from minigrad.extras import require
from nn.inspection.plots import mask_picture
from nn.inspection.style import SHADES
from nn.text import BOS, Vocabulary, WordTokenizer, padded

N, L, D, H = 2, 5, 16, 4  # sequences in a batch, tokens in a sequence, features of a token, heads
D_K = D // H  # features of a token in a head


def attention(Q: np.ndarray, K: np.ndarray, V: np.ndarray) -> np.ndarray:
    """softmax(Q Kᵀ / √d_k) V, of (L_Q, d_k), (L_KV, d_k) and (L_KV, d_v): (L_Q, d_v)."""
    return softmax(Q @ K.T / sqrt(K.shape[1])) @ V


def softmax(z: np.ndarray) -> np.ndarray:
    """The text's definition, e^z_i / Σ_j e^z_j, over the last axis."""
    return np.exp(z) / np.exp(z).sum(-1, keepdims=True)


def multi_head_formula(
    layer: nn.MultiHeadAttention,
    x_q: Any,
    x_k: Any,
    x_v: Any,
    padding_mask: Any = None,
    attention_mask: Any = None,
) -> mg.Tensor:
    """The text's forward, line by line, with the four linear maps of one of our layers.

    x_q is (N, L_Q, D), x_k and x_v (N, L_KV, D). The masks (N, L_KV) and (L_Q, L_KV) hide where they are 0.
    """
    (N, L_Q, D), L_KV = x_q.shape, x_k.shape[1]
    h, d_k = layer.num_heads, layer.d_model // layer.num_heads
    Q = layer.q_proj(x_q).reshape(N, L_Q, h, d_k)
    K = layer.k_proj(x_k).reshape(N, L_KV, h, d_k)
    V = layer.v_proj(x_v).reshape(N, L_KV, h, d_k)
    score = mg.einsum("nihd,njhd->nijh", Q, K) / d_k**0.5  # (N, L_Q, L_KV, h)
    if attention_mask is not None:
        score = score.masked_fill(np.reshape(attention_mask, (1, L_Q, L_KV, 1)) == 0, -np.inf)
    if padding_mask is not None:
        score = score.masked_fill(np.reshape(padding_mask, (N, 1, L_KV, 1)) == 0, -np.inf)
    score = mg.softmax(score, axis=2)  # over the keys j
    value = mg.einsum("nijh,njhd->nihd", score, V).reshape(N, L_Q, D)
    return layer.out_proj(value)


def gap(a: Any, b: Any) -> float:
    """The largest difference between two arrays or tensors."""
    return float(
        np.abs(np.asarray(getattr(a, "data", a)) - np.asarray(getattr(b, "data", b))).max()
    )


# -- sequences -----------------------------------------------------------------------------------------


def sequence_modelling(lesson: Lesson, rng: np.random.Generator) -> None:
    lesson.section(r"Sequence modelling: $N \times L \times D$")
    lesson.quote(
        "对序列中的每个位置预测下一个位置的概率",
        "to predict, for each position of a sequence, the probability of the next",
    )
    lesson.say("""A model that does this is called a *language model*. It has to say more than one thing at a time:
    for each place, how likely each token of its vocabulary is to come next. The probability of a whole sequence is
    the product of those:""")
    lesson.formula(r"p(x) = \prod_{t} p(x_t \mid x_1 \dots x_{t-1})")
    texts = ["the cat sees the dog", "the dog sleeps"]
    tokens = [WordTokenizer()(text) for text in texts]
    vocab = Vocabulary.build(tokens)
    ids = padded([vocab.encode(t) for t in tokens])  # (N, L)
    table = nn.Embedding(len(vocab), D, dtype=float, generator=rng)
    x = table(ids)  # (N, L, D)
    lesson.show("token ids, 0 where padded", ids)
    lesson.fact(
        "A text is cut into discrete symbols, the tokens",
        [vocab.decode(row) for row in ids] == tokens,
        f"{tokens[1]}",
    )
    one_hot = np.eye(len(vocab))[ids]  # (N, L, vocabulary)
    lesson.fact(
        "An embedding layer maps symbols to a space of $D$ dimensions",
        np.allclose(x.data, np.einsum("nlv,vd->nld", one_hot, table.weight.data)),
        "it looks up rows of a table, which is a product with one-hot vectors: all 0, but for a 1 at the token's id",
    )
    lesson.fact(
        "The input is a tensor $N \\times L \\times D$",
        x.shape == (2, 5, D),
        f"{x.shape}: sequences, tokens, features",
    )

    language_model(lesson, rng)


def language_model(lesson: Lesson, rng: np.random.Generator) -> None:
    config = nn.LanguageModelConfig(5, D, H, 2, 2 * D, dropout=0.0, dtype="float64")
    model = nn.LanguageModel(config, rng)
    every = np.array(
        list(itertools.product(range(5), repeat=3))
    )  # all 125 sequences of three of five symbols
    read = np.column_stack(
        [np.full(len(every), BOS), every[:, :2]]
    )  # (125, 3): shifted by one, after <bos>
    p = softmax(
        model(read).data
    )  # (125, 3, 5): at each position, the probability of each next symbol
    chosen = np.take_along_axis(p, every[:, :, None], 2)[..., 0]  # (125, 3): p(x_t | x_1 … x_t-1)
    lesson.fact(
        "A language model gives, at each position, the probability of the next",
        p.shape == (125, 3, 5) and np.allclose(p.sum(-1), 1), "`nn.LanguageModel`: (N, L) to (N, L, vocabulary)",
    )  # fmt: skip
    lesson.fact(
        "So it models the sequence: $p(x) = \\prod_t p(x_t \\mid x_1 \\dots x_{t-1})$", abs(chosen.prod(1).sum() - 1) < 1e-12,
        f"over all 125 sequences of 3 of 5 symbols, this sums to {chosen.prod(1).sum():.12f}",
    )  # fmt: skip
    ids = np.array([[BOS, 4, 3, 4]])
    by_hand = -np.log(
        np.take_along_axis(softmax(model(ids[:, :-1]).data), ids[:, 1:, None], 2)
    ).mean()
    lesson.fact(
        "That is what it is trained for",
        np.isclose(model.loss(ids).item(), by_hand),
        "the loss is the mean of $-\\log p$",
    )


# -- attention -----------------------------------------------------------------------------------------


def attention_formula(lesson: Lesson, rng: np.random.Generator) -> None:
    lesson.section("The formula of attention")
    lesson.quote(
        "通过查询、键的匹配得分为值分配权重",
        "the scores of queries against keys give the values their weights",
    )
    lesson.formula(
        r"\operatorname{Attention}(Q, K, V) = \operatorname{softmax}\left(\frac{QK^\top}{\sqrt{d_k}}\right) V"
    )
    lesson.code(attention, softmax)
    Q, K, V = (
        rng.standard_normal((3, D_K)),
        rng.standard_normal((L, D_K)),
        rng.standard_normal((L, 7)),
    )
    out = attention(Q, K, V)  # (3, 7)
    kernel = mg.scaled_dot_product_attention(*(x[None, None] for x in (Q, K, V))).data[0, 0]
    lesson.fact(
        "The formula", gap(out, kernel) < 1e-12, "`mg.scaled_dot_product_attention` computes it"
    )
    weights = softmax(Q @ K.T / sqrt(D_K))  # (3, L)
    inside = (out >= V.min(0)).all() and (out <= V.max(0)).all()
    lesson.fact(
        "Scores of queries against keys become weights of the values",
        np.allclose(weights.sum(1), 1) and (weights > 0).all() and inside,
        "they are positive and sum to 1 for each query: a result lies between the values",
    )
    keys = K / np.linalg.norm(K, axis=1, keepdims=True)
    found = attention(400 * keys[3:4], keys, V)
    lesson.fact(
        "What matches gets the weight", gap(found[0], V[3]) < 1e-3,
        f"a long query along key 4 finds value 4 (to {gap(found[0], V[3]):.0e}), as one looks up a word",
    )  # fmt: skip

    x, other = rng.standard_normal((L, D)), rng.standard_normal((3, D))
    W_Q, W_K, W_V = rng.standard_normal((3, D, D)) / sqrt(D)
    layer = nn.MultiHeadAttention(D, 1, bias=False, dtype=float)
    for proj, W in zip(
        (layer.q_proj, layer.k_proj, layer.v_proj, layer.out_proj), (W_Q, W_K, W_V, np.eye(D))
    ):
        proj.weight.data[:] = W.T
    own = attention(x @ W_Q, x @ W_K, x @ W_V)  # (L, D)
    lesson.fact(
        "Self-attention: queries, keys and values come from one sequence by three linear maps",
        gap(own, layer(x[None], x[None], x[None])) < 1e-12, "equal to `nn.MultiHeadAttention` of one head",
    )  # fmt: skip
    cross = attention(other @ W_Q, x @ W_K, x @ W_V)  # (3, D)
    lesson.fact(
        "Cross-attention: queries from one sequence, keys and values from another",
        cross.shape == (3, D) and gap(cross, layer(other[None], x[None], x[None])) < 1e-12,
        f"3 queries to {L} keys give 3 rows (the text's sentence breaks off; its class below is meant)",
    )


# -- why a linear map ----------------------------------------------------------------------------------


def cycle_gap(A: np.ndarray) -> float:
    """The largest | log a_ij a_jk a_ki - log a_ik a_kj a_ji |: zero where the scores are symmetric.

    Row sums drop out of it: each of i, j, k gives one weight to either product.
    """
    i, j, k = np.array(list(itertools.permutations(range(len(A)), 3))).T
    a = np.log(A)
    return float(np.abs(a[i, j] + a[j, k] + a[k, i] - a[i, k] - a[k, j] - a[j, i]).max())


def why_linear(lesson: Lesson, rng: np.random.Generator) -> None:
    lesson.section("Why a linear map?")
    lesson.quote(
        "使得注意力机制不再受到矩阵对称的约束（A对B的注意力可以不等于B对A的注意力）",
        "so that attention is no longer bound to a symmetric matrix: A's attention to B need not be B's to A",
    )
    lesson.say("""Why not compare the vectors of the words themselves, and save three matrices? Because a comparison
    of $x_i$ with $x_j$ is also one of $x_j$ with $x_i$, and because nothing is more like a word than the word
    itself.""")
    lesson.predict(
        "Without a map the scores $X X^\\top$ are symmetric. Are the weights after the softmax symmetric too?",
        "No: each row is divided by its own sum. Something weaker is left of the symmetry, and can be measured.",
    )
    X = rng.standard_normal((L, D))
    W_Q, W_K = rng.standard_normal((2, D, D)) / sqrt(D)
    plain, mapped = X @ X.T / sqrt(D), (X @ W_Q) @ (X @ W_K).T / sqrt(D)  # (L, L) each
    lesson.fact(
        "Without it the scores must be symmetric",
        gap(plain, plain.T) < 1e-12,
        "$XX^\\top$ is its own transpose",
    )
    lesson.fact(
        "With it they are not", gap(mapped, mapped.T) > 0.5,
        f"$XW_Q(XW_K)^\\top$ and its transpose differ by up to {gap(mapped, mapped.T):.1f}",
    )  # fmt: skip
    A, B = softmax(plain), softmax(mapped)
    lesson.erratum(
        "That A attends to B as B to A, without the map", "weights that are equal",
        "scores that are equal, weights that are not", gap(A, A.T) > 0.01 and cycle_gap(A) < 1e-12 and cycle_gap(B) > 1,
        f"the softmax divides each row by its own sum: $a_{{ij}}$ and $a_{{ji}}$ differ by up to {gap(A, A.T):.2f}. What is left "
        "of the symmetry is that going round any three words one way or the other gives one product, "
        f"$a_{{ij}} a_{{jk}} a_{{ki}} = a_{{ik}} a_{{kj}} a_{{ji}}$ (to {cycle_gap(A):.0e}); with the map the logarithms of the two differ by up "
        f"to {cycle_gap(B):.1f}",
    )  # fmt: skip
    U = X / np.linalg.norm(X, axis=1, keepdims=True)
    lesson.fact(
        "And without it, words of one length attend to themselves first",
        ((U @ U.T).argmax(1) == np.arange(L)).all() and (B.argmax(1) != np.arange(L)).any(),
        "$x_i \\cdot x_j$ is largest for $j = i$; with the map they need not",
    )  # fmt: skip
    C = one_way(lesson, rng)
    other_spaces(lesson, rng, X @ W_Q, X @ W_K)
    titles = (
        r"scores: $XX^T / \sqrt{D}$",
        r"scores: $XW_Q(XW_K)^T / \sqrt{D}$",
        "weights: each to the next",
    )
    lesson.picture(
        "asymmetry.png",
        lambda path: asymmetry_picture(path, dict(zip(titles, (plain, mapped, C)))),
        caption="Without a linear map the scores are symmetric (left); with one they are not, and each word can attend to the next (right).",
        alt="Three 5 by 5 maps: a symmetric one, one that is not, and one with all weight beside the diagonal.",
    )


def other_spaces(lesson: Lesson, rng: np.random.Generator, q: np.ndarray, k: np.ndarray) -> None:
    """That a word's query and key, rows of q and k (L, D), point to different places, and may come from other sizes."""
    cosines = (q * k).sum(1) / np.linalg.norm(q, axis=1) / np.linalg.norm(k, axis=1)
    layer = nn.MultiHeadAttention(D, H, query_size=6, key_size=9, value_size=9, generator=rng)
    out = layer(rng.standard_normal((1, 3, 6)), *2 * [rng.standard_normal((1, L, 9))])
    lesson.fact(
        "It maps a word to different spaces", np.abs(cosines).max() < 0.9 and out.shape == (1, 3, D),
        f"as query and as key one word points elsewhere (cosines {cosines.min():.2f} to {cosines.max():.2f}), and "
        "words of 6 features can ask words of 9",
    )  # fmt: skip


def one_way(lesson: Lesson, rng: np.random.Generator) -> np.ndarray:
    """Weights (L, L) of words that attend to the next one each, and are not attended to by it."""
    basis = np.linalg.qr(rng.standard_normal((D, L)))[0].T  # (L, D), rows at right angles
    W_next = basis.T @ np.roll(
        basis, 1, axis=0
    )  # (D, D), a W_K that makes the key of a word of the word before it
    C = softmax(12 * basis @ (basis @ W_next).T)  # (L, L)
    there, back = zip(*((C[i, (i + 1) % L], C[(i + 1) % L, i]) for i in range(L)))
    lesson.fact(
        "A can attend to B, and B not to A", min(there) > 0.99 and max(back) < 0.01,
        f"a $W_K$ chosen for it makes each word attend to the next, with {min(there):.4f}, and back with {max(back):.0e}",
    )  # fmt: skip
    return C


def asymmetry_picture(path: Path, matrices: dict[str, np.ndarray]) -> None:
    """Square matrices side by side, with their diagonals."""
    figure = require("matplotlib.figure", "plotting").Figure(
        figsize=(11, 3.3), layout="constrained"
    )
    for i, (title, values) in enumerate(matrices.items(), 1):
        axes = figure.add_subplot(1, len(matrices), i)
        reach, signed = np.abs(values).max(), values.min() < 0
        image = axes.imshow(
            values, cmap="RdBu" if signed else SHADES, vmin=-reach if signed else 0, vmax=reach
        )
        axes.plot(
            [-0.5, len(values) - 0.5], [-0.5, len(values) - 0.5], color="gray", lw=0.8, ls="--"
        )
        axes.set_xticks(range(len(values)), [f"{j + 1}" for j in range(len(values))])
        axes.set_yticks(range(len(values)), [f"{j + 1}" for j in range(len(values))])
        axes.set_xlabel("key")
        axes.set_ylabel("query")
        axes.set_title(title, fontsize=10.5)
        figure.colorbar(image, ax=axes, fraction=0.046, pad=0.04)
    figure.savefig(path, dpi=150)


# -- why the root of d_k -------------------------------------------------------------------------------

SIZES = [4**i for i in range(7)]  # 1 … 4096


def scale_experiment(
    rng: np.random.Generator, samples: int = 128, keys: int = 16
) -> dict[str, np.ndarray]:
    """For each d_k of SIZES, of q · k and of q · k / √d_k: variance, range of scores, and the softmax's gradient.

    Queries and keys are standard normal, each query with keys of its own. The gradient is the norm of
    the softmax's Jacobian, diag(p) - p pᵀ: the median over the queries.
    """
    found: dict[str, list[list[float]]] = {"variance": [], "range": [], "gradient": []}
    for d_k in SIZES:
        q, k = rng.standard_normal((samples, d_k)), rng.standard_normal((samples, keys, d_k))
        scores = np.einsum("nd,nkd->nk", q, k)  # (samples, keys)
        both = [scores, scores / sqrt(d_k)]
        weights = [mg.softmax(s).data for s in both]
        jacobians = [
            p[..., None] * np.eye(keys) - p[..., None] * p[:, None] for p in weights
        ]  # (samples, keys, keys)
        found["variance"].append([s.var() for s in both])
        found["range"].append([np.ptp(s, axis=1).mean() for s in both])
        found["gradient"].append([np.median(np.linalg.norm(J, axis=(1, 2))) for J in jacobians])
    return {
        name: np.array(values) for name, values in found.items()
    }  # (sizes, 2): without √d_k, with it


def why_root(lesson: Lesson, rng: np.random.Generator) -> None:
    lesson.section(r"Why divide by $\sqrt{d_k}$?")
    lesson.quote(
        "为了使结果的方差保持不变，需要除以$\\sqrt{d_k}$",
        "to keep the variance of the result as it was, one divides by $\\sqrt{d_k}$",
    )
    lesson.formula(
        r"\operatorname{Var}(q \cdot k) = \sum_{i=1}^{d_k} \operatorname{Var}(q_i k_i) = d_k",
        "for entries of mean 0 and variance 1 that do not depend on each other.",
    )
    lesson.say("""A score is a sum of $d_k$ products, and a sum of many has a large variance. Large scores are a
    problem for the softmax: it gives all the weight to the largest, and then small changes of the scores change
    nothing; its derivatives, by which training goes, are all 0. We draw queries and keys at random, of $d_k$ from 1
    to 4096, and measure both:""")
    lesson.code(scale_experiment)
    found = scale_experiment(rng)
    variance, spread, gradient = found["variance"], found["range"], found["gradient"]
    header = [
        "$d_k$",
        r"variance of $q \cdot k$",
        r"$/ \sqrt{d_k}$",
        "range of 16 scores",
        r"$/ \sqrt{d_k}$",
    ]
    header += ["softmax gradient", r"with $\sqrt{d_k}$"]
    rows = [
        [
            d_k,
            f"{v[0]:.1f}",
            f"{v[1]:.2f}",
            f"{r[0]:.1f}",
            f"{r[1]:.2f}",
            f"{g[0]:.1e}",
            f"{g[1]:.2f}",
        ]
        for d_k, v, r, g in zip(SIZES, variance, spread, gradient)
    ]
    lesson.table(header, rows, "The same queries and keys, without the division and with it")
    lesson.fact(
        "The variance changes in $QK^\\top$: it is $d_k$", (np.abs(variance[2:, 0] / SIZES[2:] - 1) < 0.3).all(),
        f"{variance[-1, 0]:.0f} at $d_k$ = {SIZES[-1]}: a sum of $d_k$ products, each of variance 1",
    )  # fmt: skip
    lesson.fact(
        "Dividing by $\\sqrt{d_k}$ keeps it", (np.abs(variance[2:, 1] - 1) < 0.3).all(),
        f"between {variance[2:, 1].min():.2f} and {variance[2:, 1].max():.2f} for $d_k$ from {SIZES[2]} on",
    )  # fmt: skip
    other_variances(lesson, rng)
    lesson.fact(
        "For large $d_k$ the elements of $QK^\\top$ differ greatly", spread[-1, 0] > 100 and spread[-1, 1] < 5,
        f"16 of them range over {spread[-1, 0]:.0f} at $d_k$ = {SIZES[-1]}, over {spread[-1, 1]:.1f} after the division",
    )  # fmt: skip
    the_gradient(lesson, rng, gradient)
    lesson.picture(
        "root_of_d_k.png",
        lambda path: root_picture(path, variance, gradient),
        caption="Without the root the scores spread with $d_k$, and the gradient of the softmax vanishes.",
        alt="Two pairs of lines against d_k: the variance grows with it or stays 1, the gradient falls to nothing or stays.",
    )


def other_variances(lesson: Lesson, rng: np.random.Generator) -> None:
    wide_q, wide_k = 2 * rng.standard_normal((2000, 64)), 2 * rng.standard_normal((2000, 64))
    wide = (wide_q * wide_k).sum(1).var() / 64
    lesson.erratum(
        "The variance after the division", "as before", "$\\sigma_q^2 \\sigma_k^2$, as before where $\\sigma = 1$", abs(wide / 16 - 1) < 0.2,
        f"for entries of variance 4 it is {wide:.1f}, about 4 · 4",
    )  # fmt: skip
    W = nn.init.xavier_uniform_(nn.Parameter(np.empty((64, 64))), generator=rng).data
    normed = nn.LayerNorm(64, dtype=float)(
        3 + 5 * rng.standard_normal((2000, 64))
    ).data  # (2000, 64)
    lesson.fact(
        "So queries and keys should start with variance 1", abs((normed @ W.T).var() - 1) < 0.1,
        f"a layer norm and a $W_Q$ by Xavier's rule (weights of variance 2 / (inputs + outputs)), as in `nn.Transformer`, give {(normed @ W.T).var():.2f}",
    )  # fmt: skip


def the_gradient(lesson: Lesson, rng: np.random.Generator, gradient: np.ndarray) -> None:
    z = rng.standard_normal(16)
    p = softmax(z)
    exact = mg.jacobian(mg.softmax)(z).data  # (16, 16)
    by_hand = np.diag(p) - np.outer(p, p)  # (16, 16)
    lesson.fact(
        "The gradient of softmax is $\\mathrm{diag}(p) - pp^\\top$",
        gap(exact, by_hand) < 1e-12,
        "as `mg.jacobian`, the matrix of all derivatives, finds it",
    )
    lesson.fact(
        "It comes close to 0 when they do", gradient[-1, 0] < 1e-6 and gradient[:, 1].min() > 0.1,
        f"its norm is {gradient[-1, 0]:.0e} (median) at $d_k$ = {SIZES[-1]}; with $\\sqrt{{d_k}}$ it stays at {gradient[-1, 1]:.2f}",
    )  # fmt: skip


def root_picture(path: Path, variance: np.ndarray, gradient: np.ndarray) -> None:
    """Variance of the scores and gradient of the softmax against d_k."""
    figure = require("matplotlib.figure", "plotting").Figure(
        figsize=(9.5, 3.8), layout="constrained"
    )
    panels = (
        ("variance of the scores", variance),
        ("gradient of the softmax (median norm)", gradient),
    )
    for axes, (name, values) in zip(figure.subplots(1, 2), panels):
        axes.plot(SIZES, values[:, 0], "o-", label=r"$q \cdot k$")
        axes.plot(SIZES, values[:, 1], "s-", label=r"$q \cdot k / \sqrt{d_k}$")
        axes.set_xscale("log", base=4)
        axes.set_yscale("log")
        axes.set_xticks(SIZES, [str(s) for s in SIZES])
        axes.minorticks_off()
        axes.set_xlabel("$d_k$")
        axes.set_title(name, fontsize=11)
        axes.grid(alpha=0.25)
        axes.legend(frameon=False)
    figure.savefig(path, dpi=150)


# -- softmax, heads, masks -----------------------------------------------------------------------------


def softmax_function(lesson: Lesson, rng: np.random.Generator) -> None:
    lesson.section("The softmax function")
    lesson.say("""Scores may be negative, and of any size; a mean needs weights that are positive and sum to 1. The
    exponential makes them positive and keeps their order; the division makes them sum to 1.""")
    z = rng.standard_normal(6)
    by_hand = [np.exp(z[i]) / sum(np.exp(z[j]) for j in range(6)) for i in range(6)]
    found = mg.softmax(z).data
    lesson.fact(
        "$\\softmax(z)_i = e^{z_i} / \\sum_j e^{z_j}$, $j = 1 \\dots n$",
        gap(found, by_hand) < 1e-12,
        "it is `mg.softmax`",
    )
    lesson.fact(
        "It normalises the exponentials of $z$",
        np.isclose(found.sum(), 1) and (found > 0).all(),
        "they sum to 1",
    )
    with np.errstate(over="ignore", invalid="ignore"):
        broken = softmax(z + 1000)
    lesson.fact(
        "How to compute it, which is left open", np.isnan(broken).all() and gap(mg.softmax(z + 1000), found) < 1e-12,
        "$e^{1000}$ overflows, so `mg.softmax` subtracts the largest $z$ first, which leaves the quotients as they are",
    )  # fmt: skip


def several_heads(lesson: Lesson, rng: np.random.Generator) -> None:
    lesson.section("Several heads")
    lesson.quote(
        "将输入的$D$维向量拆分到$h$个头",
        "the input vector of $D$ dimensions is split among $h$ heads",
    )
    lesson.say("""One head of $D$ features gives each query one set of weights. Cut queries, keys and values into $h$ parts of
    $d_k = D/h$ features, and each part gives a set of its own, for the same number of multiplications.""")
    layer = nn.MultiHeadSelfAttention(D, H, dtype=float, generator=rng)
    x = rng.standard_normal((N, L, D))
    projected = [
        proj(x).data for proj in (layer.q_proj, layer.k_proj, layer.v_proj)
    ]  # (N, L, D) each
    Q, K, V = (p.reshape(N, L, H, D_K) for p in projected)
    cut = [projected[0][..., h * D_K : (h + 1) * D_K] for h in range(H)]  # (N, L, d_k) each
    lesson.fact(
        "Reshaping splits a vector into heads", all((Q[:, :, h] == cut[h]).all() for h in range(H)),
        f"(N, L, {D}) to (N, L, {H}, {D_K}): head $h$ has the $h$-th run of $d_k$ features",
    )  # fmt: skip
    heads = [
        np.stack([attention(Q[n, :, h], K[n, :, h], V[n, :, h]) for n in range(N)])
        for h in range(H)
    ]
    concatenated = np.concatenate(heads, axis=-1)  # (N, L, D)
    lesson.fact(
        "Each head attends by itself; their outputs are joined, and mapped once more",
        gap(layer.out_proj(concatenated), layer(x)) < 1e-12, "so does `nn.MultiHeadSelfAttention`",
    )  # fmt: skip
    head = lambda v: mg.einsum(
        "ld,kd->lk", *(proj(v)[:, :D_K] for proj in (layer.q_proj, layer.k_proj))
    )
    reads = np.abs(mg.jacobian(head)(x[0]).data).max(
        (0, 1, 2)
    )  # (D,): what the scores of head 1 read of each feature
    lesson.erratum(
        "What is split among the heads", "the $D$ features of the input", "those of $Q$, $K$ and $V$", (reads > 0.01).all(),
        f"the code maps first and splits then: the first head reads all {D} features of $x$, and no derivative is 0",
    )  # fmt: skip
    weights = nn.with_weights(layer, x)[1]  # (N, h, L, L)
    apart = min(gap(weights[:, i], weights[:, j]) for i, j in itertools.combinations(range(H), 2))
    lesson.fact(
        "The heads see one position in different ways",
        apart > 0.05,
        f"weights differ by {apart:.2f} or more",
    )


def mask_idea(lesson: Lesson, rng: np.random.Generator) -> None:
    lesson.section(r"Masks: a score of $-\infty$")
    lesson.quote(
        "将不合法的位置的得分设置为负无穷，从而在softmax函数中得到0的概率",
        "scores of positions that are not allowed become minus infinity, and so get the probability 0",
    )
    lesson.say("""Some keys a query must not use: padding means nothing, and a word that is still to come is not known. The softmax gives
    every finite score some weight, but none to one of $-\\infty$:""")
    lesson.formula(r"e^{-\infty} = 0")
    scores = rng.standard_normal((L, L))
    mask = nn.causal_mask(L)  # (L, L), True = may attend
    A = softmax(np.where(mask, scores, -np.inf))
    lesson.fact(
        "A score of $-\\infty$ gets the probability 0",
        (A[~mask] == 0).all() and np.allclose(A.sum(1), 1),
        r"$e^{-\infty} = 0$",
    )
    lesson.fact(
        "`mg.softmax(scores, where=mask)` does the same",
        gap(A, mg.softmax(scores, where=mask)) < 1e-12,
    )
    layer = nn.MultiHeadSelfAttention(D, H, dtype=float, generator=rng)
    x = rng.standard_normal((1, L, D))
    J = np.abs(mg.jacobian(lambda v: layer(v, is_causal=True))(x).data).max((0, 2, 3, 5))  # (L, L)
    strict = np.tri(L, k=-1, dtype=bool)  # the positions before, without one's own
    with np.errstate(invalid="ignore"):
        nothing = multi_head_formula(layer, x, x, x, attention_mask=strict).data[0, 0]
    lesson.erratum(
        "What a position can depend on", "the positions before it", "itself and those before it",
        (J[~mask] == 0).all() and (J[mask] > 0).all() and np.isnan(nothing).all(),
        "the derivatives of outputs by inputs fill just the lower triangle and the diagonal; without the diagonal, the "
        "first position would have nothing to attend to, and the text's code would give NaN",
    )  # fmt: skip
    ours = mg.softmax(scores, where=strict).data
    lesson.fact(
        "In ours such a row is 0 instead", (ours[0] == 0).all() and np.allclose(ours[1:].sum(1), 1)
    )


# -- the code ------------------------------------------------------------------------------------------


def by_loops(equation: str, *operands: np.ndarray) -> np.ndarray:
    """What an einsum means: for every choice of the indices, a product, added to the result at its indices."""
    inputs, output = equation.split("->")
    terms = inputs.split(",")
    size = {letter: n for term, x in zip(terms, operands) for letter, n in zip(term, x.shape)}
    result = np.zeros([size[letter] for letter in output])
    for choice in itertools.product(*(range(n) for n in size.values())):
        at = dict(zip(size, choice))
        product = np.prod(
            [x[tuple(at[letter] for letter in term)] for term, x in zip(terms, operands)]
        )
        result[tuple(at[letter] for letter in output)] += product
    return result


EINSUMS = {  # each form in the text: the shapes of its operands, and of its result
    "ij,jk->ik": ((3, 4), (4, 5), (3, 5)),  # the matrix product
    "id,jd->ij": ((5, 16), (5, 16), (5, 5)),  # Q Kᵀ
    "nihd,njhd->nijh": ((2, 3, 4, 4), (2, 5, 4, 4), (2, 3, 5, 4)),  # Q Kᵀ in a batch, of all heads
    "nijh,njhd->nihd": ((2, 3, 5, 4), (2, 5, 4, 4), (2, 3, 4, 4)),  # weights times V, likewise
}


def einsums(lesson: Lesson, rng: np.random.Generator) -> None:
    lesson.section("Code: einsum")
    lesson.say("""An einsum names the axes of its operands by letters. It multiplies every element of one by every
    element of the other that has the same letters, and sums over the letters that the result does not have. Here
    $n$ counts sequences, $i$ queries, $j$ keys, $h$ heads and $d$ features.""")
    same_as = {
        "ij,jk->ik": lambda A, B: A @ B,
        "id,jd->ij": lambda Q, K: Q @ K.T,
        "nihd,njhd->nijh": lambda Q, K: (
            Q.transpose(0, 2, 1, 3) @ K.transpose(0, 2, 3, 1)
        ).transpose(0, 2, 3, 1),
        "nijh,njhd->nihd": lambda A, V: (
            A.transpose(0, 3, 1, 2) @ V.transpose(0, 2, 1, 3)
        ).transpose(0, 2, 1, 3),
    }
    meaning = {
        "ij,jk->ik": "`einsum(…, A, B)` is the product of matrices $A$ and $B$",
        "id,jd->ij": "`einsum(…, Q, K)` is $QK^\\top$, (L, D) and (L, D) to (L, L)",
        "nihd,njhd->nijh": "`einsum(…, Q, K)`: the scores of all heads, $(N, L_Q, L_{KV}, h)$",
        "nijh,njhd->nihd": "`einsum(…, score, V)`: the weighted sums of values, $(N, L_Q, h, d_k)$",
    }
    for equation, (*shapes, result) in EINSUMS.items():
        operands = [rng.standard_normal(shape) for shape in shapes]
        found = mg.einsum(equation, *operands)
        truths = by_loops(equation, *operands), same_as[equation](*operands)
        right = found.shape == result and all(gap(found, truth) < 1e-12 for truth in truths)
        checked = mg.gradcheck(
            lambda *xs, equation=equation: mg.einsum(equation, *xs), operands, elementwise=False
        )
        lesson.fact(
            f"`{equation}`: {meaning[equation]}",
            right and checked,
            "as by loops and as by `@`; gradients checked",
        )
    A, B = rng.standard_normal((2, 3)), rng.standard_normal((3, 2))
    products = A[:, :, None] * B[None]  # (i, j, k): every product of an element of A and one of B
    summed = gap(products.sum(1), mg.einsum("ij,jk->ik", A, B)) < 1e-12
    lesson.fact("It multiplies, then sums", summed, "over the index $j$, which `ik` does not have")


def first_class(lesson: Lesson, rng: np.random.Generator) -> None:
    lesson.section("Code: multi-head attention")
    lesson.code(multi_head_formula, note="The text's class, as a function of one of our layers:")
    layer = nn.MultiHeadAttention(D, H, dtype=float, generator=rng)
    x_q, x_k, x_v = (rng.standard_normal((N, length, D)) for length in (3, L, L))
    linears = [m for m in layer.modules() if isinstance(m, nn.Linear)]
    lesson.fact(
        "It has four linear maps, $D$ to $D$: $W_Q$, $W_K$, $W_V$, $W_O$", [p.weight.shape for p in linears] == [(D, D)] * 4,
        "`q_proj`, `k_proj`, `v_proj` and `out_proj` in `nn.MultiHeadAttention`",
    )  # fmt: skip
    lesson.fact(
        "$d_k = d_\\text{model} / h$", layer.d_model // layer.num_heads == D_K, f"{D} / {H} = {D_K}"
    )
    try:
        nn.MultiHeadAttention(16, 3)
        refusal = ""
    except ValueError as error:
        refusal = str(error)
    message = "d_model must be divisible by num_heads"
    lesson.fact(
        "Where that is not whole, it refuses", refusal.startswith(message), f"ValueError: {refusal}"
    )
    by_hand = x_q @ linears[0].weight.data.T + linears[0].bias.data
    lesson.fact(
        "A linear map is needed first",
        gap(layer.q_proj(x_q), by_hand) < 1e-12,
        "`nn.Linear`: $xW^\\top + b$",
    )
    found = layer(x_q, x_k, x_v)
    lesson.fact(
        "The text's forward, by einsum, equals our layer", gap(found, multi_head_formula(layer, x_q, x_k, x_v)) < 1e-12,
        f"to {gap(found, multi_head_formula(layer, x_q, x_k, x_v)):.0e}",
    )  # fmt: skip
    weights = nn.with_weights(layer, x_q, x_k, x_v)[1]  # (N, h, L_Q, L_KV)
    lesson.fact(
        "softmax over `dim=2` of `nijh` is over the keys $j$",
        np.allclose(weights.sum(-1), 1),
        "our last axis",
    )
    x = rng.standard_normal((N, L, D))
    out = nn.MultiHeadSelfAttention(D, H, dtype=float, generator=rng)(x)
    lesson.fact(
        "`MultiHeadSelfAttention` takes $N \\times L \\times D$ to $N \\times L \\times D$",
        out.shape == x.shape,
        f"{out.shape}",
    )
    mask = rng.random((3, L)) < 0.6
    mask[:, 0] = True
    lesson.erratum(
        "The parameter `mask` of the first version", "a mask", "never read",
        gap(layer(x_q, x_k, x_v, mask), multi_head_formula(layer, x_q, x_k, x_v)) > 0.01,
        "its forward goes from the scores straight to the softmax; only the complete version below masks",
    )  # fmt: skip


def three_masks(lesson: Lesson, rng: np.random.Generator) -> None:
    lesson.section("Code: the three masks")
    lesson.diagram("masks", "Two of them, and both at once.")
    lesson.say(
        "In the text 0 hides; here masks are booleans, True = may attend: the same polarity."
    )
    ids = np.array([[7, 4, 9, 5, 6], [8, 4, 6, 0, 0]])  # (N, L), the second padded
    padding = nn.padding_mask_of(ids)  # (N, L)
    layer = nn.MultiHeadSelfAttention(D, H, dtype=float, generator=rng)
    x = rng.standard_normal((N, L, D))
    out, weights = nn.with_weights(layer, x, padding[:, None, None])  # weights (N, h, L, L)
    lesson.fact(
        "Padding mask $[N, L]$: padding is left out", (weights[1, :, :, 3:] == 0).all() and padding.shape == (N, L),
        "its keys get weight 0 from all queries, in all heads",
    )  # fmt: skip
    alone = layer(x[1:, :3])  # the short sentence without its padding
    lesson.fact(
        "So a padded sentence is what it is alone",
        gap(out.data[1, :3], alone.data[0]) < 1e-12,
        "three words",
    )

    causal = nn.causal_mask(L)  # (L, L)
    later = x.copy()
    later[:, 3:] = rng.standard_normal((N, 2, D))
    moved = np.abs(layer(later, causal).data - layer(x, causal).data).max((0, 2))
    lesson.fact(
        "Attention mask $[L, L]$, causal or look-ahead: nothing depends on what comes later",
        (moved[:3] < 1e-12).all() and (moved[3:] > 0.01).all() and causal.shape == (L, L),
        "with other words 4 and 5, the first three results are what they were",
    )  # fmt: skip
    memory = np.array([[1, 1, 0, 0, 0], [0, 1, 1, 1, 0], [0, 0, 0, 1, 1]], bool)  # (L_Q, L_KV)
    more_masks(lesson, rng, layer, x, padding, causal, memory)
    named = {
        "padding (of sequence 2)": np.repeat(padding[1:], L, 0), "causal": causal, "both": padding[1] & causal,
        "memory": memory,
    }  # fmt: skip
    lesson.picture(
        "masks.png",
        lambda path: mask_picture(named, path),
        caption="A padding mask, a causal one, both together, and a mask between two sequences.",
        alt="Four grids of filled and empty cells; filled cells may attend.",
    )


def more_masks(
    lesson: Lesson, rng: np.random.Generator, layer: Any, x: np.ndarray, padding: np.ndarray, causal: np.ndarray,
    memory: np.ndarray,
) -> None:  # fmt: skip
    cross = nn.MultiHeadCrossAttention(D, H, dtype=float, generator=rng)
    x_q = rng.standard_normal((N, 3, D))
    weights = nn.with_weights(cross, x_q, x, memory)[1]  # (N, h, L_Q, L_KV)
    lesson.fact(
        "Memory mask $[L_Q, L_{KV}]$: which keys each query may use", ((weights > 0) == memory).all(),
        f"in cross-attention, here {memory.shape}: weights are positive where it is True, and 0 elsewhere",
    )  # fmt: skip
    both = nn.with_weights(layer, x, padding[:, None, None] & causal)[1]
    lesson.fact(
        "Both masks can be given",
        ((both > 0) == (padding[:, None, None] & causal)).all(),
        "a key must pass both",
    )
    nobody = np.array([[True] * L, [False] * L])  # the second sequence is nothing but padding
    with np.errstate(invalid="ignore"):
        broken = multi_head_formula(layer, x, x, x, nobody).data[1]
    ours = layer(x, nobody[:, None, None]).data[1]
    lesson.erratum(
        "Masked elements get the probability 0", "a softmax of scores of $-\\infty$", "one that also allows for all of them",
        np.isnan(broken).all() and gap(ours, np.broadcast_to(layer.out_proj.bias.data, ours.shape)) == 0,
        "where every key is hidden, that softmax is 0 / 0 and the text's code gives NaN; ours gives weights of 0, and "
        "the bias of $W_O$ is all that comes out",
    )  # fmt: skip


def three_classes(lesson: Lesson, rng: np.random.Generator) -> None:
    lesson.section("Code: the complete classes")
    x_q, x_kv, x_v = (rng.standard_normal((N, length, D)) for length in (3, L, L))
    padding = np.array([[True] * L, [True] * 3 + [False] * 2])  # (N, L_KV)
    memory = np.array([[1, 1, 0, 0, 0], [1, 1, 1, 1, 0], [1, 0, 0, 1, 1]], bool)  # (L_Q, L_KV)
    cases: dict[Any, tuple[tuple[np.ndarray, ...], np.ndarray]] = {
        nn.MultiHeadAttention: ((x_q, x_kv, x_v), memory),
        nn.MultiHeadSelfAttention: ((x_kv,), nn.causal_mask(L)),
        nn.MultiHeadCrossAttention: ((x_q, x_kv), memory),
    }
    for kind, (inputs, attention_mask) in cases.items():
        layer = kind(D, H, dtype=float, generator=rng)
        xs = [mg.Tensor(x, requires_grad=True) for x in inputs]
        q, k, v = (xs * 3 if len(xs) == 1 else [*xs, xs[-1]])[
            :3
        ]  # (x, x, x), (x_q, x_kv, x_kv) or all three
        leaves = [*xs, *layer.parameters()]
        worst = 0.0
        for real, mask in itertools.product((None, padding), (None, attention_mask)):
            ours = layer(
                *xs,
                mask=mask
                if real is None
                else real[:, None, None] & (True if mask is None else mask),
            )
            text = multi_head_formula(layer, q, k, v, real, mask)
            g = rng.standard_normal(ours.shape)
            grads = [mg.gradients(y, leaves, g) for y in (ours, text)]
            worst = max(worst, gap(ours, text), *(gap(a, b) for a, b in zip(*grads)))
        given = ", ".join(str(x.shape) for x in xs)
        lesson.fact(
            f"`{kind.__name__}`: {given} to {ours.shape}", worst < 1e-12,
            f"results and the gradients of {len(leaves)} tensors equal the text's to {worst:.0e}, with neither, "
            "either and both masks",
        )  # fmt: skip
    general = nn.MultiHeadAttention(D, H, dtype=float, generator=rng)
    for kind, given, same in (
        (nn.MultiHeadSelfAttention, {"x": x_kv}, "x, x, x"),
        (nn.MultiHeadCrossAttention, {"x_q": x_q, "x_kv": x_kv}, "x_q, x_kv, x_kv"),
    ):
        layer = kind(D, H, dtype=float)
        layer.load_state_dict(general.state_dict())
        inputs = [given[name] for name in same.split(", ")]
        lesson.fact(
            f"`{kind.__name__}` applies its base class to ({same})",
            issubclass(kind, nn.MultiHeadAttention)
            and gap(layer(*given.values()), general(*inputs)) == 0,
            "with the same parameters, by the same names, it gives the same",
        )


def main(argv: Sequence[str] | None = None) -> int:
    lesson = Lesson("attention_mechanism", __doc__ or "", argv)
    lesson.source(
        "The attention mechanism (注意力机制)", "lecture notes", "002_e474a81b09e7fe02.txt"
    )
    rng = np.random.default_rng(0)
    sequence_modelling(lesson, rng)
    attention_formula(lesson, rng)
    why_linear(lesson, rng)
    why_root(lesson, rng)
    softmax_function(lesson, rng)
    several_heads(lesson, rng)
    mask_idea(lesson, rng)
    einsums(lesson, rng)
    first_class(lesson, rng)
    three_masks(lesson, rng)
    three_classes(lesson, rng)
    lesson.exercise(
        "Write `nihd,njhd->nijh` as a matrix product.",
        "Bring the heads before the positions, (N, h, L, d), and multiply by the transpose of the last two axes; then bring the heads back to the end.",
    )
    lesson.exercise(
        "A padding mask hides all keys of one sequence. What does $\\softmax(-\\infty, -\\infty, \\dots)$ give, and what should attention give?",
        "0 / 0, NaN; a layer should give zeros there, with a gradient of zero.",
    )
    return lesson.end()


if __name__ == "__main__":
    raise SystemExit(main())
