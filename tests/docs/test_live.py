"""Live page: its Python part, its content, and its scripts in Chromium."""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import importlib
import io
import json
import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.environment import needs
from support.fake_pyodide import CORE, write_pyodide

import minigrad as mg
from nn import Transformer, TransformerConfig, Translator, record_attention, save_weights
from nn.text.tokenize import SpaceTokenizer
from nn.text.toy_corpora import chinese_english
from nn.text.vocabulary import Vocabulary

ROOT = Path(__file__).parents[2]
NEW = [["今天 下雨 了", "it rains today"], ["我 想 学 数学", "I want to learn mathematics"]]


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """Return the directory of a translator that is not trained."""
    pairs = chinese_english(300)
    vocabs = [Vocabulary.build(text.split() for text in side) for side in zip(*pairs)]
    mg.manual_seed(0)
    config = TransformerConfig(*map(len, vocabs), 16, 2, 1, 1, 32, dropout=0.0, tie="target")
    model = Transformer(config)
    Translator(model, *vocabs, SpaceTokenizer(), SpaceTokenizer()).save(tmp_path / "run")
    save_weights(tmp_path / "run" / "best.safetensors", model)
    return tmp_path / "run"


# -- the Python part -------------------------------------------------------------------------------------


@pytest.fixture
def asked(run_dir: Path) -> Any:
    """Return the object that the page's scripts call, with a small translator."""
    return importlib.import_module("asked").Asked(str(run_dir))


def translate(asked: Any, text: str = "我 有 一只 恐龙", **options: Any) -> dict[str, Any]:
    return json.loads(asked.translate(json.dumps({"text": text, "silent": {}, **options})))


def test_asked_translates_with_silent_heads(asked: Any) -> None:
    about = json.loads(asked.about())
    assert about["heads"]["decoder.layers.0.cross_attention"] == 2 and "猫" in about["words"]
    plain = translate(asked)
    assert plain["unknown"] == ["恐龙"] and json.dumps("恐龙") in plain["page"]
    assert '"language": "zh"' in translate(asked, language="zh")["page"]
    assert translate(asked, silent={"decoder.layers.0.self_attention": []}) == plain
    silenced = translate(asked, silent={name: [0, 1] for name in about["heads"]})
    assert silenced["score"] != plain["score"]


def test_record_has_the_attention_of_each_decoding_step(asked: Any) -> None:
    """Decode again, each step with all tokens before it, and record the weights of the new one."""
    list(asked.teach(json.dumps({"pairs": NEW, "steps": 90})))
    run = json.loads(asked.record(json.dumps({"text": "我 想 学 恐龙"})))
    model, words = asked.translator.model, asked.translator.target_vocab.tokens
    source = asked.translator.source_vocab.encode(run["source"])
    target = [words.index(token) for token in run["target"]]
    assert run["source"] == ["我", "想", "学", "恐龙"] and run["unknown"] == ["恐龙"]
    assert len({*target}) > 3 and run["target"][-1] == "<eos>"
    for i, token in enumerate(target):
        with mg.no_grad(), record_attention(model) as seen:
            logits = model([source], [[1, *target[:i]]]).data[0, -1]
        assert logits.argmax() == token
        found = {name: calls[0][0] for name, calls in seen.items()}
        for kind, name in (("cross", "cross_attention"), ("decoder", "self_attention")):
            expected = found[f"decoder.layers.0.{name}"][:, -1]
            weights = np.array(run[kind])[:, i]
            np.testing.assert_allclose(weights[:, : expected.shape[1]], expected, atol=6e-4)
            assert not weights[:, expected.shape[1] :].any()
        assert run["sure"][i] == pytest.approx(mg.softmax(logits).data[token], abs=6e-4)
    encoder = found["encoder.layers.0.self_attention"]
    np.testing.assert_allclose(run["encoder"], encoder, atol=6e-4)


def test_asked_learns_new_sentences_and_forgets_them(asked: Any) -> None:
    before = translate(asked, "我 有 一只 猫")
    steps = [json.loads(step) for step in asked.teach(json.dumps({"pairs": NEW, "steps": 90}))]
    assert len(steps) == 90 and steps[0]["new"] > 2 > 0.2 > steps[-1]["new"]
    assert [translate(asked, source)["text"] for source, _ in NEW] == [text for _, text in NEW]
    asked.forget()
    assert translate(asked, "我 有 一只 猫") == before


def test_asked_with_new_words_keeps_old_logits(asked: Any) -> None:
    logits = lambda: asked.translator.model([[5, 6, 7]], [[1, 5, 6]]).data
    before = logits()
    asked._make_room([(s.split(), t.split()) for s, t in NEW])
    assert logits().shape[-1] > before.shape[-1]
    np.testing.assert_allclose(logits()[..., : before.shape[-1]], before, atol=1e-6)


def test_teach_without_words_raises(asked: Any) -> None:
    with pytest.raises(ValueError, match="some words on both sides"):
        next(asked.teach(json.dumps({"pairs": [["猫", ""]], "steps": 1})))


# -- the file --------------------------------------------------------------------------------------------

STAND_IN = """
export const loadPyodide = async (options) => options.createPyodideModule() && ({
  loadPackage: async (name) => { if (!(await (await fetch(`x/${name}.whl`)).text()).includes('wheel')) throw new Error('no wheel'); },
  unpackArchive: (bytes) => { if (bytes.byteLength < 1000) throw new Error('no library'); },
  runPython: () => {},
  pyimport: () => ({ Asked: () => ({
    about: () => JSON.stringify({ heads: { 'decoder.layers.0.cross_attention': 2 }, words: ['猫'], examples: ['猫'], parameters: 5, numpy: '2' }),
    translate: (text) => { const call = JSON.parse(text); if (call.text === 'bad') throw new Error('Trace\\nValueError: nothing');
      return JSON.stringify({ text: call.text.toUpperCase() + Object.values(call.silent).flat().length, score: 0, unknown: ['x'], page: '<p>page</p>' }); },
    teach: function* () { for (let i = 1; i < 4; i++) yield JSON.stringify({ new: 1 / i, old: 0.5 }); },
    forget: () => 'null',
    record: (text) => { const source = JSON.parse(text).text.split(' '), weights = [[source.map(() => 0.5), source.map(() => 0.5)]];
      if (source.length > 2) throw new Error('ValueError: too long');
      return JSON.stringify({ source, target: ['X', '<eos>'], unknown: source.slice(1), sure: [1, 1], encoder: weights, cross: weights, decoder: [[[1, 0], [0.5, 0.5]]] }); },
  }) }),
});
"""


@pytest.fixture
def pyodide(tmp_path: Path) -> Path:
    """Write the files of Pyodide, with JavaScript that answers in place of Python."""
    folder = write_pyodide(tmp_path / "pyodide", ["numpy"])
    (folder / "pyodide.mjs").write_text(STAND_IN, encoding="utf-8")
    (folder / "pyodide.asm.mjs").write_text("export default () => true", encoding="utf-8")
    return folder


def live_page(*folders: Path) -> str:
    needs("nbformat")
    return importlib.import_module("live_page").live_page(*folders)


def files_in(page: str) -> dict[str, bytes]:
    """Return the files packed into the page, by name."""
    found = dict(re.findall(r'data-file="(.*?)">(.*?)</script>', page))
    return {name: gzip.decompress(base64.b64decode(text)) for name, text in found.items()}


def test_live_page_has_pyodide_and_numpy_without_tests(run_dir: Path, pyodide: Path) -> None:
    files = files_in(live_page(run_dir, pyodide))
    assert all(files[name] == (pyodide / name).read_bytes() for name in CORE)
    packages = json.loads(files["pyodide-lock.json"])["packages"]
    assert sorted(packages) == ["its-part", "numpy"]
    for package in packages.values():
        wheel = files[package["file_name"]]
        assert hashlib.sha256(wheel).hexdigest() == package["sha256"]
        assert zipfile.ZipFile(io.BytesIO(wheel)).namelist() == ["numpy/core.py"]


def test_live_page_without_pyodide_names_its_public_address(run_dir: Path) -> None:
    page = live_page(run_dir)
    assert list(files_in(page)) == ["library.zip"]
    assert re.search(r'data-address="https://cdn.jsdelivr.net/pyodide/v[\d.]+/full/"', page)


def test_live_page_contains_library_and_run(run_dir: Path, pyodide: Path, tmp_path: Path) -> None:
    page = live_page(run_dir, pyodide)
    library = zipfile.ZipFile(io.BytesIO(files_in(page)["library.zip"]))
    assert library.read("run/best.safetensors") == (run_dir / "best.safetensors").read_bytes()
    names = {"asked.py", "minigrad/__init__.py", "nn/inspection/explorer.html"}
    assert names <= set(library.namelist())
    (tmp_path / "translator.html").write_text(page, encoding="utf-8")
    assert importlib.import_module("check").network_resources(tmp_path) == []


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("pyodide.asm.wasm", None, "must be an unpacked Pyodide, and lacks pyodide.asm.wasm"),
        ("pyodide-lock.json", '{"packages": {}}', "pyodide-lock.json: packages: numpy is missing"),
        ("pyodide-lock.json", '{"packages": {"numpy": {"file_name": 3}}}', "numpy: file_name must be a string, got 3"),
        ("pyodide-lock.json", '{"packages": {"numpy": {"file_name": "../x", "depends": ["numpy"]}}}', "lacks x"),
    ],
)  # fmt: skip
def test_live_page_of_damaged_pyodide_raises(
    run_dir: Path, pyodide: Path, name: str, text: str | None, message: str
) -> None:
    (pyodide / name).unlink()
    if text is not None:
        (pyodide / name).write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=re.escape(message)):
        live_page(run_dir, pyodide)


@pytest.mark.slow
def test_live_page_in_chromium_answers(
    run_dir: Path, pyodide: Path, tmp_path: Path, driver: Any
) -> None:
    page = tmp_path / "translator.html"
    page.write_text(live_page(run_dir, pyodide), encoding="utf-8")
    check = importlib.import_module("check")

    def shows(name: str, text: str) -> bool:
        """Return True once an element contains a text."""
        script = f"return document.getElementById('{name}').textContent.includes('{text}')"
        return bool(check.wait_for(driver, script, 20))

    def click(selector: str) -> None:
        driver.execute_script(f"document.querySelector('{selector}').click()")

    assert check.look_at(driver, page, "live", None) == []
    assert shows("state", "Ready") and shows("said", "我 有 一只 猫0")
    click("#heads button")
    without = (
        "Without the silent heads it says: 我 有 一只 猫1; with all heads it said: 我 有 一只 猫0"
    )
    assert shows("without", without)
    driver.execute_script("document.getElementById('text').value = 'bad'")
    driver.execute_script("document.getElementById('say').requestSubmit()")
    assert shows("sure", "ValueError: nothing")
    click("#teach")
    assert shows("losses", "Step 3 of 60: loss of the new sentences 0.333")
    assert driver.execute_script("return document.getElementById('new').points.length") == 3
    click("#examples button")
    assert shows("said", "猫1")
    click("#other")
    assert shows("state", "就绪")
    assert driver.execute_script("return document.documentElement.lang") == "zh-CN"
    click("#heads button")
    assert shows(
        "without", "这些头静默之后的译文：我 有 一只 猫1；所有的头都工作时：我 有 一只 猫0"
    )


# -- the panel of the first page -------------------------------------------------------------------------

NOWHERE = "http://127.0.0.1:9/"  # no browser connects to this port


def write_panel(run_dir: Path, folder: Path, language: str = "en", live: str = "") -> Path:
    """Write a page with the panel, and the live page beside it."""
    jinja2 = needs("jinja2")
    template = jinja2.Template((ROOT / "docs/_templates/panel.html").read_text("utf-8"))
    recorded = importlib.import_module("live_page").recorded_runs(run_dir)
    panel = template.render(language=language, content_root="", **recorded)
    page = folder / "index.html"
    page.write_text(f'<!DOCTYPE html><meta charset="utf-8"><body>{panel}</body>', "utf-8")
    beside = folder if language == "en" else folder.parent
    (beside / "translator.html").write_text(live, "utf-8")
    return page


def test_panel_knows_all_words_and_its_sentences() -> None:
    needs("nbformat")
    module = importlib.import_module("live_page")
    sources = [source for source, _ in chinese_english()]
    vocab = Vocabulary.build(source.split() for source in sources).tokens[4:]
    entries = [entry for kind in module.known_words(vocab).values() for entry in kind]
    assert sorted(word for word, _ in entries) == sorted(vocab)
    assert all(english for _, english in entries)
    assert {word for text in module.RECORDED for word in text.split()} <= set(vocab)


def panel_text(driver: Any, name: str) -> str:
    return driver.execute_script(f"return document.querySelector('.run-{name}').textContent")


STEP = "Number(document.querySelector('.run').dataset.step)"


@pytest.mark.slow
@pytest.mark.parametrize("language", ["en", "zh_CN"])
def test_panel_without_network_plays_recorded_runs(
    run_dir: Path, tmp_path: Path, driver: Any, language: str
) -> None:
    check = importlib.import_module("check")
    folder = tmp_path / "zh"
    folder.mkdir()
    live = re.sub(r"https://cdn.jsdelivr.net/[^\"]+", NOWHERE, live_page(run_dir))
    page = write_panel(run_dir, folder, language, live)
    driver.get(page.as_uri())
    assert panel_text(driver, "source") == "我有一只猫"
    assert driver.execute_script("return document.querySelectorAll('.run path').length") > 3
    first = driver.execute_script(f"return {STEP}")
    assert check.wait_for(driver, f"return {STEP} > {first}", 20)
    assert driver.execute_script("return performance.getEntriesByType('resource').length") == 0
    field = driver.find_element("css selector", ".run input")
    field.clear()
    field.send_keys("他没有五匹马\n")
    failed = {
        "en": "It could not start: Python cannot be loaded. Is there a network? The recorded runs still play.",
        "zh_CN": "无法启动：无法载入 Python。是否没有网络？录下的过程仍可播放。",
    }[language]
    words = f"document.querySelector('.run-live').textContent == '{failed}'"
    assert check.wait_for(driver, f"return {words}", 20)
    assert panel_text(driver, "source") != "他没有五匹马"
    step = driver.execute_script(f"return {STEP}")
    assert check.wait_for(driver, f"return {STEP} != {step}", 20)
    if language != "en":
        shown = driver.find_element("css selector", ".run").text
        assert not re.search("[A-Z][a-z]+ [a-z]+ [a-z]+", shown)


@pytest.mark.slow
def test_panel_with_reduced_motion_moves_by_keyboard_alone(
    run_dir: Path, tmp_path: Path, driver: Any
) -> None:
    reduced = [{"name": "prefers-reduced-motion", "value": "reduce"}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": reduced})
    driver.get(write_panel(run_dir, tmp_path).as_uri())
    assert panel_text(driver, "play") == "▶ Play" and "Writing word" in panel_text(
        driver, "caption"
    )
    step = driver.execute_script(f"return {STEP}")
    button = driver.find_element("css selector", ".run-back")
    button.send_keys("\n")
    button.send_keys(" ")
    assert driver.execute_script(f"return {STEP}") == step - 2
    assert driver.execute_script("return document.getAnimations().length") == 0
    driver.find_element("css selector", ".run-source li:nth-child(2) button").click()
    assert panel_text(driver, "caption").startswith("Reading word 2 of 4: 有.")


@pytest.mark.slow
def test_panel_with_python_plays_a_typed_sentence(
    run_dir: Path, pyodide: Path, tmp_path: Path, driver: Any
) -> None:
    check = importlib.import_module("check")
    driver.get(write_panel(run_dir, tmp_path, live=live_page(run_dir, pyodide)).as_uri())

    def translate(text: str, name: str, expected: str) -> bool:
        field = driver.find_element("css selector", ".run input")
        field.clear()
        field.send_keys(f"{text}\n")
        script = f"return document.querySelector('.run-{name}').textContent == '{expected}'"
        return bool(check.wait_for(driver, script, 20))

    assert translate("他马", "source", "他马")
    assert panel_text(driver, "target") == "startXend"
    assert panel_text(driver, "live") == "It does not know: 马."
    assert translate("猫 猫 猫", "live", "ValueError: too long")
    assert translate("我有一只猫", "source", "我有一只猫")
    kinds = (
        "return [...document.querySelectorAll('.run-words strong')].map((kind) => kind.textContent)"
    )
    assert driver.execute_script(kinds)[:3] == ["who", "verbs", "nouns"]


def test_words_of_the_live_page_are_in_chinese() -> None:
    page, script, worker, chinese = (
        (ROOT / "docs" / "live" / name).read_text("utf-8")
        for name in ("page.html", "page.js", "worker.js", "zh_CN.json")
    )
    words = {*re.findall(r">([^<]+)<", re.sub(r"@[\w.]+@", "", page))}
    words |= {*re.findall(r'(?:aria-label|title)="([^@]+?)"', page)}
    words |= {*re.findall(r"\bt\('(.+?)'", script), *re.findall(r"'(\S+ [^'{]*…)'", worker)}
    words = {" ".join(html.unescape(text).split()) for text in words} - {""}
    translations = json.loads(chinese)
    assert len(words) > 40 and words <= {*translations}
    del translations["中文"]  # the link to the other language
    for texts in translations.items():
        english, translated = (sorted(re.findall(r"{\w+}|\d+", text)) for text in texts)
        assert english == translated, texts
