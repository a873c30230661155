"""Optimizers of `torch.optim`: those of `minigrad.optim`."""

import typing as _typing

from minigrad.optim import SGD, Adam, AdamW, Optimizer

from . import lr_scheduler as lr_scheduler

__all__ = ["SGD", "Adam", "AdamW", "Optimizer", "lr_scheduler"]

if not _typing.TYPE_CHECKING:  # type checkers report a missing name

    def __getattr__(name: str) -> _typing.NoReturn:
        from ...check.missing import missing

        missing(__name__, name)
