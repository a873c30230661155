"""Training: the trainer, its objectives, its batches, its checkpoints."""

import typing as _typing

from minigrad.check.namespace import namespace as _namespace

from ..text.batches import Batches, WindowBatches, as_batches
from .averaging import *
from .checkpoint import *
from .objectives import *
from .progress import *
from .trainer import *

if not _typing.TYPE_CHECKING:
    __all__, _, __dir__ = _namespace(__name__)
