"""Command-line scripts: errors and signals as one line and an exit code, types of options."""

from __future__ import annotations

import argparse
import io
import math
import os
import re
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout, suppress
from functools import partial
from typing import Any, NoReturn

from minigrad.check.extras import MissingExtraError
from minigrad.fast.launcher import launched
from minigrad.fast.parallel import job
from minigrad.io.reading import MAX_LINE, printable
from minigrad.io.signals import ENDING, SignalHandlers, Terminated, terminate

CONTROLS = re.compile("[\0-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
"""Control characters, line separators, and lone surrogates, which no terminal can show."""
_USER_ERRORS = (
    OSError,
    ValueError,
    FloatingPointError,
    OverflowError,
    MemoryError,
    RuntimeError,
    MissingExtraError,
)


class Parser(argparse.ArgumentParser):
    """A parser whose errors show the beginning of a long argument."""

    def error(self, message: str) -> NoReturn:
        """Exit with code 2 after the usage and the message on standard error."""
        super().error(re.sub(r"\S{300,}", lambda word: printable(word[0]), message))


def run_script(main: Callable[[], Any]) -> int:
    """Call `main()` and return the exit code of the process: `sys.exit(run_script(main))`.

    Errors of the user's input (OSError, ValueError, FloatingPointError, OverflowError, MemoryError,
    RuntimeError, a missing extra) are printed as one line on standard error, and so is each
    warning. If mpiexec or srun started several ranks, only the first one prints. A rank that fails
    prints its error and ends the job.
    """
    place = launched()
    if place is None or place.size == 1:
        return _run(main)
    out, err = (io.StringIO(), io.StringIO()) if place.rank else (sys.stdout, sys.stderr)
    code = 1
    try:
        with redirect_stdout(out), redirect_stderr(err):
            code = _run(main)
    except SystemExit as stop:  # from argparse, which has printed the reason
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        print(traceback.format_exc(), end="", file=err)
    if code not in (0, 130):
        job.abort(code, err.getvalue() if isinstance(err, io.StringIO) else "")
    return code


def _number(low: float, kind: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return the `type` of an option of argparse: a number of at least `low`."""

    def number(text: str) -> Any:
        value = kind(text) if len(text) < 30 else math.inf
        if not low <= value < 1e15:
            raise argparse.ArgumentTypeError(f"must be at least {low}, got {text[:30]}")
        return value

    number.__name__ = kind.__name__  # argparse prints it
    return number


count = _number(1, int)
seed = _number(0, int)
amount = _number(0.0, float)


def piped() -> Iterator[str]:
    """Yield the lines of standard input, which must be UTF-8."""
    if isinstance(sys.stdin, io.TextIOWrapper):  # regardless of the locale
        sys.stdin.reconfigure(encoding="utf-8-sig", errors="strict")
    try:
        for number, line in enumerate(iter(partial(sys.stdin.readline, MAX_LINE + 1), ""), 1):
            if len(line) > MAX_LINE:
                raise ValueError(
                    f"standard input, line {number} must have at most {MAX_LINE:,} characters; "
                    "divide it"
                )
            yield line.strip()
    except UnicodeDecodeError as error:
        raise ValueError(f"standard input: not UTF-8 ({error.reason})") from None


def escaped(text: str, kept: str = "") -> str:
    """Return text for a terminal, with escapes for `CONTROLS` other than `kept`."""
    return CONTROLS.sub(
        lambda c: c[0] if c[0] in kept else c[0].encode("unicode_escape").decode(), text
    )


def note(text: str) -> None:
    """Print a line that is no result, on standard error."""
    print(text, file=sys.stderr, flush=True)


def _run(main: Callable[[], Any]) -> int:
    if sys.stdout is None:
        return _say("error: standard output is closed", 1)
    # replace closed streams by the null device
    sys.stdin = sys.stdin or open(os.devnull, encoding="utf-8")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):  # pipes of Windows are not UTF-8
        if isinstance(stream, io.TextIOWrapper) and not stream.encoding.lower().startswith("utf"):
            stream.reconfigure(encoding="utf-8")
    format_before = warnings.formatwarning
    warnings.formatwarning = lambda message, *_: f"warning: {' '.join(str(message).split())}\n"
    try:
        with SignalHandlers(ENDING, terminate, (signal.SIG_DFL,)):
            code = main()
            sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except Terminated as stop:
        return _say(stop.text, stop.code)
    except KeyboardInterrupt as stop:
        return _say(str(stop) or "interrupted", 130)
    except BrokenPipeError:
        return 1
    except _USER_ERRORS as error:
        return _say(f"error: {one_line(error)}", 1)
    finally:
        warnings.formatwarning = format_before
        try:
            sys.stdout.flush()
        except (OSError, ValueError):  # no reader, or a full disk: discard the remaining output
            with suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def one_line(error: BaseException) -> str:
    """Return the message of an error in one line, the file first if there is one."""
    text = str(error) or type(error).__name__
    if isinstance(error, OSError) and error.strerror:
        text = error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
    return " ".join(text.split())


def _say(text: str, code: Any) -> int:
    with suppress(OSError):  # standard error may be closed
        print(text, file=sys.stderr or io.StringIO(), flush=True)
    return int(code)
