"""Untrusted files: links to other files, escape sequences in names, and sizes without bound."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from damage import limits
from tiny_folders import encoder_folder, text_files

import nn
from minigrad.io.json import Settings
from minigrad.io.safetensors import SafetensorsFile, write_safetensors

pytestmark = pytest.mark.slow
pytest.importorskip("tokenizers", reason="the tokenizers of published models need it")
HOSTILE = "\x1b[2J\x9b31m\u202e\r\n\x07"
LONG = "x" * 10_000_000


def check_refused(read: Callable[[], Any], start: str = "", match: str = ".") -> str:
    """Return the message of the ValueError or OSError: one printable line of bounded length."""
    with limits(60.0), pytest.raises((ValueError, OSError), match=match) as caught:
        read()
    message = str(caught.value)
    assert message.isprintable(), ascii(message)[:500]
    assert len(message) < 2000
    assert message.startswith(start)
    return message


# -- links -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["tokenizer.model", "special_tokens_map.json", "vocab.txt", "generation_config.json"],
)
def test_save_with_link_out_of_the_directory_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "id_rsa").write_text("{}")
    encoder_folder(tmp_path / "model")
    (tmp_path / "model" / name).symlink_to("../id_rsa")
    model, text = nn.load(tmp_path / "model"), nn.text.load(tmp_path / "model")
    with pytest.raises(ValueError, match=f"model/{name}: a link to a file outside the dir"):
        nn.save(tmp_path / "published", model, text)
    assert not [path for path in (tmp_path / "published").glob("*") if path.is_file()]


def hub_cache(path: Path) -> Path:
    """Write a directory in the layout of the cache of huggingface_hub."""
    blobs, snapshot = path / "models--a--b" / "blobs", path / "models--a--b" / "snapshots" / "1f"
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    encoder_folder(path / "plain")
    for i, file in enumerate(sorted((path / "plain").iterdir())):
        file.rename(blobs / f"{i:040x}")
        (snapshot / file.name).symlink_to(f"../../blobs/{i:040x}")
    return snapshot


def test_save_from_hub_cache_copies_linked_blobs(tmp_path: Path) -> None:
    snapshot = hub_cache(tmp_path)
    (snapshot / "linked.json").symlink_to("tokenizer.json")
    text = nn.text.load(snapshot)
    nn.save(tmp_path / "copy", nn.load(snapshot), text)
    copy = tmp_path / "copy" / "tokenizer.json"
    assert copy.read_bytes() == (snapshot / "tokenizer.json").read_bytes()
    assert not copy.is_symlink()


@pytest.mark.parametrize("link", ["blob", "blobs"])
def test_save_from_hub_cache_with_links_out_of_it_is_refused(tmp_path: Path, link: str) -> None:
    snapshot = hub_cache(tmp_path)
    blobs, secrets = snapshot.parent.parent / "blobs", tmp_path / "secrets"
    if link == "blob":
        secrets.mkdir()
        (blobs / "id_rsa").symlink_to(secrets / "id_rsa")
    else:
        blobs.rename(secrets)
        blobs.symlink_to(secrets)
    (secrets / "id_rsa").write_text("key")
    (snapshot / "tokenizer.model").symlink_to("../../blobs/id_rsa")
    with pytest.raises(ValueError, match="a link to a file outside the directory"):
        nn.text.load(snapshot).save(tmp_path / "copy")


# -- names -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a\x1b[31m.jinja", "a\u202e.jinja"])
def test_error_about_a_file_name_with_escapes_is_printable(tmp_path: Path, name: str) -> None:
    path = encoder_folder(tmp_path / "model")
    (path / "additional_chat_templates").mkdir()
    (path / "additional_chat_templates" / name).write_bytes(b"\xff")
    check_refused(lambda: nn.text.load(path), str(path))
    (path / "model.safetensors").unlink()
    (path / (name + ".bin")).write_bytes(b"")
    check_refused(lambda: nn.load(path), str(path))


# -- bounds ------------------------------------------------------------------------------------------


def empty_arrays(numbers: Iterable[int]) -> str:
    entry = '{"dtype":"U8","shape":[0],"data_offsets":[0,0]}'
    return "{" + ",".join(f'"a{i}":{entry}' for i in numbers) + "}"


def array_with_axes(size: int) -> str:
    shape = ",".join([str(size)] * 500_000)
    return f'{{"a":{{"dtype":"U8","shape":[{shape}],"data_offsets":[0,1]}}}}'


@pytest.mark.parametrize(
    ("header", "argument", "message"),
    [
        (empty_arrays, [*range(99_000), 0], "'a0' is given twice"),
        (empty_arrays, range(1_000_000), "at most 100,000 arrays, got 1,000,000"),
        (array_with_axes, 1, "64 axes, got 500,000"),
        (array_with_axes, (1 << 62) - 1, "64 axes, got 500,000"),
        (array_with_axes, 0, "64 axes, got 500,000"),
    ],
    ids=["repeated name", "a million arrays", "axes of 1", "large axes", "empty axes"],
)
def test_safetensors_with_a_huge_header_are_refused_at_once(
    tmp_path: Path, header: Callable[[Any], str], argument: Any, message: str
) -> None:
    data, path = header(argument).encode(), tmp_path / "x"
    path.write_bytes(struct.pack("<Q", len(data)) + data)
    check_refused(lambda: SafetensorsFile(path), str(path), message)


def test_write_safetensors_refuses_a_name_that_cannot_be_read(tmp_path: Path) -> None:
    for name in ("a\nb", "x" * 2000):
        with pytest.raises(ValueError, match="cannot be the name of an array"):
            write_safetensors(tmp_path / "x", {name: np.zeros(2)})


def test_encode_with_backtracking_pattern_is_a_value_error(tmp_path: Path) -> None:
    text_files(tmp_path)
    file = tmp_path / "tokenizer.json"
    pattern = {"Regex": "(x+x+)+y"}
    step = {"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": False}
    file.write_text(json.dumps(json.loads(file.read_text()) | {"pre_tokenizer": step}))
    text = nn.text.load(tmp_path)
    for encode in (text.encode, text.batch):
        check_refused(lambda e=encode: e(["x" * 60]), str(tmp_path), "Regex search error")
    assert text.encode("the", special=False) == [4]


@pytest.mark.parametrize("name", [HOSTILE, LONG], ids=["escapes", "long"])
@pytest.mark.parametrize(
    "read",
    [
        lambda settings, name: settings.integer(name),
        lambda settings, name: settings.object(name).list(name, int),
        lambda settings, name: settings.expect_no_others(),
    ],
    ids=["integer", "list", "expect_no_others"],
)
def test_settings_error_about_a_hostile_name_is_printable(name: str, read: Any) -> None:
    check_refused(lambda: read(Settings({name: {name: [name]}}, "c.json"), name), "c.json")
