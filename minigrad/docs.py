"""The table of all operations, made from the registry: `python -m minigrad.docs docs/operations.md` renews it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from .kernels import attention, cross_entropy, dropout, embedding, gelu, linear, normalization
from .ops import (
    activations,
    calculus,
    compare,
    decompositions,
    einsum,
    elementwise,
    habits,
    indexing,
    joining,
    linalg,
    losses,
    nan,
    norms,
    parts,
    polynomials,
    rearrange,
    reduction,
    shape,
    softmax,
    sorting,
    special,
    statistics,
)  # fmt: skip

KINDS = {
    "Elementwise": (elementwise, special, parts, polynomials),
    "Activations": (activations, gelu),
    "Reductions": (reduction, statistics, nan, norms, softmax),
    "Linear algebra": (linalg, decompositions, einsum),
    "Shape": (shape, joining, rearrange),
    "Indexing and sorting": (indexing, sorting),
    "Differences and integrals": (calculus,),
    "PyTorch's names": (habits,),
    "Networks": (linear, normalization, dropout, embedding, attention),
    "Losses": (cross_entropy, losses),
    "Without gradient": (compare,),
}
_BEGIN, _END = "<!-- ops: made by python -m minigrad.docs docs/operations.md -->", "<!-- end of ops -->"


def _numpy_name(function: Any) -> str:
    module = getattr(function, "__module__", None) or "numpy"
    return f"`{module.replace('numpy', 'np', 1)}.{function.__name__}`"


def _methods(names: tuple[str, ...]) -> str:
    signs = {
        "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**", "matmul": "@",
        "neg": "-", "pos": "+", "gt": ">", "ge": ">=", "lt": "<", "le": "<=", "eq": "==", "ne": "!=", "and": "&",
        "or": "|", "xor": "^", "invert": "~", "getitem": "[]", "abs": "abs()",
    }  # fmt: skip
    shown = [signs.get(n.strip("_"), n) if n.startswith("__") else f".{n}()" for n in names if not n.startswith("__r")]
    return " ".join(f"`{n}`" for n in shown).replace("|", "\\|")


def op_table() -> str:
    """A Markdown table of every public operation: its NumPy and method names, and what it computes."""
    lines = ["| function | NumPy | Tensor | what it computes |", "| --- | --- | --- | --- |"]
    for title, modules in KINDS.items():
        lines.append(f"| **{title}** | | | |")
        for module in modules:
            for name in module.__all__:
                function = getattr(module, name)
                entry = getattr(function, "op", function)
                numpy = " ".join(map(_numpy_name, getattr(entry, "numpy", ())))
                methods = _methods(getattr(entry, "methods", ()))
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
