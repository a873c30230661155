"""Schedules of `torch.optim.lr_scheduler`: those of `minigrad.optim`."""

from typing import TYPE_CHECKING

from minigrad.check.namespace import namespace
from minigrad.optim.lr_scheduler import (
    CosineAnnealingLR,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    MultiStepLR,
    OneCycleLR,
    ReduceLROnPlateau,
    SequentialLR,
    StepLR,
)

__all__ = [
    "CosineAnnealingLR", "ExponentialLR", "LambdaLR", "LinearLR", "MultiStepLR", "OneCycleLR",
    "ReduceLROnPlateau", "SequentialLR", "StepLR",
]  # fmt: skip

if not TYPE_CHECKING:  # type checkers report a missing name
    __all__, __getattr__, __dir__ = namespace(__name__)
