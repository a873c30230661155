"""Untrusted files: links to other files, escape sequences in names, and sizes without bound."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.damage import limits
from support.environment import needs
from support.tiny_folders import encoder_folder, text_files

import nn
from minigrad.io.json import Settings
from minigrad.io.safetensors import SafetensorsFile, write_safetensors
from nn.options.config import DecoderOnlyConfig

pytestmark = pytest.mark.slow
needs("tokenizers")
HOSTILE = "\x1b[2J\x9b31m\u202e\r\n\x07"


def check_refused(read: Callable[[], Any], start: str, match: str = ".") -> None:
    """Check that the ValueError or OSError is one printable line of bounded length."""
    with limits(60.0), pytest.raises((ValueError, OSError), match=match) as caught:
        read()
    message = str(caught.value)
    assert message.isprintable(), ascii(message)[:500]
    assert len(message) < 2000 and message.startswith(start)


# -- links -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["vocab.txt", "generation_config.json"])
def test_save_with_link_out_of_the_directory_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "id_rsa").write_text("{}")
    model = encoder_folder(tmp_path / "model")
    (model / name).symlink_to("../id_rsa")
    with pytest.raises(ValueError, match=f"model/{name}: a link to a file outside the dir"):
        nn.save(tmp_path / "published", nn.load(model), nn.text.load(model))
    assert not [path for path in (tmp_path / "published").glob("*") if path.is_file()]


def hub_cache(path: Path) -> tuple[Path, Path]:
    """Write a tokenizer in the layout of the cache of huggingface_hub; return snapshot and blobs."""
    blobs, snapshot = path / "models--a--b" / "blobs", path / "models--a--b" / "snapshots" / "1f"
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    text_files(blobs)
    for file in blobs.iterdir():
        (snapshot / file.name).symlink_to(f"../../blobs/{file.name}")
    return snapshot, blobs


def test_save_from_hub_cache_copies_linked_blobs(tmp_path: Path) -> None:
    snapshot, blobs = hub_cache(tmp_path)
    nn.text.load(snapshot).save(tmp_path / "copy")
    copy = tmp_path / "copy" / "tokenizer.json"
    assert copy.read_bytes() == (blobs / "tokenizer.json").read_bytes() and not copy.is_symlink()


@pytest.mark.parametrize("is_blob", [True, False], ids=["a blob", "all blobs"])
def test_save_from_hub_cache_with_links_out_of_it_is_refused(tmp_path: Path, is_blob: bool) -> None:
    snapshot, blobs = hub_cache(tmp_path)
    (tmp_path / "id_rsa").write_text("key")
    if is_blob:
        (blobs / "key").symlink_to(tmp_path / "id_rsa")
    else:
        (blobs / "key").write_text("key")
        blobs.rename(tmp_path / "secrets")
        blobs.symlink_to(tmp_path / "secrets")
    (snapshot / "tokenizer.model").symlink_to("../../blobs/key")
    with pytest.raises(ValueError, match="a link to a file outside the directory"):
        nn.text.load(snapshot).save(tmp_path / "copy")


# -- names and bounds --------------------------------------------------------------------------------


def test_error_about_a_file_name_with_escapes_is_printable(tmp_path: Path) -> None:
    path, name = encoder_folder(tmp_path / "model"), "a\x1b[31m\u202e"
    (path / "additional_chat_templates").mkdir()
    (path / f"additional_chat_templates/{name}.jinja").write_bytes(b"\xff")
    check_refused(lambda: nn.text.load(path), str(path))
    (path / "model.safetensors").rename(path / f"{name}.bin")
    check_refused(lambda: nn.load(path), str(path))


ENTRY = '"{}":{{"dtype":"U8","shape":[{}],"data_offsets":[0,0]}}'


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        (lambda: [ENTRY.format(i, 0) for i in range(1_000_000)], "at most 100,000 arrays, got 1,000,000"),
        (lambda: [ENTRY.format("a", ",".join(["1"] * 500_000))], "64 axes, got 500,000"),
        (lambda: [ENTRY.format("a", ",".join([str((1 << 62) - 1)] * 500_000))], "64 axes, got 500,000"),
    ],
    ids=["a million arrays", "axes of 1", "large axes"],
)  # fmt: skip
def test_safetensors_with_a_huge_header_are_refused_at_once(
    tmp_path: Path, entries: Callable[[], list[str]], message: str
) -> None:
    data, path = f"{{{','.join(entries())}}}".encode(), tmp_path / "x"
    path.write_bytes(struct.pack("<Q", len(data)) + data)
    check_refused(lambda: SafetensorsFile(path), str(path), message)


def test_write_safetensors_refuses_a_name_that_cannot_be_read(tmp_path: Path) -> None:
    for name in ("a\nb", "x" * 2000):
        with pytest.raises(ValueError, match="cannot be the name of an array"):
            write_safetensors(tmp_path / "x", {name: np.zeros(2)})


def test_encode_with_backtracking_pattern_is_a_value_error(tmp_path: Path) -> None:
    text_files(tmp_path)
    file = tmp_path / "tokenizer.json"
    step = {
        "type": "Split",
        "pattern": {"Regex": "(x+x+)+y"},
        "behavior": "Isolated",
        "invert": False,
    }
    file.write_text(json.dumps(json.loads(file.read_text()) | {"pre_tokenizer": step}))
    text = nn.text.load(tmp_path)
    check_refused(lambda: text.encode(["x" * 60]), str(tmp_path), "Regex search error")
    check_refused(lambda: text.batch(["x" * 60]), str(tmp_path), "Regex search error")


@pytest.mark.parametrize("name", [HOSTILE, "x" * 10_000_000], ids=["escapes", "long"])
def test_settings_error_about_a_hostile_name_is_printable(name: str) -> None:
    settings = Settings({name: {name: [name]}}, "c.json")
    check_refused(lambda: DecoderOnlyConfig.from_dict({name: 1}, "c.json"), "c.json")
    check_refused(lambda: settings.object(name).list(name, int), "c.json")
