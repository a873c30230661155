"""Optimizers of `torch.optim`: those of `minigrad.optim`."""

from typing import TYPE_CHECKING

from minigrad.check.namespace import namespace
from minigrad.optim import SGD, Adam, AdamW, Optimizer

from . import lr_scheduler as lr_scheduler

__all__ = ["SGD", "Adam", "AdamW", "Optimizer", "lr_scheduler"]

if not TYPE_CHECKING:  # type checkers report a missing name
    __all__, __getattr__, __dir__ = namespace(__name__, "lr_scheduler")
