"""Models by name: a cache on disk, and a local server that speaks the Hub's protocol."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.commands import call
from support.environment import needs
from support.hub_server import HubServer, serving
from support.tiny_folders import encoder_folder, language_model_folder, sentence_encoder_folder

import nn
from nn.commands import generate, search
from nn.text.hub import find_model

constants: Any = needs("tokenizers", "huggingface_hub.constants")


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    """Return a server, with an empty cache, in an empty current directory."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    with serving() as server:
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "ENDPOINT", server.url)
        template = f"{server.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        yield server


def serve(hub: HubServer, name: str, directory: Path) -> Path:
    hub.repositories[name] = directory
    return directory


def logits(model: Any) -> np.ndarray:
    return model(np.array([[4, 5, 6]])).data


def test_model_by_name_is_downloaded_once(hub: HubServer, tmp_path: Path) -> None:
    folder = serve(hub, "org/tiny", language_model_folder(tmp_path / "tiny"))
    for name in ("pytorch_model.bin", "onnx/model.onnx", "README.md", "model.fp16.safetensors"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"not needed")
    model = nn.load("org/tiny")
    np.testing.assert_array_equal(logits(model), logits(nn.load(folder)))
    assert sorted(hub.downloads()) == ["config.json", "model.safetensors"]
    text = nn.text.load("org/tiny")
    assert text.encode("the cat") == nn.text.load(folder).encode("the cat")
    assert {"tokenizer.json", "tokenizer_config.json"} == {*hub.downloads()[2:]}
    hub.requests.clear()
    nn.load(Path("org/tiny"), weights="int8")
    nn.text.load("org/tiny").save(tmp_path / "saved")
    assert not hub.requests


def test_short_name_follows_the_redirect_of_a_renamed_model(hub: HubServer, tmp_path: Path) -> None:
    folder = serve(hub, "org/tiny", language_model_folder(tmp_path / "tiny"))
    hub.renamed["tiny"] = "org/tiny"
    np.testing.assert_array_equal(logits(nn.load("tiny")), logits(nn.load(folder)))


def test_path_that_exists_wins_over_a_name(hub: HubServer, tmp_path: Path) -> None:
    serve(hub, "org/tiny", encoder_folder(tmp_path / "tiny", seed=1))
    local = encoder_folder(Path("org/tiny"))
    np.testing.assert_array_equal(logits(nn.load("org/tiny")), logits(nn.load(local.resolve())))
    Path("file").write_text("not a model")
    for name in ("file", "./tiny", "a/b/c", "missing.gguf", str(tmp_path / "none")):
        with pytest.raises((OSError, ValueError)):
            nn.load(name)
    assert not hub.requests


def test_interrupted_download_is_resumed(hub: HubServer, tmp_path: Path) -> None:
    folder = serve(hub, "org/tiny", language_model_folder(tmp_path / "tiny"))
    hub.cut = {"model.safetensors"}
    np.testing.assert_array_equal(logits(nn.load("org/tiny")), logits(nn.load(folder)))
    assert hub.downloads().count("model.safetensors") == 2
    assert not hub.cut


def test_shards_of_the_index_are_downloaded(hub: HubServer, tmp_path: Path) -> None:
    whole = nn.load(language_model_folder(tmp_path / "whole"))
    folder = serve(hub, "org/shards", tmp_path / "shards")
    nn.save(folder, whole, max_shard_size=5000)
    assert len(shards := list(folder.glob("model-*.safetensors"))) > 1
    (folder / "model-00009-of-00009.safetensors").write_bytes(b"of another index")
    np.testing.assert_array_equal(logits(nn.load("org/shards")), logits(whole))
    assert {path.name for path in shards} < {*hub.downloads()}
    assert "model-00009-of-00009.safetensors" not in hub.downloads()
    hub.requests.clear()
    nn.load("org/shards")
    assert not hub.requests


def test_pickle_that_an_index_names_is_not_downloaded(hub: HubServer, tmp_path: Path) -> None:
    whole = nn.load(language_model_folder(tmp_path / "whole"))
    folder = serve(hub, "org/mixed", tmp_path / "mixed")
    nn.save(folder, whole, max_shard_size=5000)
    index = folder / "model.safetensors.index.json"
    first = min(folder.glob("model-*.safetensors"))
    index.write_text(index.read_text().replace(first.name, "pytorch_model-00001.bin"))
    first.rename(folder / "pytorch_model-00001.bin")
    with pytest.raises(OSError, match="pytorch_model-00001.bin: no such file"):
        nn.load("org/mixed")
    assert "pytorch_model-00001.bin" not in hub.downloads()


def test_sentence_encoder_and_classifier_by_name(hub: HubServer, tmp_path: Path) -> None:
    folder = serve(hub, "org/encoder", sentence_encoder_folder(tmp_path / "encoder"))
    vector = nn.sentence_encoder("org/encoder").encode("the cat")
    np.testing.assert_array_equal(vector, nn.sentence_encoder(folder).encode("the cat"))
    assert vector.shape == (4,)
    model = nn.load(folder, "classes", num_classes=3, generator=np.random.default_rng(0))
    classes = serve(hub, "org/classes", tmp_path / "classes")
    nn.save(classes, model, nn.text.load(folder))
    hub.requests.clear()
    found = nn.classifier("org/classes")(["the cat", "a dog"])
    expected = nn.classifier(classes)(["the cat", "a dog"])
    assert found[0] == expected[0]
    np.testing.assert_array_equal(found[1], expected[1])
    assert len(set(hub.downloads())) == 5 - 1


def test_commands_take_a_name(hub: HubServer, tmp_path: Path) -> None:
    serve(hub, "org/tiny", language_model_folder(tmp_path / "tiny"))
    serve(hub, "org/encoder", sentence_encoder_folder(tmp_path / "encoder"))
    found, expected = (
        call(generate.main, f"{model} 'the cat' --max-len 2")
        for model in ("org/tiny", tmp_path / "tiny")
    )
    assert found.out == expected.out
    Path("lines.txt").write_text("the cat sat\nthe dog ran\n")
    line = "org/encoder lines.txt 'the cat sat' --top 1 --index lines.index"
    assert call(search.main, line).result == [["the cat sat"]]
    hub.requests.clear()
    done = call(search.main, line)
    assert done.result == [["the cat sat"]]
    assert "2 lines in lines.index" in done.err
    assert not hub.requests


def test_wrong_name_error_says_so_of_path_and_hub(hub: HubServer) -> None:
    for name in ("runs/tniy", "tniy"):
        with pytest.raises(
            FileNotFoundError,
            match=f"^{name}: no such file or directory, and no model of this name",
        ):
            nn.load(name)
    with pytest.raises(FileNotFoundError, match="^bad--name/.*: no such file"):
        nn.text.load("bad--name")


@pytest.mark.parametrize("status", [401, 403])
def test_gated_model_error_names_its_page(hub: HubServer, tmp_path: Path, status: int) -> None:
    serve(hub, "org/gated", language_model_folder(tmp_path / "gated"))
    hub.gated["org/gated"] = status
    with pytest.raises(
        PermissionError, match=f"^org/gated: .*gated.*{hub.url}/org/gated, and run `hf auth login`"
    ):
        nn.load("org/gated")


def test_repository_without_safetensors_is_an_error(hub: HubServer, tmp_path: Path) -> None:
    folder = serve(hub, "org/old", language_model_folder(tmp_path / "old"))
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(
        ValueError, match=r"^org/old: .*pytorch_model.bin is not read.*save_pretrained"
    ):
        nn.load("org/old")
    assert hub.downloads() == ["config.json"]
    name = "pytorch_model.bin"
    for other in ("a.pt", "tf_model.h5", "flax_model.msgpack"):
        (folder / name).rename(folder / other)
        with pytest.raises(ValueError, match=f"^org/old: .*{other} is not read"):
            nn.load("org/old")
        name = other
    (folder / name).rename(folder / "a.Q8_0.gguf")
    (folder / "config.json").unlink()
    for load in (nn.load, nn.text.load):
        with pytest.raises(
            ValueError, match="name one of its GGUF files, such as 'org/old:a.Q8_0.gguf'"
        ):
            load("org/old")
    (folder / "a.Q8_0.gguf").unlink()
    with pytest.raises(
        ValueError, match=r"^org/old: no (config.json|model.safetensors) on the Hub$"
    ):
        nn.load("org/old")


def test_model_that_was_converted_since_is_found(hub: HubServer, tmp_path: Path) -> None:
    folder = serve(hub, "org/old", language_model_folder(tmp_path / "old"))
    expected = logits(nn.load(folder))
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(ValueError, match="pytorch_model.bin"):
        nn.load("org/old")
    (folder / "pytorch_model.bin").rename(folder / "model.safetensors")
    np.testing.assert_array_equal(logits(nn.load("org/old")), expected)


def test_gguf_file_by_name(hub: HubServer, tmp_path: Path) -> None:
    folder = serve(hub, "org/gguf", tmp_path / "gguf")
    (folder / "q8").mkdir(parents=True)
    (folder / "q8/a.gguf").write_bytes(b"GGUF")
    (folder / "b.gguf").write_bytes(b"GGUF")
    path = find_model("org/gguf:q8/a.gguf", weights=True)
    assert path.read_bytes() == b"GGUF"
    assert hub.downloads() == ["q8/a.gguf"]
    with pytest.raises(
        ValueError, match=r"^org/gguf:c.gguf: no c.gguf on the Hub; .* 'org/gguf:b.gguf'"
    ):
        nn.text.load("org/gguf:c.gguf")


def cache_folder(home: Path, folder: Path) -> None:
    """Write a cache as transformers does: references and snapshots, and no listing."""
    repository = home / "hub" / "models--org--tiny"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs/main").write_text("0123456789" * 4)
    snapshot = repository / "snapshots" / ("0123456789" * 4)
    snapshot.mkdir(parents=True)
    (repository / "blobs").mkdir()
    for path in folder.iterdir():
        if path.is_file():
            (repository / "blobs" / path.name).write_bytes(path.read_bytes())
            (snapshot / path.name).symlink_to(Path("../../blobs") / path.name)


PROGRAM = (
    "import nn; nn.text.load('org/tiny').save('saved'); print(nn.load('org/tiny').num_parameters())"
)


@pytest.mark.slow
@pytest.mark.parametrize(
    "variables",
    [
        {"HF_HOME": "{home}", "HF_HUB_OFFLINE": "1"},
        {"HF_HUB_CACHE": "{home}/hub", "HF_ENDPOINT": "http://127.0.0.1:9"},
    ],
)
def test_cache_on_disk_needs_no_network(tmp_path: Path, variables: dict[str, str]) -> None:
    folder = language_model_folder(tmp_path / "tiny")
    cache_folder(tmp_path / "home", folder)
    environ = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
    environ |= {key: value.format(home=tmp_path / "home") for key, value in variables.items()}
    root = str(Path(nn.__file__).parents[1])
    run = lambda name: subprocess.run(
        [sys.executable, "-c", PROGRAM.replace("org/tiny", name)],
        env={**environ, "PYTHONPATH": root}, cwd=tmp_path, text=True, capture_output=True,
    )  # fmt: skip
    assert run("org/tiny").stdout == f"{nn.load(folder).num_parameters()}\n"
    assert (tmp_path / "saved/tokenizer.json").is_file()
    error = run("org/other").stderr.splitlines()[-1]
    assert error.startswith(
        "FileNotFoundError: org/other: no such file or directory, and the Hub's cache"
    )
    assert error.endswith(
        "run `hf download org/other --local-dir DIR` where it is possible, and pass DIR"
    )


def test_cache_without_listing_is_completed(hub: HubServer, tmp_path: Path) -> None:
    """A cache that lacks modules.json must not be read as an encoder without it."""
    folder = serve(hub, "org/encoder", sentence_encoder_folder(tmp_path / "encoder"))
    vectors = nn.sentence_encoder(folder).encode("the cat")
    commit = hub.commit("org/encoder")
    repository = tmp_path / "cache/models--org--encoder"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs/main").write_text(commit)
    for name in ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"):
        target = repository / "snapshots" / commit / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((folder / name).read_bytes())
    np.testing.assert_array_equal(nn.sentence_encoder("org/encoder").encode("the cat"), vectors)
    assert "model.safetensors" not in [n for n in hub.downloads() if "2_Dense" not in n]


def test_package_that_is_missing_is_named(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(
        FileNotFoundError,
        match="^tiny: no such .* pip install huggingface_hub; run `hf download tiny --local-dir DIR`",
    ):
        nn.load("tiny")
