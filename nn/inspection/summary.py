"""Tables of the modules of a model."""

from __future__ import annotations

from minigrad.check.report import Report
from minigrad.registry import add_methods

from ..module import Module, Parameter


def summary(self: Module, depth: int | None = None) -> Report:
    """Return a table of the modules, with the shapes and sizes of their parameters.

    Parameters
    ----------
    depth : int, optional
        Number of levels of modules. A module of the last level counts all inside it.
    """
    rows = [("module", "type", "parameters", f"{'count':>12}")]
    counted: set[int] = set()
    for name, module in self.named_modules():
        level = name.count(".") + bool(name)
        if depth is not None and level > depth:
            continue
        parameters = {n: p for n, p in vars(module).items() if isinstance(p, Parameter)}
        shapes = [
            f"{n} {p.shape}" + " (shared)" * (id(p) in counted) for n, p in parameters.items()
        ]
        inside = module.parameters() if level == depth else parameters.values()
        sizes = {id(p): p.size for p in inside}
        count = sum(size for key, size in sizes.items() if key not in counted)
        counted |= sizes.keys()
        shown = f"{count:12,}" if sizes else ""
        rows.append((name or "(model)", type(module).__name__, ", ".join(shapes), shown))
    widths = [max(map(len, column)) for column in zip(*rows)]
    table = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    rule = "-" * max(map(len, table))
    trained = self.num_parameters(trainable_only=True)
    total = f"{self.num_parameters():,} parameters, {trained:,} trained"
    return Report("\n".join([table[0], rule, *table[1:], rule, total]))


add_methods(Module, {"summary": summary})
