"""Images for published models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from minigrad.io.json import read_json

__all__ = ["pixels"]


def pixels(directory: str | Path, images: Any) -> np.ndarray:
    """What the model in a folder takes for images: float32 (N, C, H, W), from bytes (N, H, W, C).

    They are scaled and normalised as preprocessor_config.json says. Of the size that the model
    expects they must be already: resizing is left to what reads image files, such as Pillow.
    """
    settings, images = read_json(Path(directory) / "preprocessor_config.json"), np.asarray(images)
    if images.dtype != np.uint8 or images.ndim != 4:
        raise ValueError(
            f"pixels: expected bytes (N, H, W, C), from 0 to 255, got {images.dtype} {images.shape}"
        )
    x, most = images.astype(np.float32), 255.0
    if settings.flag("do_rescale", True):
        factor = settings.number("rescale_factor", 1 / 255, 1e-6, 1)
        x, most = x * np.float32(factor), most * factor
    if settings.flag("do_normalize", True):
        for name in ("image_mean", "image_std"):
            values, low = settings.list(name, float), 1e-6 if name == "image_std" else 0
            if len(values) != x.shape[-1] or not all(
                low <= value <= most + 1e-6 for value in values
            ):
                settings.fail(
                    name,
                    f"a number for each of the {x.shape[-1]} channels, from {low} to {most:.4g}",
                )
        x = (x - np.float32(settings["image_mean"])) / np.float32(settings["image_std"])
    return np.ascontiguousarray(x.transpose(0, 3, 1, 2))
