"""What scripts share: bad input and Ctrl-C are one line and an exit code; the numbers and lines
that a user gives.
"""

from __future__ import annotations

import argparse
import io
import math
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, redirect_stderr, redirect_stdout, suppress
from typing import Any

from .core.errors import MissingExtraError
from .launcher import launched
from .parallel import job
from .signals import ENDING, Terminated, handled, terminate

__all__ = ["amount", "begun", "count", "piped", "run_script", "seed"]

_OF_THE_USER = (
    OSError,
    ValueError,
    FloatingPointError,
    OverflowError,
    MemoryError,
    RuntimeError,
    MissingExtraError,
)


def run_script(main: Callable[[], Any]) -> int:
    """Call `main()`, and return the exit code of the process: `sys.exit(run_script(main))`.

    An error in what the user gave (OSError, ValueError, FloatingPointError, OverflowError,
    MemoryError, RuntimeError, a missing extra) is one line on standard error and code 1; Ctrl-C,
    SIGTERM and SIGHUP are one line and code 130, 143 and 129. A reader of standard output that has
    gone away (`| head`) ends the script quietly with code 1. An integer that `main` returns is the
    code.

    Of the ranks that mpiexec or srun started the first alone speaks. One that fails says so, and
    ends the job.
    """
    begun()
    place = launched()
    if place is None or place.size == 1:
        return _run(main)
    stderr = io.StringIO()  # of another rank, shown if it fails
    quiet = (redirect_stdout(io.StringIO()), redirect_stderr(stderr)) if place.rank else ()
    code = 1
    try:
        with ExitStack() as contexts:
            for context in quiet:
                contexts.enter_context(context)
            code = _run(main)
    except SystemExit as stop:  # of argparse, which has said why
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        stderr.write(traceback.format_exc())
    if code not in (0, 130):
        job.abort(code, stderr.getvalue())
    return code


def begun() -> None:
    """From here on Ctrl-C is a KeyboardInterrupt, whatever answered it while a script imported
    (`until_begun`).
    """
    if getattr(signal.getsignal(signal.SIGINT), "until_begun", False):
        signal.signal(signal.SIGINT, signal.default_int_handler)


def count(text: str, low: int = 1) -> int:
    """A whole number of at least 1: the `type` of an argument."""
    if not text.isdecimal() or len(text) > 15 or int(text) < low:
        raise argparse.ArgumentTypeError(
            f"expected a whole number of at least {low}, got {text[:30]!r}"
        )
    return int(text)


def seed(text: str) -> int:
    """A whole number of at least 0: the `type` of an argument."""
    return count(text, 0)


def amount(text: str) -> float:
    """A finite number of at least 0: the `type` of an argument."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError(f"expected a number of at least 0, got {text[:30]!r}")
    return number


def piped() -> Iterator[str]:
    """The lines of standard input, which must be UTF-8."""
    if isinstance(sys.stdin, io.TextIOWrapper):  # whatever the locale makes of other bytes
        sys.stdin.reconfigure(encoding="utf-8", errors="strict")
    try:
        for line in sys.stdin:
            yield line.strip()
    except UnicodeDecodeError as error:
        raise ValueError(f"standard input: not UTF-8 ({error.reason})") from None


def _run(main: Callable[[], Any]) -> int:
    if sys.stdout is None:
        _say("error: standard output is closed")
        return 1
    sys.stdin = sys.stdin or open(os.devnull, encoding="utf-8")  # noqa: SIM115 (closed: nothing to read)
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    try:
        with handled(ENDING, terminate, (signal.SIG_DFL,)):
            code = main()
            sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except Terminated as stop:
        _say(stop.text)
        return int(stop.code)  # type: ignore[arg-type]
    except KeyboardInterrupt as stop:
        _say(str(stop) or "interrupted")
        return 130
    except BrokenPipeError:
        return 1
    except _OF_THE_USER as error:
        _say(f"error: {one_line(error)}")
        return 1
    finally:
        try:
            sys.stdout.flush()
        except (
            OSError,
            ValueError,
        ):  # a reader that is gone, a full disk: what is left goes nowhere
            with suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def one_line(error: BaseException) -> str:
    """The message of an error in one line, the file first where there is one."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        text = f"{error.filename}: {error.strerror}"
    elif (
        isinstance(error, OSError) and error.strerror
    ):  # of a file without a name, such as standard output
        text = error.strerror
    else:
        text = str(error) or type(error).__name__
    return " ".join(text.split())


def _say(text: str) -> None:
    if sys.stderr is not None:
        with suppress(OSError):  # standard error may be gone too
            print(text, file=sys.stderr, flush=True)
