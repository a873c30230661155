"""Features of published chat templates, as transformers renders them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.environment import needs
from support.tiny_folders import text_files

import nn

transformers = needs("transformers")
needs("jinja2")

TEMPLATES = {
    "blocks": "{% for m in messages %}\n  {% if m.content %}\n{{ m.role }}\n  {% endif %}\n{% endfor %}\nend\n",
    "namespace and break": """{%- set ns = namespace(asked=-1) %}
        {%- for m in messages[::-1] if m.role == 'user' and not m.content.startswith('W') %}
            {%- set ns.asked = messages.index(m) %}{% break %}
        {%- endfor %}{{ ns.asked }}""",
    "tools": """{%- for tool in tools or [] %}
        {{- tool | tojson }}{{ tool | tojson(indent=4) }}{{ tool.function | tojson(sort_keys=true, separators=(',', ':')) }}
        {{- tool | tojson(ensure_ascii=true) }}{% for key, value in tool.items() %}{{ '"%s": ' % key ~ value }}{% endfor %}
    {%- endfor %}""",
    "calls": """{%- for m in messages %}{%- for call in m.tool_calls or [] %}
        {%- for name, value in call.function.arguments | items %}
            {{- name ~ '="' ~ value ~ '"' }}{{ ', ' if not loop.last }}
        {%- endfor %}{{ call.id + (call.function | tojson)[:-1] }}
    {%- endfor %}{% endfor %}""",
    "filters": """{%- set rest = messages | rejectattr('role', 'equalto', 'system') | list %}
        {{- rest | selectattr('tool_calls', 'undefined') | map(attribute='role') | list | last }}
        {{- builtin_tools | reject('equalto', 'a') | join(', ') if builtin_tools is defined }}
        {{- messages[-1].content is string }}{{ messages[-1].content | tojson }}""",
    "thoughts": """{%- for m in messages if '</think>' in (m.content or '') %}
        {{- m.content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') }}
    {%- endfor %}{{ '<think>' if enable_thinking is defined and enable_thinking is false }}""",
    "variables": """{{- bos_token ~ strftime_now('%Y') ~ eos_token }}{{ tools is none }}
        {%- macro head(role) %}{{ '<' ~ role ~ '>\n' }}{% endmacro %}{{ head('user') }}
        {%- generation %}{{ messages[0].content }}{% endgeneration %}
        {{- 'assistant' if add_generation_prompt }}""",
    "dicts": """{%- set seen = dict.fromkeys(messages | map(attribute='role')) %}{{ seen.keys() | list | tojson }}
        {{- dict(role='user') | tojson(indent=2) }}{% set ns = namespace(a=1, b='<') %}{{ ns.b }}{{ range(3) | list }}
        {{- '<&>' }}{{ '<' | e }}""",
    "turns": """{%- for m in messages if m.role in ('user', 'assistant') and not m.tool_calls %}
        {%- if loop.previtem is defined and loop.previtem.role == m.role %}
            {{- raise_exception('user and assistant must take turns') }}
        {%- endif %}
    {%- endfor %}""",
}
"""Templates that use the features of those of Llama, Qwen and Mistral."""

TOOL = {
    "type": "function",
    "function": {
        "name": "weather", "description": "The weather <of> a 'city' & more, 天气.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string", "enum": ["Köln", "北京"]}}, "required": ["city"]},
    },
}  # fmt: skip
CALL = {
    "id": "a23456789",
    "type": "function",
    "function": {"name": "weather", "arguments": {"city": "北京", "days": 1.5, "raw": None}},
}
TALK: list[dict[str, Any]] = [
    {"role": "system", "content": " Be kind. "}, {"role": "user", "content": "Hi <b>&amp;</b> 🙂\n"},
    {"role": "assistant", "content": "<think>\nhm\n</think>\n\nHello!"}, {"role": "user", "content": "Weather?\u2028\ud83d"},
]  # fmt: skip
WITH_TOOLS = [
    *TALK, {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "content": '{"sky": "blue"}', "tool_call_id": "a23456789"}, {"role": "assistant", "content": "Blue."},
]  # fmt: skip


@pytest.mark.parametrize("name", TEMPLATES)
def test_chat_equals_transformers(tmp_path: Path, name: str) -> None:
    text_files(tmp_path, chat_template=TEMPLATES[name], bos_token="[CLS]")
    text = nn.text.load(tmp_path)
    oracle = transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path)
    variables = {"enable_thinking": False, "tools": [TOOL, TOOL], "builtin_tools": ["a", "b"]}
    for messages, reply, options in ((TALK, True, {}), (WITH_TOOLS, False, variables)):
        expected = oracle.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=reply, **options
        )
        assert text.chat(messages, reply=reply, **options) == expected


def test_chat_that_the_template_refuses_raises_its_message(tmp_path: Path) -> None:
    text_files(tmp_path, chat_template=TEMPLATES["turns"])
    message = "the chat template refuses: user and assistant must take turns"
    with pytest.raises(ValueError, match=message):
        nn.text.load(tmp_path).chat([{"role": "user", "content": c} for c in "ab"])
