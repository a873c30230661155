"""Optimizers and learning-rate schedules.

Keyword arguments of all optimizers, beside those that each describes. Those but `skip_nonfinite`
and `clip_norm` are settings of parameter groups, too:

- `clip_norm`: scale all gradients down together if their norm is larger.
- `maximize`: increase the loss instead of decreasing it.
- `amsgrad`, of `Adam` and `AdamW`: divide by the largest average of squares so far.
- `dampening`, of `SGD`: reduce the weight of new gradients in the momentum.
- `nesterov`, of `SGD`: use Nesterov momentum, that is momentum * m + g in place of m.
- `skip_nonfinite`: skip a step whose gradients are not all finite, and count it in
  `optimizer.stepper.skipped`, instead of raising a FloatingPointError.

A step that raises an error changes nothing. It raises an OverflowError if the dtype cannot
represent the new values.
"""

import typing as _typing

from ..check.namespace import namespace as _namespace
from ..optimizer import SGD as SGD
from ..optimizer import Adam as Adam
from ..optimizer import AdamW as AdamW
from ..optimizer import Optimizer as Optimizer
from .lr_scheduler import *
from .state import *

if not _typing.TYPE_CHECKING:  # type checkers report a missing name
    __all__, __getattr__, __dir__ = _namespace(__name__, "lr_scheduler")
