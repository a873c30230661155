"""Functions of `torch.nn.functional`: those of `nn.functional`."""

import typing as _typing

from nn.functional import *
from nn.functional import __all__ as __all__

if not _typing.TYPE_CHECKING:  # type checkers report a missing name

    def __getattr__(name: str) -> _typing.NoReturn:
        from ...check.missing import missing

        missing(__name__, name)
