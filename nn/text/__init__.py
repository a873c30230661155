"""Tokenizers, vocabularies, sentence pairs and batches of token ids."""

import typing as _typing

from minigrad.check.namespace import namespace as _namespace

from .batches import *
from .huggingface import *
from .loading import *
from .pairs import *
from .scores import *
from .tokenize import *
from .vocabulary import *

if not _typing.TYPE_CHECKING:
    __all__, _, __dir__ = _namespace(__name__)
