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
TOO_MUCH = "it takes too much work (loops, or repeated text, without a bound)"
FORMATS = {"%", "format", "format_map", "strftime_now"}
SIZED_BY_NUMBERS = {
    "batch", "center", "expandtabs", "generate_lorem_ipsum", "indent", "ljust", "repeat", "rjust", "round", "slice",
    "to_bytes", "tojson", "truncate", "wordwrap", "zfill",
}  # fmt: skip
"""Functions for which an integer argument is a width or a count."""
SQUARING = {"round", "striptags", "sum", "urlize"}
"""Functions whose work is at most the square of the product of the sizes of their arguments."""
MULTIPLYING = FORMATS | SIZED_BY_NUMBERS | SQUARING | {
    "*", "join", "lstrip", "replace", "rfind", "rindex", "rpartition", "rsplit", "rstrip", "string", "strip",
    "translate", "trim",
}  # fmt: skip
"""Functions whose work is at most that product."""
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
        numbers = isinstance(left, int) and isinstance(right, int)
        if operator == "**" and numbers:
            self._spend(left.bit_length() * abs(right) * 100)
        elif operator == "*" and not isinstance(left, float) and not isinstance(right, float):
            self._check("*" if numbers else "repeat", left, right)
        elif operator == "%" and isinstance(left, str):
            self._check("%", left, right)
        return self._measure(super().call_binop(context, operator, left, right))

    def _bounded(self, name: str, function: Any) -> Any:
        """Return a filter that checks its arguments first."""

        @functools.wraps(function)  # with jinja2's marks
        def bounded(*args: Any, **kwargs: Any) -> Any:
            self._check(name, *args, *kwargs.values())
            return function(*args, **kwargs)

        return bounded

    def _check(self, name: str, *values: Any) -> None:
        """Count a call, and refuse it if its work may be too large."""
        self._spend(STEP + sum(map(_length, values)))
        if name in FORMATS and any(
            isinstance(value, str) and WIDE_FORMAT.search(value) for value in values
        ):
            raise OverflowError(TOO_MUCH)
        if name in MULTIPLYING:
            sizes = [
                abs(value)
                if isinstance(value, int) and name in SIZED_BY_NUMBERS
                else self._size(value)
                for value in values[name == "round" :]
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
        if self._work_left < 0:
            raise OverflowError(TOO_MUCH)

    def _refuse_above(self, size: int) -> None:
        if size > self._largest:
            raise OverflowError(TOO_MUCH)


def _length(value: Any) -> int:
    return len(value) if isinstance(value, (str, bytes, list, tuple, dict)) else 1


class Measured(NodeTransformer):
    """Pass what a template iterates over, compares, slices and builds through filters."""

    def visit(self, node: Any, *args: Any, **kwargs: Any) -> Any:
        super().visit(node)
        if isinstance(node, nodes.For):
            node.iter = _filtered(node.iter, "_iterate")
        elif isinstance(node, (nodes.Compare, nodes.Operand)):
            node.expr = _filtered(node.expr, "_measure")
        elif isinstance(node, nodes.Test) or (
            isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice)
        ):
            node.node = _filtered(node.node, "_measure")
        elif isinstance(node, nodes.Concat):
            strings = nodes.List(node.nodes, lineno=node.lineno)
            return _filtered(_filtered(strings, "_measure"), "join")
        elif (
            isinstance(node, (nodes.List, nodes.Dict, nodes.Tuple))
            and getattr(node, "ctx", "load") == "load"
        ):
            return _filtered(node, "_measure")
        return node


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
