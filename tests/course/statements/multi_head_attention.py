"""Statements of "Multi-head attention"."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from several_heads import FEATURES, Heads, heads_differ, learn, make_alike, shifted
from support.statements import Statements, gap, refusal, same

import minigrad as mg
import nn
from minigrad import merge_heads, split_heads

HIDDENS, HEADS = 100, 5  # num_hiddens and num_heads of the chapter
P = HIDDENS // HEADS  # 20, the size of one head
N, QUERIES, PAIRS = 2, 4, 6  # sequences, queries, key-value pairs
VALID_LENS = np.array([3, 2])


X, Y = np.ones((N, QUERIES, HIDDENS)), np.ones((N, PAIRS, HIDDENS))
MASK = nn.valid_lens_mask(VALID_LENS, (N, QUERIES, PAIRS))  # (N, 1, L_kv)


def drawn(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return random queries, and keys."""
    return rng.standard_normal(X.shape), rng.standard_normal(Y.shape)


def made(seed: int, **sizes: int) -> nn.ExtendedAttention:
    return nn.ExtendedAttention(
        HIDDENS, HEADS, **sizes, bias=False, dtype=float, generator=np.random.default_rng(seed)
    )


def one_head(
    attention: nn.MultiHeadAttention, h: int, q: Any, k: Any, v: Any, mask: Any = None
) -> np.ndarray:
    """Compute head h by itself (N, L_q, p), from its three linear layers."""
    own = slice(h * P, (h + 1) * P)  # the p rows that are the network of head h
    Q, K, V = (
        x @ projection.weight.data[own].T  # (N, L, p)
        for x, projection in ((q, attention.q_proj), (k, attention.k_proj), (v, attention.v_proj))
    )
    scores = Q @ K.swapaxes(1, 2) / np.sqrt(P)  # (N, L_q, L_kv)
    return mg.softmax(scores, where=mask).data @ V


# -- sizes and shapes --------------------------------------------------------------------------------------


def the_sizes(text: Statements) -> None:
    text.section("Sizes: `query_size`, `key_size`, `value_size` and `num_hiddens`")
    attention = made(0, query_size=7, key_size=8, value_size=9)
    shapes = [p.weight.shape[::-1] for p in (attention.q_proj, attention.k_proj, attention.v_proj)]
    text.fact(
        "queries, keys and values have sizes of their own, and `num_hiddens` after $W_q$, $W_k$, $W_v$",
        shapes == [(7, HIDDENS), (8, HIDDENS), (9, HIDDENS)],
        f"$W_q$ {shapes[0]}, $W_k$ {shapes[1]}, $W_v$ {shapes[2]}",
    )
    layer = nn.TransformerEncoderLayer(HIDDENS, HEADS, 2048).self_attention
    square = {p.shape for name, p in layer.named_parameters() if name.endswith("weight")}
    text.fact(
        "in a Transformer they are all equal",
        square == {(HIDDENS, HIDDENS)},
        f"four matrices {square.pop()}",
    )
    text.fact(
        "there are $h$ heads, and $p_q = p_k = p_v = p_o / h$: the chapter is right",
        layer.num_heads == HEADS and layer.d_k * HEADS == HIDDENS,
        f"$h$ = {HEADS}, $p$ = {layer.d_k}, $p_o$ = {HIDDENS}",
    )


def one_wide_projection(text: Statements) -> None:
    text.section("One wide projection is $h$ small ones, run at once")
    rng = np.random.default_rng(1)
    attention = made(1)
    q, k = drawn(rng)
    heads = [one_head(attention, h, q, k, k, MASK) for h in range(HEADS)]  # h × (N, L_q, p)
    expected = np.concatenate(heads, -1) @ attention.out_proj.weight.data.T  # (N, L_q, p_o)
    text.equal(
        "the weights of all $h$ heads are inside $W_q$, $W_k$, $W_v$: $h$ separate heads give the same",
        attention(q, k, MASK[:, None]),
        expected,
    )
    Q = attention.q_proj(q)  # (N, L_q, h·p)
    split = split_heads(Q, HEADS)  # (N, h, L_q, p)
    batch = split.reshape(N * HEADS, QUERIES, P)  # what the chapter's transpose_qkv returns
    text.fact(
        "`transpose_qkv` makes the heads part of the batch",
        batch.shape == (N * HEADS, QUERIES, P),
        f"{Q.shape} becomes {batch.shape}: the batch times $h$",
    )
    text.fact(
        "it splits the projected queries, not the queries",
        same(split[:, 2], q @ attention.q_proj.weight[40:60].T),
        "head 3 is what rows 40 to 59 of $W_q$ make of the whole query",
    )
    text.fact("`transpose_output` is the way back", np.array_equal(merge_heads(split).data, Q.data))
    text.fact(
        "nothing is copied $h$ times",
        np.shares_memory(split.data, Q.data) and split.size == Q.size,
        "the heads are views of the one projection, as NumPy's reshape and transpose give them",
    )
    d, n = 3, 5  # five networks that embed into three dimensions
    small = [rng.standard_normal((d, 8)) for _ in range(n)]
    x = rng.standard_normal(8)
    wide = np.concatenate(small) @ x  # (n·d,)
    by_d, by_n = wide.reshape(n, d), wide.reshape(d, n)
    text.fact(
        "$N$ networks side by side are one with $3N$ outputs",
        wide.shape == (3 * n,),
        f"$N$ = {n}: {wide.shape}",
    )
    text.erratum(
        "which outputs belong together",
        "that each $N$ nodes in turn are one of the networks",
        "each 3, the size that a network embeds into; there are $N$ such groups",
        all(same(by_d[i], small[i] @ x) for i in range(n))
        and not same(by_n[0][:d], small[1] @ x, 0.01),
        "the two are one only where $N = 3$",
    )
    packed = np.concatenate(
        [p.weight.data for p in (attention.q_proj, attention.k_proj, attention.v_proj)]
    )
    three = np.split(q @ packed.T, 3, -1)
    text.fact(
        "PyTorch's layer does the same",
        same(three[0], attention.q_proj(q)),
        f"it goes one step further: its `in_proj_weight` {packed.shape} is $W_q$, $W_k$ and $W_v$ in one; that the two "
        "layers agree in results and gradients is a test of this project (tests/oracle)",
    )


def what_a_head_sees(text: Statements) -> None:
    text.section("What a head sees: all features, through a projection of its own")
    rng = np.random.default_rng(2)
    attention = made(2)
    q, k = drawn(rng)
    x = mg.Tensor(q, requires_grad=True)
    score = split_heads(attention.q_proj(x), HEADS)[:, 0].sum()  # head 0 alone
    (gradient,) = mg.gradients(score, [x])
    seen = int((abs(gradient.data[0, 0]) > 0).sum())
    text.erratum(
        "the input of one head, for an input (2, 4, 100)",
        "(2, 4, 20), a fifth of the features",
        "(2, 4, 100); only its projection is (2, 4, 20)",
        seen == HIDDENS and attention.q_proj(q).shape == (N, QUERIES, HIDDENS),
        f"the queries of head 1 depend on all {seen} features",
    )
    first = q.copy()
    first[..., P:] = 0  # leave head 1 "its" 20 features
    text.erratum(
        "what is divided among the heads",
        "the features of the input: each head sees a local part",
        "the space that the input is projected to",
        not same(one_head(attention, 0, first, k, k), one_head(attention, 0, q, k, k), 0.01),
        "which features make a part is learned; neighbours in the input are not neighbours in a head",
    )
    Q, K = (
        split_heads(p(z), HEADS).data for p, z in ((attention.q_proj, q), (attention.k_proj, k))
    )  # (N, h, L, p)
    parts = Q @ K.swapaxes(-1, -2)  # (N, h, L_q, L_kv)
    whole = attention.q_proj(q).data @ attention.k_proj(k).data.swapaxes(1, 2)  # (N, L_q, L_kv)
    weights = mg.softmax(parts / np.sqrt(P)).data  # (N, h, L_q, L_kv)
    text.fact(
        "one head compares over all features at once; $h$ heads compare each part by itself",
        same(parts.sum(1), whole) and not same(weights[:, 0], weights[:, 1], 0.01),
        "the products of the parts add up to the whole product, and each has a softmax of its own",
    )
    heads = [one_head(attention, h, q, k, k) for h in range(HEADS)]  # (N, L_q, p) each
    blocks = np.split(attention.out_proj.weight.data.T, HEADS)  # W_o in h blocks (p, p_o)
    total = sum(head @ block for head, block in zip(heads, blocks))
    text.fact(
        "$W_o$ weighs the parts and adds them up",
        same(total, attention(q, k)),
        "concatenating and multiplying by $W_o$ is the sum over heads of head · (its block of $W_o$)",
    )


def how_many(text: Statements) -> None:
    text.section("How many queries, how many keys and values")
    attention = made(3)
    y = attention(X, Y, MASK[:, None])
    text.fact(
        "`attention(X, Y, Y, valid_lens).shape`",
        y.shape == (2, 4, 100),
        f"{y.shape}, as in the chapter",
    )
    text.fact(
        "the second number is the number of queries, whatever the number of pairs",
        all(attention(X, Y[:, :n]).shape == (2, 4, 100) for n in (1, 3, 6)),
        "each query gets one result",
    )
    projected = (attention.q_proj, X), (attention.k_proj, Y), (attention.v_proj, Y)
    queries, keys, values = (projection(x).shape for projection, x in projected)
    text.fact(
        "their length, after the projections, is `num_hiddens`",
        (queries, keys, values) == (X.shape, Y.shape, Y.shape),
        f"queries {queries}, keys and values {keys}",
    )
    q, k = drawn(np.random.default_rng(3))
    one_by_one = [attention(z, k).data for z in np.split(q, QUERIES, 1)]
    text.fact(
        "how many queries are asked at once is a free choice",
        same(np.concatenate(one_by_one, 1), attention(q, k)),
        "each is answered by itself: four at once are four times one",
    )
    own = nn.MultiHeadAttention(HIDDENS, HEADS, dtype=float)
    text.fact(
        "in self-attention queries, keys and values come from the same tokens: then the numbers are equal",
        nn.with_weights(own, Y)[1].shape == (N, HEADS, PAIRS, PAIRS),
        "the example with 4 and 6 is attention to another sequence",
    )
    model = nn.Transformer(nn.TransformerConfig(9, 9, 8, 2, 1, 1, 8)).eval()
    with nn.record_attention(model) as recorded:
        nn.greedy_search(model, np.full((1, PAIRS), 4), max_len=3, eos=None)
    cross = [w.shape[2:] for w in recorded["decoder.layers.0.cross_attention"]]
    text.fact(
        "their number is the length of the sentence; with one word predicted at a time there is one query",
        cross == [(1, PAIRS)] * 3,
        f"(queries, pairs) of three steps of decoding: {cross}",
    )


# -- masks ---------------------------------------------------------------------------------------------------


def highest_mask(scores: np.ndarray, lens: np.ndarray) -> np.ndarray:
    """Keep the `lens` (N,) highest scores of each row of scores (N, L_q, L_kv)."""
    rank = (-scores).argsort(-1).argsort(-1)  # 0 for the highest
    return rank < lens[:, None, None]


def valid_lens(text: Statements) -> None:
    text.section("`valid_lens`: the first keys, or those with the highest scores?")
    rng = np.random.default_rng(4)
    q = rng.standard_normal((N, QUERIES, P))
    keys = rng.standard_normal((N, PAIRS, P))
    values = 3 * rng.standard_normal(keys.shape)  # other values in the padding
    other = np.where(MASK.swapaxes(1, 2), keys, values)
    score = lambda k: q @ k.swapaxes(1, 2) / np.sqrt(P)  # (N, L_q, L_kv)
    attend = lambda k, mask: mg.softmax(score(k), where=mask).data @ k
    by_place = [attend(k, MASK) for k in (keys, other)]
    by_score = [attend(k, highest_mask(score(k), VALID_LENS)) for k in (keys, other)]
    layer = nn.DotProductAttention()
    y = layer(q, keys, keys, VALID_LENS).data
    text.fact("the library keeps the first keys", same(y, by_place[0]))
    text.fact(
        "padding takes no part: what stands in it does not matter",
        np.array_equal(by_place[0], by_place[1]),
        "other numbers in the padding, the same result",
    )
    kept = highest_mask(score(keys), VALID_LENS)
    padding = (kept & ~MASK).sum() / kept.sum()
    text.fact(
        "keeping the highest scores would let padding in",
        padding > 0.2 and not same(by_score[0], by_score[1], 0.1),
        f"{padding:.0%} of what it keeps is padding, and the result changes with it",
    )
    order = [
        np.array_equal(weights[:, :length].argsort(), scores[:, :length].argsort())
        for weights, scores, length in zip(layer.weights.data, score(keys), VALID_LENS)
    ]
    text.fact(
        "nor is it needed: among real keys the softmax already prefers high scores",
        all(order),
        "their weights are in the order of their scores",
    )


# -- pictures of weights, and the exercise -----------------------------------------------------------------------


def additive_and_dot_product(text: Statements) -> None:
    text.section("Additive beside dot-product, and the shape (1, 1, 2, 10)")
    rng = np.random.default_rng(5)
    keys = np.ones((2, 10, 2))
    values = np.tile(np.arange(40.0).reshape(1, 10, 4), (2, 1, 1))
    lens = np.array([2, 6])
    additive = nn.AdditiveAttention(20, 2, 8, dtype=float, generator=rng)
    dot = nn.DotProductAttention()
    results = [additive(rng.standard_normal((2, 1, 20)), keys, values, lens).data,
               dot(rng.standard_normal((2, 1, 2)), keys, values, lens).data]  # fmt: skip
    weights = additive.weights.data  # (2, 1, 10)
    expected = np.array([[1 / 2] * 2 + [0] * 8, [1 / 6] * 6 + [0] * 4])
    text.fact(
        "in that chapter's example, whose keys are all ones, both kinds of attention give the same picture",
        same(weights[:, 0], expected) and same(dot.weights, weights) and np.allclose(*results),
        "all keys are equal, so that any score spreads the weight evenly over the 2 and the 6 real ones",
    )
    text.fact(
        "weights drawn as (1, 1, 2, 10) and as (2, 1, 1, 10) are the same numbers",
        np.array_equal(weights.reshape(1, 1, 2, 10).ravel(), weights.reshape(2, 1, 1, 10).ravel()),
        "one map of two rows, or two maps of one row",
    )
    text.fact(
        "additive attention takes queries and keys of different sizes, dot-product does not",
        results[0].shape == (2, 1, 4) and refusal(lambda: dot(np.ones((2, 1, 20)), keys, values)),
        "queries of size 20, keys of size 2",
    )
    q, k = rng.standard_normal((1, 6, 2)), 2 * rng.standard_normal((1, 10, 2))
    other = nn.AdditiveAttention(2, 2, 8, dtype=float, generator=rng)
    for attention in (other, dot):
        attention(q, k, k, np.array([8]))
    apart = gap(other.weights, dot.weights)
    text.fact(
        "with keys that differ the two differ", apart > 0.1, f"weights up to {apart:.2f} apart"
    )


def the_exercise(text: Statements) -> None:
    text.section("The exercise: draw the weights of all heads")
    attention = made(6)
    _, weights = nn.with_weights(attention, X, Y, MASK[:, None])  # (N, h, L_q, L_kv)
    expected = np.zeros((N, HEADS, QUERIES, PAIRS))
    expected[0, ..., :3], expected[1, ..., :2] = 1 / 3, 1 / 2
    text.fact(
        "a reader's picture looks like the picture of the example before: it is right",
        same(weights, expected),
        "inputs of ones have equal keys, so that every head spreads evenly: 1/3 over 3 keys, 1/2 over 2",
    )
    q, k = drawn(np.random.default_rng(7))
    _, random = nn.with_weights(attention, 2 * q, 2 * k, MASK[:, None])
    apart = min(gap(a, b) for a, b in itertools.combinations(random.swapaxes(0, 1), 2))
    text.fact(
        "with inputs that differ the heads differ",
        apart > 0.05,
        f"any two by at least {apart:.2f} somewhere",
    )


# -- learning -----------------------------------------------------------------------------------------------------


def alike_at_first(text: Statements) -> None:
    text.section('"Alike at first, different after training"')
    rng = np.random.default_rng(8)
    x, _ = shifted(50, rng)
    usual = Heads("split", np.random.default_rng(0))
    alike = make_alike(Heads("split", np.random.default_rng(0)))
    before = heads_differ(usual, x), heads_differ(alike, x)
    learn(usual, 60)
    learn(alike, 60)
    after = heads_differ(usual, x), heads_differ(alike, x)
    text.erratum(
        "the heads before training",
        "the same at first, different after learning",
        "different from the start, since their first weights are random",
        min(before[0], after[0]) > 0.1 and max(before[1], after[1]) < 1e-3,
        "heads that are truly the same get the same gradients, and never part",
    )


def whole_values(text: Statements) -> None:
    text.section("What if the values are not split?")
    rng = np.random.default_rng(9)
    x, _ = shifted(5, rng)
    summed = Heads("summed", rng)
    A, V = summed.weights(x).data, summed.v_proj(x).data  # (N, h, L, L), (N, L, 16)
    text.fact(
        "added up, the heads are one head",
        same((A @ V[:, None]).sum(1), A.sum(1) @ V, 1e-05),
        "$\\sum_h A_h V = (\\sum_h A_h) V$: one map of weights for all features",
    )
    split, joined = (Heads(kind, np.random.default_rng(1)) for kind in ("split", "joined"))
    for a, b in zip(joined.parameters(), split.parameters()):
        if a.shape == b.shape:
            a.data[...] = b.data
    W = np.zeros(
        (FEATURES, 4, FEATURES), np.float32
    )  # W_o of the joined form: an input for each head and feature
    for h in range(4):
        own = slice(4 * h, 4 * h + 4)
        W[:, h, own] = split.out_proj.weight.data[:, own]
    joined.out_proj.weight.data[...] = W.reshape(FEATURES, -1)
    text.fact(
        "side by side, the split form is a special case",
        same(joined(x), split(x), 1e-05),
        "$W_o$ takes from each head only its own features, and has zeros elsewhere",
    )
    kinds = ("split", "summed", "joined")
    left = {kind: learn(Heads(kind, np.random.default_rng(1)), 300) for kind in kinds}
    text.fact(
        "added up, it is not sensible: what several heads are for is lost",
        left["summed"] > 0.7 > 7 * left["split"],
        f"{left['summed']:.0%} of the variance is not explained, {left['split']:.1%} with split values. One map $w$ "
        "explains $w_i^2 / \\sum_j w_j^2$ of a part that comes from place $i$: 1 in sum over the four, a quarter on average",
    )
    text.fact(
        "side by side, it works and costs more",
        left["joined"] < 0.1,
        f"{left['joined']:.1%} not explained; the values and $W_o$ take $h$ times the work, $W_o$ $h$ times the parameters",
    )


def state(text: Statements) -> None:
    text.about(
        "Multi-head attention (多头注意力)",
        "a discussion among readers of a course",
        "004_36d00249ebd8060a.txt",
        note="It discusses the chapter [Multi-head attention](https://zh.d2l.ai/chapter_attention-mechanisms/multihead-attention.html) of Dive into Deep Learning.",
    )
    the_sizes(text)
    additive_and_dot_product(text)
    the_exercise(text)
    valid_lens(text)
    one_wide_projection(text)
    what_a_head_sees(text)
    alike_at_first(text)
    whole_values(text)
    how_many(text)
