"""The reference, made from docstrings and the registry of operations."""

from __future__ import annotations

import ast
import html
import importlib
import inspect
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import minigrad.docs
from minigrad.core.registry import OPS

from .markdown import anchor, code, inline
from .page import Page

__all__ = ["pages"]

ROOT = Path(__file__).parents[2]
OUTSIDE = ("minigrad", "nn")
MODULES = {
    "minigrad": "minigrad: tensors and derivatives", "minigrad.optim": "minigrad.optim: optimizers",
    "nn": "nn: layers, models, training", "nn.text": "nn.text: sentences to numbers", "nn.layers.init": "nn.init: first weights",
}  # fmt: skip


def pages() -> list[Page]:
    return [operations(), *(module(name, title) for name, title in MODULES.items()), command_line()]


# -- operations ----------------------------------------------------------------------------------------


def _rule_sources(entry: Any) -> list[tuple[str, str]]:
    """Each operand of an operation, and the rule of its derivative as it is written."""
    found = []
    for operand, rule in (entry.rules or {}).items():
        if rule is not None:
            found.append((operand, _source(rule, operand)))
    if entry.vjp is not None:
        found.append(("all", _source(entry.vjp, "vjp")))
    return found


def _source(rule: Any, name: str) -> str:
    """The text of a rule: of a lambda, the lambda alone; of a function, all of it."""
    rule = inspect.unwrap(rule)
    try:
        text = textwrap.dedent(inspect.getsource(rule))
    except (OSError, TypeError):
        return getattr(rule, "__name__", "built in")
    if rule.__name__ != "<lambda>":
        return text.strip()
    for end in range(len(text), 0, -1):  # the source of a lambda is the lines it stands in, which may not be whole
        try:
            tree = ast.parse(text[:end].strip().lstrip("@").rstrip(","))
        except SyntaxError:
            continue
        lambdas = [(node.arg, node.value) for node in ast.walk(tree) if isinstance(node, ast.keyword)]
        for arg, value in lambdas:
            if arg == name and isinstance(value, ast.Lambda):
                return ast.unparse(value)
        loose = [node for node in ast.walk(tree) if isinstance(node, ast.Lambda)]
        if loose:
            return ast.unparse(loose[0])
    return text.strip()


def operations() -> Page:
    parts = [
        "<h1>Operations</h1>",
        f"<p>{inline('Each operation is one entry of a registry: a NumPy function, and for each operand the rule of its derivative, in plain NumPy. The rule reads `g`, the gradient of the result, and what its other parameters name: operands, options, `y` (the result). What has no rule here is composed of what has one.')}</p>",
    ]
    for title, modules in minigrad.docs.KINDS.items():
        parts.append(
            f'<h2 id="{anchor(title)}"><a class="self" href="#{anchor(title)}">{title}</a></h2><dl class="api">'
        )
        for part in modules:
            parts += [_operation(name, getattr(part, name)) for name in part.__all__]
        parts.append("</dl>")
    return Page(
        "reference/operations.html", "Operations: formula and derivative", "Reference", "\n".join(parts), "Operations"
    )


def _operation(name: str, function: Any) -> str:
    entry = getattr(function, "op", None)
    names = getattr(entry or function, "numpy", ())
    called = " ".join(f"np.{n.__name__}" for n in names if hasattr(n, "__name__"))
    methods = re.sub("`", "", minigrad.docs._methods(getattr(entry or function, "methods", ()))).replace("\\|", "|")
    head = f'<dt id="{anchor(name)}"><b>{name}</b>{_signature(function)}</dt>'
    also = " · ".join(text for text in (called, methods) if text)
    body = f"<p>{inline(_first(function))}</p>" + (f"<p>also <code>{html.escape(also)}</code></p>" if also else "")
    if entry is not None and entry in OPS.values():
        rules = _rule_sources(entry)
        lines = [text if "\n" in text or text.startswith("def") else f"{operand}={text}" for operand, text in rules]
        body += code("\n".join(lines)) if lines else "<p>No derivative.</p>"
    else:
        body += "<p>Composed of other operations.</p>"
    return f"{head}<dd>{body}</dd>"


def _first(thing: Any) -> str:
    return " ".join((inspect.getdoc(thing) or "").partition("\n\n")[0].split())


def _signature(thing: Any) -> str:
    try:
        shown = str(inspect.signature(thing))
    except (TypeError, ValueError):
        return ""
    shown = re.sub(r"<(?:function|class|built-in)?[^<>]*?'?([\w.]+)'?(?: at 0x\w+)?>", r"\1", shown)
    shown = re.sub(
        r"(?:numpy|np)\.typing\.|minigrad\.core\.\w+\.|nn\.\w+\.\w+\.|collections\.abc\.|typing\.|pathlib\._local\.",
        "",
        shown,
    )
    return html.escape(re.sub(r"\bself, |\(self\)", lambda m: "()" if m[0] == "(self)" else "", shown))


# -- modules -------------------------------------------------------------------------------------------


def _paragraphs(doc: str) -> str:
    """A docstring as HTML: paragraphs, lists, and what is indented as code."""
    parts = []
    for block in re.split(r"\n\s*\n", inspect.cleandoc(doc)):
        if all(line.startswith("    ") for line in block.split("\n")):
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


def _entry(name: str, thing: Any, within: str = "") -> str:
    if not (inspect.isclass(thing) or callable(thing)):
        return ""
    kind = "class " if inspect.isclass(thing) else ""
    own = f"{within}.{name}" if within else name
    body = _paragraphs(thing.__doc__ or "")
    if inspect.isclass(thing) and not issubclass(thing, BaseException):
        public = [
            (n, f) for n, f in vars(thing).items() if not n.startswith("_") and inspect.isfunction(f) and f.__doc__
        ]
        body += "".join(f'<dl class="api">{_entry(n, f, name)}</dl>' for n, f in public)
    return f'<dt id="{own}">{kind}<b>{name}</b>{_signature(thing)}</dt><dd>{body}</dd>'


def module(name: str, title: str) -> Page:
    part = importlib.import_module(name)
    operations = {n for kinds in minigrad.docs.KINDS.values() for m in kinds for n in m.__all__}
    public = [n for n in getattr(part, "__all__", None) or vars(part) if not n.startswith("_")]
    things = [(n, getattr(part, n)) for n in public if not inspect.ismodule(getattr(part, n))]
    things = [
        (n, t)
        for n, t in things
        if getattr(t, "__module__", "").startswith(OUTSIDE) and (name != "minigrad" or n not in operations)
    ]
    groups: dict[str, list[str]] = {}
    for n, thing in things:
        groups.setdefault(thing.__module__, []).append(_entry(n, thing))
    parts = [f"<h1><code>{name}</code></h1>", _paragraphs(part.__doc__ or "")]
    for where, entries in groups.items():
        about = (importlib.import_module(where).__doc__ or "").strip().partition("\n")[0]
        parts.append(
            f'<h2 id="{anchor(where)}"><a class="self" href="#{anchor(where)}">{where}</a></h2><p>{inline(about)}</p>'
        )
        parts.append(f'<dl class="api">{"".join(entries)}</dl>')
    return Page(f"reference/{name.replace('.', '-')}.html", title, "Reference", "\n".join(parts), name)


# -- command line --------------------------------------------------------------------------------------


def command_line() -> Page:
    parts = [
        "<h1>Command line</h1>",
        "<p>What the scripts of <code>examples/</code> take, as they say it themselves.</p>",
    ]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "96"}
    for script in sorted((ROOT / "examples").glob("*.py")):
        if "__main__" not in script.read_text(encoding="utf-8"):
            continue
        done = subprocess.run(
            [sys.executable, str(script), "--help"], capture_output=True, text=True, env=env, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{script.name} --help: {done.stderr.strip()}")
        parts.append(
            f'<h2 id="{script.stem}"><a class="self" href="#{script.stem}"><code>{script.name}</code></a></h2>'
        )
        parts.append(f'<pre tabindex="0">{html.escape(done.stdout.strip())}</pre>')
    return Page("reference/command-line.html", "Command line", "Reference", "\n".join(parts))
