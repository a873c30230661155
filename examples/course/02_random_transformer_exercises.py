"""The eight exercises of "Random Transformer", each answered by an experiment.

The text (001_a6a1c66263ca8fcf.txt) ends with eight questions; lesson 1 goes through what comes before them.

    python examples/course/02_random_transformer_exercises.py          some ten seconds; pictures in
                                                                runs/random_transformer_exercises
"""

from __future__ import annotations

from lesson import Lesson  # first: Ctrl-C is one line from here on

# isort: split
import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from random_transformer import CONFIG, INDEX, Array, draw_lines, exact_matches, generate, train

import minigrad as mg
import nn
from minigrad.optim import Adam
from nn.text import BOS, EOS, SPECIALS, Vocabulary, padded

ids = lambda *words: np.array([[INDEX[word] for word in words]])  # (1, L)


def positions(lesson: Lesson) -> None:
    lesson.section("1. What is the purpose of positional encoding?")
    lesson.quote("位置编码的目的是什么？", "What is the purpose of positional encoding?")
    lesson.predict(
        "A model without positions learns all 27 sentences of three words out of hello, world and ?. How many can it get right at most?",
        "Ten: as many as there are bags of three words, since all orders of a bag look the same to it.",
    )
    lesson.say("""Attention is a weighted sum, and a sum does not know an order. Without positions a sentence is a
    bag of words to the encoder, and "hello world" cannot be told from "world hello". Adding them makes a word at
    one place another input than the same word at another place.""")
    small = replace(
        CONFIG, d_model=16, num_encoder_layers=1, num_decoder_layers=1, d_ff=32, dtype="float32"
    )
    without, with_them = (
        nn.Transformer(replace(small, positions=p), np.random.default_rng(0))
        for p in ("none", "sinusoidal")
    )
    order, turned = ids("hello", "world"), ids("world", "hello")
    swaps = {
        m: np.abs(m.encode(order).data[0] - m.encode(turned).data[0, ::-1]).max()
        for m in (without, with_them)
    }
    lesson.fact(
        "without positions, words in another order give the same vectors in another order",
        swaps[without] < 1e-5,
    )
    lesson.fact(
        "with positions they give other vectors",
        swaps[with_them] > 0.1,
        f"up to {swaps[with_them]:.2f} apart",
    )

    spanish = {"hello": "hola", "world": "mundo", "?": "?"}
    pairs = [(s, [spanish[word] for word in s]) for s in itertools.product(spanish, repeat=3)]
    for model in (without, with_them):
        train(model, pairs, 200)
    right = [int(exact_matches(model, pairs).sum()) for model in (without, with_them)]
    bags = len({tuple(sorted(source)) for source, _ in pairs})
    lesson.fact(
        "with positions all 27 sentences of three words are learnt",
        right[1] == 27,
        f"{right[1]} of 27",
    )
    lesson.fact(
        "without them at most one order of each bag of words",
        right[0] <= bags,
        f"{right[0]} of 27; {bags} bags",
    )
    said = {
        " ".join(word for word, _ in generate(without, s))
        for s in (["hello", "world", "?"], ["?", "world", "hello"])
    }
    lesson.fact("whatever the order, it says the same", len(said) == 1, f"namely *{said.pop()}*")


def two_attentions(lesson: Lesson) -> None:
    lesson.section(
        "2. What is the difference between self-attention and encoder-decoder attention?"
    )
    lesson.quote(
        "自注意力和编码器-解码器注意力有什么区别？",
        "What is the difference between self-attention and encoder-decoder attention?",
    )
    lesson.formula(
        r"Q = X W_Q, \quad K = S W_K, \quad V = S W_V",
        "self-attention: $S = X$; encoder-decoder attention: $S$ is what the encoder made of the source.",
    )
    lesson.say("""Where queries, keys and values come from. In self-attention all three are made from one sequence. In
    encoder-decoder attention the queries are made from the decoder's sequence, keys and values from the encoder's
    output. The arithmetic is the same.""")
    model = nn.Transformer(
        replace(CONFIG, num_encoder_layers=1, num_decoder_layers=1), np.random.default_rng(0)
    ).eval()
    target = ids("SOS", "hola", "mundo", "?", "a")

    def maps(source: Array) -> dict[str, Array]:
        with mg.no_grad(), nn.record_attention(model) as recorded:
            model.hidden(source, target)
        return {
            name.split(".")[0] + " " + name.split(".")[-1]: weights[0][0]
            for name, weights in recorded.items()
        }

    found, other = (
        maps(ids("hello", "world", "?")),
        maps(ids("how", "world", "?")),
    )  # (h, L_q, L_kv) each
    shapes = {name: weights.shape[1:] for name, weights in found.items()}
    lesson.fact(
        "self-attention weighs a sequence by itself, encoder-decoder attention one by the other",
        shapes
        == {
            "encoder self_attention": (3, 3),
            "decoder self_attention": (5, 5),
            "decoder cross_attention": (5, 3),
        },
        "weights 3 × 3 in the encoder, 5 × 5 in the decoder, 5 × 3 between 5 target words and 3 source words",
    )
    own, cross = "decoder self_attention", "decoder cross_attention"
    lesson.fact(
        "another source word changes only the encoder-decoder attention of the first decoder block",
        np.array_equal(found[own], other[own]) and not np.allclose(found[cross], other[cross]),
    )
    lesson.fact(
        "in the decoder only self-attention is masked",
        (np.triu(found[own], 1) == 0).all() and (found[cross] > 0).all(),
        "the source is there as a whole from the beginning",
    )


# -- the size of attention -------------------------------------------------------------------------

DIM, RANK, KEYS = 32, 4, 8


def lookup_task(rng: np.random.Generator, n: int) -> tuple[Array, Array, Array]:
    """Queries (n, 1, DIM), keys (n, KEYS, DIM), and which key is meant (n,).

    A query agrees with its key in the first RANK numbers, up to noise; all others mean nothing.
    """
    keys, query = rng.standard_normal((n, KEYS, DIM)), rng.standard_normal((n, 1, DIM))
    right = rng.integers(KEYS, size=n)
    query[:, 0, :RANK] = keys[np.arange(n), right, :RANK] + 0.3 * rng.standard_normal((n, RANK))
    return query.astype(np.float32), keys.astype(np.float32), right


def lookup_accuracy(d_k: int, seed: int, n: int = 500, steps: int = 200) -> tuple[float, float]:
    """How often attention of size d_k finds the key after training, on what it has seen and on what it has not."""
    rng = np.random.default_rng(seed)
    seen, unseen = lookup_task(rng, n), lookup_task(rng, 2000)
    W_Q, W_K = (nn.Linear(DIM, d_k, bias=False, generator=rng) for _ in range(2))
    attention = nn.DotProductAttention()
    scores = lambda query, keys: attention.scores(W_Q(query), W_K(keys))[
        :, 0
    ]  # (n, KEYS): q·k / √d_k
    optimizer = Adam([*W_Q.parameters(), *W_K.parameters()], 1e-2)
    for _ in range(steps):
        loss = mg.cross_entropy(scores(*seen[:2]), seen[2])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    found = [
        float((scores(query, keys).data.argmax(-1) == right).mean())
        for query, keys, right in (seen, unseen)
    ]
    return found[0], found[1]


def attention_size(lesson: Lesson) -> None:
    lesson.section("3. What happens if the attention size is too small? Too large?")
    lesson.quote(
        "如果我们的注意力维度太小会发生什么？如果太大呢？",
        "What happens if our attention size is too small? And too large?",
    )
    lesson.formula(r"\operatorname{rank}(Q K^\top) \le d_k")
    lesson.say(
        """The attention size is $d_k$, the length of queries and keys. Too small: the scores of all queries and
        keys are a matrix of rank $d_k$ at most, so that few patterns can be expressed, and what does not fit into
        $d_k$ numbers cannot be compared. Too large: weights and work grow with $d_k$, and with few examples
        attention learns what is peculiar to them."""
    )
    rng = np.random.default_rng(0)
    chosen = {}
    for d_k in (1, 2, 8):
        scores = (
            rng.standard_normal((5000, d_k)) @ rng.standard_normal((50, d_k)).T
        )  # (queries, keys)
        chosen[d_k] = len(np.unique(scores.argmax(1)))
    lesson.fact(
        "with $d_k = 1$ only two keys of any number can come first, the largest and the least",
        chosen[1] <= 2 < chosen[2] < chosen[8],
        f"of 50 keys, 5000 queries put {', '.join(f'{n} first for $d_k$ = {d}' for d, n in chosen.items())}",
    )
    many_sizes(lesson)


def many_sizes(lesson: Lesson) -> None:
    sizes = (1, 2, 4, 8, 64)
    results = np.array([[lookup_accuracy(d_k, seed) for seed in range(2)] for d_k in sizes]).mean(
        1
    )  # (sizes, 2)
    lesson.say(f"""Measured: a query is to find the one of {KEYS} keys that agrees with it in {RANK} of {DIM} numbers,
    learnt from 500 examples (means of two draws).""")
    rows = [
        (d_k, f"{seen:.0%}", f"{new:.0%}", f"{2 * DIM * d_k:,}")
        for d_k, (seen, new) in zip(sizes, results)
    ]
    lesson.table(["$d_k$", "examples found", "new ones found", "weights"], rows)
    by_size = dict(zip(sizes, results))
    lesson.fact(
        "too small: it cannot even learn the examples",
        by_size[1][0] < 0.5,
        f"{by_size[1][0]:.0%} with $d_k$ = 1",
    )
    lesson.fact(
        "too large: it knows the examples by heart, and less about new ones",
        by_size[64][0] > 0.98 and by_size[64][1] < by_size[RANK][1] - 0.05,
        f"{by_size[64][1]:.0%} with $d_k$ = 64, {by_size[RANK][1]:.0%} with {RANK}",
    )
    lesson.fact(
        "in between is a best size",
        sizes[results[:, 1].argmax()] in (4, 8),
        f"$d_k$ = {sizes[results[:, 1].argmax()]}",
    )
    cost = [
        nn.MultiHeadAttention(512, 8, head_dim=d_k, bias=False).q_proj.weight.size
        for d_k in (64, 128)
    ]
    lesson.fact(
        "weights and multiplications are proportional to $d_k$",
        cost[1] == 2 * cost[0],
        f"for 8 heads on 512 dimensions each projection has {cost[0]:,} weights at 64, {cost[1]:,} at 128",
    )
    lines = {"examples": (sizes, results[:, 0]), "new ones": (sizes, results[:, 1])}
    about = (
        "attention size $d_k$",
        "share found",
        f"Finding one of {KEYS} keys by {RANK} of {DIM} numbers",
    )
    lesson.picture(
        "attention_size.png",
        lambda path: draw_lines(lines, *about, path, log="x"),
        caption="Too small, it cannot learn the examples; too large, it learns them by heart.",
        alt="The share of keys found against the attention size: on examples it rises to 100 %, on new ones it peaks at 4 to 8 and falls.",
    )


def feed_forward(lesson: Lesson) -> None:
    lesson.section("4. Describe the structure of the feed-forward layer")
    lesson.quote("简要描述一下前馈层的结构。", "Describe the structure of the feed-forward layer.")
    lesson.formula(r"\mathrm{FFN}(x) = \max(x W_1 + b_1, 0) W_2 + b_2")
    lesson.say(
        """A linear map to more dimensions, a ReLU, and a linear map back; at each position by itself, with the same
        weights at all."""
    )
    ffn = nn.FeedForward(4, 8, dtype=float, generator=np.random.default_rng(0))
    x = np.random.default_rng(1).standard_normal((5, 4))  # (L, d_model)
    lesson.fact(
        "each position is treated by itself",
        np.allclose(ffn(x).data, np.concatenate([ffn(row).data for row in x[:, None]])),
    )
    lesson.fact(
        r"4 → 8 → 4 has $4 \cdot 8 + 8 + 8 \cdot 4 + 4$ numbers", ffn.num_parameters() == 76, "76"
    )
    W1, b1, W2, b2 = (p.data for p in ffn.parameters())  # (8, 4), (8,), (4, 8), (4,)
    linear = x @ W1.T + b1  # (L, 8)
    lesson.fact(
        "without the ReLU both maps would be one",
        np.allclose(linear @ W2.T + b2, x @ (W2 @ W1).T + W2 @ b1 + b2),
    )
    attention, wide = nn.MultiHeadAttention(512, 8), nn.FeedForward(512, 2048)
    fraction = wide.num_parameters() / (wide.num_parameters() + attention.num_parameters())
    lesson.fact(
        "in the paper it holds two thirds of an encoder block's weights",
        abs(fraction - 2 / 3) < 0.01,
        f"{wide.num_parameters():,} of its parameters, and the attention beside it {attention.num_parameters():,}",
    )


# -- speed -----------------------------------------------------------------------------------------


def fastest(work: Callable[[], Any], times: int = 2) -> float:
    """Seconds; the least of several, which other work on the machine disturbs least."""
    seconds = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - began)
    return min(seconds)


def uncached(model: nn.Transformer, source: Array, length: int) -> list[int]:
    """Greedy decoding as the text does it: the decoder sees the whole sequence anew in each step."""
    memory, sequence = model.encode(source), [BOS]
    for _ in range(length):
        hidden = model.decode(np.array([sequence]), memory)[:, -1]  # (1, d_model)
        sequence.append(int(model.output(hidden).data.argmax()))
    return sequence[1:]


def decoder_speed(lesson: Lesson, length: int = 160) -> None:
    lesson.section("5. Why is the decoder slower than the encoder?")
    lesson.quote("为什么解码器比编码器慢？", "Why is the decoder slower than the encoder?")
    lesson.say(
        """The encoder sees all words of its input at once: one pass. The decoder needs each word for the next: a
        pass for every word, one after the other, and small passes use a processor badly. If each pass sees the
        whole sequence anew, $n$ words cost $1 + 2 + \\dots + n = n(n + 1)/2$ positions. A cache of the keys and
        values of earlier words brings that to $n$ positions, but there are $n$ passes still."""
    )
    lesson.diagram(
        "cache",
        "Word by word, with a cache: in each step one new key and value, the others are kept.",
    )
    lesson.code(uncached, note="Without one, each step sees the whole sequence anew:")
    config = nn.TransformerConfig(20, 20, 128, 4, 2, 2, 256, dropout=0.0, dtype="float64")
    model = nn.Transformer(config, np.random.default_rng(0)).eval()
    source = np.random.default_rng(1).integers(4, 20, (1, length))
    with mg.no_grad():
        cached = nn.greedy_search(model, source, max_len=length, eos=None)[0].tokens
        target = np.array([[BOS, *cached[:-1]]])
        memory, again = model.encode(source), []
        seconds = {
            "the encoder, one pass": fastest(lambda: model.encode(source), 9),
            "the decoder in training, one pass": fastest(lambda: model.decode(target, memory), 9),
            "the decoder, word by word with a cache": fastest(
                lambda: nn.greedy_search(model, source, max_len=length, eos=None)
            ),
            "the decoder, word by word without one": fastest(
                lambda: again.append(uncached(model, source, length)), 1
            ),
        }
    encoder, parallel, fast, slow = seconds.values()
    rows = [
        [name, f"{value * 1000:.1f} ms", f"{value / encoder:.1f}"]
        for name, value in seconds.items()
    ]
    lesson.table([f"{length} words through", "time", "in passes of the encoder"], rows)
    lesson.measured(
        f"""Word by word the decoder took {fast / encoder:.0f} times as long as the encoder with a cache, and
        {slow / encoder:.0f} times without: the cache made it {slow / fast:.1f} times faster. In training the decoder is
        not slow: the mask lets it see all words in one pass, {fast / parallel:.0f} times faster than word by word."""
    )
    lesson.fact("the cache changes no word", cached == again[0], f"all {length} are the same")
    positions = sum(range(1, length + 1))
    lesson.fact(
        "without a cache the decoder goes through $n(n + 1)/2$ positions, with one through $n$",
        positions == length * (length + 1) // 2,
        f"{positions:,} and {length}, and {length} passes either way",
    )


def residuals_and_norms(lesson: Lesson, depth: int = 24) -> None:
    lesson.section("6. What is the purpose of residual connections and layer norm?")
    lesson.quote(
        "残差连接和层归一化的目的是什么？",
        "What is the purpose of residual connections and layer norm?",
    )
    lesson.predict(
        "24 layers, each of which makes its input a little smaller. What reaches the first of them of the gradient, with residual connections and without?",
        "Without, next to nothing: 24 factors below 1 are multiplied. With them each factor is 1 plus something, and the product does not vanish.",
    )
    lesson.formula(
        r"\frac{\partial (x + f(x))}{\partial x} = 1 + f'(x)",
        "However small $f'$ becomes, the 1 remains.",
    )
    lesson.say("""A residual connection lets values, and gradients on their way back, pass a layer unchanged: so the
    first of many layers still learns. A norm brings the values back to size 1 after each layer, so that they
    neither grow nor shrink with depth. Measured with the forward values and the gradient through 24 feed-forward
    layers.""")
    found, found_large = through_depth(depth)
    rows = [
        [
            name,
            *(
                f"{number:.1e}"
                for size, slopes in (found[name], found_large[name])
                for number in (size, slopes[0])
            ),
        ]
        for name in found
    ]
    lesson.table(
        ["", "values up to", "gradient at the input", "weights × 4: values", "gradient"], rows
    )
    lesson.fact("without either the gradient vanishes", found["neither"][1][0] < 1e-6)
    lesson.fact("residual connections keep it", found["residual connections"][1][0] > 1)
    lesson.fact(
        "but with large weights values explode", found_large["residual connections"][0] > 1e6
    )
    lesson.fact(
        "norms keep the values, whatever the weights",
        max(found["norms"][0], found_large["norms"][0], found["both"][0], found_large["both"][0])
        < 4,
        "16 numbers of mean 0 and variance 1 cannot pass $\\sqrt{15}$",
    )
    lesson.fact(
        "with both, values and gradient stay in bounds",
        all(
            size < 4 and 1e-2 < slopes[0] < 1e3
            for size, slopes in (found["both"], found_large["both"])
        ),
    )
    lines = {name: (range(depth + 1), slopes) for name, (_, slopes) in found.items()}
    lesson.picture(
        "gradients.png",
        lambda path: draw_lines(
            lines,
            "layer",
            "norm of the gradient",
            "The gradient on its way back from layer 24 to the input",
            path,
        ),
        caption="Only with residual connections does the gradient reach the first of 24 layers.",
        alt="Four lines of the gradient's norm by layer: without residual connections it falls by many orders of magnitude.",
    )


def through_depth(depth: int) -> list[dict[str, tuple[float, list[float]]]]:
    """For each kind of block the size of the last values, and of the gradient at every depth; then with larger weights."""
    rng = np.random.default_rng(0)
    layers = [nn.FeedForward(16, 64, dtype=float, generator=rng) for _ in range(depth)]
    norm = nn.LayerNorm(16, dtype=float)
    x, v = rng.standard_normal((2, 8, 16))  # (N, d_model) each
    steps: dict[str, Callable[[Any, Any], Any]] = {
        "neither": lambda h, f: f(h),
        "residual connections": lambda h, f: h + f(h),
        "norms": lambda h, f: norm(f(h)),
        "both": lambda h, f: norm(h + f(h)),
    }
    large = [nn.FeedForward(16, 64, dtype=float, generator=rng) for _ in range(depth)]
    for layer in large:
        for p in layer.parameters():
            p.data *= 4  # weights on the large side

    def through(step: Callable[[Any, Any], Any], stack: list[Any]) -> tuple[float, list[float]]:
        """The size of the last values, and of the gradient of v · output at every depth."""
        values = [mg.Tensor(x, requires_grad=True)]
        for f in stack:
            values.append(step(values[-1], f))
            values[-1].retain_grad()
        (values[-1] * v).sum().backward()
        return float(np.abs(values[-1].data).max()), [
            float(np.linalg.norm(h.grad.data)) for h in values
        ]

    return [
        {name: through(step, stack) for name, step in steps.items()} for stack in (layers, large)
    ]


def probabilities(lesson: Lesson) -> None:
    lesson.section("7. How do we get probabilities from the decoder's output?")
    lesson.quote(
        "我们如何从解码器的输出得到概率？", "How do we get probabilities from the decoder's output?"
    )
    lesson.formula(r"p_i = \frac{e^{z_i}}{\sum_j e^{z_j}} \qquad z = h W + b")
    lesson.say("""By a linear layer that makes one number for each word of the vocabulary, the logits, and by a
    softmax of these: positive numbers that add up to 1.""")
    rng = np.random.default_rng(0)
    linear, h = (
        nn.Linear(4, 10, dtype=float, generator=rng),
        rng.standard_normal((3, 4)),
    )  # (L, d_model)
    logits = linear(h).data  # (L, vocab)
    probs = mg.softmax(logits).data
    lesson.fact(
        "10 probabilities at each position",
        probs.shape == (3, 10) and (probs > 0).all() and np.allclose(probs.sum(-1), 1),
    )
    lesson.fact(
        "a larger logit is a larger probability",
        np.array_equal(np.argsort(logits), np.argsort(probs)),
        "so the likeliest word is known before the softmax",
    )
    lesson.fact(
        "only differences of logits count",
        np.allclose(mg.softmax(logits + 100).data, probs),
        "100 more in each changes nothing",
    )


# -- greedy is not best ----------------------------------------------------------------------------


def greedy(lesson: Lesson) -> None:
    lesson.section("8. Why is it a problem to take the likeliest word each time?")
    lesson.quote(
        "为什么每次都选择最可能的下一个 token 会带来问题？",
        "Why is it a problem to choose the likeliest next token each time?",
    )
    lesson.diagram("beam", "The corpus of this section as a tree of beginnings.")
    lesson.say(
        """To take the likeliest word each time is called *greedy* decoding. A first word can be the likeliest while
        every sentence that begins with it is unlikely. Greedy decoding takes it all the same, and cannot go back.
        *Beam search* keeps the few likeliest beginnings at each step, the beam, and compares whole sentences at the
        end."""
    )
    vocabulary = Vocabulary([*SPECIALS, "hello", "mundo", "world", "how", "?", "a", "hola", "c"])
    corpus = ["how a ?", "how c ?", "how world ?"] * 2 + ["hola mundo"] * 4
    data = padded(
        [vocabulary.encode(text.split(), bos=True, eos=True) for text in corpus]
    )  # (N, L)
    lesson.say("""A language model, which is a decoder without an encoder, learns ten sentences: how a ?, how c ?
    and how world ?, twice each, and four times hola mundo. "how" begins six of the ten; but each sentence that it
    begins has 2/10, and hola mundo 4/10.""")
    config = nn.LanguageModelConfig(
        len(vocabulary), 16, 2, 1, 32, dropout=0.0, max_len=8, pad_id=0, eos_id=EOS
    )
    model = nn.LanguageModel(config, np.random.default_rng(0))
    optimizer = Adam(model.parameters(), 1e-2)
    for _ in range(150):
        loss = model.loss(data)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    prompt = np.array([[BOS]])
    (first,) = nn.greedy_search(model, prompt=prompt, max_len=5)
    ((best,),) = nn.beam_search(model, prompt=prompt, max_len=5, beam_size=3, length_penalty=0.0)
    text = lambda h: " ".join(vocabulary.decode(h.tokens))
    lesson.fact(
        "greedy decoding begins with how",
        text(first).startswith("how"),
        f"*{text(first)}*, probability {np.exp(first.log_prob):.3f}",
    )
    lesson.fact(
        "beam search finds a likelier sentence",
        best.log_prob > first.log_prob + np.log(1.5),
        f"*{text(best)}*, probability {np.exp(best.log_prob):.3f}",
    )
    against_all(lesson, model, vocabulary, corpus, best)


def against_all(
    lesson: Lesson,
    model: nn.LanguageModel,
    vocabulary: Vocabulary,
    corpus: Sequence[str],
    best: nn.Hypothesis,
) -> None:
    """What the beam found, beside all sentences of up to four words, and beside 1,000 drawn by their probability."""
    exact, sentence = likeliest(model, len(vocabulary), 4)
    lesson.fact(
        "it is the likeliest of all",
        sentence == best.tokens and np.isclose(exact, best.log_prob, atol=1e-4),
        f"of all {sum(len(vocabulary) ** n for n in range(5)):,} sentences of up to four words",
    )
    text = lambda h: " ".join(vocabulary.decode(h.tokens))
    many = nn.sample(
        model, prompt=np.full((1000, 1), BOS), max_len=5, generator=np.random.default_rng(0)
    )
    fraction = np.mean([text(h) == "hola mundo" for h in many])
    lesson.fact(
        "and greedy decoding knows one sentence only",
        len({text(h) for h in many} & set(corpus)) == 4 and abs(fraction - 0.4) < 0.07,
        f"drawn by their probability, all four appear, hola mundo in {fraction:.0%} of 1000 draws",
    )


def likeliest(model: nn.LanguageModel, vocab: int, max_words: int) -> tuple[float, list[int]]:
    """The likeliest sentence up to <eos>, by looking at all of them."""
    best = (-np.inf, [])
    model.eval()
    for n in range(max_words + 1):
        words = np.array([*itertools.product(range(vocab), repeat=n)], int).reshape(
            vocab**n, n
        )  # (all, n)
        words = words[(words != EOS).all(1)]
        start, end = (np.full((len(words), 1), token) for token in (BOS, EOS))
        with mg.no_grad():
            logp = mg.log_softmax(model(np.hstack([start, words]))).data  # (all, n + 1, vocab)
        target = np.hstack([words, end])  # (all, n + 1)
        totals = np.take_along_axis(logp, target[..., None], -1).sum((1, 2))  # (all,)
        top = int(totals.argmax())
        best = max(best, (float(totals[top]), target[top].tolist()))
    return best


def main(argv: Sequence[str] | None = None) -> int:
    lesson = Lesson("random_transformer_exercises", __doc__ or "", argv)
    lesson.source(
        "The Random Transformer",
        "Omar Sanseviero, translated into Chinese by yaoqih",
        "001_a6a1c66263ca8fcf.txt",
        "https://osanseviero.github.io/hackerllama/blog/posts/random_transformer/",
        "Its last section asks these questions and leaves them open.",
    )
    positions(lesson)
    two_attentions(lesson)
    attention_size(lesson)
    feed_forward(lesson)
    decoder_speed(lesson)
    residuals_and_norms(lesson)
    probabilities(lesson)
    greedy(lesson)
    lesson.exercise(
        "A base model of the paper has $d = 512$ and a feed-forward size of 2048. How many numbers has one feed-forward layer, with its biases?",
        "$2 \\cdot 512 \\cdot 2048 + 2048 + 512$ = 2,099,712; question 4 compares it with the attention beside it.",
    )
    lesson.exercise(
        "Of how many sentences does a beam of width 3 see the whole probability, of the thousands that exist?",
        "Of the handful that it completes. It is no proof: the section above looks at all of them to be sure.",
    )
    return lesson.end()


if __name__ == "__main__":
    raise SystemExit(main())
