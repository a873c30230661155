"""Functions of `torch.nn.utils.rnn`: padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import minigrad as mg
from minigrad import Tensor

__all__ = ["pad_sequence"]


def pad_sequence(
    sequences: Sequence[Any],
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> Tensor:
    """Stack sequences of several lengths, filled with padding; gradients pass."""
    if padding_side not in ("right", "left"):
        raise ValueError(f"padding_side must be 'right' or 'left', got {padding_side!r}")
    sequences = [mg.as_tensor(sequence) for sequence in sequences]
    length = max(len(sequence.data) for sequence in sequences)
    rows = []
    for sequence in sequences:
        shape = (length - len(sequence.data), *sequence.shape[1:])
        padding = mg.full(shape, padding_value, dtype=sequence.dtype)
        parts = [sequence, padding] if padding_side == "right" else [padding, sequence]
        rows.append(mg.concatenate(parts))
    return mg.stack(rows, 0 if batch_first else 1)
