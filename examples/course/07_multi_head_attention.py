"""Multi-head attention: the questions of a discussion, and their answers in code.

"Multi-head attention" (the text, 004_36d00249ebd8060a.txt) is the discussion below a chapter of a course: readers ask
and answer. What is split, and what is not; how the heads run at once; what `valid_lens` keeps; what an exercise
should show; whether values must be split too. Each is run here. The chapter's names: `num_hiddens` is the size of the
vectors inside the layer, `num_heads` the number of heads, and `valid_lens` says how many keys of each sequence are real.

    python examples/course/07_multi_head_attention.py
"""

from __future__ import annotations

from lesson import Lesson, fastest  # first: Ctrl-C is one line from here on

# isort: split
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import minigrad as mg
import nn
from minigrad import merge_heads, optim, split_heads
from minigrad.extras import require
from minigrad.kernels import attention_weights
from nn.inspection.style import SHADES

HIDDENS, HEADS = 100, 5  # num_hiddens and num_heads of the chapter
P = HIDDENS // HEADS  # 20, the size of one head
N, QUERIES, PAIRS = 2, 4, 6  # sequences, queries, key-value pairs
VALID_LENS = np.array([3, 2])


def softmax(scores: np.ndarray) -> np.ndarray:
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def made(seed: int, **sizes: int) -> nn.MultiHeadAttention:
    return nn.MultiHeadAttention(
        HIDDENS, HEADS, **sizes, bias=False, dtype=float, generator=np.random.default_rng(seed)
    )


def one_head(
    attention: nn.MultiHeadAttention, h: int, q: Any, k: Any, v: Any, mask: Any = None
) -> np.ndarray:
    """Head h by itself: its own three networks, and dot-product attention, (N, L_q, p)."""
    own = slice(h * P, (h + 1) * P)  # the p rows that are the network of head h
    Q, K, V = (
        x @ projection.weight.data[own].T  # (N, L, p)
        for x, projection in ((q, attention.q_proj), (k, attention.k_proj), (v, attention.v_proj))
    )
    scores = Q @ K.swapaxes(1, 2) / np.sqrt(P)  # (N, L_q, L_kv)
    return softmax(scores if mask is None else np.where(mask, scores, -np.inf)) @ V


# -- sizes and shapes --------------------------------------------------------------------------------------


def the_sizes(lesson: Lesson) -> None:
    lesson.section("Sizes: `query_size`, `key_size`, `value_size` and `num_hiddens`")
    lesson.quote(
        "应当是query_size/key_size/value_size，在经过W_q/W_k/W_v后，才转为num_hiddens。",
        "They are `query_size`, `key_size` and `value_size`; only $W_q$, $W_k$ and $W_v$ turn them into `num_hiddens`.",
    )
    lesson.say("""What a layer is given, and what it computes with, need not be of one size. The first question is which of its numbers
    means which.""")
    attention = made(0, query_size=7, key_size=8, value_size=9)
    shapes = [p.weight.shape[::-1] for p in (attention.q_proj, attention.k_proj, attention.v_proj)]
    lesson.fact(
        "queries, keys and values have sizes of their own, and `num_hiddens` after $W_q$, $W_k$, $W_v$",
        shapes == [(7, HIDDENS), (8, HIDDENS), (9, HIDDENS)],
        f"$W_q$ {shapes[0]}, $W_k$ {shapes[1]}, $W_v$ {shapes[2]}",
    )
    layer = nn.TransformerEncoderLayer(HIDDENS, HEADS, 2048).self_attention
    square = {p.shape for name, p in layer.named_parameters() if name.endswith("weight")}
    lesson.fact(
        "in a Transformer they are all equal",
        square == {(HIDDENS, HIDDENS)},
        f"four matrices {square.pop()}",
    )
    lesson.fact(
        "there are $h$ heads, and $p_q = p_k = p_v = p_o / h$: the chapter is right",
        layer.num_heads == HEADS and layer.d_k * HEADS == HIDDENS,
        f"$h$ = {HEADS}, $p$ = {layer.d_k}, $p_o$ = {HIDDENS}",
    )


def one_wide_projection(lesson: Lesson) -> None:
    lesson.section("One wide projection is $h$ small ones, run at once")
    lesson.quote(
        "之所以把他们放在一起就是为了便于并行加快计算。",
        "They are put together so that they can be computed in parallel, faster.",
    )
    lesson.say("""In the code a layer has one $W_q$, not $h$ of them. Readers ask where the heads are. They are its parts: the
    rows of the matrix, $p$ for each head, stand below each other.""")
    lesson.code(one_head, note="One head by itself, with its own rows of the three matrices:")
    rng = np.random.default_rng(1)
    attention = made(1)
    q, k = rng.standard_normal((N, QUERIES, HIDDENS)), rng.standard_normal((N, PAIRS, HIDDENS))
    mask = nn.valid_lens_mask(VALID_LENS, (N, QUERIES, PAIRS))  # (N, 1, L_kv)
    heads = [one_head(attention, h, q, k, k, mask) for h in range(HEADS)]  # h × (N, L_q, p)
    expected = np.concatenate(heads, -1) @ attention.out_proj.weight.data.T  # (N, L_q, p_o)
    y = attention(q, k, k, mask[:, None]).data
    gap = abs(y - expected).max()
    lesson.fact(
        "the weights of all $h$ heads are inside $W_q$, $W_k$, $W_v$: $h$ separate heads give the same",
        gap < 1e-12,
        f"largest gap {gap:.0e}",
    )
    Q = attention.q_proj(q)  # (N, L_q, h·p)
    split = split_heads(Q, HEADS)  # (N, h, L_q, p)
    batch = split.reshape(N * HEADS, QUERIES, P)  # what the chapter's transpose_qkv returns
    lesson.fact(
        "`transpose_qkv` makes the heads part of the batch",
        batch.shape == (N * HEADS, QUERIES, P),
        f"{Q.shape} becomes {batch.shape}: the batch times $h$",
    )
    lesson.fact(
        "it splits the projected queries, not the queries",
        np.allclose(split.data[:, 2], q @ attention.q_proj.weight.data[40:60].T),
        "head 3 is what rows 40 to 59 of $W_q$ make of the whole query",
    )
    lesson.fact(
        "`transpose_output` is the way back", np.array_equal(merge_heads(split).data, Q.data)
    )
    lesson.fact(
        "nothing is copied $h$ times",
        np.shares_memory(split.data, Q.data) and split.size == Q.size,
        "the heads are views of the one projection, as NumPy's reshape and transpose give them",
    )
    faster_together(lesson, rng, attention)
    networks_side_by_side(lesson, rng)
    all_three(lesson, attention, q)


def all_three(lesson: Lesson, attention: nn.MultiHeadAttention, q: np.ndarray) -> None:
    """The projections of queries, keys and values in one matrix too, as in PyTorch."""
    packed = np.concatenate(
        [p.weight.data for p in (attention.q_proj, attention.k_proj, attention.v_proj)]
    )
    three = np.split(q @ packed.T, 3, -1)
    lesson.fact(
        "PyTorch's layer does the same",
        np.allclose(three[0], attention.q_proj(q).data, rtol=1e-12),
        f"it goes one step further: its `in_proj_weight` {packed.shape} is $W_q$, $W_k$ and $W_v$ in one; that the two "
        "layers agree in results and gradients is a test of this project (tests/oracle)",
    )


def faster_together(
    lesson: Lesson, rng: np.random.Generator, attention: nn.MultiHeadAttention
) -> None:
    x = rng.standard_normal((32, 20, HIDDENS))
    wide = lambda: attention(x, x, x)
    loop = lambda: np.concatenate([one_head(attention, h, x, x, x) for h in range(HEADS)], -1) @ W_o
    W_o = attention.out_proj.weight.data.T
    with mg.no_grad():
        together, apart = fastest(wide, loop)
    lesson.measured(
        f"""The heads are put together to compute them faster: 32 sequences of 20 took {1e3 * together:.1f} ms together,
        {1e3 * apart:.1f} ms head by head."""
    )


def networks_side_by_side(lesson: Lesson, rng: np.random.Generator) -> None:
    d, n = 3, 5  # five networks that embed into three dimensions
    small = [rng.standard_normal((d, 8)) for _ in range(n)]
    x = rng.standard_normal(8)
    wide = np.concatenate(small) @ x  # (n·d,)
    by_d, by_n = wide.reshape(n, d), wide.reshape(d, n)
    lesson.fact(
        "$N$ networks side by side are one with $3N$ outputs",
        wide.shape == (3 * n,),
        f"$N$ = {n}: {wide.shape}",
    )
    lesson.erratum(
        "which outputs belong together",
        "that each $N$ nodes in turn are one of the networks",
        "each 3, the size that a network embeds into; there are $N$ such groups",
        all(np.allclose(by_d[i], small[i] @ x) for i in range(n))
        and not np.allclose(by_n[0][:d], small[1] @ x),
        "the two are one only where $N = 3$",
    )


def what_a_head_sees(lesson: Lesson) -> None:
    lesson.section("What a head sees: all features, through a projection of its own")
    lesson.quote(
        "q，k，v并不是简单的复制h份，而是将输入特征拆分为h份",
        "$q$, $k$ and $v$ are not simply copied $h$ times; the input's features are split into $h$ parts",
    )
    lesson.predict(
        "Five heads on an input of 100 features. How many of them can head 1 see?",
        "All 100. What has 20 columns is its projection.",
    )
    rng = np.random.default_rng(2)
    attention = made(2)
    q, k = rng.standard_normal((N, QUERIES, HIDDENS)), rng.standard_normal((N, PAIRS, HIDDENS))
    x = mg.Tensor(q, requires_grad=True)
    score = split_heads(attention.q_proj(x), HEADS)[:, 0].sum()  # head 0 alone
    (gradient,) = mg.gradients(score, [x])
    seen = int((abs(gradient.data[0, 0]) > 0).sum())
    lesson.erratum(
        "the input of one head, for an input (2, 4, 100)",
        "(2, 4, 20), a fifth of the features",
        "(2, 4, 100); only its projection is (2, 4, 20)",
        seen == HIDDENS and attention.q_proj(q).shape == (N, QUERIES, HIDDENS),
        f"the queries of head 1 depend on all {seen} features",
    )
    first = q.copy()
    first[..., P:] = 0  # leave head 1 "its" 20 features
    lesson.erratum(
        "what is divided among the heads",
        "the features of the input: each head sees a local part",
        "the space that the input is projected to",
        not np.allclose(
            one_head(attention, 0, first, k, k), one_head(attention, 0, q, k, k), atol=0.01
        ),
        "which features make a part is learned; neighbours in the input are not neighbours in a head",
    )
    Q, K = (
        split_heads(p(z), HEADS).data for p, z in ((attention.q_proj, q), (attention.k_proj, k))
    )  # (N, h, L, p)
    parts = Q @ K.swapaxes(-1, -2)  # (N, h, L_q, L_kv)
    whole = attention.q_proj(q).data @ attention.k_proj(k).data.swapaxes(1, 2)  # (N, L_q, L_kv)
    weights = softmax(parts / np.sqrt(P))  # (N, h, L_q, L_kv)
    lesson.fact(
        "one head compares over all features at once; $h$ heads compare each part by itself",
        np.allclose(parts.sum(1), whole)
        and not np.allclose(weights[:, 0], weights[:, 1], atol=0.01),
        "the products of the parts add up to the whole product, and each has a softmax of its own",
    )
    heads = [one_head(attention, h, q, k, k) for h in range(HEADS)]  # (N, L_q, p) each
    blocks = np.split(attention.out_proj.weight.data.T, HEADS)  # W_o in h blocks (p, p_o)
    total = sum(head @ block for head, block in zip(heads, blocks))
    lesson.fact(
        "$W_o$ weighs the parts and adds them up",
        np.allclose(total, attention(q, k, k).data),
        "concatenating and multiplying by $W_o$ is the sum over heads of head · (its block of $W_o$)",
    )


def how_many(lesson: Lesson) -> None:
    lesson.section("How many queries, how many keys and values")
    lesson.say("""The chapter's test has 4 queries and 6 pairs of a key and a value. Where do such numbers come from, when a sentence has
    one number of words?""")
    attention = made(3)
    X, Y = np.ones((N, QUERIES, HIDDENS)), np.ones((N, PAIRS, HIDDENS))
    mask = nn.valid_lens_mask(VALID_LENS, (N, QUERIES, PAIRS))[:, None]  # (N, 1, 1, L_kv)
    y = attention(X, Y, Y, mask)
    lesson.fact(
        "`attention(X, Y, Y, valid_lens).shape`",
        y.shape == (2, 4, 100),
        f"{y.shape}, as in the chapter",
    )
    lesson.fact(
        "the second number is that of the queries, whatever the number of pairs",
        all(
            attention(X, np.ones((N, n, HIDDENS)), np.ones((N, n, HIDDENS))).shape == (2, 4, 100)
            for n in (1, 6, 9)
        ),
        "each query gets one result",
    )
    lesson.fact(
        "their length, after the projections, is `num_hiddens`",
        attention.q_proj(X).shape[-1]
        == attention.k_proj(Y).shape[-1]
        == attention.v_proj(Y).shape[-1]
        == HIDDENS,
        f"queries {attention.q_proj(X).shape}, keys and values {attention.k_proj(Y).shape}",
    )
    q, k = (np.random.default_rng(3).standard_normal((N, n, HIDDENS)) for n in (QUERIES, PAIRS))
    one_by_one = [attention(q[:, i : i + 1], k, k).data for i in range(QUERIES)]
    lesson.fact(
        "how many queries are asked at once is a free choice",
        np.allclose(np.concatenate(one_by_one, 1), attention(q, k, k).data),
        "each is answered by itself: four at once are four times one",
    )
    own = nn.MultiHeadSelfAttention(HIDDENS, HEADS, dtype=float)
    lesson.fact(
        "in self-attention queries, keys and values come from the same tokens: then the numbers are equal",
        nn.with_weights(own, Y)[1].shape == (N, HEADS, PAIRS, PAIRS),
        "the example with 4 and 6 is attention to another sequence",
    )
    config = nn.TransformerConfig(
        9, 9, d_model=8, num_heads=2, num_encoder_layers=1, num_decoder_layers=1, d_ff=8
    )
    model = nn.Transformer(config).eval()
    source = np.full((1, PAIRS), 4)
    with mg.no_grad(), nn.record_attention(model) as recorded:
        state = model.start(source)
        for _ in range(3):
            model.step(np.array([[1]]), state)
    cross = [w.shape[2:] for w in recorded["decoder.layers.0.cross_attention"]]
    lesson.fact(
        "their number is the length of the sentence; with one word predicted at a time there is one query",
        cross == [(1, PAIRS)] * 3,
        f"(queries, pairs) of three steps of decoding: {cross}",
    )


# -- masks ---------------------------------------------------------------------------------------------------


def highest_mask(scores: np.ndarray, lens: np.ndarray) -> np.ndarray:
    """The other idea: of each row of scores (N, L_q, L_kv), keep the `lens` (N,) highest."""
    rank = (-scores).argsort(-1).argsort(-1)  # 0 for the highest
    return rank < lens[:, None, None]


def valid_lens(lesson: Lesson) -> None:
    lesson.section("`valid_lens`: the first keys, or those with the highest scores?")
    lesson.say(
        """A reader asks whether `valid_lens` should not keep the highest scores of each row, since the code keeps the
        first ones. The answer given: what is cut is padding, which means nothing and must not take part. Both are
        tried on queries and keys where the last keys are padding."""
    )
    rng = np.random.default_rng(4)
    q = rng.standard_normal((N, QUERIES, P))
    keys = rng.standard_normal((N, PAIRS, P))
    real = nn.valid_lens_mask(VALID_LENS, (N, QUERIES, PAIRS))  # (N, 1, L_kv)
    other = np.where(
        real.swapaxes(1, 2), keys, 3 * rng.standard_normal(keys.shape)
    )  # other numbers in the padding
    score = lambda k: q @ k.swapaxes(1, 2) / np.sqrt(P)  # (N, L_q, L_kv)
    attend = lambda k, mask: softmax(np.where(mask, score(k), -np.inf)) @ k
    by_place = [attend(k, real) for k in (keys, other)]
    by_score = [attend(k, highest_mask(score(k), VALID_LENS)) for k in (keys, other)]
    layer = nn.DotProductAttention()(q, keys, keys, VALID_LENS).data
    lesson.fact("the library keeps the first keys", np.allclose(layer, by_place[0], rtol=1e-12))
    lesson.fact(
        "padding takes no part: what stands in it does not matter",
        np.array_equal(by_place[0], by_place[1]),
        "other numbers in the padding, the same result",
    )
    kept = highest_mask(score(keys), VALID_LENS)
    padding = (kept & ~real).sum() / kept.sum()
    lesson.fact(
        "keeping the highest scores would let padding in",
        padding > 0.2 and not np.allclose(by_score[0], by_score[1], atol=0.1),
        f"{padding:.0%} of what it keeps is padding, and the result changes with it",
    )
    weights = nn.DotProductAttention()
    weights(q, keys, keys, VALID_LENS)
    w = weights.weights.data
    order = [(np.argsort(w[n, i, :length]) == np.argsort(score(keys)[n, i, :length])).all()
             for n, length in enumerate(VALID_LENS) for i in range(QUERIES)]  # fmt: skip
    lesson.fact(
        "nor is it needed: among real keys the softmax already prefers high scores",
        all(order),
        "their weights are in the order of their scores",
    )


# -- pictures of weights, and the exercise -----------------------------------------------------------------------


def additive_and_dot_product(lesson: Lesson) -> None:
    lesson.section("Additive beside dot-product, and the shape (1, 1, 2, 10)")
    lesson.say("""The chapter before this one has another way to score a key, *additive* attention: a small network
    of one hidden layer looks at query and key together. It needs no query of the key's size, and costs more than a
    product.""")
    lesson.formula(
        r"s(q, k) = w^\top \tanh(W_q q + W_k k) \qquad s(q, k) = \frac{q \cdot k}{\sqrt{d}}",
        "Left, additive attention with a vector $w$ and two matrices that are learned; right, dot-product attention.",
    )
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
    lesson.fact(
        "in that chapter's example, whose keys are all ones, both kinds of attention give the same picture",
        np.allclose(weights[:, 0], expected)
        and np.allclose(dot.weights.data, weights)
        and np.allclose(*results),
        "all keys are equal, so that any score spreads the weight evenly over the 2 and the 6 real ones",
    )
    lesson.fact(
        "weights drawn as (1, 1, 2, 10) and as (2, 1, 1, 10) are the same numbers",
        np.array_equal(weights.reshape(1, 1, 2, 10).ravel(), weights.reshape(2, 1, 1, 10).ravel()),
        "one map of two rows, or two maps of one row",
    )
    lesson.say(
        f"""The weights are {weights.shape}: 2 sequences, 1 query, 10 keys. As (rows of maps, maps in a row, queries,
        keys) that is (2, 1, 1, 10), as the reader says; (1, 1, 2, 10) shows the two sequences as if they were two
        queries of one."""
    )
    lesson.fact(
        "additive attention takes queries and keys of different sizes, dot-product does not",
        results[0].shape == (2, 1, 4) and refuses(dot, np.ones((2, 1, 20)), keys, values),
        "queries of size 20, keys of size 2",
    )
    keys_that_differ(lesson, rng, dot)


def keys_that_differ(lesson: Lesson, rng: np.random.Generator, dot: nn.DotProductAttention) -> None:
    q, k = rng.standard_normal((1, 6, 2)), 2 * rng.standard_normal((1, 10, 2))
    other = nn.AdditiveAttention(2, 2, 8, dtype=float, generator=rng)
    for attention in (other, dot):
        attention(q, k, k, np.array([8]))
    apart = abs(other.weights.data - dot.weights.data).max()
    lesson.fact(
        "with keys that differ the two differ", apart > 0.1, f"weights up to {apart:.2f} apart"
    )
    maps = {"additive": other.weights.data[0], "dot-product": dot.weights.data[0]}
    lesson.picture(
        "additive_and_dot_product.png",
        lambda path: draw_maps(path, maps, "queries", "keys (the last two are padding)"),
        caption="With keys that differ, additive and dot-product attention differ; the last two keys are padding and get nothing.",
        alt="Two heat maps of six queries by ten keys, the last two columns empty.",
    )


def refuses(attention: Any, *arguments: Any) -> bool:
    try:
        attention(*arguments)
    except ValueError:
        return True
    return False


def draw_maps(
    path: Path, maps: dict[str, np.ndarray], rows: str, columns: str, per_row: int = 5
) -> None:
    """Maps of weights side by side."""
    count = min(per_row, len(maps))
    lines = -(-len(maps) // count)
    size = (2.6 * count + 1.0, 2.1 * lines + 0.6)
    figure = require("matplotlib.figure", "plotting").Figure(figsize=size, layout="constrained")
    cells = figure.subplots(lines, count, squeeze=False, sharex=True, sharey=True)
    for cell, (title, weights) in zip(cells.ravel(), maps.items()):
        image = cell.imshow(weights, cmap=SHADES, vmin=0, vmax=max(w.max() for w in maps.values()))
        cell.set_title(title, fontsize=10)
        cell.set_xticks(range(weights.shape[1]))
        cell.set_yticks(range(weights.shape[0]))
    figure.supxlabel(columns, fontsize=10)
    figure.supylabel(rows, fontsize=10)
    figure.colorbar(image, ax=cells, label="weight", shrink=0.8)
    figure.savefig(path, dpi=150)


def the_exercise(lesson: Lesson) -> None:
    lesson.section("The exercise: draw the weights of all heads")
    lesson.say("""The chapter asks its readers to draw the weights of each head. One has done so for inputs of ones, as in the
    chapter's own test, and asks whether a picture so even can be right.""")
    attention = made(6)
    mask = nn.valid_lens_mask(VALID_LENS, (N, QUERIES, PAIRS))[:, None]  # (N, 1, 1, L_kv)
    X, Y = np.ones((N, QUERIES, HIDDENS)), np.ones((N, PAIRS, HIDDENS))
    _, weights = nn.with_weights(attention, X, Y, Y, mask)  # (N, h, L_q, L_kv)
    expected = np.zeros((N, HEADS, QUERIES, PAIRS))
    expected[0, ..., :3], expected[1, ..., :2] = 1 / 3, 1 / 2
    lesson.fact(
        "a reader's picture looks like that of the example before: it is right",
        np.allclose(weights, expected),
        "inputs of ones have equal keys, so that every head spreads evenly: 1/3 over 3 keys, 1/2 over 2",
    )
    rng = np.random.default_rng(7)
    X, Y = 2 * rng.standard_normal(X.shape), 2 * rng.standard_normal(Y.shape)
    _, random = nn.with_weights(attention, X, Y, Y, mask)
    apart = min(
        abs(random[:, a] - random[:, b]).max() for a in range(HEADS) for b in range(HEADS) if a != b
    )
    lesson.fact(
        "with inputs that differ the heads differ",
        apart > 0.05,
        f"any two by at least {apart:.2f} somewhere",
    )
    lesson.say(
        "A reader asks what a picture was drawn with. These are drawn with matplotlib, from the weights themselves."
    )
    about = {
        "heads_of_ones.png": (
            weights,
            "Inputs of ones: every head spreads its weight evenly over the keys that are not padding.",
            "Ten heat maps, all alike within a sequence: even columns, and empty ones for padding.",
        ),
        "heads_of_random.png": (
            random,
            "Random inputs: now the heads differ.",
            "Ten heat maps of four queries by six keys, each with its own pattern.",
        ),
    }
    for name, (w, caption, alt) in about.items():
        maps = {f"sequence {n + 1}, head {h + 1}": w[n, h] for n in range(N) for h in range(HEADS)}
        lesson.picture(
            name, lambda path, maps=maps: draw_maps(path, maps, "queries", "keys"), caption, alt
        )


# -- learning -----------------------------------------------------------------------------------------------------

LENGTH, FEATURES = 8, 16


def shifted(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Inputs (n, 8, 24), 16 features and the place as one of 8; targets (n, 8, 16).

    Four features are to come from one place before, four from two before, and so on: a task for four heads.
    """
    x = rng.standard_normal((n, LENGTH, FEATURES)).astype(np.float32)
    parts = [np.roll(part, shift, 1) for shift, part in enumerate(np.split(x, 4, -1), 1)]
    place = np.broadcast_to(np.eye(LENGTH, dtype=np.float32), (n, LENGTH, LENGTH))
    return np.concatenate([x, place], -1), np.concatenate(parts, -1)


class Heads(nn.Module):
    """Four heads, whose values are "split" as usual, or whole for each head and then "summed" or "joined"."""

    def __init__(self, kind: str, generator: np.random.Generator, heads: int = 4) -> None:
        size = FEATURES + LENGTH
        self.kind, self.heads = kind, heads
        self.q_proj, self.k_proj = (
            nn.Linear(size, 8 * heads, generator=generator) for _ in range(2)
        )
        self.v_proj = nn.Linear(size, FEATURES, generator=generator)
        self.out_proj = nn.Linear(
            FEATURES * (heads if kind == "joined" else 1), FEATURES, generator=generator
        )

    def weights(self, x: np.ndarray) -> mg.Tensor:
        q, k = (split_heads(projection(x), self.heads) for projection in (self.q_proj, self.k_proj))
        return attention_weights(q, k)  # (N, h, L, L)

    def forward(self, x: np.ndarray) -> mg.Tensor:
        """(N, L, 16)."""
        A, V = self.weights(x), self.v_proj(x)  # (N, h, L, L), (N, L, 16)
        if self.kind == "split":
            Z = merge_heads(A @ split_heads(V, self.heads))  # (N, L, h · 4)
        elif self.kind == "summed":
            Z = (A @ mg.expand_dims(V, 1)).sum(1)  # (N, L, 16)
        else:
            Z = merge_heads(A @ mg.expand_dims(V, 1))  # (N, L, h · 16)
        return self.out_proj(Z)


def learn(model: Heads, steps: int, seed: int = 0) -> float:
    """Train on `shifted`; the share of the targets' variance that is not explained, on new data."""
    rng = np.random.default_rng(seed)
    optimizer = optim.Adam(model.parameters(), lr=1e-2)
    schedule = optim.Schedule(optimizer, optim.cosine_schedule(steps, warmup=10))
    for _ in range(steps):
        x, y = shifted(64, rng)
        loss = mg.mean((model(x) - y) ** 2)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    x, y = shifted(500, np.random.default_rng(10_000))
    with mg.no_grad():
        return float(((model(x).data - y) ** 2).mean() / y.var())


def heads_differ(model: Heads, x: np.ndarray) -> float:
    """The largest difference between the weights of two heads."""
    A = model.weights(x).data
    return float(abs(A[:, :1] - A[:, 1:]).max())


def alike_at_first(lesson: Lesson) -> None:
    lesson.section('"Alike at first, different after training"')
    lesson.quote(
        "初始时是一样的，学习之后不一样，每个参数学到的东西不同，就不一样了。",
        "At first they are alike; after learning they are not: what each parameter learns is different.",
    )
    lesson.predict(
        "If all heads began with the same weights, would training make them different?",
        "No: the same weights get the same gradients, and so stay the same. That heads differ is the work of their random first weights.",
    )
    rng = np.random.default_rng(8)
    x, _ = shifted(50, rng)
    usual = Heads("split", np.random.default_rng(0))
    alike = Heads("split", np.random.default_rng(0))
    for p, rows in (
        (alike.q_proj, 8),
        (alike.k_proj, 8),
        (alike.v_proj, 4),
    ):  # every head a copy of the first
        p.weight.data[...] = np.tile(p.weight.data[:rows], (4, 1))
        p.bias.data[...] = np.tile(p.bias.data[:rows], 4)
    alike.out_proj.weight.data[...] = np.tile(alike.out_proj.weight.data[:, :4], (1, 4))
    before = heads_differ(usual, x), heads_differ(alike, x)
    learn(usual, 60)
    learn(alike, 60)
    after = heads_differ(usual, x), heads_differ(alike, x)
    lesson.show(
        "weights of two heads differ by at most, before and after training: usual",
        [before[0], after[0]],
        6,
    )
    lesson.show("heads that begin as copies of each other", [before[1], after[1]], 6)
    lesson.erratum(
        "the heads before training",
        "the same at first, different after learning",
        "different from the start, since their first weights are random",
        min(before[0], after[0]) > 0.1 and max(before[1], after[1]) < 1e-3,
        "heads that are truly the same get the same gradients, and never part",
    )


def whole_values(lesson: Lesson) -> None:
    lesson.section("What if the values are not split?")
    lesson.formula(
        r"\sum_h A_h V = \left(\sum_h A_h\right) V",
        "$A_h$ are the weights of head $h$, a row for each query; $V$ are the values, whole.",
    )
    lesson.say(
        """A reader asks: leave the values whole, `num_hiddens` for each head, and add up what the heads make of
        them, or put it side by side. Is that sensible, and what does it do? First by algebra, then on a task that
        needs four heads: each quarter of the features has to come from another place."""
    )
    rng = np.random.default_rng(9)
    x, _ = shifted(5, rng)
    summed = Heads("summed", rng)
    A, V = summed.weights(x).data, summed.v_proj(x).data  # (N, h, L, L), (N, L, 16)
    lesson.fact(
        "added up, the heads are one head",
        np.allclose((A @ V[:, None]).sum(1), A.sum(1) @ V, atol=1e-5),
        "$\\sum_h A_h V = (\\sum_h A_h) V$: one map of weights for all features",
    )
    split, joined = (
        Heads("split", np.random.default_rng(1)),
        Heads("joined", np.random.default_rng(1)),
    )
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
    lesson.fact(
        "side by side, the split form is a special case",
        np.allclose(joined(x).data, split(x).data, atol=1e-5),
        "$W_o$ takes from each head only its own features, and has zeros elsewhere",
    )
    on_a_task(lesson)


def on_a_task(lesson: Lesson) -> None:
    """The three forms, trained on a task for four heads."""
    left, rows = {}, []
    for kind in ("split", "summed", "joined"):
        model = Heads(kind, np.random.default_rng(1))
        left[kind] = learn(model, 300)
        rows.append([kind, f"{model.num_parameters():,}", f"{left[kind]:.1%}"])
    lesson.table(["values", "parameters", "not explained after 300 steps"], rows)
    lesson.fact(
        "added up, it is not sensible: what several heads are for is lost",
        left["summed"] > 0.7 > 7 * left["split"],
        f"{left['summed']:.0%} of the variance is not explained, {left['split']:.1%} with split values. One map $w$ "
        "explains $w_i^2 / \\sum_j w_j^2$ of a part that comes from place $i$: 1 in sum over the four, a quarter on average",
    )
    lesson.fact(
        "side by side, it works and costs more",
        left["joined"] < 0.1,
        f"{left['joined']:.1%} not explained; the values and $W_o$ take $h$ times the work, $W_o$ $h$ times the parameters",
    )


def main(argv: Sequence[str] | None = None) -> int:
    lesson = Lesson("07_multi_head_attention", __doc__ or "", argv)
    lesson.source(
        "Multi-head attention (多头注意力)",
        "a discussion among readers of a course",
        "004_36d00249ebd8060a.txt",
        note="It discusses the chapter [Multi-head attention](https://zh.d2l.ai/chapter_attention-mechanisms/multihead-attention.html) of Dive into Deep Learning.",
    )
    the_sizes(lesson)
    additive_and_dot_product(lesson)
    the_exercise(lesson)
    valid_lens(lesson)
    one_wide_projection(lesson)
    what_a_head_sees(lesson)
    alike_at_first(lesson)
    whole_values(lesson)
    how_many(lesson)
    lesson.exercise(
        "A layer has vectors of 512 numbers and 8 heads. How many parameters have $W_q$, $W_k$, $W_v$ and $W_o$ without biases? And with 16 heads?",
        "$4 \\cdot 512^2$ = 1,048,576, and the same with 16: more heads are narrower, not more numerous in parameters.",
    )
    lesson.exercise(
        "Start two heads with the same weights. After a thousand steps of training, how far apart are they?",
        "Not at all, up to rounding: the same weights get the same gradients.",
    )
    return lesson.end()


if __name__ == "__main__":
    raise SystemExit(main())
