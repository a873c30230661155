"""Models and attention weights for the tests of the explorer, and the data in its pages."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

import numpy as np

import nn

SOURCE = ["我", "有", "一只", "猫"]
TARGET = ["I", "have", "a", "cat", "<eos>"]
HOSTILE = [
    "<script>window.ran = 1</script>",
    "</script><img src=x onerror='window.ran = 1'>",
    "<!--<script>",
    "&lt;",
]


def random_weights(seed: int, layers: int, heads: int, queries: int, keys: int) -> list[np.ndarray]:
    """Return attention weights of each layer (heads, queries, keys), each row with a sum of 1."""
    exps = np.exp(np.random.default_rng(seed).normal(0, 3, (layers, heads, queries, keys)))
    return list(exps / exps.sum(-1, keepdims=True))


MAPS = {
    "encoder": random_weights(0, 2, 4, 4, 4),
    "decoder": random_weights(1, 2, 4, 5, 5),
    "cross": random_weights(2, 2, 4, 5, 4),
}


def data_of(page: str) -> dict[str, Any]:
    """Return the JSON data inside an explorer page."""
    [text] = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    return json.loads(text)  # type: ignore[no-any-return]


def stored_weights(text: str, *shape: int) -> np.ndarray:
    """Return weights of a page, which stores their roots in bytes."""
    return (np.frombuffer(base64.b64decode(text), np.uint8).reshape(shape) / 255.0) ** 2


def stored_vectors(text: str, *shape: int) -> np.ndarray:
    """Return float32 vectors of this shape from their base64 text."""
    return np.frombuffer(base64.b64decode(text), "<f4").reshape(shape)


def stored_gradients(entry: dict[str, Any], layer: int, *shape: int) -> np.ndarray:
    """Return gradients (heads, L_q, L_kv) of a map, which has signed roots without last zeros."""
    heads, queries, keys = shape
    roots = np.zeros(queries * heads * keys)
    stored = np.frombuffer(base64.b64decode(entry["layers"][layer]), np.int8)
    roots[: len(stored)] = stored / 127
    squares = entry["scale"] * roots * np.abs(roots)
    return squares.reshape(queries, heads, keys).swapaxes(0, 1)


def model_and_arguments(kind: str) -> tuple[Any, dict[str, Any]]:
    """Return a model, and the arguments of `explore` for it."""
    rng = np.random.default_rng(5)
    words = [f"w{i}" for i in range(12)]
    sizes: dict[str, Any] = {"d_model": 24, "num_heads": 4, "d_ff": 16}
    sequence = {"ids": [4, 5, 6, 7], "tokens": words[4:8]}
    if kind == "transformer":
        config = nn.EncoderDecoderConfig(
            12, 12, num_encoder_layers=2, num_decoder_layers=2, **sizes
        )
        target = {"target": [8, 9, 2], "target_tokens": ["w8", "w9", "<eos>"]}
        return nn.Transformer(config, rng), {**sequence, **target, "vocabulary": words}
    if kind == "masked language model":
        config = nn.EncoderConfig(12, num_layers=2, positions="relative", **sizes)
        return nn.MaskedLanguageModel(config, rng), {**sequence, "vocabulary": words}
    if kind == "language model":
        grouped = nn.AttentionConfig(num_kv_heads=2)
        lm = nn.DecoderOnlyConfig(12, num_layers=2, attention=grouped, positions="rotary", **sizes)
        return nn.LanguageModel(lm, rng), {**sequence, "vocabulary": words}
    scaled = nn.AttentionConfig(scale=1.0)
    encoder = nn.EncoderConfig(12, num_layers=2, attention=scaled, positions="relative", **sizes)
    return nn.EncoderModel(encoder, rng), sequence
