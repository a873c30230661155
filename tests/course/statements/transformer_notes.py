"""Statements of "Multi-head self-attention and the Transformer"."""

from __future__ import annotations

import itertools
from math import cos, isclose, sin, sqrt
from typing import Any

import numpy as np
from support.statements import Statements, gap, refusal, same
from toy_translation import SOURCE, TARGET, Corpus, train

import minigrad as mg
import nn
from nn.text.vocabulary import BOS

M, D, HEADS = 4, 64, 8  # words in the sentence, features of a word, heads
D_HEAD = D // HEADS  # features of a word in a head: the text's d'
Array = np.ndarray


def softmax(scores: np.ndarray) -> np.ndarray:
    return mg.softmax(scores).data


# -- self-attention ------------------------------------------------------------------------------------


def self_attention(text: Statements, rng: np.random.Generator) -> None:
    text.section("Self-attention: X → Q, K, V → scores → Z")
    X = rng.standard_normal((M, D))  # (M, d): a row for each word
    W_Q, W_K, W_V = rng.standard_normal((3, D, D_HEAD)) / sqrt(D)  # (d, d') each
    Q, K, V = X @ W_Q, X @ W_K, X @ W_V  # (M, d') each
    text.fact("$X$ has $M$ rows of $d$ features, a row for each word", X.shape == (M, D))
    text.fact(
        "$Q = XW_Q$, $K = XW_K$ and $V = XW_V$ have $M$ rows",
        Q.shape == K.shape == V.shape == (M, D_HEAD),
    )
    other = X.copy()
    other[2] = rng.standard_normal(D)  # another third word
    changed = [(abs(other @ W - X @ W).max(1) > 1e-12).tolist() for W in (W_Q, W_K, W_V)]
    text.fact(
        "Each row of $X$, $Q$, $K$, $V$ belongs to one word", changed == [[False, False, True, False]] * 3,
        "with another third word, row 3 of $Q$, $K$ and $V$ changes, and no other",
    )  # fmt: skip

    scores = Q @ K.T  # (M, M)
    text.fact("$QK^\\top$ is $M \\times M$", scores.shape == (M, M))
    text.fact(
        "Its element $a_{ij}$ relates word $i$ to word $j$",
        same(scores, [[q @ k for k in K] for q in Q]),
        "it is the dot product $q_i \\cdot k_j$",
    )
    many = rng.standard_normal((512, D))
    size = (many @ W_Q @ (many @ W_K).T).std()
    text.fact(
        "Dividing by $\\sqrt{d'}$ keeps the $a_{ij}$ from growing too large", size > 2 and 0.8 < size / sqrt(D_HEAD) < 1.25,
        f"over 512 words their standard deviation is {size:.2f}, and {size / sqrt(D_HEAD):.2f} after the division; "
        "lesson 2 shows what large ones would do",
    )  # fmt: skip
    A = softmax(scores / sqrt(D_HEAD))  # (M, M)
    text.fact(
        "The softmax keeps $M \\times M$ and makes each row sum to 1",
        A.shape == (M, M) and same(A.sum(1), 1),
    )
    Z = A @ V
    z = [sum(a_j * v_j for a_j, v_j in zip(a, V)) for a in A]
    text.erratum(
        "The last step", "an elementwise product with $V$", "the matrix product", refusal(lambda: A * V) and same(Z, z),
        f"{A.shape} and {V.shape} cannot be multiplied element by element; $z_i = \\sum_j a_{{ij}} v_j$, a mean of the rows of $V$",
    )  # fmt: skip
    layer = nn.DotProductAttention()
    found = layer(Q[None], K[None], V[None])[0]  # (M, d')
    text.erratum(
        "The formula of $Z$", r"$\softmax(QK^\top)\,V$", "$\\softmax(QK^\\top / \\sqrt{d'})\\,V$",
        same(found, Z) and not same(found, softmax(scores) @ V, 0.01),
        "the formula leaves out the division that the text asks for before; `nn.DotProductAttention` gives the second",
    )  # fmt: skip
    text.fact("$Z$ is $M \\times d'$", Z.shape == (M, D_HEAD))
    text.fact(
        "$X$, $V$ and $Z$ all have $M$ rows, a vector for each word",
        len(X) == len(V) == len(Z) == M,
    )
    attend = lambda x: layer((x @ W_Q)[None], (x @ W_K)[None], (x @ W_V)[None])[0]
    influence, before = (
        np.linalg.norm(mg.jacobian(f)(X).data, axis=(1, 3)) for f in (attend, lambda x: x @ W_V)
    )  # ‖∂z_i / ∂x_j‖ and ‖∂v_i / ∂x_j‖, (M, M)
    text.fact(
        "Each row of $Z$ holds information of the other words", (influence > 1e-4).all(),
        "no derivative $\\partial z_i / \\partial x_j$ is zero: what word $i$ becomes depends on every word $j$",
    )  # fmt: skip
    text.fact(
        "The rows of $X$ hold none, and $V$ does not add it", (before[~np.eye(M, dtype=bool)] == 0).all(),
        "$\\partial v_i / \\partial x_j$ is zero for $i \\ne j$: words meet in the product with the weights only",
    )  # fmt: skip


# -- multi-head attention ------------------------------------------------------------------------------


def multi_head(text: Statements, rng: np.random.Generator) -> None:
    text.section(f"Multi-head attention: h = {HEADS}")
    X = rng.standard_normal((M, D))
    layer = nn.ExtendedAttention(D, HEADS, bias=False, dtype=float, generator=rng)
    W_Q, W_K, W_V, W_O = (p.data.T for p in layer.parameters())  # (d, h·d') three times, (h·d', d)

    def head(x: np.ndarray, i: int) -> np.ndarray:
        own = slice(i * D_HEAD, (i + 1) * D_HEAD)
        q, k, v = x @ W_Q[:, own], x @ W_K[:, own], x @ W_V[:, own]  # (M, d') each
        return softmax(q @ k.T / sqrt(D_HEAD)) @ v  # (M, d')

    Z = [head(X, i) for i in range(HEADS)]
    output = np.concatenate(Z, axis=1) @ W_O  # (M, d)

    found, weights = nn.with_weights(layer, X[None])  # (1, M, d), (1, h, M, M)
    one = nn.DotProductAttention()  # a single self-attention, given the Q, K and V of one head
    Q, K, V = (np.stack(np.split(X @ W, HEADS, axis=1)) for W in (W_Q, W_K, W_V))  # (h, M, d') each
    text.fact(
        "Multi-head attention is several self-attentions, each with its own $Q$, $K$, $V$", same(one(Q, K, V), Z),
        f"$h$ groups of $Q$, $K$, $V$, {Q.shape}, in one self-attention at a time, give the $Z_i$",
    )  # fmt: skip
    text.fact(
        "With $h = 8$ there are 8 matrices $Z_i$",
        len(Z) == weights.shape[1] == 8,
        f"of {Z[0].shape} each",
    )
    gaps = [gap(a, b) for a, b in itertools.combinations(Z, 2)]
    text.fact(
        "Other matrices $W_Q$, $W_K$, $W_V$ give other $Z_i$", min(gaps) > 0.1,
        f"of the {len(gaps)} pairs of heads, the two closest $Z_i$ differ by up to {min(gaps):.2f}",
    )  # fmt: skip
    apart = [gap(a, b) for a, b in itertools.combinations(weights[0], 2)]
    text.fact(
        "Heads look at the words from different angles", min(apart) > 0.01,
        f"no two have the same weights; the two closest differ by up to {min(apart):.2f}",
    )  # fmt: skip
    *inputs, _ = layer.parameters()
    first = np.concatenate(
        [p.data[:D_HEAD] for p in inputs]
    )  # (3·d', d): through which head 1 sees X
    unseen = np.linalg.svd(first)[2][
        3 * D_HEAD :
    ]  # (d - 3·d', d): directions at right angles to it
    step = rng.standard_normal((M, len(unseen))) @ unseen  # (M, d)
    moved = [gap(head(X + step, i), head(X, i)) for i in range(HEADS)]
    text.fact(
        "A head is also called a subspace", moved[0] < 1e-12 and min(moved[1:]) > 0.01,
        f"it sees at most $3d'$ = {3 * D_HEAD} of the {D} dimensions: a change of $X$ along the other {len(unseen)} of "
        f"head 1 keeps its $Z$, and changes the $Z$ of the other heads by {min(moved[1:]):.2f} or more",
    )  # fmt: skip
    for p in inputs:
        p.data[...] = np.tile(
            p.data[:D_HEAD], (HEADS, 1)
        )  # all heads get the matrices of the first
    alike = nn.with_weights(layer, X[None])[1][0]
    text.fact(
        "To see several angles one takes several matrices", same(alike, alike[:1]),
        "eight heads with the same matrices give the same weights eight times",
    )  # fmt: skip
    text.fact(
        "The $Z_i$ are joined (Concat) and go through a Linear layer", same(found[0], output),
        f"the result equals the output of `nn.MultiHeadAttention` to {gap(found[0], output):.0e}",
    )  # fmt: skip
    text.fact(
        "Each $Z_i$ is $M \\times d'$, unlike $X$",
        all(z.shape == (M, D_HEAD) for z in Z),
        f"{Z[0].shape}, and $X$ {X.shape}",
    )
    text.fact(
        "The final $Z$ has the dimensions of $X$, $M \\times d$",
        output.shape == X.shape,
        f"{output.shape}",
    )


# -- positions -----------------------------------------------------------------------------------------


def positions(text: Statements, rng: np.random.Generator) -> None:
    text.section("Supplement: the order of words")
    config = nn.TransformerConfig(
        d_model=D, num_heads=HEADS, d_ff=2 * D, dropout=0.0, dtype="float64"
    )
    encoder = nn.Encoder(config, 2, rng)
    X = rng.standard_normal((1, M, D))
    order = [3, 1, 0, 2]
    place = nn.SinusoidalPositions(16, D, dtype=float)
    change = lambda f: gap(f(X[:, order]), f(X)[:, order])
    alone, placed = change(encoder), change(lambda x: encoder(place(x)))
    masked = change(lambda x: encoder(x, nn.causal_mask(M)))
    text.erratum(
        "What the Transformer knows of order", "nothing", "nothing in the encoder, something in the decoder",
        alone < 1e-12 and masked > 0.1,
        f"two encoder layers give words in another order the same vectors in that order (to {alone:.0e}); "
        f"under the causal mask of a decoder they differ by {masked:.2f}, because a word attends only to those before it",
    )  # fmt: skip
    text.fact(
        "So a position embedding is added to the input",
        placed > 0.1,
        f"with it they differ by {placed:.2f}",
    )
    table = place(np.zeros((1, 16, D))).data[0]  # (positions, d): what is added
    by_hand = [
        [(cos if j % 2 else sin)(pos / 10000 ** ((j - j % 2) / D)) for j in range(D)]
        for pos in range(16)
    ]
    text.fact(
        "$\\mathrm{PE}(pos, 2i)$ and $\\mathrm{PE}(pos, 2i+1)$ are components of the vector of a position", same(table, by_hand),
        "$2i$ and $2i+1$ count its even and odd dimensions: $\\sin(pos / 10000^{2i/d})$ in the first, the cosine in the second",
    )  # fmt: skip


# -- normalisation -------------------------------------------------------------------------------------

# Rows and columns have whole means and whole standard deviations, so that each step can be done by hand.
TABLE = np.array([[1, 9, 3, 3], [3, 7, 7, 3], [3, 1, 3, 1], [9, 7, 7, 1]], float)  # (n, d)
BY_ROWS = np.array([[-3, 5, -1, -1], [-2, 2, 2, -2], [1, -1, 1, -1], [3, 1, 1, -5]]).T / [
    3,
    2,
    1,
    3,
]
BY_COLUMNS = np.array([[-3, 3, -2, 1], [-1, 1, 2, 1], [-1, -5, -2, -1], [5, 1, 2, -1]]) / [
    3,
    3,
    2,
    1,
]
EPS = 1e-5


def both_norms() -> tuple[nn.LayerNorm, nn.BatchNorm1d]:
    """Return a layer norm and a batch norm for the columns of TABLE."""
    d = TABLE.shape[1]
    return nn.LayerNorm(d, EPS, dtype=float), nn.BatchNorm1d(d, EPS, dtype=float)


def layer_norm(text: Statements, rng: np.random.Generator) -> None:
    text.section("Layer normalisation, by rows")
    X, d = TABLE, TABLE.shape[1]
    mean = X.sum(1) / d  # μ_i = Σ_j x_ij / d: (n,)
    var = ((X.T - mean) ** 2).sum(0) / d  # σ_i² = Σ_j (x_ij - μ_i)² / d: (n,)
    normal = ((X.T - mean) / np.sqrt(var + EPS)).T  # (n, d)
    text.fact("Step 1: the mean of each row", (mean == [4, 5, 2, 6]).all(), "4, 5, 2, 6")
    text.fact(
        "Step 2: the variance of each row",
        (var == [9, 4, 1, 9]).all(),
        "9, 4, 1, 9 (divided by $d$)",
    )
    text.fact(
        "Step 3: $(x_{ij} - \\mu_i) / \\sqrt{\\sigma_i^2 + \\epsilon}$",
        same(normal, BY_ROWS.T, 0.0001),
        "as it is done by hand",
    )

    layer, _ = both_norms()
    text.fact(
        "`nn.LayerNorm` does these three steps", same(layer(X), normal),
        "with $\\gamma = 1$ and $\\beta = 0$, as they start",
    )  # fmt: skip
    constant = np.full((1, d), 7.0)
    text.fact(
        "$\\epsilon$ keeps a division by zero away", (layer(constant).data == 0).all(),
        f"a row of equal numbers has variance 0 and becomes zeros, for it is divided by $\\sqrt{{\\epsilon}}$ = {sqrt(EPS):.4f}",
    )  # fmt: skip
    gamma, beta = rng.standard_normal((2, d))
    layer.weight.data[:], layer.bias.data[:] = gamma, beta
    text.fact(
        "Step 4: $\\gamma_j$ times it, plus $\\beta_j$", same(layer(X), gamma * normal + beta),
        "the same $\\gamma_j$ and $\\beta_j$ for all rows",
    )  # fmt: skip
    names = [name for name, p in layer.named_parameters() if p.shape == (d,) and p.requires_grad]
    text.fact(
        "$\\gamma$ and $\\beta$ are learned, one for each feature",
        names == ["weight", "bias"],
        f"{d} of each",
    )
    alone = np.concatenate([layer(row[None]).data for row in X])  # n = 1, four times
    text.fact(
        "It does not depend on the size $n$ of the batch", same(alone, layer(X)),
        "each row by itself, $n = 1$, gives the same",
    )  # fmt: skip


def batch_norm(text: Statements, rng: np.random.Generator) -> None:
    text.section("Batch normalisation, by columns")
    X, (n, d) = TABLE, TABLE.shape
    mean = X.sum(0) / n  # μ_j = Σ_i x_ij / n: (d,)
    var = ((X - mean) ** 2).sum(0) / n  # σ_j² = Σ_i (x_ij - μ_j)² / n: (d,)
    normal = (X - mean) / np.sqrt(var + EPS)  # (n, d)
    text.fact("Step 1: the mean of each column", (mean == [4, 6, 5, 2]).all(), "4, 6, 5, 2")
    text.fact(
        "Step 2: the variance of each column",
        (var == [9, 9, 4, 1]).all(),
        "9, 9, 4, 1 (divided by $n$)",
    )
    text.fact(
        "Step 3: $(x_{ij} - \\mu_j) / \\sqrt{\\sigma_j^2 + \\epsilon}$",
        same(normal, BY_COLUMNS, 0.0001),
        "as by hand",
    )

    _, layer = both_norms()
    text.fact(
        "`nn.BatchNorm1d` does these three steps",
        same(layer(X), normal),
        "in training",
    )
    text.fact(
        "$\\gamma$ and $\\beta$ usually start at 1 and 0", (layer.weight.data == 1).all() and (layer.bias.data == 0).all(),
        "so scale and shift change nothing at first",
    )  # fmt: skip
    level = X.copy()
    level[:, 2] = 5.0
    text.fact(
        "$\\epsilon$ keeps a division by zero away",
        (layer(level).data[:, 2] == 0).all(),
        "equal columns become zeros",
    )
    gamma, beta = rng.standard_normal((2, d))
    layer.weight.data[:], layer.bias.data[:] = gamma, beta
    text.fact(
        "Step 4: $\\gamma_j$ times it, plus $\\beta_j$",
        same(layer(X), gamma * normal + beta),
    )
    layer.weight.data[:], layer.bias.data[:] = np.sqrt(var + EPS), mean
    text.fact(
        "$\\gamma$ and $\\beta$ can bring the original scale back", same(layer(X), X),
        "with $\\gamma_j = \\sqrt{\\sigma_j^2 + \\epsilon}$ and $\\beta_j = \\mu_j$ the layer returns $X$",
    )  # fmt: skip


def compare_norms(text: Statements, rng: np.random.Generator) -> None:
    text.section("Layer or batch normalisation")
    d, (by_rows, by_columns) = TABLE.shape[1], both_norms()
    rows, columns = by_rows(TABLE).data.T, by_columns(TABLE).data
    is_normal = lambda x: same(x.mean(0), 0) and same(x.std(0), 1, 1e-4)
    text.fact("Layer norm: each row comes to mean 0 and variance 1, by itself", is_normal(rows))
    text.fact("Batch norm: each column does, over all samples", is_normal(columns))
    text.fact(
        "They differ only in the axis",
        same(columns, by_rows(TABLE.T).T),
        r"$\mathrm{BN}(X) = \mathrm{LN}(X^\top)^\top$",
    )

    batch = np.concatenate(
        [TABLE[:1], 10 * rng.standard_normal((3, d))]
    )  # the first sample in another one
    moved = [gap(layer(batch)[0], layer(TABLE)[0]) for layer in (by_rows, by_columns)]
    text.fact(
        "Layer norm treats each sample alone; batch norm depends on the batch", moved[0] < 1e-12 and moved[1] > 0.1,
        f"among other samples the first stays the same under layer norm; under batch norm it changes by {moved[1]:.2f}",
    )  # fmt: skip
    refused = refusal(lambda: by_columns(TABLE[:1]))
    text.fact(
        "Layer norm suits small batches and single samples",
        refused,
        f"batch norm refuses one: {refused!r}",
    )


def norms_in_use(text: Statements, rng: np.random.Generator) -> None:
    text.section("Where each of them serves")
    d, (by_rows, by_columns) = TABLE.shape[1], both_norms()
    sentence = rng.standard_normal((1, M, d))
    batch = np.concatenate([sentence, np.zeros((1, M, d))])
    batch[1, :2] = 5 * rng.standard_normal((2, d))
    moved = [gap(layer(batch)[0], layer(sentence)[0]) for layer in (by_rows, by_columns)]
    text.fact(
        "Layer norm suits sequences", moved[0] < 1e-12 and moved[1] > 0.1,
        "a sentence of four words, put beside one of two words and padding, keeps its vectors; batch norm would change "
        f"them by {moved[1]:.2f}",
    )  # fmt: skip
    model = nn.Transformer(nn.TransformerConfig(8, 8, d_model=8, num_heads=2), rng)
    kinds = [type(m) for m in model.modules() if isinstance(m, (nn.LayerNorm, nn.BatchNorm1d))]
    text.fact(
        "The Transformer has layer norm",
        set(kinds) == {nn.LayerNorm},
        f"{len(kinds)} in 6 + 6 layers, no batch norm",
    )

    images = rng.standard_normal((3, 5, d))  # three samples, five positions, d channels
    mean, var = images.mean((0, 1)), images.var((0, 1))
    by_hand = (images - mean) / np.sqrt(var + EPS)
    text.fact(
        "Batch norm serves convolutional nets", same(nn.BatchNorm1d(d, EPS, dtype=float)(images), by_hand),
        "a channel is a column: all positions of all samples of (n, L, d) together make its mean and variance",
    )  # fmt: skip
    depth, width = 20, 64
    linears = [nn.Linear(width, width, dtype=float, generator=rng) for _ in range(depth)]
    h = normed = rng.standard_normal((256, width))
    for linear in linears:
        h = linear(h).relu().data
        normed = nn.BatchNorm1d(width, dtype=float)(linear(normed)).relu().data
    text.fact(
        "And fully connected ones", h.std(0).mean() < 1e-3 and 0.4 < normed.std(0).mean() < 0.8,
        f"after {depth} layers of {width}, features differ between samples by {h.std(0).mean():.0e} on average; "
        f"with batch norm by {normed.std(0).mean():.2f}",
    )  # fmt: skip
    mean, var = 0.1 * TABLE.mean(0), 0.9 + 0.1 * TABLE.var(0, ddof=1)
    _, fresh = both_norms()
    fresh(TABLE)
    by_hand = (TABLE[:1] - mean) / np.sqrt(var + EPS)
    text.fact(
        "Batch norm uses the statistics of the batch", same(fresh.eval()(TABLE[:1]), by_hand),
        "in training; what the text does not tell: it keeps running ones, a tenth of each new batch, and takes those "
        "in evaluation, where it therefore accepts a single sample",
    )  # fmt: skip


# -- the decoder block ---------------------------------------------------------------------------------


def masked_attention(text: Statements, rng: np.random.Generator) -> None:
    text.section("The decoder block: masked attention")
    block = nn.TransformerDecoderLayer(D, HEADS, 2 * D, dropout=0.0, dtype=float, generator=rng)
    kinds = [type(m) for m in block.modules() if isinstance(m, nn.MultiHeadAttention)]
    text.fact(
        "Each decoder block has two multi-head attentions",
        kinds == [nn.MultiHeadAttention, nn.MultiHeadAttention],
        f"{' and '.join(f'`{kind.__name__}`' for kind in kinds)}",
    )

    L = len(TARGET) + 1  # <Begin> and four words
    X = rng.standard_normal((1, L, D))
    attention, mask = block.self_attention, nn.causal_mask(L)  # (L, L), True = may attend
    q, k = (
        proj(X).data[0, :, :D_HEAD] for proj in (attention.q_proj, attention.k_proj)
    )  # (L, d'): the first head
    scores = q @ k.T / sqrt(D_HEAD)  # (L, L)
    A = softmax(np.where(mask, scores, -np.inf))  # Mask Q Kᵀ
    found = nn.with_weights(attention, X, mask=mask)[1][0, 0]
    text.fact(
        "$QK^\\top$ is masked first, and the softmax of each row taken then", same(A, found),
        "so it is in `nn.MultiHeadAttention`; hidden scores are $-\\infty$, and their weight $e^{-\\infty} = 0$",
    )  # fmt: skip
    text.fact(
        "Each row still sums to 1",
        same(found.sum(1), 1),
        "the first word attends to itself alone",
    )
    late = softmax(scores) * mask  # the mask after the softmax
    zeros = softmax(scores * mask)  # a product with zeros in place of -∞
    text.fact(
        "Why before the softmax", late.sum(1).min() < 0.9 and same(late / late.sum(1)[:, None], A),
        f"put after it, rows sum to as little as {late.sum(1).min():.2f}, until they are normalised once more",
    )  # fmt: skip
    text.fact(
        "What the Mask matrix must do to $QK^\\top$, which the text leaves open: put $-\\infty$, not 0", zeros[~mask].min() > 0.05,
        f"a score of 0 still gets a weight, for $e^0 = 1$: up to {zeros[~mask].max():.2f} would go to words to come",
    )  # fmt: skip
    memory = rng.standard_normal((1, M, D))
    other = X.copy()
    other[:, 3] = rng.standard_normal(D)  # another fourth word
    moved = abs(block(other, memory) - block(X, memory)).data.max((0, 2))  # (L,)
    text.fact(
        "So no position sees what comes after it", (moved[:3] < 1e-12).all() and (moved[3:] > 1e-3).all(),
        "with another fourth word, the block gives the same at positions 1 to 3, and other vectors at 4 and 5",
    )  # fmt: skip


def cross_attention(text: Statements, rng: np.random.Generator) -> None:
    text.section("The decoder block: attention to the encoder")
    config = nn.TransformerConfig(
        d_model=D, num_heads=HEADS, d_ff=2 * D, dropout=0.0, dtype="float64"
    )
    encoder, decoder = nn.Encoder(config, 2, rng), nn.Decoder(config, 2, rng)
    C = encoder(rng.standard_normal((1, M, D)))  # (1, M, d)
    Y = rng.standard_normal((1, len(TARGET) + 1, D))  # (1, L, d)

    inputs: list[Any] = []  # x of each block
    normed: list[Any] = []  # LayerNorm(x + masked attention of x)
    seen: list[Any] = []  # arguments of the second attention: queries, and keys and values
    for block in decoder.layers:
        block.register_forward_pre_hook(lambda _, args: inputs.append(args[0]))
        block.norm1.register_forward_hook(lambda _, args, y: normed.append(y))
        block.cross_attention.register_forward_pre_hook(lambda _, args: seen.append(args))
    output = decoder(Y, C).data

    text.fact(
        "$K$ and $V$ of the second attention are made of the encoder's $C$", all(kv.data is C.data for _, kv in seen),
        "in both blocks it is given that very array",
    )  # fmt: skip
    own = all(gap(q, y) == 0 for (q, _), y in zip(seen, normed))
    previous = any(same(q, x, 0.01) for (q, _), x in zip(seen, inputs))
    text.erratum(
        "Where $Q$ of the second attention comes from", "the output of the decoder block before",
        "the masked attention of the same block", own and not previous,
        "what enters it is the layer norm of $x$ plus the masked attention of $x$; and $x$ is the output of the block before, in "
        "the first block the embedded words",
    )  # fmt: skip
    attention, (y, _) = decoder.layers[0].cross_attention, seen[0]
    Q, K, V = attention.q_proj(y[0]).data, attention.k_proj(C[0]).data, attention.v_proj(C[0]).data
    heads = [slice(i * D_HEAD, (i + 1) * D_HEAD) for i in range(HEADS)]
    A = [softmax(Q[:, h] @ K[:, h].T / sqrt(D_HEAD)) for h in heads]  # (L, M) each
    Z = attention.out_proj(np.concatenate([a @ V[:, h] for a, h in zip(A, heads)], 1))  # (L, d)
    text.fact(
        "So $K$ and $V$ have a row for each source word, $Q$ one for each target word",
        len(Q) == 5 and len(K) == len(V) == 4,
    )
    text.fact(
        "Its $\\softmax(QK^\\top / \\sqrt{d'})\\,V$ is `nn.MultiHeadAttention`",
        A[0].shape == (5, 4) and same(attention(y, C)[0], Z),
        "the weights are 5 × 4, and the result has a row for each target word",
    )
    other = encoder(rng.standard_normal((1, M, D)))
    moved = abs(decoder(Y, other).data - output).max((0, 2))
    text.fact(
        "There $C$ is put into the decoder",
        (moved > 1e-3).all(),
        "another $C$, and the result is another everywhere",
    )


# -- the worked sentence -------------------------------------------------------------------------------


def worked_sentence(text: Statements, corpus: Corpus, model: nn.Transformer) -> None:
    text.section("Encoder and decoder: 我 有 一只 猫")
    source, target = corpus.sources([SOURCE]), corpus.targets([TARGET])  # (1, 4), (1, 6)
    read, wanted = (
        target[:, :-1],
        target[0, 1:],
    )  # (1, 5), (5,): what the decoder reads, and must say

    X = model.source_embedding(source)  # (1, 4, d)
    C = model.encode(source)  # (1, 4, d)
    text.fact(
        "The encoder's input is $X$ $(n, d)$, of 4 words",
        X.shape == (1, 4, D),
        f"{X.shape}, the first a batch of 1",
    )
    text.fact(
        "The encoder's output $C$ has the dimensions of $X$", C.shape == X.shape, f"{C.shape}"
    )
    Y = model.target_embedding(read)  # (1, 5, d)
    text.fact(
        "The decoder's input is $X$ $(n, d)$, of 5 words: <Begin> I have a cat",
        Y.shape == (1, 5, D) and read[0, 0] == BOS,
    )
    scores = model(source, read).data  # (1, 5, vocabulary)
    text.fact(
        "The decoder's output is I have a cat <end>",
        (scores[0].argmax(-1) == wanted).all(),
        "at all five places at once",
    )

    [h] = nn.greedy_search(model, source, max_len=12)
    text.fact(
        "Left alone with <Begin>, it says I have a cat <end>", h.tokens == wanted.tolist(),
        f"{' '.join(corpus.target_vocab.tokens[i] for i in h.tokens)}, with probability {np.exp(h.log_prob):.3f}",
    )  # fmt: skip
    forced = -mg.cross_entropy(scores[0], wanted, reduction="sum").item()
    text.fact(
        "Both are the same computation", isclose(forced, h.log_prob, abs_tol=1e-4),
        f"log-probability {forced:.5f} in one pass, {h.log_prob:.5f} word by word: the mask hides what comes later",
    )  # fmt: skip


def other_sentences(text: Statements, corpus: Corpus, model: nn.Transformer) -> None:
    sources, targets = zip(*corpus.held_out)
    found = nn.greedy_search(model, corpus.sources(sources), max_len=16)
    right = np.mean([corpus.target_vocab.decode(h.tokens) == t for h, t in zip(found, targets)])
    text.fact(
        "The words are predicted, not known by heart", right >= 0.85,
        f"{right:.1%} of {len(targets)} sentences that it has not seen are translated as the grammar does",
    )  # fmt: skip


def what_it_looks_at(text: Statements, corpus: Corpus, model: nn.Transformer) -> None:
    target = corpus.targets([TARGET])[0]  # (6,)
    maps = nn.attention_maps(model, corpus.sources([SOURCE]), target[1:])
    cross, masked = maps["cross"][0], maps["decoder"][0]  # (h, 5, 4), (h, 5, 5)
    text.fact(
        "In the second attention the decoder looks up the source words",
        cross.shape == (HEADS, 5, 4) and cross.mean(0)[3].argmax() == 3,
        f"for cat it attends to 猫 most: with {cross.mean(0)[3, 3]:.2f} of its weight, in the mean of the heads",
    )
    text.fact(
        "The first attention sees no word to come", (masked[:, ~nn.causal_mask(5)] == 0).all()
    )


def state(text: Statements) -> None:
    text.about(
        "Multi-head self-attention and the Transformer (多头自注意力机制与Transformer)",
        "notes of 2024-12-06",
        "000_170e9c9fc48d8396.txt",
        note="For the computation it refers to [this article](https://zhuanlan.zhihu.com/p/338817680), in Chinese.",
    )
    rng = np.random.default_rng(0)
    self_attention(text, rng)
    multi_head(text, rng)
    positions(text, rng)
    layer_norm(text, rng)
    batch_norm(text, rng)
    compare_norms(text, rng)
    norms_in_use(text, rng)
    masked_attention(text, rng)
    cross_attention(text, rng)
    corpus = Corpus()
    model, _ = train(corpus)
    worked_sentence(text, corpus, model)
    other_sentences(text, corpus, model)
    what_it_looks_at(text, corpus, model)
