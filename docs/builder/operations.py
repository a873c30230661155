"""The page of all operations, made from their registry: what each computes, and the rules of its derivative."""

from __future__ import annotations

import ast
import html
import inspect
import re
import textwrap
from typing import Any

from minigrad.core.registry import OPS
from tools import operations_table

from .markdown import anchor, code, inline
from .page import Page
from .signatures import first_sentence, links, signature

__all__ = ["operations"]

ABOUT = """Each operation is one entry of a registry: a NumPy function, and for each operand the rule of its derivative, in
plain NumPy. A rule is what flows back to an operand: `g` is the gradient of the result, `y` the result itself, and the other
names are operands and options. What is broadcast is summed afterwards. Where no rule stands, the operation is composed of
others."""


def operations() -> Page:
    """The page."""
    names = {
        title: [n for part in parts for n in part.__all__]
        for title, parts in operations_table.KINDS.items()
    }
    content = ["<h1>Operations</h1>", f"<p>{inline(' '.join(ABOUT.split()))}</p>"]
    content += [
        f'<p class="names"><b>{html.escape(title)}</b> {links({n: f"#{n}" for n in found})}</p>'
        for title, found in names.items()
    ]
    for title, parts in operations_table.KINDS.items():
        entries = "".join(
            _operation(name, getattr(part, name)) for part in parts for name in part.__all__
        )
        here = anchor(title)
        content.append(
            f'<h2 id="{here}"><a class="self" href="#{here}">{html.escape(title)}</a></h2>'
        )
        content.append(f'<dl class="api short">{entries}</dl>')
    title = "Operations: formula and derivative"
    return Page("reference/operations.html", title, "Reference", "\n".join(content), "Operations")


def _operation(name: str, function: Any) -> str:
    entry = getattr(function, "op", None)
    numpy = [
        f"np.{n.__name__}"
        for n in getattr(entry or function, "numpy", ())
        if hasattr(n, "__name__")
    ]
    methods = re.sub(
        "`", "", operations_table.method_names(getattr(entry or function, "methods", ()))
    ).replace("\\|", "|")
    also = (
        f'<span class="also">{html.escape(" ".join([*numpy, methods]))}</span>'
        if numpy or methods
        else ""
    )
    body = f"<p>{inline(first_sentence(function))}</p>"
    if entry is not None and entry in OPS.values():
        rules = _rules(entry)
        body += code("\n".join(rules)) if rules else "<p>It has no derivative.</p>"
    return f'<dt id="{name}"><b>{name}</b>{signature(function)}{also}</dt><dd>{body}</dd>'


def _rules(entry: Any) -> list[str]:
    """What flows to each operand, as it is written."""
    found = [
        _rule(operand, rule) for operand, rule in (entry.rules or {}).items() if rule is not None
    ]
    return found + ([_rule("all", entry.vjp)] if entry.vjp is not None else [])


def _rule(operand: str, rule: Any) -> str:
    """`grad_x = ...` of a lambda; of a function, all of it."""
    rule = inspect.unwrap(rule)
    text = textwrap.dedent(inspect.getsource(rule))
    if rule.__name__ != "<lambda>":
        return f"# grad_{operand}:\n{text.strip()}"
    start = text.find("lambda", max(text.find(f"{operand}=lambda"), 0))
    for end in range(
        len(text), start, -1
    ):  # the source of a lambda is the lines that it stands in, with others
        try:
            node = ast.parse(f"({text[start:end]})", mode="eval").body
        except SyntaxError:
            continue
        if isinstance(node, ast.Lambda):
            return f"grad_{operand} = {ast.unparse(node.body)}"
    raise ValueError(f"the rule of {operand} was not found in {text!r}")
