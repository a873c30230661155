"""Chat templates of loops, conditions, attributes and lengths, rendered without `jinja2`."""

from __future__ import annotations

import json
import re
import sys
from importlib.util import find_spec
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from nn.text import huggingface


def render(source: str, where: str, variables: dict[str, Any]) -> str:
    """Render a template, as `nn.text.templates.render`, by a program in Python."""
    lines, level = [], 0
    for i, part in enumerate(re.split(r"{%\s*(.*?)\s*%}|{{\s*(.*?)\s*}}", source)):
        if part is None:
            continue
        code = re.sub(r"(\w+) \| length", r"len(\1)", part)
        if i % 3 == 0:
            lines.append(" " * level + f"out.append({part!r})")
        elif i % 3 == 2:
            lines.append(" " * level + f"out.append(str({code}))")
        elif code.startswith("end"):
            level -= 1
        else:
            lines.append(" " * (level - (code == "else")) + code + ":")
            level += code != "else"
    values = json.loads(json.dumps(variables), object_hook=lambda x: SimpleNamespace(**x))
    out: list[str] = []
    exec("\n".join(lines), {**vars(values), "out": out})
    return "".join(out)


def use_without_jinja2(patch: pytest.MonkeyPatch) -> None:
    """Render templates by `render` if `jinja2` is missing."""
    if find_spec("jinja2") is None:
        patch.setitem(sys.modules, "jinja2", ModuleType("jinja2"))
        patch.setattr(huggingface, "render", render)
