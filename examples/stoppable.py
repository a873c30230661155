"""Imported before all that takes a moment: Ctrl-C is one line and code 130 while a script still imports, too."""

import os
import sys
from types import TracebackType


def _ended(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """What Python does with an error that nobody caught, but for Ctrl-C, or what it made an import fail with."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, KeyboardInterrupt):
        cause = cause.__cause__ or cause.__context__
    if cause is None:
        return sys.__excepthook__(kind, error, trace)
    os.write(2, b"interrupted\n")
    os._exit(130)


sys.excepthook = _ended
