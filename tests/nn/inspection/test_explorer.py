"""The attention explorer: what is in the page, and what a browser makes of it."""

from __future__ import annotations

import base64
import io
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from scripts import load

import nn
from minigrad.io import save_arrays
from nn import Transformer, TransformerConfig, Translator, attention_page, explore
from nn.text import SPECIALS, SpaceTokenizer, Vocabulary

SOURCE = ["我", "有", "一只", "猫"]
TARGET = ["I", "have", "a", "cat", "<eos>"]
HOSTILE = [
    "<script>window.ran = 1</script>",
    "</script><img src=x onerror='window.ran = 1'>",
    "<!--<script>",
    "&lt;",
]


def random_weights(seed: int, layers: int, heads: int, queries: int, keys: int) -> list[np.ndarray]:
    scores = np.random.default_rng(seed).normal(0, 3, (layers, heads, queries, keys))
    exps = np.exp(scores)
    return list(exps / exps.sum(-1, keepdims=True))


MAPS = {
    "encoder": random_weights(0, 2, 4, 4, 4),
    "decoder": random_weights(1, 2, 4, 5, 5),
    "cross": random_weights(2, 2, 4, 5, 4),
}


# -- what is in the page -------------------------------------------------------------------------------


def data_of(page: str) -> dict[str, Any]:
    [found] = re.findall(
        r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL
    )
    return json.loads(found)  # type: ignore[no-any-return]


def test_weights_survive_to_within_their_byte() -> None:
    for entry in data_of(attention_page(MAPS, SOURCE, TARGET))["maps"]:
        expected = np.array(MAPS[entry["name"]])
        raw = [np.frombuffer(base64.b64decode(layer), np.uint8) for layer in entry["layers"]]
        found = (np.array(raw).reshape(expected.shape) / 255.0) ** 2
        assert (np.abs(found - expected) <= np.sqrt(expected) / 255 + 1 / 510**2).all()


def test_rows_and_columns_have_their_tokens() -> None:
    page = attention_page(
        {**MAPS, "empty": [], "other": MAPS["encoder"]}, SOURCE, TARGET, title="a title"
    )
    data = data_of(page)
    assert data["title"] == "a title"
    sides = {
        entry["name"]: (entry["queries"]["tokens"], entry["keys"]["tokens"])
        for entry in data["maps"]
    }
    assert sides == {
        "encoder": (SOURCE, SOURCE),
        "decoder": (TARGET, ["<bos>", "I", "have", "a", "cat"]),
        "cross": (TARGET, SOURCE),
        "other": (SOURCE, SOURCE),
    }


def test_the_page_needs_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "new" / "page.html"
    page = attention_page(MAPS, SOURCE, TARGET, path)
    assert path.read_text(encoding="utf-8") == page
    assert "default-src 'none'" in page
    assert not re.search(r"://|@import|url\(|<link|\ssrc=|fetch\(|XMLHttp|import\b", page)


def test_no_token_ends_the_data() -> None:
    page = attention_page(MAPS, HOSTILE, TARGET, title=HOSTILE[1])
    assert len(re.findall(r"<script", page)) == len(re.findall(r"</script>", page)) == 2
    assert data_of(page)["maps"][0]["queries"]["tokens"] == HOSTILE
    assert data_of(page)["title"] == HOSTILE[1]


def test_errors() -> None:
    weights = MAPS["cross"][0]
    for bad in (np.where(weights == weights.max(), np.nan, weights), weights - 0.1, weights + 1):
        with pytest.raises(ValueError, match=r"expected weights from 0 to 1 in layer 2 of 'cross'"):
            attention_page({"cross": [weights, bad]}, SOURCE, TARGET)
    with pytest.raises(
        ValueError,
        match=r"\(heads, target, source\) of shape \(4, 5, 4\) in layer 2 of 'cross', got \(3, 5, 4\)",
    ):
        attention_page({"cross": [weights, weights[:3]]}, SOURCE, TARGET)
    with pytest.raises(
        ValueError,
        match=r"\(heads, sequence, sequence\) of shape \(4, 4, 4\) in layer 1 of 'encoder', got",
    ):
        attention_page({"encoder": [weights]}, SOURCE)
    with pytest.raises(ValueError, match="at least one layer"):
        attention_page({"encoder": []}, SOURCE)


def test_translate_writes_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    vocab = Vocabulary([*SPECIALS, *SOURCE])
    config = TransformerConfig(len(vocab), len(vocab), d_model=8, num_heads=2, d_ff=8, num_encoder_layers=1,
                               num_decoder_layers=3)  # fmt: skip
    translator = Translator(Transformer(config), vocab, vocab, SpaceTokenizer(), SpaceTokenizer())
    translator.save(tmp_path)
    save_arrays(tmp_path / "best.safetensors", translator.model.state_dict())

    path = tmp_path / "page.html"
    assert (
        load("translate").main(
            [str(tmp_path), "--max-len", "6", "--explore", str(path), "有", "我 有 一只 猫"]
        )
        == 0
    )
    assert str(path) in capsys.readouterr().err

    data = data_of(path.read_text(encoding="utf-8"))
    assert data["title"].startswith("我 有 一只 猫 → ")
    encoder, decoder, cross = data["maps"]
    assert [entry["name"] for entry in data["maps"]] == ["encoder", "decoder", "cross"]
    assert [len(entry["layers"]) for entry in data["maps"]] == [1, 3, 3]
    assert encoder["keys"]["tokens"] == cross["keys"]["tokens"] == SOURCE
    assert decoder["keys"]["tokens"] == ["<bos>", *cross["queries"]["tokens"][:-1]]
    assert len(data["beams"]) == 4 and len(data["steps"]) == len(cross["queries"]["tokens"])


# -- in a browser ----------------------------------------------------------------------------------------


class Page:
    """The page in Chromium, with what these tests ask of it."""

    def __init__(self, driver: Any, folder: Path) -> None:
        self.driver, self.folder = driver, folder

    def open(
        self,
        maps: dict[str, list[np.ndarray]],
        source: list[str],
        target: list[str],
        title: str = "",
    ) -> None:
        path = self.folder / "page.html"
        attention_page(maps, source, target, path, title)
        self.driver.get(path.as_uri())
        self.settle()

    def run(self, script: str, *args: Any) -> Any:
        return self.driver.execute_script(f"return {script}", *args)

    def settle(self) -> None:
        """Wait until the page has drawn: two frames from now."""
        self.driver.execute_async_script(
            "requestAnimationFrame(() => requestAnimationFrame(() => arguments[0]()))"
        )

    def all(self, selector: str) -> list[Any]:
        return self.driver.find_elements("css selector", selector)  # type: ignore[no-any-return]

    def act(self, *names_and_elements: tuple[str, Any]) -> None:
        """Do these with the mouse (or keys), as `ActionChains` calls them."""
        from selenium.webdriver import ActionChains

        for name, target in names_and_elements:
            getattr(ActionChains(self.driver, duration=0), name)(target).perform()
        self.settle()

    def press(self, *keys: str) -> None:
        from selenium.webdriver.common.keys import Keys

        self.act(*(("send_keys", getattr(Keys, key)) for key in keys))

    def choose(self, name: str, index: int) -> None:
        self.all(f"#{name} input")[index].click()
        self.settle()

    def pixels(self, canvas: Any) -> np.ndarray:
        """The colours and opacities (height, width, 4) of a canvas."""
        return image(
            base64.b64decode(self.run("arguments[0].toDataURL()", canvas).partition(",")[2])
        )

    def drawn(self) -> np.ndarray:
        return self.pixels(self.all("#stage canvas")[0])

    def boxes(self, side: str, heads: int) -> np.ndarray:
        """How opaque the part of each head is in the boxes of a list of tokens (tokens, heads)."""
        opacity, ratio = self.drawn()[..., 3], self.run("devicePixelRatio")
        left, width, row, count = self.run(
            "(({offsetLeft, offsetWidth, children}) => [offsetLeft, offsetWidth, children[0].offsetHeight, "
            "children.length])(document.getElementById(arguments[0]))",
            side,
        )
        rows = (np.arange(count) * row + 4) * ratio  # above what lines come near
        columns = (left + (np.arange(heads) + 0.5) * width / heads) * ratio
        return opacity[np.ix_(rows.astype(int), columns.astype(int))]

    def heads_on(self) -> list[int]:
        return [
            i
            for i, box in enumerate(self.all("#heads button"))
            if box.get_attribute("aria-pressed") == "true"
        ]

    def focused(self) -> str:
        return self.run("(document.activeElement.title || document.activeElement.ariaLabel)")  # type: ignore[no-any-return]

    def readout(self) -> str:
        return re.sub(r"\s+", " ", self.all("#readout")[0].text)


def image(png: bytes) -> np.ndarray:
    from matplotlib.image import imread

    return imread(io.BytesIO(png), format="png")  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    browser, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not browser or not driver:
        pytest.skip(
            "chromium and chromedriver are not installed (Debian: chromium, chromium-driver)"
        )
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for argument in (
        "headless=new",
        "no-sandbox",
        "disable-gpu",
        "disable-dev-shm-usage",
        "window-size=1000,760",
    ):
        options.add_argument(f"--{argument}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    running = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield running
    running.quit()


@pytest.fixture
def page(chromium: Any, tmp_path: Path) -> Iterator[Page]:
    """A page in light colours; whatever it is used for, it has nothing to say on the console."""
    set_system_theme(chromium, "light")
    yield Page(chromium, tmp_path)
    assert chromium.get_log("browser") == []


def set_system_theme(driver: Any, theme: str) -> None:
    features = [{"name": "prefers-color-scheme", "value": theme}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def test_it_loads_and_is_not_blank(page: Page) -> None:
    page.open(MAPS, SOURCE, TARGET, "我 有 一只 猫")
    assert page.driver.title == page.all("h1")[0].text == "我 有 一只 猫"
    assert [label.text for label in page.all("#map label")] == ["encoder", "decoder", "cross"]
    assert page.heads_on() == [0, 1, 2, 3]
    box = page.run("document.getElementById('stage').getBoundingClientRect().toJSON()")
    top, bottom, middle = int(box["top"]), int(box["bottom"]), int(box["left"] + box["width"] / 2)
    seen = image(page.driver.get_screenshot_as_png())[top:bottom, middle - 80 : middle + 80]
    paper = seen[0, 0]
    assert 0.1 < (np.abs(seen - paper).max(-1) > 0.05).mean() < 0.9  # lines, and paper between them
    page.choose("map", 1)
    assert [item.get_attribute("title") for item in page.all("#queries li")] == TARGET
    assert [item.get_attribute("title") for item in page.all("#keys li")] == ["<bos>", *TARGET[:-1]]


def test_pointing_at_a_token_draws_where_it_attends(page: Page) -> None:
    """A box opposite has a part for each head, half as opaque as the root of its weight."""
    page.open(MAPS, SOURCE, TARGET)
    page.choose("map", 2)
    page.choose("layer", 1)
    weights = MAPS["cross"][1]  # (heads, L_q, L_kv)
    at_rest = page.drawn()
    queries, keys = page.all("#queries li"), page.all("#keys li")
    for query in (0, 3):
        page.act(("move_to_element", queries[query]))
        np.testing.assert_allclose(
            page.boxes("keys", 4), np.sqrt(weights[:, query]).T / 2, atol=0.006
        )
        assert not page.boxes("queries", 4).any()
        best = weights[:, query].mean(0).argmax()
        largest = weights[:, query].mean(0).max()
        expected = f"{TARGET[query]}{query + 1} attends to {SOURCE[best]}{best + 1} {largest:.2f}"
        assert page.readout().startswith(expected[:-1])  # its last digit is that of a byte
    page.act(("move_to_element", keys[2]))
    np.testing.assert_allclose(
        page.boxes("queries", 4), np.sqrt(weights[:, :, 2]).T / 2, atol=0.006
    )
    assert f"{SOURCE[2]}3 is attended to by" in page.readout()
    page.act(("move_to_element", page.all("h1")[0]))
    np.testing.assert_array_equal(page.drawn(), at_rest)


def test_heads_are_switched_and_isolated(page: Page) -> None:
    page.open(MAPS, SOURCE, TARGET)
    page.choose("map", 0)
    boxes = page.all("#heads button")
    everything = page.drawn()
    page.act(("click", boxes[1]))
    assert page.heads_on() == [0, 2, 3]
    assert (page.drawn() != everything).any()
    page.act(("double_click", boxes[2]))
    assert page.heads_on() == [2]
    page.act(("move_to_element", page.all("#queries li")[1]))
    np.testing.assert_allclose(
        page.boxes("keys", 1)[:, 0], np.sqrt(MAPS["encoder"][0][2, 1]) / 2, atol=0.006
    )
    page.act(("double_click", boxes[2]))
    assert page.heads_on() == [0, 1, 2, 3]
    page.act(("move_to_element", page.all("h1")[0]))
    np.testing.assert_array_equal(page.drawn(), everything)


def test_keys_do_all_that_the_mouse_does(page: Page) -> None:
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.keys import Keys

    page.open(MAPS, SOURCE, TARGET)
    page.press("TAB", "TAB", "ARROW_RIGHT")  # past the theme, to the views
    assert page.all("#tokens")[0].is_displayed() is False
    page.press("ARROW_LEFT")
    page.press("TAB", "TAB", "ARROW_RIGHT", "TAB", "ARROW_RIGHT", "SPACE")  # it opens on "cross"
    weights = MAPS["cross"][1][[0, 2, 3]].mean(
        0
    )  # the map and the layer that were chosen, without head 2
    assert page.focused() == "head 2" and page.heads_on() == [0, 2, 3]

    page.press("TAB", "ARROW_DOWN")
    assert page.focused() == TARGET[1]
    assert page.readout().startswith(f"{TARGET[1]}2 attends to {SOURCE[weights[1].argmax()]}")
    page.press("ARROW_RIGHT")
    key = int(weights[1].argmax())
    assert page.focused() == SOURCE[key]
    page.press("ARROW_LEFT")
    assert page.focused() == TARGET[weights[:, key].argmax()]
    page.press("END")
    assert page.focused() == TARGET[-1]
    assert page.boxes("keys", 3).any()
    page.press("ESCAPE")
    assert not page.boxes("keys", 3).any()

    page.run("document.querySelectorAll('#heads button')[1].focus()")
    for expected in ([1], [0, 1, 2, 3]):
        ActionChains(page.driver, duration=0).key_down(Keys.SHIFT).send_keys(Keys.ENTER).key_up(
            Keys.SHIFT
        ).perform()
        page.settle()
        assert page.heads_on() == expected

    page.choose("view", 1)
    page.press("TAB", "TAB", "ARROW_RIGHT", "ARROW_DOWN")
    assert page.focused() == "layer 2, head 2" and page.readout().startswith("Layer 2, head 2:")
    page.press("ENTER")
    assert page.heads_on() == [1] and page.focused() == "head 2"
    assert page.all("#tokens")[0].is_displayed()


def test_the_model_view_has_every_weight(page: Page) -> None:
    page.open(MAPS, SOURCE, TARGET)
    page.choose("view", 1)
    page.choose("map", 2)
    maps = page.all("#grid canvas")
    found = np.array([page.pixels(canvas) for canvas in maps]).reshape(
        2, 4, 5, 4, 4
    )  # layer, head, row, column
    np.testing.assert_allclose(found[..., 3], np.sqrt(MAPS["cross"]), atol=0.51 / 255)
    colours = [
        pixels[pixels[..., 3] > 0.8][:, :3] for pixels in found.swapaxes(0, 1)
    ]  # of each head
    assert max(np.ptp(colour, axis=0).max() for colour in colours) < 0.02
    assert len({tuple(colour[0].round(1)) for colour in colours}) == 4


def test_light_and_dark(page: Page) -> None:
    page.open(MAPS, SOURCE, TARGET)

    def paper() -> float:
        return float(image(page.driver.get_screenshot_as_png())[5, 5, :3].mean())

    light = page.drawn()
    assert paper() > 0.9
    set_system_theme(page.driver, "dark")
    page.settle()
    assert paper() < 0.2 and (page.drawn() != light).any()
    page.all("#theme")[0].click()
    page.act(("move_to_element", page.all("h1")[0]))
    assert paper() > 0.9
    np.testing.assert_array_equal(page.drawn(), light)


def test_a_narrow_window_needs_no_sideways_scroll(page: Page) -> None:
    metrics = {"width": 400, "height": 700, "deviceScaleFactor": 1, "mobile": False}
    page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        long = [f"{'x' * 60} {i}" for i in range(50)]
        page.open({"encoder": random_weights(3, 12, 12, 50, 50)}, long, [], "title" * 20)
        page.act(("move_to_element", page.all("#queries li")[0]))
        for view in (0, 1):
            page.choose("view", view)
            assert page.run("document.documentElement.scrollWidth") <= 400
    finally:
        page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_tokens_are_text(page: Page) -> None:
    page.open({"encoder": random_weights(3, 1, 2, 6, 6)}, [*HOSTILE, " a\n", "猫"], [], HOSTILE[0])
    assert [item.get_attribute("title") for item in page.all("#keys li")] == [
        *HOSTILE,
        " a\n",
        "猫",
    ]
    shown = [token.replace(" ", "␣") for token in HOSTILE]
    assert [item.text for item in page.all("#keys li")] == [*shown, "␣a↵", "猫"]
    page.act(("move_to_element", page.all("#queries li")[0]))
    page.choose("view", 1)
    assert page.driver.title == HOSTILE[0]
    assert page.run("window.ran") is None
    assert page.run("document.querySelectorAll('script').length") == 1 and not page.all("img")


def test_two_hundred_tokens_in_twelve_layers_of_twelve_heads(page: Page) -> None:
    """No frame draws more than the lines that one can, however many there would be."""
    tokens = [f"token {i}" for i in range(200)]
    page.open({"encoder": random_weights(4, 1, 12, 200, 200) * 12}, tokens, [])
    watch = """
        window.most = 0;
        let lines = 0;
        const { stroke } = CanvasRenderingContext2D.prototype;
        CanvasRenderingContext2D.prototype.stroke = function () { lines += 1; stroke.call(this); };
        requestAnimationFrame(function watch() {
            [window.most, lines] = [Math.max(window.most, lines), 0];
            requestAnimationFrame(watch);
        })"""
    page.run(f"(() => {{{watch}}})()")
    page.run(
        "(() => { const s = document.getElementById('least'); s.value = 0; s.dispatchEvent(new Event('input')); })()"
    )
    page.settle()
    for query in (0, 9, 3):
        before = page.drawn()
        page.act(("move_to_element", page.all("#queries li")[query]))
        assert (page.drawn() != before).any()
    page.run("document.querySelector('#queries li').focus()")
    page.press("END")
    assert page.readout().startswith("token␣199200 attends to")
    assert page.drawn()[..., 3].any()  # the canvas came along, as it does with any scroll
    page.press("ESCAPE")
    for there, edge in ((0, "top"), (1e6, "bottom")):
        page.run("scrollTo(0, arguments[0])", there)
        page.settle()
        page.settle()
        canvas, stage = (page.run("document.querySelector(arguments[0]).getBoundingClientRect().toJSON()", selector)
                         for selector in ("#stage canvas", "#stage"))  # fmt: skip
        assert canvas[edge] == pytest.approx(stage[edge], abs=1)
    page.choose("view", 1)
    assert len(page.all("#grid canvas")) == 144
    assert 400 < page.run("window.most") <= 4000


# -- the matrix, the way to a cell, what was said ------------------------------------------------------


def models() -> list[tuple[Any, dict[str, Any]]]:
    """A model of each kind, and what `explore` is given for it."""
    rng = np.random.default_rng(5)
    words = [f"w{i}" for i in range(12)]
    two = nn.TransformerConfig(
        12, 12, d_model=16, num_heads=4, num_encoder_layers=2, num_decoder_layers=2, d_ff=16
    )
    one = nn.LanguageModelConfig(
        12,
        d_model=16,
        num_heads=4,
        attention=nn.AttentionConfig(num_kv_heads=2),
        num_layers=2,
        d_ff=16,
        positions="rotary",
    )
    enc = nn.EncoderConfig(
        12,
        d_model=16,
        num_heads=4,
        num_layers=2,
        d_ff=16,
        attention=nn.AttentionConfig(scale=1.0),
        positions="relative",
    )
    ids, target = [4, 5, 6, 7], [8, 9, 2]
    own = {"ids": ids, "tokens": [words[i] for i in ids]}
    return [
        (nn.Transformer(two, rng), {**own, "target": target, "target_tokens": ["w8", "w9", "<eos>"], "vocabulary": words}),
        (nn.LanguageModel(one, rng), {**own, "vocabulary": words}),
        (nn.EncoderModel(enc, rng), own),
    ]  # fmt: skip


def decoded(text: str, *shape: int) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), "<f4").reshape(shape)


@pytest.mark.parametrize("which", [0, 1, 2])
def test_explore_takes_any_model(which: int) -> None:
    """The weights are the softmax of the products of the vectors that are given with them."""
    model, given = models()[which]
    page = explore(model, **given)
    data = data_of(page)
    assert [m["name"] for m in data["maps"]] == [
        ["encoder", "decoder", "cross"],
        ["self"],
        ["self"],
    ][which]
    assert data["maps"][0]["queries"]["label"] == ["source", "sequence", "sequence"][which]
    for found in data["maps"]:
        Q, K, h, d = (
            len(found["queries"]["tokens"]),
            len(found["keys"]["tokens"]),
            found["heads"],
            found["size"],
        )
        for weights, pair in zip(found["layers"], found["vectors"]):
            w = (np.frombuffer(base64.b64decode(weights), np.uint8).reshape(h, Q, K) / 255.0) ** 2
            scores = decoded(pair["q"], h, Q, d) @ decoded(pair["k"], h, K, d).swapaxes(1, 2)
            scores = scores * pair.get("scale", d**-0.5) + (
                decoded(pair["bias"], h, Q, K) if which == 2 else 0
            )
            if which == 1 or found["name"] == "decoder":
                scores[:, ~np.tri(Q, dtype=bool)] = -np.inf
            e = np.exp(scores - scores.max(-1, keepdims=True))
            np.testing.assert_allclose(w, e / e.sum(-1, keepdims=True), atol=0.006)
    assert len(data["steps"]) == [3, 3, 0][which]
    for step in data["steps"]:
        p = [p for _, p in step["likeliest"]]
        assert len(p) == 5 and p == sorted(p, reverse=True) and 0 < sum(p) <= 1 + 1e-6
    assert page._repr_html_().startswith("<iframe srcdoc=") and "<script" not in page._repr_html_()


def test_vectors_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match=r"vectors of 'cross', got \(4, 5, 3\) and \(4, 5, 3\)"):
        attention_page(
            MAPS, SOURCE, TARGET, vectors={"cross": [(np.zeros((4, 5, 3)), np.zeros((4, 5, 3)))]}
        )


def test_the_matrix_and_the_way_to_a_cell(page: Page, tmp_path: Path) -> None:
    model, given = models()[0]
    path = tmp_path / "way.html"
    whole = explore(model, **given, path=path, beams=[("w8 w9", -0.2), ("w8", -1.5)])
    page.driver.get(
        path.resolve().as_uri() + "#view=matrix&map=cross&layer=1&heads=2&cell=1.3&step=2"
    )
    page.settle()
    assert page.heads_on() == [2] and page.all("#field canvas")[0].is_displayed()
    found = data_of(whole)["maps"][2]
    q, k = (
        decoded(found["vectors"][1]["q"], 4, 3, 4)[2, 1],
        decoded(found["vectors"][1]["k"], 4, 4, 4)[2, 3],
    )
    way = page.all("#way")[0].text
    assert f"Their sum: {q @ k:.3f}; divided by √4: {q @ k / 2:.3f}" in way
    products = sorted((q * k).tolist(), key=abs, reverse=True)
    assert re.findall(r"q·k, dimension \d+\n(-?[\d.]+)", way) == [f"{p:.2f}" for p in products]
    weight = float(re.search(r"makes it ([\d.]+)", way)[1])
    assert page.readout().startswith(f"w92 → w74 weight {weight:.3f}")
    assert page.run("document.querySelector('#said input').value") == "2"
    assert page.all("#now")[0].text == "w8 w9 <eos>" and len(page.all("#likeliest i")) == 5
    assert "0.819" in page.all("#said")[0].text
    page.run("document.querySelector('#field canvas').focus()")
    page.press("ARROW_LEFT", "ARROW_UP")
    assert page.readout().startswith("w81 → w63 weight") and "cell=0.2" in page.run("location.hash")


def test_the_way_has_scale_bias_and_mask(page: Page, tmp_path: Path) -> None:
    """A weight of 0 is the mask's only where the scores alone would give more."""
    model, given = models()[2]
    whole = explore(model, **given, path=tmp_path / "scaled.html")
    pair = data_of(whole)["maps"][0]["vectors"][1]
    q, k = (decoded(pair[side], 4, 4, 4) for side in "qk")
    page.driver.get(
        (tmp_path / "scaled.html").as_uri() + "#view=matrix&map=self&layer=1&heads=2&cell=1.3"
    )
    page.settle()
    product, bias = q[2, 1] @ k[2, 3], decoded(pair["bias"], 4, 4, 4)[2, 1, 3]
    way = page.all("#way")[0].text
    assert (
        f"sum: {product:.3f}; times 1, plus {bias:.3f} for their distance: {product + bias:.3f}"
        in way
    )

    ones, weights = np.ones((1, 3, 1)), np.array([[[1.0, 0, 0], [0.5, 0.5, 0], [1, 0, 0]]])
    keys = np.array([0.0, 0, -20]).reshape(1, 3, 1)
    attention_page(
        {"own": [weights]}, list("abc"), (), tmp_path / "a.html", vectors={"own": [(ones, keys)]}
    )
    for cell, said in (
        ("0.1", "The mask hides"),
        ("1.1", "lets it through"),
        ("1.2", "would change nothing"),
    ):
        page.driver.get(
            (tmp_path / "a.html").as_uri() + f"#view=matrix&map=own&layer=0&heads=0&cell={cell}"
        )
        page.driver.refresh()
        page.settle()
        assert said in page.all("#way")[0].text


def test_numbers_in_cells_can_be_read(page: Page) -> None:
    """On every shade of every head, in both themes: the better of ink and paper, which is never below 3.8."""
    page.open(MAPS, SOURCE, TARGET)
    code = re.search(
        r"/\*\* Red, green.*?(?=\nfunction paintCells)",
        str(attention_page(MAPS, SOURCE, TARGET)),
        re.S,
    )[0]
    for scheme in ("light", "dark"):
        page.driver.execute_cdp_cmd(
            "Emulation.setEmulatedMedia",
            {"features": [{"name": "prefers-color-scheme", "value": scheme}]},
        )
        worst = page.run(
            "(() => {"
            + code
            + """
          const colours = [...document.querySelectorAll('#heads button')].map((box) => getComputedStyle(box).borderTopColor);
          const [paper, ink] = [getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color];
          return [getComputedStyle(document.querySelector(':checked + span')).borderTopColor, ...colours].flatMap((colour) => {
            const readable = inkOn(colour, paper, ink);
            const [top, ground] = [parts(colour), parts(paper)];
            return Array.from({ length: 101 }, (_, i) => {
              const cell = luminance(top.map((c, j) => (c * i + ground[j] * (100 - i)) / 100));
              const text = luminance(parts(readable(i / 100)));
              return (Math.max(cell, text) + 0.05) / (Math.min(cell, text) + 0.05);
            });
          }).reduce((a, b) => Math.min(a, b));
        })()"""
        )
        assert worst > 3.8, scheme
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_threshold_mean_rollout_and_behaviour(page: Page) -> None:
    eye = np.stack(
        [np.eye(6), np.roll(np.eye(6), -1, axis=1), np.full((6, 6), 1 / 6), np.eye(6)[::-1]]
    )
    eye[1, 0] = eye[1, :, 5] = 0
    eye[1, 0, 0] = 1  # the second head looks at the word before
    page.open({"encoder": [eye, eye]}, list("abcdef"), [])
    said = page.all("#behaviour")[0].text
    assert "head 1: looks at itself 1.00" in said and "head 2: looks at the previous 1.00" in said
    assert "head 3: spread over all 6 words" in said
    assert "help" not in page.all("#tools")[0].text  # it stands below, where there is room
    everything = page.drawn()
    page.run(
        "(() => { const s = document.getElementById('least'); s.value = 0.9; s.dispatchEvent(new Event('input')); })()"
    )
    page.settle()
    assert (page.drawn() != everything).any() and page.drawn()[..., 3].any()
    page.all("#mean")[0].click()
    page.settle()
    assert page.all("#mean")[0].get_attribute("aria-pressed") == "true"
    page.choose("layer", 2)
    mean = 0.5 * eye.mean(0) + 0.5 * np.eye(6)
    page.choose("view", 2)
    page.run("document.querySelector('#field canvas').focus()")
    page.press("ARROW_DOWN", "ARROW_DOWN")
    assert page.readout().startswith(f"b2 → a1 weight {(mean @ mean)[1, 0]:.2f}")


def test_heads_that_look_at_marks_and_at_words_before(page: Page) -> None:
    marks = np.zeros((4, 5, 5))
    marks[0, :, 4] = 1  # [SEP]
    marks[1, :, [0, 4]] = 0.5  # the two marks, half of it each
    marks[2:] = np.roll(np.eye(5), 1, axis=1)
    causal = np.stack(
        [np.eye(5), np.tri(5) / np.arange(1, 6)[:, None], np.eye(5, k=-1), np.eye(5, k=-1)]
    )
    causal[2:, 0, 0] = 1
    words = ["[CLS]", "a", "b", "c", "[SEP]"]
    page.open({"encoder": [marks], "decoder": [causal]}, words, ["x", "y", "z", "u", "<eos>"])
    found = [page.all("#behaviour")[0].text]
    page.choose("map", 1)
    found.append(page.all("#behaviour")[0].text)
    for text, *said in zip(found, ("looks at [SEP] 1.00", "looks at the word before 1.00"),
                           ("looks at [CLS] 0.50", "spread over about"), ("looks at the next 1.00", "looks at the second word before 1.00")):  # fmt: skip
        for head, words in enumerate(said, 1):
            assert f"head {head}: {words}" in text


def test_the_address_leads_back(page: Page) -> None:
    page.open(MAPS, SOURCE, TARGET)
    page.run("document.querySelectorAll('#keys li')[2].focus()")
    page.run(
        "(() => { const s = document.getElementById('least'); s.value = 0.25; s.dispatchEvent(new Event('input')); })()"
    )
    page.settle()
    before, said = page.run("location.hash"), page.readout()
    assert "least=0.25" in before and "token=keys.2" in before and "is attended to by" in said
    page.driver.refresh()
    page.settle()
    assert (page.run("location.hash"), page.readout()) == (before, said)
    assert page.run("document.getElementById('least').value") == "0.25"


def test_pictures_are_saved_whatever_the_tokens_hold(page: Page) -> None:
    page.open(
        {"encoder": random_weights(3, 1, 2, 4, 4)},
        ["\0", "\ud800", "\U0001f600" * 30, "\ufffe\x7f"],
        [],
        "\u202e\0<&",
    )
    assert [item.text for item in page.all("#keys li bdi")][:2] == ["⟨NUL⟩", "⟨D800⟩"]
    page.run(
        "URL.createObjectURL = (blob) => { (window.saved ??= []).push(blob); return 'data:,'; }"
    )
    for button in ("svg", "png"):
        page.run(f"document.getElementById('{button}').click()")
    script = "(async (done) => { while (window.saved.length < 2) await new Promise((r) => setTimeout(r, 20)); done([await saved[0].text(), saved[1].type, saved[1].size]); })(arguments[0])"
    text, kind, size = page.driver.execute_async_script(script)
    assert "⟨202E⟩⟨NUL⟩&lt;&amp;" in text and ElementTree.fromstring(text).tag.endswith("}svg")
    assert kind == "image/png" and size > 1000


def test_a_drawing_to_keep_and_to_print(page: Page) -> None:
    page.open(MAPS, [*HOSTILE[:3], "\u202eabc"], TARGET)
    page.run("dispatchEvent(new Event('beforeprint'))")
    texts = page.run("[...document.querySelectorAll('#paper text')].map((t) => t.textContent)")
    assert set(TARGET) <= set(texts) and "⟨202E⟩abc" in texts
    assert page.run("document.querySelectorAll('#paper path').length") > 10
    xml = page.run("new XMLSerializer().serializeToString(document.querySelector('#paper svg'))")
    assert ElementTree.fromstring(xml).tag.endswith("}svg")
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        assert page.all("#paper svg")[0].is_displayed() and not page.all("#stage")[0].is_displayed()
        assert page.run("document.documentElement.scrollWidth <= innerWidth")
    finally:
        page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_sixty_tokens_are_printed_on_one_page(page: Page) -> None:
    page.open({"encoder": random_weights(4, 1, 2, 60, 60)}, [f"t{i}" for i in range(60)], [])
    page.run("dispatchEvent(new Event('beforeprint'))")
    paper = base64.b64decode(page.driver.execute_cdp_cmd("Page.printToPDF", {})["data"])
    assert len(re.findall(rb"/Type /Page\b", paper)) == 1


def test_forty_tokens_open_without_a_ball_of_wool(page: Page) -> None:
    page.open({"encoder": random_weights(4, 1, 4, 45, 45)}, [f"t{i}" for i in range(45)], [])
    assert float(page.run("document.getElementById('least').value")) == 0.3
    drawn = page.drawn()[..., 3]
    assert (drawn > 0).mean() < 0.5
