"""Statements of "Attention mechanism"."""

from __future__ import annotations

import functools
import itertools
from math import sqrt
from typing import Any

import numpy as np
from support.statements import Statements, gap, refusal, same

import minigrad as mg
import nn
from nn.text.batches import padded
from nn.text.tokenize import WordTokenizer
from nn.text.vocabulary import BOS, Vocabulary

N, L, D, H = 2, 5, 16, 4  # sequences in a batch, tokens in a sequence, features of a token, heads
D_K = D // H  # features of a token in a head


def attention(Q: np.ndarray, K: np.ndarray, V: np.ndarray) -> np.ndarray:
    """Return softmax(Q Kᵀ / √d_k) V (L_Q, d_v) from Q (L_Q, d_k), K (L_KV, d_k) and V (L_KV, d_v)."""
    return softmax(Q @ K.T / sqrt(K.shape[1])) @ V


def softmax(z: np.ndarray) -> np.ndarray:
    """Return e^z_i / Σ_j e^z_j over the last axis, as the text defines it."""
    return np.exp(z) / np.exp(z).sum(-1, keepdims=True)


def multi_head_formula(
    layer: nn.MultiHeadAttention,
    x_q: Any,
    x_k: Any,
    x_v: Any,
    padding_mask: Any = None,
    attention_mask: Any = None,
) -> mg.Tensor:
    """Compute `forward` of the text, line by line, with the four linear layers of a layer of `nn`.

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


# -- sequences -----------------------------------------------------------------------------------------


def sequence_modelling(text: Statements, rng: np.random.Generator) -> None:
    text.section(r"Sequence modelling: $N \times L \times D$")
    texts = ["the cat sees the dog", "the dog sleeps"]
    tokens = [WordTokenizer()(text) for text in texts]
    vocab = Vocabulary.build(tokens)
    ids = padded([vocab.encode(t) for t in tokens])  # (N, L)
    table = nn.Embedding(len(vocab), D, dtype=float, generator=rng)
    x = table(ids)  # (N, L, D)
    text.fact(
        "A text is cut into discrete symbols, the tokens",
        [vocab.decode(row) for row in ids] == tokens,
        f"{tokens[1]}",
    )
    one_hot = np.eye(len(vocab))[ids]  # (N, L, vocabulary)
    text.fact(
        "An embedding layer maps symbols to a space of $D$ dimensions",
        same(x, np.einsum("nlv,vd->nld", one_hot, table.weight)),
        "it looks up rows of a table, which is a product with one-hot vectors: all 0, but for a 1 at the token's id",
    )
    text.fact(
        "The input is a tensor $N \\times L \\times D$",
        x.shape == (2, 5, D),
        f"{x.shape}: sequences, tokens, features",
    )

    config = nn.LanguageModelConfig(5, D, H, 2, 2 * D, dropout=0.0, dtype="float64")
    model = nn.LanguageModel(config, rng)
    every = np.array([*np.ndindex(5, 5, 5)])  # all 125 sequences of three of five symbols
    read = np.pad(
        every[:, :2], ((0, 0), (1, 0)), constant_values=BOS
    )  # shifted by one, after <bos>
    p = softmax(model(read).data)  # (125, 3, 5): the probability of each next symbol
    chosen = np.take_along_axis(p, every[:, :, None], 2)[..., 0]  # (125, 3): p(x_t | x_1 … x_t-1)
    text.fact(
        "A language model gives, at each position, the probability of the next",
        p.shape == (125, 3, 5) and same(p.sum(-1), 1), "`nn.LanguageModel`: (N, L) to (N, L, vocabulary)",
    )  # fmt: skip
    text.fact(
        "So it models the sequence: $p(x) = \\prod_t p(x_t \\mid x_1 \\dots x_{t-1})$", abs(chosen.prod(1).sum() - 1) < 1e-12,
        f"over all 125 sequences of 3 of 5 symbols, this sums to {chosen.prod(1).sum():.12f}",
    )  # fmt: skip
    ids = np.array([[BOS, 4, 3, 4]])
    p = softmax(model(ids[:, :-1]).data)[0]  # (3, 5)
    by_hand = -np.log(p[np.arange(3), ids[0, 1:]]).mean()
    text.fact(
        "That is what it is trained for",
        np.isclose(model.loss(ids).item(), by_hand),
        "the loss is the mean of $-\\log p$",
    )


# -- attention -----------------------------------------------------------------------------------------


def attention_formula(text: Statements, rng: np.random.Generator) -> None:
    text.section("The formula of attention")
    Q, K, V = (rng.standard_normal(shape) for shape in ((3, D_K), (L, D_K), (L, 7)))
    out = attention(Q, K, V)  # (3, 7)
    kernel = mg.scaled_dot_product_attention(*(x[None, None] for x in (Q, K, V))).data[0, 0]
    text.fact("The formula", same(out, kernel), "`mg.scaled_dot_product_attention` computes it")
    weights = softmax(Q @ K.T / sqrt(D_K))  # (3, L)
    inside = (out >= V.min(0)).all() and (out <= V.max(0)).all()
    text.fact(
        "Scores of queries against keys become weights of the values",
        same(weights.sum(1), 1) and (weights > 0).all() and inside,
        "they are positive and sum to 1 for each query: a result lies between the values",
    )
    keys = K / np.linalg.norm(K, axis=1, keepdims=True)
    found = attention(400 * keys[3:4], keys, V)
    text.fact(
        "What matches gets the weight", gap(found[0], V[3]) < 1e-3,
        f"a long query along key 4 finds value 4 (to {gap(found[0], V[3]):.0e}), as one looks up a word",
    )  # fmt: skip

    x, other = rng.standard_normal((L, D)), rng.standard_normal((3, D))
    W_Q, W_K, W_V = rng.standard_normal((3, D, D)) / sqrt(D)
    layer = nn.ExtendedAttention(D, 1, bias=False, dtype=float)
    for p, W in zip(layer.parameters(), (W_Q, W_K, W_V, np.eye(D))):
        p.data[...] = W.T
    own = attention(x @ W_Q, x @ W_K, x @ W_V)  # (L, D)
    text.fact(
        "Self-attention: queries, keys and values come from one sequence by three linear maps",
        same(own, layer(x[None])), "equal to `nn.MultiHeadAttention` of one head",
    )  # fmt: skip
    cross = attention(other @ W_Q, x @ W_K, x @ W_V)  # (3, D)
    text.fact(
        "Cross-attention: queries from one sequence, keys and values from another",
        cross.shape == (3, D) and same(cross, layer(other[None], x[None])),
        f"3 queries to {L} keys give 3 rows (the text's sentence breaks off; its class below is meant)",
    )


# -- why a linear layer ----------------------------------------------------------------------------------


def cycle_gap(A: np.ndarray) -> float:
    """Return the largest |log a_ij a_jk a_ki - log a_ik a_kj a_ji|, which is 0 for symmetric scores.

    Row sums drop out of it: each of i, j, k gives one weight to either product.
    """
    i, j, k = np.array(list(itertools.permutations(range(len(A)), 3))).T
    a = np.log(A)
    return float(gap(a[i, j] + a[j, k] + a[k, i] - a[i, k] - a[k, j], a[j, i]))


def why_linear(text: Statements, rng: np.random.Generator) -> None:
    text.section("Why a linear map?")
    X = rng.standard_normal((L, D))
    W_Q, W_K = rng.standard_normal((2, D, D)) / sqrt(D)
    q, k = X @ W_Q, X @ W_K  # (L, D) each
    plain, mapped = X @ X.T / sqrt(D), q @ k.T / sqrt(D)  # (L, L) each
    text.fact(
        "Without it the scores must be symmetric",
        same(plain, plain.T),
        "$XX^\\top$ is its own transpose",
    )
    text.fact(
        "With it they are not", gap(mapped, mapped.T) > 0.5,
        f"$XW_Q(XW_K)^\\top$ and its transpose differ by up to {gap(mapped, mapped.T):.1f}",
    )  # fmt: skip
    A, B = softmax(plain), softmax(mapped)
    text.erratum(
        "That A attends to B as B to A, without the map", "weights that are equal",
        "scores that are equal, weights that are not", gap(A, A.T) > 0.01 and cycle_gap(A) < 1e-12 and cycle_gap(B) > 1,
        f"the softmax divides each row by its own sum: $a_{{ij}}$ and $a_{{ji}}$ differ by up to {gap(A, A.T):.2f}. What is left "
        "of the symmetry is that going round any three words one way or the other gives one product, "
        f"$a_{{ij}} a_{{jk}} a_{{ki}} = a_{{ik}} a_{{kj}} a_{{ji}}$ (to {cycle_gap(A):.0e}); with the map the logarithms of the two differ by up "
        f"to {cycle_gap(B):.1f}",
    )  # fmt: skip
    U = X / np.linalg.norm(X, axis=1, keepdims=True)
    text.fact(
        "And without it, words of one length attend to themselves first",
        ((U @ U.T).argmax(1) == np.arange(L)).all() and (B.argmax(1) != np.arange(L)).any(),
        "$x_i \\cdot x_j$ is largest for $j = i$; with the map they need not",
    )  # fmt: skip
    basis = np.linalg.qr(rng.standard_normal((D, L)))[0].T  # (L, D), rows at right angles
    W_next = basis.T @ np.roll(
        basis, 1, axis=0
    )  # (D, D), a W_K that makes the key of a word of the word before it
    C = softmax(12 * basis @ (basis @ W_next).T)  # (L, L)
    i, after = np.arange(L), np.roll(np.arange(L), -1)
    there, back = C[i, after].min(), C[after, i].max()
    text.fact(
        "A can attend to B, and B not to A", there > 0.99 and back < 0.01,
        f"a $W_K$ chosen for it makes each word attend to the next, with {there:.4f}, and back with {back:.0e}",
    )  # fmt: skip
    cosines = (q * k).sum(1) / np.linalg.norm(q, axis=1) / np.linalg.norm(k, axis=1)
    layer = nn.ExtendedAttention(D, H, query_size=6, key_size=9, value_size=9, generator=rng)
    out = layer(rng.standard_normal((1, 3, 6)), rng.standard_normal((1, L, 9)))
    text.fact(
        "It maps a word to different spaces", np.abs(cosines).max() < 0.9 and out.shape == (1, 3, D),
        f"as query and as key one word points elsewhere (cosines {cosines.min():.2f} to {cosines.max():.2f}), and "
        "words of 6 features can ask words of 9",
    )  # fmt: skip


# -- why the root of d_k -------------------------------------------------------------------------------

SIZES = [4**i for i in range(7)]  # 1 … 4096


def scale_experiment(rng: np.random.Generator, samples: int = 128, keys: int = 16) -> np.ndarray:
    """Return variance, range of scores and gradient of softmax for each d_k of SIZES.

    Each is measured for q · k and for q · k / √d_k.

    Queries and keys are standard normal, each query with keys of its own. The gradient is the norm of
    the softmax's Jacobian, diag(p) - p pᵀ: the median over the queries.
    """
    found: list[list[list[float]]] = []
    for d_k in SIZES:
        q, k = rng.standard_normal((samples, d_k)), rng.standard_normal((samples, keys, d_k))
        scores = np.einsum("nd,nkd->nk", q, k)  # (samples, keys)
        both = [scores, scores / sqrt(d_k)]
        weights = [mg.softmax(s).data[..., None] for s in both]
        jacobians = [
            p * (np.eye(keys) - p.swapaxes(1, 2)) for p in weights
        ]  # (samples, keys, keys)
        found.append([
            [s.var() for s in both],
            [np.ptp(s, axis=1).mean() for s in both],
            [np.median(np.linalg.norm(J, axis=(1, 2))) for J in jacobians],
        ])  # fmt: skip
    return np.array(found).swapaxes(0, 1)  # (3, sizes, 2): without √d_k, with it


def why_root(text: Statements, rng: np.random.Generator) -> None:
    text.section(r"Why divide by $\sqrt{d_k}$?")
    variance, spread, gradient = scale_experiment(rng)
    text.fact(
        "The variance changes in $QK^\\top$: it is $d_k$", (np.abs(variance[2:, 0] / SIZES[2:] - 1) < 0.3).all(),
        f"{variance[-1, 0]:.0f} at $d_k$ = {SIZES[-1]}: a sum of $d_k$ products, each of variance 1",
    )  # fmt: skip
    text.fact(
        "Dividing by $\\sqrt{d_k}$ keeps it", (np.abs(variance[2:, 1] - 1) < 0.3).all(),
        f"between {variance[2:, 1].min():.2f} and {variance[2:, 1].max():.2f} for $d_k$ from {SIZES[2]} on",
    )  # fmt: skip
    wide = np.vecdot(*2 * rng.standard_normal((2, 2000, 64))).var() / 64
    text.erratum(
        "The variance after the division", "as before", "$\\sigma_q^2 \\sigma_k^2$, as before where $\\sigma = 1$", abs(wide / 16 - 1) < 0.2,
        f"for entries of variance 4 it is {wide:.1f}, about 4 · 4",
    )  # fmt: skip
    W = nn.init.xavier_uniform_(nn.Parameter(np.empty((64, 64))), generator=rng).data
    normed = nn.LayerNorm(64, dtype=float)(
        3 + 5 * rng.standard_normal((2000, 64))
    ).data  # (2000, 64)
    variance = (normed @ W.T).var()
    text.fact(
        "So queries and keys should start with variance 1", abs(variance - 1) < 0.1,
        f"a layer norm and a $W_Q$ by Xavier's rule (weights of variance 2 / (inputs + outputs)), as in `nn.Transformer`, give {variance:.2f}",
    )  # fmt: skip
    text.fact(
        "For large $d_k$ the elements of $QK^\\top$ differ greatly", spread[-1, 0] > 100 and spread[-1, 1] < 5,
        f"16 of them range over {spread[-1, 0]:.0f} at $d_k$ = {SIZES[-1]}, over {spread[-1, 1]:.1f} after the division",
    )  # fmt: skip
    z = rng.standard_normal(16)
    p = softmax(z)
    exact = mg.jacobian(mg.softmax)(z).data  # (16, 16)
    by_hand = np.diag(p) - np.outer(p, p)  # (16, 16)
    text.fact(
        "The gradient of softmax is $\\mathrm{diag}(p) - pp^\\top$",
        same(exact, by_hand),
        "as `mg.jacobian`, the matrix of all derivatives, finds it",
    )
    text.fact(
        "It comes close to 0 when they do", gradient[-1, 0] < 1e-6 and gradient[:, 1].min() > 0.1,
        f"its norm is {gradient[-1, 0]:.0e} (median) at $d_k$ = {SIZES[-1]}; with $\\sqrt{{d_k}}$ it stays at {gradient[-1, 1]:.2f}",
    )  # fmt: skip


# -- softmax, heads, masks -----------------------------------------------------------------------------


def softmax_function(text: Statements, rng: np.random.Generator) -> None:
    text.section("The softmax function")
    z = rng.standard_normal(6)
    by_hand = [np.exp(z_i) / sum(np.exp(z_j) for z_j in z) for z_i in z]
    found = mg.softmax(z).data
    text.fact(
        "$\\softmax(z)_i = e^{z_i} / \\sum_j e^{z_j}$, $j = 1 \\dots n$",
        same(found, by_hand),
        "it is `mg.softmax`",
    )
    text.fact(
        "It normalises the exponentials of $z$",
        np.isclose(found.sum(), 1) and (found > 0).all(),
        "they sum to 1",
    )
    with np.errstate(over="ignore", invalid="ignore"):
        broken = softmax(z + 1000)
    text.fact(
        "How to compute it, which is left open", np.isnan(broken).all() and same(mg.softmax(z + 1000), found),
        "$e^{1000}$ overflows, so `mg.softmax` subtracts the largest $z$ first, which leaves the quotients as they are",
    )  # fmt: skip


def several_heads(text: Statements, rng: np.random.Generator) -> None:
    text.section("Several heads")
    layer = nn.MultiHeadAttention(D, H, dtype=float, generator=rng)
    x = rng.standard_normal((N, L, D))
    projected = [
        proj(x).data for proj in (layer.q_proj, layer.k_proj, layer.v_proj)
    ]  # (N, L, D) each
    Q, K, V = (p.reshape(N, L, H, D_K) for p in projected)
    text.fact(
        "Reshaping splits a vector into heads", gap(np.moveaxis(Q, 2, 0), np.split(projected[0], H, -1)) == 0,
        f"(N, L, {D}) to (N, L, {H}, {D_K}): head $h$ has the $h$-th run of $d_k$ features",
    )  # fmt: skip
    joined = [
        np.hstack([attention(Q[n, :, h], K[n, :, h], V[n, :, h]) for h in range(H)])
        for n in range(N)
    ]  # (L, D) each
    text.fact(
        "Each head attends by itself; their outputs are joined, and mapped once more",
        same(layer.out_proj(np.stack(joined)), layer(x)), "so does `nn.MultiHeadAttention`",
    )  # fmt: skip
    head = lambda v: layer.q_proj(v)[:, :D_K] @ layer.k_proj(v)[:, :D_K].T
    reads = abs(mg.jacobian(head)(x[0]).data).max(
        (0, 1, 2)
    )  # (D,): what head 1 reads of each feature
    text.erratum(
        "What is split among the heads", "the $D$ features of the input", "those of $Q$, $K$ and $V$", (reads > 0.01).all(),
        f"the code maps first and splits then: the first head reads all {D} features of $x$, and no derivative is 0",
    )  # fmt: skip
    weights = nn.with_weights(layer, x)[1]  # (N, h, L, L)
    apart = min(gap(a, b) for a, b in itertools.combinations(weights.swapaxes(0, 1), 2))
    text.fact(
        "The heads see one position in different ways",
        apart > 0.05,
        f"weights differ by {apart:.2f} or more",
    )


def mask_idea(text: Statements, rng: np.random.Generator) -> None:
    text.section(r"Masks: a score of $-\infty$")
    scores = rng.standard_normal((L, L))
    mask = nn.causal_mask(L)  # (L, L), True = may attend
    A = softmax(np.where(mask, scores, -np.inf))
    text.fact(
        "A score of $-\\infty$ gets the probability 0",
        (A[~mask] == 0).all() and same(A.sum(1), 1),
        r"$e^{-\infty} = 0$",
    )
    text.fact(
        "`mg.softmax(scores, where=mask)` does the same",
        same(A, mg.softmax(scores, where=mask)),
    )
    layer = nn.MultiHeadAttention(D, H, dtype=float, generator=rng)
    x = rng.standard_normal((1, L, D))
    J = np.abs(mg.jacobian(lambda v: layer(v, mask=mask))(x).data).max((0, 2, 3, 5))  # (L, L)
    strict = np.tri(L, k=-1, dtype=bool)  # the positions before, without one's own
    with np.errstate(invalid="ignore"):
        nothing = multi_head_formula(layer, x, x, x, attention_mask=strict).data[0, 0]
    text.erratum(
        "What a position can depend on", "the positions before it", "itself and those before it",
        (J[~mask] == 0).all() and (J[mask] > 0).all() and np.isnan(nothing).all(),
        "the derivatives of outputs by inputs fill just the lower triangle and the diagonal; without the diagonal, the "
        "first position would have nothing to attend to, and the text's code would give NaN",
    )  # fmt: skip
    ours = mg.softmax(scores, where=strict).data
    text.fact("In ours such a row is 0 instead", (ours[0] == 0).all() and same(ours[1:].sum(1), 1))


# -- the code ------------------------------------------------------------------------------------------


def by_loops(equation: str, *operands: np.ndarray) -> np.ndarray:
    """Compute an einsum by its definition: a product for every choice of the indices, added up."""
    inputs, output = equation.split("->")
    terms = inputs.split(",")
    size = {letter: n for term, x in zip(terms, operands) for letter, n in zip(term, x.shape)}
    result = np.zeros([size[letter] for letter in output])
    for choice in np.ndindex(*size.values()):
        at = dict(zip(size, choice))
        index = lambda term, at=at: tuple(at[letter] for letter in term)
        result[index(output)] += np.prod([x[index(term)] for term, x in zip(terms, operands)])
    return result


EINSUMS = [  # each form in the text: its meaning, shapes of operands and result, and the same by @
    (
        "ij,jk->ik", "`einsum(…, A, B)` is the product of matrices $A$ and $B$",
        [(3, 4), (4, 5)], (3, 5), lambda A, B: A @ B,
    ),
    (
        "id,jd->ij", "`einsum(…, Q, K)` is $QK^\\top$, (L, D) and (L, D) to (L, L)",
        [(5, 16), (5, 16)], (5, 5), lambda Q, K: Q @ K.T,
    ),
    (
        "nihd,njhd->nijh", "`einsum(…, Q, K)`: the scores of all heads, $(N, L_Q, L_{KV}, h)$",
        [(2, 3, 4, 4), (2, 5, 4, 4)], (2, 3, 5, 4),
        lambda Q, K: (Q.transpose(0, 2, 1, 3) @ K.transpose(0, 2, 3, 1)).transpose(0, 2, 3, 1),
    ),
    (
        "nijh,njhd->nihd", "`einsum(…, score, V)`: the weighted sums of values, $(N, L_Q, h, d_k)$",
        [(2, 3, 5, 4), (2, 5, 4, 4)], (2, 3, 4, 4),
        lambda A, V: (A.transpose(0, 3, 1, 2) @ V.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3),
    ),
]  # fmt: skip


def einsums(text: Statements, rng: np.random.Generator) -> None:
    text.section("Code: einsum")
    for equation, meaning, shapes, result, by_matmul in EINSUMS:
        operands = [rng.standard_normal(shape) for shape in shapes]
        einsum = functools.partial(mg.einsum, equation)
        found = einsum(*operands)
        truths = by_loops(equation, *operands), by_matmul(*operands)
        right = found.shape == result and all(same(found, truth) for truth in truths)
        text.fact(
            f"`{equation}`: {meaning}",
            right and mg.gradcheck(einsum, operands, elementwise=False),
            "as by loops and as by `@`; gradients checked",
        )
    A, B = rng.standard_normal((2, 3)), rng.standard_normal((3, 2))
    products = A[:, :, None] * B[None]  # (i, j, k): every product of an element of A and one of B
    summed = same(products.sum(1), mg.einsum("ij,jk->ik", A, B))
    text.fact("It multiplies, then sums", summed, "over the index $j$, which `ik` does not have")


def first_class(text: Statements, rng: np.random.Generator) -> None:
    text.section("Code: multi-head attention")
    layer = nn.ExtendedAttention(D, H, dtype=float, generator=rng)
    x_q, x_k, x_v = (rng.standard_normal((N, length, D)) for length in (3, L, L))
    linears = [m for m in layer.modules() if isinstance(m, nn.Linear)]
    text.fact(
        "It has four linear maps, $D$ to $D$: $W_Q$, $W_K$, $W_V$, $W_O$", [p.weight.shape for p in linears] == [(D, D)] * 4,
        "`q_proj`, `k_proj`, `v_proj` and `out_proj` in `nn.MultiHeadAttention`",
    )  # fmt: skip
    text.fact(
        "$d_k = d_\\text{model} / h$", layer.d_model // layer.num_heads == D_K, f"{D} / {H} = {D_K}"
    )
    refused = refusal(lambda: nn.MultiHeadAttention(16, 3))
    message = "d_model must be divisible by num_heads"
    text.fact(
        "Where that is not whole, it refuses", refused.startswith(message), f"ValueError: {refused}"
    )
    by_hand = x_q @ linears[0].weight.data.T + linears[0].bias.data
    text.fact(
        "A linear map is needed first",
        same(layer.q_proj(x_q), by_hand),
        "`nn.Linear`: $xW^\\top + b$",
    )
    found, printed = layer(x_q, x_k, value=x_v), multi_head_formula(layer, x_q, x_k, x_v)
    text.fact(
        "The text's forward, by einsum, equals our layer", same(found, printed), f"to {gap(found, printed):.0e}"
    )  # fmt: skip
    weights = nn.with_weights(layer, x_q, x_k, value=x_v)[1]  # (N, h, L_Q, L_KV)
    text.fact(
        "softmax over `dim=2` of `nijh` is over the keys $j$",
        same(weights.sum(-1), 1),
        "our last axis",
    )
    x = rng.standard_normal((N, L, D))
    out = nn.MultiHeadAttention(D, H, dtype=float, generator=rng)(x)
    text.fact(
        "Self-attention takes $N \\times L \\times D$ to $N \\times L \\times D$",
        out.shape == x.shape,
        f"{out.shape}",
    )
    mask = rng.random((3, L)) < 0.6
    mask[:, 0] = True
    text.erratum(
        "The parameter `mask` of the first version", "a mask", "never read",
        gap(layer(x_q, x_k, mask, value=x_v), printed) > 0.01,
        "its forward goes from the scores straight to the softmax; only the complete version below masks",
    )  # fmt: skip


def three_masks(text: Statements, rng: np.random.Generator) -> None:
    text.section("Code: the three masks")
    ids = np.array([[7, 4, 9, 5, 6], [8, 4, 6, 0, 0]])  # (N, L), the second padded
    padding = nn.padding_mask_of(ids)  # (N, L)
    layer = nn.MultiHeadAttention(D, H, dtype=float, generator=rng)
    x = rng.standard_normal((N, L, D))
    out, weights = nn.with_weights(layer, x, mask=padding[:, None, None])  # weights (N, h, L, L)
    text.fact(
        "Padding mask $[N, L]$: padding is left out", (weights[1, :, :, 3:] == 0).all() and padding.shape == (N, L),
        "its keys get weight 0 from all queries, in all heads",
    )  # fmt: skip
    alone = layer(x[1:, :3])  # the short sentence without its padding
    text.fact(
        "So a padded sentence is what it is alone",
        same(out[1, :3], alone[0]),
        "three words",
    )

    causal = nn.causal_mask(L)  # (L, L)
    later = x.copy()
    later[:, 3:] = rng.standard_normal((N, 2, D))
    moved = abs(layer(later, mask=causal) - layer(x, mask=causal)).data.max((0, 2))
    text.fact(
        "Attention mask $[L, L]$, causal or look-ahead: nothing depends on what comes later",
        (moved[:3] < 1e-12).all() and (moved[3:] > 0.01).all() and causal.shape == (L, L),
        "with other words 4 and 5, the first three results are what they were",
    )  # fmt: skip
    memory = np.array([[1, 1, 0, 0, 0], [0, 1, 1, 1, 0], [0, 0, 0, 1, 1]], bool)  # (L_Q, L_KV)
    cross = nn.MultiHeadAttention(D, H, dtype=float, generator=rng)
    x_q = rng.standard_normal((N, 3, D))
    weights = nn.with_weights(cross, x_q, x, memory)[1]  # (N, h, L_Q, L_KV)
    text.fact(
        "Memory mask $[L_Q, L_{KV}]$: which keys each query may use", ((weights > 0) == memory).all(),
        f"in cross-attention, here {memory.shape}: weights are positive where it is True, and 0 elsewhere",
    )  # fmt: skip
    both = padding[:, None, None] & causal
    text.fact(
        "Both masks can be given",
        ((nn.with_weights(layer, x, mask=both)[1] > 0) == both).all(),
        "a key must pass both",
    )
    nobody = np.array([[True] * L, [False] * L])  # the second sequence is nothing but padding
    with np.errstate(invalid="ignore"):
        broken = multi_head_formula(layer, x, x, x, nobody).data[1]
    ours = layer(x, mask=nobody[:, None, None]).data[1]
    text.erratum(
        "Masked elements get the probability 0", "a softmax of scores of $-\\infty$", "one that also allows for all of them",
        np.isnan(broken).all() and gap(ours, layer.out_proj.bias) == 0,
        "where every key is hidden, that softmax is 0 / 0 and the text's code gives NaN; ours gives weights of 0, and "
        "the bias of $W_O$ is all that comes out",
    )  # fmt: skip


def three_classes(text: Statements, rng: np.random.Generator) -> None:
    text.section("Code: the complete classes")
    x_q, x_kv, x_v = (rng.standard_normal((N, length, D)) for length in (3, L, L))
    padding = np.array([[True] * L, [True] * 3 + [False] * 2])  # (N, L_KV)
    memory = np.array([[1, 1, 0, 0, 0], [1, 1, 1, 1, 0], [1, 0, 0, 1, 1]], bool)  # (L_Q, L_KV)
    cases = [  # a form, its arguments, which of them are query, key and value, and a mask
        ("MultiHeadAttention", (x_q, x_kv, x_v), (0, 1, 2), "", memory),
        ("MultiHeadSelfAttention", (x_kv,), (0, 0, 0), "x, x, x", nn.causal_mask(L)),
        ("MultiHeadCrossAttention", (x_q, x_kv), (0, 1, 1), "x_q, x_kv, x_kv", memory),
    ]
    for form, inputs, roles, _, attention_mask in cases:
        layer = nn.ExtendedAttention(D, H, dtype=float, generator=rng)
        xs = [mg.Tensor(x, requires_grad=True) for x in inputs]
        leaves = [*xs, *layer.parameters()]
        worst = 0.0
        for real, mask in itertools.product((None, padding), (None, attention_mask)):
            both = (True if real is None else real[:, None, None]) & (
                True if mask is None else mask
            )
            ours = layer(
                *xs[:2], mask=None if both is True else both, value=xs[2] if xs[2:] else None
            )
            printed = multi_head_formula(layer, *(xs[role] for role in roles), real, mask)
            g = rng.standard_normal(ours.shape)
            grads = [mg.gradients(y, leaves, g) for y in (ours, printed)]
            worst = max(worst, gap(ours, printed), *(gap(a, b) for a, b in zip(*grads)))
        shapes = ", ".join(str(x.shape) for x in xs)
        text.fact(
            f"`{form}`: {shapes} to {ours.shape}", worst < 1e-12,
            f"results and the gradients of {len(leaves)} tensors equal the text's to {worst:.0e}, with neither, "
            "either and both masks",
        )  # fmt: skip
    general = nn.ExtendedAttention(D, H, dtype=float, generator=rng)
    layer = nn.MultiHeadAttention(D, H, dtype=float)  # one class for both
    layer.load_state_dict(general.state_dict())
    for form, inputs, roles, arguments, _ in cases[1:]:
        query, key, value = (inputs[role] for role in roles)
        text.fact(
            f"`{form}` applies its base class to ({arguments})",
            gap(layer(*inputs), general(query, key, value=value)) == 0,
            "with the same parameters, by the same names, `nn.MultiHeadAttention` gives the same",
        )


def state(text: Statements) -> None:
    text.about("The attention mechanism (注意力机制)", "lecture notes", "002_e474a81b09e7fe02.txt")
    rng = np.random.default_rng(0)
    sequence_modelling(text, rng)
    attention_formula(text, rng)
    why_linear(text, rng)
    why_root(text, rng)
    softmax_function(text, rng)
    several_heads(text, rng)
    mask_idea(text, rng)
    einsums(text, rng)
    first_class(text, rng)
    three_masks(text, rng)
    three_classes(text, rng)
