"""Wrong variants of a function, made by one small change of its source each."""

from __future__ import annotations

import ast
import copy
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

_SWAPPED = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Lt: ast.LtE, ast.LtE: ast.Lt,
    ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.BitAnd: ast.BitOr,
}  # fmt: skip
"""Operators, and what replaces them."""

_OTHER = {
    "max": "min", "min": "max", "mean": "sum", "sum": "mean", "argmax": "argmin", "any": "all", "all": "any",
    "sin": "cos", "cos": "sin", "maximum": "minimum", "item": "mean", "var": "std", "log": "log10", "exp": "exp2",
}  # fmt: skip
"""Names of functions and methods, and what replaces them."""


def _constants(value: Any) -> list[Any]:
    """Return replacements of a number: none of it, one more or less, another axis."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, value - 1] if value >= 0 else [value + 1]
    if isinstance(value, float):
        return [0.0] if value < 1e-3 else [1.1 * value]
    return []


def _replacements(node: ast.AST, names: list[str]) -> Iterator[ast.AST]:
    """Yield what can stand in place of a node, and is wrong as a rule.

    `names` is empty if a function has a while loop, which might not end.
    """
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in names:
        for name in names:
            if name != node.id:
                yield ast.Name(name, ast.Load())
    if isinstance(node, ast.Constant):
        for value in _constants(node.value):
            yield ast.Constant(value)
    if isinstance(node, ast.Attribute) and node.attr in ("T", "real"):
        yield node.value
    if isinstance(node, ast.Attribute) and node.attr in _OTHER:
        yield ast.Attribute(node.value, _OTHER[node.attr], node.ctx)
    if isinstance(node, ast.Name) and node.id in ("max", "min", "any", "all"):
        yield ast.Name(_OTHER[node.id], ast.Load())
    if isinstance(node, ast.Tuple) and isinstance(node.ctx, ast.Load) and len(node.elts) > 1:
        yield ast.Tuple([*node.elts[1:], node.elts[0]], ast.Load())
    if isinstance(node, (ast.Assign, ast.AugAssign)) and names:  # a step that is left out
        yield ast.Pass()
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr in ("swapaxes", "transpose", "argsort"):
            yield node.func.value
        if node.func.attr in ("sqrt", "exp", "log", "tanh", "float32"):
            yield node.args[0]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        if node.func.id in ("abs", "reversed", "sorted"):
            yield node.args[0]
        if node.func.id == "len":
            yield ast.parse(f"np.shape({ast.unparse(node.args[0])})[-1]").body[0].value  # type: ignore[attr-defined]
    if isinstance(node, ast.Subscript) and ast.unparse(node.value).endswith(".shape"):
        for axis in (0, 1, -1, -2):
            same = ast.unparse(node.slice) in (str(axis), f"-{abs(axis)}")
            if not same:
                yield ast.Subscript(node.value, ast.Constant(axis), ast.Load())
    if isinstance(node, ast.BinOp):
        if isinstance(node.op, (ast.MatMult, ast.Sub, ast.Div)):
            yield ast.BinOp(node.right, node.op, node.left)
        yield node.left
        if not isinstance(node.op, (ast.Pow, ast.Sub, ast.Div)):
            yield node.right
        if type(node.op) in _SWAPPED:
            yield ast.BinOp(node.left, _SWAPPED[type(node.op)](), node.right)
    if isinstance(node, ast.Compare) and type(node.ops[0]) in _SWAPPED:
        yield ast.Compare(node.left, [_SWAPPED[type(node.ops[0])]()], node.comparators)
    if isinstance(node, ast.IfExp):
        yield node.body
        yield node.orelse


class _Replace(ast.NodeTransformer):
    """Replace node number `target` of the body by its replacement number `which`."""

    def __init__(self, target: int, which: int, names: list[str]) -> None:
        self.target, self.which, self.names, self.count = target, which, names, -1

    def visit(self, node: ast.AST) -> Any:
        self.count += 1
        if self.count == self.target:
            found = [*_replacements(node, self.names)]
            return copy.deepcopy(found[self.which])
        return self.generic_visit(node)


def _names(definition: Any) -> list[str]:
    """Return the parameters and local variables of a function."""
    stored = [
        n.id
        for n in ast.walk(definition)
        if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)
    ]
    inner = [a.arg for n in ast.walk(definition) if isinstance(n, ast.Lambda) for a in n.args.args]
    names = [a.arg for a in definition.args.args]
    return [n for n in dict.fromkeys([*names, *stored]) if n not in inner]


def mutants(function: Callable[..., Any]) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield functions with one change of the source each, and their changed line."""
    source = textwrap.dedent(inspect.getsource(function))
    tree = ast.parse(re.sub(r"\A(@.*?\n)(?=def )", "", source, flags=re.S))
    definition: Any = tree.body[0]
    definition.returns = None
    for argument in definition.args.args:
        argument.annotation = None
    tree = _Bare().visit(tree)
    before = ast.unparse(tree).splitlines()
    endless = any(isinstance(node, ast.While) for node in ast.walk(tree))
    names = [] if endless else _names(definition)
    nodes = _Count(names)
    nodes.visit(tree)
    for target, width in nodes.widths.items():
        for which in range(width):
            changed = ast.fix_missing_locations(
                _Replace(target, which, names).visit(copy.deepcopy(tree))
            )
            text = ast.unparse(changed)
            lines = [line for line in text.splitlines() if line not in before]
            if not lines:
                continue
            scope = dict(function.__globals__)
            exec(compile(text, "<mutant>", "exec"), scope)
            yield lines[0].strip(), scope[function.__name__]


class _Bare(ast.NodeTransformer):
    """Remove the annotations of variables."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        assert node.value is not None
        return ast.copy_location(ast.Assign([node.target], node.value), node)


class _Count(ast.NodeTransformer):
    """Count the replacements of each node, in the order of `_Replace`."""

    def __init__(self, names: list[str]) -> None:
        self.widths: dict[int, int] = {}
        self.names, self.count = names, -1

    def visit(self, node: ast.AST) -> Any:
        self.count += 1
        self.widths[self.count] = len([*_replacements(node, self.names)])
        return self.generic_visit(node)
