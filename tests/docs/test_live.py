"""The live page: what it asks of the library, what is in it, and its scripts in Chromium with a stand-in for Python."""

from __future__ import annotations

import base64
import gzip
import importlib
import io
import json
import re
import shutil
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minigrad as mg
from nn import Transformer, TransformerConfig, Translator, save_weights
from nn.text import SpaceTokenizer, Vocabulary

ROOT = Path(__file__).parents[2]
NEW = [["今天 下雨 了", "it rains today"], ["我 想 学 数学", "I want to learn mathematics"]]


@pytest.fixture(autouse=True)
def paths(monkeypatch: pytest.MonkeyPatch) -> None:
    for part in ("docs", "docs/builder/live", "examples", "examples/course"):
        monkeypatch.syspath_prepend(str(ROOT / part))


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """A translator with its first weights."""
    pairs = importlib.import_module("corpora").chinese_english(300)
    vocabs = [Vocabulary.build(pair[side].split() for pair in pairs) for side in (0, 1)]
    mg.manual_seed(0)
    config = TransformerConfig(*map(len, vocabs), 16, 2, 1, 1, 32, dropout=0.0, tie="target")
    model = Transformer(config)
    Translator(model, *vocabs, SpaceTokenizer(), SpaceTokenizer()).save(tmp_path / "run")
    save_weights(tmp_path / "run" / "best.safetensors", model)
    return tmp_path / "run"


def test_what_the_page_asks(run_dir: Path) -> None:
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


def test_new_words_change_nothing_that_was_known(run_dir: Path) -> None:
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


def test_sentences_that_cannot_be_taught(run_dir: Path) -> None:
    asked = importlib.import_module("asked").Asked(str(run_dir))
    for pairs in ([], [["猫", ""]]):
        with pytest.raises(ValueError, match="some words on both sides"):
            next(asked.teach(json.dumps({"pairs": pairs, "steps": 1})))


# -- the file --------------------------------------------------------------------------------------------

STAND_IN = """
var loadPyodide = async (options) => ({
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
    """A folder with the files of Pyodide, and JavaScript that answers in place of Python."""
    folder = tmp_path / "pyodide"
    folder.mkdir()
    for name in importlib.import_module("builder.browser").CORE:
        (folder / name).write_text("// nothing", encoding="utf-8")
    lock = {"packages": {"numpy": {"file_name": "numpy-2.whl", "depends": []}}}
    (folder / "pyodide-lock.json").write_text(json.dumps(lock), encoding="utf-8")
    (folder / "pyodide.js").write_text(STAND_IN, encoding="utf-8")
    (folder / "numpy-2.whl").write_text("a wheel", encoding="utf-8")
    return folder


def test_all_is_in_the_file(run_dir: Path, pyodide: Path, tmp_path: Path) -> None:
    page = importlib.import_module("builder.browser").live_page(pyodide, run_dir)
    found = dict(re.findall(r'data-file="(.*?)">(.*?)</script>', page))
    files = {name: gzip.decompress(base64.b64decode(text)) for name, text in found.items()}
    assert all(files[path.name] == path.read_bytes() for path in pyodide.iterdir())
    library = zipfile.ZipFile(io.BytesIO(files["library.zip"]))
    assert library.read("run/best.safetensors") == (run_dir / "best.safetensors").read_bytes()
    names = set(library.namelist())
    assert {
        "asked.py",
        "corpora.py",
        "minigrad/__init__.py",
        "nn/inspection/explorer.html",
    } <= names
    site = tmp_path / "site"
    site.mkdir()
    (site / "translator.html").write_text(page, encoding="utf-8")
    assert importlib.import_module("builder.check").problems(site) == []


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("pyodide.asm.wasm", None, "missing: ['pyodide.asm.wasm']"),
        ("numpy-2.whl", None, "numpy-2.whl"),
        ("pyodide-lock.json", '{"packages": {}}', "pyodide-lock.json: packages: numpy is missing"),
        ("pyodide-lock.json", "{", "pyodide-lock.json: not JSON"),
        (
            "pyodide-lock.json",
            '{"packages": {"numpy": {"file_name": 3}}}',
            "numpy: file_name: expected a text, got 3",
        ),
        (
            "pyodide-lock.json",
            '{"packages": {"numpy": {"file_name": "../x", "depends": ["numpy"]}}}',
            "../x",
        ),
    ],
)
def test_a_folder_that_is_not_pyodide(
    run_dir: Path, pyodide: Path, name: str, text: str | None, said: str
) -> None:
    if text is None:
        (pyodide / name).unlink()
    else:
        (pyodide / name).write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=re.escape(said)):
        importlib.import_module("builder.browser").live_page(pyodide, run_dir)


def test_the_page_in_chromium(run_dir: Path, pyodide: Path, tmp_path: Path) -> None:
    pytest.importorskip("selenium")
    if not (shutil.which("chromium") and shutil.which("chromedriver")):
        pytest.skip(
            "chromium and chromedriver are not installed (Debian: chromium, chromium-driver)"
        )
    look = importlib.import_module("look")
    page = tmp_path / "translator.html"
    page.write_text(
        importlib.import_module("builder.browser").live_page(pyodide, run_dir), encoding="utf-8"
    )
    driver = look.browser()

    def text(name: str, expected: str) -> str:
        """The words of a part of the page, once they have the expected ones among them."""
        end = time.monotonic() + 20
        while True:
            found = driver.execute_script(f"return document.getElementById('{name}').textContent")
            if expected in found or time.monotonic() > end:
                return str(found)
            time.sleep(0.02)

    def click(selector: str) -> Any:
        return driver.execute_script(f"document.querySelector('{selector}').click()")

    try:
        assert look.look_at(driver, page, "live", None) == []
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
    finally:
        driver.quit()
