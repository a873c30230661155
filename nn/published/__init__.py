"""Published models: loading, saving, sentence encoders, and adapters."""

import typing as _typing

from minigrad.check.namespace import namespace as _namespace

from .adapters import *
from .classifier import *
from .images import *
from .load import *
from .lora import *
from .save import *
from .sentence_encoder import *
from .sentence_transformers import *
from .weights import *

if not _typing.TYPE_CHECKING:
    __all__, _, __dir__ = _namespace(__name__)
