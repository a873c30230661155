"""Attention explorer in Chromium: drawings, and reactions to mouse and keys."""

from __future__ import annotations

import base64
import io
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from explorer_pages import (
    HOSTILE,
    MAPS,
    SOURCE,
    TARGET,
    data_of,
    model_and_arguments,
    random_weights,
    stored_vectors,
    stored_weights,
)

from nn import Transformer, TransformerConfig, attention_page, explore
from nn.text import SPECIALS, Vocabulary

pytestmark = pytest.mark.slow


class Page:
    """A page of the explorer in Chromium."""

    def __init__(self, driver: Any, folder: Path) -> None:
        self.driver, self.path = driver, folder / "page.html"

    def open(self, maps: Any, source: Any, target: Any, title: str = "", **options: Any) -> None:
        attention_page(maps, source, target, self.path, title, **options)
        self.visit()

    def visit(self, fragment: str = "") -> None:
        """Load the page anew, with this part of the address behind #."""
        self.driver.get("about:blank")
        self.driver.get(self.path.as_uri() + fragment)
        self.settle()

    def run(self, script: str, *args: Any) -> Any:
        return self.driver.execute_script(f"return {script}", *args)

    def device(self, command: str, **parameters: Any) -> Any:
        return self.driver.execute_cdp_cmd(command, parameters)

    def settle(self) -> None:
        """Wait until the page has drawn: two frames from now."""
        self.driver.execute_async_script(
            "requestAnimationFrame(() => requestAnimationFrame(() => arguments[0]()))"
        )

    def all(self, selector: str) -> list[Any]:
        return self.driver.find_elements("css selector", selector)  # type: ignore[no-any-return]

    def text(self, selector: str) -> str:
        return str(self.all(selector)[0].text)

    def act(self, name: str, target: Any) -> None:
        """Call a method of `ActionChains`."""
        from selenium.webdriver import ActionChains

        getattr(ActionChains(self.driver, duration=0), name)(target).perform()
        self.settle()

    def press(self, *keys: str) -> None:
        from selenium.webdriver.common.keys import Keys

        for key in keys:
            self.act("send_keys", getattr(Keys, key))

    def point_at(self, selector: str, index: int = 0) -> None:
        self.act("move_to_element", self.all(selector)[index])

    def click(self, selector: str, index: int = 0) -> None:
        self.all(selector)[index].click()
        self.settle()

    def choose(self, name: str, index: int) -> None:
        self.click(f"#{name} input", index)

    def set_least(self, value: float) -> None:
        """Move the slider of the least weight that is drawn."""
        slide = "s.value = arguments[0]; s.dispatchEvent(new Event('input'));"
        self.run(f"(() => {{ const s = document.getElementById('least'); {slide} }})()", value)
        self.settle()

    def set_theme(self, theme: str) -> None:
        features = [{"name": "prefers-color-scheme", "value": theme}]
        self.device("Emulation.setEmulatedMedia", features=features)
        self.settle()

    def pixels(self, canvas: Any) -> np.ndarray:
        """Return the colours and opacities (height, width, 4) of a canvas."""
        url = self.run("arguments[0].toDataURL()", canvas)
        return image(base64.b64decode(url.partition(",")[2]))

    def drawn(self) -> np.ndarray:
        return self.pixels(self.all("#stage canvas")[0])

    def screenshot(self) -> np.ndarray:
        return image(self.driver.get_screenshot_as_png())

    def boxes(self, side: str, heads: int) -> np.ndarray:
        """Return the opacity of the part of each head in the boxes of tokens, (tokens, heads)."""
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
        buttons = self.all("#heads button")
        return [i for i, b in enumerate(buttons) if b.get_attribute("aria-pressed") == "true"]

    def switch_all_heads_on(self) -> None:
        for i in range(len(self.all("#heads button"))):
            if i not in self.heads_on():
                self.click("#heads button", i)

    def focused(self) -> str:
        return str(self.run("(document.activeElement.title || document.activeElement.ariaLabel)"))

    def readout(self) -> str:
        return re.sub(r"\s+", " ", self.text("#readout"))


def image(png: bytes) -> np.ndarray:
    from matplotlib.image import imread

    return imread(io.BytesIO(png), format="png")  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    browser, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not browser or not driver:
        pytest.skip("needs chromium and chromedriver (Debian: chromium, chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    arguments = "headless=new no-sandbox disable-gpu disable-dev-shm-usage window-size=1000,760"
    for argument in arguments.split():
        options.add_argument(f"--{argument}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    running = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield running
    running.quit()


@pytest.fixture
def page(chromium: Any, tmp_path: Path) -> Iterator[Page]:
    """Yield a page in light colours; it must print nothing on the console."""
    page = Page(chromium, tmp_path)
    page.set_theme("light")
    yield page
    page.device("Emulation.clearDeviceMetricsOverride")
    page.device("Emulation.setEmulatedMedia", media="", features=[])
    assert chromium.get_log("browser") == []


def test_page_draws_lines_and_lists_tokens(page: Page) -> None:
    page.open(MAPS, SOURCE, TARGET, "我 有 一只 猫")
    assert page.driver.title == page.text("h1") == "我 有 一只 猫"
    assert [label.text for label in page.all("#map label")] == ["encoder", "decoder", "cross"]
    assert len(page.heads_on()) == 1
    page.switch_all_heads_on()
    box = page.run("document.getElementById('stage').getBoundingClientRect().toJSON()")
    top, bottom, middle = int(box["top"]), int(box["bottom"]), int(box["left"] + box["width"] / 2)
    seen = page.screenshot()[top:bottom, middle - 80 : middle + 80]
    assert 0.1 < (np.abs(seen - seen[0, 0]).max(-1) > 0.05).mean() < 0.9  # lines, and paper
    page.choose("map", 1)
    assert [item.get_attribute("title") for item in page.all("#queries li")] == TARGET
    assert [item.get_attribute("title") for item in page.all("#keys li")] == ["<bos>", *TARGET[:-1]]


def test_pointing_at_a_token_draws_its_weights(page: Page) -> None:
    """A box opposite has a part for each head, half as opaque as the root of its weight."""
    page.open(MAPS, SOURCE, TARGET)
    page.choose("map", 2)
    page.choose("layer", 1)
    page.switch_all_heads_on()
    weights = MAPS["cross"][1]  # (heads, L_q, L_kv)
    at_rest = page.drawn()
    for query in (0, 3):
        page.point_at("#queries li", query)
        expected = np.sqrt(weights[:, query]).T / 2
        np.testing.assert_allclose(page.boxes("keys", 4), expected, atol=0.006)
        assert not page.boxes("queries", 4).any()
        mean = weights[:, query].mean(0)
        best = mean.argmax()
        text = f"{TARGET[query]}{query + 1} attends to {SOURCE[best]}{best + 1} {mean.max():.2f}"
        assert page.readout().startswith(text[:-1])  # its last digit is rounded in the page
    page.point_at("#keys li", 2)
    expected = np.sqrt(weights[:, :, 2]).T / 2
    np.testing.assert_allclose(page.boxes("queries", 4), expected, atol=0.006)
    assert f"{SOURCE[2]}3 is attended to by" in page.readout()
    page.point_at("h1")
    np.testing.assert_array_equal(page.drawn(), at_rest)


def test_clicks_switch_and_isolate_heads(page: Page) -> None:
    page.open(MAPS, SOURCE, TARGET)
    page.choose("map", 0)
    page.choose("layer", 0)
    page.switch_all_heads_on()
    boxes, everything = page.all("#heads button"), page.drawn()
    page.act("click", boxes[1])
    assert page.heads_on() == [0, 2, 3]
    assert (page.drawn() != everything).any()
    page.act("double_click", boxes[2])
    assert page.heads_on() == [2]
    page.point_at("#queries li", 1)
    expected = np.sqrt(MAPS["encoder"][0][2, 1]) / 2
    np.testing.assert_allclose(page.boxes("keys", 1)[:, 0], expected, atol=0.006)
    page.act("double_click", boxes[2])
    assert page.heads_on() == [0, 1, 2, 3]
    page.point_at("h1")
    np.testing.assert_array_equal(page.drawn(), everything)


def test_keys_do_all_that_the_mouse_does(page: Page) -> None:
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.keys import Keys

    page.open(MAPS, SOURCE, TARGET)
    page.choose("layer", 0)
    page.switch_all_heads_on()
    page.driver.refresh()
    page.settle()
    page.press("TAB", "TAB", "ARROW_RIGHT")  # past the theme, to the views
    assert page.all("#tokens")[0].is_displayed() is False
    page.press("ARROW_LEFT")
    page.press("TAB", "TAB", "ARROW_RIGHT", "TAB", "ARROW_RIGHT", "SPACE")  # it opens on "cross"
    weights = MAPS["cross"][1][[0, 2, 3]].mean(0)  # the chosen map and layer, without head 2
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
        keys = ActionChains(page.driver, duration=0).key_down(Keys.SHIFT).send_keys(Keys.ENTER)
        keys.key_up(Keys.SHIFT).perform()
        page.settle()
        assert page.heads_on() == expected

    page.choose("view", 1)
    page.press("TAB", "TAB", "ARROW_RIGHT", "ARROW_DOWN")
    assert page.focused() == "layer 2, head 2" and page.readout().startswith("Layer 2, head 2:")
    page.press("ENTER")
    assert page.heads_on() == [1] and page.focused() == "head 2"
    assert page.all("#tokens")[0].is_displayed()


def test_model_view_has_every_weight(page: Page) -> None:
    page.open(MAPS, SOURCE, TARGET)
    page.choose("view", 1)
    page.choose("map", 2)
    pictures = np.array([page.pixels(canvas) for canvas in page.all("#grid canvas")])
    pictures = pictures.reshape(2, 4, 5, 4, 4)  # layer, head, row, column, colour
    np.testing.assert_allclose(pictures[..., 3], np.sqrt(MAPS["cross"]), atol=0.51 / 255)
    colours = [p[p[..., 3] > 0.8][:, :3] for p in pictures.swapaxes(0, 1)]  # of each head
    assert max(np.ptp(colour, axis=0).max() for colour in colours) < 0.02
    assert len({tuple(colour[0].round(1)) for colour in colours}) == 4


def test_theme_follows_the_system_and_the_button(page: Page) -> None:
    page.open(MAPS, SOURCE, TARGET)
    paper = lambda: page.screenshot()[5, 5, :3].mean()
    light = page.drawn()
    assert paper() > 0.9
    page.set_theme("dark")
    assert paper() < 0.2 and (page.drawn() != light).any()
    page.click("#theme")
    page.point_at("h1")
    assert paper() > 0.9
    np.testing.assert_array_equal(page.drawn(), light)


def test_markup_in_tokens_is_shown_as_text(page: Page) -> None:
    tokens = [*HOSTILE, " a\n", "猫"]
    page.open({"encoder": random_weights(3, 1, 2, 6, 6)}, tokens, [], HOSTILE[0])
    assert [item.get_attribute("title") for item in page.all("#keys li")] == tokens
    shown = [token.replace(" ", "␣") for token in HOSTILE]
    assert [item.text for item in page.all("#keys li")] == [*shown, "␣a↵", "猫"]
    page.point_at("#queries li")
    page.choose("view", 1)
    assert page.driver.title == HOSTILE[0]
    assert page.run("window.ran") is None
    assert page.run("document.querySelectorAll('script').length") == 1 and not page.all("img")


def test_page_of_200_tokens_bounds_the_lines_of_a_frame(page: Page) -> None:
    tokens = [f"token {i}" for i in range(200)]
    page.open({"encoder": random_weights(4, 1, 12, 200, 200) * 12}, tokens, [])
    count_lines = """
        window.most = 0;
        let lines = 0;
        const { stroke } = CanvasRenderingContext2D.prototype;
        CanvasRenderingContext2D.prototype.stroke = function () { lines += 1; stroke.call(this); };
        requestAnimationFrame(function watch() {
            [window.most, lines] = [Math.max(window.most, lines), 0];
            requestAnimationFrame(watch);
        })"""
    page.run(f"(() => {{{count_lines}}})()")
    page.set_least(0)
    for query in (0, 9):
        before = page.drawn()
        page.point_at("#queries li", query)
        assert (page.drawn() != before).any()
    page.run("document.querySelector('#queries li').focus()")
    page.press("END")
    assert page.readout().startswith("token␣199200 attends to")
    assert page.drawn()[..., 3].any()  # the canvas moves with the scroll
    page.press("ESCAPE")
    edges = "['#stage canvas', '#stage'].map((s) => document.querySelector(s).getBoundingClientRect().toJSON())"
    for position, edge in ((0, "top"), (1e6, "bottom")):
        page.run("scrollTo(0, arguments[0])", position)
        page.settle()
        page.settle()
        canvas, stage = page.run(edges)
        assert canvas[edge] == pytest.approx(stage[edge], abs=1)
    page.choose("view", 1)
    assert len(page.all("#grid canvas")) == 144
    assert 400 < page.run("window.most") <= 4000


def test_matrix_view_explains_a_weight(page: Page) -> None:
    model, arguments = model_and_arguments("transformer")
    html = explore(model, **arguments, path=page.path, beams=[("w8 w9", -0.2), ("w8", -1.5)])
    page.visit("#view=matrix&map=cross&layer=1&heads=2&cell=1.3&step=2")
    assert page.heads_on() == [2] and page.all("#field canvas")[0].is_displayed()
    pair = data_of(html)["maps"][2]["vectors"][1]
    q = stored_vectors(pair["q"], 4, 3, 4)[2, 1]
    k = stored_vectors(pair["k"], 4, 4, 4)[2, 3]
    way = page.text("#way")
    assert f"Their sum: {q @ k:.3f}; divided by √4: {q @ k / 2:.3f}" in way
    products = sorted((q * k).tolist(), key=abs, reverse=True)
    assert re.findall(r"q·k, dimension \d+\n(-?[\d.]+)", way) == [f"{p:.2f}" for p in products]
    weight = float(re.search(r"makes it ([\d.]+)", way)[1])
    assert page.readout().startswith(f"w92 → w74 weight {weight:.3f}")
    assert page.run("document.querySelector('#said input').value") == "2"
    assert page.text("#now") == "w8 w9 <eos>" and len(page.all("#likeliest i")) == 5
    beams = page.text("#said")
    assert "Results of the beam search" in beams
    assert beams.splitlines()[-4:] == ["w8 w9", "-0.200", "w8", "-1.500"]
    page.run("document.querySelector('#field canvas').focus()")
    page.press("ARROW_LEFT", "ARROW_UP")
    assert page.readout().startswith("w81 → w63 weight") and "cell=0.2" in page.run("location.hash")


def test_matrix_view_explains_scale_and_bias(page: Page) -> None:
    model, arguments = model_and_arguments("encoder")
    html = explore(model, **arguments, path=page.path)
    pair = data_of(html)["maps"][0]["vectors"][1]
    q, k = (stored_vectors(pair[side], 4, 4, 4) for side in "qk")
    product, bias = q[2, 1] @ k[2, 3], stored_vectors(pair["bias"], 4, 4, 4)[2, 1, 3]
    page.visit("#view=matrix&map=self&layer=1&heads=2&cell=1.3")
    text = f"sum: {product:.3f}; times 1, plus {bias:.3f} for their distance: {product + bias:.3f}"
    assert text in page.text("#way")


def test_matrix_view_names_the_mask_only_if_scores_would_give_more(page: Page) -> None:
    ones, weights = np.ones((1, 3, 1)), np.array([[[1.0, 0, 0], [0.5, 0.5, 0], [1, 0, 0]]])
    vectors = {"own": [(ones, np.array([0.0, 0, -20]).reshape(1, 3, 1))]}
    page.open({"own": [weights]}, list("abc"), (), vectors=vectors)
    reasons = {"0.1": "The mask hides", "1.1": "lets it through", "1.2": "would change nothing"}
    for cell, reason in reasons.items():
        page.visit(f"#view=matrix&map=own&layer=0&heads=0&cell={cell}")
        assert reason in page.text("#way")


def test_matrix_view_is_of_one_head_or_of_the_mean(page: Page) -> None:
    model, arguments = model_and_arguments("transformer")
    html = explore(model, **arguments, path=page.path)
    weights = stored_weights(data_of(html)["maps"][2]["layers"][1], 4, 3, 4)[:, 1, 3]
    address = "#view=matrix&map=cross&layer=1&cell=1.3"
    shown = lambda: float(re.search(r"weight ([\d.]+)", page.readout())[1])

    page.visit(address + "&heads=2.3")
    assert page.heads_on() == [2] and shown() == pytest.approx(weights[2], abs=6e-4)
    assert f"makes it {shown():.3f}" in page.text("#way") and "head 3" in page.text("#way")
    page.click("#heads button", 1)  # which chooses one
    assert page.heads_on() == [1] and shown() == pytest.approx(weights[1], abs=6e-4)
    page.visit(address + "&heads=0.2&mean=1")
    assert page.heads_on() == [0, 2] and shown() == pytest.approx(weights[[0, 2]].mean(), abs=6e-4)
    way = page.text("#way")
    assert f"mean of 2 heads: {shown():.3f}" in way
    assert dict(re.findall(r"head (\d)\n([\d.]+)", way)) == {
        str(h + 1): f"{weights[h]:.3f}" for h in (0, 2)
    }


def test_numbers_in_cells_have_contrast(page: Page) -> None:
    """On every shade of every head, in both themes: ink or paper, at least 3.8."""
    page.open(MAPS, SOURCE, TARGET)
    code = re.search(r"/\*\* Red, green.*?(?=\nfunction paintCells)", page.path.read_text(), re.S)[
        0
    ]
    for theme in ("light", "dark"):
        page.set_theme(theme)
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
        assert worst > 3.8, theme


def test_behaviour_of_heads_threshold_and_rollout(page: Page) -> None:
    previous = np.roll(np.eye(6), -1, axis=1)
    heads = np.stack([np.eye(6), previous, np.full((6, 6), 1 / 6), np.eye(6)[::-1]])
    heads[1, 0] = heads[1, :, 5] = 0
    heads[1, 0, 0] = 1  # the second head looks at the word before
    page.open({"encoder": [heads, heads]}, list("abcdef"), [])
    page.switch_all_heads_on()
    behaviour = page.text("#behaviour")
    assert "head 1: attends to itself 1.00" in behaviour
    assert "head 2: attends to the previous token 1.00" in behaviour
    assert "head 3: spread over all 6 tokens" in behaviour
    everything = page.drawn()
    page.set_least(0.9)
    assert (page.drawn() != everything).any() and page.drawn()[..., 3].any()
    page.click("#mean")
    assert page.all("#mean")[0].get_attribute("aria-pressed") == "true"
    page.choose("layer", 2)
    mean = 0.5 * heads.mean(0) + 0.5 * np.eye(6)
    page.choose("view", 2)
    page.run("document.querySelector('#field canvas').focus()")
    page.press("ARROW_DOWN", "ARROW_DOWN")
    assert page.readout().startswith(f"b2 → a1 weight {(mean @ mean)[1, 0]:.2f}")


def test_behaviour_of_heads_names_special_tokens_and_neighbours(page: Page) -> None:
    special = np.zeros((3, 5, 5))
    special[0, :, 4] = 1  # [SEP]
    special[1, :, [0, 4]] = 0.5
    special[2] = np.roll(np.eye(5), 1, axis=1)
    causal = np.stack([np.eye(5), np.tri(5) / np.arange(1, 6)[:, None], np.eye(5, k=-1)])
    causal[2, 0, 0] = 1
    words, target = ["[CLS]", "a", "b", "c", "[SEP]"], ["x", "y", "z", "u", "<eos>"]
    page.open({"encoder": [special], "decoder": [causal]}, words, target)
    expected = [
        ["attends to [SEP] 1.00", "attends to [CLS] 0.50", "attends to the next token 1.00"],
        ["attends to the previous token 1.00", "spread over about", "attends to the token before the previous one 1.00"],
    ]  # fmt: skip
    for index, sentences in enumerate(expected):
        page.choose("map", index)
        page.switch_all_heads_on()
        for head, sentence in enumerate(sentences, 1):
            assert f"head {head}: {sentence}" in page.text("#behaviour")


def test_address_restores_the_page(page: Page) -> None:
    page.open(MAPS, SOURCE, TARGET)
    page.run("document.querySelectorAll('#keys li')[2].focus()")
    page.set_least(0.25)
    before = page.run("location.hash"), page.readout()
    assert "least=0.25" in before[0] and "token=keys.2" in before[0]
    assert "is attended to by" in before[1]
    page.driver.refresh()
    page.settle()
    assert (page.run("location.hash"), page.readout()) == before
    assert page.run("document.getElementById('least').value") == "0.25"


def test_pictures_of_odd_characters_are_valid_files(page: Page) -> None:
    tokens = ["\0", "\ud800", "\U0001f600" * 30, "\ufffe\x7f"]
    page.open({"encoder": random_weights(3, 1, 2, 4, 4)}, tokens, [], "\u202e\0<&")
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


def test_print_shows_one_drawing_on_one_page(page: Page) -> None:
    tokens = [*HOSTILE[:3], "\u202eabc", *(f"t{i}" for i in range(56))]
    page.open({"encoder": random_weights(4, 1, 2, 60, 60)}, tokens, [])
    page.run("dispatchEvent(new Event('beforeprint'))")
    texts = page.run("[...document.querySelectorAll('#paper text')].map((t) => t.textContent)")
    assert {"t0", "t55", "⟨202E⟩abc"} <= set(texts)
    assert page.run("document.querySelectorAll('#paper path').length") > 10
    xml = page.run("new XMLSerializer().serializeToString(document.querySelector('#paper svg'))")
    assert ElementTree.fromstring(xml).tag.endswith("}svg")
    page.device("Emulation.setEmulatedMedia", media="print")
    assert page.all("#paper svg")[0].is_displayed() and not page.all("#stage")[0].is_displayed()
    pdf = base64.b64decode(page.device("Page.printToPDF")["data"])
    assert len(re.findall(rb"/Type /Page\b", pdf)) == 1


def test_page_of_45_tokens_opens_with_few_lines(page: Page) -> None:
    page.open({"encoder": random_weights(4, 1, 4, 45, 45)}, [f"t{i}" for i in range(45)], [])
    assert float(page.run("document.getElementById('least').value")) == 0.3
    assert (page.drawn()[..., 3] > 0).mean() < 0.5


def test_page_opens_with_the_head_whose_keys_depend_most_on_the_query(page: Page) -> None:
    """Neither one that is spread, nor one that always attends to the same key."""
    rows = np.abs(np.random.default_rng(0).standard_normal((2, 3, 5, 5)))
    rows[0, 1] = 0.001
    rows[0, 1, :, 4] = 1  # always the last key
    rows[1, 2] = 0.02 + np.eye(5)[::-1]
    rows /= rows.sum(-1, keepdims=True)
    others = random_weights(5, 1, 3, 5, 5)
    others[0][1] = np.eye(5)
    page.open({"encoder": list(rows), "other": others}, list("abcde"), [])
    assert page.heads_on() == [2] and page.run("location.hash").count("layer=1") == 1
    page.choose("map", 1)
    assert page.heads_on() == [1]
    page.visit("#map=encoder&layer=0&heads=0.1")
    assert page.heads_on() == [0, 1] and "layer=0" in page.run("location.hash")


@pytest.mark.parametrize("view, box", [(1, "#grid"), (2, "#field")])
def test_wide_map_on_a_phone_scrolls_in_its_box(page: Page, view: int, box: str) -> None:
    page.device("Emulation.setDeviceMetricsOverride", width=390, height=700, deviceScaleFactor=1, mobile=True)  # fmt: skip
    for count, heads, is_wide in ((3, 2, False), (60, 12, True)):
        tokens = [f"{'x' * 60 * is_wide}t{i}" for i in range(count)]
        page.open({"encoder": random_weights(3, 2, heads, count, count)}, tokens, [], "title" * 20)
        assert page.run("document.documentElement.scrollWidth") <= 390
        page.choose("view", view)
        hint = page.all(f"{box} + .hint")[0]
        assert hint.is_displayed() is is_wide
        assert page.run("document.documentElement.scrollWidth") <= 390
    assert "Scroll sideways" in hint.text
    fade = f"getComputedStyle(document.querySelector('{box}')).maskImage"
    assert "gradient" in page.run(fade)
    classes = f"document.querySelector('{box}').className"
    assert "more-right" in page.run(classes) and "more-left" not in page.run(classes)
    page.run(f"(document.querySelector('{box}').scrollLeft = 1e6)")
    page.settle()
    page.settle()
    assert "more-left" in page.run(classes) and "more-right" not in page.run(classes)


def chinese_page(path: Path) -> None:
    """Write a page in Chinese of a small Transformer, with its steps and the results of a beam."""
    vocab = Vocabulary([*SPECIALS, *SOURCE])
    config = TransformerConfig(
        len(vocab),
        len(vocab),
        d_model=8,
        num_heads=2,
        d_ff=8,
        num_encoder_layers=2,
        num_decoder_layers=1,
    )
    model = Transformer(config, np.random.default_rng(0))
    ids = np.array(vocab.encode(SOURCE))
    options = {"vocabulary": vocab.tokens, "beams": [("一只 猫", -0.1)], "language": "zh"}
    explore(model, ids, SOURCE, ids, SOURCE, path, "一只 猫", **options)


def test_chinese_page_has_no_english_word(page: Page, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    chinese_page(path)
    page.driver.get(path.as_uri())
    texts = (
        "document.body.innerText + ' ' + "
        "[...document.querySelectorAll('[aria-label]')].map((node) => node.ariaLabel).join(' ')"
    )
    names = r"<\w+>|\b(SVG|PNG|Esc|Shift|Enter|softmax)\b"
    for view, part in enumerate(("#queries li", "#grid button", "#field canvas")):
        page.choose("view", view)
        for clicked in (None, part, "#mean"):
            if clicked:
                page.act("click", page.all(clicked)[0])
                page.choose("view", view)
            assert re.findall(r"[A-Za-z]{2,}", re.sub(names, "", page.run(texts))) == []
    assert page.run("document.documentElement.lang") == "zh"
