"""Functions of torch.nn.utils, for code that imports them from there.."""

from __future__ import annotations

from minigrad.optimizer import clip_grad_norm_

__all__ = ["clip_grad_norm_"]
