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
from fake_pyodide import write_pyodide

jinja2 = pytest.importorskip("jinja2")
for module in ("jupytext", "babel", "jupyterlite_pyodide_kernel"):
    pytest.importorskip(module)
ROOT = Path(__file__).parents[2]


@pytest.fixture
def browser(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Return docs/browser.py, which writes into a directory of the test."""
    module = importlib.import_module("browser")
    monkeypatch.setattr(module, "LITE", tmp_path / "lite")
    monkeypatch.delenv("PYODIDE", raising=False)
    return module


def test_live_notebooks_install_the_course_in_both_languages(browser: Any) -> None:
    browser.write_lite(None)
    for language in ("en", "zh"):
        notebooks = sorted((browser.LITE / "notebooks" / language).iterdir())
        assert [path.stem for path in notebooks] == [s.stem for s in browser.sources.lessons()]
        for path in notebooks:
            text = path.read_text("utf-8")
            assert json.loads(text)["cells"][0]["source"] == ["%pip install -q minigrad-course"]
            assert ("COURSE_LANGUAGE" in text) == (language == "zh")


def test_wheels_contain_all_that_a_lesson_imports(browser: Any, tmp_path: Path) -> None:
    browser.write_lite(None)
    for path in (browser.LITE / "pypi").iterdir():
        zipfile.ZipFile(path).extractall(tmp_path)
    imports = "import minigrad, nn, comm, grading, pictures, labels, exercises.self_attention"
    command = [sys.executable, "-c", f"{imports}; print(nn.__file__, grading.__file__)"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env={})
    assert done.stdout.count(str(tmp_path)) == 2, done.stderr
    metadata = next(tmp_path.glob("minigrad_course*/METADATA")).read_text("utf-8")
    assert "Requires-Dist: minigrad-nn\nRequires-Dist: matplotlib\n" in metadata


@pytest.mark.parametrize("offline", [False, True], ids=["public", "offline"])
def test_python_of_live_notebooks_is_public_or_copied(
    browser: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, offline: bool
) -> None:
    if offline:
        folder = write_pyodide(tmp_path / "given", browser.NOTEBOOK)
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
    settings = (browser.LITE / "jupyter-lite.json").read_text("utf-8")
    assert f'"disablePyPIFallback": {str(offline).lower()}' in settings
