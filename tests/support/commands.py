"""Calls of commands in the process of the test."""

from __future__ import annotations

import io
import json
import shlex
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nn.commands.console import run_script


def call(main: Callable[[list[str]], Any], line: str | list[str]) -> SimpleNamespace:
    """Return the result of `main`, and its lines on standard output and error."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        result = main(shlex.split(line) if isinstance(line, str) else line)
    return SimpleNamespace(
        result=result, out=out.getvalue().splitlines(), err=err.getvalue().splitlines()
    )


def error_of(main: Callable[[list[str]], Any], line: str | list[str]) -> str:
    """Return the line with which `main` ends; usage and lines about the data may come before."""

    def code_of(argv: list[str]) -> Any:
        try:
            return run_script(lambda: main(argv))
        except SystemExit as stop:
            return stop.code

    done = call(code_of, line)
    assert done.result not in (0, None), f"{line} succeeds"
    assert "error: " in done.err[-1] and done.err[-1].isprintable(), done.err
    assert not any(word in line for word in ("rror", "Traceback") for line in done.err[:-1])
    return done.err[-1]


class Terminal(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self) -> bool:
        return True


def type_lines(monkeypatch: pytest.MonkeyPatch, *lines: str | type[BaseException]) -> None:
    """Replace standard input by a terminal at which these lines are typed, or exceptions raised."""
    typed = iter(lines)

    def answer(prompt: str = "") -> str:
        line = next(typed)
        if not isinstance(line, str):
            raise line
        return line

    monkeypatch.setattr("sys.stdin", Terminal())
    monkeypatch.setattr("builtins.input", answer)


def hide_packages(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Make imports of these packages fail."""
    for name in [*names, *(m for m in sys.modules if m.partition(".")[0] in names)]:
        monkeypatch.setitem(sys.modules, name, None)


def read_json(path: Path) -> Any:
    """Return the content of a JSON file."""
    return json.loads(path.read_text(encoding="utf-8"))
