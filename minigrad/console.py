"""How a script ends: bad input and Ctrl-C are one line and an exit code, never a traceback."""

from __future__ import annotations

import io
import os
import sys
import traceback
from collections.abc import Callable
from contextlib import ExitStack, redirect_stderr, redirect_stdout, suppress
from typing import Any

from .core.errors import MissingExtraError
from .launcher import launched
from .parallel import job

__all__ = ["run_script"]


def run_script(main: Callable[[], Any]) -> int:
    """Call `main()`, and return the exit code of the process: `sys.exit(run_script(main))`.

    An error in what the user gave (OSError, ValueError, FloatingPointError, MemoryError, RuntimeError, a
    missing extra) is one line on standard error and code 1, Ctrl-C one line and code 130. A reader of
    standard output that has gone away (`| head`) ends the script quietly with code 1. An integer that
    `main` returns is the code.

    Of the ranks that mpiexec or srun started the first alone speaks. One that fails says so, and ends the job.
    """
    place = launched()
    if place is None or place.size == 1:
        return _run(main)
    heard = io.StringIO()  # what another rank says is kept, in case that it fails
    quiet = (redirect_stdout(io.StringIO()), redirect_stderr(heard)) if place.rank else ()
    code = 1
    try:
        with ExitStack() as contexts:
            for context in quiet:
                contexts.enter_context(context)
            code = _run(main)
    except SystemExit as stop:  # of argparse, which has said why
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        heard.write(traceback.format_exc())
    if code not in (0, 130):
        job.abort(code, heard.getvalue())
    return code


def _run(main: Callable[[], Any]) -> int:
    if sys.stdout is None:
        _say("error: standard output is closed")
        return 1
    try:
        code = main()
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except KeyboardInterrupt as stop:
        _say(str(stop) or "interrupted")
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left to flush goes nowhere
        return 1
    except (OSError, ValueError, FloatingPointError, MemoryError, RuntimeError, MissingExtraError) as error:
        _say(f"error: {one_line(error)}")
        return 1


def one_line(error: BaseException) -> str:
    """The message of an error in one line, the file first where there is one."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        text = f"{error.filename}: {error.strerror}"
    elif isinstance(error, OSError) and error.strerror:  # of a file without a name, such as standard output
        text = error.strerror
    else:
        text = str(error) or type(error).__name__
    return " ".join(text.split())


def _say(text: str) -> None:
    if sys.stderr is not None:
        with suppress(OSError):  # standard error may be gone too
            print(text, file=sys.stderr, flush=True)
