"""From logits to sequences: greedy search, beam search, sampling; inference."""

import typing as _typing

from minigrad.check.namespace import namespace as _namespace

from .beam import *
from .rules import *
from .search import *
from .sequences import *
from .text_generation import *
from .translator import *

if not _typing.TYPE_CHECKING:
    __all__, _, __dir__ = _namespace(__name__)
