"""Functions of `torch.nn.utils`: those of `nn.utils`."""

from typing import TYPE_CHECKING

from minigrad.check.namespace import namespace
from nn.utils import *
from nn.utils import __all__ as __all__

from . import rnn as rnn

if not TYPE_CHECKING:  # type checkers report a missing name
    __all__, __getattr__, __dir__ = namespace(__name__, "rnn")
