"""Asking at a terminal, line after line."""

from __future__ import annotations

import sys
from collections.abc import Iterator


def asked(sign: str) -> Iterator[str]:
    """What is typed after `sign`, until an empty line or the end of the input. Ctrl-C ends the script."""
    while True:
        try:
            line = input(sign).strip()
        except (EOFError, KeyboardInterrupt) as error:
            print(file=sys.stderr)  # what follows is in a line of its own
            if isinstance(error, KeyboardInterrupt):
                raise
            return
        if not line:
            return
        yield line
