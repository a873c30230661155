"""Names of models of the Hub, with a package in memory that copies files from one directory to another."""

from __future__ import annotations

import fnmatch
import json
import shutil
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from nn.text.hub import find_model

ERRORS = (
    "HFValidationError", "GatedRepoError", "RepositoryNotFoundError", "CachedRepoTreeNotFoundError",
    "LocalEntryNotFoundError",
)  # fmt: skip


class Hub(ModuleType):
    """Stand in for `huggingface_hub`, with the files of `remote`."""

    def __init__(self, path: Path) -> None:
        super().__init__("huggingface_hub")
        self.remote, self.cache, self.asked = path / "remote", path / "cache", list[Any]()
        self.trees: set[str] = set()
        self.failure: Exception | None = None
        self.constants = SimpleNamespace(ENDPOINT="https://hub")
        self.errors = ModuleType("huggingface_hub.errors")
        for name in ERRORS:
            setattr(self.errors, name, type(name, (Exception,), {}))

    def add(self, name: str, **files: str) -> None:
        for file, text in files.items():
            path = self.remote / name / file.replace("__", "/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def files(self, name: str) -> list[str]:
        folder = self.remote / name
        return [p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()]

    def get_cached_repo_tree(self, name: str) -> list[Any]:
        if name not in self.trees:
            raise self.errors.CachedRepoTreeNotFoundError
        return [SimpleNamespace(path=file) for file in self.files(name)]

    def snapshot_download(
        self, name: str, *, allow_patterns: list[str], local_files_only: bool = False
    ) -> str:
        target = self.cache / name
        wanted = [f for f in self.files(name) if any(fnmatch.fnmatch(f, p) for p in allow_patterns)]
        if local_files_only:
            if not all((target / file).exists() for file in wanted):
                raise self.errors.LocalEntryNotFoundError
            return str(target)
        self.asked.append((name, allow_patterns))
        if self.failure is not None:
            raise self.failure
        self.trees.add(name)
        target.mkdir(parents=True, exist_ok=True)
        for file in wanted:
            (target / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(self.remote / name / file, target / file)
        return str(target)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    hub = Hub(tmp_path)
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    monkeypatch.setitem(sys.modules, "huggingface_hub.errors", hub.errors)
    monkeypatch.setattr("nn.text.hub.require", lambda module, *_: sys.modules[module])
    monkeypatch.chdir(tmp_path)
    return hub


def found_files(path: Path) -> list[str]:
    return sorted(p.relative_to(path).as_posix() for p in path.rglob("*") if p.is_file())


@pytest.mark.parametrize("name", ["gpt2", "org/name", "_a.b-c/d_e.f", "0/1"])
def test_name_of_a_model_is_downloaded_once(hub: Hub, name: str) -> None:
    files = {"config.json": "{}", "model.safetensors": "x", "vocab.txt": "a", "other.bin": "b", "t__a.jinja": ""}  # fmt: skip
    hub.add(name, **files)
    for weights in (False, True, True, False):
        found = find_model(name, ["vocab.txt", "t/*.jinja"], weights=weights)
        assert found == hub.cache / name
    assert found_files(found) == ["config.json", "model.safetensors", "t/a.jinja", "vocab.txt"]
    assert [asked[0] for asked in hub.asked] == [name] * 2
    hub.trees.clear()  # an older cache may lack files
    find_model(Path(name), weights=True)
    assert len(hub.asked) == 3


@pytest.mark.parametrize(
    "name", ["/abs/x", "./x", "../x", "a/b/c", "x.gguf", "org/x.gguf", "a b", "org/x:y.bin",
             "org/x:/y.gguf", "org/x:y:z.gguf", "-x", ".x", "", "x/", "é", "x\n"],
)  # fmt: skip
def test_path_that_is_no_name_is_returned(hub: Hub, name: str) -> None:
    assert find_model(name) == Path(name) and not hub.asked


def test_path_that_exists_is_returned(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "gpt2").mkdir()
    (tmp_path / "link").symlink_to("nowhere")
    assert find_model("gpt2") == Path("gpt2") and find_model("link") == Path("link")
    assert not hub.asked


def test_name_of_a_model_needs_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(FileNotFoundError) as error:
        find_model("org/x")
    assert str(error.value).startswith("org/x: no such file or directory; ")
    assert "pip install huggingface_hub; run `hf download org/x --local-dir DIR`" in str(
        error.value
    )


@pytest.mark.parametrize("file", ["y.gguf", "sub/y.gguf"])
def test_gguf_file_of_a_repository_is_downloaded_alone(hub: Hub, file: str) -> None:
    hub.add("org/x", **{file.replace("/", "__"): "x", "config.json": "{}", "z.gguf": ""})
    assert find_model(f"org/x:{file}", ["*.txt"], weights=True) == hub.cache / "org/x" / file
    assert found_files(hub.cache / "org/x") == [file]


def test_shards_of_the_index_are_downloaded_without_others(hub: Hub) -> None:
    index = {"weight_map": {"a": "1.safetensors", "b": "2.safetensors", "c": "3.bin"}}
    names = ["config.json", "1.safetensors", "2.safetensors", "3.bin", "4.safetensors"]
    hub.add("x", **dict.fromkeys(names, "{}"))
    hub.add("x", **{"model.safetensors.index.json": json.dumps(index)})
    found = find_model("x", weights=True)
    assert found_files(found) == sorted([*names[:3], "model.safetensors.index.json"])


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (["config.json", "b.gguf", "a.gguf", "x.bin"], "one of its GGUF files, such as 'org/x:a.gguf'$"),
        *((["config.json", f"b{end}", f"a{end}"], f"a{end} is not read, since it is not safetensors") for end in (".bin", ".pt", ".h5", ".msgpack")),
        (["config.json", "README.md"], "model.safetensors on the Hub$"),
    ],
)  # fmt: skip
def test_repository_without_safetensors_names_what_it_has(
    hub: Hub, files: list[str], message: str
) -> None:
    hub.add("org/x", **dict.fromkeys(files, "{}"))
    for _ in range(2):  # also from the cache
        with pytest.raises(ValueError, match=rf"^org/x: no model.safetensors on the Hub.*{message}|^org/x: no {message}"):  # fmt: skip
            find_model("org/x", weights=True)
    assert find_model("org/x") == hub.cache / "org/x"  # of a tokenizer, which needs no weights


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        ("GatedRepoError", PermissionError, "gated; accept its terms at https://hub/org/x, and run"),
        ("RepositoryNotFoundError", FileNotFoundError, "no model of this name on the Hub; correct"),
        (TimeoutError("a\nb"), OSError, r"cannot be downloaded \(TimeoutError: a b\); run `hf download org/x --local-dir DIR`"),
        (FileNotFoundError("a"), FileNotFoundError, r"cannot be downloaded \(FileNotFoundError: a\); run"),
        (ValueError("a"), OSError, r"cannot be downloaded \(ValueError: a\); run"),
    ],
)  # fmt: skip
def test_download_that_fails_names_the_model_and_the_fix(
    hub: Hub, error: Any, kind: type[Exception], message: str
) -> None:
    is_named = isinstance(error, str)
    hub.failure = getattr(hub.errors, error)() if is_named else error
    with pytest.raises(kind, match=f"^org/x: no such file or directory, and .*{message}") as caught:
        find_model("org/x")
    assert type(caught.value) is kind
    hub.failure = RuntimeError()
    hub.failure.__cause__ = OSError("inside")
    with pytest.raises(OSError, match=r"cannot be downloaded \(OSError: inside\)"):
        find_model("org/x")
    hub.failure = hub.errors.HFValidationError()
    assert find_model("org/x") == Path("org/x")
