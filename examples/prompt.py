"""Asking at a terminal, line after line."""

from __future__ import annotations

import sys
from collections.abc import Iterator


def asked(sign: str) -> Iterator[str]:
    """What is typed after `sign`, until an empty line, the end of the input, or Ctrl-C."""
    while True:
        try:
            line = input(sign).strip()
        except (EOFError, KeyboardInterrupt):
            print(file=sys.stderr)  # the shell goes on in a line of its own
            return
        if not line:
            return
        yield line
