"""The jinja2 environment of chat templates: transformers' names, and bounds of work and size.

Needs jinja2. A template is a program of a stranger. jinja2's sandbox keeps it from files and from
Python's internals. `BoundedSandbox` also counts its work: each iteration, call, operator and
character costs a unit or more, and an operation whose result may be huge is refused before it runs.
"""

from __future__ import annotations

import datetime
import functools
import json
import math
import re
from collections.abc import ItemsView, Iterable, Iterator, KeysView, ValuesView
from typing import Any

import jinja2.ext
import jinja2.sandbox
from jinja2 import nodes
from jinja2.visitor import NodeTransformer

__all__ = ["BoundedSandbox"]

STEP = 300
"""Units of an iteration, a call or an operator; a character that is read or written is one."""
FORMATS = {"%", "format", "format_map", "strftime_now"}
SIZED_BY_NUMBERS = {
    "batch", "center", "expandtabs", "generate_lorem_ipsum", "indent", "ljust", "rjust", "round", "slice", "to_bytes",
    "tojson", "truncate", "wordwrap", "zfill",
}  # fmt: skip
"""Functions for which an integer argument is a width or a count."""
MULTIPLYING = FORMATS | SIZED_BY_NUMBERS | {
    "join", "lstrip", "replace", "rfind", "rindex", "rpartition", "rsplit", "rstrip", "string", "strip", "sum",
    "translate", "trim",
}  # fmt: skip
"""Functions whose work is at most the product of the sizes of their arguments."""
SQUARING = {"round", "striptags", "sum", "urlize"}
"""Functions whose work is at most the square of it."""
WIDE_FORMAT = re.compile(r"%[-+ #.0-9]*?(\d{6}|\*)|\{[^{}:]*:[^{}]*?(\d{6}|\{)")
"""Formats with a width of 100,000 or more, or with one that comes from an argument."""

SIZED = (list, tuple, dict, set, KeysView, ValuesView, ItemsView)


class BoundedSandbox(jinja2.sandbox.ImmutableSandboxedEnvironment):
    """Render one template, with the filters and functions of transformers, within bounds.

    Parameters
    ----------
    given : object
        The template's variables: strings, numbers, None, lists and dicts. The bounds grow with
        their size.
    """

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self, given: Any) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            optimized=False,  # constants, too, are computed within the bounds
            extensions=[Generation, "jinja2.ext.loopcontrols"],
        )
        self._sizes: dict[int, tuple[Any, int]] = {}
        size = self._size(given)
        self._work_left, self._largest = 3 * 10**7 + 2000 * size, 10**7 + 200 * size
        self.filters |= {"tojson": tojson}
        self.filters = {name: self._bounded(name, f) for name, f in self.filters.items()}
        self.tests = {name: self._bounded(name, f, deep=True) for name, f in self.tests.items()}
        self.filters |= {"_measure": self._measure, "_iterate": self._iterate}
        self.globals |= {
            "namespace": Namespace,
            "raise_exception": raise_exception,
            "strftime_now": strftime_now,
        }

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        return Measured().visit(super()._parse(source, name, filename))

    def concat(self, parts: Iterable[str]) -> str:
        result = []
        for part in parts:
            self._spend(len(part))
            result.append(part)
        return "".join(result)

    def call(self, context: Any, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        if isinstance(function, jinja2.runtime.LoopContext) and args:
            args = (self._iterate(args[0]), *args[1:])
        bound = getattr(getattr(function, "__wrapped__", function), "__self__", None)
        self._check(getattr(function, "__name__", ""), bound, *args, *kwargs.values())
        return self._measure(super().call(context, function, *args, **kwargs))

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if operator == "%" and isinstance(left, str):
            self._check("%", left, right)
        elif operator == "**" and isinstance(left, int) and isinstance(right, int):
            self._refuse_above(self._largest * left.bit_length() * abs(right) / 10**5)
        elif operator == "*":
            sizes = [max(1, self._size(value)) for value in (left, right)]
            if isinstance(left, int) and not isinstance(right, (int, float)):
                sizes[0] = abs(left)
            if isinstance(right, int) and not isinstance(left, (int, float)):
                sizes[1] = abs(right)
            self._refuse_above(math.prod(sizes))
        return self._measure(super().call_binop(context, operator, left, right))

    def _bounded(self, name: str, function: Any, deep: bool = False) -> Any:
        """Return a filter or a test that checks its arguments first."""

        @functools.wraps(function)  # with jinja2's marks
        def bounded(*args: Any, **kwargs: Any) -> Any:
            self._spend(sum(map(self._size, args)) if deep else 0)
            self._check(name, *args, *kwargs.values())
            return function(*args, **kwargs)

        return bounded

    def _check(self, name: str, *values: Any) -> None:
        """Count a call, and refuse it if its work may be too large."""
        self._spend(STEP + sum(map(_length, values)))
        if name not in MULTIPLYING | SQUARING:
            return
        if name in FORMATS:
            formats = (value for value in values if isinstance(value, str))
            self._refuse_above(math.inf if any(map(WIDE_FORMAT.search, formats)) else 0)
        values = values[1:] if name == "round" else values
        sizes = [
            abs(value) if name in SIZED_BY_NUMBERS and isinstance(value, int) else self._size(value)
            for value in values
        ]
        product = math.prod(max(1, size) for size in sizes)
        self._refuse_above(product**2 if name in SQUARING else product)

    def _iterate(self, values: Iterable[Any]) -> Iterator[Any]:
        for value in values:
            self._spend(STEP)
            yield value

    def _measure(self, value: Any) -> Any:
        """Return a value that is not too large."""
        size = self._size(value)
        self._refuse_above(size)
        self._spend(STEP + size)
        return value

    def _size(self, value: Any) -> int:
        """Return the number of characters and elements, counted as often as they would be shown."""
        if isinstance(value, (str, bytes)):
            return len(value)
        if isinstance(value, int):
            return 1 + value.bit_length() // 8
        if not isinstance(value, SIZED):
            return 1
        if id(value) not in self._sizes:
            parts = [*value, *(value.values() if isinstance(value, dict) else ())]
            self._sizes[id(value)] = value, 1 + sum(map(self._size, parts))
        return self._sizes[id(value)][1]

    def _spend(self, units: int) -> None:
        self._work_left -= units
        self._refuse_above(0 if self._work_left >= 0 else math.inf)

    def _refuse_above(self, size: float) -> None:
        if size > self._largest:
            raise OverflowError("it takes too much work (loops, or repeated text, without a bound)")


def _length(value: Any) -> int:
    return len(value) if isinstance(value, (str, bytes, list, tuple, dict)) else 1


class Measured(NodeTransformer):
    """Pass what a template iterates over, compares, slices and builds through filters."""

    def visit_For(self, node: nodes.For) -> nodes.Node:
        self.generic_visit(node)
        node.iter = _filtered(node.iter, "_iterate")
        return node

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:
        self.generic_visit(node)
        node.expr = _filtered(node.expr, "_measure")
        for operand in node.ops:
            operand.expr = _filtered(operand.expr, "_measure")
        return node

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:
        self.generic_visit(node)
        if isinstance(node.arg, nodes.Slice):
            node.node = _filtered(node.node, "_measure")
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return _filtered(_filtered(nodes.List(node.nodes, lineno=node.lineno), "_measure"), "join")

    def visit_List(self, node: nodes.List) -> nodes.Node:
        self.generic_visit(node)
        return _filtered(node, "_measure")

    def visit_Dict(self, node: nodes.Dict) -> nodes.Node:
        self.generic_visit(node)
        return _filtered(node, "_measure")

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:
        self.generic_visit(node)
        return _filtered(node, "_measure") if node.ctx == "load" else node


def _filtered(node: Any, name: str) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)


class Generation(jinja2.ext.Extension):
    """`{% generation %}`, which marks the text of the model for a trainer: shows its content."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Any) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


class Namespace(jinja2.utils.Namespace):
    """A namespace without names that Python calls, such as `__call__`."""

    def __init__(self, /, *values: Any, **named: Any) -> None:
        super().__init__()
        for name, value in dict(*values, **named).items():
            self[name] = value

    def __setitem__(self, name: str, value: Any) -> None:
        if str(name).startswith("_"):
            raise jinja2.sandbox.SecurityError(
                f"a namespace has no names that begin with _, got {name!r}"
            )
        super().__setitem__(name, value)

    def __repr__(self) -> str:
        return "<Namespace>"  # the values are not measured


def strftime_now(form: str) -> str:
    return datetime.datetime.now().strftime(form)


def raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)


def tojson(
    x: Any,
    ensure_ascii: bool = False,
    indent: Any = None,
    separators: Any = None,
    sort_keys: bool = False,
) -> str:
    """Return JSON as transformers' filter of this name does.

    There are no other options: `default` would call what the sandbox has not seen.
    """
    return json.dumps(
        x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
