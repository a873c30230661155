"""`torch.amp`: mixed precision, which must not be enabled."""

from __future__ import annotations

from typing import Any

from ..tensor import Tensor
from .functions import autocast as autocast

__all__ = ["GradScaler", "autocast"]


class GradScaler:
    """Scaler of losses that changes nothing; it must not be enabled, as float32 needs none."""

    def __init__(self, device: Any = "cpu", *, enabled: bool = True, **options: Any) -> None:
        if enabled:
            raise ValueError(
                "GradScaler: enabled must be False, since there is no mixed precision; leave the "
                "scaler out"
            )

    def scale(self, outputs: Tensor) -> Tensor:
        """Return the loss."""
        return outputs

    def unscale_(self, optimizer: Any) -> None:
        """Change nothing."""

    def step(self, optimizer: Any) -> None:
        """Take a step of the optimizer."""
        optimizer.step()

    def update(self) -> None:
        """Change nothing."""
