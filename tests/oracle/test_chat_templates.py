"""Chat templates like those of published models, as transformers renders them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tiny_folders import text_files

import nn

transformers = pytest.importorskip("transformers", reason="its chat templates are the oracle")
pytest.importorskip("jinja2", reason="chat templates need it")

LLAMA = """{{- bos_token }}
{%- macro header(role) %}{{ '<|start_header_id|>' ~ role ~ '<|end_header_id|>\n\n' }}{% endmacro %}
{%- set day = day or strftime_now('%Y') %}
{%- set system = messages[0].content|trim if messages[0].role == 'system' else '' %}
{%- set messages = messages[1:] if system else messages %}
{{- header('system') }}
{%- if builtin_tools is defined or tools is not none %}
    {{- 'Environment: ipython\n' }}
{%- endif %}
{%- if builtin_tools is defined %}
    {{- 'Tools: ' + builtin_tools | reject('equalto', 'search') | join(', ') + '\n\n' }}
{%- endif %}
{{- 'Today: ' + day + '\n\n' + system + '<|eot_id|>' }}
{%- for tool in tools or [] %}{{ tool | tojson(indent=4) }}{{ '\n\n' }}{% endfor %}
{%- for message in messages %}
    {%- if message.tool_calls is defined %}
        {%- if message.tool_calls|length > 1 %}{{ raise_exception('one call at a time, please') }}{% endif %}
        {%- set call = message.tool_calls[0].function %}
        {{- call.name + '(' }}
        {%- for name, value in call.arguments | items %}{{ name ~ '="' ~ value ~ '"' }}{{ ', ' if not loop.last }}{% endfor %}
        {{- ')<|eom_id|>' }}
    {%- elif message.role == 'tool' %}
        {{- header('ipython') + (message.content | tojson if message.content is mapping or message.content is iterable else '') }}
    {%- else %}
        {{- header(message.role) }}
        {%- generation %}
        {{- message.content | trim + '<|eot_id|>' }}
        {%- endgeneration %}
    {%- endif %}
{%- endfor %}
{{- header('assistant') if add_generation_prompt }}"""

QWEN = """{%- if tools %}
    {{- '<|im_start|>system\n# Tools\n<tools>' }}
    {%- for tool in tools %}
        {{- '\n' ~ tool | tojson(sort_keys=true, separators=(',', ':')) ~ tool | tojson(ensure_ascii=true) }}
    {%- endfor %}
    {{- '\n</tools><|im_end|>\n' }}
{%- endif %}
{%- set ns = namespace(asked=-1) %}
{%- for message in messages[::-1] if message.role == 'user' and not message.content.startswith('<tool_response>') %}
    {%- set ns.asked = messages.index(message) %}
    {%- break %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.role == 'assistant' %}
        {%- set reply = message.content or '' %}
        {%- if '</think>' in reply %}
            {%- set thoughts = reply.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}
            {%- set reply = reply.split('</think>')[-1].lstrip('\n') %}
        {%- endif %}
        {{- '<|im_start|>assistant\n' + ('<think>\n' ~ thoughts ~ '\n</think>\n\n' if loop.index0 > ns.asked else '') + reply }}
        {%- for call in message.tool_calls or [] %}
            {{- '\n<tool_call>\n{"name": "' ~ call.function.name ~ '", "arguments": ' ~ call.function.arguments | tojson ~ '}\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == 'tool' %}
        {%- if messages[loop.index0 - 1].role != 'tool' %}{{ '<|im_start|>user' }}{% endif %}
        {{- '\n<tool_response>\n' ~ message.content ~ '\n</tool_response>' }}
        {%- if loop.last or loop.nextitem.role != 'tool' %}{{ '<|im_end|>\n' }}{% endif %}
    {%- else %}
        {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}{{ '<think>\n\n</think>\n\n' if enable_thinking is defined and enable_thinking is false }}
{%- endif %}"""

MISTRAL = """{%- set rest = messages | rejectattr('role', 'equalto', 'system') | list %}
{%- set asked = rest | selectattr('role', 'equalto', 'user') | list | last %}
{%- for message in rest | rejectattr('role', 'equalto', 'tool') | selectattr('tool_calls', 'undefined') %}
    {%- if (message.role == 'user') == (loop.index0 % 2 == 1) %}{{ raise_exception('user and assistant must take turns') }}{% endif %}
{%- endfor %}
{{- bos_token }}
{%- for message in rest %}
    {%- if message.role == 'user' %}
        {%- if tools is not none and message == asked %}
            {{- '[AVAILABLE_TOOLS] [' }}
            {%- for tool in tools | map(attribute='function') %}
                {%- for key, value in tool.items() if key != 'return' %}
                    {{- '"%s": ' % key ~ ('"' + value + '"' if value is string else value|tojson) }}{{ ', ' if not loop.last }}
                {%- endfor %}
                {{- ', ' if not loop.last else ']' }}
            {%- endfor %}
            {{- '[/AVAILABLE_TOOLS]' }}
        {%- endif %}
        {{- '[INST] ' ~ (messages[0].content ~ '\n\n' if loop.last and messages[0].role == 'system' else '') ~ message.content ~ '[/INST]' }}
    {%- elif message.tool_calls %}
        {%- for call in message.tool_calls %}{{ '[TOOL_CALLS] ' + (call.function|tojson)[:-1] + ', "id": "' + call.id + '"}' }}{% endfor %}
    {%- elif message.role == 'assistant' %}
        {{- ' ' + message.content|trim + eos_token }}
    {%- else %}
        {{- '[TOOL_RESULTS] {"content": ' + message.content|string + ', "call_id": "' + message.tool_call_id + '"}' }}
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


@pytest.mark.parametrize("template", [LLAMA, QWEN, MISTRAL], ids=["llama", "qwen", "mistral"])
def test_chat_equals_transformers(tmp_path: Path, template: str) -> None:
    text_files(tmp_path, chat_template=template, bos_token="[CLS]")
    text = nn.text.load(tmp_path)
    oracle = transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path)
    cases: list[tuple[Any, bool, dict[str, Any]]] = [
        (TALK, True, {}),
        (TALK, False, {"enable_thinking": False}),
        (ODD, True, {}),
        (WITH_TOOLS, True, {"tools": [TOOL, TOOL]}),
        (WITH_TOOLS, False, {"tools": [TOOL], "builtin_tools": ["a", "b"]}),
    ]
    for messages, reply, variables in cases:
        try:
            expected = oracle.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=reply, **variables
            )
        except Exception as error:
            with pytest.raises(ValueError, match=f"the chat template refuses: {error}"):
                text.chat(messages, reply=reply, **variables)
            assert template is MISTRAL and messages is ODD
        else:
            assert text.chat(messages, reply=reply, **variables) == expected
