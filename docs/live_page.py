"""Live page: a trained translator, the library and Python itself, in one HTML file."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import zipfile
from pathlib import Path

from browser import PUBLIC, library_files, pyodide_files

from minigrad.io.reading import read_text
from nn import Translator

__all__ = ["live_page"]

PARTS = Path(__file__).parent / "live"


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
