"""A directory that looks like an unpacked Pyodide."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Sequence
from pathlib import Path

CORE = ("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip")


def write_pyodide(folder: Path, packages: Sequence[str]) -> Path:
    """Write a Pyodide whose packages need its-part, by another spelling, and not the one named other."""
    folder.mkdir()
    for name in CORE:
        (folder / name).write_text("// nothing", "utf-8")
    entries = {}
    for name in (*packages, "its-part", "other"):
        depends = ["its_part"] if name in packages else []
        entries[name] = {"file_name": f"{name}.whl", "depends": depends}
        with zipfile.ZipFile(folder / f"{name}.whl", "w") as wheel:
            for file in ("numpy/core.py", "numpy/tests/test_core.py", "numpy/core.pyi"):
                wheel.writestr(file, "a wheel")
    (folder / "pyodide-lock.json").write_text(json.dumps({"packages": entries}), "utf-8")
    return folder
