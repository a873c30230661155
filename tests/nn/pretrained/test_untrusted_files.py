"""Untrusted files: links to other files, escape sequences in names, and sizes without bound."""

from __future__ import annotations

import base64
import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from damage import limits
from tiny_folders import encoder_folder, language_model_folder, text_files

import nn
from minigrad.io.json import Settings, read_json
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


@pytest.mark.parametrize("name", ["tokenizer.model", "special_tokens_map.json", "vocab.txt"])
def test_save_of_text_with_link_out_of_its_directory_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "id_rsa").write_text("{}")
    model = nn.load(encoder_folder(tmp_path / "model"))
    (tmp_path / "model" / name).symlink_to("../id_rsa")
    text = nn.text.load(tmp_path / "model")
    for save in (lambda d: nn.save(d, model, text), text.save):
        with pytest.raises(ValueError, match=f"model/{name}: a link to a file outside the dir"):
            save(tmp_path / "published")
        assert not (tmp_path / "published" / name).exists()
        assert not (tmp_path / "published" / "config.json").exists()


def test_save_of_model_with_linked_generation_config_is_refused(tmp_path: Path) -> None:
    (tmp_path / "credentials.json").write_text('{"token": "secret"}')
    language_model_folder(tmp_path / "model")
    (tmp_path / "model" / "generation_config.json").symlink_to(tmp_path / "credentials.json")
    model = nn.load(tmp_path / "model")
    with pytest.raises(ValueError, match="generation_config.json: a link to a file outside"):
        nn.save(tmp_path / "published", model)


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
    blobs = snapshot.parent.parent / "blobs"
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "id_rsa").write_text("key")
    if link == "blob":
        (blobs / "id_rsa").symlink_to(tmp_path / "secrets" / "id_rsa")
    else:
        for file in blobs.iterdir():
            (tmp_path / "secrets" / file.name).write_bytes(file.read_bytes())
            file.unlink()
        blobs.rmdir()
        blobs.symlink_to(tmp_path / "secrets")
    (snapshot / "tokenizer.model").symlink_to("../../blobs/id_rsa")
    with pytest.raises(ValueError, match="a link to a file outside the directory"):
        nn.text.load(snapshot).save(tmp_path / "copy")


# -- names -------------------------------------------------------------------------------------------


def edit(path: Path, change: Callable[[Any], Any]) -> None:
    data = json.loads(path.read_text())
    path.write_text(json.dumps(change(data) or data))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = encoder_folder(tmp_path_factory.mktemp("whole") / "model")
    nn.save_adapter(path, nn.lora(nn.load(path), rank=2))
    return path


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


def write_header(path: Path, header: bytes) -> Path:
    path.write_bytes(struct.pack("<Q", len(header)) + header)
    return path


def test_safetensors_of_99_000_names_with_a_repeated_one_are_refused_at_once(
    tmp_path: Path,
) -> None:
    entry = '{"dtype":"U8","shape":[0],"data_offsets":[0,0]}'
    names = [f"a{i}" for i in range(99_000)] + ["a98999"]
    header = "{" + ",".join(f'"{name}":{entry}' for name in names) + "}"
    path = write_header(tmp_path / "x", header.encode())
    check_refused(lambda: SafetensorsFile(path), str(path), "'a98999' is given twice")


def test_safetensors_of_a_million_empty_arrays_are_refused(tmp_path: Path) -> None:
    entry = '{"dtype":"U8","shape":[0],"data_offsets":[0,0]}'
    header = "{" + ",".join(f'"a{i}":{entry}' for i in range(1_000_000)) + "}"
    path = write_header(tmp_path / "x", header.encode())
    check_refused(lambda: SafetensorsFile(path), str(path), "at most 100,000 arrays, got 1,000,000")


def test_safetensors_of_500_000_axes_are_refused(tmp_path: Path) -> None:
    for size in ("1", str((1 << 62) - 1), "0"):
        shape = ",".join([size] * 500_000)
        header = f'{{"a":{{"dtype":"U8","shape":[{shape}],"data_offsets":[0,1]}}}}'
        path = write_header(tmp_path / "x", header.encode())
        check_refused(lambda p=path: SafetensorsFile(p), str(path), "64 axes, got 500,000")


def test_write_safetensors_refuses_a_name_that_cannot_be_read(tmp_path: Path) -> None:
    for name in ("a\nb", "x" * 2000):
        with pytest.raises(ValueError, match="cannot be the name of an array"):
            write_safetensors(tmp_path / "x", {name: np.zeros(2)})


def test_sparse_json_of_20_gb_is_refused(tmp_path: Path) -> None:
    for name in ("config.json", "tokenizer_config.json", "tokenizer.json", "tokenizer.model"):
        directory = encoder_folder(tmp_path / name)
        with (directory / name).open("ab") as file:
            os.truncate(file.fileno(), 20 << 30)
        read = nn.load if name == "config.json" else nn.text.load
        check_refused(lambda r=read, d=directory: r(d), str(directory / name), "bytes, got 21,474")


def test_json_of_many_repeated_names_is_refused_at_once(tmp_path: Path) -> None:
    names = [f'"a{i}": 0' for i in range(300_000)]
    (tmp_path / "x").write_text("{" + ",".join([*names, '"a299999": 1']) + "}")
    check_refused(lambda: read_json(tmp_path / "x"), str(tmp_path), "'a299999' is given twice")


@pytest.mark.parametrize(
    "pattern",
    ["(x+x+)+y", "((a|a)+(?#b))+", "(?x:(a+) +)b", "(?:a+){2,}", "(a+)(?#b)+", "a" * 2000],
)
def test_adapter_with_nested_quantifiers_is_refused(
    whole: Path, tmp_path: Path, pattern: str
) -> None:
    for file in whole.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    edit(tmp_path / "adapter_config.json", lambda s: s.update(rank_pattern={pattern: 2}))
    model = nn.load(tmp_path)
    check_refused(lambda: nn.load_adapter(tmp_path, model), str(tmp_path), "simpler regular expr")


def test_adapter_with_more_patterns_than_maps_is_refused(whole: Path, tmp_path: Path) -> None:
    for file in whole.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    patterns = {f"{'a' * 50}{i}.*[a-z]": 2 for i in range(100_000)}
    edit(tmp_path / "adapter_config.json", lambda s: s.update(rank_pattern=patterns))
    model = nn.load(tmp_path)
    check_refused(
        lambda: nn.load_adapter(tmp_path, model), str(tmp_path), "rank_pattern must have at most"
    )


def replace_step(content: str, pattern: dict[str, str] | None = None) -> dict[str, Any]:
    return {"type": "Replace", "pattern": pattern or {"String": "a"}, "content": content}


def precompiled(text: str) -> dict[str, Any]:
    charsmap = struct.pack("<I", 4) + bytes(4) + text.encode() + b"\0"
    encoded = base64.b64encode(charsmap).decode()
    return {"type": "Precompiled", "precompiled_charsmap": encoded}


@pytest.mark.parametrize("part", ["normalizer", "decoder"])
@pytest.mark.parametrize(
    "steps",
    [
        [replace_step("a" * 40)] * 6,
        [{"type": "Sequence", "normalizers": [replace_step("a" * 40)] * 2}] * 2,
        [replace_step("b" * 1000, {"Regex": "a*?"})],
        [{"type": "Prepend", "prepend": "b" * 1000}],
        [precompiled("b" * 1000)],
        [replace_step("a")] * 1000,
    ],
    ids=["replaced", "nested", "empty matches", "prepended", "charsmap", "many"],
)
def test_tokenizer_that_multiplies_text_is_refused(
    tmp_path: Path, steps: list[dict[str, Any]], part: str
) -> None:
    text_files(tmp_path)
    kind = "normalizers" if part == "normalizer" else "decoders"
    steps = json.loads(json.dumps(steps).replace('"normalizers"', f'"{kind}"'))
    if part == "decoder" and steps[0]["type"] in ("Prepend", "Precompiled"):
        pytest.skip("no decoder")
    edit(tmp_path / "tokenizer.json", lambda s: s.update({part: {"type": "Sequence", kind: steps}}))
    check_refused(lambda: nn.text.load(tmp_path), str(tmp_path / "tokenizer.json"), f"{part}: ")


def test_encode_with_backtracking_pattern_is_a_value_error(tmp_path: Path) -> None:
    text_files(tmp_path)
    step = {
        "type": "Split",
        "pattern": {"Regex": "(x+x+)+y"},
        "behavior": "Isolated",
        "invert": False,
    }
    edit(tmp_path / "tokenizer.json", lambda s: s.update(pre_tokenizer=step))
    text = nn.text.load(tmp_path)
    for encode in (text.encode, text.batch):
        check_refused(lambda e=encode: e(["x" * 60]), str(tmp_path), "Regex search error")
    assert text.encode("the", special=False) == [4]


@pytest.mark.parametrize("name", [HOSTILE, LONG], ids=["escapes", "long"])
def test_settings_error_about_a_hostile_name_is_printable(name: str) -> None:
    data = {name: {name: [name]}}
    for read in (
        lambda s: s.integer(name),
        lambda s: s.object(name).integer(name),
        lambda s: s.object(name).list(name, int),
        lambda s: s.expect_no_others(),
    ):
        check_refused(lambda r=read: r(Settings(data, "c.json")), "c.json")
