"""Signatures and docstrings as HTML."""

from __future__ import annotations

import html
import inspect
import re
import textwrap
from typing import Any

from .markdown import code, inline

__all__ = ["first_sentence", "links", "paragraphs", "signature"]


class _Bare(str):
    """An annotation that is shown without quotes."""

    __slots__ = ()
    __repr__ = str.__str__


def signature(thing: Any) -> str:
    """The parameters of a function, method or class, and what it returns; of types, `Any` is not worth a word."""
    try:
        found = inspect.signature(thing)
    except (TypeError, ValueError):
        return ""
    parameters = [
        p.replace(annotation=_bare(p.annotation))
        for name, p in found.parameters.items()
        if name != "self"
    ]
    returned = inspect.Signature.empty if inspect.isclass(thing) else _bare(found.return_annotation)
    shown = str(found.replace(parameters=parameters, return_annotation=returned)).replace(
        " -> ", " → "
    )
    shown = re.sub(
        r"<(?:function|class|built-in function) '?(?:[\w.]*\.)?(\w+)'?(?: at 0x\w+)?>", r"\1", shown
    )
    return html.escape(shown.replace("<factory>", "…"))


def _bare(annotation: Any) -> Any:
    text = annotation if isinstance(annotation, str) else ""
    return inspect.Signature.empty if text == "Any" else _Bare(text) if text else annotation


def first_sentence(thing: Any) -> str:
    """The first paragraph of a docstring."""
    return " ".join((inspect.getdoc(thing) or "").partition("\n\n")[0].split())


def paragraphs(doc: str) -> str:
    """A docstring as HTML: paragraphs, lists, and what is indented as code."""
    parts = []
    for block in _blocks(doc):
        if all(line.startswith("    ") for line in block.split("\n") if line):
            parts.append(code(textwrap.dedent(block)))
        elif block.lstrip().startswith("- "):
            items = re.split(r"^- ", block, flags=re.MULTILINE)[1:]
            listed = [inline(" ".join(item.split())) for item in items]
            parts.append("<ul>" + "".join(f"<li>{item}</li>" for item in listed) + "</ul>")
        elif block.startswith(">>>"):
            parts.append(code(block, "pycon"))
        else:
            parts.append(f"<p>{inline(' '.join(block.split()))}</p>")
    return "".join(parts)


def _blocks(doc: str) -> list[str]:
    """What blank lines part; those within code belong to it."""
    blocks: list[str] = []
    for block in re.split(r"\n\s*\n", inspect.cleandoc(doc)):
        if blocks and block.startswith("    ") and blocks[-1].startswith("    "):
            blocks[-1] += f"\n\n{block}"
        else:
            blocks.append(block)
    return blocks


def links(names: dict[str, str]) -> str:
    """Names, each with the address where it is told of, on a line."""
    return " · ".join(
        f'<a href="{address}"><code>{html.escape(name)}</code></a>'
        for name, address in names.items()
    )
