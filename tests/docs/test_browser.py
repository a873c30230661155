"""Live notebooks: what JupyterLite makes them from."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

jinja2 = pytest.importorskip("jinja2")
for module in ("jupytext", "babel", "jupyterlite_pyodide_kernel"):
    pytest.importorskip(module)
ROOT = Path(__file__).parents[2]


@pytest.fixture
def browser(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    module = importlib.import_module("browser")
    monkeypatch.setattr(module, "LITE", tmp_path / "lite")
    monkeypatch.delenv("PYODIDE", raising=False)
    return module


def write_pyodide(folder: Path, files: tuple[str, ...], packages: list[str]) -> Path:
    """Write a Pyodide whose packages need the package after them, by another spelling."""
    folder.mkdir()
    for name in files:
        (folder / name).write_text("", "utf-8")
    names = [*packages, "its-part"]
    entries = {
        name: {"file_name": f"{name}.whl", "depends": [] if name == "its-part" else ["its_part"]}
        for name in names
    }
    for name in names:
        (folder / f"{name}.whl").write_text(name, "utf-8")
    (folder / "other.whl").write_text("", "utf-8")
    (folder / "pyodide-lock.json").write_text(json.dumps({"packages": entries}), "utf-8")
    return folder


def test_live_notebooks_install_the_course_in_both_languages(browser: Any) -> None:
    browser.write_lite(None)
    for language in ("en", "zh"):
        notebooks = sorted((browser.LITE / "notebooks" / language).iterdir())
        assert [path.stem for path in notebooks] == [s.stem for s in browser.sources.lessons()]
        for path in notebooks:
            cells = json.loads(path.read_text("utf-8"))["cells"]
            assert "".join(cells[0]["source"]) == "%pip install -q minigrad-course"
            text = json.dumps(cells, ensure_ascii=False)
            assert ("zh_CN" in text) == (language == "zh")


def test_wheels_contain_all_that_a_lesson_imports(browser: Any, tmp_path: Path) -> None:
    browser.write_lite(None)
    wheels = {path.name.split("-")[0]: path for path in (browser.LITE / "pypi").iterdir()}
    assert sorted(wheels) == ["comm", "minigrad_course", "minigrad_nn"]
    for path in wheels.values():
        with zipfile.ZipFile(path) as wheel:
            wheel.extractall(tmp_path / "installed")
    modules = (
        "minigrad",
        "nn",
        "comm",
        "grading",
        "pictures",
        "labels",
        "exercises.self_attention",
    )
    code = f"import {', '.join(modules)}; print(nn.__file__, grading.__file__)"
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=tmp_path, env={"PYTHONPATH": "installed"}
    )
    assert done.stdout.count("installed") == 2, done.stderr
    metadata = next((tmp_path / "installed").glob("minigrad_course*/METADATA")).read_text("utf-8")
    assert "Requires-Dist: minigrad-nn\nRequires-Dist: matplotlib\n" in metadata


@pytest.mark.parametrize("offline", [False, True], ids=["public", "offline"])
def test_python_of_live_notebooks_is_where_the_page_says(
    browser: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, offline: bool
) -> None:
    if offline:
        folder = write_pyodide(tmp_path / "given", browser.CORE, browser.NOTEBOOK)
        monkeypatch.setenv("PYODIDE", str(folder))
    browser.write_lite(None)
    copied = {path.name for path in browser.LITE.glob("static/pyodide/*")}
    wheels = {f"{name}.whl" for name in (*browser.NOTEBOOK, "its-part")}
    assert copied == ({*browser.CORE, *wheels} if offline else set())
    template = jinja2.Template((ROOT / "docs/_templates/notebook.html").read_text("utf-8"))
    for language in ("en", "zh_CN"):
        text = template.render(language=language, name="x", offline=browser.pyodide())
        assert ("cdn.jsdelivr.net" in text) != offline
        assert f"lite/notebooks/index.html?path={language[:2]}/x.ipynb" in text
    settings = json.loads((browser.LITE / "jupyter-lite.json").read_text("utf-8"))
    assert f'"disablePyPIFallback": {str(offline).lower()}' in json.dumps(settings)
