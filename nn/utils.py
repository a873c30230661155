"""Functions of torch.nn.utils."""

from __future__ import annotations

from minigrad.optim import clip_grad_norm_

__all__ = ["clip_grad_norm_"]
