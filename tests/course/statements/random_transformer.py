"""Statements of "The Random Transformer"."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from random_transformer import (
    CONFIG,
    INDEX,
    VECTORS,
    VOCABULARY,
    WK1,
    WK2,
    WQ1,
    WQ2,
    WV1,
    WV2,
    Array,
    W,
    at_text_size,
    decoder_layer,
    encoder_layer,
    exact_matches,
    generate,
    randn,
    random_decoder_block,
    random_encoder_block,
    random_transformer,
    train,
    two_heads_of_3,
)  # fmt: skip
from support.statements import Statements, gap, same

import minigrad as mg
import nn

HELLO, WORLD = 0, 1  # the rows of every matrix
PRINTED_Z = np.array([
    [11.46394285, -13.18016471, -11.59340253, -17.04387829],
    [11.62608573, -13.47454936, -11.87126395, -17.4926367],
])  # fmt: skip


# -- encoder, sections 1 to 4 ----------------------------------------------------------------------


def embedding(text: Statements) -> Array:
    text.section("Encoder 1. Text embedding")
    E = np.array([[1, 2, 3, 4], [2, 3, 4, 5]])  # (L, d_model): a row for each word
    lookup = nn.Embedding(2, 4, dtype=float)
    lookup.weight.data[...] = E
    text.fact(
        "one matrix holds the vectors of all words, 4 numbers each instead of 512",
        np.array_equal(lookup(np.array([HELLO, WORLD])).data, E)
        and nn.TransformerConfig().d_model == 512,
    )

    return E


def positions(text: Statements) -> tuple[Array, Array]:
    text.section("Encoder 2. Positional encoding")
    i = np.arange(4)
    text_angle = np.arange(2)[:, None] / 10000 ** (2 * i / 4)  # (L, d_model)
    text_table = np.where(i % 2 == 0, np.sin(text_angle), np.cos(text_angle))
    table = nn.sinusoidal_table(2, 4)  # (L, d_model)
    text.numbers("Hello, at position 0: $\\sin 0$ and $\\cos 0$ in turn", table[0], [0, 1, 0, 1])
    text.numbers("World: $\\mathrm{PE}(1, 0) = \\sin 1$", table[1, 0], 0.84, 2)
    text.numbers(
        "$10000^{0.5} = 100$, so the angle of $\\mathrm{PE}(1, 1)$ is 0.01",
        text_angle[1, 1],
        0.01,
    )
    text.erratum(
        "$\\mathrm{PE}(1, 1)$, by the text's own rule",
        "cos(0.01) ≈ 0.99",
        f"{np.cos(0.01):.6f}",
        round(text_table[1, 1], 2) == 1 and math.floor(text_table[1, 1] * 100) == 99,
        "cut off, not rounded",
    )
    text.numbers(
        "$\\mathrm{PE}(1, 2) = \\sin(1/10000^1) \\approx 0$, by the text's rule",
        text_table[1, 2],
        0,
        2,
    )
    text.numbers(
        "$\\mathrm{PE}(1, 3) = \\cos(1/10000^{1.5}) \\approx 1$, by the text's rule",
        text_table[1, 3],
        1,
        2,
    )
    text.erratum(
        "the row of World",
        "[0.84, 0.99, 0, 1]",
        np.array2string(table[1], precision=4),
        same(table[1], [np.sin(1), np.cos(1), np.sin(0.01), np.cos(0.01)]),
        "columns 0 and 1 turn at frequency 1, columns 2 and 3 at 1/100: i counts pairs",
    )
    return text_table, table


def each_place_differs(text: Statements, E: Array, table: Array) -> None:
    long = nn.sinusoidal_table(512, 512)
    gaps = np.linalg.norm(long[:, None, :8] - long[None, :, :8], axis=-1) + 9 * np.eye(512)
    text.fact(
        "every position gets numbers of its own",
        gaps.min() > 1e-3,
        f"among 512 positions the closest two are {gaps.min():.3f} apart in the first 8 columns alone",
    )
    text.fact(
        "the functions are waves that repeat",
        np.abs(long[44:] - long[:-44])[:, :2].max() < 0.02,
        "the first two columns come back after 44 ≈ 7 · 2π positions",
    )
    text.fact("the encoding is as wide as the embedding", table.shape == E.shape, f"both {E.shape}")


def added(text: Statements, E: Array, text_table: Array, table: Array) -> Array:
    text.section("Encoder 3. The two are added")
    x = np.array([[1, 3, 3, 5], [2.84, 3.99, 4, 6]])  # (L, d_model)
    cut = np.floor(100 * text_table) / 100  # the text cuts cos(0.01) to 0.99,
    cut[1, 2:] = [0, 1]  # and calls sin(1e-4) about 0, and cos(1e-6) about 1
    text.numbers("E and the text's positions, cut to two digits, are its encoder input", E + cut, x)
    exact = nn.SinusoidalPositions(2, 4, dtype=float)(E[None]).data[0]  # (L, d_model)
    text.erratum(
        "World, with the paper's positions",
        "[2.84, 3.99, 4, 6]",
        np.array2string(exact[1], precision=4),
        same(exact - E, table),
        "what `nn.SinusoidalPositions` adds; from here on we follow the text",
    )
    return x


def head(x: Array, WQ: Array, WK: Array, WV: Array, scale: float) -> tuple[Array, Array]:
    """Return the output and the weights of the attention function of the text."""
    Q, K, V = x @ WQ, x @ WK, x @ WV  # (L, d_k) each
    weights = mg.softmax(Q @ K.T * scale).data  # (L, L)
    return weights @ V, weights  # (L, d_v)


def text_attention() -> nn.ExtendedAttention:
    """Return a layer of `nn` with the matrices of the text."""
    attention = two_heads_of_3()
    for name, both in ("q_proj", (WQ1, WQ2)), ("k_proj", (WK1, WK2)), ("v_proj", (WV1, WV2)):
        getattr(attention, name).weight.data[...] = np.hstack(
            both
        ).T  # Linear keeps (out, in): (6, 4)
    attention.out_proj.weight.data[...] = W.T  # (4, 6)
    return attention


def self_attention(text: Statements, x: Array) -> Array:
    text.section("Encoder 4.1, 4.2. The matrices K, V and Q of the first head")
    K1, V1, Q1 = x @ WK1, x @ WV1, x @ WQ1  # (L, 3) each: 4 dimensions become 3
    text.numbers("`K1 = E @ WK1`", K1, [[4, 8, 4], [6.84, 9.99, 6.84]])
    text.numbers(
        "`V1 = E @ WV1` (once misprinted as a second K)", V1, [[6, 6, 4], [7.99, 8.84, 6.84]]
    )
    text.numbers("`Q1 = E @ WQ1`", Q1, [[8, 3, 3], [9.99, 3.99, 4]])
    text.fact(
        "each head has $K$, $V$ and $Q$ matrices of its own, $4 \\times 3$",
        same(text_attention().k_proj(x), np.hstack([K1, x @ WK2])),
        "in `nn.MultiHeadAttention` the heads' matrices stand side by side in one",
    )

    text.section("Encoder 4.3.1. Scores: each query times each key")
    scores = Q1 @ K1.T  # (L, L)
    printed = [[68, 105.21], [87.88, 135.5517]]
    text.numbers(r"Hello's scores, $q_1 \cdot k_1$ and $q_1 \cdot k_2$", K1 @ Q1[0], printed[0])
    text.numbers(r"$Q_1 K_1^\top$", scores, printed)

    text.section(r"Encoder 4.3.2. Divided by $\sqrt{d}$")
    scaled = scores / np.sqrt(3)  # (L, L)
    text.numbers(
        r"the scores, divided by $\sqrt{3}$",
        scaled,
        [[39.2598183, 60.74302182], [50.73754166, 78.26081048]],
    )
    rng = np.random.default_rng(0)
    spread = {d: np.vecdot(*rng.standard_normal((2, 4000, d))).std() for d in (3, 64, 512)}
    text.fact(
        "dot products grow with $d$",
        all(abs(s / d**0.5 - 1) < 0.1 for d, s in spread.items()),
        f"of random vectors they spread by {', '.join(f'{s:.1f} at $d$ = {d}' for d, s in spread.items())}: as $\\sqrt{{d}}$",
    )

    text.section("Encoder 4.3.3. Softmax")
    powers = np.exp([0, 1, 2])
    text.fact(
        "the values are positive and add up to 1",
        same(mg.softmax(np.array([1.0, 2.0, 3.0])), powers / powers.sum()),
        "1, $e$ and $e^2$, divided by their sum",
    )
    _, weights1 = head(x, WQ1, WK1, WV1, 1 / np.sqrt(3))
    text.numbers("Hello's weight on Hello is 4.67695573e-10", weights1[0, 0] * 1e10, 4.67695573)
    text.numbers("World's weight on Hello is 1.11377182e-12", weights1[1, 0] * 1e12, 1.11377182)
    text.numbers("both weights on World are 1", weights1[:, 1], [1, 1])
    return weighted_values(text, x, V1, scaled)


def weighted_values(text: Statements, x: Array, V1: Array, scaled: Array) -> Array:
    text.section("Encoder 4.3.4. The values, weighted")
    attention1, weights1 = head(x, WQ1, WK1, WV1, 1 / np.sqrt(3))
    rows = [[7.99, 8.84, 6.84]] * 2
    text.numbers("`attention1`, step by step", mg.softmax(scaled) @ V1, rows)
    text.numbers(
        r"`attention1`, in one formula: $\softmax(QK^\top / \sqrt{d})\,V$", attention1, rows
    )
    attention2, weights2 = head(x, WQ2, WK2, WV2, 1 / np.sqrt(3))
    text.numbers("`attention2`", attention2, [[8.84, 3.99, 7.99]] * 2)
    text.numbers(
        "in the second head, Hello's weight on Hello is 1.10613872e-14",
        weights2[0, 0] * 1e14,
        1.10613872,
    )
    text.numbers("and World's weight on Hello is 4.95934510e-20", weights2[1, 0] * 1e20, 4.95934510)
    text.fact(
        "the two rows are equal because softmax made the weights 0 and 1",
        same(attention1, V1[WORLD], 1e-8),
        "both are the value of World",
    )
    text.fact(
        "softmax enlarges differences",
        same(weights1[:, 0] / weights1[:, 1] / np.exp(scaled[:, 0] - scaled[:, 1]), 1),
        "a difference of scores becomes a ratio, $e$ to that difference",
    )
    _, unscaled = head(x, WQ1, WK1, WV1, 1.0)
    text.erratum(
        "what comes of scores that are not divided by $\\sqrt{d}$",
        "large values after the softmax",
        f"weights nearer to 0 and 1, the least {unscaled[0, 0]:.1e} instead of {weights1[0, 0]:.1e}",
        unscaled[0, 0] < 1e-6 * weights1[0, 0] and unscaled.max() <= 1,
        "no weight is ever above 1",
    )
    smaller, _ = head(x / 10, WQ1, WK1, WV1, 1 / np.sqrt(3))
    apart = gap(*smaller)
    text.fact(
        "the numbers of $E$ may be too large",
        apart > 0.001,
        f"for $E / 10$ the two rows differ, by up to {apart:.4f} where they are {smaller.mean():.2f} on average",
    )
    twice = (x @ np.tile(WQ1, 2)) @ (x @ np.tile(WK1, 2)).T / np.sqrt(6)  # (L, L)
    text.erratum(
        "the second cause that it names, few dimensions (向量维度较小)",
        "few dimensions make the scores too far apart",
        "more of them would make it worse",
        same(twice, scaled * np.sqrt(2)),
        r"with every column of $Q$ and $K$ twice, the scores divided by $\sqrt{6}$ are $\sqrt{2}$ times larger still: "
        r"positive products add up faster than $\sqrt{d}$",
    )
    return joined_heads(text, x)


def joined_heads(text: Statements, x: Array) -> Array:
    at_30, at_root_3 = (
        np.hstack([head(x, *h, scale)[0] for h in ((WQ1, WK1, WV1), (WQ2, WK2, WV2))])
        for scale in (1 / 30, 1 / np.sqrt(3))
    )  # (L, 2 · d_v) each
    printed = np.array([
        [7.54348784, 8.20276657, 6.20276657, 8.45589591, 3.85610456, 7.72085664],
        [7.65266185, 8.35857269, 6.35857269, 8.63740591, 3.91937741, 7.84804146],
    ])  # fmt: skip
    text.numbers("`attention1`, divided by 30", at_30[:, :3], printed[:, :3])
    text.numbers("`attention2`, divided by 30", at_30[:, 3:], printed[:, 3:])

    text.section("Encoder 4.3.5. The heads side by side, and projected")
    text.numbers(
        'the concatenation (in our copy, "3.9> 1937741" is 3.91937741 with a stray character)',
        at_30,
        printed,
    )
    Z = at_30 @ W  # (L, d_model)
    text.numbers(r"$Z$ = the concatenation times $W$", Z, PRINTED_Z)
    text.fact("$Z$ is as wide as the embedding", Z.shape == x.shape, f"{Z.shape}")
    attention = text_attention()
    q, k, v = (
        mg.split_heads(projection(x[None]), num_heads=2)
        for projection in (attention.q_proj, attention.k_proj, attention.v_proj)
    )  # (1, 2, L, 3)
    heads = mg.merge_heads(mg.scaled_dot_product_attention(q, k, v, scale=1 / 30))
    text.fact(
        "the library's attention gives the same $Z$",
        same(attention.out_proj(heads)[0], Z) and same(attention(x[None])[0], at_root_3 @ W),
        "with the text's weights in it, at 30 and at $\\sqrt{3}$",
    )
    return Z


# -- encoder, section 5 ----------------------------------------------------------------------------


def feed_forward(text: Statements, x: Array, Z: Array) -> None:
    text.section("Encoder 5.1. The feed-forward layer")
    ffn = randn(nn.FeedForward(4, 8, dtype=float), np.random.default_rng(0))
    W1, b1, W2, b2 = (p.data for p in ffn.parameters())  # (8, 4), (8,), (4, 8), (4,)
    hidden = np.maximum(Z @ W1.T + b1, 0)  # (L, 8): from 4 dimensions to 8 ...
    output = hidden @ W2.T + b2  # (L, 4): ... and back to 4
    text.fact("`nn.FeedForward` is this formula", same(ffn(Z), output))
    text.fact(
        "4 dimensions become 8, and 4 again; in the paper 512, 2048, 512",
        hidden.shape == (2, 8) and output.shape == (2, 4) and nn.TransformerConfig().d_ff == 2048,
    )
    relu = mg.relu(np.array([-2.0, -0.5, 0.0, 3.0])).data
    text.fact(
        "ReLU is 0 for negative numbers, and $x$ for others", np.array_equal(relu, [0, 0, 0, 3])
    )
    text.fact(
        "it makes the layer non-linear",
        not same(ffn(Z) + ffn(-Z), 2 * ffn(0 * Z), 0.01),
    )


def text_softmax(scores: Any) -> Any:
    """Compute softmax as the text does: e to the power of 710 is too large for float64."""
    e = mg.exp(scores)
    return e / e.sum(-1, keepdims=True)


def bare_block(x: Any, rng: np.random.Generator, softmax: Callable[[Any], Any]) -> Any:
    """Compute the first random_encoder_block of the text, without residual connection and norm."""
    randn = rng.standard_normal
    heads = []
    for _ in range(2):
        Q, K, V = (x @ randn((4, 3)) for _ in range(3))  # (L, 3) each
        heads.append(softmax(Q @ K.T / math.sqrt(3)) @ V)  # (L, 3)
    Z = mg.concatenate(heads, axis=1) @ randn((6, 4))  # (L, 4)
    return mg.relu(Z @ randn((4, 8)) + randn(8)) @ randn((8, 4)) + randn(4)  # (L, 4)


def bare_encoder(x: Any, seed: int, softmax: Callable[[Any], Any], n: int = 6) -> list[Any]:
    """Return the output of each of n bare blocks."""
    rng = np.random.default_rng(seed)
    outputs = [x]
    for _ in range(n):
        outputs.append(bare_block(outputs[-1], rng, softmax))
    return outputs[1:]


def largest(x: Array, softmax: Callable[[Any], Any], runs: int = 100) -> Array:
    """Return the largest value after each bare block (runs, blocks)."""
    return np.array(
        [[np.abs(h.data).max() for h in bare_encoder(x, seed, softmax)] for seed in range(runs)]
    )


def explosion(text: Statements, x: mg.Tensor) -> Array:
    text.section("Encoder 5.2. Six random blocks: NaN")
    with np.errstate(all="ignore"):
        runs = largest(x, text_softmax)
    first = (~np.isfinite(runs)).argmax(1) + 1  # the block in which it happens
    text.fact(
        "six such blocks give NaN",
        np.isnan(runs[:, -1]).all(),
        f"in 100 of 100 draws; in block 2 already in {(first == 2).sum()} of them",
    )
    seed = next(s for s in range(100) if _blame(x, s).startswith("exp"))
    blame = _blame(x, seed)
    text.fact(
        "the overflow is in exp, inside the softmax",
        "made Inf" in blame and "mg.exp(scores)" in blame,
        f'detect_anomaly(): "{blame.split(";")[0]}", at the line "{blame.split(": ")[-1]}"',
    )
    printed = np.array([-71.76537515, -131.43316885, 13.2938131, -4.26831998])
    typical = (
        printed @ printed
    )  # scores q·k/√3 with q = x W, k = x W': standard deviation |x|² for W of N(0, 1)
    text.fact(
        "the block that the text prints was bound to do so",
        typical > 30 * np.log(np.finfo(float).max),
        f"its first row would give scores of about ±{typical:,.0f}, and exp ends at {np.log(np.finfo(float).max):.0f}",
    )
    stable = largest(x, mg.softmax)
    growth = np.median(stable[:, -1]) ** (1 / 6)
    text.fact(
        "the values become too large from block to block",
        np.isfinite(stable).all() and growth > 5,
        f"with a stable softmax nothing is NaN, but after six blocks the largest is {np.median(stable[:, -1]):.0e} "
        f"(median), {growth:.0f} times as much a block",
    )
    return np.median(stable, 0)


def remedies(text: Statements, x: mg.Tensor, stable: Array) -> None:
    text.section("Encoder 5.3. Residual connections and layer norm")
    nudge = 1e-6 * np.ones_like(x.data)
    deep = lambda x, seed: bare_encoder(x, seed, mg.softmax)[-1]
    slope = lambda seed: np.linalg.norm(mg.grad(lambda x: deep(x, seed).sum())(x).data)
    change = lambda seed: (
        np.linalg.norm((deep(x + nudge, seed) - deep(x, seed)).data) / np.linalg.norm(nudge)
    )
    slopes, changes = ([measure(seed) for seed in range(30)] for measure in (slope, change))
    text.erratum(
        "what explodes",
        "the gradient",
        "the values of the forward pass; the text takes no gradient",
        np.median(slopes) > 1e4,
        f"though taken, it is as large: its norm at the input is {np.median(slopes):.0e} (median of 30)",
    )
    text.fact(
        "small changes of the input are amplified by later layers",
        np.median(changes) > 1e4,
        f"{np.median(changes):.0e} times (median of 30)",
    )


def _blame(x: Any, seed: int) -> str:
    """Return the operation that makes the first Inf or NaN, and its line."""
    try:
        with mg.detect_anomaly():
            bare_encoder(x, seed, text_softmax)
    except mg.AnomalyError as error:
        return str(error)
    return ""


def cured(x: Array, runs: int = 20, n: int = 6) -> Array:
    """Return the largest value after each of n blocks with residual connections and norms (runs, n)."""
    h, rngs = [x[None]] * runs, [np.random.default_rng(seed) for seed in range(runs)]
    result = []
    for _ in range(n):
        h = [random_encoder_block(*pair) for pair in zip(h, rngs)]  # (1, L, d_model) each
        result.append(np.abs(h).max((1, 2, 3)))
    return np.transpose(result)


def text_layer_norm(x: Array, epsilon: float = 1e-6) -> Array:
    """Normalise as the text does, with ε added to the standard deviation, not to the variance."""
    return (x - x.mean(-1, keepdims=True)) / (x.std(-1, keepdims=True) + epsilon)


def is_normal(rows: Any) -> bool:
    """Return whether each row has mean 0 and standard deviation 1, up to the printed digits and ε."""
    rows = np.asarray(rows)
    return bool(np.abs(rows.mean(-1)).max() < 2e-8 and gap(rows.std(-1), 1) < 1e-5)


def residual(text: Statements, x: Array) -> None:
    rng = np.random.default_rng(0)
    ffn = [nn.FeedForward(4, 8, dtype=float, generator=rng) for _ in range(6)]
    slope = lambda step: np.linalg.norm(
        mg.grad(lambda x: functools.reduce(step, ffn, x).sum())(x).data
    )
    plain, added = slope(lambda h, f: f(h)), slope(lambda h, f: h + f(h))
    text.fact(
        "$x + \\mathrm{Layer}(x)$ helps against gradients that vanish",
        added > 100 * plain,
        f"through six feed-forward layers, as the library draws their first weights, the gradient is {plain:.0e}, with residuals "
        f"{added:.1f}: the derivative of $x$ itself is 1",
    )


def the_norm(text: Statements, x: Array, Z: Array) -> None:
    total = x + Z  # (L, d_model)
    text.numbers("mean of each row of $E + Z$", total.mean(-1), [-4.58837567, -3.59559107])
    text.numbers(
        "standard deviation of each row of $E + Z$", total.std(-1), [9.92061529, 10.50653019]
    )
    printed = [
        [1.71887693, -0.56365339, -0.40370747, -0.75151608],
        [1.71909039, -0.56050453, -0.40695381, -0.75163205],
    ]
    text.numbers("`layer_norm(Z + E)`, by the text's code", text_layer_norm(total), printed)
    norm = nn.LayerNorm(4, eps=1e-6, dtype=float)
    exact = norm(total).data
    text.numbers("and by `nn.LayerNorm`", exact, printed, 6)
    text.erratum(
        "its last digits",
        f"{printed[0][0]:.8f}",
        f"{exact[0, 0]:.8f} by its formula",
        same(
            exact,
            (total - total.mean(-1, keepdims=True)) / np.sqrt(total.var(-1, keepdims=True) + 1e-6),
        ),
        "the formula divides by $\\sqrt{\\sigma^2 + \\epsilon}$, as `nn.LayerNorm`; the text's code by $\\sigma + \\epsilon$",
    )
    text.fact(
        "each row has mean 0 and standard deviation 1", is_normal(printed) and is_normal(exact)
    )
    text.fact(
        "$\\epsilon$ serves where the standard deviation is 0",
        gap(norm(np.full((1, 4), 7.0)), 0) == 0,
        "no 0 / 0",
    )
    other = total.copy()
    other[WORLD] *= 100
    alone = gap(norm(other)[HELLO], exact[HELLO]) == 0
    batch = nn.BatchNorm1d(4, dtype=float)
    mixed = same(batch(other)[HELLO], batch(total)[HELLO])
    text.fact(
        "a row does not depend on others in the batch, as it does in batch norm (text 3)",
        alone and not mixed,
    )
    norm.weight.data[...], norm.bias.data[...] = total[HELLO].std(), total[HELLO].mean()
    text.fact(
        "$\\gamma$ and $\\beta$ can undo it, so that nothing is lost",
        same(norm(total)[HELLO], total[HELLO], 1e-6),
        "$\\gamma = \\sigma$ and $\\beta = \\mu$ give the row back",
    )


def whole_block(text: Statements, x: Array) -> None:
    layer = randn(encoder_layer(), np.random.default_rng(0))
    h = text_layer_norm(x + layer.self_attention(x[None]).data[0])  # LayerNorm(x + Attention(x))
    h = text_layer_norm(h + layer.feed_forward(h).data)  # LayerNorm(Z + FFN(Z))
    text.fact(
        "a block is $\\mathrm{LayerNorm}(Z + \\mathrm{FFN}(Z))$ of $Z = \\mathrm{LayerNorm}(x + \\mathrm{Attention}(x))$",
        same(layer(x[None])[0], h, 1e-05),
        "`nn.TransformerEncoderLayer` computes this",
    )
    sizes = cured(x)
    text.fact(
        "now six blocks give no NaN, and values that make sense",
        np.isfinite(sizes).all() and sizes.max() < 2,
        f"the largest of 20 draws is {sizes[:, -1].max():.2f}; four numbers of mean 0 and variance 1 cannot pass $\\sqrt{{3}}$",
    )
    text_rows = [
        [-0.335849, -1.44504571, 1.21698183, 0.56391289],
        [-0.33583947, -1.44504861, 1.21698606, 0.56390202],
    ]
    text.fact("the text's result is such a matrix", is_normal(text_rows))

    gaps = []
    for seed, draw in itertools.product(range(20), (randn, lambda block, rng: block)):
        rng, h = np.random.default_rng(seed), x[None]
        for block in [encoder_layer(rng) for _ in range(6)]:
            h = draw(block, rng)(h).data
        gaps.append(gap(*h[0]))
    unit, library = np.median(np.reshape(gaps, (20, 2)), 0)
    text.erratum(
        "these two rows",
        "values that make sense",
        f"one row twice, but for {gap(*text_rows):.0e}",
        gap(*text_rows) < 2e-5 and unit < 1e-4 < 1e-3 < library,
        f"such large weights make both words attend to one; in 20 draws the rows "
        f"differ by {unit:.0e} (median), with weights as the library draws them by {library:.2f}",
    )


# -- decoder ---------------------------------------------------------------------------------------


E_SOS = np.array([[1, 1, 0, 1]])  # (1, d_model), with its position
Z_SOS = np.array(
    [[2.19334924, 10.61851198, -4.50089666, -2.76366551]]
)  # of the text's masked self-attention
NORMAL = np.array([[0.17236212, 1.54684892, -1.0828824, -0.63632864]])  # and its layer_norm(Z + E)
MEMORY = np.array(
    [[[-1.5, 1.0, -0.8, 1.5], [1.0, -1.0, -0.5, 1.0]]]
)  # (1, L_s, d_model), the encoder's output
CROSS = [
    -0.44406723,
    1.6552893,
    -0.19984632,
    -1.01137575,
]  # the text's Z_encoder_decoder, normalised


def decoder_self_attention(text: Statements, words: Array) -> None:
    text.section("Decoder 1 to 3. SOS, embedded, with its position")
    position = nn.sinusoidal_table(1, 4)
    text.numbers("SOS is at position 0, like Hello", position, [[0, 1, 0, 1]])

    text.section("Decoder 4, 5. Self-attention, then residual connection and norm")
    attention = randn(two_heads_of_3(), np.random.default_rng(0))
    Z, weights = nn.with_weights(
        attention, E_SOS[None].astype(float)
    )  # (1, 1, d_model), (1, h, 1, 1)
    text.fact(
        "the same attention serves, on one word",
        Z.shape == (1, 1, 4) and (weights == 1).all(),
        "which attends to itself with weight 1 in each head",
    )
    text.numbers(
        "`layer_norm(Z_self_attention + E)`, from the $Z$ that the text prints",
        text_layer_norm(Z_SOS + E_SOS),
        NORMAL,
    )
    other = words.copy()
    other[:, 2] += 1  # the last of three words is another one
    masked, other_masked = (attention(h, mask=nn.causal_mask(3)).data for h in (words, other))
    free, other_free = (attention(h).data for h in (words, other))
    text.fact(
        "under the mask no word sees a later one",
        np.array_equal(masked[:, :2], other_masked[:, :2])
        and not same(free[:, :2], other_free[:, :2], 0.01),
        "another third word changes nothing at the first two; without the mask it does (the paper's section 3.2.3)",
    )
    steps = [attention(words[:, :n]).data[:, -1] for n in (1, 2, 3)]
    text.fact(
        "in inference things are simpler: the mask can be left out",
        same(masked[0], np.concatenate(steps)),
        "what is not yet generated is not there; training sees all of a sentence at once, and needs the mask",
    )


def decoder_cross_attention(text: Statements, words: Array) -> None:
    text.section("Decoder 6, 7. Encoder-decoder attention")
    cross = randn(two_heads_of_3(), np.random.default_rng(1))
    out, weights = nn.with_weights(cross, NORMAL[None], MEMORY)  # (1, 1, d_model), (1, h, 1, L_s)
    sides = (cross.q_proj, NORMAL), (cross.k_proj, MEMORY[0]), (cross.v_proj, MEMORY[0])
    Q, K, V = (np.split(z @ p.weight.data.T, 2, axis=1) for p, z in sides)  # (L, 3) for each head
    heads = [mg.softmax(q @ k.T / np.sqrt(3)).data @ v for q, k, v in zip(Q, K, V)]  # (L_t, 3) each
    text.fact(
        "$Q$ comes from the decoder, $K$ and $V$ from the encoder's output",
        same(np.hstack(heads) @ cross.out_proj.weight.T, out[0]),
        "all the rest is as before",
    )
    own = two_heads_of_3()
    own.load_state_dict(cross.state_dict())
    text.erratum(
        "the attentions of a decoder block",
        "two self-attentions",
        "one self-attention and one cross-attention",
        weights.shape == (1, 2, 1, 2) and same(cross(words, words), own(words)),
        "its weights are (words of the target, words of the source); it is self-attention only where both are one",
    )
    changed = [MEMORY + np.eye(2)[i][:, None] for i in (0, 1)]
    text.fact(
        "each position of the decoder gets information from every position of the input",
        all(gap(cross(NORMAL[None], other), out) > 0.01 for other in changed),
        "a change of either source word changes the output",
    )


def what_was_added(text: Statements) -> None:
    ed = [1.57651431, 4.92489307, -0.08644448, -0.46776051]
    tried = [
        text_layer_norm(np.array(ed) + z)
        for z in (*PRINTED_Z, *Z_SOS, *NORMAL, *E_SOS, [0, 0, 0, 0])
    ]
    text.fact(
        "`Z_encoder_decoder` after residual connection and norm is normalised", is_normal([CROSS])
    )
    closest = min(gap(t, CROSS) for t in tried)
    text.fact(
        "what the text's code adds in this step, $Z$, is the encoder's matrix of two rows, and its result has one",
        closest > 0.1,
        "by the architecture it should be `Z_self_attention`, one row; but neither that nor any other vector that the text "
        f"prints, added here, gives its result (the closest is {closest:.1f} away), so what was added is not known",
    )


def decoder_feed_forward(text: Statements) -> None:
    text.section("Decoder 8. Feed-forward layer")
    output = np.array([[-0.97650182, 0.81470137, -2.79122044, -3.39192873]])
    text.erratum(
        "the end of this step",
        "residual connection and norm",
        "the residual connection alone",
        not is_normal(output),
        f"the row has mean {output.mean():.2f}; `decoder_block` below does normalise",
    )


def six_decoder_blocks(text: Statements, words: Array) -> None:
    text.section("Decoder 9. Six random blocks")
    rng = np.random.default_rng(0)
    h = E_SOS[None].astype(float)
    for _ in range(6):
        h = random_decoder_block(h, MEMORY, rng)  # (1, 1, d_model)
    text.fact(
        "six decoder blocks give a normalised row, as the text's is",
        is_normal(h[0]) and is_normal([[0.71866458, -1.72279956, 0.57735876, 0.42677623]]),
    )
    block = randn(decoder_layer(), rng)
    x = text_layer_norm(
        words[0] + block.self_attention(words, mask=nn.causal_mask(3)).data[0]
    )  # 1, 2
    x = text_layer_norm(x + block.cross_attention(x[None], MEMORY).data[0])  # 3, 4
    x = text_layer_norm(x + block.feed_forward(x).data)  # 5, 6
    text.fact(
        "a decoder block is three layers, each with residual connection and norm",
        same(block(words, MEMORY)[0], x, 1e-05),
        "`nn.TransformerDecoderLayer` computes these six steps",
    )


# -- generating ------------------------------------------------------------------------------------


def one_step(text: Statements) -> None:
    text.section("Generating 1, 2. From the decoder's output to probabilities")
    rng = np.random.default_rng(0)
    linear = randn(nn.Linear(4, 10, dtype=float), rng)
    x = np.array([[1.0, 0, 1, 0]])  # (1, d_model)
    logits = linear(x).data  # (1, vocab)
    text.fact(
        "the linear layer makes a number for each of the ten words",
        same(logits, linear.weight[:, 0] + linear.weight[:, 2] + linear.bias),
        "its weight is 10 × 4; for [1, 0, 1, 0] the sum of two of its columns, and the bias",
    )
    logits = np.array([-0.39929948, 0.96345013, 2.77090264, 0.25651866, -0.84738762,
                       -1.67834992, -0.29583529, -3.55515281, 2.97453801, -1.10682376])  # fmt: skip
    printed = [0.01602618, 0.06261303, 0.38162024, 0.03087794, 0.0102383,
               0.00446011, 0.01777314, 0.00068275, 0.46780959, 0.00789871]  # fmt: skip
    text.erratum(
        "what the linear layer gives",
        "probabilities",
        "logits",
        logits.min() < 0,
        f"some are negative, and they add up to {logits.sum():.2f}; the text says so one step later",
    )
    probs = mg.softmax(logits).data  # (vocab,)
    text.numbers("the softmax of the logits, all ten", probs, printed)
    text.fact("the likeliest next word is hola", VOCABULARY[probs.argmax()] == "hola")


def generate_as_printed(
    words: Sequence[str], seed: int, max_iters: int = 10
) -> tuple[str, list[float]]:
    """Generate as the text does: no positions, new weights in each step, the last word as the sequence."""
    rng = np.random.default_rng(seed)
    memory = VECTORS[[INDEX[word] for word in words]][None]  # (1, L_s, d_model)
    for _ in range(6):
        memory = random_encoder_block(memory, rng)
    linear = randn(nn.Linear(4, 10, dtype=float), rng)
    output, found = ["SOS"], []
    for _ in range(max_iters):
        h = VECTORS[[INDEX[output[-1]]]][None]  # (1, 1, d_model)
        for _ in range(6):
            h = random_decoder_block(h, memory, rng)
        probs = mg.softmax(linear(h[0])).data[0]  # (vocab,)
        output.append(VOCABULARY[probs.argmax()])
        found.append(float(probs.max()))
        if output[-1] == "EOS":
            break
    return " ".join(output), found


def random_generation(text: Statements) -> None:
    text.section("Generating 3. A random Transformer")
    memory = [
        [-0.15606365, 0.90444064, 0.82531037, -1.57368737],
        [-0.15606217, 0.90443936, 0.82531082, -1.57368802],
    ]
    text.fact(
        "the encoder's output is normalised",
        is_normal(memory),
        f"and again its two rows are almost one: {gap(*memory):.0e} apart",
    )
    runs = [generate_as_printed(["hello", "world"], seed) for seed in range(12)]
    text.fact(
        "random weights give no good translation",
        not any(output == "SOS hola mundo EOS" for output, _ in runs),
        "12 draws; yet the likeliest of ten words always has at least 0.1",
    )
    text.erratum(
        "why 'SOS how a c' ends",
        "EOS, or 10 words",
        "neither",
        all(output.endswith("EOS") or len(found) == 10 for output, found in runs),
        "the code as printed goes on to EOS or to ten words, as 12 of 12 draws here; so this was a smaller max_iters",
    )


def trained_generation(text: Statements) -> None:
    text.section("The same model, trained")
    pairs = [(["hello", "world"], ["hola", "mundo"]), (["hello"], ["hola"]), (["world"], ["mundo"])]
    stuck = random_transformer(3)
    stuck_losses = train(stuck, pairs, 200)
    rng = np.random.default_rng(0)
    model = at_text_size(nn.Transformer(CONFIG, rng), rng)
    losses = train(model, pairs, 200)
    text.fact(
        "from the text's random weights it does not learn",
        stuck_losses[-1] > 0.5 and not exact_matches(stuck, pairs).any(),
        f"loss {stuck_losses[0]:.2f} → {stuck_losses[-1]:.2f}: all positions look the same, as seen above",
    )
    text.fact(
        "with good training it learns",
        losses[-1] < 0.05 and exact_matches(model, pairs).all(),
        f"loss {losses[0]:.2f} → {losses[-1]:.3f} in 200 steps of Adam",
    )
    calls: list[Any] = []
    for part in (model.encoder, model.decoder):
        part.register_forward_pre_hook(lambda module, _: calls.append(module))
    after = generate(model, ["hello", "world"])
    text.fact(
        "SOS → hola → mundo → EOS, and then it stops",
        [word for word, _ in after] == ["hola", "mundo", "EOS"],
    )
    text.fact(
        "the encoder runs once, the decoder once for each word",
        calls == [model.encoder, *[model.decoder] * 3],
        "1 run and 3",
    )


def a_rule(text: Statements) -> None:
    spanish = {"hello": "hola", "world": "mundo", "?": "?"}
    sentences = [list(s) for n in range(1, 6) for s in itertools.product(spanish, repeat=n)]
    rng = np.random.default_rng(0)
    drawn = rng.random(len(sentences)) < 0.25
    held = [s for s, out in zip(sentences, drawn) if out or s == ["hello", "world"]]
    translated = lambda part: [(s, [spanish[word] for word in s]) for s in part]
    config = replace(
        CONFIG, d_model=16, num_encoder_layers=1, num_decoder_layers=1, d_ff=32, dtype="float32"
    )
    larger = nn.Transformer(config, rng)
    train(larger, translated([s for s in sentences if s not in held]), 300)
    accuracy = exact_matches(larger, translated(held)).mean()
    text.fact(
        "trained on other sentences, it translates hello world",
        [word for word, _ in generate(larger, ["hello", "world"])] == ["hola", "mundo", "EOS"],
        "which it has never seen",
    )
    text.fact(
        "and other sentences that it has never seen",
        accuracy > 0.8,
        f"{accuracy:.0%} of {len(held)} without an error",
    )


def conclusion(text: Statements) -> None:
    text.section("Conclusion")
    paper = nn.TransformerConfig()  # its defaults are the paper's base model
    for what, name, size in (
        ("embedding size", "d_model", 512), ("encoder blocks", "num_encoder_layers", 6),
        ("decoder blocks", "num_decoder_layers", 6), ("feed-forward size", "d_ff", 2048),
        ("attention heads", "num_heads", 8),
    ):  # fmt: skip
        ours = getattr(CONFIG, name)
        text.fact(f"{what}: {size} in the paper, {ours} here", getattr(paper, name) == size)
    ours = two_heads_of_3().d_k
    text.fact(
        f"attention size: 64 in the paper, {ours} here", paper.d_model == 64 * paper.num_heads
    )
    ids, target = np.array([[0, 2, 3]]), np.array([[INDEX["SOS"], 8]])
    shapes = [
        nn.EncoderClassifier(nn.EncoderConfig(10, 4, 2, 6, 8, num_classes=2))(
            ids
        ).shape,  # (N, classes)
        nn.Transformer(CONFIG)(ids, target).shape,  # (N, L_t, vocab)
        nn.LanguageModel(nn.LanguageModelConfig(10, 4, 2, 6, 8))(ids).shape,  # (N, L, vocab)
    ]
    text.fact(
        "encoder alone to classify, both to translate, decoder alone to write",
        shapes == [(1, 2), (1, 2, 10), (1, 3, 10)],
        "`nn.EncoderClassifier`, `nn.Transformer`, `nn.LanguageModel`",
    )


def state(text: Statements) -> None:
    text.about(
        "The Random Transformer",
        "Omar Sanseviero, translated into Chinese by yaoqih",
        "001_a6a1c66263ca8fcf.txt",
        "https://osanseviero.github.io/hackerllama/blog/posts/random_transformer/",
        "Where it prints a number, the number is computed here; where the two differ, it says ≠.",
    )
    text.section("The whole, before its parts")
    E = embedding(text)  # (L, d_model)
    text_table, table = positions(text)
    each_place_differs(text, E, table)
    x = added(text, E, text_table, table)
    Z = self_attention(text, x)  # (L, d_model)
    feed_forward(text, x, Z)
    remedies(text, mg.Tensor(x), explosion(text, mg.Tensor(x)))
    residual(text, x)
    the_norm(text, x, Z)
    whole_block(text, x)
    words = np.random.default_rng(0).standard_normal((1, 3, 4))
    decoder_self_attention(text, words)
    decoder_cross_attention(text, words)
    what_was_added(text)
    decoder_feed_forward(text)
    six_decoder_blocks(text, words)
    one_step(text)
    random_generation(text)
    trained_generation(text)
    a_rule(text)
    conclusion(text)
