"""Imported before all that takes a moment: Ctrl-C is one line and code 130 while a script still imports, too."""

import os
import signal
import sys
from types import FrameType, TracebackType


def _at_once(number: int, frame: FrameType | None) -> None:
    """Answers Ctrl-C until `run_script` begins: an import may make another error of an exception, or forget it."""
    os.write(2, b"interrupted\n")
    os._exit(130)


def _ended(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """What Python does with an error that nobody caught, but for Ctrl-C, or what it made an import fail with."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, KeyboardInterrupt):
        cause = cause.__cause__ or cause.__context__
    if cause is None:
        sys.__excepthook__(kind, error, trace)
    else:
        _at_once(signal.SIGINT, None)


def _is_a_script_of_ours() -> bool:
    """Whether Python was started with a file of examples/ or docs/."""
    here = os.path.dirname(os.path.abspath(__file__))
    begun = os.path.abspath(sys.argv[0])
    return begun.startswith((here + os.sep, os.path.join(os.path.dirname(here), "docs", "")))


sys.excepthook = _ended
_at_once.until_begun = True  # type: ignore[attr-defined]
if _is_a_script_of_ours() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, _at_once)
