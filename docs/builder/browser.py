"""The live page: a trained translator, the library and Python itself, in one HTML file."""

from __future__ import annotations

import base64
import gzip
import io
import re
import zipfile
from pathlib import Path

from minigrad.io.json import read_json
from minigrad.io.reading import read_text
from nn import Translator

from .page import ASSETS

__all__ = ["live_page"]

ROOT = Path(__file__).parents[2]
PARTS = Path(__file__).parent / "live"
CORE = (
    "pyodide.js",
    "pyodide.asm.js",
    "pyodide.asm.wasm",
    "python_stdlib.zip",
    "pyodide-lock.json",
)


def live_page(pyodide: Path, run_dir: Path) -> str:
    """The page, made of an unpacked Pyodide with NumPy's wheel, and of a run directory."""
    files = {**_of_pyodide(pyodide), "library.zip": _library(run_dir)}
    packed = "\n".join(
        f'<script type="text/plain" data-file="{name}">{base64.b64encode(gzip.compress(content, mtime=0)).decode()}</script>'
        for name, content in files.items()
    )
    page = read_text(PARTS / "page.html")
    style = re.sub(r"@font-face.*", "", read_text(ASSETS / "style.css"))  # it has no formulas
    for name, text in (
        ("style", style),
        ("worker", read_text(PARTS / "worker.js")),
        ("page", read_text(PARTS / "page.js")),
        ("files", packed),
    ):
        if f"@{name}@" not in page:
            raise ValueError(f"{PARTS / 'page.html'}: expected @{name}@ in it")
        page = page.replace(f"@{name}@", text)
    return page


def _of_pyodide(folder: Path) -> dict[str, bytes]:
    """What a page needs of Pyodide, by name."""
    missing = [name for name in CORE if not (folder / name).is_file()]
    if missing:
        raise ValueError(
            f"--pyodide {folder}: expected an unpacked Pyodide, with {', '.join(CORE)}; missing: {missing}"
        )
    fits = lambda name: Path(name).name == name and len(name) < 256 and (folder / name).is_file()
    lock, wheels, packages = (
        read_json(folder / "pyodide-lock.json").object("packages"),
        [],
        ["numpy"],
    )
    for package in packages:  # which grows meanwhile
        entry = lock.object(package)
        wheels.append(entry.text("file_name"))
        packages += [other for other in entry.list("depends", str) if other not in packages]
    if missing := [name for name in wheels if not fits(name)]:
        raise ValueError(
            f"--pyodide {folder}: its pyodide-lock.json names {missing!r:.200}, which is not there"
        )
    return {name: (folder / name).read_bytes() for name in (*CORE, *wheels)}


def _library(run_dir: Path) -> bytes:
    """The library, what the page asks of it, and the trained model, as a zip archive."""
    Translator.load(run_dir)  # an error here, in place of one in the page
    files = {
        path.relative_to(ROOT): path
        for package in ("minigrad", "nn")
        for path in ROOT.glob(f"{package}/**/*.*")
    }
    files = {name: path for name, path in files.items() if path.suffix in (".py", ".html")}
    files |= {
        Path("asked.py"): PARTS / "asked.py",
        Path("corpora.py"): ROOT / "examples" / "corpora.py",
    }
    files |= {
        Path("run") / name: run_dir / name
        for name in ("config.json", "vocab.json", "best.safetensors")
    }
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:  # the page is compressed as a whole
        for name, path in sorted(files.items()):
            archive.writestr(zipfile.ZipInfo(name.as_posix()), path.read_bytes())
    return packed.getvalue()
