"""Live page: a trained translator, the library and Python itself, in one HTML file.

The first page of the site shows a recorded run of the same translator.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import zipfile
from pathlib import Path
from typing import Any

from browser import PUBLIC, library_files, pyodide_files
from live.asked import Asked

from minigrad.io.reading import read_text
from nn import Translator
from nn.text import toy_corpora

__all__ = ["live_page", "recorded_runs"]

PARTS = Path(__file__).parent / "live"
RECORDED = (
    "我 有 一只 猫",
    "他 在 公园 画 两只 狗",
    "她 有 三个 孩子 吗 ？",
    "昨天 我们 买 了 三把 红 的 椅子",
)
GRAMMAR = {
    "的": "(joins adjective and noun)",
    "了": "(past)",
    "吗": "(question)",
    "？": "?",
    "们": "(plural)",
    "在": "in, at",
    "不": "not",
    "没有": "not have",
    "看不见": "not see",
    "很": "(is)",
    "昨天": "yesterday",
    "妈妈": "mother",
    "爸爸": "father",
}


def live_page(run_dir: Path, pyodide: Path | None = None) -> str:
    """Return the page: a run directory, the library, and an unpacked Pyodide with NumPy's wheel.

    Without `pyodide`, the page loads Python and NumPy from Pyodide's public address.
    """
    files = _python(pyodide) if pyodide else {}
    files["library.zip"] = _library(run_dir)
    packed = "\n".join(
        f'<script type="text/plain" data-file="{name}">{base64.b64encode(gzip.compress(content, mtime=0)).decode()}</script>'
        for name, content in files.items()
    )
    page = read_text(PARTS / "page.html")
    page = page.replace("@address@", "" if pyodide else f"{PUBLIC}/").replace("@files@", packed)
    for name in ("style.css", "worker.js", "page.js", "zh_CN.json"):
        page = page.replace(f"@{name}@", read_text(PARTS / name))
    return page


def recorded_runs(run_dir: Path) -> dict[str, Any]:
    """Return what the first page plays: runs of some sentences, and all known words by their kind."""
    asked = Asked(str(run_dir))
    runs = [json.loads(asked.record(json.dumps({"text": text}))) for text in RECORDED]
    return {"runs": runs, "words": known_words(asked.translator.source_vocab.tokens[4:])}


def known_words(tokens: list[str]) -> dict[str, list[list[str]]]:
    """Return kinds of Chinese words, and of each kind the known words with their English."""
    path = Path(toy_corpora.__file__).with_name("toy_words.json")
    data = json.loads(read_text(path))["chinese"]
    nouns = {noun: forms[0] for noun, forms in data["nouns"].items()}
    counted: dict[str, str] = {}  # measure words, each with the first noun that it counts
    for english, _, measure, _ in data["nouns"].values():
        counted.setdefault(measure, english)
    numbers = {**data["numbers"], "一": "a", "这": "this", "那": "that"}
    kinds = {
        "subjects": {subject: who for subject, (who, _) in data["subjects"].items()},
        "verbs": {verb: forms[0] for verb, forms in data["verbs"].items()},
        "nouns": nouns,
        "adjectives": data["adjectives"],
        "places": {place: at.split()[-1] for place, at in data["places"].items()},
        "numbers": {
            f"{number}{measure}": f"{english} ({noun})"
            for number, english in numbers.items()
            for measure, noun in counted.items()
        },
        "grammar": GRAMMAR,
    }
    return {
        kind: [[word, english] for word, english in words.items() if word in tokens]
        for kind, words in kinds.items()
    }


def _python(pyodide: Path) -> dict[str, bytes]:
    """Return Pyodide and NumPy by the names of their files, without the tests of NumPy."""
    files = {path.name: path.read_bytes() for path in pyodide_files(pyodide, ["numpy"])}
    lock = json.loads(files["pyodide-lock.json"])
    lock["packages"] = {k: p for k, p in lock["packages"].items() if p["file_name"] in files}
    for package in lock["packages"].values():
        wheel = _without_tests(files[package["file_name"]])
        package["sha256"] = hashlib.sha256(wheel).hexdigest()
        files[package["file_name"]] = wheel
    return {**files, "pyodide-lock.json": json.dumps(lock).encode()}


def _without_tests(wheel: bytes) -> bytes:
    """Return a wheel without its tests and stubs, stored: the page is compressed as a whole."""
    packed = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(wheel)) as old, zipfile.ZipFile(packed, "w") as new:
        for name in old.namelist():
            if "/tests/" not in name and not name.endswith(".pyi"):
                new.writestr(zipfile.ZipInfo(name), old.read(name))
    return packed.getvalue()


def _library(run_dir: Path) -> bytes:
    """Return the library, the module of the page and the trained model as a zip archive."""
    Translator.load(run_dir)  # an error here, in place of one in the page
    files = {**library_files(), "asked.py": PARTS / "asked.py"}
    for name in ("config.json", "vocab.json", "best.safetensors"):
        files[f"run/{name}"] = run_dir / name
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:  # the page is compressed as a whole
        for name, path in sorted(files.items()):
            archive.writestr(zipfile.ZipInfo(name), path.read_bytes())
    return packed.getvalue()
