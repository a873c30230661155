"""Chat templates: the text of jinja2's sandbox, or one error soon."""

from __future__ import annotations

import collections
import enum
import re
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from support.damage import limits
from support.environment import needs

from minigrad.check.extras import MissingExtraError
from nn.text.templates import render

needs("jinja2")

FAULTS = {
    "nesting": "{{ " + "(" * 40_000 + ")" * 40_000 + "}}",
    "undefined": "{{ {}.x.y }}",
    "length": "{{ '" + "x" * 100_000 + "' }}",
    "operands": "{{ 1" + " + 1" * 2_000 + " }}",
    "loops": "{% for i in [1] %}" * 40 + "{% endfor %}" * 40,
    "recursion": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "range": "{{ range(10**6) }}",
    "message": "{{ raise_exception('no\n\n' * 9999) }}",
    "arguments": "{{ raise_exception(1, 2) }}",
    "escape sequences": "{{ raise_exception('\x1b]0;title\x07') }}",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_render_faulty_template_raises_one_short_line(fault: str) -> None:
    with limits(), pytest.raises(ValueError, match="^a/file: ") as caught:
        render(FAULTS[fault], "a/file", {"messages": [{"role": "user"}]})
    assert str(caught.value).isprintable() and len(str(caught.value)) < 2000


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{{ raise_exception('no\n\nway') }}", "the chat template refuses: no way"),
        ("{{ 1 / 0 }}", "chat_template: division by zero"),
        ("{{ [x]|tojson(default=raise_exception) }}", "chat_template: tojson() got an unexpected"),
    ],
)
def test_render_error_names_the_reason(source: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"^a/file: {re.escape(message)}"):
        render(source, "a/file", {})


@pytest.mark.parametrize(
    "attack",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ raise_exception.__globals__ }}",
        "{{ strftime_now.__globals__['__builtins__'] }}",
        "{{ messages.append(1) }}",
        "{{ namespace(__call__=1) }}",
        "{{ namespace({'_x': 1}) }}",
        "{% set ns = namespace() %}{% set ns.__call__ = 1 %}{{ ns }}",
        "{{ dict.get }}{{ dict.__call__ }}{{ dict.fromkeys.__self__ }}",
        "{{ self._TemplateReference__context }}",
        "{% include 'secret' %}",
        "{% import '/etc/passwd' as x %}",
    ],
)
def test_render_does_not_leave_the_sandbox(attack: str) -> None:
    try:
        output = render(attack, "a/file", {"messages": [{"role": "user"}]})
    except ValueError as error:
        assert str(error).startswith("a/file: chat_template:")
    else:
        assert output == ""  # a hidden attribute is undefined


def test_render_twice_does_not_share_state() -> None:
    """Templates cannot change the environment that the process keeps."""
    source = "{% set raise_exception = 1 %}{% set ns = namespace(n=n) %}{{ ns.n }}"
    assert render(source, "a/file", {"n": 1}) == "1"
    assert render("{{ raise_exception is callable }}{{ ns }}", "a/file", {}) == "True"


class Role(str, enum.Enum):
    USER = "user"


VALUES: list[Any] = [
    "\0\n\"'\\\x7f\u2028", "\ud83d", "\ude00\ud83d", "\uffff\U0001f600", None, True, False, -0.0, 5e-324, 1e308, float("nan"),
    float("-inf"), 2**200, -7, 0.1, [], {}, [[{"x": [1, {"\ud800": "a"}]}, "b"]],
]  # fmt: skip


def test_render_passes_values_exactly() -> None:
    assert render("{{ x }}", "a/file", {"x": VALUES}) == str(VALUES)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"\ud83d\ude00": MappingProxyType({"a": np.float64(0.1)})}, {"\ud83d\ude00": {"a": 0.1}}),
        (collections.OrderedDict(a=Role.USER), {"a": "user"}),
    ],
)
def test_render_passes_subclasses_as_values_of_json(value: Any, expected: Any) -> None:
    assert render("{{ x }}", "a/file", {"x": value}) == str(expected)


CYCLE: list[Any] = []
CYCLE.append(CYCLE)


@pytest.mark.parametrize(
    "value",
    [(1,), {1: 2}, b"x", np.int64(1), 10**5000, CYCLE],
    ids=["tuple", "key", "bytes", "NumPy", "large", "cycle"],
)
def test_render_values_that_json_changes_raise(value: Any) -> None:
    expected = "^chat: (messages.0..content must be a string, a number|maximum recursion|Exceeds)"
    with pytest.raises(ValueError, match=expected):
        render("a", "a/file", {"messages": [{"content": value}]})


def test_render_with_old_jinja2_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda name: "3.1.5.post1")
    message = "^a chat template needs jinja2 3.1.6, got 3.1.5.post1: pip install -U jinja2$"
    with pytest.raises(MissingExtraError, match=message):
        render("a", "a/file", {})
