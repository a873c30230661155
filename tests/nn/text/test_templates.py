"""Chat templates: the text of jinja2's sandbox, or one error soon."""

from __future__ import annotations

import collections
import enum
import re
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from damage import limits

from minigrad.core.errors import MissingExtraError
from nn.text.templates import render

pytest.importorskip("jinja2", reason="chat templates need it")

BIG = "{% set big = 'x' * 100000 %}"
SPACE = "{% set ns = namespace(x='ab', n=7) %}"
WITHOUT_END = {
    "loops": ["{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
              "{% for i in range(99999) %}" + "x" * 90_000 + "{% endfor %}",
              "{% set x = [1] * 200000 %}{% for i in range(99999) %}{% set y = x[1:] %}{% endfor %}",
              "{% for i in range(99999) %}{{ ('a' * 200000).find('a' * 90000 ~ 'b') }}{% endfor %}",
              "{% for i in range(99999) %}{% set x = 10 ** 30000 %}{% endfor %}",
              "{% for i in range(99999) %}{% set x %}{{ 'x' * 9000000 }}{% endset %}{% endfor %}"],
    "recursion": ["{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "{% block a %}{{ self.a() }}{% endblock %}",
                  "{% macro m(n) %}{% if n < 60 %}{{ m(n + 1) }}{{ m(n + 1) }}{% endif %}{% endmacro %}{{ m(0) }}",
                  "{% set x = range(19000) %}{% for i in x recursive %}{% if not loop.depth0 %}{{ loop(x) }}{% endif %}{% endfor %}"],
    "operators": ["{{ '%9999999999d' % 1 }}", "{{ 10 ** 100000000 }}", "{{ ([1] * 10**10)|length }}",
                  BIG + "{{ ('%(a)s' * 100000) % {'a': big} }}",
                  SPACE + "{% for i in range(999) %}{% set ns.n = ns.n * ns.n %}{% endfor %}{{ ns.n }}"],
    "doubling": ["{% set x = 'ab' %}" + "{% set x = x ~ x %}" * 60, "{% set x = [1] %}" + "{% set x = [x, x] %}" * 60 + "{{ x }}",
                 "{% set x = (1,) %}" + "{% set x = (x, x) %}" * 60 + "{{ {x: 1}|length }}",
                 "{% set d = {'a': 'abc'}.values() %}" + "{% set d = {'a': [d, d]}.values() %}" * 60 + "{{ d }}",
                 SPACE + "{% set ns = namespace(x=[ns, ns]) %}" * 40 + "{{ ns }}{{ 1 / 0 }}"],
    "filters": ["{{ 'x'|center(10**10) }}", BIG + "{{ big|replace('x', big) }}", "{{ 1.5|round(1000000000, 'ceil') }}",
                "{{ ([[1]] * 200000)|sum(start=[])|length }}", "{{ lipsum(10**9) }}",
                "{% set c = ('<!--' ~ 'a-->') * 1000000 %}{{ c|striptags }}", "{{ [[[[1]]]]|tojson(indent='y' * 90000000) }}"],
    "methods": ["{{ 'x'.ljust(10**10) }}", "{{ '{:>9999999999}'.format(1) }}", BIG + "{{ big.replace('', big) }}",
                BIG + "{{ ('{0}' * 99999).format(big) }}", "{{ (1).to_bytes(10**10, 'big') }}", "{{ strftime_now('%999999999d') }}",
                "{{ ('a' * 9000000).strip('b' * 9000000) }}", "{{ '{' ~ ':' * 500000 }}{{ ('{' ~ ':' * 500000).format() }}"],
    "faults": ["{{ " + "(" * 40_000 + ")" * 40_000 + "}}", "{{ {}.x.y }}", "{{ '" + "x" * 100_000 + "' }}",
               "{{ 1" + " + 1" * 2_000 + " }}", "{% for i in [1] %}" * 40 + "{% endfor %}" * 40,
               "{{ raise_exception('no\n\n' * 9999) }}", "{{ raise_exception(1, 2) }}"],
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("kind", WITHOUT_END)
def test_render_endless_template_raises(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nn.text.sandbox.SECONDS", 0.5)
    for source in WITHOUT_END[kind]:
        with limits(), pytest.raises(ValueError, match="^a/file: ") as caught:
            render(source, "a/file", {"messages": [{"role": "user"}]})
        assert str(caught.value).isprintable() and len(str(caught.value)) < 2000, source[:200]


def test_render_long_chat_is_within_bounds() -> None:
    """Operations on a long chat are not refused for its size."""
    source = "{% for m in messages %}{% if messages[0] == m %}{{ messages|length }}{% endif %}{% endfor %}"
    messages = [{"content": str(i) * 1000} for i in range(1000)]
    assert render(source, "a/file", {"messages": messages}) == "1000"
    source = "{{ messages[0].content.replace('0', '<|end|>') }}"
    long = [{"content": "0" * 1_000_000}]
    assert len(render(source, "a/file", {"messages": long})) == 7_000_000


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (WITHOUT_END["loops"][0], "chat_template: it takes too much work (loops, or repeated text"),
        ("{{ 'x' * 10**11 }}", "chat_template: it takes too much work"),
        ("{{ raise_exception('no\n\nway') }}", "the chat template refuses: no way"),
        ("{{ 1 / 0 }}", "chat_template: division by zero"),
        ("{{ [x]|tojson(default=raise_exception) }}", "chat_template: tojson() got an unexpected"),
    ],
)
def test_render_error_names_the_reason(source: str, said: str) -> None:
    with pytest.raises(ValueError, match=f"^a/file: {re.escape(said)}"):
        render(source, "a/file", {})


@pytest.mark.parametrize(
    "attack",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{{ namespace(__call__=1) }}",
        "{{ namespace({'_x': 1}) }}",
        "{% set ns = namespace() %}{% set ns.__call__ = 1 %}{{ ns }}",
    ],
)
def test_render_does_not_leave_the_sandbox(attack: str) -> None:
    try:
        said = render(attack, "a/file", {"messages": [{"role": "user"}]})
    except ValueError as error:
        assert str(error).startswith("a/file: chat_template:")
    else:
        assert said == ""  # an attribute that is not to be seen is undefined


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
