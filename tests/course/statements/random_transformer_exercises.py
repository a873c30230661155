"""Statements of the exercises of "The Random Transformer"."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from random_transformer import CONFIG, INDEX, Array, exact_matches, generate, train
from support.statements import Statements, gap, same

import minigrad as mg
import nn
from minigrad.optim import Adam
from nn.text.batches import padded
from nn.text.vocabulary import BOS, EOS, SPECIALS, Vocabulary

ids = lambda *words: np.array([[INDEX[word] for word in words]])  # (1, L)


def positions(text: Statements) -> None:
    text.section("1. What is the purpose of positional encoding?")
    small = replace(
        CONFIG, d_model=16, num_encoder_layers=1, num_decoder_layers=1, d_ff=32, dtype="float32"
    )
    without, with_them = (
        nn.Transformer(replace(small, positions=p), np.random.default_rng(0))
        for p in ("none", "sinusoidal")
    )
    order, turned = ids("hello", "world"), ids("world", "hello")
    models = without, with_them
    apart = [gap(m.encode(order)[0], m.encode(turned)[0, ::-1]) for m in models]
    text.fact(
        "without positions, words in another order give the same vectors in another order",
        apart[0] < 1e-5,
    )
    text.fact(
        "with positions they give other vectors",
        apart[1] > 0.1,
        f"up to {apart[1]:.2f} apart",
    )

    spanish = {"hello": "hola", "world": "mundo", "?": "?"}
    pairs = [(s, [spanish[word] for word in s]) for s in itertools.product(spanish, repeat=3)]
    for model in models:
        train(model, pairs, 200)
    right = [int(exact_matches(model, pairs).sum()) for model in models]
    bags = len({tuple(sorted(source)) for source, _ in pairs})
    text.fact(
        "with positions all 27 sentences of three words are learnt",
        right[1] == 27,
        f"{right[1]} of 27",
    )
    text.fact(
        "without them at most one order of each bag of words",
        right[0] <= bags,
        f"{right[0]} of 27; {bags} bags",
    )
    said = {
        " ".join(word for word, _ in generate(without, s))
        for s in (["hello", "world", "?"], ["?", "world", "hello"])
    }
    text.fact("whatever the order, it says the same", len(said) == 1, f"namely *{said.pop()}*")


def two_attentions(text: Statements) -> None:
    text.section("2. What is the difference between self-attention and encoder-decoder attention?")
    model = nn.Transformer(
        replace(CONFIG, num_encoder_layers=1, num_decoder_layers=1), np.random.default_rng(0)
    ).eval()
    target = ids("SOS", "hola", "mundo", "?", "a")

    def maps(source: Array) -> list[Array]:
        """Return the weights (h, L_q, L_kv) of the three attentions."""
        with mg.no_grad(), nn.record_attention(model) as recorded:
            model.hidden(source, target)
        return [weights[0][0] for weights in recorded.values()]

    encoder, own, cross = maps(ids("hello", "world", "?"))
    _, other_own, other_cross = maps(ids("how", "world", "?"))
    text.fact(
        "self-attention weighs a sequence by itself, encoder-decoder attention one by the other",
        [weights.shape[1:] for weights in (encoder, own, cross)] == [(3, 3), (5, 5), (5, 3)],
        "weights 3 × 3 in the encoder, 5 × 5 in the decoder, 5 × 3 between 5 target words and 3 source words",
    )
    text.fact(
        "another source word changes only the encoder-decoder attention of the first decoder block",
        gap(own, other_own) == 0 and not same(cross, other_cross, 0.01),
    )
    text.fact(
        "in the decoder only self-attention is masked",
        (np.triu(own, 1) == 0).all() and (cross > 0).all(),
        "the source is there as a whole from the beginning",
    )


# -- the size of attention -------------------------------------------------------------------------

DIM, RANK, KEYS = 32, 4, 8


def lookup_task(rng: np.random.Generator, n: int) -> tuple[Array, Array, Array]:
    """Return queries (n, 1, DIM), keys (n, KEYS, DIM), and the index of the right key (n,).

    A query agrees with its key in the first RANK numbers, up to noise; all others mean nothing.
    """
    keys, query = rng.standard_normal((n, KEYS, DIM)), rng.standard_normal((n, 1, DIM))
    right = rng.integers(KEYS, size=n)
    query[:, 0, :RANK] = keys[np.arange(n), right, :RANK] + 0.3 * rng.standard_normal((n, RANK))
    return query.astype(np.float32), keys.astype(np.float32), right


def minimize(loss: Callable[[], mg.Tensor], parameters: Any, steps: int) -> None:
    """Take steps of Adam."""
    optimizer = Adam(parameters, 1e-2)
    for _ in range(steps):
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()


def lookup_accuracy(d_k: int, seed: int, n: int = 500, steps: int = 200) -> list[float]:
    """Return the rate of keys that attention of size d_k finds after training: seen ones, new ones."""
    rng = np.random.default_rng(seed)
    seen, unseen = lookup_task(rng, n), lookup_task(rng, 2000)
    W_Q, W_K = (nn.Linear(DIM, d_k, bias=False, generator=rng) for _ in range(2))
    attention = nn.DotProductAttention()
    scores = lambda query, keys: attention.scores(W_Q(query), W_K(keys))[
        :, 0
    ]  # (n, KEYS): q·k / √d_k
    loss = lambda: mg.cross_entropy(scores(*seen[:2]), seen[2])
    minimize(loss, [*W_Q.parameters(), *W_K.parameters()], steps)
    return [(scores(*xs).data.argmax(-1) == right).mean() for *xs, right in (seen, unseen)]


def attention_size(text: Statements) -> None:
    text.section("3. What happens if the attention size is too small? Too large?")
    rng = np.random.default_rng(0)
    chosen = {}
    for d_k in (1, 2, 8):
        scores = (
            rng.standard_normal((5000, d_k)) @ rng.standard_normal((50, d_k)).T
        )  # (queries, keys)
        chosen[d_k] = len(np.unique(scores.argmax(1)))
    text.fact(
        "with $d_k = 1$ only two keys of any number can come first, the largest and the least",
        chosen[1] <= 2 < chosen[2] < chosen[8],
        f"of 50 keys, 5000 queries put {', '.join(f'{n} first for $d_k$ = {d}' for d, n in chosen.items())}",
    )
    sizes = (1, 2, 4, 8, 64)
    results = np.mean([[lookup_accuracy(d_k, seed) for d_k in sizes] for seed in range(2)], 0)
    by_size = dict(zip(sizes, results))
    text.fact(
        "too small: it cannot even learn the examples",
        by_size[1][0] < 0.5,
        f"{by_size[1][0]:.0%} with $d_k$ = 1",
    )
    text.fact(
        "too large: it knows the examples by heart, and less about new ones",
        by_size[64][0] > 0.98 and by_size[64][1] < by_size[RANK][1] - 0.05,
        f"{by_size[64][1]:.0%} with $d_k$ = 64, {by_size[RANK][1]:.0%} with {RANK}",
    )
    best = sizes[results[:, 1].argmax()]
    text.fact("in between is a best size", best in (4, 8), f"$d_k$ = {best}")
    cost = [nn.ExtendedAttention(512, 8, head_dim=d_k).q_proj.weight.size for d_k in (64, 128)]
    text.fact(
        "weights and multiplications are proportional to $d_k$",
        cost[1] == 2 * cost[0],
        f"for 8 heads on 512 dimensions each projection has {cost[0]:,} weights at 64, {cost[1]:,} at 128",
    )


def feed_forward(text: Statements) -> None:
    text.section("4. Describe the structure of the feed-forward layer")
    ffn = nn.FeedForward(4, 8, dtype=float, generator=np.random.default_rng(0))
    x = np.random.default_rng(1).standard_normal((5, 4))  # (L, d_model)
    text.fact(
        "each position is treated by itself",
        same(ffn(x), np.concatenate([ffn(row) for row in x[:, None]])),
    )
    text.fact(
        r"4 → 8 → 4 has $4 \cdot 8 + 8 + 8 \cdot 4 + 4$ numbers", ffn.num_parameters() == 76, "76"
    )
    W1, b1, W2, b2 = (p.data for p in ffn.parameters())  # (8, 4), (8,), (4, 8), (4,)
    linear = x @ W1.T + b1  # (L, 8)
    text.fact(
        "without the ReLU both maps would be one",
        same(linear @ W2.T + b2, x @ (W2 @ W1).T + W2 @ b1 + b2),
    )
    beside, wide = (
        m.num_parameters() for m in (nn.MultiHeadAttention(512, 8), nn.FeedForward(512, 2048))
    )
    text.fact(
        "in the paper it holds two thirds of an encoder block's weights",
        abs(wide / (wide + beside) - 2 / 3) < 0.01,
        f"{wide:,} of its parameters, and the attention beside it {beside:,}",
    )


# -- decoding -----------------------------------------------------------------------------------------


def uncached(model: nn.Transformer, source: Array, length: int) -> list[int]:
    """Decode greedily as the text does: the decoder reads the whole sequence again in each step."""
    memory, sequence = model.encode(source), [BOS]
    for _ in range(length):
        hidden = model.decode(np.array([sequence]), memory)[:, -1]  # (1, d_model)
        sequence.append(int(model.output(hidden).data.argmax()))
    return sequence[1:]


def decoder_speed(text: Statements, length: int = 160) -> None:
    text.section("5. Why is the decoder slower than the encoder?")
    config = nn.TransformerConfig(20, 20, 128, 4, 2, 2, 256, dropout=0.0, dtype="float64")
    model = nn.Transformer(config, np.random.default_rng(0)).eval()
    source = np.random.default_rng(1).integers(4, 20, (1, length))
    with mg.no_grad():
        cached = nn.greedy_search(model, source, max_len=length, eos=None)[0].tokens
        again = uncached(model, source, length)
    text.fact("the cache changes no word", cached == again, f"all {length} are the same")
    positions = sum(range(length + 1))
    text.fact(
        "without a cache the decoder goes through $n(n + 1)/2$ positions, with one through $n$",
        positions == length * (length + 1) // 2,
        f"{positions:,} and {length}, and {length} passes either way",
    )


def residuals_and_norms(text: Statements, depth: int = 24) -> None:
    text.section("6. What is the purpose of residual connections and layer norm?")
    found, found_large = through_depth(depth)
    text.fact("without either the gradient vanishes", found["neither"][1] < 1e-6)
    text.fact("residual connections keep it", found["residual connections"][1] > 1)
    text.fact("but with large weights values explode", found_large["residual connections"][0] > 1e6)
    text.fact(
        "norms keep the values, whatever the weights",
        max(kinds[kind][0] for kinds in (found, found_large) for kind in ("norms", "both")) < 4,
        "16 numbers of mean 0 and variance 1 cannot pass $\\sqrt{15}$",
    )
    text.fact(
        "with both, values and gradient stay in bounds",
        all(
            size < 4 and 1e-2 < slope < 1e3 for size, slope in (found["both"], found_large["both"])
        ),
    )


def through_depth(depth: int) -> list[dict[str, tuple[float, float]]]:
    """Return the size of the last values and of the gradient of the first, by kind of block.

    One dict is for the usual first weights, and one for weights four times as large.
    """
    rng = np.random.default_rng(0)
    usual, large = (
        [nn.FeedForward(16, 64, dtype=float, generator=rng) for _ in range(depth)] for _ in range(2)
    )
    for p in nn.ModuleList(large).parameters():
        p.data *= 4
    norm = nn.LayerNorm(16, dtype=float)
    x, v = np.random.default_rng(1).standard_normal((2, 8, 16))  # (N, d_model) each
    steps: dict[str, Callable[[Any, Any], Any]] = {
        "neither": lambda h, f: f(h),
        "residual connections": lambda h, f: h + f(h),
        "norms": lambda h, f: norm(f(h)),
        "both": lambda h, f: norm(h + f(h)),
    }

    def through(step: Callable[[Any, Any], Any], stack: list[Any]) -> tuple[float, float]:
        first = mg.Tensor(x, requires_grad=True)
        last = functools.reduce(step, stack, first)
        (gradient,) = mg.gradients(last, [first], v)
        return float(np.abs(last.data).max()), float(np.linalg.norm(gradient.data))

    return [
        {name: through(step, stack) for name, step in steps.items()} for stack in (usual, large)
    ]


def probabilities(text: Statements) -> None:
    text.section("7. How do we get probabilities from the decoder's output?")
    rng = np.random.default_rng(0)
    linear = nn.Linear(4, 10, dtype=float, generator=rng)
    logits = linear(rng.standard_normal((3, 4))).data  # (L, vocab)
    probs = mg.softmax(logits).data
    text.fact(
        "10 probabilities at each position",
        probs.shape == (3, 10) and (probs > 0).all() and same(probs.sum(-1), 1),
    )
    text.fact(
        "a larger logit is a larger probability",
        np.array_equal(np.argsort(logits), np.argsort(probs)),
        "so the likeliest word is known before the softmax",
    )
    text.fact(
        "only differences of logits count",
        same(mg.softmax(logits + 100), probs),
        "100 more in each changes nothing",
    )


# -- greedy is not best ----------------------------------------------------------------------------


def greedy(text: Statements) -> None:
    text.section("8. Why is it a problem to take the likeliest word each time?")
    vocabulary = Vocabulary([*SPECIALS, "hello", "mundo", "world", "how", "?", "a", "hola", "c"])
    corpus = ["how a ?", "how c ?", "how world ?"] * 2 + ["hola mundo"] * 4
    data = padded(
        [vocabulary.encode(line.split(), bos=True, eos=True) for line in corpus]
    )  # (N, L)
    config = nn.LanguageModelConfig(
        len(vocabulary), 16, 2, 1, 32, dropout=0.0, max_len=8, pad_id=0, eos_id=EOS
    )
    model = nn.LanguageModel(config, np.random.default_rng(0))
    minimize(lambda: model.loss(data), model.parameters(), 150)
    prompt = np.array([[BOS]])
    (first,) = nn.greedy_search(model, prompt=prompt, max_len=5)
    ((best,),) = nn.beam_search(model, prompt=prompt, max_len=5, beam_size=3, length_penalty=0.0)
    sentence_of = lambda h: " ".join(vocabulary.decode(h.tokens))
    text.fact(
        "greedy decoding begins with how",
        sentence_of(first).startswith("how"),
        f"*{sentence_of(first)}*, probability {np.exp(first.log_prob):.3f}",
    )
    text.fact(
        "beam search finds a likelier sentence",
        best.log_prob > first.log_prob + np.log(1.5),
        f"*{sentence_of(best)}*, probability {np.exp(best.log_prob):.3f}",
    )
    exact, sentence = likeliest(model, len(vocabulary), 4)
    text.fact(
        "it is the likeliest of all",
        sentence == best.tokens and np.isclose(exact, best.log_prob, atol=1e-4),
        f"of all {sum(len(vocabulary) ** n for n in range(5)):,} sentences of up to four words",
    )
    sentence_of = lambda h: " ".join(vocabulary.decode(h.tokens))
    many = nn.sample(
        model, prompt=np.full((1000, 1), BOS), max_len=5, generator=np.random.default_rng(0)
    )
    fraction = np.mean([sentence_of(h) == "hola mundo" for h in many])
    text.fact(
        "and greedy decoding knows one sentence only",
        len({sentence_of(h) for h in many} & set(corpus)) == 4 and abs(fraction - 0.4) < 0.07,
        f"drawn by their probability, all four appear, hola mundo in {fraction:.0%} of 1000 draws",
    )


def likeliest(model: nn.LanguageModel, vocab: int, max_words: int) -> tuple[float, list[int]]:
    """Return the likeliest sentence up to <eos> of all sentences."""
    best = (-np.inf, [])
    model.eval()
    for n in range(max_words + 1):
        words = np.array([*np.ndindex(*[vocab] * n)], int)  # (all, n)
        words = words[(words != EOS).all(1)]
        start, end = (np.full((len(words), 1), token) for token in (BOS, EOS))
        with mg.no_grad():
            logp = mg.log_softmax(model(np.hstack([start, words]))).data  # (all, n + 1, vocab)
        target = np.hstack([words, end])  # (all, n + 1)
        totals = np.take_along_axis(logp, target[..., None], -1).sum((1, 2))  # (all,)
        top = int(totals.argmax())
        best = max(best, (float(totals[top]), target[top].tolist()))
    return best


def state(text: Statements) -> None:
    text.about(
        "The Random Transformer",
        "Omar Sanseviero, translated into Chinese by yaoqih",
        "001_a6a1c66263ca8fcf.txt",
        "https://osanseviero.github.io/hackerllama/blog/posts/random_transformer/",
        "Its last section asks these questions and leaves them open.",
    )
    positions(text)
    two_attentions(text)
    attention_size(text)
    feed_forward(text)
    decoder_speed(text)
    residuals_and_norms(text)
    probabilities(text)
    greedy(text)
