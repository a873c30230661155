"""Chats as examples: files of messages, and which tokens the assistant writes, by drawn chats."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minigrad.io.json import Settings
from nn.text.chats import encode_chat, read_chats

roles = st.sampled_from(["system", "user", "assistant"])
contents = st.text("ab c", max_size=8).map(lambda text: f"x{text}")
chats = st.lists(st.builds(lambda r, c: {"role": r, "content": c}, roles, contents), max_size=5)


def chat(messages: Any, reply: bool = True, end: str = "</m>\n") -> str:
    """Return a text like that of ChatML."""
    texts = [f"<{m['role']}> {m['content']}{end}" for m in messages]
    return "".join(texts) + ("<assistant> " if reply else "")


def text_of(template: Any, pattern: str = r"</m>|<\w+> |\w+|\s|\W") -> Any:
    """Return a tokenizer of runs of letters, and of single other characters."""
    pieces = lambda text: [m.span() for m in re.finditer(pattern, text)]
    encode = lambda text, add_special_tokens: SimpleNamespace(offsets=pieces(text))
    return SimpleNamespace(
        chat=template, settings=Settings({}, "file"), tokenizer=SimpleNamespace(encode=encode),
        encode=lambda text, special: [text[a:b] for a, b in pieces(text)],
    )  # fmt: skip


@given(chats)
def test_tokens_of_answers_are_those_of_their_contents_and_ends(messages: Any) -> None:
    """Neither the mark of the assistant nor the line break behind its message are its own."""
    tokens, is_answer = encode_chat(text_of(chat), messages)
    assert "".join(tokens) == chat(messages, reply=False)
    answers = [f"{m['content']}</m>" for m in messages if m["role"] == "assistant"]
    assert "".join(token for token, mine in zip(tokens, is_answer, strict=True) if mine) == "".join(
        answers
    )


@given(chats, st.integers(1, 4))
def test_tokens_that_are_partly_of_an_answer_are_not_learned(messages: Any, size: int) -> None:
    tokens, is_answer = encode_chat(text_of(chat, rf"(?s).{{1,{size}}}"), messages)
    places, start = set[int](), 0
    for message in messages:
        end = start + len(chat([message], reply=False))
        if message["role"] == "assistant":
            places |= {*range(start + len("<assistant> "), end - len("\n"))}
        start = end
    starts = range(0, start, size)
    assert is_answer == [{*range(i, i + len(t))} <= places for i, t in zip(starts, tokens)]


def test_template_that_changes_earlier_messages_is_refused() -> None:
    messages = [{"role": "assistant", "content": "a"}, {"role": "user", "content": "b"}]
    for template in (
        lambda chat_, reply=True: chat(chat_, reply).replace("a<", "<" if len(chat_) > 1 else "a<"),
        lambda chat_, reply=True: chat(chat_, reply, f"{len(chat_)}</m>\n"),
        lambda chat_, reply=True: "x" * reply + chat(chat_, reply),
    ):
        with pytest.raises(ValueError, match="file: chat_template must write a chat message by"):
            encode_chat(text_of(template), messages)


@given(rows=st.lists(st.tuples(chats, contents), min_size=1, max_size=4), is_spaced=st.booleans())
def test_chats_that_were_written_are_read(
    rows: list[Any], is_spaced: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "chats.jsonl"
    user = [{"role": "user", "content": "q"}]
    written = [[*user, *row, {"role": "assistant", "content": last}] for row, last in rows]
    lines = [json.dumps({"messages": [m | {"more": 1} for m in row]}) for row in written]
    path.write_text("\n".join(["", *lines, " "] if is_spaced else lines), encoding="utf-8")
    assert read_chats(path) == written


GOOD = {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[", "must be an object with messages"),
        ("[" * 100_000, "must be an object with messages"),
        ("{}", "must be an object with messages"),
        ('{"messages": 3}', "must be an object with messages"),
        ('{"messages": [{"role": "user"}]}', "must be an object with messages"),
        ('{"messages": []}', "must have messages of strings"),
        ('{"messages": [{"role": "assistant", "content": "b"}]}', "must have messages of strings"),
        (json.dumps({"messages": GOOD["messages"][::-1]}), "must have messages of strings"),
        (json.dumps(GOOD).replace('"b"', "null"), "must have messages of strings"),
    ],
    ids=range(9),
)
def test_chats_with_a_wrong_line_name_it(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "chats.jsonl"
    path.write_text(f"{json.dumps(GOOD)}\n\n{line}\n")
    with pytest.raises(ValueError, match=f"^{path}, line 3 {message}"):
        read_chats(path)


def test_columns_of_a_file_of_chats_are_those_that_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps({**GOOD, "q": "x", "a": "y"}))
    assert [*map(len, read_chats(tmp_path / "a.jsonl"))] == [2]
    assert read_chats(tmp_path / "a.jsonl", columns=["q", "a"]) == [
        [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]
    ]


def test_pairs_are_chats_of_two_messages(tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("q\ta\nr\tb\n")
    (tmp_path / "pairs.jsonl").write_text('{"q": "q", "a": "a"}\n{"q": "r", "a": "b"}\n')
    for name, options in (("pairs.tsv", {}), ("pairs.jsonl", {"columns": ("q", "a")})):
        assert [[tuple(m.values()) for m in row] for row in read_chats(tmp_path / name, **options)] == [
            [("user", q), ("assistant", a)] for q, a in ("qa", "rb")
        ]  # fmt: skip
