"""A Transformer by hand: parameters in a dictionary, functions of arrays, and derivatives by minigrad. Lesson 7 uses it.

The names of the parameters are those of nn.Transformer, so that each can be put into the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

import minigrad as mg

PAD, BOS, EOS = 0, 1, 2
Parameters = dict[str, mg.Tensor]


# -- parameters ------------------------------------------------------------------------------------


def new_parameters(
    vocab: tuple[int, int], d: int, d_ff: int, layers: int, rng: np.random.Generator
) -> Parameters:
    """Return initial weights: entries of size 1 / √(inputs), biases 0, norms that change nothing."""
    p: dict[str, np.ndarray] = {}

    def matrix(name: str, out: int, inputs: int) -> None:
        p[f"{name}.weight"], p[f"{name}.bias"] = (
            rng.normal(0, inputs**-0.5, (out, inputs)),
            np.zeros(out),
        )

    def block(name: str, attentions: Sequence[str]) -> None:
        for attention in attentions:
            for part in ("q_proj", "k_proj", "v_proj", "out_proj"):
                matrix(f"{name}.{attention}.{part}", d, d)
        matrix(f"{name}.feed_forward.linear1", d_ff, d)
        matrix(f"{name}.feed_forward.linear2", d, d_ff)
        for i in range(len(attentions) + 1):
            p[f"{name}.norm{i + 1}.weight"], p[f"{name}.norm{i + 1}.bias"] = np.ones(d), np.zeros(d)

    for side, size in zip(("source", "target"), vocab):
        p[f"{side}_embedding.tokens.weight"] = rng.normal(0, d**-0.5, (size, d))
    for i in range(layers):
        block(f"encoder.layers.{i}", ["self_attention"])
        block(f"decoder.layers.{i}", ["self_attention", "cross_attention"])
    matrix("output", vocab[1], d)
    return {
        name: mg.Tensor(value.astype(np.float32), requires_grad=True) for name, value in p.items()
    }


# -- the model -------------------------------------------------------------------------------------


def linear(p: Parameters, name: str, x: mg.Tensor) -> mg.Tensor:
    return x @ p[f"{name}.weight"].T + p[f"{name}.bias"]


def softmax(scores: mg.Tensor) -> mg.Tensor:
    """Return positive weights with sum 1 along the last axis."""
    e = np.exp(
        scores - scores.data.max(-1, keepdims=True)
    )  # the largest becomes e⁰: nothing overflows
    return e / e.sum(-1, keepdims=True)


def attention(
    p: Parameters, name: str, x: mg.Tensor, source: mg.Tensor, mask: np.ndarray, h: int
) -> mg.Tensor:
    """Return what x (N, L_q, d) finds in source (N, L_kv, d), as far as the mask allows.

    The mask is (N or 1, 1, L_q or 1, L_kv), True = may attend.
    """
    (N, L, d), d_k = x.shape, x.shape[-1] // h
    heads = lambda y: y.reshape(N, -1, h, d_k).transpose(0, 2, 1, 3)  # (N, h, L, d_k)
    Q, K, V = (
        heads(linear(p, f"{name}.{part}_proj", y))
        for part, y in (("q", x), ("k", source), ("v", source))
    )
    scores = Q @ K.transpose(0, 1, 3, 2) / np.float32(d_k**0.5)  # (N, h, L_q, L_kv)
    weights = softmax(np.where(mask, scores, np.float32(-1e9)))
    return linear(p, f"{name}.out_proj", (weights @ V).transpose(0, 2, 1, 3).reshape(N, L, d))


def norm(p: Parameters, name: str, x: mg.Tensor) -> mg.Tensor:
    """Return x with mean 0 and variance 1 of each vector, scaled and shifted."""
    centred = x - x.mean(-1, keepdims=True)
    root = np.sqrt((centred**2).mean(-1, keepdims=True) + np.float32(1e-5))
    return centred / root * p[f"{name}.weight"] + p[f"{name}.bias"]


def feed_forward(p: Parameters, name: str, x: mg.Tensor) -> mg.Tensor:
    return linear(p, f"{name}.linear2", np.maximum(linear(p, f"{name}.linear1", x), np.float32(0)))


def embed(p: Parameters, side: str, ids: np.ndarray) -> mg.Tensor:
    """Return rows of the table times √d, plus sines and cosines of the position: (N, L, d)."""
    table = p[f"{side}_embedding.tokens.weight"]
    d, place = table.shape[1], np.arange(ids.shape[1])[:, None]
    angles = place / 10_000 ** (np.arange(0, d, 2) / d)  # (L, d / 2)
    positions = np.stack([np.sin(angles), np.cos(angles)], -1).reshape(len(place), d)
    return table[ids] * np.float32(d**0.5) + positions.astype(np.float32)


def encode(p: Parameters, source: np.ndarray, h: int, layers: int) -> mg.Tensor:
    """Return the vectors of the source (N, L_s, d)."""
    x, mask = embed(p, "source", source), (source != PAD)[:, None, None]
    for i in range(layers):
        at = f"encoder.layers.{i}"
        x = norm(p, f"{at}.norm1", x + attention(p, f"{at}.self_attention", x, x, mask, h))
        x = norm(p, f"{at}.norm2", x + feed_forward(p, f"{at}.feed_forward", x))
    return x


def decode(
    p: Parameters, target: np.ndarray, memory: mg.Tensor, source: np.ndarray, h: int, layers: int
) -> mg.Tensor:
    """Return logits (N, L_t, vocabulary) of the token after each position."""
    x, known = embed(p, "target", target), (source != PAD)[:, None, None]
    past = np.tri(target.shape[1], dtype=bool) & (target != PAD)[:, None, None]
    for i in range(layers):
        at = f"decoder.layers.{i}"
        x = norm(p, f"{at}.norm1", x + attention(p, f"{at}.self_attention", x, x, past, h))
        x = norm(p, f"{at}.norm2", x + attention(p, f"{at}.cross_attention", x, memory, known, h))
        x = norm(p, f"{at}.norm3", x + feed_forward(p, f"{at}.feed_forward", x))
    return linear(p, "output", x)


# -- training and use --------------------------------------------------------------------------------


def loss(p: Parameters, source: np.ndarray, target: np.ndarray, h: int, layers: int) -> mg.Tensor:
    """Return the mean of -log p of each right next token; padding does not count."""
    logits = decode(p, target[:, :-1], encode(p, source, h, layers), source, h, layers)
    top = logits.data.max(-1, keepdims=True)
    log_p = logits - top - np.log(np.exp(logits - top).sum(-1, keepdims=True))  # (N, L, vocabulary)
    n, t = np.nonzero(target[:, 1:] != PAD)
    return -log_p[n, t, target[n, t + 1]].mean()


def adam(
    value: np.ndarray, gradient: np.ndarray, m: np.ndarray, v: np.ndarray, step: int, lr: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return a parameter after a step against its mean gradient, and both running means."""
    m = m + 0.1 * (gradient - m)
    v = v + 0.02 * (gradient**2 - v)
    update = (m / (1 - 0.9**step)) / (np.sqrt(v / (1 - 0.98**step)) + 1e-9)
    return value - lr * update, m, v


def train(
    p: Parameters,
    source: np.ndarray,
    target: np.ndarray,
    h: int,
    layers: int,
    epochs: int,
    lr: float,
    loss: Callable[..., mg.Tensor] = loss,
    adam: Callable[..., tuple[np.ndarray, ...]] = adam,
) -> Iterator[float]:
    """Yield the loss of each step.

    The learning rate rises for a tenth of the steps and falls to 0 along a cosine.
    """
    rng, batch = np.random.default_rng(0), 64
    means = {name: (np.zeros_like(t.data), np.zeros_like(t.data)) for name, t in p.items()}
    total, step = epochs * (len(source) // batch), 0
    for _ in range(epochs):
        order = rng.permutation(len(source))
        for start in range(0, total // epochs * batch, batch):
            step += 1
            rows = order[start : start + batch]
            value = loss(p, source[rows], target[rows], h, layers)
            value.backward()
            rate = lr * min(step / (0.1 * total), 0.5 + 0.5 * np.cos(np.pi * step / total))
            for name, t in p.items():
                t.data[...], *means[name] = adam(t.data, t.grad.data, *means[name], step, rate)
                t.grad = None
            yield value.item()


def translate(p: Parameters, source: np.ndarray, h: int, layers: int, longest: int) -> np.ndarray:
    """Return ids (N, longest) from <bos> on: the likeliest next token again and again."""
    with mg.no_grad():
        memory, target = encode(p, source, h, layers), np.full((len(source), 1), BOS)
        while target.shape[1] < longest:
            said = decode(p, target, memory, source, h, layers).data[:, -1].argmax(-1)
            target = np.column_stack([target, said])
    ended = np.cumsum(target == EOS, axis=1) - (target == EOS) > 0
    return np.where(ended, PAD, target)
