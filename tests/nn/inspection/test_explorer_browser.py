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
from numpy.testing import assert_allclose, assert_array_equal
from support.environment import needs
from support.explorer_pages import (
    HOSTILE,
    MAPS,
    SOURCE,
    TARGET,
    data_of,
    model_and_arguments,
    random_weights,
    stored_gradients,
    stored_vectors,
    stored_weights,
)

from docs import check
from nn import explore
from nn.inspection.explorer import attention_page

pytestmark = pytest.mark.slow


class Page:
    """A page of the explorer in Chromium."""

    def __init__(self, driver: Any, folder: Path) -> None:
        self.driver, self.path = driver, folder / "page.html"

    def open(
        self, maps: Any, source: Any = SOURCE, target: Any = TARGET, at: str = "", **options: Any
    ) -> None:
        """Load a new page, with `at` as the part of its address behind #."""
        attention_page(maps, source, target, self.path, **options)
        self.visit(at)

    def explore(self, kind: str, at: str, **options: Any) -> list[Any]:
        """Load the page of a model, and return the maps in its data."""
        model, arguments = model_and_arguments(kind)
        html = explore(model, **{**arguments, **options}, path=self.path)
        self.visit(at)
        self.data = data_of(html)
        return self.data["maps"]  # type: ignore[no-any-return]

    def visit(self, at: str) -> None:
        self.driver.get("about:blank")
        self.driver.get(f"{self.path.as_uri()}#{at}")
        self.settle()

    def run(self, script: str, *args: Any) -> Any:
        """Return the value of an expression, once the page has drawn."""
        value = self.driver.execute_script(f"return {script}", *args)
        self.settle()
        return value

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
        """Return the text of an element, with single spaces."""
        return re.sub(r"\s+", " ", self.all(selector)[0].text)

    def titles(self, selector: str) -> list[str]:
        return [item.get_attribute("title") for item in self.all(selector)]

    def act(self, name: str, selector: str, index: int = 0) -> None:
        """Call a method of `ActionChains` with an element."""
        from selenium.webdriver import ActionChains

        getattr(ActionChains(self.driver, duration=0), name)(self.all(selector)[index]).perform()
        self.settle()

    def press(self, *keys: str) -> None:
        """Send keys to the focused element."""
        from selenium.webdriver.common.keys import Keys

        self.driver.switch_to.active_element.send_keys(*(getattr(Keys, key) for key in keys))
        self.settle()

    def focus(self, selector: str, index: int = 0) -> None:
        self.run("arguments[0].focus()", self.all(selector)[index])

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

    def boxes(self, side: str, heads: int) -> np.ndarray:
        """Return the opacity of the part of each head in the boxes of tokens, (tokens, heads)."""
        script = "(({offsetLeft: x, offsetWidth: w, children: c}) => [x, w, c.length, c[0].offsetHeight])(arguments[0])"
        left, width, count, row = self.run(script, self.all(f"#{side}")[0])
        rows = np.arange(count) * row + 4  # above what lines come near
        columns = left + (np.arange(heads) + 0.5) * width / heads
        return self.drawn()[..., 3][np.ix_(rows.astype(int), columns.astype(int))]

    def heads_on(self) -> list[int]:
        buttons = self.all("#heads button")
        return [i for i, b in enumerate(buttons) if b.get_attribute("aria-pressed") == "true"]

    def focused(self) -> str:
        return str(self.run("(document.activeElement.title || document.activeElement.ariaLabel)"))

    def weight(self) -> float:
        """Return the weight of the chosen cell of the matrix view."""
        return float(re.search(r"weight ([\d.]+)", self.text("#readout"))[1])


def image(png: bytes) -> np.ndarray:
    from matplotlib.image import imread

    return imread(io.BytesIO(png), format="png")  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """Yield the driver of a Chromium with a window of 1000 by 760 pixels."""
    needs("selenium")
    if not (shutil.which("chromium") and shutil.which("chromedriver")):
        pytest.skip("needs chromium and chromedriver (Debian: chromium-driver)")
    driver = check.browser()
    driver.set_window_size(1000, 760)
    yield driver
    driver.quit()


@pytest.fixture
def page(chromium: Any, tmp_path: Path) -> Iterator[Page]:
    """Yield a page in light colours; it must print nothing on the console."""
    page = Page(chromium, tmp_path)
    page.set_theme("light")
    yield page
    page.device("Emulation.clearDeviceMetricsOverride")
    page.device("Emulation.setEmulatedMedia", media="", features=[])
    assert chromium.get_log("browser") == []


def test_page_lists_maps_and_tokens(page: Page) -> None:
    page.open(MAPS, title="我 有 一只 猫")
    assert page.driver.title == page.text("h1") == "我 有 一只 猫"
    assert [label.text for label in page.all("#map label")] == ["encoder", "decoder", "cross"]
    assert len(page.heads_on()) == 1
    page.act("click", "#map input", 1)
    assert page.titles("#queries li") == TARGET
    assert page.titles("#keys li") == ["<bos>", *TARGET[:-1]]


def test_pointing_at_token_draws_its_weights(page: Page) -> None:
    """A box opposite has a part for each head, half as opaque as the root of its weight."""
    page.open(MAPS, at="map=cross&layer=1&heads=0.1.2.3")
    weights, at_rest = MAPS["cross"][1], page.drawn()  # (heads, L_q, L_kv)
    assert 0.05 < (at_rest[..., 3] > 0).mean() < 0.9  # lines
    page.act("move_to_element", "#queries li", 3)
    assert_allclose(page.boxes("keys", 4), np.sqrt(weights[:, 3]).T / 2, atol=0.006)
    assert not page.boxes("queries", 4).any()
    best = int(weights[:, 3].mean(0).argmax())
    assert page.text("#readout").startswith(f"{TARGET[3]}4 attends to {SOURCE[best]}{best + 1} ")
    page.act("move_to_element", "#keys li", 2)
    assert_allclose(page.boxes("queries", 4), np.sqrt(weights[:, :, 2]).T / 2, atol=0.006)
    assert f"{SOURCE[2]}3 is attended to by" in page.text("#readout")
    page.act("move_to_element", "h1")
    assert_array_equal(page.drawn(), at_rest)


def test_mouse_and_keys_switch_and_isolate_heads(page: Page) -> None:
    page.open(MAPS, at="heads=0.1.2.3")
    everything = page.drawn()
    page.act("click", "#heads button", 1)
    assert page.heads_on() == [0, 2, 3] and (page.drawn() != everything).any()
    page.act("double_click", "#heads button", 2)
    assert page.heads_on() == [2]
    page.press("SHIFT", "ENTER")
    assert page.heads_on() == [0, 1, 2, 3]


def test_arrows_move_between_tokens(page: Page) -> None:
    page.open(MAPS, at="map=cross&layer=1&heads=0.2.3")
    weights = MAPS["cross"][1][[0, 2, 3]].mean(0)
    key = int(weights[1].argmax())
    page.focus("#queries li")
    page.press("ARROW_DOWN")
    assert page.text("#readout").startswith(f"{TARGET[1]}2 attends to {SOURCE[key]}")
    for arrow, token in (
        ("ARROW_RIGHT", SOURCE[key]),
        ("ARROW_LEFT", TARGET[weights[:, key].argmax()]),
        ("END", TARGET[-1]),
    ):
        page.press(arrow)
        assert page.focused() == token
    assert page.boxes("keys", 3).any()
    page.press("ESCAPE")
    assert not page.boxes("keys", 3).any()


def test_arrows_in_model_view_choose_layer_and_head(page: Page) -> None:
    page.open(MAPS, at="view=model")
    page.focus("#grid button")
    page.press("ARROW_RIGHT")
    page.press("ARROW_DOWN")
    assert page.focused() == "layer 2, head 2"
    assert page.text("#readout").startswith("Layer 2, head 2:")
    page.press("ENTER")
    assert page.heads_on() == [1] and page.all("#tokens")[0].is_displayed()


def test_model_view_draws_every_weight(page: Page) -> None:
    page.open(MAPS, at="view=model&map=cross")
    pictures = np.array([page.pixels(canvas) for canvas in page.all("#grid canvas")])
    opacity = pictures.reshape(2, 4, 5, 4, 4)[..., 3]  # layer, head, row, column
    assert_allclose(opacity, np.sqrt(MAPS["cross"]), atol=0.51 / 255)


def test_theme_follows_system_and_button(page: Page) -> None:
    page.open(MAPS)
    paper = lambda: image(page.driver.get_screenshot_as_png())[5, 5, :3].mean()
    light = page.drawn()
    assert paper() > 0.9
    page.set_theme("dark")
    assert paper() < 0.2 and (page.drawn() != light).any()
    page.act("click", "#theme")
    assert paper() > 0.9


def test_tokens_with_markup_are_shown_as_text(page: Page) -> None:
    page.open({"encoder": random_weights(3, 1, 2, 5, 5)}, [*HOSTILE, " a\n"], [], title=HOSTILE[0])
    shown = [token.replace(" ", "␣") for token in HOSTILE]
    assert [item.text for item in page.all("#keys li")] == [*shown, "␣a↵"]
    page.act("move_to_element", "#queries li")
    page.act("click", "#view input", 1)
    assert page.driver.title == HOSTILE[0] and page.run("window.ran") is None


def test_page_of_200_tokens_scrolls_to_its_last_token(page: Page) -> None:
    tokens = [f"t{i}" for i in range(200)]
    page.open({"encoder": random_weights(4, 1, 12, 200, 200)}, tokens, [], "least=0")
    page.focus("#queries li")
    page.press("END")
    assert page.text("#readout").startswith("t199200 attends to")
    assert page.drawn()[..., 3].any()  # the canvas moves with the scroll


def test_matrix_view_explains_weight(page: Page) -> None:
    maps = page.explore("transformer", "view=matrix&map=cross&layer=1&heads=2&cell=1.3")
    pair = maps[2]["vectors"][1]
    q, k = stored_vectors(pair["q"], 4, 3, 6)[2, 1], stored_vectors(pair["k"], 4, 4, 6)[2, 3]
    way = page.text("#way")
    assert f"Their sum: {q @ k:.3f}; divided by √6: {q @ k / 6**0.5:.3f}" in way
    assert len(re.findall(r"q·k, dimension \d+ -?[\d.]+", way)) == 6
    assert f"makes it {page.weight():.3f}" in way
    page.focus("#field canvas")
    page.press("ARROW_LEFT", "ARROW_UP")
    assert page.text("#readout").startswith("w81 → w63 weight")


def test_matrix_view_explains_scale_and_bias(page: Page) -> None:
    [self_attention] = page.explore("encoder", "view=matrix&map=self&layer=1&heads=2&cell=1.3")
    pair = self_attention["vectors"][1]
    q, k = (stored_vectors(pair[name], 4, 4, 6)[2] for name in ("q", "k"))
    product, bias = q[1] @ k[3], stored_vectors(pair["bias"], 4, 4, 4)[2, 1, 3]
    text = f"sum: {product:.3f}; times 1, plus {bias:.3f} for their distance: {product + bias:.3f}"
    assert text in page.text("#way")


def test_page_lists_likeliest_tokens_of_step_and_results_of_beam_search(page: Page) -> None:
    page.explore("transformer", "step=2", beams=[("w8 w9", -0.2), ("w8", -1.5)])
    assert page.text("#now") == "w8 w9 <eos>" and len(page.all("#likeliest i")) == 5
    assert page.text("#said").endswith("w8 w9 -0.200 w8 -1.500")


@pytest.mark.parametrize(
    "cell, reason",
    [("0.1", "The mask hides"), ("1.1", "lets it through"), ("1.2", "would change nothing")],
)
def test_matrix_view_names_mask_only_if_scores_would_give_more(
    page: Page, cell: str, reason: str
) -> None:
    weights = np.array([[[1.0, 0, 0], [0.5, 0.5, 0], [1, 0, 0]]])
    vectors = {"own": [(np.ones((1, 3, 1)), np.array([[[0.0], [0], [-20]]]))]}
    at = f"view=matrix&heads=0&cell={cell}"
    page.open({"own": [weights]}, list("abc"), (), at, vectors=vectors)
    assert reason in page.text("#way")


@pytest.mark.parametrize("heads, shown", [("2.3", [2]), ("0.2&mean=1", [0, 2])])
def test_matrix_view_shows_one_head_or_mean(page: Page, heads: str, shown: list[int]) -> None:
    page.open(MAPS, at=f"view=matrix&map=cross&layer=1&cell=1.3&heads={heads}")
    assert page.heads_on() == shown
    assert page.weight() == pytest.approx(MAPS["cross"][1][shown, 1, 3].mean(), abs=5e-3)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_numbers_in_cells_have_contrast(page: Page, theme: str) -> None:
    page.set_theme(theme)
    page.open({"own": [np.linspace(0, 1, 36).reshape(1, 6, 6)]}, list("abcdef"), (), "view=matrix")
    paper = image(page.driver.get_screenshot_as_png())[5, 5, :3]
    drawn, opacity = np.split(page.pixels(page.all("#field canvas")[0]), [3], axis=-1)
    lightness = (opacity * drawn + (1 - opacity) * paper).mean(-1)
    for row in np.array_split(lightness, 6):
        assert all(np.ptp(cell) > 0.35 for cell in np.array_split(row, 6, axis=1))


SAME, LAST, ENDS = np.eye(5), np.eye(5)[[4] * 5], np.tile([0.5, 0, 0, 0, 0.5], (5, 1))


@pytest.mark.parametrize(
    ("name", "weights", "sentence"),
    [
        ("encoder", LAST, "attends to [SEP] 1.00"),
        ("encoder", ENDS, "attends to [CLS] 0.50"),
        ("encoder", np.roll(SAME, 1, axis=1), "attends to the next token 1.00"),
        ("encoder", SAME, "attends to itself 1.00"),
        ("encoder", SAME[[0, 0, 1, 2, 3]], "attends to the previous token 1.00"),
        ("encoder", np.full((5, 5), 0.2), "spread over all 5 tokens"),
        ("decoder", SAME, "attends to the previous token 1.00"),  # its keys begin with <bos>
        ("decoder", np.tri(5) / np.arange(1, 6)[:, None], "spread over about"),
    ],
)
def test_page_names_behaviour_of_heads(
    page: Page, name: str, weights: np.ndarray, sentence: str
) -> None:
    words, target = ["[CLS]", "a", "b", "c", "[SEP]"], ["x", "y", "z", "u", "<eos>"]
    page.open({name: [weights[None]]}, words, target)
    assert f"head 1: {sentence}" in page.text("#behaviour")


def test_rollout_mixes_mean_heads_of_all_layers(page: Page) -> None:
    page.open(MAPS, at="view=matrix&map=encoder&layer=2&cell=1.0&mean=1")
    first, second = (0.5 * layer.mean(0) + 0.5 * np.eye(4) for layer in MAPS["encoder"])
    assert page.weight() == pytest.approx((second @ first)[1, 0], abs=5e-3)


def test_threshold_hides_small_weights_and_address_restores_it(page: Page) -> None:
    page.open(MAPS)
    everything = page.drawn()
    page.run("(least.value = 0.9, least.dispatchEvent(new Event('input')))")
    assert (page.drawn()[..., 3] > 0).sum() < 0.9 * (everything[..., 3] > 0).sum()
    page.focus("#keys li", 2)
    before = page.run("location.hash"), page.text("#readout")
    assert "least=0.9" in before[0] and "token=keys.2" in before[0]
    page.driver.refresh()
    assert (page.run("location.hash"), page.text("#readout")) == before
    assert page.run("least.value") == "0.9"


def test_pictures_of_odd_characters_are_valid_files(page: Page) -> None:
    tokens = ["\0", "\ud800", "\U0001f600" * 30, "\ufffe\x7f"]
    page.open({"encoder": random_weights(3, 1, 2, 4, 4)}, tokens, [], title="\u202e\0<&")
    assert [item.text for item in page.all("#keys li bdi")][:2] == ["⟨NUL⟩", "⟨D800⟩"]
    page.run(
        "(window.saved = [], URL.createObjectURL = (blob) => { saved.push(blob); return 'data:,'; })"
    )
    page.act("click", "#svg")
    page.act("click", "#png")
    check.wait_for(page.driver, "return saved.length > 1", 10)
    text, kind, size = page.run("Promise.all([saved[0].text(), saved[1].type, saved[1].size])")
    assert "⟨202E⟩⟨NUL⟩&lt;&amp;" in text and ElementTree.fromstring(text).tag.endswith("}svg")
    assert kind == "image/png" and size > 1000


def test_print_of_page_is_one_drawing_on_one_sheet(page: Page) -> None:
    tokens = [f"t{i}" for i in range(60)]
    page.open({"encoder": random_weights(4, 1, 2, 60, 60)}, tokens, [])
    page.run("dispatchEvent(new Event('beforeprint'))")
    assert {*tokens} <= {text.get_attribute("textContent") for text in page.all("#paper text")}
    page.device("Emulation.setEmulatedMedia", media="print")
    assert page.all("#paper path")[0].is_displayed() and not page.all("#stage")[0].is_displayed()
    pdf = base64.b64decode(page.device("Page.printToPDF")["data"])
    assert len(re.findall(rb"/Type /Page\b", pdf)) == 1


def test_page_of_45_tokens_opens_with_few_lines(page: Page) -> None:
    page.open({"encoder": random_weights(4, 1, 4, 45, 45)}, [f"t{i}" for i in range(45)], [])
    assert page.run("least.value") == "0.3" and (page.drawn()[..., 3] > 0).mean() < 0.5


def test_page_opens_with_head_whose_keys_depend_most_on_query(page: Page) -> None:
    """Neither one that is spread, nor one that always attends to the same key."""
    weights = np.full((2, 3, 5, 5), 0.2)
    weights[0, 1] = [0, 0, 0, 0, 1]
    weights[1, 2] = 0.1 + 0.5 * np.eye(5)[::-1]
    page.open({"encoder": list(weights)}, list("abcde"), [])
    assert page.heads_on() == [2] and "layer=1" in page.run("location.hash")


@pytest.mark.parametrize("view, box", [("model", "#grid"), ("matrix", "#field")])
def test_wide_map_on_phone_scrolls_in_its_box(page: Page, view: str, box: str) -> None:
    page.device("Emulation.setDeviceMetricsOverride", width=390, height=700, deviceScaleFactor=1, mobile=True)  # fmt: skip
    for count, is_wide in ((3, False), (60, True)):
        maps = {"encoder": random_weights(3, 2, 2 + count // 6, count, count)}
        page.open(maps, [f"t{i}" for i in range(count)], [], f"view={view}", title="title" * 20)
        assert page.all(f"{box} + .hint")[0].is_displayed() is is_wide
        assert page.run("document.documentElement.scrollWidth") <= 390
    wide = page.all(box)[0]
    assert "more-right" in wide.get_attribute("class")
    page.run("(arguments[0].scrollLeft = 1e6)", wide)
    assert "more-left" in wide.get_attribute("class")


def explore_backward(page: Page, at: str) -> dict[str, Any]:
    """Open the page of a Transformer with its backward passes, and return its data."""
    page.explore("transformer", at, backward=True)
    return page.data


def number(text: str) -> float:
    return float(text.replace("−", "-"))


def test_page_without_backward_pass_has_no_switch(page: Page) -> None:
    page.open(MAPS, at="pass=backward&output=1")
    assert not any(page.all(f"#{name}")[0].is_displayed() for name in ("pass", "output", "ascent"))
    assert "pass=" not in page.run("location.hash")


def test_backward_switch_shows_gradient_of_chosen_output_and_address_restores_it(
    page: Page,
) -> None:
    data = explore_backward(page, "view=matrix&map=encoder&layer=1&heads=1&cell=1.2")
    weights = page.pixels(page.all("#field canvas")[0])
    assert len(page.all("#layer input")) == 3  # with rollout, which has no gradient
    page.act("click", "#layer input", 2)
    page.act("click", "#pass input", 1)
    assert len(page.all("#layer input")) == 2 and page.all("#output")[0].is_displayed()
    options = [item.text for item in page.all("#output option")]
    assert options == [f"{o['place']} · {o['token']} · {o['p']:.3f}" for o in data["backward"]]
    shown = []
    for i, output in enumerate(data["backward"]):
        page.run(
            "(arguments[0].value = arguments[1], arguments[0].dispatchEvent(new Event('change')))",
            page.all("#output select")[0],
            i,
        )
        gradient = stored_gradients(output["maps"][0], 1, 4, 4, 4)[1, 1, 2]
        readout = re.search(r"weight (0\.\d{3}) gradient (\S+)", page.text("#readout"))
        assert number(readout[2]) == pytest.approx(gradient, rel=0.06)
        shown.append((readout[1], page.pixels(page.all("#field canvas")[0])))
        assert f"log-probability of “{output['token']}”" in page.text("#legend")
        assert number(page.text("#legend").split()[1]) == pytest.approx(
            output["maps"][0]["scale"], rel=0.06
        )
    assert len({weight for weight, _ in shown}) == 1
    assert all((shown[i][1] != shown[i + 1][1]).any() for i in range(5))
    before = page.run("location.hash"), page.text("#readout")
    assert "pass=backward&output=5" in before[0]
    page.driver.refresh()
    assert (page.run("location.hash"), page.text("#readout")) == before
    page.act("click", "#pass input", 0)
    assert_array_equal(page.pixels(page.all("#field canvas")[0]), weights)


def test_page_with_backward_opens_on_the_least_certain_token_of_those_said(page: Page) -> None:
    chosen = "return document.querySelector('#output select').value"
    data = explore_backward(page, "")
    firsts: dict[int, int] = {}
    for i, output in enumerate(data["backward"]):
        firsts.setdefault(output["place"], i)
    least = min(firsts.values(), key=lambda i: data["backward"][i]["p"])
    assert page.driver.execute_script(chosen) == str(least)
    explore_backward(page, "view=tokens&map=cross")
    assert not page.all("#output")[0].is_displayed()
    page.act("click", "#pass input", 1)
    assert page.driver.execute_script(chosen) == str(least)


def test_click_on_a_line_or_its_name_shows_how_the_weight_is_computed(page: Page) -> None:
    page.open(MAPS, at="view=tokens&map=cross&layer=1&heads=2")
    weights = MAPS["cross"][1][2]
    query, key = np.unravel_index(weights.argmax(), weights.shape)
    stage = page.run(
        "(({left, top, width}, row) => [left + width / 2, top, row])("
        "document.querySelector('#stage').getBoundingClientRect(), "
        "document.querySelector('#queries li').offsetHeight)"
    )
    at = {"clientX": stage[0], "clientY": stage[1] + stage[2] * float(query + key + 1) / 2}
    click = "document.querySelector('#stage').dispatchEvent(new MouseEvent('click', arguments[0]))"
    page.run(click, {**at, "bubbles": True})
    found = re.search(r"view=matrix.*heads=2.*cell=(\d)\.(\d)", page.run("location.hash"))
    assert int(found[1]) + int(found[2]) == query + key  # where the lines of these cross
    assert "weight" in page.text("#way")
    page.visit("view=tokens&map=cross&layer=1&heads=0.2")
    page.act("click", "#readout .link", 0)
    assert re.search(r"view=matrix.*heads=[02]&.*cell=\d\.\d", page.run("location.hash"))


def test_matrix_and_lines_show_the_same_head(page: Page) -> None:
    page.open(MAPS, at="view=tokens&map=cross&heads=1.2")
    page.act("click", "#view input", 2)
    page.act("click", "#view input", 0)
    assert "heads=1&" in page.run("location.hash")


def test_backward_model_view_draws_sign_and_root_of_every_gradient(page: Page) -> None:
    data = explore_backward(page, "view=model&map=cross&pass=backward&output=4")
    pictures = np.array([page.pixels(canvas) for canvas in page.all("#grid canvas")])
    stored = data["backward"][4]["maps"][2]
    gradients = np.array([stored_gradients(stored, layer, 4, 3, 4) for layer in range(2)])
    roots = np.sqrt(np.abs(gradients) / stored["scale"])
    drawn = pictures.reshape(2, 4, 3, 4, 4)
    assert_allclose(drawn[..., 3], roots, atol=0.51 / 255)
    red, blue = drawn[..., 0], drawn[..., 2]
    for sign, is_drawn in ((1, blue > red), (-1, red > blue)):
        assert (is_drawn[np.sign(gradients) == sign]).all() and (np.sign(gradients) == sign).any()
    assert (gradients[:, :, :2] == 0).sum() < gradients[:, :, :2].size


def test_backward_token_view_names_partners_by_size_of_gradient(page: Page) -> None:
    data = explore_backward(page, "map=cross&layer=1&heads=2&pass=backward&output=4")
    page.focus("#queries li", 2)
    stored = data["backward"][4]["maps"][2]
    row = stored_gradients(stored, 1, 4, 3, 4)[2, 2]
    assert_allclose(
        page.boxes("keys", 1)[:, 0], np.sqrt(np.abs(row) / stored["scale"]) / 2, atol=0.006
    )
    found = re.findall(r"w\d(\d) (\S+)", page.text("#readout").split("gradients:")[1])
    order = np.argsort(-np.abs(row))
    assert [int(i) - 1 for i, _ in found] == order.tolist()
    assert_allclose([number(g) for _, g in found], row[order], rtol=0.06)
    page.press("ARROW_RIGHT")
    assert page.focused() == f"w{4 + order[0]}"


def test_slider_shows_head_in_ten_steps_of_gradient_ascent(page: Page) -> None:
    data = explore_backward(page, "pass=backward&output=3")
    ascent = data["backward"][3]["ascent"]
    name = data["maps"][ascent["map"]]["name"]
    text = page.text("#ascent")
    assert f"{name}, layer {ascent['layer'] + 1}, head {ascent['head'] + 1}." in text
    q_len, k_len = (
        len(data["maps"][ascent["map"]][side]["tokens"]) for side in ("queries", "keys")
    )
    frames = stored_weights(ascent["weights"], 11, q_len, k_len)
    opacities = []
    for step in (0, 5, 10):
        page.run(
            "(arguments[0].value = arguments[1], arguments[0].dispatchEvent(new Event('input')))",
            page.all("#ascent input")[0],
            step,
        )
        text = f"step {step} of 10: probability {ascent['p'][step]:.3f} (at first "
        assert text in page.text("#ascent") and f"frame={step}" in page.run("location.hash")
        drawn = page.pixels(page.all("#frame canvas")[0])[..., 3]
        edges = np.sort(np.unique(np.round(drawn, 2)))
        wanted = np.sqrt(frames[step]).ravel()
        assert all(np.abs(edges - w).min() < 0.011 for w in wanted)
        opacities.append(drawn)
    assert (opacities[0] != opacities[2]).any()
    page.run("arguments[0].click()", page.all("#ascent button")[0])
    assert page.text("#ascent button") == "stop"
    check.wait_for(page.driver, "return document.querySelector('#ascent input').value > 0", 10)
    page.run("arguments[0].click()", page.all("#ascent button")[0])
    assert page.text("#ascent button") == "play"


def test_picture_of_backward_pass_has_signs(page: Page) -> None:
    data = explore_backward(page, "")
    gradients = stored_gradients(data["backward"][4]["maps"][0], 1, 4, 4, 4)
    [head, *_] = np.flatnonzero((gradients > 0).any((1, 2)) & (gradients < 0).any((1, 2)))
    page.visit(f"view=matrix&map=encoder&layer=1&heads={head}&pass=backward&output=4")
    page.run("dispatchEvent(new Event('beforeprint'))")
    texts = [text.get_attribute("textContent") for text in page.all("#paper text")]
    assert "gradient of “<eos>”" in texts[0]
    assert {text[0] for text in texts[1:] if re.match(r"[+−]?\.?\d", text)} == {"+", "−"}
    fills = {rect.get_attribute("fill") for rect in page.all("#paper rect")}
    assert fills == {"#fff", "#b34d00", "#3451b8"}
    page.act("click", "#view input", 0)
    page.run("dispatchEvent(new Event('beforeprint'))")
    strokes = {path.get_attribute("stroke") for path in page.all("#paper path")}
    assert strokes == {"#b34d00", "#3451b8"}


def test_backward_page_on_phone_fits(page: Page) -> None:
    page.device("Emulation.setDeviceMetricsOverride", width=390, height=700, deviceScaleFactor=1, mobile=True)  # fmt: skip
    for view in ("tokens", "model", "matrix"):
        explore_backward(page, f"view={view}&pass=backward&output=3")
        assert page.run("document.documentElement.scrollWidth") <= 390


def test_chinese_page_has_no_english_word(page: Page) -> None:
    tokens = {"tokens": SOURCE, "target_tokens": SOURCE[:3], "vocabulary": SOURCE * 3}
    options = {"title": "猫", "beams": [("猫", -0.1)], "language": "zh", "backward": True}
    page.explore("transformer", "", **tokens, **options)
    texts = "document.body.innerText + [...document.querySelectorAll('[aria-label]')].map((node) => node.ariaLabel)"
    names = r"<\w+>|\b(SVG|PNG|Esc|Shift|Enter|softmax)\b"
    for i, part in enumerate(("#queries li", "#grid button", "#field canvas") * 2):
        page.act("click", "#pass input", i // 3)
        page.act("click", "#view input", i % 3)
        page.act("click", part)
        page.act("click", "#view input", i % 3)
        assert re.findall(r"[A-Za-z]{2,}", re.sub(names, "", page.run(texts))) == []
    assert page.run("document.documentElement.lang") == "zh"
