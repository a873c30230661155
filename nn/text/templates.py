"""Chat templates: programs that come with a folder. They run in jinja2's sandbox, and within bounds.

The sandbox keeps a template from files and from Python's inside; here it is kept from working without end. What an
operation goes through, or may make, is charged before it is done: a character counts 1, an item `ITEM`, and the
operation itself `CALL`.
"""

from __future__ import annotations

import datetime
import functools
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from minigrad.extras import require

__all__ = ["render"]

ITEM, CALL = 20, 100
MOST = 2_000_000, 200  # what a rendering may cost, and for each character that it is given
LONGEST = 100_000  # characters of a template
_OPERATORS = frozenset(["+", "-", "*", "/", "//", "**", "%"])

# What looks at values without going into them; what may make a multiple of them; what takes widths from a text.
_SHALLOW = re.compile(
    r"[-+/]|//|abs|attr|count|d|default|first|float|int|items|last|length|list|map|random|reject|rejectattr|reverse|safe"
    r"|select|selectattr"
)
_PRODUCTS = re.compile(r"\*|\*\*|batch|expandtabs|indent|join|replace|slice|sum|tojson|translate|wordwrap")
_FORMATS = re.compile(r"%|format|format_map|strftime_now")
_WIDTHS = re.compile(r"%(?:\([^)]*\))?([-+ #.*\d]+)|\{[^{}]*:([^{}]*\{?)")


def render(source: str, where: str, given: Mapping[str, Any]) -> str:
    """The text that a template makes of what is `given`.

    Whatever goes wrong in it, and a template that would work on without end, is a ValueError that begins with `where`.
    """
    if len(source) > LONGEST:
        raise ValueError(f"{where}: chat_template: expected at most {LONGEST:,} characters, got {len(source):,}")
    jinja2 = require("jinja2.sandbox", "a chat template") and require("jinja2", "a chat template")
    try:
        environment = _environment(jinja2, _Meter(given))
        code = environment.compile(_metered(environment.parse(source), jinja2.nodes).set_environment(environment))
        return str(environment.template_class.from_code(environment, code, environment.globals).render(given))
    except Exception as error:  # a template is a program of somebody else's: it can raise anything
        what = "the chat template refuses" if type(error) is jinja2.TemplateError else "chat_template"
        text = " ".join(str(error).split())[:1000]
        raise ValueError(f"{where}: {what}: {text or type(error).__name__}") from None


class _Meter:
    """What a rendering may still cost."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self.left = math.inf
        self.left = MOST[0] + MOST[1] * self.weight(given)

    def charge(self, name: str, values: list[Any]) -> None:
        """For an operator, a filter or a method (""; for another operation) that is about to be done on values."""
        self.left -= CALL + self._cost(name, values)
        if self.left < 0:
            raise ValueError("it would take too much time or memory (loops, or repeated text, without a bound)")

    def _cost(self, name: str, values: list[Any]) -> float:
        if name == "for":
            return CALL * _length(values[0])
        if _FORMATS.fullmatch(name) and isinstance(values[0], (str, bytes)):
            return _widths(values[0]) + len(values[0]) * (1 + sum(map(self.weight, values[1:])))
        if name in _OPERATORS and all(isinstance(v, (int, float)) for v in values):
            bits = [v.bit_length() for v in values if isinstance(v, int)]
            return 0 if len(bits) < 2 else bits[0] * (abs(values[1]) if name == "**" else bits[1])
        if _SHALLOW.fullmatch(name):
            return sum(map(_length, values))
        if not _PRODUCTS.fullmatch(name):
            return sum(map(self.weight, values)) + (sum(map(_width, values[1:])) if name else 0)
        items = name in ("*", "batch", "slice", "sum")  # which look at these alone
        sizes = [_length(v) if items or isinstance(v, str) else self.weight(v) for v in values]
        cost = math.prod(1 + size + _width(v) for size, v in zip(sizes, values))
        return cost + (sizes[0] ** 2 if name == "sum" else 0)  # of lists: each is copied into the next

    def weight(self, value: Any) -> int:
        """How many characters there are in a value, and what its items cost, each as often as it is reached."""
        total, waiting = 0, [value]
        while waiting and total <= self.left:
            value = waiting.pop()
            kind = type(value)
            total += ITEM + (len(value) if kind is str else 0)
            if kind is list or kind is tuple:
                waiting += value
            elif isinstance(value, Mapping):
                waiting += [*value, *value.values()]
            elif kind not in (str, int, bool, range) and isinstance(value, Iterable) and _length(value):
                waiting += list(value)
            elif kind.__name__ == "Namespace":
                raise TypeError("a namespace is no text")
        return total

    def before(self, name: str, function: Callable[..., Any], is_test: bool = False) -> Callable[..., Any]:
        """A filter or test that is charged for the values it is given."""
        own = 1 if hasattr(function, "jinja_pass_arg") else 0  # arguments of jinja2's

        @functools.wraps(function)
        def call(*args: Any, **options: Any) -> Any:
            args = (*args[:own], *map(_listed, args[own:]))
            values = [*args[own:], *options.values()]
            if is_test:  # of one value: most only look at its type
                self.charge("" if len(values) > 1 or name in ("lower", "upper") else "length", values)
            else:
                self.charge(name, values[:1] if _SHALLOW.fullmatch(name) else values)
            return function(*args, **options)

        return call


def _environment(jinja2: Any, meter: _Meter) -> Any:
    """jinja2's sandbox, in which calls, operators, filters and tests are charged."""

    class Environment(jinja2.sandbox.ImmutableSandboxedEnvironment):
        intercepted_binops = _OPERATORS

        def call(self, context: Any, function: Any, /, *args: Any, **options: Any) -> Any:
            args = (*map(_listed, args),)
            values = [*args, *(v for name, v in options.items() if name not in ("_loop_vars", "_block_vars"))]
            name = getattr(function, "__name__", "")
            owner = getattr(getattr(function, "__wrapped__", function), "__self__", None)
            if isinstance(owner, (str, bytes, int, float, list, tuple)):
                meter.charge(name, [owner, *values])
            elif name:
                values += list(owner) if isinstance(owner, Mapping) else []
                meter.charge(name if name == "strftime_now" else "", values)
            else:  # a macro, a block, or a loop that goes through other values: their inside is charged there
                meter.charge("for", values[:1] if isinstance(function, jinja2.runtime.LoopContext) else [values])
            return super().call(context, function, *args, **options)

        def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
            meter.charge(operator, [left, right])
            return super().call_binop(context, operator, left, right)

    def charged(_: Any, value: Any, name: str) -> Any:
        value = _listed(value)
        meter.charge(name, [value])
        return value

    def raise_exception(message: str) -> None:
        raise jinja2.TemplateError(message)

    def strftime_now(form: str) -> str:
        return datetime.datetime.now().strftime(form)

    environment = Environment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    environment.filters["tojson"] = lambda x, indent=None, **_: json.dumps(x, ensure_ascii=False, indent=indent)
    environment.filters = {name: meter.before(name, f) for name, f in environment.filters.items()}
    environment.tests = {name: meter.before(name, f, is_test=True) for name, f in environment.tests.items()}
    environment.filters["_charged"] = jinja2.pass_context(charged)  # which is never computed ahead
    del environment.globals["lipsum"]
    environment.globals |= {"raise_exception": raise_exception, "strftime_now": strftime_now}
    return environment


def _metered(tree: Any, nodes: Any) -> Any:
    """The parsed template, with a charge before what jinja2 does without asking the environment."""

    parts = {nodes.Output: "nodes", nodes.Concat: "nodes", nodes.Compare: "expr", nodes.Operand: "expr",
             nodes.Pair: "key", nodes.For: "iter", nodes.Getitem: "arg"}  # fmt: skip
    for node in list(tree.find_all(tuple(parts))):
        is_slice = isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice)
        part, name = parts[type(node)], nodes.Const("for" if isinstance(node, nodes.For) else "")
        if is_slice:
            part, name = "node", nodes.Const("length")
        old = getattr(node, part)
        new = [
            nodes.Filter(value, "_charged", [name], [], None, None, lineno=node.lineno)
            for value in (old if isinstance(old, list) else [old])
        ]
        setattr(node, part, new if isinstance(old, list) else new[0])
    return tree


def _length(value: Any) -> int:
    return len(value) if hasattr(value, "__len__") else 0


def _listed(value: Any) -> Any:
    """What can be gone through only once, as a list: it can be counted."""
    return list(value) if isinstance(value, Iterator) else value


def _width(value: Any) -> int:
    return abs(value) if isinstance(value, int) else 0


def _widths(form: Any) -> float:
    """What the widths in a format may add to it; one that is an argument may be anything."""
    text = " ".join(percent + brace for percent, brace in _WIDTHS.findall(repr(form)))
    return math.inf if set(text) & set("*{") else sum(map(float, re.findall(r"\d+", text)))
