"""Chats as examples: files of prompts and answers, and the tokens of the answers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .huggingface import ModelText
from .pairs import read_lines, read_pairs

Chat = list[dict[str, str]]
"""Messages such as `{"role": "user", "content": "Hello"}`. The last one is the assistant's."""


def read_chats(path: Path, left_out: Counter[str] | None = None, **options: Any) -> list[Chat]:
    """Read chats from a file of prompts and answers, or from JSON lines with `messages`.

    `left_out` and the options are those of `read_pairs`, for a file of two columns. A file whose
    `columns` are given is read as such a file, also if it contains "messages".
    """
    is_table = ".jsonl" not in path.suffixes or options.get("columns") is not None
    if is_table or '"messages"' not in next(filter(str.strip, read_lines(path)), ""):
        return [
            [{"role": "user", "content": prompt}, {"role": "assistant", "content": answer}]
            for prompt, answer in read_pairs(path, left_out=left_out, **options)
        ]
    chats = []
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip():
            continue
        try:
            messages = json.loads(line)["messages"]
            chat = [{key: message[key] for key in ("role", "content")} for message in messages]
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            raise ValueError(
                f"{path}, line {number} must be an object with messages, each with a role and "
                f"content, got {error!r:.60}"
            ) from None
        strings = [value for message in chat for value in message.values()]
        roles = [message["role"] for message in chat]
        is_text = all(isinstance(value, str) for value in strings)
        if not is_text or len(roles) < 2 or roles[-1] != "assistant":
            raise ValueError(
                f"{path}, line {number} must have messages of strings, the last of them the "
                f"assistant's after another one, got {messages!r:.60}"
            )
        chats.append(chat)
    return chats


def encode_chat(text: ModelText, chat: Sequence[Mapping[str, str]]) -> tuple[list[int], list[bool]]:
    """Return the ids of a chat by its template, and which of them the assistant writes.

    These are the tokens of its messages and of what ends them, such as `<|im_end|>`.
    """
    whole, answers = text.chat(chat, reply=False), []
    for i, message in enumerate(chat):
        if message["role"] != "assistant":
            continue
        start, end = text.chat(chat[:i]), text.chat(chat[: i + 1], reply=False)
        if not (whole.startswith(end) and end.startswith(start)):
            raise ValueError(
                f"{text.settings.where}: chat_template must write a chat message by message, got "
                f"{end!r:.60} for {start!r:.60}; make an example of each answer"
            )
        answers.append((len(start), len(end.rstrip())))
    ids = text.encode(whole, special=False)
    places = text.tokenizer.encode(whole, add_special_tokens=False).offsets
    return ids, [any(a <= first and last <= b for a, b in answers) for first, last in places]
