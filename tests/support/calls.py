"""Print the functions and lambdas of the book that programs call, as JSON: [file, line, column].

    python tests/support/calls.py alone|library|definitions "PROGRAM [ARGUMENT ...]" ...

"alone" runs the programs with the book alone. The others let them import the whole library, and
"definitions" calls the definitions of functions that have kernels. Calls that imports make do not
count.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import runpy
import shlex
import sys
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).parents[2]
BOOK = sorted(
    path
    for directory in ("minigrad", "minigrad/ops", "nn")
    for path in (ROOT / directory).glob("*.py")
    if not path.stem.startswith("__")
)
"""The files of the book."""

FILES = {str(path) for path in BOOK}


def is_import(frame: FrameType | None) -> bool:
    """Return whether a module is being imported."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def key_of(code: CodeType) -> tuple[str, int, int]:
    """Return the file of a function, and the line and column of its first expression."""
    first = code.co_firstlineno
    positions = [(first, 0)]
    if code.co_name == "<lambda>":  # several may begin on one line
        positions = [
            (line, column) for line, _, column, _ in code.co_positions() if line and column
        ]
    return code.co_filename, *min(positions)


def main(mode: str, *lines: str) -> None:
    called: set[CodeType] = set()

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        is_new = event == "call" and code not in called and code.co_filename in FILES
        if is_new and code.co_name != "<module>" and not is_import(frame):
            called.add(code)

    sys.path.insert(0, str(ROOT))
    definitions: Any = contextlib.nullcontext()
    if mode == "alone":
        sys.path.insert(0, str(ROOT / "examples/book"))
        importlib.import_module("alone")
    else:
        import minigrad
        import nn  # noqa: F401

        definitions = minigrad.use_definitions() if mode == "definitions" else definitions
    with contextlib.redirect_stdout(io.StringIO()), definitions:
        for line in lines:
            sys.argv = shlex.split(line)
            sys.path.insert(0, str(Path(sys.argv[0]).parent))
            sys.setprofile(profile)
            try:
                runpy.run_path(sys.argv[0], run_name="__main__")
            finally:
                sys.setprofile(None)
    print(json.dumps(sorted(map(key_of, called))))


if __name__ == "__main__":
    main(*sys.argv[1:])
