"""Copies of models for inference: frozen, with fused layers, in float32 or int8."""

import typing as _typing

from minigrad.check.namespace import namespace as _namespace

from .copies import *

if not _typing.TYPE_CHECKING:
    __all__, _, __dir__ = _namespace(__name__)
