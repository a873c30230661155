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


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a translator that is not trained."""
    directory = tmp_path_factory.mktemp("run")
    pairs = chinese_english(300)
    vocabs = [Vocabulary.build(text.split() for text in side) for side in zip(*pairs)]
    mg.manual_seed(0)
    config = TransformerConfig(*map(len, vocabs), 16, 2, 1, 1, 32, dropout=0.0, tie="target")
    model = Transformer(config)
    Translator(model, *vocabs, SpaceTokenizer(), SpaceTokenizer()).save(directory)
    save_weights(directory / "best.safetensors", model)
    return directory


# -- the Python part -------------------------------------------------------------------------------------


@pytest.fixture
def asked(run_dir: Path) -> Any:
    """Return the object that the page's scripts call, with a small translator."""
    return importlib.import_module("asked").Asked(str(run_dir))


def translate(asked: Any, text: str = "我 有 一只 恐龙", **options: Any) -> dict[str, Any]:
    return json.loads(asked.translate(json.dumps({"text": text, "silent": {}, **options})))


@pytest.mark.slow
def test_asked_translates_with_silent_heads(asked: Any) -> None:
    about = json.loads(asked.about())
    assert about["heads"]["decoder.layers.0.cross_attention"] == 2 and "猫" in about["words"]
    plain = translate(asked)
    assert plain["unknown"] == ["恐龙"] and json.dumps("恐龙") in plain["page"]
    assert '"language": "zh"' in translate(asked, language="zh")["page"]
    assert translate(asked, silent={"decoder.layers.0.self_attention": []}) == plain
    silenced = translate(asked, silent={name: [0, 1] for name in about["heads"]})
    assert silenced["score"] != plain["score"]


@pytest.mark.slow
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


@pytest.mark.slow
def test_asked_learns_new_sentences_and_forgets_them(asked: Any) -> None:
    before = translate(asked, "我 有 一只 猫")
    steps = [json.loads(step) for step in asked.teach(json.dumps({"pairs": NEW, "steps": 90}))]
    assert len(steps) == 90 and steps[0]["new"] > 2 > 0.2 > steps[-1]["new"]
    assert [translate(asked, source)["text"] for source, _ in NEW] == [text for _, text in NEW]
    asked.forget()
    assert translate(asked, "我 有 一只 猫") == before


@pytest.mark.slow
def test_asked_with_new_words_keeps_old_logits(asked: Any) -> None:
    logits = lambda: asked.translator.model([[5, 6, 7]], [[1, 5, 6]]).data
    before = logits()
    asked._make_room([(s.split(), t.split()) for s, t in NEW])
    assert logits().shape[-1] > before.shape[-1]
    np.testing.assert_allclose(logits()[..., : before.shape[-1]], before, atol=1e-6)


@pytest.mark.slow
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


# -- the recorded training of the first page -------------------------------------------------------------

NOWHERE = "http://127.0.0.1:9/"  # no browser connects to this port


@pytest.fixture(scope="module")
def recorded() -> Any:
    """Return the recording of three steps of a small model, which learns nothing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "examples" / "course"))
        watch, by_hand = (importlib.import_module(name) for name in ("watch", "by_hand"))
    pairs = [(source.split(), target.split()) for source, target in chinese_english(1000)]
    vocabs = [Vocabulary.build(side) for side in zip(*pairs)]
    p = by_hand.new_parameters((len(vocabs[0]), len(vocabs[1])), 8, 8, 1, np.random.default_rng(0))
    recording = watch.Recording(p, *vocabs, pairs[40:], pairs[:40], 2, 1, 3)
    assert recording.keep(iter([4.0, 3.0, 2.0])) == [4.0, 3.0, 2.0]
    return watch, by_hand, p, vocabs, recording.data()


def write_watch(recorded: Any, folder: Path, live: str | None = None) -> str:
    """Write the page of a recording, and the live page beside it; return its address."""
    page = recorded[0].watch_page(recorded[-1], live="" if live is None else "translator.html")
    (folder / "watch.html").write_text(page, "utf-8")
    (folder / "translator.html").write_text(live or "", "utf-8")
    return (folder / "watch.html").as_uri()


@pytest.mark.slow
def test_known_words_have_all_words_of_the_corpus(recorded: Any) -> None:
    vocab = Vocabulary.build(source.split() for source, _ in chinese_english()).tokens[4:]
    entries = [entry for kind in recorded[0].known_words(vocab).values() for entry in kind]
    assert sorted(word for word, _ in entries) == sorted(vocab)
    assert all(english for _, english in entries)


@pytest.mark.slow
def test_recorded_queries_and_keys_give_the_attention_of_the_model(recorded: Any) -> None:
    _, by_hand, p, vocabs, data = recorded
    run, d = data["snapshots"][-1]["runs"][0], data["size"]
    unpack = lambda text, n: np.frombuffer(base64.b64decode(text), "<i2").reshape(2, -1, n) / 100
    queries, keys = unpack(run["queries"], d), unpack(run["keys"], d)
    weights = mg.softmax(queries @ keys.swapaxes(1, 2) / np.sqrt(d)).data
    names = {name: t.data for name, t in p.items()}
    sizes = [len(vocab) for vocab in vocabs]
    model = Transformer(TransformerConfig(*sizes, 8, 2, 1, 1, 8, dropout=0.0))
    model.load_state_dict(names)
    model.eval()
    source = [vocabs[0].encode(data["sentences"][0])]
    with mg.no_grad(), record_attention(model) as maps:
        model(source, [[1, *run["said"][:-1]]])
    cross = next(w[0][0] for name, w in maps.items() if "cross" in name)
    assert abs(weights - cross).max() < 0.02
    scores = unpack(run["scores"], len(run["said"]))
    own = next(w[0][0] for name, w in maps.items() if name.startswith("decoder") and "self" in name)
    assert abs(mg.softmax(np.where(np.tri(len(own[0])), scores, -1e9)).data - own).max() < 0.02
    assert run["lens"][-1] == [row[0] for row in run["top"]]
    words, probability = run["begun"][0]
    assert words == run["said"]
    target = np.array([[1, *words]])
    loss = by_hand.loss(p, np.array(source), target, 2, 1).item()
    assert probability == pytest.approx(np.exp(-loss * len(words)), rel=0.01)
    weight = data["snapshots"][0]["weight"]
    slope = np.diff(weight["curve"])[3:5] / np.diff(data["weight"]["values"])[3:5]
    assert min(slope) - 1e-3 <= weight["gradient"] <= max(slope) + 1e-3  # the weight is 0


@pytest.mark.slow
@pytest.mark.parametrize("lesson", range(12))
def test_watch_page_has_the_depth_of_each_lesson_in_both_languages(
    recorded: Any, tmp_path: Path, driver: Any, lesson: int
) -> None:
    check = importlib.import_module("check")
    address = write_watch(recorded, tmp_path)
    titles = []
    for language in ("en", "zh"):
        driver.get("about:blank")
        check.set_width(driver, 390)
        driver.get(f"{address}#lesson={lesson}&lang={language}")
        titles.append(driver.find_element("id", "title").text)
        assert driver.execute_script(check.OVERFLOW) == []
        assert driver.execute_script(check.CONTRAST) == []
        for control in driver.find_elements("css selector", "#controls input, #controls button"):
            before = driver.find_element("id", "why").text
            is_slider = control.tag_name == "input"
            is_full = is_slider and control.get_property("value") == control.get_property("max")
            right, left = "\ue014", "\ue012"  # arrows
            control.send_keys((left if is_full else right) if is_slider else " ")
            assert driver.find_element("id", "why").text != before
    if lesson not in (7,):
        assert not re.search(
            "[A-Z][a-z]+ [a-z]+ [a-z]+", driver.find_element("tag name", "body").text
        )
    assert titles[0] != titles[1]
    assert [e for e in driver.get_log("browser") if e["level"] == "SEVERE"] == []


@pytest.mark.slow
@pytest.mark.parametrize("language", ["en", "zh"])
def test_words_after_each_part_are_not_cut_off_on_a_telephone(
    recorded: Any, tmp_path: Path, driver: Any, language: str
) -> None:
    check = importlib.import_module("check")
    driver.get("about:blank")
    driver.get(f"{write_watch(recorded, tmp_path)}#lesson=9&lang={language}")
    check.set_width(driver, 356)  # of 390, the page around it takes the rest
    for button in driver.find_elements("css selector", "#sentences button"):
        button.click()
        inside, outside, columns = driver.execute_script(
            """const table = document.querySelector('#why table'), box = table.parentElement;
            return [box.scrollWidth, box.clientWidth, table.rows[0].cells.length]"""
        )
        assert inside <= outside
        assert columns == 1 + 4  # parts of a layer, however long the sentence


@pytest.mark.slow
def test_watch_page_plays_or_moves_by_keyboard(recorded: Any, tmp_path: Path, driver: Any) -> None:
    check = importlib.import_module("check")
    address, step = (
        write_watch(recorded, tmp_path),
        "return Number(document.querySelector('#step').value)",
    )
    driver.get(address)
    assert check.wait_for(driver, f"{step} == 3", 20)
    assert driver.execute_script("return performance.getEntriesByType('resource').length") == 0
    reduced = [{"name": "prefers-reduced-motion", "value": "reduce"}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": reduced})
    driver.get(f"{address}?calm")
    assert driver.execute_script(step) == 3
    driver.find_element("id", "step").send_keys("\ue012")  # arrow to the left
    assert driver.execute_script(step) == 2
    driver.find_element("id", "answer").send_keys("\n") if driver.find_elements(
        "id", "answer"
    ) else None
    driver.find_element("css selector", "#source button:nth-child(2)").send_keys("\n")
    assert "有" in driver.find_element("css selector", "#why strong").text


@pytest.mark.slow
@pytest.mark.parametrize("has_python", [True, False])
def test_watch_page_translates_a_typed_sentence_without_spaces(
    recorded: Any, run_dir: Path, pyodide: Path, tmp_path: Path, driver: Any, has_python: bool
) -> None:
    check = importlib.import_module("check")
    live = live_page(run_dir, pyodide) if has_python else live_page(run_dir)
    live = re.sub(r"https://cdn.jsdelivr.net/[^\"]+", NOWHERE, live)
    driver.get(write_watch(recorded, tmp_path, live))

    def translate(text: str, name: str, expected: str) -> bool:
        field = driver.find_element("css selector", "#try input")
        field.clear()
        field.send_keys(f"{text}\n")
        script = f"return document.querySelector('#{name}').textContent.includes('{expected}')"
        return bool(check.wait_for(driver, script, 20))

    if not has_python:
        assert translate("他没有五匹马", "state", "Is there a network? The recording still plays.")
        return
    assert translate("他马", "state", "It does not know: 马.")
    assert driver.find_element("id", "target").text.startswith("X")
    assert translate("猫 猫 猫", "state", "ValueError: too long")


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
