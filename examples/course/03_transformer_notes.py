"""Notes on multi-head self-attention and the Transformer, step by step.

The text is "Multi-head self-attention and the Transformer" (多头自注意力机制与Transformer, file
000_170e9c9fc48d8396.txt): Q, K, V and Z with their dimensions, eight heads, layer and batch
normalisation, the decoder block, and what goes in and out of a Transformer that translates
我 有 一只 猫 to I have a cat. Here each of its formulas runs, and that sentence is translated.

    python examples/course/03_transformer_notes.py            some ten seconds on one core
"""

from __future__ import annotations

from lesson import Lesson, chinese_english  # first: Ctrl-C is one line from here on

# isort: split
from collections.abc import Callable, Sequence
from math import cos, isclose, sin, sqrt
from pathlib import Path
from typing import Any

import numpy as np

import minigrad as mg
import nn
from minigrad.extras import require
from nn.inspection.plots import attention_grid, attention_heatmap
from nn.text import BOS, Vocabulary, padded

M, D, HEADS = 4, 64, 8  # words in the sentence, features of a word, heads
D_HEAD = D // HEADS  # features of a word in a head: the text's d'
SOURCE, TARGET = ["我", "有", "一只", "猫"], ["I", "have", "a", "cat"]


def softmax(scores: np.ndarray) -> np.ndarray:
    """eˢ, each row divided by its sum."""
    e = np.exp(scores)
    return e / e.sum(-1, keepdims=True)


# -- self-attention ------------------------------------------------------------------------------------


def self_attention(lesson: Lesson, rng: np.random.Generator) -> None:
    lesson.section("Self-attention: X → Q, K, V → scores → Z")
    lesson.quote(
        "每个单词的新向量，都是融合了其它单词信息的新向量。",
        "Each word's new vector is one that has taken in information of the other words.",
    )
    lesson.say(
        """A word by itself is a row of numbers that knows nothing of its neighbours. What has to happen so that it
        does? Each word asks a question, its query $q$; each offers a key $k$, by which it can be found, and a value
        $v$, which is what it has to tell. The better a key answers a query, the more of its value is taken:"""
    )
    lesson.formula(
        r"Q = X W_Q \qquad K = X W_K \qquad V = X W_V \qquad Z = \operatorname{softmax}\left(\frac{Q K^\top}{\sqrt{d'}}\right) V",
        "$X$ has a row for each of the $M$ words and $d$ columns; $d'$ is the number of columns of $Q$, $K$ and $V$.",
    )
    lesson.diagram("head", "These steps with their shapes; here $L$ is $M = 4$ words.")
    X = rng.standard_normal((M, D))  # (M, d): a row for each word
    W_Q, W_K, W_V = rng.standard_normal((3, D, D_HEAD)) / sqrt(D)  # (d, d') each
    Q, K, V = X @ W_Q, X @ W_K, X @ W_V  # (M, d') each
    scores = Q @ K.T  # (M, M)
    A = softmax(scores / sqrt(D_HEAD))  # (M, M)
    Z = A @ V  # (M, d')
    lesson.say(
        f"$M$ = {M} words of $d$ = {D} features are projected to $d'$ = {D_HEAD}. The dimensions of it all:"
    )
    sizes = {
        "$X$": X,
        "$W_Q, W_K, W_V$": W_Q,
        "$Q, K, V$": Q,
        "$QK^\\top$": scores,
        "softmax": A,
        "$Z$": Z,
    }
    lesson.table(["matrix", "shape"], [[name, array.shape] for name, array in sizes.items()])
    lesson.fact("$X$ has $M$ rows of $d$ features, a row for each word", X.shape == (M, D))
    lesson.fact(
        "$Q = XW_Q$, $K = XW_K$ and $V = XW_V$ have $M$ rows",
        Q.shape == K.shape == V.shape == (M, D_HEAD),
    )
    the_scores(lesson, rng, X, (W_Q, W_K, W_V), scores)
    lesson.fact(
        "The softmax keeps $M \\times M$ and makes each row sum to 1",
        A.shape == (M, M) and np.allclose(A.sum(1), 1),
    )
    lesson.show("$\\softmax(QK^\\top / \\sqrt{d'})$", A)
    the_product(lesson, X, (Q, K, V), scores, A)
    what_meets(lesson, X, W_Q, W_K, W_V)


def the_scores(
    lesson: Lesson,
    rng: np.random.Generator,
    X: np.ndarray,
    weights: Sequence[np.ndarray],
    scores: np.ndarray,
) -> None:
    W_Q, W_K, W_V = weights
    Q, K = X @ W_Q, X @ W_K
    other = X.copy()
    other[2] = rng.standard_normal(D)  # another third word
    changed = [np.abs(other @ W - X @ W).max(1) > 1e-12 for W in (W_Q, W_K, W_V)]
    lesson.fact(
        "Each row of $X$, $Q$, $K$, $V$ belongs to one word", (np.array(changed) == [False, False, True, False]).all(),
        "with another third word, row 3 of $Q$, $K$ and $V$ changes, and no other",
    )  # fmt: skip

    a = [[sum(q * k for q, k in zip(Q[i], K[j])) for j in range(M)] for i in range(M)]
    lesson.fact("$QK^\\top$ is $M \\times M$", scores.shape == (M, M))
    lesson.fact(
        "Its element $a_{ij}$ relates word $i$ to word $j$",
        np.allclose(scores, a),
        "it is the dot product $q_i \\cdot k_j$",
    )
    many = rng.standard_normal((512, D))
    sizes = [(many @ W_Q @ (many @ W_K).T).std() / root for root in (1, sqrt(D_HEAD))]
    lesson.fact(
        "Dividing by $\\sqrt{d'}$ keeps the $a_{ij}$ from growing too large", sizes[0] > 2 and 0.8 < sizes[1] < 1.25,
        f"over 512 words their standard deviation is {sizes[0]:.2f}, and {sizes[1]:.2f} after the division; "
        "lesson 4 shows what large ones would do",
    )  # fmt: skip


def the_product(
    lesson: Lesson, X: np.ndarray, parts: Sequence[np.ndarray], scores: np.ndarray, A: np.ndarray
) -> None:
    Q, K, V = parts
    Z = A @ V
    try:
        A * V  # (M, M) · (M, d')
        fits = True
    except ValueError:
        fits = False
    z = [[sum(A[i, j] * V[j, c] for j in range(M)) for c in range(D_HEAD)] for i in range(M)]
    lesson.erratum(
        "The last step", "an elementwise product with $V$", "the matrix product", not fits and np.allclose(Z, z),
        f"{A.shape} and {V.shape} cannot be multiplied element by element; $z_i = \\sum_j a_{{ij}} v_j$, a mean of the rows of $V$",
    )  # fmt: skip
    layer = nn.DotProductAttention()
    found = layer(Q[None], K[None], V[None]).data[0]  # the layer takes a batch: (1, M, d')
    lesson.erratum(
        "The formula of $Z$", r"$\softmax(QK^\top)\,V$", "$\\softmax(QK^\\top / \\sqrt{d'})\\,V$",
        np.allclose(found, Z) and not np.allclose(found, softmax(scores) @ V, atol=0.01),
        "the formula leaves out the division that the text asks for before; `nn.DotProductAttention` gives the second",
    )  # fmt: skip
    lesson.fact("$Z$ is $M \\times d'$", Z.shape == (M, D_HEAD))
    lesson.fact(
        "$X$, $V$ and $Z$ all have $M$ rows, a vector for each word",
        len(X) == len(V) == len(Z) == M,
    )


def what_meets(
    lesson: Lesson, X: np.ndarray, W_Q: np.ndarray, W_K: np.ndarray, W_V: np.ndarray
) -> None:
    layer = nn.DotProductAttention()
    attend = lambda x: layer((x @ W_Q)[None], (x @ W_K)[None], (x @ W_V)[None])[0]
    influence = np.linalg.norm(mg.jacobian(attend)(X).data, axis=(1, 3))  # ‖∂z_i / ∂x_j‖, (M, M)
    before = np.linalg.norm(mg.jacobian(lambda x: x @ W_V)(X).data, axis=(1, 3))  # ‖∂v_i / ∂x_j‖
    lesson.show(r"$\Vert \partial z_i / \partial x_j \Vert$", influence)
    lesson.fact(
        "Each row of $Z$ holds information of the other words", (influence > 1e-4).all(),
        "no derivative $\\partial z_i / \\partial x_j$ is zero: what word $i$ becomes depends on every word $j$",
    )  # fmt: skip
    lesson.fact(
        "The rows of $X$ hold none, and $V$ does not add it", (before[~np.eye(M, dtype=bool)] == 0).all(),
        "$\\partial v_i / \\partial x_j$ is zero for $i \\ne j$: words meet in the product with the weights only",
    )  # fmt: skip


# -- multi-head attention ------------------------------------------------------------------------------


def multi_head(lesson: Lesson, rng: np.random.Generator) -> None:
    lesson.section(f"Multi-head attention: h = {HEADS}")
    lesson.say("""One set of weights looks for one thing, and a word may need several: its verb, its measure word,
    itself. So attention is computed $h$ times side by side. Each time is a head: it has matrices of its own, makes
    queries, keys and values of $d' = d/h$ features, and gives a $Z_i$ of its own; all together cost as much as one
    head of $d$ features.""")
    X = rng.standard_normal((M, D))
    layer = nn.MultiHeadSelfAttention(D, HEADS, bias=False, dtype=float, generator=rng)
    W_Q, W_K, W_V, W_O = (p.data.T for p in layer.parameters())  # (d, h·d') three times, (h·d', d)
    lesson.say(
        "The layer keeps the matrices of all heads side by side; head $i$ owns $d'$ columns of $W_Q$, $W_K$ and $W_V$."
    )

    def head(x: np.ndarray, i: int) -> np.ndarray:
        own = slice(i * D_HEAD, (i + 1) * D_HEAD)
        q, k, v = x @ W_Q[:, own], x @ W_K[:, own], x @ W_V[:, own]  # (M, d') each
        return softmax(q @ k.T / sqrt(D_HEAD)) @ v  # (M, d')

    Z = [head(X, i) for i in range(HEADS)]
    concatenated = np.concatenate(Z, axis=1)  # (M, h·d')
    output = concatenated @ W_O  # (M, d)

    found, weights = nn.with_weights(layer, X[None])  # (1, M, d), (1, h, M, M)
    one = nn.DotProductAttention()  # a single self-attention, given the Q, K and V of one head
    Q, K, V = (np.stack(np.split(X @ W, HEADS, axis=1)) for W in (W_Q, W_K, W_V))  # (h, M, d') each
    lesson.fact(
        "Multi-head attention is several self-attentions, each with its own $Q$, $K$, $V$", np.allclose(one(Q, K, V).data, Z),
        f"$h$ groups of $Q$, $K$, $V$, {Q.shape}, in one self-attention at a time, give the $Z_i$",
    )  # fmt: skip
    lesson.fact(
        "With $h = 8$ there are 8 matrices $Z_i$",
        len(Z) == weights.shape[1] == 8,
        f"of {Z[0].shape} each",
    )
    gaps = [np.abs(Z[i] - Z[j]).max() for i in range(HEADS) for j in range(i)]
    lesson.fact(
        "Other matrices $W_Q$, $W_K$, $W_V$ give other $Z_i$", min(gaps) > 0.1,
        f"of the {len(gaps)} pairs of heads, the two closest $Z_i$ differ by up to {min(gaps):.2f}",
    )  # fmt: skip
    several_angles(lesson, rng, layer, X, head, weights[0])
    lesson.fact(
        "The $Z_i$ are joined (Concat) and go through a Linear layer", np.allclose(found.data[0], output, atol=1e-12),
        f"the result equals that of `nn.MultiHeadSelfAttention` to {np.abs(found.data[0] - output).max():.0e}",
    )  # fmt: skip
    lesson.fact(
        "Each $Z_i$ is $M \\times d'$, unlike $X$",
        all(z.shape == (M, D_HEAD) for z in Z),
        f"{Z[0].shape}, and $X$ {X.shape}",
    )
    lesson.fact(
        "The final $Z$ has the dimensions of $X$, $M \\times d$",
        output.shape == X.shape,
        f"{output.shape}",
    )


def several_angles(
    lesson: Lesson, rng: np.random.Generator, layer: Any, X: np.ndarray, head: Callable[..., np.ndarray],
    views: np.ndarray,
) -> None:  # fmt: skip
    """What heads have of their own: weights `views` (h, M, M), and a part of the dimensions; then all made the same."""
    W_Q, W_K, W_V = (
        p.data.T for p in (layer.q_proj.weight, layer.k_proj.weight, layer.v_proj.weight)
    )
    apart = [np.abs(views[i] - views[j]).max() for i in range(HEADS) for j in range(i)]
    lesson.fact(
        "Heads look at the words from different angles", min(apart) > 0.01,
        f"no two have the same weights; the two closest differ by up to {min(apart):.2f}",
    )  # fmt: skip
    first = np.hstack(
        [W[:, :D_HEAD] for W in (W_Q, W_K, W_V)]
    )  # (d, 3·d'): all through which head 1 sees X
    unseen = np.linalg.svd(first.T)[2][
        3 * D_HEAD :
    ]  # (d - 3·d', d): directions at right angles to them
    step = rng.standard_normal((M, len(unseen))) @ unseen  # (M, d)
    moved = [np.abs(head(X + step, i) - head(X, i)).max() for i in range(HEADS)]
    lesson.fact(
        "A head is also called a subspace", moved[0] < 1e-12 and min(moved[1:]) > 0.01,
        f"it sees at most $3d'$ = {3 * D_HEAD} of the {D} dimensions: a change of $X$ along the other {len(unseen)} of "
        f"head 1 leaves its $Z$ as it is, and moves those of the other heads by {min(moved[1:]):.2f} or more",
    )  # fmt: skip
    for p in layer.parameters():
        if p is not layer.out_proj.weight:
            p.data[D_HEAD:] = np.tile(
                p.data[:D_HEAD], (HEADS - 1, 1)
            )  # all heads get the matrices of the first
    same = nn.with_weights(layer, X[None])[1][0]
    lesson.fact(
        "To see several angles one takes several matrices", np.allclose(same, same[:1]),
        "eight heads with the same matrices give the same weights eight times",
    )  # fmt: skip


# -- positions -----------------------------------------------------------------------------------------


def positions(lesson: Lesson, rng: np.random.Generator) -> None:
    lesson.section("Supplement: the order of words")
    lesson.quote(
        "Transformer 本身是不能利用单词的顺序信息的",
        "By itself the Transformer cannot make use of the order of words",
    )
    config = nn.TransformerConfig(
        d_model=D, num_heads=HEADS, d_ff=2 * D, dropout=0.0, dtype="float64"
    )
    encoder = nn.Encoder(config, 2, rng)
    X = rng.standard_normal((1, M, D))
    order = [3, 1, 0, 2]
    place = nn.SinusoidalPositions(16, D, dtype=float)
    alone = np.abs(encoder(X[:, order]).data - encoder(X).data[:, order]).max()
    gap = np.abs(encoder(place(X[:, order])).data - encoder(place(X)).data[:, order]).max()
    causal = nn.causal_mask(M)
    masked = np.abs(encoder(X[:, order], causal).data - encoder(X, causal).data[:, order]).max()
    lesson.erratum(
        "What the Transformer knows of order", "nothing", "nothing in the encoder, something in the decoder",
        alone < 1e-12 and masked > 0.1,
        f"two encoder layers give words in another order the same vectors in that order (to {alone:.0e}); "
        f"under the causal mask of a decoder they differ by {masked:.2f}, for it tells who comes before whom",
    )  # fmt: skip
    lesson.fact(
        "So a position embedding is added to the input",
        gap > 0.1,
        f"with it they differ by {gap:.2f}",
    )
    table = place(np.zeros((1, 16, D))).data[0]  # (positions, d): what is added
    by_hand = [
        [(cos if j % 2 else sin)(pos / 10000 ** ((j - j % 2) / D)) for j in range(D)]
        for pos in range(16)
    ]
    lesson.fact(
        "$\\mathrm{PE}(pos, 2i)$ and $\\mathrm{PE}(pos, 2i+1)$ are components of the vector of a position", np.allclose(table, by_hand),
        "$2i$ and $2i+1$ count its even and odd dimensions: $\\sin(pos / 10000^{2i/d})$ in the first, the cosine in the second",
    )  # fmt: skip


# -- normalisation -------------------------------------------------------------------------------------

# Rows and columns have whole means and whole standard deviations, so that each step can be done by hand.
TABLE = np.array([[1, 9, 3, 3], [3, 7, 7, 3], [3, 1, 3, 1], [9, 7, 7, 1]], float)  # (n, d)
BY_ROWS = np.array([[-3, 5, -1, -1], [-2, 2, 2, -2], [1, -1, 1, -1], [3, 1, 1, -5]]) / [
    [3],
    [2],
    [1],
    [3],
]
BY_COLUMNS = np.array([[-3, 3, -2, 1], [-1, 1, 2, 1], [-1, -5, -2, -1], [5, 1, 2, -1]]) / [
    3,
    3,
    2,
    1,
]
EPS = 1e-5


def layer_norm(lesson: Lesson, rng: np.random.Generator) -> None:
    lesson.section("Layer normalisation, by rows")
    lesson.formula(
        r"\mu_i = \frac{1}{d} \sum_{j} x_{ij} \qquad \sigma_i^2 = \frac{1}{d} \sum_{j} (x_{ij} - \mu_i)^2 \qquad y_{ij} = \gamma_j \frac{x_{ij} - \mu_i}{\sqrt{\sigma_i^2 + \epsilon}} + \beta_j",
        "$i$ counts samples (rows), $j$ features (columns).",
    )
    lesson.say("""Through many layers the numbers of a word may grow without end, or shrink to nothing. A norm
    brings them back to one size: subtract the mean, divide by the standard deviation; then a scale $\\gamma$ and a
    shift $\\beta$, which are learned, put in place what size serves best. All that is open is of which numbers the
    mean is taken. Here: of the features of one sample.""")
    X, d = TABLE, TABLE.shape[1]
    lesson.show("$X$: $n$ samples in rows, $d$ features in columns", X, 0)
    mean = X.sum(1, keepdims=True) / d  # μ_i = Σ_j x_ij / d: (n, 1)
    var = ((X - mean) ** 2).sum(1, keepdims=True) / d  # σ_i² = Σ_j (x_ij - μ_i)² / d: (n, 1)
    normal = (X - mean) / np.sqrt(var + EPS)  # (n, d)
    lesson.fact("Step 1: the mean of each row", (mean.ravel() == [4, 5, 2, 6]).all(), "4, 5, 2, 6")
    lesson.fact(
        "Step 2: the variance of each row",
        (var.ravel() == [9, 4, 1, 9]).all(),
        "9, 4, 1, 9 (divided by $d$)",
    )
    lesson.fact(
        "Step 3: $(x_{ij} - \\mu_i) / \\sqrt{\\sigma_i^2 + \\epsilon}$",
        np.allclose(normal, BY_ROWS, atol=1e-4),
        "as it is done by hand",
    )
    lesson.show("normalised", normal)

    layer = nn.LayerNorm(d, EPS, dtype=float)
    lesson.fact(
        "`nn.LayerNorm` does these three steps", np.allclose(layer(X).data, normal, atol=1e-12),
        "with $\\gamma = 1$ and $\\beta = 0$, as they start",
    )  # fmt: skip
    constant = np.full((1, d), 7.0)
    lesson.fact(
        "$\\epsilon$ keeps a division by zero away", (layer(constant).data == 0).all(),
        f"a row of equal numbers has variance 0 and becomes zeros, for it is divided by $\\sqrt{{\\epsilon}}$ = {sqrt(EPS):.4f}",
    )  # fmt: skip
    gamma, beta = rng.standard_normal((2, d))
    layer.weight.data[:], layer.bias.data[:] = gamma, beta
    lesson.fact(
        "Step 4: $\\gamma_j$ times it, plus $\\beta_j$", np.allclose(layer(X).data, gamma * normal + beta, atol=1e-12),
        "the same $\\gamma_j$ and $\\beta_j$ for all rows",
    )  # fmt: skip
    names = [name for name, p in layer.named_parameters() if p.shape == (d,) and p.requires_grad]
    lesson.fact(
        "$\\gamma$ and $\\beta$ are learned, one for each feature",
        names == ["weight", "bias"],
        f"{d} of each",
    )
    alone = np.concatenate([layer(row[None]).data for row in X])  # n = 1, four times
    lesson.fact(
        "It does not depend on the size $n$ of the batch", np.allclose(alone, layer(X).data, atol=1e-12),
        "each row by itself, $n = 1$, gives the same",
    )  # fmt: skip


def batch_norm(lesson: Lesson, rng: np.random.Generator) -> None:
    lesson.section("Batch normalisation, by columns")
    lesson.formula(
        r"\mu_j = \frac{1}{n} \sum_{i} x_{ij} \qquad \sigma_j^2 = \frac{1}{n} \sum_{i} (x_{ij} - \mu_j)^2 \qquad y_{ij} = \gamma_j \frac{x_{ij} - \mu_j}{\sqrt{\sigma_j^2 + \epsilon}} + \beta_j"
    )
    lesson.say(
        """The same, but of other numbers: each feature is compared with itself in all the other samples of the
        batch."""
    )
    lesson.predict(
        "Transpose the matrix, apply layer norm, transpose back. What comes out?",
        "Batch norm: the two differ only in the axis.",
    )
    X, (n, d) = TABLE, TABLE.shape
    mean = X.sum(0) / n  # μ_j = Σ_i x_ij / n: (d,)
    var = ((X - mean) ** 2).sum(0) / n  # σ_j² = Σ_i (x_ij - μ_j)² / n: (d,)
    normal = (X - mean) / np.sqrt(var + EPS)  # (n, d)
    lesson.fact("Step 1: the mean of each column", (mean == [4, 6, 5, 2]).all(), "4, 6, 5, 2")
    lesson.fact(
        "Step 2: the variance of each column",
        (var == [9, 9, 4, 1]).all(),
        "9, 9, 4, 1 (divided by $n$)",
    )
    lesson.fact(
        "Step 3: $(x_{ij} - \\mu_j) / \\sqrt{\\sigma_j^2 + \\epsilon}$",
        np.allclose(normal, BY_COLUMNS, atol=1e-4),
        "as by hand",
    )
    lesson.show("normalised", normal)

    layer = nn.BatchNorm1d(d, EPS, dtype=float)
    lesson.fact(
        "`nn.BatchNorm1d` does these three steps",
        np.allclose(layer(X).data, normal, atol=1e-12),
        "in training",
    )
    lesson.fact(
        "$\\gamma$ and $\\beta$ usually start at 1 and 0", (layer.weight.data == 1).all() and (layer.bias.data == 0).all(),
        "so scale and shift change nothing at first",
    )  # fmt: skip
    level = X.copy()
    level[:, 2] = 5.0
    lesson.fact(
        "$\\epsilon$ keeps a division by zero away",
        (layer(level).data[:, 2] == 0).all(),
        "equal columns become zeros",
    )
    gamma, beta = rng.standard_normal((2, d))
    layer.weight.data[:], layer.bias.data[:] = gamma, beta
    lesson.fact(
        "Step 4: $\\gamma_j$ times it, plus $\\beta_j$",
        np.allclose(layer(X).data, gamma * normal + beta, atol=1e-12),
    )
    layer.weight.data[:], layer.bias.data[:] = np.sqrt(var + EPS), mean
    lesson.fact(
        "$\\gamma$ and $\\beta$ can bring the original scale back", np.allclose(layer(X).data, X, atol=1e-12),
        "with $\\gamma_j = \\sqrt{\\sigma_j^2 + \\epsilon}$ and $\\beta_j = \\mu_j$ the layer returns $X$",
    )  # fmt: skip


def compare_norms(lesson: Lesson, rng: np.random.Generator) -> None:
    lesson.section("Layer or batch normalisation")
    d = TABLE.shape[1]
    by_rows, by_columns = nn.LayerNorm(d, EPS, dtype=float), nn.BatchNorm1d(d, EPS, dtype=float)
    rows, columns = by_rows(TABLE).data, by_columns(TABLE).data
    ends = [(x.mean(axis), x.std(axis)) for x, axis in ((rows, 1), (columns, 0))]
    is_normal = [np.allclose(m, 0, atol=1e-12) and np.allclose(s, 1, atol=1e-4) for m, s in ends]
    lesson.fact("Layer norm: each row comes to mean 0 and variance 1, by itself", is_normal[0])
    lesson.fact("Batch norm: each column does, over all samples", is_normal[1])
    lesson.fact(
        "They differ only in the axis",
        np.allclose(columns, by_rows(TABLE.T).data.T),
        r"$\mathrm{BN}(X) = \mathrm{LN}(X^\top)^\top$",
    )
    lesson.picture(
        "norms.png",
        lambda path: norms_picture(path, rows, columns),
        caption="The same matrix, normalised by rows and by columns; the lines show what is normalised together.",
        alt="Three 4 by 4 matrices with their numbers: as given, by rows, and by columns.",
    )

    companions = np.concatenate(
        [TABLE[:1], 10 * rng.standard_normal((3, d))]
    )  # the first sample in another batch
    moved = [
        np.abs(layer(companions).data[0] - layer(TABLE).data[0]).max()
        for layer in (by_rows, by_columns)
    ]
    lesson.fact(
        "Layer norm treats each sample alone; batch norm depends on the batch", moved[0] < 1e-12 and moved[1] > 0.1,
        f"among other samples the first stays as it is under layer norm; under batch norm it changes by {moved[1]:.2f}",
    )  # fmt: skip
    try:
        by_columns(TABLE[:1])
        refusal = ""
    except ValueError as error:
        refusal = str(error)
    lesson.fact(
        "Layer norm suits small batches and single samples",
        refusal,
        f"batch norm refuses one: {refusal!r}",
    )


def norms_in_use(lesson: Lesson, rng: np.random.Generator) -> None:
    lesson.section("Where each of them serves")
    d = TABLE.shape[1]
    by_rows, by_columns = nn.LayerNorm(d, EPS, dtype=float), nn.BatchNorm1d(d, EPS, dtype=float)
    sentence = rng.standard_normal((1, M, d))
    batch = np.concatenate(
        [sentence, np.concatenate([5 * rng.standard_normal((1, 2, d)), np.zeros((1, 2, d))], 1)]
    )
    moved = [
        np.abs(layer(batch).data[0] - layer(sentence).data[0]).max()
        for layer in (by_rows, by_columns)
    ]
    lesson.fact(
        "Layer norm suits sequences", moved[0] < 1e-12 and moved[1] > 0.1,
        "a sentence of four words, put beside one of two words and padding, keeps its vectors; batch norm would change "
        f"them by {moved[1]:.2f}",
    )  # fmt: skip
    model = nn.Transformer(nn.TransformerConfig(8, 8, d_model=8, num_heads=2), rng)
    kinds = [type(m) for m in model.modules() if isinstance(m, (nn.LayerNorm, nn.BatchNorm1d))]
    lesson.fact(
        "The Transformer has layer norm",
        set(kinds) == {nn.LayerNorm},
        f"{len(kinds)} in 6 + 6 layers, no batch norm",
    )

    images = rng.standard_normal((3, 5, d))  # three samples, five positions, d channels
    channels = nn.BatchNorm1d(d, EPS, dtype=float)(images).data
    flat = images.reshape(15, d)
    by_hand = ((flat - flat.mean(0)) / np.sqrt(flat.var(0) + EPS)).reshape(images.shape)
    lesson.fact(
        "Batch norm serves convolutional nets", np.allclose(channels, by_hand),
        "a channel is a column: all positions of all samples of (n, L, d) together make its mean and variance",
    )  # fmt: skip
    depth, width = 20, 64
    linears = [nn.Linear(width, width, dtype=float, generator=rng) for _ in range(depth)]
    h = normed = rng.standard_normal((256, width))
    for linear in linears:
        h = linear(h).relu().data
        normed = nn.BatchNorm1d(width, dtype=float)(linear(normed)).relu().data
    lesson.fact(
        "And fully connected ones", h.std(0).mean() < 1e-3 and 0.4 < normed.std(0).mean() < 0.8,
        f"after {depth} layers of {width}, features differ between samples by {h.std(0).mean():.0e} on average; "
        f"with batch norm by {normed.std(0).mean():.2f}",
    )  # fmt: skip
    running = 0.1 * TABLE.mean(0), 0.9 + 0.1 * TABLE.var(0, ddof=1)
    fresh = nn.BatchNorm1d(d, EPS, dtype=float)
    fresh(TABLE)
    matches = np.allclose(fresh.running_mean, running[0]) and np.allclose(
        fresh.running_var, running[1]
    )
    single = fresh.eval()(TABLE[:1]).data
    as_stated = matches and np.allclose(
        single, (TABLE[:1] - running[0]) / np.sqrt(running[1] + EPS)
    )
    lesson.fact(
        "Batch norm uses the statistics of the batch", as_stated,
        "in training; what the text does not tell: it keeps running ones, a tenth of each new batch, and takes those "
        "in evaluation, where it therefore accepts a single sample",
    )  # fmt: skip


def norms_picture(path: Path, rows: np.ndarray, columns: np.ndarray) -> None:
    """The matrix, and both ways to normalise it; lines show what is normalised together."""
    figure = require("matplotlib.figure", "plotting").Figure(
        figsize=(9.6, 3.6), layout="constrained"
    )
    titles = ("X", "layer norm: each row by itself", "batch norm: each column by itself")
    for i, (title, values) in enumerate(zip(titles, (TABLE, rows, columns))):
        axes = figure.add_subplot(1, 3, i + 1)
        # each panel by its own range; what is above its mean is blue, what is below red
        reach = np.abs(values - values.mean()).max() * 1.7
        axes.imshow(values - values.mean(), cmap="RdBu", vmin=-reach, vmax=reach)
        for (r, c), value in np.ndenumerate(values):
            axes.text(
                c,
                r,
                f"{value:.0f}" if i == 0 else f"{value:.2f}",
                ha="center",
                va="center",
                fontsize=11,
            )
        for edge in np.arange(0.5, 3):
            if i == 1:
                axes.axhline(edge, color="black", lw=2)
            if i == 2:
                axes.axvline(edge, color="black", lw=2)
        axes.set_xticks(range(4), [f"feature {j + 1}" for j in range(4)], fontsize=7.5)
        axes.set_yticks(
            range(4), [f"sample {j + 1}" for j in range(4)] if i == 0 else [""] * 4, fontsize=8
        )
        axes.tick_params(length=0)
        axes.set_title(title, fontsize=10.5)
    figure.savefig(path, dpi=150)


# -- the decoder block ---------------------------------------------------------------------------------


def masked_attention(lesson: Lesson, rng: np.random.Generator) -> None:
    lesson.section("The decoder block: masked attention")
    lesson.quote(
        "先使用Mask矩阵，将$QK^T$变成Mask $QK^T$，再对Mask $QK^T$的每一行做$softmax$。",
        "First the mask is put on $QK^\\top$, then each row goes through the softmax.",
    )
    lesson.say("""A decoder writes from left to right, but it learns from whole sentences. If a word could look at
    those after it, it would copy the very word that it is to predict, and learn nothing. So a *mask* says of each
    query which keys it may see. The one that allows a word itself and those before it is called *causal*.""")
    lesson.diagram("masks", "The second is the decoder's.")
    block = nn.TransformerDecoderLayer(D, HEADS, 2 * D, dropout=0.0, dtype=float, generator=rng)
    attentions = [m for m in block.modules() if isinstance(m, nn.MultiHeadAttention)]
    kinds = [type(m) for m in attentions]
    lesson.fact(
        "Each decoder block has two multi-head attentions",
        kinds == [nn.MultiHeadSelfAttention, nn.MultiHeadCrossAttention],
        f"{' and '.join(f'`{kind.__name__}`' for kind in kinds)}",
    )

    L = len(TARGET) + 1  # <Begin> and four words
    X = rng.standard_normal((1, L, D))
    attention, mask = attentions[0], nn.causal_mask(L)  # (L, L), True = may attend
    q, k = (
        proj(X).data[0, :, :D_HEAD] for proj in (attention.q_proj, attention.k_proj)
    )  # (L, d'): the first head
    scores = q @ k.T / sqrt(D_HEAD)  # (L, L)
    masked = np.where(mask, scores, -np.inf)  # Mask Q Kᵀ
    A = softmax(masked)
    lesson.show(r"Mask $QK^\top / \sqrt{d'}$", masked, 2)
    lesson.show("softmax of each row", A, 2)
    found = nn.with_weights(attention, X, mask)[1][0, 0]
    lesson.fact(
        "$QK^\\top$ is masked first, and the softmax of each row taken then", np.allclose(A, found, atol=1e-12),
        "so it is in `nn.MultiHeadSelfAttention`; hidden scores are $-\\infty$, and their weight $e^{-\\infty} = 0$",
    )  # fmt: skip
    lesson.fact(
        "Each row still sums to 1",
        np.allclose(found.sum(1), 1),
        "the first word attends to itself alone",
    )
    late = softmax(scores) * mask  # the mask after the softmax
    zeros = softmax(scores * mask)  # a product with zeros in place of -∞
    lesson.fact(
        "Why before the softmax", late.sum(1).min() < 0.9 and np.allclose(late / late.sum(1)[:, None], A),
        f"put after it, rows sum to as little as {late.sum(1).min():.2f}, until they are normalised once more",
    )  # fmt: skip
    lesson.fact(
        "What the Mask matrix must do to $QK^\\top$, which the text leaves open: put $-\\infty$, not 0", zeros[~mask].min() > 0.05,
        f"a score of 0 still gets a weight, for $e^0 = 1$: up to {zeros[~mask].max():.2f} would go to words to come",
    )  # fmt: skip
    nothing_later(lesson, rng, block, X, mask)


def nothing_later(
    lesson: Lesson, rng: np.random.Generator, block: Any, X: np.ndarray, mask: np.ndarray
) -> None:
    memory = rng.standard_normal((1, M, D))
    other = X.copy()
    other[:, 3] = rng.standard_normal(D)  # another fourth word
    moved = np.abs(
        block(other, memory, mask=mask, is_causal=False).data
        - block(X, memory, mask=mask, is_causal=False).data
    ).max((0, 2))  # (L,)
    lesson.fact(
        "So no position sees what comes after it", (moved[:3] < 1e-12).all() and (moved[3:] > 1e-3).all(),
        "with another fourth word, the block gives the same at positions 1 to 3, and other vectors at 4 and 5",
    )  # fmt: skip


def cross_attention(lesson: Lesson, rng: np.random.Generator) -> None:
    lesson.section("The decoder block: attention to the encoder")
    lesson.quote(
        "Q使用上一个 Decoder block 的输出计算得出",
        "$Q$ is computed from the output of the decoder block before",
    )
    lesson.say(
        """Is it? We look into a running decoder, with hooks (functions that are called whenever a layer runs), at
        what its second attention is really given."""
    )
    config = nn.TransformerConfig(
        d_model=D, num_heads=HEADS, d_ff=2 * D, dropout=0.0, dtype="float64"
    )
    encoder, decoder = nn.Encoder(config, 2, rng), nn.Decoder(config, 2, rng)
    C = encoder(rng.standard_normal((1, M, D)))  # (1, M, d)
    Y = rng.standard_normal((1, len(TARGET) + 1, D))  # (1, L, d)

    inputs: list[np.ndarray] = []  # of each block: what it is given,
    normed: list[np.ndarray] = []  # LayerNorm(x + masked attention of x),
    seen: list[
        list[np.ndarray]
    ] = []  # and what its second attention is given: queries, and keys and values
    hooks = []
    for block in decoder.layers:
        hooks += [
            block.register_forward_pre_hook(lambda _, args: inputs.append(np.array(args[0]))),
            block.norm1.register_forward_hook(lambda _, args, y: normed.append(y.data)),
            block.cross_attention.register_forward_pre_hook(
                lambda _, args: seen.append([x.data for x in args])
            ),
        ]
    with mg.no_grad():
        decoder(Y, C, nn.causal_mask(Y.shape[1]))
    for hook in hooks:
        hook.remove()

    lesson.fact(
        "$K$ and $V$ of the second attention are made of the encoder's $C$", all(kv is C.data for _, kv in seen),
        "in both blocks it is given that very array",
    )  # fmt: skip
    own = all((q == y).all() for (q, _), y in zip(seen, normed))
    previous = any(np.allclose(q, x) for (q, _), x in zip(seen, inputs))
    lesson.erratum(
        "Where $Q$ of the second attention comes from", "the output of the decoder block before",
        "the masked attention of the same block", own and not previous,
        "what enters it is the layer norm of $x$ plus the masked attention of $x$; and $x$ is the output of the block before, in "
        "the first block the embedded words",
    )  # fmt: skip
    the_product_with_the_encoder(lesson, decoder.layers[0].cross_attention, seen[0][0], C)
    other = encoder(rng.standard_normal((1, M, D)))
    moved = np.abs(decoder(Y, other).data - decoder(Y, C).data).max((0, 2))
    lesson.fact(
        "There $C$ is put into the decoder",
        (moved > 1e-3).all(),
        "another $C$, and the result is another everywhere",
    )


def the_product_with_the_encoder(lesson: Lesson, attention: Any, y: np.ndarray, C: Any) -> None:
    x_q, x_kv = y[0], C.data[0]  # (L, d), (M, d)
    project = lambda layer, x: x @ layer.weight.data.T + layer.bias.data
    Q, K, V = (
        project(attention.q_proj, x_q),
        project(attention.k_proj, x_kv),
        project(attention.v_proj, x_kv),
    )
    heads = [slice(i * D_HEAD, (i + 1) * D_HEAD) for i in range(HEADS)]
    A = [softmax(Q[:, h] @ K[:, h].T / sqrt(D_HEAD)) for h in heads]  # (L, M) each
    Z = project(
        attention.out_proj, np.concatenate([a @ V[:, h] for a, h in zip(A, heads)], 1)
    )  # (L, d)
    lesson.fact(
        "So $K$ and $V$ have a row for each source word, $Q$ one for each target word",
        len(Q) == 5 and len(K) == len(V) == 4,
    )
    lesson.fact(
        "Its $\\softmax(QK^\\top / \\sqrt{d'})\\,V$ is `nn.MultiHeadCrossAttention`",
        A[0].shape == (5, 4) and np.allclose(attention(y, C).data[0], Z, atol=1e-12),
        "the weights are 5 × 4, and the result has a row for each target word",
    )


# -- the worked sentence -------------------------------------------------------------------------------


class Corpus:
    """Sentences to learn from, others to be asked about, and the words that both use."""

    def __init__(self, n: int = 1600, held_out: int = 200) -> None:
        pairs = [(s.split(), t.split()) for s, t in chinese_english(8000)]
        short = [
            (s, t) for s, t in pairs if len(s) <= 5 and s != SOURCE
        ]  # the worked sentence is not learned from
        self.train, self.held_out = short[:n], short[n : n + held_out]
        self.source_vocab = Vocabulary.build(s for s, _ in self.train)
        self.target_vocab = Vocabulary.build(t for _, t in self.train)

    def sources(self, sentences: Sequence[Sequence[str]]) -> np.ndarray:
        return padded([self.source_vocab.encode(s) for s in sentences])  # (N, L)

    def targets(self, sentences: Sequence[Sequence[str]]) -> np.ndarray:
        return padded(
            [self.target_vocab.encode(t, bos=True, eos=True) for t in sentences]
        )  # (N, 1 + L + 1)


def train(
    corpus: Corpus, epochs: int = 11, batch: int = 64, seed: int = 0
) -> tuple[nn.Transformer, list[float]]:
    """A Transformer of one layer a side, and its loss at each step."""
    rng = np.random.default_rng(seed)
    config = nn.TransformerConfig(
        len(corpus.source_vocab), len(corpus.target_vocab), d_model=D, num_heads=HEADS, num_encoder_layers=1,
        num_decoder_layers=1, d_ff=2 * D, dropout=0.1,
    )  # fmt: skip
    model = nn.Transformer(config, rng)
    source, target = (
        f(side) for f, side in zip((corpus.sources, corpus.targets), zip(*corpus.train))
    )
    steps = epochs * -(-len(source) // batch)
    optimizer = mg.optim.Adam(model.parameters(), lr=3e-3, betas=(0.9, 0.98), clip_norm=1.0)
    schedule = mg.optim.Schedule(optimizer, mg.optim.cosine_schedule(steps, warmup=steps // 10))
    losses = []
    for _ in range(epochs):
        order = rng.permutation(len(source))
        for start in range(0, len(source), batch):
            rows = order[start : start + batch]
            optimizer.zero_grad()
            loss = model.loss(source[rows], target[rows])
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
    model.eval()
    return model, losses


def worked_sentence(
    lesson: Lesson, corpus: Corpus, model: nn.Transformer, losses: Sequence[float]
) -> None:
    lesson.section("Encoder and decoder: 我 有 一只 猫")
    lesson.diagram("model", "The model of this section, with $N = 1$.")
    lesson.say(
        f"A Transformer of one layer a side, $d$ = {D}, $h$ = {HEADS}, with {model.num_parameters():,} parameters, has "
        f"learned {len(corpus.train)} short sentences of a small grammar in {len(losses)} steps of Adam; its loss fell "
        f"from {losses[0]:.2f} to {np.mean(losses[-10:]):.2f}. The text's sentence was not among them. What the text "
        "calls <Begin> and <end> are <bos> and <eos> here, *beginning* and *end of sequence*."
    )
    source, target = corpus.sources([SOURCE]), corpus.targets([TARGET])  # (1, 4), (1, 6)
    read, wanted = (
        target[:, :-1],
        target[:, 1:],
    )  # (1, 5) each: what the decoder reads, what it must say
    words = lambda ids: [corpus.target_vocab.tokens[i] for i in ids]

    X = model.source_embedding(source)  # (1, 4, d)
    C = model.encode(source)  # (1, 4, d)
    lesson.fact(
        "The encoder's input is $X$ $(n, d)$, of 4 words",
        X.shape == (1, 4, D),
        f"{X.shape}, the first a batch of 1",
    )
    lesson.fact(
        "The encoder's output $C$ has the dimensions of $X$", C.shape == X.shape, f"{C.shape}"
    )
    Y = model.target_embedding(read)  # (1, 5, d)
    lesson.fact(
        "The decoder's input is $X$ $(n, d)$, of 5 words: <Begin> I have a cat",
        Y.shape == (1, 5, D) and read[0, 0] == BOS,
    )
    scores = model(source, read).data  # (1, 5, vocabulary)
    said = scores.argmax(-1)[0]
    lesson.say(
        "In training the decoder reads the target shifted by one place, and says the next word at each:"
    )
    sure = [f"{p:.3f}" for p in softmax(scores)[0].max(-1)]
    rows = {
        "reads": words(read[0]),
        "must say": words(wanted[0]),
        "says": words(said),
        "sure": sure,
    }
    lesson.table(["place", *"12345"], [[name, *row] for name, row in rows.items()])
    lesson.fact(
        "The decoder's output is I have a cat <end>",
        (said == wanted[0]).all(),
        "at all five places at once",
    )

    [h] = nn.greedy_search(model, source, max_len=12)
    lesson.fact(
        "Left alone with <Begin>, it says I have a cat <end>", h.tokens == wanted[0].tolist(),
        f"{' '.join(words(h.tokens))}, with probability {np.exp(h.log_prob):.3f}",
    )  # fmt: skip
    lesson.say("There each word that it says is read at the next step:")
    steps = [
        [" ".join(words([BOS, *h.tokens[:i]])), f"→ {words(h.tokens)[i]}"]
        for i in range(len(h.tokens))
    ]
    lesson.table(["it reads", "and says"], steps)
    log_p = scores[0] - np.log(np.exp(scores[0]).sum(-1, keepdims=True))  # (5, vocabulary)
    forced = log_p[np.arange(5), wanted[0]].sum()
    lesson.fact(
        "Both are the same computation", isclose(forced, h.log_prob, abs_tol=1e-4),
        f"log-probability {forced:.5f} in one pass, {h.log_prob:.5f} word by word: the mask hides what comes later",
    )  # fmt: skip


def other_sentences(lesson: Lesson, corpus: Corpus, model: nn.Transformer) -> None:
    sources, targets = zip(*corpus.held_out)
    found = [
        corpus.target_vocab.decode(h.tokens)
        for h in nn.greedy_search(model, corpus.sources(sources), max_len=16)
    ]
    right = np.mean([a == b for a, b in zip(found, targets)])
    lesson.say("Some of the sentences that it has not seen before:")
    lesson.listing(
        "\n".join(f"{' '.join(s)}  →  {' '.join(t)}" for s, t in list(zip(sources, found))[:5])
    )
    lesson.fact(
        "The words are predicted, not known by heart", right >= 0.85,
        f"{right:.1%} of {len(targets)} sentences that it has not seen are translated as the grammar does",
    )  # fmt: skip


def what_it_looks_at(lesson: Lesson, corpus: Corpus, model: nn.Transformer) -> None:
    target = corpus.targets([TARGET])[0]  # (6,)
    words = lambda ids: [corpus.target_vocab.tokens[i] for i in ids]
    maps = nn.attention_maps(model, corpus.sources([SOURCE]), target[1:])
    cross, masked = maps["cross"][0], maps["decoder"][0]  # (h, 5, 4), (h, 5, 5)
    lesson.fact(
        "In the second attention the decoder looks up the source words",
        cross.shape == (HEADS, 5, 4) and cross.mean(0)[3].argmax() == 3,
        f"to say cat it looks at 猫 most: with {cross.mean(0)[3, 3]:.2f} of its weight, in the mean of the heads",
    )
    lesson.fact(
        "The first attention sees no word to come", (masked[:, ~nn.causal_mask(5)] == 0).all()
    )
    page = nn.explore(
        model, corpus.sources([SOURCE]), SOURCE, target[1:], [*TARGET, "<eos>"], title=" ".join(SOURCE),
        vocabulary=corpus.target_vocab.tokens,
    )  # fmt: skip
    lesson.explorer(
        page, "All its heads, to look at: the decoder's second attention is called cross."
    )
    says, reads = [f"says {word}" for word in words(target[1:])], words(target[:-1])
    title = "attention to the encoder (mean of heads)"
    lesson.picture(
        "cross_attention.png",
        lambda path: attention_heatmap(cross.mean(0), says, SOURCE, title, path),
        caption="What the decoder looks at in the source to say each word.",
        alt="A heat map of five English words by four Chinese ones; most rows have one dark cell.",
    )
    title = "self-attention: encoder"
    lesson.picture(
        "heads.png",
        lambda path: attention_grid([maps["encoder"][0]], SOURCE, SOURCE, title, path),
        caption="The encoder's eight heads for 我 有 一只 猫: no two are the same.",
        alt="Eight 4 by 4 heat maps of weights.",
    )
    title = "masked self-attention: decoder"
    lesson.picture(
        "masked_heads.png",
        lambda path: attention_grid([masked], reads, reads, title, path),
        caption="The decoder's eight heads: above the diagonal all is 0, since no word sees one to come.",
        alt="Eight 5 by 5 heat maps, empty above the diagonal.",
    )


def main(argv: Sequence[str] | None = None) -> int:
    lesson = Lesson("transformer_notes", __doc__ or "", argv)
    lesson.source(
        "Multi-head self-attention and the Transformer (多头自注意力机制与Transformer)",
        "notes of 2024-12-06",
        "000_170e9c9fc48d8396.txt",
        note="For the computation it refers to [this article](https://zhuanlan.zhihu.com/p/338817680), in Chinese.",
    )
    rng = np.random.default_rng(0)
    self_attention(lesson, rng)
    multi_head(lesson, rng)
    positions(lesson, rng)
    layer_norm(lesson, rng)
    batch_norm(lesson, rng)
    compare_norms(lesson, rng)
    norms_in_use(lesson, rng)
    masked_attention(lesson, rng)
    cross_attention(lesson, rng)
    corpus = Corpus()
    model, losses = train(corpus)
    worked_sentence(lesson, corpus, model, losses)
    other_sentences(lesson, corpus, model)
    what_it_looks_at(lesson, corpus, model)
    lesson.exercise(
        "Put the mask after the softmax instead of before. What is wrong with the rows then?",
        "They no longer sum to 1: what later words got is cut off and lost.",
    )
    lesson.exercise(
        "A batch of one sample: why does batch norm refuse it in training, and not in evaluation?",
        "Its variance over one sample is 0 and says nothing; in evaluation running statistics stand in.",
    )
    return lesson.end()


if __name__ == "__main__":
    raise SystemExit(main())
