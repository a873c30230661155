"""Chat templates of published models, rendered in jinja2's sandbox.

A template is a program that comes with a model. The sandbox keeps it from files and from Python's
internals, as in transformers. It does not limit time or memory: a template can loop for hours or
build a string that fills the memory. Render templates of strangers in a process with limits.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from minigrad.check.extras import require
from minigrad.io.reading import printable

__all__ = ["render"]

LONGEST = 100_000
"""Number of characters of a template."""


def render(source: str, where: str, variables: Mapping[str, Any]) -> str:
    """Render a chat template, without limits of time and memory, or raise a ValueError.

    `source` has at most 100,000 characters, and `where` is its file. The `variables` are strings,
    numbers, None, lists and dicts.
    """
    if len(source) > LONGEST:
        raise ValueError(
            f"{where}: chat_template: a template must have at most {LONGEST:,} characters, got "
            f"{len(source):,}"
        )
    require("jinja2.sandbox", "a chat template", "3.1.6")  # older sandboxes can be left
    try:
        values = {name: _plain(value, name) for name, value in variables.items()}
        values = json.loads(json.dumps(values, ensure_ascii=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"chat: {error}") from None
    try:
        return _environment().from_string(source).render(values)
    except (Exception, MemoryError) as error:
        refused = type(error).__name__ == "TemplateError"  # by raise_exception
        what = "the chat template refuses" if refused else "chat_template"
        text = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"{where}: {what}: {printable(text, 1000)}") from None


@cache
def _environment() -> Any:
    """Return the environment of transformers: the same sandbox, blocks, filters and functions."""
    import jinja2.ext
    import jinja2.sandbox

    class Generation(jinja2.ext.Extension):
        """Block `{% generation %}`, which marks the text of the model for a trainer."""

        tags = {"generation"}  # noqa: RUF012

        def parse(self, parser: Any) -> jinja2.nodes.Node:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return jinja2.nodes.Scope(body, lineno=line)

    class Namespace(jinja2.utils.Namespace):
        """Namespace without names that Python calls, such as `__call__`."""

        def __init__(self, /, *values: Any, **named: Any) -> None:
            super().__init__()
            for name, value in dict(*values, **named).items():
                self[name] = value

        def __setitem__(self, name: str, value: Any) -> None:
            if str(name).startswith("_"):
                raise jinja2.sandbox.SecurityError(
                    f"a name in a namespace must not begin with _, got {name!r}"
                )
            super().__setitem__(name, value)

    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = tojson
    environment.globals |= {
        "dict": Dict(),
        "namespace": Namespace,
        "raise_exception": raise_exception,
        "strftime_now": strftime_now,
    }
    return environment


class Dict:
    """The function `dict` and its `fromkeys`, without the other attributes of the type."""

    def __call__(self, *values: Any, **named: Any) -> dict[Any, Any]:
        return dict(*values, **named)

    def fromkeys(self, *values: Any) -> dict[Any, Any]:
        return dict.fromkeys(*values)


def raise_exception(message: str) -> None:
    import jinja2

    raise jinja2.TemplateError(message)


def strftime_now(form: str) -> str:
    return datetime.datetime.now().strftime(form)


def tojson(
    x: Any,
    ensure_ascii: bool = False,
    indent: Any = None,
    separators: Any = None,
    sort_keys: bool = False,
) -> str:
    """Return JSON without jinja2's escapes for HTML."""
    return json.dumps(
        x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _plain(value: Any, name: str) -> Any:
    """Return a value, or raise an error for tuples and other types that JSON would change."""
    if isinstance(value, list):
        return [_plain(item, f"{name}[{i}]") for i, item in enumerate(value)]
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: _plain(item, f"{name}.{key}") for key, item in value.items()}
    if value is None or isinstance(value, (str, int, float)):
        return value
    raise TypeError(
        f"{name} must be a string, a number, None, a list or a dict with strings as keys, got "
        f"{type(value).__name__}: {value!r:.60}"
    )
