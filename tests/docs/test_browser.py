"""Live notebooks: what JupyterLite makes them from."""

from __future__ import annotations

import functools
import http.server
import importlib
import json
import re
import shutil
import subprocess
import sys
import threading
import types
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.environment import needs
from support.fake_pyodide import write_pyodide

jinja2 = needs("jinja2")
needs("jupytext", "babel", "jupyterlite_pyodide_kernel")
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
            for name in re.findall(r"\(\.\./pictures/([^)]+)\)", text):
                assert (path.parents[1] / "pictures" / name).is_file()
                assert name.endswith(".zh_CN.svg") == (language == "zh")


@pytest.mark.slow
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


AFTER = "\nimport torch_gaps; torch_gaps.RECORD.read_text()\nprint(nn.__file__)"


@pytest.mark.slow
def test_archive_of_the_course_needs_no_checkout(
    browser: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Install the library of the archive, and import all that its notebooks import."""
    sources = browser.sources
    here, made = tmp_path / "docs", tmp_path / "docs" / "course"
    monkeypatch.setattr(browser, "LITE", here / "_build" / "lite")
    browser.write_lite(None)
    shutil.copytree(sources.HERE / "pictures", here / "pictures")
    for name, value in (("HERE", here), ("MADE", made)):
        monkeypatch.setattr(sources, name, value)
    for script in sources.lessons():
        notebook = sources.lesson_notebook(script, chinese=True)
        sources.write(made / f"{script.stem}.ipynb", sources.nbformat.writes(notebook))
    out = tmp_path / "site"
    (out / "course").mkdir(parents=True)
    app = types.SimpleNamespace(builder=types.SimpleNamespace(name="html"), outdir=out)
    sources.copy_notebooks(app, None)
    zipfile.ZipFile(out / "course" / "course.zip").extractall(tmp_path / "unpacked")
    unpacked = tmp_path / "unpacked"
    (wheel,) = unpacked.glob("minigrad_nn-*.whl")
    zipfile.ZipFile(wheel).extractall(tmp_path / "installed")
    notebooks = sorted(unpacked.glob("course/*.ipynb"))
    assert len(notebooks) == len(sources.lessons())
    imports = set()
    for notebook in notebooks:
        text = notebook.read_text("utf-8")
        for name in re.findall(r"\(\.\./pictures/([^)]+)\)", text):
            assert (unpacked / "pictures" / name).is_file()
        code = "\n".join(sources.nbformat.reads(text, 4).cells[i].source for i in code_cells(text))
        imports |= set(re.findall(r"^(?:import|from) .*?(?:\([^)]*\))?$", code, re.M))
    command = [sys.executable, "-c", "\n".join(sorted(imports)) + AFTER]
    env = {"PYTHONPATH": str(tmp_path / "installed"), "COURSE_LANGUAGE": "zh_CN"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=unpacked / "course", env=env)
    assert done.stdout.startswith(str(tmp_path / "installed")), done.stderr


def code_cells(notebook: str) -> list[int]:
    """Return the indices of the cells with code."""
    cells = json.loads(notebook)["cells"]
    return [i for i, cell in enumerate(cells) if cell["cell_type"] == "code"]


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
        text = template.render(language=language, name="x")
        assert f"lite/notebooks/index.html?path={language[:2]}/x.ipynb" in text
    settings = (browser.LITE / "jupyter-lite.json").read_text("utf-8")
    assert f'"disablePyPIFallback": {str(offline).lower()}' in settings


class Server(http.server.SimpleHTTPRequestHandler):
    """Serve a directory; never answer requests for hangs/ until the test ends."""

    ended = threading.Event()

    def do_GET(self) -> None:
        if "hangs" in self.path:
            self.ended.wait()
        else:
            super().do_GET()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def site(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """Return a directory with a page in the place of JupyterLite's, and its address on a server."""
    Server.ended.clear()
    folder = tmp_path / "site"
    (folder / "lite" / "notebooks").mkdir(parents=True)
    (folder / "lite" / "notebooks" / "index.html").write_text(
        '<meta charset="utf-8"><body>JupyterLite</body>', "utf-8"
    )
    (folder / "pyodide.mjs").write_text("export {};", "utf-8")
    handler = functools.partial(Server, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield folder, f"http://127.0.0.1:{server.server_port}"
        Server.ended.set()
        server.shutdown()
        thread.join()


@pytest.mark.slow
@pytest.mark.parametrize("place", ["", "/missing", "/hangs", "nowhere", "on disk"])
def test_live_notebook_without_python_offers_lesson_and_download(
    browser: Any, monkeypatch: pytest.MonkeyPatch, site: Any, driver: Any, place: str
) -> None:
    folder, address = site
    python = "http://127.0.0.1:9" if place == "nowhere" else address + place.replace("on disk", "")
    monkeypatch.setattr(browser, "PUBLIC", python)
    app = types.SimpleNamespace(builder=types.SimpleNamespace(name="html"), outdir=folder)
    browser.watch_notebooks(app, None)
    browser.watch_notebooks(app, None)  # the page of an earlier build
    page = folder / "lite" / "notebooks" / "index.html"
    text = page.read_text("utf-8")
    assert text.count("<script") == 1 and 'data-seconds="10"' in text
    page.write_text(text.replace('data-seconds="10"', 'data-seconds="0.5"'), "utf-8")
    start = page.as_uri() if place == "on disk" else f"{address}/lite/notebooks/index.html"
    check = importlib.import_module("check")
    for language, root, word in (("en", "../../", "recorded"), ("zh", "../../zh/", "输出")):
        driver.get(f"{start}?path={language}/00_autodiff.ipynb")
        shown = "return document.querySelector('[role=alert]')?.textContent"
        if place == "":
            assert check.wait_for(driver, shown, 2) is None
            continue
        assert word in (check.wait_for(driver, shown, 20) or "")
        links = driver.find_elements("css selector", "[role=alert] a")
        found = [link.get_dom_attribute("href") for link in links]
        assert found == [f"{root}course/{name}" for name in ("00_autodiff.html", "course.zip")]
