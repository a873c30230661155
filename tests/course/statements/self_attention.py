"""Statements of "Thoughts on self-attention"."""

from __future__ import annotations

from typing import Any

import numpy as np
from pronouns import (
    ANIMALS,
    IDS,
    OF_ANIMALS,
    OF_PLACES,
    PLACES,
    TIRED,
    WIDE,
    WORDS,
    Resolver,
    corpus,
    encode,
    settings,
    train,
    where,
)  # fmt: skip
from support.statements import Statements, same

import minigrad as mg
import nn


def what_it_stands_for(text: Statements) -> None:
    text.section('How to understand it: what "it" stands for')
    sentences, nouns, held = corpus()
    ids, nouns = encode(sentences)[held], nouns[held]
    model = train(Resolver(settings(32, 2, 2)))
    right = (model.answer(ids) == nouns).mean()
    text.fact(
        'a model with self-attention finds what "it" stands for',
        right > 0.97,
        f"{right:.1%} of the held-out",
    )
    tired, wide = (WORDS[noun] for noun in model.answer(encode([TIRED, WIDE])))
    text.fact(
        "in the text's sentence it is the animal",
        tired == "animal",
        f'"... because it was too tired": {tired}',
    )
    text.fact("one word flips it", wide == "street", f'"... because it was too wide": {wide}')
    animal, place, word = (
        where(ids, words) for words in (ANIMALS, PLACES, OF_ANIMALS + OF_PLACES)
    )  # (N,) each
    of_animal = np.isin(nouns, [IDS[a] for a in ANIMALS])
    noun, other = np.where(of_animal, animal, place), np.where(of_animal, place, animal)
    n, looks = np.arange(len(ids)), model.weights_of_it(ids)
    total = looks.sum((1, 2))  # (N, L), over layers and heads
    to_noun, to_other = total[n, noun], total[n, other]  # (N,) each
    more = (to_noun > to_other).mean()
    text.fact(
        '"it" attends to the noun that it stands for more than to the other',
        more > 0.75 and to_noun.mean() > 2 * to_other.mean(),
        f"in {more:.0%} of the sentences; on average {to_noun.mean() / 4:.0%} of the weight against "
        f"{to_other.mean() / 4:.0%}, and {total[n, word].mean() / 4:.0%} for the adjective",
    )
    rate = lambda blocked: (model.answer(ids, blocked) == nouns).mean()
    text.fact(
        "the connection to the right noun is what finds the answer",
        rate(noun) < 0.7 and rate(other) > 0.9,
        "without it the answer is lost; the other noun is not needed",
    )
    apart = abs(looks[:, :, 0] - looks[:, :, 1]).sum(-1).max(1) / 2  # (N,), between the two heads
    text.fact(
        "the two heads attend to different positions",
        apart.mean() > 0.2,
        f"in one of the layers, {apart.mean():.0%} of their weight lies on different words",
    )


# -- the calculation -----------------------------------------------------------------------------------------

D_MODEL, D_K, D_V = 16, 8, 6


def single_steps(X: np.ndarray, W_Q: np.ndarray, W_K: np.ndarray, W_V: np.ndarray) -> np.ndarray:
    """Compute steps 2 to 5 of the text word by word, from X (L, d_model) to z (L, d_v)."""
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
    """Compute the same in three lines; X is an array or a Tensor, and so is the result."""
    Q, K, V = X @ W_Q, X @ W_K, X @ W_V  # (L, d_k), (L, d_k), (L, d_v)
    S = mg.softmax(Q @ K.T / np.sqrt(K.shape[1]))  # (L, L)
    return S @ V  # (L, d_v)


def the_single_steps(text: Statements) -> tuple[np.ndarray, ...]:
    text.section("The calculation in single steps")
    rng = np.random.default_rng(1)
    words = TIRED.split()
    embedding = nn.Embedding(len(WORDS), D_MODEL, dtype=float, generator=rng)
    X = embedding(encode([TIRED])[0, : len(words)]).data  # (L, d_model)
    W_Q, W_K, W_V = (rng.normal(0, D_MODEL**-0.5, (D_MODEL, width)) for width in (D_K, D_K, D_V))
    q, k, v = X @ W_Q, X @ W_K, X @ W_V
    text.fact(
        "(1) each word becomes a vector",
        X.shape == (len(words), D_MODEL),
        f"{len(words)} words: $X$ {X.shape}",
    )
    text.fact(
        "(1) the same word, the same vector",
        (X[0] == X[4]).all(),
        '"the" twice: without positions they are alike',
    )
    text.fact(
        "(2) $W^Q$, $W^K$ and $W^V$ make query, key and value of each",
        (q.shape, k.shape, v.shape) == ((11, D_K), (11, D_K), (11, D_V)),
        f"$q$ {q.shape}, $k$ {k.shape}, $v$ {v.shape}",
    )
    z = single_steps(X, W_Q, W_K, W_V)
    order = rng.permutation(len(words))
    text.fact(
        "(2) all words share the three matrices",
        same(single_steps(X[order], W_Q, W_K, W_V), z[order]),
        "words in another order give the same $z$ in that order",
    )
    leaves = [mg.Tensor(W, requires_grad=True) for W in (W_Q, W_K, W_V)]
    checked = mg.gradcheck(lambda *W: matrix_form(X, *W), leaves, elementwise=False)
    text.fact(
        "(2) the matrices are learned",
        checked,
        "the gradient of each agrees with finite differences",
    )
    similarity = q @ k.T  # (L, L)
    text.fact(
        "(3) the similarity is a dot product, a number for each pair of words",
        similarity.shape == (11, 11),
    )
    text.erratum(
        "(3) and (5) the index of a similarity",
        "$S_i$ for the words $i$ and $j$, later $S_j$",
        "$S_{ij}$",
        not same(similarity, similarity.T, 0.01),
        r"a number for each pair, and $q_i \cdot k_j$ is not $q_j \cdot k_i$: "
        f"{similarity[7, 1]:.2f} from it to animal, {similarity[1, 7]:.2f} back",
    )
    S = mg.softmax(similarity / np.sqrt(D_K)).data  # (L, L)
    others = mg.softmax(similarity / np.sqrt(D_K), where=~np.eye(len(q), dtype=bool))
    text.erratum(
        "(3) which words are compared",
        "all other words",
        "all words, the word itself among them",
        same(S @ v, z) and not same(others @ v, z, 0.01),
        f'"it" gives itself the weight {S[7, 7]:.2f}; $z$ changes if that is left out',
    )
    return S, v, z, X, W_Q, W_K, W_V


def the_scale(text: Statements) -> None:
    text.section("(4) Why the similarity is divided by the root of the key's size")
    rng = np.random.default_rng(2)
    sizes, table = np.array([4, 16, 64, 256, 1024]), []
    for d_k in sizes:
        q, k = rng.standard_normal((4000, d_k)), rng.standard_normal((4000, 11, d_k))
        scores = np.einsum("nd,njd->nj", q, k)
        slopes = []
        for scaled in (scores, scores / np.sqrt(d_k)):
            S = mg.softmax(scaled).data[:, :, None]  # (4000, 11, 1)
            jacobian = S * (np.eye(11) - S.swapaxes(1, 2))  # dS_i/ds_j = S_i (δ_ij - S_j)
            slopes.append(float(np.sqrt((jacobian**2).sum((1, 2))).mean()))
        table.append((scores.var(), *slopes))
    variance, without, with_scale = np.array(table).T
    text.fact(
        "similarities grow with the size of the key, and the root undoes it",
        same(variance / sizes, 1, 0.05),
        "the variance of $q \\cdot k$ is $d_k$, and the variance of $q \\cdot k / \\sqrt{d_k}$ is 1",
    )
    text.fact(
        "dividing by $\\sqrt{d_k}$ keeps gradients steady",
        np.ptp(with_scale) < 0.05 and without[-1] < without[0] / 3,
        f"from $d_k$ = 4 to 1024 the gradient goes from {without[0]:.2f} to {without[-1]:.2f} without it, from "
        f"{with_scale[0]:.2f} to {with_scale[-1]:.2f} with it",
    )


def the_result(text: Statements, S: np.ndarray, v: np.ndarray, z: np.ndarray) -> None:
    text.section("(4) and (5): weights, and the weighted values")
    text.fact(
        "(4) softmax normalises the similarities of each word",
        same(S.sum(-1), 1) and (S > 0).all(),
        "each row is positive and sums to 1",
    )
    text.fact(
        "(5) $z_i$ is the sum over $j$ of $S_{ij} v_j$",
        same(z[7], sum(S[7, j] * v[j] for j in range(11))),
    )
    text.fact(
        "(5) the weights scale the values: each $z$ is a mean of values",
        same(z, z.clip(v.min(0), v.max(0))),
        "none leaves their range",
    )
    text.erratum(
        "(5) what $z_i$ is",
        'a "score"',
        "a vector",
        z[0].shape == (D_V,),
        f"of the size of a value, {z[0].shape}",
    )


def the_matrix_form(text: Statements, z: np.ndarray, X: np.ndarray, *weights: np.ndarray) -> None:
    text.section("The calculation with matrices")
    text.equal(
        "$\\softmax(QK^\\top / \\sqrt{d_k})\\,V$ is the five steps at once",
        matrix_form(X, *weights),
        z,
    )
    Q, K, V = ((X @ W)[None] for W in weights)  # (1, L, d)
    head = mg.scaled_dot_product_attention(Q[None], K[None], V[None])  # one sequence, one head
    text.equal("`mg.scaled_dot_product_attention` is the same", head[0, 0], z)
    text.equal("`nn.DotProductAttention` is the same", nn.DotProductAttention()(Q, K, V)[0], z)


def several_heads(text: Statements) -> None:
    text.section("Several heads")
    rng = np.random.default_rng(3)
    heads, L = 4, 11
    attention = nn.ExtendedAttention(D_MODEL, heads, bias=False, dtype=float, generator=rng)
    X = rng.standard_normal((L, D_MODEL))
    joined = (attention.q_proj, attention.k_proj, attention.v_proj)
    own = [np.split(p.weight.data, heads) for p in joined]  # each head has W^Q, W^K, W^V of its own
    Z = [single_steps(X, *(W.T for W in three)) for three in zip(*own)]  # (L, d_k) each
    W_O = attention.out_proj.weight.data.T  # (h · d_k, d_model)
    result = np.concatenate(Z, 1) @ W_O  # (L, d_model)
    text.fact(
        "there are several sets of $W^Q$, $W^K$, $W^V$, and so several $Z$",
        len(Z) == heads and not same(Z[0], Z[1], 0.01),
        f"{heads} of {Z[0].shape}",
    )
    text.equal(
        "$W^O$ makes one of them: the layer of the library is this", attention(X[None])[0], result
    )
    net = nn.FeedForward(D_MODEL, 4 * D_MODEL, dtype=float, generator=rng)
    text.fact(
        "its result fits the input of the feed-forward net",
        net(result).shape == X.shape == result.shape,
        f"$Z$ side by side {(L, D_MODEL)} times $W^O$ {W_O.shape} is {result.shape}",
    )
    attention(X[None]).sum().backward()
    text.fact(
        "$W^O$ is trained too",
        abs(attention.out_proj.weight.grad.data).max() > 0,
        "it has a gradient",
    )


def state(text: Statements) -> None:
    text.about(
        "Thoughts on self-attention",
        "a blog's entry, in Chinese",
        "003_8f2a173a50e2ad60.txt",
        note="It was written after reading [The Illustrated Transformer](https://jalammar.github.io/illustrated-transformer/).",
    )
    what_it_stands_for(text)
    S, v, z, *inputs = the_single_steps(text)
    the_scale(text)
    the_result(text, S, v, z)
    the_matrix_form(text, z, *inputs)
    several_heads(text)
    text.section("Self-attention for segmentation")
