"""Write the table of all operations in a Markdown file, made from the registry.

`python -m tools.operations_table docs/operations.md` renews it.
"""

from __future__ import annotations

import sys
from importlib import import_module
from inspect import isfunction
from pathlib import Path
from typing import Any

from minigrad.numpy.nested import numpy_name
from minigrad.numpy.scipy_special import RULES
from minigrad.torch.names import METHODS

_MODULES = {
    "Elementwise": "ops.arithmetic numpy.elementwise numpy.special",
    "Products and networks": "ops.network ops.attention numpy.activations",
    "Reductions": "ops.reduce numpy.reduction numpy.statistics numpy.nan numpy.norms",
    "Linear algebra": "numpy.linalg numpy.decompositions numpy.scipy_linalg numpy.einsum",
    "Shapes and indices": (
        "ops.shape numpy.shape numpy.joining numpy.rearrange numpy.indexing numpy.sorting"
    ),
    "Differences and integrals": "numpy.calculus",
    "PyTorch's names": "torch.names",
    "Losses": "ops.loss torch.losses",
    "Without gradient": "numpy.compare",
}
KINDS = {
    kind: [import_module(f"minigrad.{name}") for name in names.split()]
    for kind, names in _MODULES.items()
}
_BEGIN, _END = (
    "<!-- ops: made by python -m tools.operations_table docs/operations.md -->",
    "<!-- end of ops -->",
)


def method_names(names: tuple[str, ...]) -> str:
    signs = {
        "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%",
        "pow": "**", "matmul": "@", "neg": "-", "pos": "+", "gt": ">", "ge": ">=", "lt": "<",
        "le": "<=", "eq": "==", "ne": "!=", "and": "&", "or": "|", "xor": "^", "invert": "~",
        "lshift": "<<", "rshift": ">>", "getitem": "[]", "abs": "abs()",
    }  # fmt: skip
    shown = [
        signs.get(n.strip("_"), n) if n.startswith("__") else f".{n}()"
        for n in names
        if not n.startswith("__r") or n == "__rshift__"
    ]
    return " ".join(f"`{n}`" for n in shown).replace("|", "\\|")


def aliases(function: Any) -> list[str]:
    """Return PyTorch's names of a method."""
    return [name for name, method in METHODS.items() if method is function]


def op_table() -> str:
    """Return a Markdown table of public operations: NumPy's names, methods, and first lines."""
    lines = ["| function | NumPy | Tensor | what it computes |", "| --- | --- | --- | --- |"]
    for title, modules in KINDS.items():
        lines.append(f"| **{title}** | | | |")
        for module in modules:
            for name in module.__all__:
                function = getattr(module, name)
                if not isfunction(function) or function.__name__ != name:  # another name
                    continue
                entry = getattr(function, "op", function)
                numpy = " ".join(f"`{numpy_name(f)}`" for f in getattr(entry, "numpy", ()))
                methods = method_names((*getattr(entry, "methods", ()), *aliases(function)))
                doc = (function.__doc__ or "").partition("\n")[0].replace("|", "\\|")
                lines.append(f"| `{name}` | {numpy} | {methods} | {doc} |")
    return "\n".join(lines)


def special_table() -> str:
    """Return a Markdown table of the functions of `scipy.special` that have derivatives."""
    names: dict[str, list[str]] = {}
    for name, rules in sorted(RULES.items()):
        known = [rule is not None for rule in rules]
        kind = "all operands" if all(known) else "the last operand"
        if not known[-1]:
            kind = "the first operand"
        names.setdefault(kind, []).append(f"`{name.strip('_')}`")
    lines = ["| functions of `scipy.special` | derivatives by |", "| --- | --- |"]
    return "\n".join([*lines, *[f"| {' '.join(names[kind])} | {kind} |" for kind in names]])


def tables() -> str:
    """Return all tables of the page."""
    return f"{op_table()}\n\n{special_table()}"


def main(path: Path) -> None:
    """Replace the table in the file at `path`."""
    text = path.read_text(encoding="utf-8")
    before, _, rest = text.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    path.write_text(f"{before}{_BEGIN}\n\n{tables()}\n\n{_END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
