"""Compare the model of lessons 1 and 2 with NumPy."""

from __future__ import annotations

import importlib
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import minigrad as mg
import nn

EXAMPLES = Path(__file__).parents[2] / "examples" / "course"


@pytest.fixture(scope="module")
def parts() -> Iterator[ModuleType]:
    sys.path.insert(0, str(EXAMPLES))
    try:
        yield importlib.import_module("random_transformer")
    finally:
        sys.path.remove(str(EXAMPLES))


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def normal(x: Any) -> Any:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6)


def block_in_numpy(state: dict[str, Any], x: Any, memory: Any = None) -> Any:
    """Compute a block of the text in NumPy, from a dict of weights."""

    def attend(name: str, x: Any, source: Any) -> Any:
        Q, K, V = (
            h @ state[f"{name}.{p}_proj.weight"].T
            for h, p in ((x, "q"), (source, "k"), (source, "v"))
        )
        heads = [
            softmax(Q[:, s] @ K[:, s].T / np.sqrt(3)) @ V[:, s] for s in (slice(0, 3), slice(3, 6))
        ]
        return np.hstack(heads) @ state[f"{name}.out_proj.weight"].T

    x = normal(x + attend("self_attention", x, x))
    if memory is not None:
        x = normal(x + attend("cross_attention", x, memory))
    W1, b1, W2, b2 = (
        state[f"feed_forward.linear{i}.{kind}"] for i in (1, 2) for kind in ("weight", "bias")
    )
    return normal(x + np.maximum(x @ W1.T + b1, 0) @ W2.T + b2)


def test_random_transformer_equals_numpy(parts: ModuleType) -> None:
    model = parts.random_transformer(5).eval()
    assert model.num_parameters() == 2 * 40 + 6 * (96 + 76 + 16) + 6 * (2 * 96 + 76 + 24) + 50
    table = nn.sinusoidal_table(4, 4)
    memory = parts.VECTORS[[0, 2]] + table[:2]
    for layer in model.encoder.layers:
        memory = block_in_numpy(layer.state_dict(), memory)
    np.testing.assert_allclose(model.encode(np.array([[0, 2]])).data[0], memory, atol=1e-9)
    x = parts.VECTORS[[6]] + table[:1]  # SOS
    for layer in model.decoder.layers:
        x = block_in_numpy(layer.state_dict(), x, memory)
    logits = x @ model.output.weight.data.T + model.output.bias.data
    word, probability = parts.generate(model, ["hello", "world"], max_iters=1)[0]
    assert word == parts.VOCABULARY[int(logits.argmax())]
    assert probability == pytest.approx(float(softmax(logits).max()), rel=1e-9)


def test_exact_matches_equal_generate(parts: ModuleType) -> None:
    ended = 0
    for seed in range(12):
        model, source = parts.random_transformer(seed), ["hello", "world"]
        said = [word for word, _ in parts.generate(model, source, max_iters=4)]
        pairs = [
            (source, list(t))
            for n in (0, 1, 2)
            for t in itertools.product(["hola", "mundo", "a"], repeat=n)
        ]
        pairs += [(source, said[:-1])] * (said[-1] == "EOS")
        right = parts.exact_matches(model, pairs)
        assert right.tolist() == [[*target, "EOS"] == said for _, target in pairs]
        ended += right.any()
    assert 0 < ended < 12


def test_randn_keeps_norms(parts: ModuleType) -> None:
    layer = parts.randn(parts.decoder_layer(), np.random.default_rng(0))
    for name, p in layer.named_parameters():
        if "norm" in name:
            assert set(np.unique(p.data)) == ({1.0} if name.endswith("weight") else {0.0})
    drawn = np.concatenate(
        [p.data.ravel() for name, p in layer.named_parameters() if "norm" not in name]
    )
    assert drawn.size == 2 * 96 + 76
    assert abs(drawn.mean()) < 0.2 and abs(drawn.std() - 1) < 0.15


def test_train_lowers_its_loss(parts: ModuleType) -> None:
    rng = np.random.default_rng(0)
    model = nn.Transformer(parts.CONFIG, rng)
    pairs = [(["hello"], ["hola"])]
    source, target = parts.batch(pairs)
    assert source.tolist() == [[0]] and target.tolist() == [[6, 8, 5]]
    with mg.no_grad():
        logits = model(source, target[:, :-1]).data[0]
    first = -np.log(softmax(logits)[[0, 1], [8, 5]]).mean()
    losses = parts.train(model, pairs, 20)
    assert losses[0] == pytest.approx(first, rel=1e-9)
    assert losses[-1] < losses[0]
