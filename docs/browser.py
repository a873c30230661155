"""Python in the browser: files of Pyodide, the library as a wheel, and live notebooks (JupyterLite)."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import zipfile
from pathlib import Path
from typing import Any

import nbformat
import sources
from jupyterlite_pyodide_kernel.constants import PYODIDE_CDN_URL
from packaging.utils import canonicalize_name

import minigrad
from minigrad.io.json import read_json
from minigrad.io.reading import read_text

LITE = sources.HERE / "_build" / "lite"
PUBLIC = PYODIDE_CDN_URL
CORE = (
    "pyodide.mjs",
    "pyodide.asm.mjs",
    "pyodide.asm.wasm",
    "python_stdlib.zip",
    "pyodide-lock.json",
)
NOTEBOOK = ["micropip", "ipython", "jedi", "matplotlib"]  # packages of a notebook


def pyodide() -> Path | None:
    """Return the directory of an unpacked Pyodide, if the environment variable PYODIDE is set."""
    directory = os.environ.get("PYODIDE")
    return Path(directory).resolve() if directory else None


def pyodide_files(folder: Path, packages: list[str]) -> list[Path]:
    """Return the files of an unpacked Pyodide that packages need."""
    lock = read_json(folder / "pyodide-lock.json").object("packages")
    names, files = list(packages), [folder / name for name in CORE]
    for name in names:  # which grows meanwhile
        entry = lock.object(name)
        files.append(folder / entry.text("file_name"))
        depends = map(canonicalize_name, entry.list("depends", str))
        names += [other for other in depends if other not in names]
    if missing := [path.name for path in files if not path.is_file()]:
        raise ValueError(f"{folder} must be an unpacked Pyodide, and lacks {', '.join(missing)}")
    return files


def library_files() -> dict[str, Path]:
    """Return the files of the library by their names in an archive."""
    paths = [
        path for package in ("minigrad", "nn") for path in sources.ROOT.glob(f"{package}/**/*.*")
    ]
    kinds = (".py", ".html", ".json", ".mplstyle")
    return {p.relative_to(sources.ROOT).as_posix(): p for p in sorted(paths) if p.suffix in kinds}


def installed_files(name: str) -> dict[str, Path]:
    """Return the Python files of an installed package by their names in an archive."""
    files = importlib.metadata.files(name) or []
    return {file.as_posix(): Path(file.locate()) for file in files if file.suffix == ".py"}


def write_wheel(name: str, version: str, files: dict[str, Path], requires: list[str]) -> None:
    """Write a wheel of pure Python where JupyterLite finds it."""
    stem = f"{name.replace('-', '_')}-{version}"
    needs = "".join(f"Requires-Dist: {needed}\n" for needed in requires)
    info = {
        "METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}",
        "WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    info["RECORD"] = "".join(f"{file},,\n" for file in files)
    wheel = LITE / "pypi" / f"{stem}-py3-none-any.whl"
    wheel.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for file, path in files.items():
            archive.write(path, file)
        for file, text in info.items():
            archive.writestr(f"{stem}.dist-info/{file}", text)


def write_lite(app: Any) -> None:
    """Write what JupyterLite makes the live notebooks from: notebooks, wheels, Pyodide and settings."""
    for language in ("en", "zh"):
        for script in sources.lessons():
            notebook = sources.lesson_notebook(script, language == "zh")
            install = nbformat.v4.new_code_cell("%pip install -q minigrad-course")
            notebook.cells.insert(0, install)
            notebook.metadata["kernelspec"] = {"name": "python", "display_name": "Python"}
            path = LITE / "notebooks" / language / f"{script.stem}.ipynb"
            sources.write(path, nbformat.writes(notebook))
    folder = LITE / "notebooks" / "pictures"
    folder.mkdir(exist_ok=True)
    for picture in sources.pictures():
        shutil.copy(picture, folder)
    for name in ("pypi", "static"):
        shutil.rmtree(LITE / name, ignore_errors=True)
    version = minigrad.__version__
    write_wheel("minigrad-nn", version, library_files(), ["numpy>=2"])
    needs = ["minigrad-nn", "matplotlib"]
    write_wheel("minigrad-course", version, sources.course_modules(), needs)
    comm = importlib.metadata.version("comm")  # the kernel needs it, and Pyodide lacks it
    write_wheel("comm", comm, installed_files("comm"), [])
    python = LITE / "static" / "pyodide"  # JupyterLite uses it if it exists
    for path in pyodide_files(given, NOTEBOOK) if (given := pyodide()) else []:
        python.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, python)
    kernel = {"disablePyPIFallback": given is not None}
    plugins = {"@jupyterlite/pyodide-kernel-extension:kernel": kernel}
    settings = {"appName": "minigrad", "litePluginSettings": plugins}
    sources.write(LITE / "jupyter-lite.json", json.dumps({"jupyter-config-data": settings}))


def watch_notebooks(app: Any, error: Exception | None) -> None:
    """Add `live/notebook.js` to the page of live notebooks that JupyterLite made."""
    page = Path(app.outdir) / "lite" / "notebooks" / "index.html"
    if error or app.builder.name != "html":
        return
    python = f"{'../static/pyodide' if pyodide() else PUBLIC}/pyodide.mjs"
    code = read_text(sources.HERE / "live" / "notebook.js")
    script = f'<script data-python="{python}" data-seconds="10">\n{code}</script>\n'
    # JupyterLite may keep the page of an earlier build
    text = re.sub(r"<script data-python=.*?</script>\n", "", read_text(page), flags=re.S)
    page.write_text(text.replace("</body>", script + "</body>"), "utf-8")
