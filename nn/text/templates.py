"""Chat templates of published models, rendered in jinja2's sandbox."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from minigrad.extras import require
from minigrad.io.reading import printable

__all__ = ["render"]

LONGEST = 100_000
"""Number of characters of a template."""


def render(source: str, where: str, variables: Mapping[str, Any]) -> str:
    """Render a chat template.

    Parameters
    ----------
    source : str
        Template of at most 100,000 characters.
    where : str
        File of the template, with which error messages begin.
    variables : mapping
        Strings, numbers, None, lists and dicts.

    Returns
    -------
    str
        The output of the template.

    Raises
    ------
    ValueError
        If the template raises an exception, or exceeds the bounds of `BoundedSandbox`.
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
    from .sandbox import BoundedSandbox

    try:
        return BoundedSandbox(values).from_string(source).render(values)
    except (Exception, MemoryError) as error:
        refused = type(error).__name__ == "TemplateError"  # by raise_exception
        what = "the chat template refuses" if refused else "chat_template"
        text = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"{where}: {what}: {printable(text, 1000)}") from None


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
