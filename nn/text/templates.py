"""Chat templates: programs that come with a folder. They run in jinja2's sandbox, and within bounds.

The sandbox keeps a template from files and from Python's inside; here it is kept from working without end. Loops,
calls, and whatever takes longer the larger its values are, are charged before they happen: a character
counts 1, an item `ITEM`, a call or a pass through a loop `CALL`.
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
WORD = 1 << 12  # bits of a whole number
_PLAIN = {str, int, float, bool, type(None), range}

# Filters that look at a value without going into it; what takes a multiple of it; tests that go into values.
_SHALLOW = {
    "abs", "attr", "count", "d", "default", "first", "float", "int", "items", "last", "length", "list", "map", "random",
    "reject", "rejectattr", "reverse", "safe", "select", "selectattr",
}  # fmt: skip
_PRODUCTS = {"batch", "expandtabs", "indent", "join", "replace", "slice", "sum", "tojson", "translate", "wordwrap"}
_DEEP_TESTS = {
    "!=", "<", "<=", "==", ">", ">=", "eq", "equalto", "ge", "greaterthan", "gt", "in", "le", "lessthan", "lower", "lt",
    "ne", "upper",
}  # fmt: skip
_WIDTHS = re.compile(r"%(?:\([^)]*\))?([-+ #.*\d]+)|\{[^{}]*:([^{}]*\{?)")  # what a format says of widths


def render(source: str, where: str, given: Mapping[str, Any]) -> str:
    """The text that a template makes of what is `given`.

    Whatever goes wrong in it, and a template that would work on without end, is a ValueError that begins with `where`.
    """
    if len(source) > LONGEST:
        raise ValueError(f"{where}: chat_template: expected at most {LONGEST:,} characters, got {len(source):,}")
    jinja2 = require("jinja2.sandbox", "a chat template") and require("jinja2", "a chat template")
    try:
        environment = _environment(jinja2, _Budget(given))
        code = environment.compile(_bounded(environment.parse(source), jinja2.nodes).set_environment(environment))
        return str(environment.template_class.from_code(environment, code, environment.globals).render(given))
    except _Refusal as error:
        raise ValueError(f"{where}: the chat template refuses: {' '.join(str(error).split())[:1000]}") from None
    except Exception as error:  # a template is a program of somebody else's: it can raise anything
        text = " ".join(str(error).split())
        raise ValueError(f"{where}: chat_template: {text[:300] or type(error).__name__}") from None


class _Refusal(Exception):
    """The template itself says that it does not take these messages."""


class _TooMuchError(ValueError):
    def __init__(self) -> None:
        super().__init__("it would take too much time or memory (loops, or repeated text, without a bound)")


class _Budget:
    """What a rendering may still cost. Each method charges for work that is about to be done."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self.left = math.inf
        self.left = MOST[0] + MOST[1] * self.weight(given)

    def charge(self, cost: float) -> None:
        self.left -= cost
        if self.left < 0:
            raise _TooMuchError

    def weight(self, value: Any) -> int:
        """How many characters there are in a value, and what its items cost, each as often as it is reached."""
        total, waiting = 0, [value]
        while waiting:
            value = waiting.pop()
            kind = type(value)
            total += ITEM + (len(value) if kind is str else 0)
            if total > self.left:
                raise _TooMuchError
            if kind is list or kind is tuple:
                waiting += value
            elif isinstance(value, Mapping):
                waiting += [*value, *value.values()]
            elif kind not in _PLAIN and isinstance(value, Iterable) and _length(value):
                waiting += list(value)
            elif kind.__name__ == "Namespace":
                raise TypeError("a namespace is no text")
        return total

    def whole(self, value: Any) -> None:
        """It is gone through with all that is in it."""
        self.charge(self.weight(value))

    def operation(self, name: str, value: Any, others: list[Any], by_value: bool = True) -> None:
        """A filter, a test or a method: what is done to a value with others, of which numbers may be widths."""
        whole = name not in ("batch", "slice", "sum")  # which look at the items alone
        sizes = [self.weight(v) if whole and type(v) is not str else _length(v) for v in (value, *others)]
        sizes += [_width(v) if by_value else 0 for v in others]
        self.charge(CALL + (math.prod(1 + size for size in sizes) if name in _PRODUCTS else sum(sizes)))
        if name == "sum":  # of lists: each is copied into the next
            self.charge(_length(value) ** 2)
        if name in ("format", "format_map"):
            self.charge(_widths(value) + len(value) * sum(sizes[1:]))

    def operator(self, symbol: str, left: Any, right: Any) -> None:
        self.charge(CALL)
        if isinstance(left, int) and isinstance(right, int):
            bits = left.bit_length(), right.bit_length()
            if max(bits) > WORD or (symbol == "**" and bits[0] * abs(right) > WORD):
                raise _TooMuchError
        elif symbol == "*":
            self.charge((1 + _length(left) + _width(left)) * (1 + _length(right) + _width(right)))
        elif symbol == "%" and isinstance(left, (str, bytes)):
            self.charge(_widths(left) + len(left) * self.weight(right))
        else:
            self.charge(_length(left) + _length(right))

    def before(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """A filter or test that is charged for the values it is given."""
        own = 1 if hasattr(function, "jinja_pass_arg") else 0  # arguments of jinja2's

        @functools.wraps(function)
        def call(*args: Any, **options: Any) -> Any:
            args = (*args[:own], *map(_listed, args[own:]))
            values = [*args[own:], *options.values()]
            if name in _SHALLOW:
                self.charge(CALL + sum(map(_length, values[:1])))
            else:
                self.operation(name, values[0] if values else None, values[1:], name not in _DEEP_TESTS)
            return function(*args, **options)

        return call


def _environment(jinja2: Any, budget: _Budget) -> Any:
    """jinja2's sandbox, in which calls, operators, filters and tests are charged."""
    runtime = jinja2.runtime

    class Environment(jinja2.sandbox.ImmutableSandboxedEnvironment):
        intercepted_binops = frozenset(["+", "-", "*", "/", "//", "**", "%"])

        def call(self, context: Any, function: Any, /, *args: Any, **options: Any) -> Any:
            own = {"_loop_vars", "_block_vars"}  # jinja2 hands them along
            args = (*map(_listed, args),)
            values = [*args, *(v for name, v in options.items() if name not in own)]
            receiver = getattr(getattr(function, "__wrapped__", function), "__self__", None)
            if isinstance(receiver, (str, bytes, int, float, list, tuple)):
                budget.operation(function.__name__, receiver, values)
            elif isinstance(function, (runtime.Macro, runtime.LoopContext, runtime.BlockReference)):
                budget.charge(CALL + len(values))  # what goes on in them is charged there
            else:
                budget.charge(CALL + sum(map(budget.weight, values)))
            found = super().call(context, function, *args, **options)
            budget.charge(_length(found) if isinstance(found, str) else 0)
            return found

        def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
            budget.operator(operator, left, right)
            return super().call_binop(context, operator, left, right)

    environment = Environment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    environment.filters["tojson"] = lambda x, indent=None, **_: json.dumps(x, ensure_ascii=False, indent=indent)
    environment.filters = {name: budget.before(name, f) for name, f in environment.filters.items()}
    environment.tests |= {name: budget.before(name, environment.tests[name]) for name in _DEEP_TESTS}
    for name, hook in _hooks(budget).items():
        environment.filters[name] = jinja2.pass_context(hook)  # which is never computed ahead
    del environment.globals["lipsum"]
    environment.globals |= {"raise_exception": _refuse, "strftime_now": functools.partial(_now, budget)}
    return environment


def _hooks(budget: _Budget) -> dict[str, Callable[..., Any]]:
    """What `_bounded` puts into a template: filters that charge, and give back what they get."""

    def whole(_: Any, value: Any) -> Any:
        budget.whole(value)
        return value

    def copied(_: Any, value: Any) -> Any:
        budget.charge(_length(value))
        return value

    def gone_through(_: Any, values: Any, cost: int) -> Any:
        values = _listed(values)
        budget.charge(cost * _length(values))
        return values

    return {"_whole": whole, "_copied": copied, "_gone_through": gone_through}


def _bounded(tree: Any, nodes: Any) -> Any:
    """The parsed template, with a charge before what jinja2 does without asking the environment."""

    def around(node: Any, hook: str, *args: Any) -> Any:
        constants = [nodes.Const(arg, lineno=node.lineno) for arg in args]
        return nodes.Filter(node, hook, constants, [], None, None, lineno=node.lineno)

    kinds = (nodes.For, nodes.Output, nodes.Concat, nodes.Compare, nodes.Getitem, nodes.Pair)
    for node in list(tree.find_all(kinds)):
        if isinstance(node, nodes.For):
            text = sum(len(part.data) for part in node.find_all(nodes.TemplateData))
            node.iter = around(node.iter, "_gone_through", CALL + text)
        elif isinstance(node, (nodes.Output, nodes.Concat)):
            node.nodes = [n if isinstance(n, nodes.TemplateData) else around(n, "_whole") for n in node.nodes]
        elif isinstance(node, nodes.Compare):
            node.expr = around(node.expr, "_whole")
            for operand in node.ops:
                operand.expr = around(operand.expr, "_whole")
        elif isinstance(node, nodes.Pair):  # of a dictionary: its key is hashed
            node.key = around(node.key, "_whole")
        elif isinstance(node.arg, nodes.Slice):
            node.node = around(node.node, "_copied")
        elif not isinstance(node.arg, nodes.Const):
            node.arg = around(node.arg, "_whole")
    return tree


def _refuse(message: str) -> None:
    raise _Refusal(message)


def _now(budget: _Budget, form: str) -> str:
    budget.charge(_widths(form))
    return datetime.datetime.now().strftime(form)


def _length(value: Any) -> int:
    try:
        return len(value)
    except (TypeError, OverflowError):
        return 0


def _listed(value: Any) -> Any:
    """What can be gone through only once, as a list: it can be counted."""
    return list(value) if isinstance(value, Iterator) else value


def _width(value: Any) -> int:
    return abs(value) if isinstance(value, int) else 0


def _widths(form: Any) -> float:
    """What the widths in a format may add to it; one that is an argument may be anything."""
    text = form.decode("latin-1") if isinstance(form, bytes) else str(form)
    specs = ["".join(found) for found in _WIDTHS.findall(text)]
    if any(set(spec) & set("*{") for spec in specs):
        raise _TooMuchError
    return sum(float(number) for spec in specs for number in re.findall(r"\d+", spec))
