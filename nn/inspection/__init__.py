"""Inspection of models: hidden states, attributions, plots, and the attention explorer."""

import typing as _typing

from minigrad.check.namespace import namespace as _namespace

from .explorer import *
from .hidden_states import *

if not _typing.TYPE_CHECKING:
    __all__, _, __dir__ = _namespace(__name__)
