"""Optimizers and learning-rate schedules."""

import typing as _typing

from . import schedules as lr_scheduler  # its name in PyTorch
from .adam import Adam as Adam
from .adam import AdamW as AdamW
from .optimizer import Optimizer as Optimizer
from .optimizer import clip_grad_norm_ as clip_grad_norm_
from .schedules import *
from .sgd import SGD as SGD

if not _typing.TYPE_CHECKING:  # type checkers report a missing name

    def __getattr__(name: str) -> _typing.NoReturn:
        from ..advice import missing

        missing("minigrad.optim", name)
