"""Chats as transformers writes them, by templates in the manner of published models'."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tiny_folders import text_files

import nn

transformers = pytest.importorskip("transformers", reason="its chat templates are the oracle")
pytest.importorskip("jinja2", reason="chat templates need it")

CHATML = """{% for message in messages %}{% generation %}{% set said = message.content|trim %}{{ '<|im_start|>' + message['role'] + '\n' + said }}{% endgeneration %}
{{ '<|im_end|>' }}{{ said|default(' ') }}
{% endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}
"""

LLAMA = """{{- bos_token }}
{%- if not date_string is defined %}
    {%- set date_string = strftime_now("%Y") if strftime_now is defined else "2024" %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\n\n" }}
{%- if builtin_tools is defined or tools is not none %}
    {{- "Environment: ipython\n" }}
{%- endif %}
{%- if builtin_tools is defined %}
    {{- "Tools: " + builtin_tools | reject('equalto', 'code_interpreter') | join(", ") + "\n\n" }}
{%- endif %}
{{- "Today: " + date_string + "\n\n" + system_message + "<|eot_id|>" }}
{%- if tools is not none %}
    {%- for tool in tools %}
        {{- tool | tojson(indent=4) }}
        {{- "\n\n" }}
    {%- endfor %}
{%- endif %}
{%- for message in messages %}
    {%- if message.role not in ['ipython', 'tool'] and 'tool_calls' not in message %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' }}
        {%- generation %}
        {{- message['content'] | trim + '<|eot_id|>' }}
        {%- endgeneration %}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}{{- raise_exception("Only one call at once!") }}{%- endif %}
        {%- set call = message.tool_calls[0].function %}
        {{- call.name + "(" }}
        {%- for name, value in call.arguments | items %}
            {{- name + '="' + value | string + '"' }}
            {%- if not loop.last %}{{- ", " }}{%- endif %}
        {%- endfor %}
        {{- ")<|eom_id|>" }}
    {%- elif message.content is mapping or message.content is iterable %}
        {{- message.content | tojson }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{%- endif %}"""

QWEN = """{%- if tools %}
    {{- '<|im_start|>system\n# Tools\n<tools>' }}
    {%- for tool in tools %}
        {{- "\n" }}
        {{- tool | tojson(sort_keys=true, separators=(',', ':')) }}{{ tool | tojson(ensure_ascii=true) }}
    {%- endfor %}
    {{- "\n</tools><|im_end|>\n" }}
{%- endif %}
{%- set ns = namespace(searching=true, last=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.searching and message.role == "user" and not (message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.searching = false %}
        {%- set ns.last = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.role == "assistant" %}
        {%- set content, thoughts = message.content or '', '' %}
        {%- if message.reasoning_content is string %}
            {%- set thoughts = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set thoughts = content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\n') %}
        {%- endif %}
        {{- '<|im_start|>' + message.role + '\n' }}
        {%- if loop.index0 > ns.last and (loop.last or thoughts) %}
            {{- '<think>\n' + thoughts.strip('\n') + '\n</think>\n\n' }}
        {%- endif %}
        {{- content }}
        {%- for call in message.tool_calls or [] %}
            {%- if (loop.first and content) or not loop.first %}{{- '\n' }}{%- endif %}
            {{- '<tool_call>\n{"name": "' ~ call.function.name ~ '", "arguments": ' ~ call.function.arguments | tojson ~ '}\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\n<tool_response>\n' ~ message.content ~ '\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}{{- '<|im_end|>\n' }}{%- endif %}
    {%- else %}
        {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\n\n</think>\n\n' }}{%- endif %}
{%- endif %}"""

MISTRAL = """{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}
{%- for message in loop_messages | rejectattr("role", "equalto", "tool") | selectattr("tool_calls", "undefined") %}
    {%- if (message["role"] == "user") != (loop.index0 % 2 == 0) %}
        {{- raise_exception("roles must alternate: user, assistant, ...") }}
    {%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if tools is not none and (message == user_messages[-1]) %}
            {{- "[AVAILABLE_TOOLS] [" }}
            {%- for tool in tools %}
                {%- set tool = tool.function %}
                {{- '{"type": "function", "function": {' }}
                {%- for key, val in tool.items() if key != "return" %}
                    {%- if val is string %}{{- '"' + key + '": "' + val + '"' }}
                    {%- else %}{{- '"' + key + '": ' + val|tojson }}{%- endif %}
                    {%- if not loop.last %}{{- ", " }}{%- endif %}
                {%- endfor %}
                {{- "}}" }}{% if not loop.last %}{{- ", " }}{% else %}{{- "]" }}{% endif %}
            {%- endfor %}
            {{- "[/AVAILABLE_TOOLS]" }}
        {%- endif %}
        {%- if loop.last and system_message is defined %}{{- "[INST] " + system_message + "\n\n" + message["content"] + "[/INST]" }}
        {%- else %}{{- "[INST] " + message["content"] + "[/INST]" }}{%- endif %}
    {%- elif message.tool_calls is defined and message.tool_calls is not none %}
        {{- "[TOOL_CALLS] [" }}
        {%- for call in message.tool_calls %}
            {%- set out = call.function|tojson %}
            {{- out[:-1] }}
            {%- if not call.id is defined or call.id|length != 9 %}{{- raise_exception("ids have 9 characters!") }}{%- endif %}
            {{- ', "id": "' + call.id + '"}' }}{% if not loop.last %}{{- ", " }}{% else %}{{- "]" + eos_token }}{% endif %}
        {%- endfor %}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"]|trim + eos_token }}
    {%- elif message["role"] == "tool" %}
        {{- '[TOOL_RESULTS] {"content": ' + message.content|string + ", " }}{{- '"call_id": "' + message.tool_call_id + '"}[/TOOL_RESULTS]' }}
    {%- else %}
        {{- raise_exception("Only user and assistant roles are supported!") }}
    {%- endif %}
{%- endfor %}"""

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
ODD = [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]


@pytest.mark.parametrize("template", [CHATML, LLAMA, QWEN, MISTRAL], ids=["chatml", "llama", "qwen", "mistral"])
def test_chats_are_those_of_transformers(tmp_path: Path, template: str) -> None:
    text_files(tmp_path, chat_template=template, bos_token="[CLS]")
    text = nn.text.load(tmp_path)
    oracle = transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path)
    cases: list[tuple[Any, bool, dict[str, Any]]] = [
        (TALK, True, {}),
        (TALK, False, {"enable_thinking": False}),
        (ODD, True, {}),
    ]
    if template is not CHATML:
        cases += [
            (WITH_TOOLS, True, {"tools": [TOOL, TOOL]}),
            (WITH_TOOLS, False, {"tools": [TOOL], "builtin_tools": ["a", "b"]}),
        ]
    for messages, reply, variables in cases:
        try:
            expected = oracle.apply_chat_template(messages, tokenize=False, add_generation_prompt=reply, **variables)
        except Exception as error:
            with pytest.raises(ValueError, match=f"the chat template refuses: {error}"):
                text.chat(messages, reply=reply, **variables)
            assert template is MISTRAL
        else:
            assert text.chat(messages, reply=reply, **variables) == expected
