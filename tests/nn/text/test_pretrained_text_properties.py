"""Tokenizers of published models with drawn text, ids and damage."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from support.damage import limits
from support.edges import encodable
from support.environment import max_examples
from support.tiny_folders import WORDS, text_files
from support.tokenizer_library import tokenizers

import nn

ALPHABET = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
MERGES = ["t h", "Ġ t", "Ġt h", "Ġth e", "c a", "Ã ©", "ç Į"]  # the last two are bytes of é and 猫
VOCABULARY = ["<|endoftext|>", *ALPHABET, *(merge.replace(" ", "") for merge in MERGES)]

texts = st.lists(
    st.sampled_from([" the", "cat", "é", "猫", "🙂", " ", "\n", "'s", "1"]) | encodable,
    max_size=9,
).map("".join)


@cache
def byte_level() -> Any:
    """Return a tokenizer like GPT-2's."""
    with TemporaryDirectory() as directory:
        folder = Path(directory)
        ids = {token: i for i, token in enumerate(VOCABULARY)}
        (folder / "vocab.json").write_text(json.dumps(ids))
        (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *MERGES]))
        (folder / "config.json").write_text(json.dumps({"model_type": "gpt2"}))
        return nn.text.load(folder)


@cache
def whole_words() -> Any:
    with TemporaryDirectory() as directory:
        text_files(Path(directory))
        return nn.text.load(Path(directory))


@max_examples(40)
@given(texts)
def test_byte_level_tokenizer_decodes_what_it_encodes(text: str) -> None:
    tokenizer = byte_level()
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text == "".join(tokenizer.stream(ids))
    assert "".join(tokenizer.tokens(ids)).isprintable() or not text


@max_examples(100)
@given(st.lists(st.integers(0, len(VOCABULARY) - 1), max_size=25))
def test_stream_of_any_ids_yields_the_decoded_text(ids: list[int]) -> None:
    """Also where bytes of characters are missing."""
    pieces = [*byte_level().stream(iter(ids))]
    assert "".join(pieces) == byte_level().decode(ids)
    assert all(pieces) and not any(piece.endswith("\ufffd") for piece in pieces[:-1])


words = st.lists(st.sampled_from(WORDS[4:] + ["unseen"]), max_size=6)


@given(
    rows=st.lists(words, min_size=1, max_size=4),
    max_len=st.none() | st.integers(3, 8),
    pad_left=st.booleans(),
)
def test_batch_of_words_holds_their_ids(
    rows: list[list[str]], max_len: int | None, pad_left: bool
) -> None:
    tokenizer, known = whole_words(), {word: i for i, word in enumerate(WORDS)}
    expected = []
    for row in rows:
        ids = [known.get(word, known["[UNK]"]) for word in row]
        expected.append([1, *ids[: None if max_len is None else max_len - 2], 2])
    texts = [" ".join(row) for row in rows]
    assert tokenizer.encode(texts, max_len=max_len) == expected
    assert [tokenizer.encode(text, max_len=max_len) for text in texts] == expected
    ids, mask, types = tokenizer.batch(texts, max_len=max_len, pad_left=pad_left)
    np.testing.assert_array_equal(ids, nn.text.padded(expected, 0, left=pad_left))
    lengths = nn.text.padded([[1] * len(row) for row in expected], 0, left=pad_left)
    np.testing.assert_array_equal(mask, lengths > 0)
    assert not types.any() and types.shape == ids.shape


marks = [b'"', b"[", b"]", b"{", b"}", b":", b"-1", b"9", b"1e9", b"null", b"\xff", b"\\u0000"]
edits = st.tuples(
    st.floats(0, 1), st.integers(0, 9), st.binary(max_size=3) | st.sampled_from(marks)
)


@max_examples(40)
@given(st.sampled_from(["tokenizer.json", "tokenizer_config.json"]), edits, texts)
def test_load_of_damaged_tokenizer_raises_or_encodes(
    name: str, edit: tuple[float, int, bytes], text: str
) -> None:
    with TemporaryDirectory() as directory:
        folder = Path(directory)
        text_files(folder)
        data = (folder / name).read_bytes()
        start = int(edit[0] * len(data))
        (folder / name).write_bytes(data[:start] + edit[2] + data[start + edit[1] :])
        try:
            with limits(10.0, 1 << 30):
                loaded = nn.text.load(folder)
                for sentence in ("the cat", text):
                    loaded.decode(loaded.encode(sentence))
                    loaded.batch([sentence])
        except ValueError as error:
            message = str(error)
            assert message.startswith(str(folder)) and len(message) < 900, message
