"""Chat templates: programs that come with a folder. Each is rendered by a process of its own, which
is ended in time.

jinja2's sandbox keeps a template from files and from Python's inside, the process from working or
growing without end.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen, TimeoutExpired
from typing import Any

from minigrad.extras import require
from minigrad.io.reading import printable

from .rendering import rendered

__all__ = ["render"]

SECONDS, MEMORY = 10.0, 1 << 30  # what a rendering may take: bytes beside what it is given
LONGEST = 100_000  # characters of a template
PROGRAM = Path(__file__).with_name("rendering.py")


def render(source: str, where: str, given: Mapping[str, Any]) -> str:
    """The text that a template makes of what is `given`: texts, numbers, lists and dicts.

    Whatever goes wrong in it, and a template that works or grows without end, is a ValueError that
    begins with `where`. Each call starts a process of Python, which takes 0.1 s. Where none can be
    started (in a browser, in a program packed into one file), the template is rendered in this
    process, without bounds.
    """
    if len(source) > LONGEST:
        raise ValueError(
            f"{where}: chat_template: expected at most {LONGEST:,} characters, got {len(source):,}"
        )
    require("jinja2.sandbox", "a chat template", "3.1.6")  # out of older sandboxes there are ways
    try:
        values = {name: _plain(value, name) for name, value in given.items()}
        path = [entry for entry in sys.path if isinstance(entry, str)]
        task = {
            "source": source,
            "given": values,
            "seconds": SECONDS,
            "memory": MEMORY,
            "path": path,
        }
        data = json.dumps(task, ensure_ascii=False).encode("utf-8", "surrogatepass")
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"chat: {error}") from None
    alone = sys.platform in ("emscripten", "wasi") or hasattr(sys, "frozen") or not sys.executable
    answer = (
        rendered(source, values) if alone or not PROGRAM.is_file() else _rendered_elsewhere(data)
    )
    what, _, text = answer.decode("utf-8", "surrogatepass").partition("\n")
    if what:
        raise ValueError(f"{where}: {what}: {printable(text, 1000)}")
    return text


def _plain(value: Any, name: str) -> Any:
    """The value, which must be such as JSON gives back exactly."""
    if isinstance(value, list):
        return [_plain(item, f"{name}[{i}]") for i, item in enumerate(value)]
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: _plain(item, f"{name}.{key}") for key, item in value.items()}
    if value is None or isinstance(value, (str, int, float)):
        return value
    expected = "a text, a number, None, a list or a dict whose keys are texts"
    raise TypeError(f"{name}: expected {expected}, got {type(value).__name__}: {value!r:.60}")


def _rendered_elsewhere(task: bytes) -> bytes:
    """What `rendered` returns, in a process of its own."""
    command = [sys.executable, "-I", "-S", str(PROGRAM)]
    with Popen(command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL) as process:
        try:
            answer, _ = process.communicate(task, timeout=SECONDS)
        except TimeoutExpired:
            return f"chat_template\nit takes more than {SECONDS:g} s (loops, or recursion, without a bound)".encode()
        finally:  # after Ctrl-C, too
            process.kill()
            process.wait()
    if process.returncode:
        return f"chat_template\nit ended the process that renders it (code {process.returncode})".encode()
    return answer
