"""Live page: its Python part, its content, and its scripts in Chromium."""

from __future__ import annotations

import base64
import gzip
import hashlib
import importlib
import io
import json
import re
import shutil
import time
import zipfile
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minigrad as mg
from nn import Transformer, TransformerConfig, Translator, save_weights
from nn.text import SpaceTokenizer, Vocabulary
from nn.text.toy_corpora import chinese_english

ROOT = Path(__file__).parents[2]
NEW = [["今天 下雨 了", "it rains today"], ["我 想 学 数学", "I want to learn mathematics"]]


@pytest.fixture(autouse=True)
def paths(monkeypatch: pytest.MonkeyPatch) -> None:
    for part in ("docs", "docs/live", "examples/course"):
        monkeypatch.syspath_prepend(str(ROOT / part))


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """Return the directory of a translator that is not trained."""
    pairs = chinese_english(300)
    vocabs = [Vocabulary.build(pair[side].split() for pair in pairs) for side in (0, 1)]
    mg.manual_seed(0)
    config = TransformerConfig(*map(len, vocabs), 16, 2, 1, 1, 32, dropout=0.0, tie="target")
    model = Transformer(config)
    Translator(model, *vocabs, SpaceTokenizer(), SpaceTokenizer()).save(tmp_path / "run")
    save_weights(tmp_path / "run" / "best.safetensors", model)
    return tmp_path / "run"


def test_asked_translates_teaches_and_forgets(run_dir: Path) -> None:
    asked = importlib.import_module("asked").Asked(str(run_dir))
    about = json.loads(asked.about())
    assert about["heads"]["decoder.layers.0.cross_attention"] == 2 and "猫" in about["words"]
    say = lambda text, silent: json.loads(
        asked.translate(json.dumps({"text": text, "silent": silent}))
    )
    plain = say("我 有 一只 恐龙", {})
    assert (
        plain["unknown"] == ["恐龙"]
        and "@data@" not in plain["page"]
        and json.dumps("恐龙") in plain["page"]
    )
    chinese = {"text": "我 有 一只 恐龙", "silent": {}, "language": "zh"}
    page = json.loads(asked.translate(json.dumps(chinese)))["page"]
    assert '"language": "zh"' in page and '"language": "en"' in plain["page"]
    assert say("我 有 一只 恐龙", {"decoder.layers.0.self_attention": []}) == plain
    silenced = say("我 有 一只 恐龙", {name: [0, 1] for name in about["heads"]})
    assert silenced["score"] != plain["score"]
    before = {name: value.copy() for name, value in asked.translator.model.state_dict().items()}
    steps = [json.loads(step) for step in asked.teach(json.dumps({"pairs": NEW, "steps": 90}))]
    assert len(steps) == 90 and steps[0]["new"] > 2 > 0.2 > steps[-1]["new"]
    assert [say(source, {})["text"] for source, _ in NEW] == [target for _, target in NEW]
    asked.forget()
    after = asked.translator.model.state_dict()
    assert (
        all(np.array_equal(value, after[name]) for name, value in before.items())
        and say("我", {})["text"]
    )


def test_asked_with_new_words_keeps_old_logits(run_dir: Path) -> None:
    asked = importlib.import_module("asked").Asked(str(run_dir))
    old = asked.translator
    source, target = (
        np.array([old.source_vocab.encode(["我", "有", "一只", "猫"])]),
        np.array([[1, 5, 6]]),
    )
    with mg.no_grad():
        before = old.model(source, target).data
        asked._make_room([(s.split(), t.split()) for s, t in NEW])
        after = asked.translator.model(source, target).data
    assert after.shape[-1] > before.shape[-1]
    np.testing.assert_allclose(after[..., : before.shape[-1]], before, atol=1e-6)


def test_teach_without_words_raises(run_dir: Path) -> None:
    asked = importlib.import_module("asked").Asked(str(run_dir))
    for pairs in ([], [["猫", ""]]):
        with pytest.raises(ValueError, match="some words on both sides"):
            next(asked.teach(json.dumps({"pairs": pairs, "steps": 1})))


# -- the file --------------------------------------------------------------------------------------------

STAND_IN = """
export const loadPyodide = async (options) => options.createPyodideModule() && ({
  loadPackage: async (name) => { if (!(await (await fetch(`x/${name}-2.whl`)).text()).includes('wheel')) throw new Error('no wheel'); },
  unpackArchive: (bytes) => { if (bytes.byteLength < 1000) throw new Error('no library'); },
  runPython: () => {},
  pyimport: () => ({ Asked: () => ({
    about: () => JSON.stringify({ heads: { 'decoder.layers.0.cross_attention': 2 }, words: ['猫'], examples: ['猫'], parameters: 5, numpy: '2' }),
    translate: (text) => { const call = JSON.parse(text); if (call.text === 'bad') throw new Error('Trace\\nValueError: nothing');
      return JSON.stringify({ text: call.text.toUpperCase() + Object.values(call.silent).flat().length, score: 0, unknown: ['x'], page: '<p>page</p>' }); },
    teach: function* () { for (let i = 1; i < 4; i++) yield JSON.stringify({ new: 1 / i, old: 0.5 }); },
    forget: () => 'null',
  }) }),
});
"""


@pytest.fixture
def pyodide(tmp_path: Path) -> Path:
    """Write the files of Pyodide, with JavaScript that answers in place of Python."""
    folder = tmp_path / "pyodide"
    folder.mkdir()
    for name in importlib.import_module("browser").CORE:
        (folder / name).write_text("// nothing", encoding="utf-8")
    entries = {"numpy": {"file_name": "numpy-2.whl", "depends": ["its_part"]}}
    entries |= {name: {"file_name": f"{name}.whl", "depends": []} for name in ("its-part", "other")}
    lock = json.dumps({"packages": entries})
    (folder / "pyodide-lock.json").write_text(lock, encoding="utf-8")
    (folder / "pyodide.mjs").write_text(STAND_IN, encoding="utf-8")
    (folder / "pyodide.asm.mjs").write_text("export default () => true", encoding="utf-8")
    for name in ("numpy-2.whl", "its-part.whl"):
        with zipfile.ZipFile(folder / name, "w") as wheel:
            for file in ("numpy/core.py", "numpy/tests/test_core.py", "numpy/core.pyi"):
                wheel.writestr(file, "a wheel")
    return folder


def files_in(page: str) -> dict[str, bytes]:
    found = dict(re.findall(r'data-file="(.*?)">(.*?)</script>', page))
    return {name: gzip.decompress(base64.b64decode(text)) for name, text in found.items()}


def test_live_page_has_pyodide_and_numpy_without_tests(run_dir: Path, pyodide: Path) -> None:
    files = files_in(importlib.import_module("live_page").live_page(run_dir, pyodide))
    for name in ("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip"):
        assert files[name] == (pyodide / name).read_bytes()
    packages = json.loads(files["pyodide-lock.json"])["packages"]
    assert sorted(packages) == ["its-part", "numpy"]
    for package in packages.values():
        wheel = files[package["file_name"]]
        assert hashlib.sha256(wheel).hexdigest() == package["sha256"]
        assert zipfile.ZipFile(io.BytesIO(wheel)).namelist() == ["numpy/core.py"]


def test_live_page_without_pyodide_names_its_public_address(run_dir: Path) -> None:
    page = importlib.import_module("live_page").live_page(run_dir)
    assert list(files_in(page)) == ["library.zip"]
    assert re.search(r'data-address="https://cdn.jsdelivr.net/pyodide/v[\d.]+/full/"', page)


def test_live_page_contains_library_and_run(run_dir: Path, pyodide: Path, tmp_path: Path) -> None:
    page = importlib.import_module("live_page").live_page(run_dir, pyodide)
    files = files_in(page)
    library = zipfile.ZipFile(io.BytesIO(files["library.zip"]))
    assert library.read("run/best.safetensors") == (run_dir / "best.safetensors").read_bytes()
    names = set(library.namelist())
    assert {
        "asked.py",
        "minigrad/__init__.py",
        "nn/inspection/explorer.html",
    } <= names
    site = tmp_path / "site"
    site.mkdir()
    (site / "translator.html").write_text(page, encoding="utf-8")
    assert importlib.import_module("check").network_resources(site) == []


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("pyodide.asm.wasm", None, "must be an unpacked Pyodide, and lacks pyodide.asm.wasm"),
        ("numpy-2.whl", None, "lacks numpy-2.whl"),
        ("pyodide-lock.json", '{"packages": {}}', "pyodide-lock.json: packages: numpy is missing"),
        ("pyodide-lock.json", "{", "pyodide-lock.json: not JSON"),
        (
            "pyodide-lock.json",
            '{"packages": {"numpy": {"file_name": 3}}}',
            "numpy: file_name must be a string, got 3",
        ),
        (
            "pyodide-lock.json",
            '{"packages": {"numpy": {"file_name": "../x", "depends": ["numpy"]}}}',
            "lacks x",
        ),
    ],
)
def test_live_page_of_damaged_pyodide_raises(
    run_dir: Path, pyodide: Path, name: str, text: str | None, said: str
) -> None:
    if text is None:
        (pyodide / name).unlink()
    else:
        (pyodide / name).write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=re.escape(said)):
        importlib.import_module("live_page").live_page(run_dir, pyodide)


@pytest.mark.slow
def test_live_page_in_chromium_answers(run_dir: Path, pyodide: Path, tmp_path: Path) -> None:
    pytest.importorskip("selenium")
    if not (shutil.which("chromium") and shutil.which("chromedriver")):
        pytest.skip(
            "chromium and chromedriver are not installed (Debian: chromium, chromium-driver)"
        )
    check = importlib.import_module("check")
    page = tmp_path / "translator.html"
    page.write_text(
        importlib.import_module("live_page").live_page(run_dir, pyodide), encoding="utf-8"
    )
    driver = check.browser()

    def text(name: str, expected: str) -> str:
        """Return the text of an element, once it contains the expected one."""
        end = time.monotonic() + 20
        while True:
            found = driver.execute_script(f"return document.getElementById('{name}').textContent")
            if expected in found or time.monotonic() > end:
                return str(found)
            time.sleep(0.02)

    def click(selector: str) -> Any:
        return driver.execute_script(f"document.querySelector('{selector}').click()")

    try:
        assert check.look_at(driver, page, "live", None) == []
        assert "Ready" in text("state", "Ready") and text("said", "我") == "我 有 一只 猫0"
        click("#heads button")
        assert (
            text("without", "says")
            == "Without the silent heads it says: 我 有 一只 猫1; with all heads it said: 我 有 一只 猫0"
        )
        driver.execute_script(
            "const field = document.getElementById('text'); field.value = 'bad'; document.getElementById('say').requestSubmit()"
        )
        assert text("sure", "nothing") == "ValueError: nothing"
        click("#teach")
        assert "Step 3 of 60: loss of the new sentences 0.333" in text("losses", "Step 3")
        assert driver.execute_script("return document.getElementById('new').points.length") == 3
        click("#examples button")
        assert text("said", "猫1") == "猫1"
        click("#other")
        assert text("state", "就绪").startswith("0.") and text("losses", "") == ""
        assert driver.execute_script("return document.documentElement.lang") == "zh-CN"
        click("#heads button")
        assert (
            text("without", "静默")
            == "这些头静默之后的译文：我 有 一只 猫1；所有的头都工作时：我 有 一只 猫0"
        )
    finally:
        driver.quit()


class Words(HTMLParser):
    """Texts and labels of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.inside: list[str] = []
        self.words: set[str] = set()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.inside.append(tag)
        self.words |= {value for name, value in attrs if name in ("aria-label", "title")}

    def handle_endtag(self, tag: str) -> None:
        self.inside.append("")

    def handle_data(self, data: str) -> None:
        if data.strip() and self.inside[-1] not in ("script", "style"):
            self.words.add(" ".join(data.split()))


def test_words_of_the_live_page_are_in_chinese() -> None:
    parts = {
        name: (ROOT / "docs" / "live" / name).read_text("utf-8")
        for name in ("page.html", "page.js", "worker.js", "zh_CN.json")
    }
    parser = Words()
    parser.feed(re.sub(r"@[\w.]+@", "", parts["page.html"]))
    words = parser.words | {
        *re.findall(r"\bt\('(.+?)'", parts["page.js"]),
        *re.findall(r"'(\S+ [^'{]*…)'", parts["worker.js"]),
    }
    chinese = json.loads(parts["zh_CN.json"])
    assert len(words) > 40 and words - set(chinese) == set()
    for english, text in chinese.items():
        assert (
            sorted(re.findall(r"{\w+}|\d+", english)) == sorted(re.findall(r"{\w+}|\d+", text))
            or english == "中文"
        )
