"""Optimizers and learning-rate schedules."""

import typing as _typing

from ..adam import Adam as Adam
from ..adam import AdamW as AdamW
from ..clipping import clip_grad_norm_ as clip_grad_norm_
from ..optimizer import Optimizer as Optimizer
from ..sgd import SGD as SGD
from ..torch.schedules import *

if not _typing.TYPE_CHECKING:  # type checkers report a missing name

    def __getattr__(name: str) -> _typing.NoReturn:
        from ..torch.missing import missing

        missing("minigrad.optim", name)
