"""Functions of `torch.nn.functional`: those of `nn.functional`."""

from typing import TYPE_CHECKING

from minigrad.check.namespace import namespace
from nn.functional import *
from nn.functional import __all__ as __all__

from ..names import by_keyword

if not TYPE_CHECKING:  # type checkers report a missing name
    globals().update({name: by_keyword(globals()[name]) for name in __all__})
    __all__, __getattr__, __dir__ = namespace(__name__)
