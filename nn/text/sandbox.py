"""jinja2 environment of chat templates, which are programs that come with a published model.

Needs jinja2. Its sandbox keeps a template from files and from Python's internals, but does not
bound its work. `BoundedSandbox` refuses a template that makes too many steps, builds too large
values or takes too long.
"""

from __future__ import annotations

import datetime
import functools
import json
import re
import time
from collections.abc import ItemsView, Iterable, Iterator, KeysView, ValuesView
from typing import Any

import jinja2.ext
import jinja2.sandbox
from jinja2 import nodes
from jinja2.visitor import NodeTransformer

__all__ = ["BoundedSandbox"]

STEP = 300
"""Units of work of an iteration, a call or an operator. A new character is one unit."""
SECONDS = 10
TOO_MUCH = "it takes too much work (loops, or repeated text, without a bound)"
SIZED_BY_NUMBERS = {
    "batch", "center", "expandtabs", "indent", "ljust", "repeat", "rjust", "round", "slice",
    "to_bytes", "tojson", "truncate", "wordwrap", "zfill",
}  # fmt: skip
"""Filters and methods for which an integer argument is a width or a count."""
SQUARING = {"striptags", "sum", "urlize"}
"""Filters whose work can be the square of the size of their argument."""
WIDE_FORMAT = re.compile(r"%[-+ #.0-9]*?(\d{6}|\*)|\{[^{}:]*:[^{}]*?(\d{6}|\{)")
"""Formats with a width of 100,000 or more, or with a width that is an argument."""
SIZED = (list, tuple, dict, set, KeysView, ValuesView, ItemsView)


class BoundedSandbox(jinja2.sandbox.ImmutableSandboxedEnvironment):
    """jinja2 environment with the filters and functions of transformers, and bounded work.

    An instance renders one template.

    Parameters
    ----------
    variables : dict
        Variables of the template: strings, numbers, None, lists and dicts. The bounds grow with
        their size.
    """

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self, variables: dict[str, Any]) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            optimized=False,  # constants, too, are computed within the bounds
            extensions=[Generation, "jinja2.ext.loopcontrols"],
        )
        self._sizes: dict[int, tuple[Any, int]] = {}
        self._units_left = 3 * 10**7 + 2000 * self._size(variables)
        self._end = time.monotonic() + SECONDS
        self.filters = {
            **{name: self._bounded(name, f) for name, f in self.filters.items()},
            "tojson": self._bounded("tojson", tojson),
            "_step": self._step,
            "_measure": self._measure,
        }
        del self.globals["lipsum"]
        self.globals |= {
            "namespace": Namespace,
            "raise_exception": raise_exception,
            "strftime_now": strftime_now,
        }

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        return Measured().visit(super()._parse(source, name, filename))

    def concat(self, parts: Iterable[str]) -> str:
        """Join the parts of an output, if they are not too large.

        Parameters
        ----------
        parts : iterable of str

        Returns
        -------
        str
            The whole output.
        """
        strings = []
        for part in parts:
            self._step(size=len(part))
            strings.append(part)
        return "".join(strings)

    def call(self, context: Any, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Call a function or method of the template, if the result is not too large.

        Parameters
        ----------
        context : jinja2.runtime.Context
        function : callable
        *args, **kwargs
            Arguments of the function.

        Returns
        -------
        object
            The result of the function.
        """
        owner = getattr(getattr(function, "__wrapped__", function), "__self__", None)
        if isinstance(owner, (str, bytes, int, *SIZED)) or function is strftime_now:
            self._check(function.__name__, owner, *args, *kwargs.values())
        return self._measure(super().call(context, function, *args, **kwargs))

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Compute an arithmetic operation, if the result is not too large.

        Parameters
        ----------
        context : jinja2.runtime.Context
        operator : str
            "+", "*", "**" or "%".
        left, right : object

        Returns
        -------
        object
            The result of the operation.
        """
        if isinstance(left, int) and isinstance(right, int):
            if operator == "**":
                self._step(size=left.bit_length() * abs(right) * 100)
            elif operator == "*":
                self._check("*", left, right)
        elif operator == "*" and not isinstance(left, float) and not isinstance(right, float):
            self._check("repeat", *((right, left) if isinstance(left, int) else (left, right)))
        elif operator == "%" and isinstance(left, str):
            self._check("format", left, right)
        return self._measure(super().call_binop(context, operator, left, right))

    def _bounded(self, name: str, function: Any) -> Any:
        """Return a filter that checks the sizes of its arguments, and of its result."""

        @functools.wraps(function)  # with jinja2's marks
        def bounded(*args: Any, **kwargs: Any) -> Any:
            args = tuple([list(x) if isinstance(x, Iterator) else x for x in args])
            self._check(name, *args, *kwargs.values())
            return self._measure(function(*args, **kwargs))

        return bounded

    def _check(self, name: str, owner: Any, *values: Any) -> None:
        """Refuse a call whose work may be too large: at most the product of two sizes."""
        is_format = "format" in name or name == "strftime_now"
        strings = [x for x in (owner, *values) if isinstance(x, str)]
        if is_format and any(map(WIDE_FORMAT.search, strings)):
            raise OverflowError(TOO_MUCH)
        counts = [abs(x) for x in values if isinstance(x, int) and name in SIZED_BY_NUMBERS]
        work = self._size(owner) * max([1, *map(self._size, values), *counts])
        if (work**2 if name in SQUARING else work) > self._units_left:
            raise OverflowError(TOO_MUCH)

    def _step(self, value: Any = None, size: int = 0) -> Any:
        """Count a step, and the size of what it makes."""
        self._units_left -= STEP + size
        if self._units_left < 0 or time.monotonic() > self._end:
            raise OverflowError(TOO_MUCH)
        return value

    def _measure(self, value: Any) -> Any:
        return self._step(value, self._size(value))

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


class Measured(NodeTransformer):
    """Count the iterations of a template, and measure the values that it builds."""

    def visit(self, node: Any, *args: Any, **kwargs: Any) -> Any:
        super().visit(node)
        if isinstance(node, nodes.For):
            step = _filtered(nodes.Const(None, lineno=node.lineno), "_step")
            node.body.insert(0, nodes.ExprStmt(step, lineno=node.lineno))
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
    """Block `{% generation %}`, which marks the text of the model for a trainer."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Any) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


class Namespace(jinja2.utils.Namespace):
    """Namespace without names that Python calls, such as `__call__`."""

    def __init__(self, /, *values: Any, **named: Any) -> None:
        super().__init__()
        for name, value in dict(*values, **named).items():
            self[name] = value

    def __setitem__(self, name: str, value: Any) -> None:
        if str(name).startswith("_"):
            raise jinja2.sandbox.SecurityError(
                f"a name in a namespace must not begin with _, got {name!r}"
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
    """Return JSON, as the filter of transformers; `default` would call a function of the file."""
    return json.dumps(
        x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
