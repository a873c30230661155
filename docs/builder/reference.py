"""The reference, made from docstrings: modules, and what the scripts say of themselves."""

from __future__ import annotations

import html
import importlib
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import minigrad
from minigrad.core.registry import FUNCTIONS
from minigrad.io.reading import read_text
from tools import operations_table

from .markdown import anchor, inline
from .operations import operations
from .page import Page
from .signatures import first_sentence, links, paragraphs, signature

__all__ = ["pages"]

ROOT = Path(__file__).parents[2]
MODULES = {  # what a user calls it: where it is, and its title
    "minigrad": ("minigrad", "minigrad: tensors and derivatives"),
    "minigrad.optim": ("minigrad.optim", "minigrad.optim: optimizers and schedules"),
    "nn": ("nn", "nn: layers, models, training"),
    "nn.functional": ("nn.functional", "nn.functional: functions in PyTorch's order"),
    "nn.text": ("nn.text", "nn.text: sentences to numbers"),
    "nn.init": ("nn.layers.init", "nn.init: first weights"),
    "nn.plots": ("nn.inspection.plots", "nn.plots: pictures"),
}
_GROUP = re.compile(
    r"^([A-Z][^\n:]*):\n((?: {4}[\w, ]+(?:\n|$))+)", re.MULTILINE
)  # "Title:", and a list of names
OPERATIONS = {
    n for kinds in operations_table.KINDS.values() for part in kinds for n in part.__all__
}


def pages() -> list[Page]:
    return [
        operations(),
        *(module(name, *where) for name, where in MODULES.items()),
        command_line(),
    ]


# -- modules -------------------------------------------------------------------------------------------


def module(name: str, where: str, title: str) -> Page:
    """The page of a module: an index of names, then each with its signature and docstring."""
    part = importlib.import_module(where)
    doc = inspect.getdoc(part) or ""
    content = [f"<h1><code>{name}</code></h1>", paragraphs(_GROUP.sub("", doc).strip())]
    groups = {
        group: {n: _entry(n, thing) for n, thing in things.items()}
        for group, things in _groups(part, doc).items()
    }
    groups = {
        group: {n: text for n, text in found.items() if text} for group, found in groups.items()
    }
    for group, found in groups.items():
        content.append(
            f'<p class="names"><b>{inline(group)}</b> {links({n: f"#{n}" for n in found})}</p>'
        )
    if name == "minigrad":
        content.append(
            '<p class="names"><b>Operations</b> have <a href="operations.html">a page of their own</a>.</p>'
        )
    for group, found in groups.items():
        here = anchor(group)
        content.append(f'<h2 id="{here}"><a class="self" href="#{here}">{inline(group)}</a></h2>')
        content.append(f'<dl class="api">{"".join(found.values())}</dl>')
    return Page(
        f"reference/{name.replace('.', '-')}.html", title, "Reference", "\n".join(content), name
    )


def _groups(part: Any, doc: str) -> dict[str, dict[str, Any]]:
    """What a module gives away, by the groups of its docstring; of a package without, by the file of each thing."""
    public = [n for n in getattr(part, "__all__", None) or vars(part) if not n.startswith("_")]
    things = {n: getattr(part, n) for n in public if not inspect.ismodule(getattr(part, n))}
    groups: dict[str, dict[str, Any]] = {}
    for group, names in _GROUP.findall(doc):
        found = [
            n
            for n in re.findall(r"\w+", names)
            if n in things and (part is not minigrad or n not in OPERATIONS)
        ]
        groups |= {group: {n: things[n] for n in found}} if found else {}
    if groups:
        return groups
    for n, thing in things.items():
        where = getattr(thing, "__module__", None) or ""
        if where.startswith(("minigrad", "nn")):
            groups.setdefault(_about(where) if hasattr(part, "__path__") else "Functions", {})[
                n
            ] = thing
    return groups


def _about(module: str) -> str:
    """What a file is about, in some words: the first of its docstring."""
    summary = re.sub(r" \([^)]*\)", "", first_sentence(importlib.import_module(module)))
    return re.split(r"[:.]", summary)[0]


def _entry(name: str, thing: Any, within: str = "") -> str:
    """A term and its definition; nothing for what is neither a class nor a function."""
    if not callable(thing):
        return ""
    kind = "class " if inspect.isclass(thing) else ""
    own = f"{within}.{name}" if within else name
    body = paragraphs(thing.__doc__ or "")
    if inspect.isclass(thing) and not issubclass(thing, BaseException):
        body += _members(thing, name)
    return f'<dt id="{own}">{kind}<b>{name}</b>{signature(thing)}</dt><dd>{body}</dd>'


def _members(kind: type, name: str) -> str:
    """The documented properties and methods of a class; of those that are operations, the names."""
    public = {
        n: member for n, member in vars(kind).items() if not n.startswith("_") and member.__doc__
    }
    asked = {n: m for n, m in public.items() if isinstance(m, property)}
    methods = {n: m for n, m in public.items() if inspect.isfunction(m)}
    same = {
        n: m.__name__ for n, m in methods.items() if hasattr(m, "op") or m in FUNCTIONS.values()
    }
    entries = [
        f'<dt id="{name}.{n}">.<b>{n}</b></dt><dd>{paragraphs(m.__doc__ or "")}</dd>'
        for n, m in asked.items()
    ] + [_entry(n, m, name) for n, m in methods.items() if n not in same]
    found = f'<dl class="api">{"".join(entries)}</dl>' if entries else ""
    if same:
        listed = links(
            {f".{n}": f"operations.html#{op if op in OPERATIONS else ''}" for n, op in same.items()}
        )
        found += f"<p>Operations as methods: {listed}</p>"
    return found


# -- command line --------------------------------------------------------------------------------------

SCRIPTS = ("train_toy_translation", "translate", "char_gpt", "classify")  # come first


def command_line() -> Page:
    """What each script answers to --help."""
    parts = [
        "<h1>Command line</h1>",
        "<p>What the scripts of <code>examples/</code> take, as they say it themselves.</p>",
    ]
    scripts = [p for p in sorted((ROOT / "examples").glob("*.py")) if "__main__" in read_text(p)]
    scripts.sort(key=lambda path: (*SCRIPTS, path.stem).index(path.stem))
    scripts.append(ROOT / "examples" / "course" / "00_autodiff.py")
    parts.append(f'<p class="names">{links({p.name: f"#{p.stem}" for p in scripts})}</p>')
    for script in scripts:
        name = f'<a class="self" href="#{script.stem}"><code>{script.name}</code></a>'
        parts.append(f'<h2 id="{script.stem}">{name}</h2>')
        parts.append(
            "<p>Every lesson takes the same.</p>" if script.parent.name == "course" else ""
        )
        parts.append(f'<pre tabindex="0">{html.escape(_help(script))}</pre>')
    return Page("reference/command-line.html", "Command line", "Reference", "\n".join(parts))


def _help(script: Path) -> str:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "96"}
    done = subprocess.run(
        [sys.executable, str(script), "--help"],
        capture_output=True,
        text=True,
        env=env,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{script.name} --help: {done.stderr.strip()}")
    return done.stdout.strip()
