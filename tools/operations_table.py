"""Write the table of all operations in a Markdown file, made from the registry.

`python -m tools.operations_table docs/operations.md` renews it.
"""

from __future__ import annotations

import sys
from importlib import import_module
from inspect import isfunction
from pathlib import Path
from typing import Any

from minigrad.core.nested import numpy_name
from minigrad.torch_names import METHODS

_MODULES = {
    "Elementwise": "ops.elementwise numpy_ops.special",
    "Activations": "ops.activations kernels.gelu",
    "Reductions": "ops.reduction ops.statistics numpy_ops.nan ops.norms ops.softmax",
    "Linear algebra": "ops.linalg ops.decompositions ops.einsum",
    "Shape": "ops.shape ops.joining numpy_ops.rearrange",
    "Indexing and sorting": "ops.indexing numpy_ops.sorting",
    "Differences and integrals": "numpy_ops.calculus",
    "PyTorch's names": "torch_names",
    "Networks": "kernels.linear kernels.normalization kernels.dropout kernels.embedding "
    "kernels.attention",
    "Losses": "kernels.cross_entropy ops.losses",
    "Without gradient": "ops.compare",
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
        "getitem": "[]", "abs": "abs()",
    }  # fmt: skip
    shown = [
        signs.get(n.strip("_"), n) if n.startswith("__") else f".{n}()"
        for n in names
        if not n.startswith("__r")
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


def main(path: Path) -> None:
    """Replace the table in the file at `path`."""
    text = path.read_text(encoding="utf-8")
    before, _, rest = text.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    path.write_text(f"{before}{_BEGIN}\n\n{op_table()}\n\n{_END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
