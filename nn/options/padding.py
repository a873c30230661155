"""Warnings of padding that a model would read as text."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..config import ModelConfig


def warn_of_padding(name: str, ids: Any, config: ModelConfig) -> None:
    """Warn if rows begin or end with several tokens that are both `pad_id` and in `eos_id`."""
    ids = np.asarray(ids)
    if config.pad_id is None or config.pad_id not in config.end_ids or ids.shape[1] < 2:
        return
    for first, second in ((0, 1), (-1, -2)):
        if ((ids[:, first] == config.pad_id) & (ids[:, second] == config.pad_id)).any():
            warnings.warn(
                f"{name}: padding is treated as text, because pad_id ({config.pad_id}) is one of "
                "eos_id; pass a padding_mask",
                stacklevel=4,
            )
            return


def warn_of_batch(model: Any, batch: Sequence[Any]) -> None:
    """Warn of padding in the token ids of a batch, the arguments of a loss, without a mask."""
    config = getattr(model, "config", None)
    if isinstance(config, ModelConfig) and not any(np.asarray(x).dtype == bool for x in batch):
        for ids in batch:
            if np.ndim(ids) == 2 and np.asarray(ids).dtype.kind in "iu":
                warn_of_padding(type(model).__name__, ids, config)
