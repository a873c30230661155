"""Images in which a sign in a corner decides what is marked, and a small encoder that segments them."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from exercises.segmentation import iou, patches

import minigrad as mg
import nn
from minigrad import optim

SIZE, PATCH = 12, 2  # pixels of an image and of a patch, in each direction
SIDE = SIZE // PATCH  # 6 x 6 patches
CLASSES = ("background", "marked", "other")
COLOURS = np.array(
    [[0.9, 0.2, 0.2], [0.2, 0.8, 0.3], [0.25, 0.35, 0.95], [0.9, 0.8, 0.2]]
)  # red, green, blue, yellow
D_MODEL, HEADS, LAYERS = 32, 2, 2
STEPS, BATCH, PASSES = 500, 8, 4


class Scenes(NamedTuple):
    """Images with the class of each pixel."""

    images: np.ndarray  # (n, 12, 12, 3)
    classes: np.ndarray  # (n, 12, 12)
    shapes: (
        np.ndarray
    )  # (n, 12, 12), the shape that a pixel shows: 1, 2, 3, or 0 for the background
    signs: np.ndarray  # (n,), the patch that is the sign


@lru_cache
def make_scenes(n: int, seed: int, turn: int = 0) -> Scenes:
    """Return images of three shapes of different colours, which overlap, and a sign in one corner.

    The sign has the colour of one shape. This shape is "marked" and the others are "other"; the sign itself is
    background.

    Parameters
    ----------
    n : int
        Number of images.
    seed : int
        Seed of everything random.
    turn : int
        1 gives the sign the colour of the next shape and 2 of the one after; nothing else changes.

    Returns
    -------
    Scenes
    """
    rng = np.random.default_rng(seed)
    made = Scenes(
        np.full((n, SIZE, SIZE, 3), 0.1),
        *(np.zeros((n, SIZE, SIZE), int) for _ in range(2)),
        np.zeros(n, int),
    )
    for i, (image, classes, shapes) in enumerate(zip(*made[:3])):
        colours = COLOURS[rng.permutation(len(COLOURS))[:3]]
        marked = (rng.integers(3) + turn) % 3
        for shape, colour in enumerate(colours):
            inside = _draw_shape(rng)
            image[inside], shapes[inside] = colour, shape + 1
            classes[inside] = 1 if shape == marked else 2
        row, column = rng.integers(2, size=2) * (SIDE - 1)
        made.signs[i] = row * SIDE + column
        paint(image, made.signs[i], colours[marked])
    return made._replace(
        images=(made.images + rng.normal(0, 0.1, made.images.shape)).astype(np.float32)
    )


def _draw_shape(rng: np.random.Generator) -> np.ndarray:
    """Return the pixels (12, 12) of a disk, a rectangle or a triangle away from the border."""
    radius = SIZE * rng.uniform(0.16, 0.28)
    cy, cx = rng.uniform(1.5 + radius, SIZE - 2.5 - radius, 2)
    y, x = np.mgrid[:SIZE, :SIZE]
    kind = rng.integers(3)
    if kind == 0:
        return (y - cy) ** 2 + (x - cx) ** 2 <= radius**2
    if kind == 1:
        return (abs(y - cy) <= radius) & (abs(x - cx) <= 0.7 * radius)
    return (y - cy <= radius) & (abs(x - cx) <= (y - cy + radius) / 2)


def paint(image: np.ndarray, patch: int, colour: Any) -> None:
    """Give all pixels of a patch this colour."""
    row, column = PATCH * (patch // SIDE), PATCH * (patch % SIDE)
    image[row : row + PATCH, column : column + PATCH] = colour


def by_patch(values: np.ndarray) -> np.ndarray:
    """Return one value for each pixel, (N, 12, 12), as patches (N, 36, 4)."""
    return patches(values[..., None], PATCH)


def by_pixel(tokens: np.ndarray) -> np.ndarray:
    """Return patches (N, 36, 4) as one value for each pixel, (N, 12, 12)."""
    return tokens.reshape(-1, SIDE, SIDE, PATCH, PATCH).swapaxes(2, 3).reshape(-1, SIZE, SIZE)


def mean_iou(predicted: np.ndarray, truth: np.ndarray) -> float:
    """Return the mean over the classes of intersection over union."""
    return float(np.mean([iou(predicted, truth, c) for c in range(len(CLASSES))]))


def positions_2d(side: int, d_model: int) -> np.ndarray:
    """Return positions (side², d_model) of patches: half of the columns for the row, half for the column."""
    table = nn.sinusoidal_table(side, d_model // 2)  # (side, d/2)
    rows, columns = np.repeat(table, side, 0), np.tile(table, (side, 1))  # (side², d/2) each
    return np.concatenate([rows, columns], 1)  # (side², d)


class Segmenter(nn.Module):
    """Encoder of patches, with scores of the classes for each pixel of a patch.

    Parameters
    ----------
    mask : array of bool, shape (36, 36)
        True where a patch (row) may attend to a patch (column).
    generator : numpy.random.Generator
        Source of the first weights.
    layers : int
        Number of encoder layers.
    """

    def __init__(
        self, mask: np.ndarray, generator: np.random.Generator, layers: int = LAYERS
    ) -> None:
        config = nn.EncoderConfig(
            0, D_MODEL, HEADS, layers, 2 * D_MODEL, dropout=0.0, norm_first=True
        )
        self.mask = mask
        self.register_buffer("positions", positions_2d(SIDE, D_MODEL).astype(np.float32))
        self.embedding = nn.Linear(PATCH * PATCH * 3, D_MODEL)
        self.encoder = nn.Encoder(config, layers)
        self.output = nn.Linear(D_MODEL, PATCH * PATCH * len(CLASSES))
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight, generator=generator)
                nn.init.zeros_(module.bias)

    def forward(self, images: np.ndarray) -> mg.Tensor:
        """Return scores (N, 36, 4, 3) of images (N, 12, 12, 3)."""
        colours = (patches(images, PATCH) - 0.3) * 3  # (N, 36, 12), roughly from -1 to 2
        x = self.embedding(colours) + self.positions  # (N, 36, d)
        scores = self.output(self.encoder(x, self.mask))  # (N, 36, 4 · 3)
        return scores.reshape(*scores.shape[:2], PATCH * PATCH, len(CLASSES))

    def predict(self, images: np.ndarray) -> np.ndarray:
        """Return the likeliest class of each pixel, (N, 12, 12)."""
        with mg.no_grad():
            return by_pixel(self(images).data.argmax(-1))

    def attention(self, images: np.ndarray) -> np.ndarray:
        """Return the weights of all heads of all layers, (layers, N, h, 36, 36)."""
        with mg.no_grad(), nn.record_attention(self) as recorded:
            self(images)
        return np.stack([calls[0] for calls in recorded.values()])


def train(mask: np.ndarray, seed: int = 0, layers: int = LAYERS) -> Segmenter:
    """Return a trained model; its images do not depend on `mask` or `layers`."""
    model = Segmenter(mask, np.random.default_rng(seed), layers)
    optimizer = optim.Adam(model.parameters(), lr=5e-3, clip_norm=1.0)
    schedule = optim.Schedule(optimizer, optim.cosine_schedule(STEPS, warmup=20))
    images, classes, _, _ = make_scenes(STEPS * BATCH // PASSES, seed + 1)
    rng = np.random.default_rng(seed)
    order = np.concatenate([rng.permutation(len(images)) for _ in range(PASSES)])
    for batch in order.reshape(STEPS, BATCH):
        loss = mg.cross_entropy(model(images[batch]), by_patch(classes[batch]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return model
