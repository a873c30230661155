"""Models by name: files of the Hugging Face Hub, out of its cache or downloaded."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from minigrad.check.extras import MissingExtraError, require
from minigrad.io.json import read_json
from minigrad.io.reading import printable
from minigrad.io.safetensors import INDEX, WHOLE

_PART = r"[A-Za-z0-9_][\w.-]*"
_NAME = re.compile(rf"((?:{_PART}/)?{_PART}(?<!\.gguf))(?::([^/:\\][^:\\]*\.gguf))?", re.ASCII)
"""`name` or `organization/name`, and `:file.gguf`."""


def find_model(name: str | Path, files: Iterable[str] = (), *, weights: bool = False) -> Path:
    """Return the path of a model, a directory or a GGUF file: one that exists, or files of the Hub.

    A name is `gpt2`, `organization/name`, or `organization/name:file.gguf`. Files in the cache of
    `huggingface_hub` are used without a request. Others are downloaded: config.json, `files` (names
    or patterns), and with `weights` the arrays, from safetensors alone. A path that cannot be a
    name of the Hub is returned, too.
    """
    text = name if isinstance(name, str) else name.as_posix()
    match = _NAME.fullmatch(text)
    if match is None or os.path.lexists(name):
        return Path(name)
    repository, gguf = match.groups()
    start = f"{printable(text, 200)}: no such file or directory"
    fix = f"; run `hf download {repository} --local-dir DIR` where it is possible, and pass DIR"
    try:
        hub = require("huggingface_hub", "a model by name", "1.28")
        require("huggingface_hub.errors", "a model by name")  # an attribute from now on
    except MissingExtraError as error:
        raise FileNotFoundError(f"{start}; {error}{fix}") from None
    try:
        return _download(hub, repository, gguf, files, weights)
    except hub.errors.HFValidationError:  # no name of the Hub, after all
        return Path(name)
    except hub.errors.GatedRepoError:
        raise PermissionError(
            f"{start}, and the model on the Hub is gated; accept its terms at "
            f"{hub.constants.ENDPOINT}/{repository}, and run `hf auth login`"
        ) from None
    except hub.errors.RepositoryNotFoundError:
        raise FileNotFoundError(
            f"{start}, and no model of this name on the Hub; correct the name, or run "
            "`hf auth login` if the model is private"
        ) from None
    except _WrongFilesError as error:
        raise ValueError(f"{printable(text, 200)}: {error}") from None
    except Exception as error:  # of the library, its client, or the system
        kind = FileNotFoundError if isinstance(error, FileNotFoundError) else OSError
        cause = error.__cause__ or error
        reason = printable(f"{type(cause).__name__}: {' '.join(str(cause).split())}", 300)
        raise kind(
            f"{start}, and the Hub's cache lacks the model, which cannot be downloaded "
            f"({reason}){fix}"
        ) from None


class _WrongFilesError(Exception):
    """The repository does not have the files that are needed."""


def _download(hub: Any, name: str, gguf: str | None, files: Iterable[str], weights: bool) -> Path:
    """Return the directory of the needed files of a repository, or its GGUF file."""
    if gguf is not None:
        return _snapshot(hub, name, [gguf], [gguf]) / gguf
    needed = [WHOLE, INDEX] if weights else ["config.json"]
    directory = _snapshot(hub, name, ["config.json", *files, *needed], needed)
    if not weights or (directory / WHOLE).is_file():
        return directory
    shards = set(read_json(directory / INDEX).object("weight_map").values())
    safe = sorted(shard for shard in shards if str(shard).endswith(".safetensors"))
    return _snapshot(hub, name, safe, safe)


def _snapshot(hub: Any, name: str, patterns: list[str], needed: list[str]) -> Path:
    """Return the directory of the files of these patterns, one of which is needed.

    It is that of the cache if the cache has a listing of the repository, and all its files of these
    patterns. Without a listing, files may be missing, so the Hub is asked if it can be reached.
    """
    has_needed = lambda directory: any((directory / file).is_file() for file in needed)
    try:
        hub.get_cached_repo_tree(name)
        found = Path(hub.snapshot_download(name, allow_patterns=patterns, local_files_only=True))
        if has_needed(found):
            return found
    except (hub.errors.CachedRepoTreeNotFoundError, hub.errors.LocalEntryNotFoundError):
        pass
    found = Path(hub.snapshot_download(name, allow_patterns=patterns))
    if has_needed(found):
        return found
    try:
        names = sorted(printable(file.path, 200) for file in hub.get_cached_repo_tree(name))
    except hub.errors.CachedRepoTreeNotFoundError:
        names = []
    fault = f"no {needed[0]} on the Hub"
    if gguf := [file for file in names if file.endswith(".gguf")]:
        raise _WrongFilesError(f"{fault}; name one of its GGUF files, such as '{name}:{gguf[0]}'")
    if pickles := [file for file in names if file.endswith((".bin", ".pt", ".h5", ".msgpack"))]:
        raise _WrongFilesError(
            f"{fault}, and {pickles[0]} is not read, since it is not safetensors (a pickle can run "
            "any code); convert it with transformers' from_pretrained and save_pretrained"
        )
    raise _WrongFilesError(fault)
