"""Check of blocks such as `with no_grad():` in generators, which must not contain a yield."""

from __future__ import annotations

import ast
import contextlib
import functools
import inspect
import textwrap
from collections.abc import Iterable, Iterator
from types import CodeType
from typing import Any

from ..errors import GradientError
from ..modes import ENTERING

__all__: list[str] = []


def refuse_yield(block: Any, frame: Any) -> None:
    """Raise an error for a block around a yield, which would switch the caller's mode."""
    caller = frame.f_back
    if caller is not None and caller.f_code.co_filename == contextlib.__file__:
        return  # a context manager, which is for its caller
    if frame.f_lineno in _blocks_around_yield(frame.f_code):
        name = type(block).__name__
        raise GradientError(
            f"{name}: the block contains a yield, so the caller of {frame.f_code.co_name} would "
            f"run in its mode; decorate the generator with @{name}, or end the block before the "
            "yield"
        )


@functools.cache
def _blocks_around_yield(code: CodeType) -> frozenset[int]:
    """Return the first lines of the `with` statements of a function that contain a yield."""
    try:
        (function,) = ast.parse(textwrap.dedent(inspect.getsource(code))).body
    except (OSError, SyntaxError):  # typed into a prompt
        return frozenset()
    lines: set[int] = set()
    for node in _inside(ast.iter_child_nodes(function)):
        if isinstance(node, ast.With) and any(
            isinstance(part, (ast.Yield, ast.YieldFrom)) for part in _inside(node.body)
        ):
            lines.update(range(node.lineno, max(node.lineno + 1, node.body[0].lineno)))
    return frozenset(line + code.co_firstlineno - 1 for line in lines)


def _inside(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Return nodes and what they contain, without the contents of functions."""
    for node in nodes:
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            yield from _inside(ast.iter_child_nodes(node))


ENTERING.append(refuse_yield)
