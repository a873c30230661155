"""Tables in text that notebooks show preformatted."""

from __future__ import annotations

import sys
import textwrap
from html import escape
from types import ModuleType

from ..registry import add_methods
from ..tensor import Tensor


class Shown:
    """Base of objects whose `str` a notebook shows preformatted."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"


class Report(Shown, str):
    """Table in text, whose `repr` is the text."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def list_names(package: ModuleType) -> str:
    """Return the public names of a package, by the module that defines them."""
    lines = []
    for name, module in sorted(sys.modules.items()):
        if name.startswith(f"{package.__name__}."):
            public: list[str] = getattr(module, "__all__", [])
            names = [n for n in public if vars(package).get(n) is vars(module).get(n)]
            listed = textwrap.indent(textwrap.fill(", ".join(names), 92), "    ")
            lines += [f"\n{name}:", listed] if names else []
    return "\n".join(lines) + "\n"


def _html_of_tensor(x: Tensor) -> str:
    shape = " × ".join(map(str, x.shape)) or "scalar"
    return f"<pre>{escape(repr(x))}</pre><small>{shape}</small>"


add_methods(Tensor, {"_repr_html_": _html_of_tensor})
