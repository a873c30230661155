"""Model of "The Random Transformer" (lessons 5 and 6): its weights and layers, training and use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import minigrad as mg
import nn
from minigrad.optim import Adam, Schedule, cosine_schedule
from nn.text.batches import padded

Array = np.ndarray
Rng = np.random.Generator

# The weights that the text prints: two heads, each from 4 dimensions to 3, and the projection of both back to 4.
WK1 = np.array([[1, 0, 1], [0, 1, 0], [1, 0, 1], [0, 1, 0]])
WV1 = np.array([[0, 1, 1], [1, 0, 0], [1, 0, 1], [0, 1, 0]])
WQ1 = np.array([[0, 0, 0], [1, 1, 0], [0, 0, 1], [1, 0, 0]])
WK2 = np.array([[0, 1, 1], [1, 0, 1], [1, 1, 0], [0, 1, 0]])
WV2 = np.array([[1, 0, 0], [0, 1, 1], [0, 0, 1], [1, 0, 0]])
WQ2 = np.array([[1, 0, 1], [0, 1, 0], [1, 0, 0], [0, 1, 1]])
W = np.array([
    [0.79445237, 0.1081456, 0.27411536, 0.78394531],
    [0.29081936, -0.36187258, -0.32312791, -0.48530339],
    [-0.36702934, -0.76471963, -0.88058366, -1.73713022],
    [-0.02305587, -0.64315981, -0.68306653, -1.25393866],
    [0.29077448, -0.04121674, 0.01509932, 0.13149906],
    [0.57451867, -0.08895355, 0.02190485, 0.24535932],
])  # fmt: skip

# The ten words, and the vectors that the text drew for them.
VOCABULARY = ["hello", "mundo", "world", "how", "?", "EOS", "SOS", "a", "hola", "c"]
INDEX = {word: i for i, word in enumerate(VOCABULARY)}
VECTORS = np.array([
    [-1.19489531, -1.08007463, 1.41277762, 0.72054139],
    [-0.70265064, -0.58361306, -1.7710761, 0.87478862],
    [0.52480342, 2.03519246, -0.45100608, -1.92472193],
    [-1.14693176, -1.55761929, 1.09607545, -0.21673596],
    [-0.23689522, -1.12496841, -0.03733462, -0.23477603],
    [0.5180958, -0.39844119, 0.30004136, 0.03881324],
    [2.00439161, 2.19477149, -0.84901634, -0.89269937],
    [1.63558337, -1.2556952, 1.65365362, 0.87639945],
    [-0.5805717, -0.93861149, 1.06847734, -0.34408367],
    [-2.79741142, 0.70521986, -0.44929098, -1.66167776],
])  # fmt: skip

# The text's sizes. No sentence here needs the word "c", so it can fill up short ones.
CONFIG = nn.EncoderDecoderConfig(
    source_vocab_size=10, target_vocab_size=10, d_model=4, num_heads=2, num_encoder_layers=6, num_decoder_layers=6,
    d_ff=8, dropout=0.0, norm_eps=1e-6, embeddings=nn.EmbeddingConfig(scale=False), max_len=16, pad_id=INDEX["c"], dtype="float64",
)  # fmt: skip

OPTIONS: dict[str, Any] = {"dropout": 0.0, "norm_eps": 1e-6, "dtype": "float64"}


# -- layers ----------------------------------------------------------------------------------------


def two_heads_of_3(rng: Rng | None = None) -> Any:
    """Return an attention layer of width 4, without biases, whose two heads have size 3.

    The library's heads divide the width of their layer. So it is made for width 6 = 2 · 3, and its last
    projection leads from there to 4.
    """
    sizes = dict.fromkeys(("query_size", "key_size", "value_size"), 4)
    layer = nn.ExtendedAttention(6, 2, **sizes, bias=False, dtype=float, generator=rng)
    layer.out_proj = nn.Linear(6, 4, bias=False, dtype=float, generator=rng)
    return layer


def at_text_size(module: Any, rng: Rng | None = None) -> Any:
    """Give a layer or model of CONFIG attention layers with heads of size 3, and return it."""
    for part in list(module.modules()):
        for name, child in list(part.named_children()):
            if isinstance(child, nn.MultiHeadAttention):
                setattr(part, name, two_heads_of_3(rng))
    return module


def randn(module: Any, rng: Rng) -> Any:
    """Draw weights and biases from N(0, 1), as the text does; norms keep γ = 1 and β = 0."""
    for part in module.modules():
        if isinstance(part, (nn.Linear, nn.Embedding)):
            for parameter in part.parameters():
                nn.init.normal_(parameter, generator=rng)
    return module


def encoder_layer(rng: Rng | None = None) -> Any:
    """Return an encoder layer with the sizes of the text."""
    return at_text_size(nn.ExtendedEncoderLayer(4, 2, 8, **OPTIONS, generator=rng), rng)


def decoder_layer(rng: Rng | None = None) -> Any:
    """Return a decoder layer with the sizes of the text."""
    return at_text_size(nn.ExtendedDecoderLayer(4, 2, 8, **OPTIONS, generator=rng), rng)


def random_encoder_block(x: Any, rng: Rng) -> Array:
    """Return the output (N, L, 4) of an encoder block with new random weights."""
    return randn(encoder_layer(), rng)(x).data


def random_decoder_block(x: Any, memory: Any, rng: Rng) -> Array:
    """Return the output (N, L, 4) of a decoder block with new random weights, for memory (N, L_m, 4)."""
    return randn(decoder_layer(), rng)(x, memory).data


def random_transformer(seed: int) -> nn.Transformer:
    """Return the model of the text: weights from N(0, 1), and the printed vectors of the words."""
    model = randn(at_text_size(nn.Transformer(CONFIG)), np.random.default_rng(seed))
    for embedding in (model.source_embedding, model.target_embedding):
        embedding.tokens.weight.data[...] = VECTORS
    return model


# -- use and training ------------------------------------------------------------------------------


def generate(
    model: nn.Transformer, words: Sequence[str], max_iters: int = 10
) -> list[tuple[str, float]]:
    """Return the likeliest words until EOS, each with its probability."""
    model.eval()
    sequence, found = [INDEX["SOS"]], []
    with mg.no_grad():
        memory = model.encode(
            np.array([[INDEX[word] for word in words]])
        )  # (1, L_s, d_model), once
        for _ in range(max_iters):
            hidden = model.decode(np.array([sequence]), memory)[
                :, -1
            ]  # (1, d_model), at the last word
            probs = mg.softmax(model.output(hidden)).data[0]  # (vocab,)
            sequence.append(int(probs.argmax()))
            found.append((VOCABULARY[sequence[-1]], float(probs.max())))
            if sequence[-1] == INDEX["EOS"]:
                break
    return found


def batch(pairs: Sequence[tuple[Sequence[str], Sequence[str]]]) -> tuple[Array, Array]:
    """Return source ids (N, L_s) and target ids (N, L_t), these from SOS to EOS."""
    sources = [[INDEX[word] for word in a] for a, _ in pairs]
    targets = [[INDEX[word] for word in ("SOS", *b, "EOS")] for _, b in pairs]
    return padded(sources, CONFIG.pad_id), padded(targets, CONFIG.pad_id)


def train(model: nn.Transformer, pairs: Sequence[Any], steps: int, lr: float = 1e-2) -> list[float]:
    """Train with Adam on all pairs at once, and return the loss of each step."""
    source, target = batch(pairs)
    optimizer = Adam(model.parameters(), lr, clip_norm=1.0)
    schedule = Schedule(optimizer, cosine_schedule(steps, steps // 20))
    losses = []
    for _ in range(steps):
        loss = model.loss(
            source, target
        )  # cross-entropy of each word of the target, given those before it
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    return losses


def exact_matches(model: nn.Transformer, pairs: Sequence[Any]) -> Array:
    """Return which sentences are translated without an error, (N,) of bool.

    A sentence whose every word is the likeliest after the right words before it is the one that
    `generate` gives, so that all can be judged at once.
    """
    source, target = batch(pairs)
    model.eval()
    with mg.no_grad():
        best = model(source, target[:, :-1]).data.argmax(-1)  # (N, L_t - 1)
    return ((best == target[:, 1:]) | (target[:, 1:] == CONFIG.pad_id)).all(1)
