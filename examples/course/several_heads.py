"""A task for four heads, and small layers that attend with one head or with several."""

from __future__ import annotations

import numpy as np

import minigrad as mg
import nn
from minigrad import merge_heads, optim, split_heads
from minigrad.ops.attention import attention_weights

LENGTH, FEATURES = 8, 16


def shifted(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return sequences, and what a layer should make of them.

    The first four features of a target are those of the input one position before, the next four those of two
    positions before, and so on. Before the first position comes the last.

    Returns
    -------
    inputs : array of float32, shape (n, 8, 24)
        Sixteen random features, and the position as one of eight.
    targets : array of float32, shape (n, 8, 16)
    """
    x = rng.standard_normal((n, LENGTH, FEATURES)).astype(np.float32)
    parts = [np.roll(part, shift, 1) for shift, part in enumerate(np.split(x, 4, -1), 1)]
    position = np.broadcast_to(np.eye(LENGTH, dtype=np.float32), (n, LENGTH, LENGTH))
    return np.concatenate([x, position], -1), np.concatenate(parts, -1)


class Heads(nn.Module):
    """Attention from inputs (N, 8, 24) to outputs (N, 8, 16).

    Parameters
    ----------
    kind : {"split", "summed", "joined"}
        "split": the values are divided among the heads. Otherwise each head uses whole values, and the results are
        added up ("summed") or put side by side ("joined").
    generator : numpy.random.Generator
        Source of the first weights.
    heads : int
        Number of heads, 4 by default.
    size : int
        Size of the query and the key of a head, 8 by default.
    """

    def __init__(
        self, kind: str, generator: np.random.Generator, heads: int = 4, size: int = 8
    ) -> None:
        width = FEATURES + LENGTH
        self.kind, self.heads = kind, heads
        self.q_proj, self.k_proj = (
            nn.Linear(width, size * heads, generator=generator) for _ in range(2)
        )
        self.v_proj = nn.Linear(width, FEATURES, generator=generator)
        self.out_proj = nn.Linear(
            FEATURES * (heads if kind == "joined" else 1), FEATURES, generator=generator
        )

    def weights(self, x: np.ndarray) -> mg.Tensor:
        """Return the weights of attention (N, h, 8, 8)."""
        q, k = (split_heads(projection(x), self.heads) for projection in (self.q_proj, self.k_proj))
        return attention_weights(q, k)

    def forward(self, x: np.ndarray) -> mg.Tensor:
        """Return outputs (N, 8, 16)."""
        A, V = self.weights(x), self.v_proj(x)  # (N, h, L, L), (N, L, 16)
        if self.kind == "split":
            Z = merge_heads(A @ split_heads(V, self.heads))  # (N, L, h · 4)
        elif self.kind == "summed":
            Z = (A @ mg.expand_dims(V, 1)).sum(1)  # (N, L, 16)
        else:
            Z = merge_heads(A @ mg.expand_dims(V, 1))  # (N, L, h · 16)
        return self.out_proj(Z)


def make_alike(model: Heads) -> Heads:
    """Make all heads of a "split" layer copies of its first head, and return the layer."""
    for layer in (model.q_proj, model.k_proj, model.v_proj):
        rows = layer.weight.shape[0] // model.heads
        layer.weight.data[...] = np.tile(layer.weight.data[:rows], (model.heads, 1))
        layer.bias.data[...] = np.tile(layer.bias.data[:rows], model.heads)
    columns = FEATURES // model.heads
    first = model.out_proj.weight.data[:, :columns]
    model.out_proj.weight.data[...] = np.tile(first, (1, model.heads))
    return model


def learn(model: Heads, steps: int, seed: int = 0) -> float:
    """Train on `shifted`, and return the share of the variance of new targets that is not explained."""
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
    """Return the largest difference between the weights of the first head and of another."""
    A = model.weights(x).data
    return float(abs(A[:, :1] - A[:, 1:]).max())
