"""Forked processes of a test, which end in a bounded time."""

from __future__ import annotations

import os
import signal
import warnings
from collections.abc import Callable
from typing import Any


def fork(work: Callable[[], Any], seconds: int = 10) -> int:
    """Run `work` in a forked process, and return its id. SIGALRM ends it if it takes too long."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # threads of the test
        process = os.fork()
    if process == 0:
        code = 1
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(seconds)
            work()
            code = 0
        finally:
            os._exit(code)
    return process


def exit_code(process: int) -> int:
    """Wait for a process, and return its exit code, or minus the number of its signal."""
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
