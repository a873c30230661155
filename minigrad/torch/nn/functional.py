"""Functions of `torch.nn.functional`: those of `nn.functional`."""

from typing import TYPE_CHECKING

from minigrad.check.namespace import namespace
from nn.functional import *
from nn.functional import __all__ as __all__

if not TYPE_CHECKING:  # type checkers report a missing name
    __all__, __getattr__, __dir__ = namespace(__name__)
