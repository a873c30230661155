"""Images for published models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from minigrad.io.json import read_json

from ..text.hub import find_model

__all__ = ["pixels"]


def pixels(directory: str | Path, images: Any) -> np.ndarray:
    """Return images (N, C, H, W), scaled as `preprocessor_config.json` of a model describes.

    Parameters
    ----------
    directory : str or Path
        The directory of the model, or its name on the Hub, as in `nn.load`.
    images : array of uint8, shape (N, H, W, C)
        Values from 0 to 255, already in the size that the model expects. Pillow can resize images.
    """
    name = "preprocessor_config.json"
    settings = read_json(find_model(directory, [name]) / name)
    images = np.asarray(images)
    if images.dtype != np.uint8 or images.ndim != 4:
        raise ValueError(
            f"images must be uint8 (N, H, W, C), from 0 to 255, got {images.dtype} {images.shape}"
        )
    x = images.astype(np.float32)
    largest = 255.0
    if settings.flag("do_rescale", True):
        factor = settings.number("rescale_factor", 1 / 255, 1e-6, 1)
        x = x * np.float32(factor)
        largest *= factor
    if settings.flag("do_normalize", True):
        for name, low in (("image_mean", 0.0), ("image_std", 1e-6)):
            values = settings.list(name, float)
            count = x.shape[-1]
            if len(values) != count or min(values) < low or max(values) > largest + 1e-6:
                settings.fail(
                    name, f"a number for each of the {count} channels, from {low} to {largest:.4g}"
                )
        x = (x - np.float32(settings["image_mean"])) / np.float32(settings["image_std"])
    return np.ascontiguousarray(x.transpose(0, 3, 1, 2))
