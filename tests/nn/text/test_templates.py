"""Chat templates, which are programs of strangers: rendered as jinja2's sandbox does, or one line, soon."""

from __future__ import annotations

import datetime
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from damage import INTENSE, Judge
from tiny_folders import text_files

import nn
from nn.text.templates import render

pytest.importorskip("tokenizers", reason="the tokenizers of published models need it")
sandbox = pytest.importorskip("jinja2.sandbox", reason="chat templates need it")

BIG = "{% set big = 'x' * 100000 %}"
TWINS = "{% set x = [1] %}{% set y = [1] %}" + "{% set x = [x, x] %}{% set y = [y, y] %}" * 60
KEYS = "{% set x = (1,) %}" + "{% set x = (x, x) %}" * 60
SPACE = "{% set ns = namespace(x='ab', n=7) %}"
WITHOUT_END = {
    "loops": ["{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
              "{% for i in range(99999) %}" + "x" * 90_000 + "{% endfor %}", "{% for i in range(10**12) %}{% endfor %}",
              "{% macro m() %}" + "x" * 90_000 + "{% endmacro %}{% for i in range(99999) %}{% set y = m() %}{% endfor %}",
              "{% set x = [1] * 200000 %}{% for i in range(9999) %}{% set y = x[1:] %}{% endfor %}",
              "{% set x = [1] * 200000 %}{% for i in range(9999) %}{% set y = x|list %}{% endfor %}",
              "{% for i in range(9999) %}{{ ('a' * 200000).find('a' * 90000 ~ 'b') }}{% endfor %}"],
    "recursion": ["{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "{% block a %}{{ self.a() }}{% endblock %}",
                  "{% macro m(n) %}{% if n < 60 %}{{ m(n + 1) }}{{ m(n + 1) }}{% endif %}{% endmacro %}{{ m(0) }}",
                  "{% for i in [1] recursive %}{{ loop([1, 2]) }}{% endfor %}",
                  "{% set x = range(19000) %}{% for i in x recursive %}{% if not loop.depth0 %}{{ loop(x) }}{% endif %}{% endfor %}",
                  "{% macro m() %}{{ varargs }}{% endmacro %}{% set x = [1] * 99999 %}{% for i in range(9000) %}{% set y = m(*x) %}{% endfor %}"],
    "operators": ["{{ 10 ** 100000000 }}", "{{ 'x' * 10**11 }}", "{{ 10**11 * 'x' }}", "{{ ([1] * 10**10)|length }}",
                  "{{ '%9999999999d' % 1 }}", "{{ '%*d' % (10**10, 1) }}", "{{ '%(a)9999999999d' % {'a': 1} }}",
                  "{{ ('%99999d' * 1000) % ((1,) * 1000) }}", BIG + "{{ ('%(a)s' * 100000) % {'a': big} }}",
                  SPACE + "{% for i in range(999) %}{% set ns.n = ns.n * ns.n %}{% endfor %}{{ ns.n }}",
                  "{{ 'x'.encode() * 10**11 }}", "{% set a = ('f' * 900000)|int(base=16) %}{{ a // 7 }}"],
    "doubling": ["{% set x = 'ab' %}" + "{% set x = x ~ x %}" * 60, "{% set x = 'ab' %}" + "{% set x = x + x %}" * 60,
                 SPACE + "{% for i in range(999) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}", TWINS + "{{ x }}",
                 TWINS + "{{ x|tojson }}", TWINS + "{{ x == y }}", TWINS + "{{ x in [y] }}", TWINS + "{{ x is eq(y) }}",
                 TWINS + "{{ [x]|select('in', [y])|list|length }}", KEYS + "{{ {x: 1}|length }}", KEYS + "{{ {}[x] }}",
                 TWINS + "{% for z in [x, y] %}{{ loop.changed(z) }}{% endfor %}",
                 "{% set ns = namespace(x=[1]) %}" + "{% set ns.x = [ns.x, ns.x] %}" * 60 + "{{ ns }}"],
    "filters": ["{{ 'x'|center(10**10) }}", BIG + "{{ big|replace('x', big) }}", BIG + "{{ ([big] * 99999)|join }}",
                BIG + "{{ ([big] * 99999)|select|join }}", BIG + "{{ ([big] * 99999)|map('trim')|join }}",
                BIG + "{{ big|join(big) }}", "{{ '%9999999999d'|format(1) }}", "{{ ('x\n' * 99999)|indent(99999) }}",
                "{{ messages|tojson(10**10) }}", "{{ [1]|batch(10**9, 'x')|list }}", "{{ [1]|slice(10**9)|list }}",
                "{{ ([[1]] * 200000)|sum(start=[])|length }}", BIG + "{{ big|wordwrap(1, true, big) }}",
                BIG + "{% filter replace('x', big) %}{{ big }}{% endfilter %}", "{{ lipsum(10**9) }}"],
    "methods": ["{{ 'x'.ljust(10**10) }}", "{{ ('\t' * 99999).expandtabs(99999) }}", BIG + "{{ big.replace('', big) }}",
                BIG + "{{ big.join([big]) }}", BIG + "{{ big.translate({120: big}) }}", "{{ '{:>9999999999}'.format(1) }}",
                "{{ '{:{}}'.format(1, 10**10) }}", BIG + "{{ ('{0}' * 99999).format(big) }}",
                "{{ '{a:>9999999999}'.format_map({'a': 1}) }}", "{{ (1).to_bytes(10**10, 'big') }}",
                "{{ strftime_now('%9999999999Y') }}"],
    "faults": ["{{ 1 / 0 }}", "{{ 'a' + 1 }}", "{{ {}.x.y }}", "{% include 'x' %}", "{% extends 'x' %}", "{{ 1e999 }}",
               "{{ '" + "x" * 100_000 + "' }}", "{{ " + "(" * 40_000 + ")" * 40_000 + "}}", "{{ nothing() }}", "{% for %}",
               "{{ 1" + " + 1" * 2_000 + " }}", "{% for i in [1] %}" * 40 + "{% endfor %}" * 40,
               "{{ raise_exception('no\n\n' * 9999) }}", "{{ raise_exception(1, 2) }}", "{{ " + "9" * 9999 + " }}"],
}  # fmt: skip


@pytest.mark.parametrize("file", ["tokenizer_config.json", "chat_template.jinja"])
def test_templates_that_would_not_end(tmp_path: Path, file: str, tell: Callable[[str], None]) -> None:
    judge, config = Judge((ValueError,)), file == "tokenizer_config.json"
    for kind, templates in WITHOUT_END.items():
        for number, template in enumerate(templates if config or INTENSE else templates[::3]):
            if file.endswith(".jinja"):
                (tmp_path / file).write_text(template)
            text_files(tmp_path, **({} if file.endswith(".jinja") else {"chat_template": template}))
            text = nn.text.load(tmp_path)
            read = lambda text=text: text.chat([{"role": "user", "content": "the cat"}])
            judge.case(f"{kind} {number}", read, lambda said: False, str(tmp_path / file))
    judge.report(f"chat templates without end, in {file}", 70 if config else 25, tell)


SHOWN = """{{- bos_token }}{%- set ns = namespace(last=messages|length - 1, seen='') %}
{%- macro show(tool, depth) %}{{ '  ' * depth ~ tool.name }}: {{ tool.arguments|tojson(indent=2) }}
{%- for name, value in tool.arguments.items() %}{{ name }}={{ value|upper|default('any') }}{% if not loop.last %}, {% endif %}{% endfor %}{% endmacro %}
{%- for message in messages[::-1] %}{% set index = (messages|length - 1) - loop.index0 %}
{%- if message.role == "user" and not message.content.startswith('<tool') %}{% set ns.last = index %}{% break %}{% endif %}{% endfor %}
{% for message in messages if message.role in ['user', 'assistant'] or 'tool_calls' in message %}
    {%- if loop.first or messages[loop.index0 - 1].role != message['role'] %}{{ '<|' + message.role + '|>\n' }}{% endif %}
    {%- set content = message.content.split('</think>')[-1].lstrip('\n')|trim %}{{ content.replace('sky', 'sea') }}
    {%- for call in message.tool_calls or [] %}{{ show(call, 2) }}{% endfor %}{% set ns.seen = ns.seen ~ loop.cycle('a', 'b') %}
{% endfor %}{{ ns.seen }}{{ ns.last }} {{ messages|map(attribute='role')|unique|sort|join('|') }}
{{ messages|selectattr('role', 'equalto', 'user')|list|length }} {{ "%s-%3d" % ('a', 3) }} {{ "{:>5}|{}".format('x', 2) }}
{{ messages|batch(2)|list|length }} {{ strftime_now('%d %b %Y') }} {{ [1, 2]|sum }} {{ 'a\nb'|indent(4) }} {{ 7 // 2 + 2 ** 3 - 1 }}
{{ '{{}}'.format() }} {{ 'at 18001234567: %s' % 3 }} {{ 1.5 * 10000000 }} {{ '{}'.format(1731000000) }} {{ 10 ** 9 * 1731000000 }}
{%- set x %}{{ 'q' }}!{% endset %}{{ x }}{% if tools is defined %}tools{% endif %}{{ 'true'|string if reply else none }}"""


@pytest.mark.parametrize("times", [1, 300])
def test_a_template_says_what_it_says_without_bounds(times: int) -> None:
    """Long conversations may cost more."""
    call = {"name": "f", "arguments": {"a": "b", "c": "d"}}
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "Be kind."}, {"role": "user", "content": "Why is the sky blue? " * times},
        {"role": "assistant", "content": "<think>hm</think>\n\nsky", "tool_calls": [call]}, {"role": "tool", "content": "<tool>4"},
        {"role": "user", "content": "And now?"},
    ] * times  # fmt: skip
    given = {"messages": messages, "bos_token": "<s>", "reply": True}
    environment = sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = lambda x, indent=None: json.dumps(x, indent=indent)
    environment.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
    for _ in range(2):  # a day may end in between
        said, expected = render(SHOWN, "file", given), environment.from_string(SHOWN).render(**given)
        if said == expected:
            break
        time.sleep(1)
    assert said == expected and len(said) > 150 * times
