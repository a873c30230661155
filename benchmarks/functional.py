"""Training step on any library with NumPy's functions: for JAX, HIPS autograd and MyGrad."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
from sizes import CLIP, LR, SIZES, SMOOTHING, Size


def parameters(s: Size) -> dict[str, Any]:
    """Return float32 parameters by name."""
    rng = np.random.default_rng(0)
    d = s.d_model
    made: dict[str, Any] = {}

    def linear(name: str, n_in: int, n_out: int) -> None:
        made[f"{name}.w"] = (rng.standard_normal((n_in, n_out)) * n_in**-0.5).astype(np.float32)
        made[f"{name}.b"] = np.zeros(n_out, np.float32)

    def norm(name: str) -> None:
        made[f"{name}.w"], made[f"{name}.b"] = np.ones(d, np.float32), np.zeros(d, np.float32)

    for side in ("source", "target"):
        made[side] = (rng.standard_normal((s.vocab, d)) * d**-0.5).astype(np.float32)
    for i in range(s.layers):
        for stack, kinds in (("enc", ["self"]), ("dec", ["self", "cross"])):
            for kind in kinds:
                for part in "qkvo":
                    linear(f"{stack}{i}.{kind}.{part}", d, d)
                norm(f"{stack}{i}.{kind}.norm")
            linear(f"{stack}{i}.up", d, s.d_ff)
            linear(f"{stack}{i}.down", s.d_ff, d)
            norm(f"{stack}{i}.norm")
    linear("out", d, s.vocab)
    return made


class Model:
    """Compute the forward pass with the library `xp`; `random(shape)` draws uniform float32."""

    def __init__(self, s: Size, xp: Any, random: Any) -> None:
        self.s, self.xp, self.random = s, xp, random
        place, k = np.arange(s.length)[:, None], np.arange(s.d_model // 2) * 2 / s.d_model
        angles = place / 10000**k
        table = np.stack([np.sin(angles), np.cos(angles)], -1).reshape(s.length, s.d_model)
        self.positions = table.astype(np.float32)
        self.causal = np.where(np.tri(s.length, dtype=bool), 0, -1e9).astype(np.float32)

    def dropout(self, x: Any) -> Any:
        p = self.s.dropout
        return x * ((self.random(x.shape) >= p) * np.float32(1 / (1 - p))) if p else x

    def linear(self, p: Any, name: str, x: Any) -> Any:
        return self.xp.matmul(x, p[f"{name}.w"]) + p[f"{name}.b"]

    def norm(self, p: Any, name: str, x: Any) -> Any:
        centred = x - self.xp.mean(x, axis=-1, keepdims=True)
        var = self.xp.mean(centred * centred, axis=-1, keepdims=True)
        return centred / self.xp.sqrt(var + np.float32(1e-5)) * p[f"{name}.w"] + p[f"{name}.b"]

    def attention(self, p: Any, name: str, x: Any, memory: Any, mask: Any) -> Any:
        n, h, d = self.s.batch, self.s.num_heads, self.s.d_model // self.s.num_heads

        def heads(part: str, y: Any, axes: tuple[int, ...]) -> Any:
            return self.xp.transpose(
                self.xp.reshape(self.linear(p, f"{name}.{part}", y), (n, -1, h, d)), axes
            )

        q, v = heads("q", x, (0, 2, 1, 3)), heads("v", memory, (0, 2, 1, 3))
        scores = self.xp.matmul(q, heads("k", memory, (0, 2, 3, 1))) * np.float32(d**-0.5) + mask
        e = self.xp.exp(scores - self.xp.max(scores, axis=-1, keepdims=True))
        weights = self.dropout(e / self.xp.sum(e, axis=-1, keepdims=True))
        merged = self.xp.reshape(
            self.xp.transpose(self.xp.matmul(weights, v), (0, 2, 1, 3)), (n, -1, h * d)
        )
        return self.linear(p, f"{name}.o", merged)

    def sublayer(self, p: Any, name: str, x: Any, update: Any) -> Any:
        return self.norm(p, name, x + self.dropout(update))

    def feed_forward(self, p: Any, name: str, x: Any) -> Any:
        up = self.linear(p, f"{name}.up", x)
        h = self.dropout(self.xp.maximum(up, np.float32(0)))
        return self.sublayer(p, f"{name}.norm", x, self.linear(p, f"{name}.down", h))

    def loss(self, p: Any, source: np.ndarray, target: np.ndarray) -> Any:
        s, scale = self.s, np.float32(self.s.d_model**0.5)
        padding = np.where(source != 0, 0, -1e9).astype(np.float32)[:, None, None]
        x = self.dropout(p["source"][source] * scale + self.positions)
        y = self.dropout(p["target"][target[:, :-1]] * scale + self.positions)
        for i in range(s.layers):
            x = self.sublayer(
                p, f"enc{i}.self.norm", x, self.attention(p, f"enc{i}.self", x, x, padding)
            )
            x = self.feed_forward(p, f"enc{i}", x)
        for i in range(s.layers):
            y = self.sublayer(
                p, f"dec{i}.self.norm", y, self.attention(p, f"dec{i}.self", y, y, self.causal)
            )
            y = self.sublayer(
                p, f"dec{i}.cross.norm", y, self.attention(p, f"dec{i}.cross", y, x, padding)
            )
            y = self.feed_forward(p, f"dec{i}", y)
        logits = self.xp.reshape(self.linear(p, "out", y), (-1, s.vocab))
        top = self.xp.max(logits, axis=-1, keepdims=True)
        lse = self.xp.log(self.xp.sum(self.xp.exp(logits - top), axis=-1)) + top[:, 0]
        chosen = logits[np.arange(len(logits)), target[:, 1:].reshape(-1)]
        each = lse - (1 - SMOOTHING) * chosen - SMOOTHING * self.xp.mean(logits, axis=-1)
        return self.xp.mean(each)


def adam(
    p: dict[str, Any], g: dict[str, Any], m: dict[str, Any], v: dict[str, Any], t: Any, xp: Any
) -> Any:
    """Clip the gradients' norm and take a step; return new parameters and averages."""
    norm = xp.sqrt(sum(xp.sum(a * a) for a in g.values()))
    factor = xp.minimum(1.0, CLIP / (norm + 1e-6))
    for name in p:
        c = g[name] * factor
        m[name] = 0.9 * m[name] + 0.1 * c
        v[name] = 0.999 * v[name] + 0.001 * c * c
        p[name] = p[name] - LR * (m[name] / (1 - 0.9**t)) / (
            xp.sqrt(v[name] / (1 - 0.999**t)) + 1e-8
        )
    return p, m, v


def training_step(
    size: str,
    changes: dict[str, int],
    xp: Any,
    gradients: Callable[[Callable[[Any], Any], Any], Any],
) -> Callable[[], None]:
    """Return a training step: forward with dropout, smoothed loss, backward, clipping, Adam.

    `gradients(loss, p)` returns those of `loss` with respect to the parameters p, arrays by name.
    """
    s = SIZES[size]._replace(**changes)
    source, target = s.data()
    rng = np.random.Generator(np.random.SFC64(0))
    model = Model(s, xp, lambda shape: rng.random(shape, np.float32))
    p = parameters(s)
    m, v = ({name: np.zeros_like(array) for name, array in p.items()} for _ in range(2))
    steps = itertools.count(1)

    def step() -> None:
        adam(p, gradients(lambda q: model.loss(q, source, target), p), m, v, next(steps), np)

    return step
