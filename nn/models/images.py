"""Images for published models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from minigrad.files.json import read_json

__all__ = ["pixels"]


def pixels(directory: str | Path, images: Any) -> np.ndarray:
    """What the model in a folder takes for images: float32 (N, C, H, W), from bytes (N, H, W, C).

    They are scaled and normalised as preprocessor_config.json says. Of the size that the model expects they must
    be already: resizing is left to what reads image files, such as Pillow.
    """
    settings, images = read_json(Path(directory) / "preprocessor_config.json"), np.asarray(images)
    if images.dtype != np.uint8 or images.ndim != 4:
        raise ValueError(f"pixels: expected bytes (N, H, W, C), from 0 to 255, got {images.dtype} {images.shape}")
    x = images.astype(np.float32)
    if settings.flag("do_rescale", True):
        x *= settings.number("rescale_factor", 1 / 255)
    if settings.flag("do_normalize", True):
        mean, std = (np.float32(settings.list(name, float)) for name in ("image_mean", "image_std"))
        for name, values in (("image_mean", mean), ("image_std", std)):
            if len(values) != x.shape[-1] or (values is std and (std <= 0).any()):
                settings.fail(name, f"a number for each of the {x.shape[-1]} channels, above 0 for image_std")
        x = (x - mean) / std
    return np.ascontiguousarray(x.transpose(0, 3, 1, 2))
