"""Pictures: what is drawn, what is written beside it, and what happens where a font or matplotlib is missing."""

from __future__ import annotations

import itertools
import resource
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import minigrad as mg
from minigrad import MissingExtraError
from minigrad.optim import inverse_sqrt_schedule, noam_schedule
from nn import causal_mask, plots, sinusoidal_table
from nn.inspection.style import style

pytest.importorskip("matplotlib")
from matplotlib import font_manager
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.image import imread
from matplotlib.text import Text

CHINESE = ["我", "有", "一只", "猫"]
ENGLISH = ["I", "have", "<eos>"]


def rows(*shape: int) -> np.ndarray:
    """Rows that add up to 1."""
    x = np.exp(2 * np.random.default_rng(0).standard_normal(shape))
    return x / x.sum(-1, keepdims=True)


def texts(labels: Any) -> list[str]:
    return [label.get_text() for label in labels]


def is_drawn(path: Path) -> bool:
    """It is a PNG, and not blank."""
    return path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n" and imread(path)[..., :3].std() > 0.05


def overlap(figure: Any) -> list[tuple[str, str]]:
    """Pairs of texts that are drawn over each other; slanted ones are left out.

    Give it a new figure: what is saved is the first drawing, and the layout can still change in the second.
    """
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw(renderer)
    hidden = set()  # the labels of ticks beyond the ends of their axis
    for axis in figure.findobj(Axis):
        low, high = sorted(axis.get_view_interval())
        for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()):
            hidden |= set() if low <= tick.get_loc() <= high else {tick.label1, tick.label2}
    drawn = [
        t for t in figure.findobj(Text) if t.get_text() and t.get_visible() and t not in hidden
    ]
    boxes = [
        (t.get_text(), t.get_window_extent(renderer)) for t in drawn if t.get_rotation() in (0, 90)
    ]
    assert boxes
    return [(a, b) for (a, x), (b, y) in itertools.combinations(boxes, 2) if x.overlaps(y)]


@pytest.fixture
def no_chinese_font(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if matplotlib's own fonts were the only ones."""
    own = [
        f for f in font_manager.fontManager.ttflist if f.name.startswith(("DejaVu", "STIX", "cm"))
    ]
    monkeypatch.setattr(font_manager.fontManager, "ttflist", own)
    monkeypatch.setattr(plots, "_rescanned", lambda: None)


@pytest.fixture
def chinese_font() -> str:
    installed = {f.name for f in font_manager.fontManager.ttflist}
    found = [name for name in plots._CJK_FONTS if name in installed]
    if not found:
        pytest.skip("no font with Chinese characters is installed")
    return found[0]


# -- attention ---------------------------------------------------------------------------------------


def test_heatmap(tmp_path: Path) -> None:
    weights, keys = rows(3, 4), ["we", "see", "it", "."]
    draw = lambda path: plots.attention_heatmap(
        mg.Tensor(weights, True), ENGLISH, keys, "the title", path
    )
    figure = draw(tmp_path / "a" / "b.png")
    axes, bar = figure.axes
    np.testing.assert_array_equal(axes.images[0].get_array(), weights)
    assert axes.images[0].get_clim() == (
        0,
        1,
    )  # the same shade means the same weight in every picture
    assert texts(axes.get_xticklabels()) == keys and texts(axes.get_yticklabels()) == ENGLISH
    assert (axes.get_title(), axes.get_xlabel(), axes.get_ylabel()) == (
        "the title",
        "attends to (keys)",
        "queries",
    )
    assert bar.get_ylabel() == "weight"
    assert is_drawn(tmp_path / "a" / "b.png") and not overlap(draw(None))


def test_on_a_page_no_picture_has_a_ground_of_its_own(tmp_path: Path) -> None:
    """Else light words would stand on white where the page is dark."""
    for for_page in (True, False):
        with style(for_page):
            plots.position_picture(8, 8, path=tmp_path / "p.svg")
        assert ("fill: #ffffff" in (tmp_path / "p.svg").read_text(encoding="utf-8")) != for_page


def test_many_heads_take_several_lines() -> None:
    """Eight heads side by side could not be read."""
    keys = ["we", "see", "it", "now", "."]
    *maps, _ = plots.attention_grid([rows(7, 3, 5), rows(7, 3, 5)], ENGLISH, keys).axes
    assert [axes.get_title() for axes in maps] == [f"head {i % 7 + 1}" for i in range(14)]
    assert [axes.get_subplotspec().num1 for axes in maps] == [*range(7), *range(8, 15)]
    labelled = [bool(texts(axes.get_xticklabels())[0]) for axes in maps]
    assert labelled == [False] * 10 + [True] * 4  # those below which there is nothing
    assert [axes.get_ylabel() for axes in maps if axes.get_ylabel()] == ["layer 1"] * 2 + [
        "layer 2"
    ] * 2


def test_grid_has_a_row_for_each_layer_and_a_column_for_each_head(tmp_path: Path) -> None:
    layers, keys = [rows(3, 3, 5), rows(3, 3, 5) ** 2], ["we", "see", "it", "now", "."]
    draw = lambda path: plots.attention_grid(layers, ENGLISH, keys, "the title", path)
    figure = draw(tmp_path / "grid.png")
    *maps, bar = figure.axes
    assert len(maps) == 6 and bar.get_ylabel() == "weight"
    for i, axes in enumerate(maps):
        layer, head = divmod(i, 3)
        np.testing.assert_array_equal(axes.images[0].get_array(), layers[layer][head])
        assert axes.get_title() == (f"head {head + 1}" if layer == 0 else "")
        assert axes.get_ylabel() == (f"layer {layer + 1}" if head == 0 else "")
        assert texts(axes.get_xticklabels()) == (
            keys if layer == 1 else [""] * 5
        )  # below the last row
        assert texts(axes.get_yticklabels()) == (ENGLISH if head == 0 else [""] * 3)
    assert figure.get_suptitle() == "the title" and figure.get_supxlabel() == "attends to (keys)"
    assert figure.get_supylabel() == "queries"
    assert is_drawn(tmp_path / "grid.png") and not overlap(draw(None))


def test_labels_that_do_not_fit_the_weights() -> None:
    with pytest.raises(
        ValueError, match=r"weights of shape \(3, 4\) do not fit 2 queries and 4 keys"
    ):
        plots.attention_heatmap(rows(3, 4), ["a", "b"], CHINESE)
    with pytest.raises(
        ValueError, match=r"weights of shape \(3, 4\) do not fit 3 queries and 1 keys"
    ):
        plots.attention_grid([rows(2, 3, 4)], ENGLISH, ["a"])


def test_chinese_labels_are_in_a_font_that_has_them(chinese_font: str, tmp_path: Path) -> None:
    """A missing glyph would be a warning, and so an error here."""
    path = tmp_path / "x.png"
    figure = plots.attention_heatmap(rows(3, 4), ENGLISH, CHINESE, "我 → I", path)
    axes = figure.axes[0]
    assert texts(axes.get_xticklabels()) == CHINESE and axes.get_title() == "我 → I"
    for label in (*axes.get_xticklabels(), axes.title):
        assert label.get_fontfamily()[0] == chinese_font
    assert (
        axes.get_yticklabels()[0].get_fontfamily()[0] != chinese_font
    )  # not where it is not needed
    assert is_drawn(path)
    plots.attention_grid([rows(2, 4, 4)], CHINESE, CHINESE, "我 有 猫", tmp_path / "grid.png")
    plots.mask_picture({"猫": causal_mask(2)}, tmp_path / "mask.png")
    plots.loss_curve(
        [{"step": 1, "loss": 1.0}, {"step": 2, "loss": 0.5}], "猫", tmp_path / "loss.png"
    )


def test_without_such_a_font_tokens_are_numbered_and_titles_shortened(
    no_chinese_font: None, tmp_path: Path
) -> None:
    path, note = (
        tmp_path / "x.png",
        "no font for these characters is installed: tokens are numbered",
    )
    draw = lambda file: plots.attention_heatmap(
        rows(4, 3), CHINESE, ["有", "a", "猫"], "我 有 猫  →  I have", file
    )
    figure = draw(path)
    axes = figure.axes[0]
    assert texts(axes.get_yticklabels()) == ["#1", "#2", "#3", "#4"]
    assert texts(axes.get_xticklabels()) == ["#1", "a", "#3"]
    assert axes.get_xlabel() == f"attends to (keys)\n{note}" and axes.get_title() == "… →  I have"
    assert is_drawn(path) and not overlap(draw(None))
    figure = plots.attention_grid([rows(2, 3, 4)], ENGLISH, CHINESE, "猫", path)
    assert figure.get_supxlabel() == f"attends to (keys)\n{note}" and figure.get_suptitle() == "…"
    assert (
        plots.attention_heatmap(rows(3, 3), ENGLISH, ENGLISH).axes[0].get_xlabel()
        == "attends to (keys)"
    )
    with pytest.warns(UserWarning, match="Glyph .* missing"):  # the font is really not there
        axes.set_title("猫")
        FigureCanvasAgg(figure := axes.figure).draw()


# -- the others --------------------------------------------------------------------------------------


def test_loss_curve(tmp_path: Path) -> None:
    history = [{"step": s, "loss": 5.0 / s, "lr": 0.1 * s} for s in (10, 20, 30)] + [
        {"step": 30, "valid_loss": 0.02}
    ]
    draw = lambda path: plots.loss_curve(history, "the title", path)
    figure = draw(tmp_path / "loss.png")
    loss, rate = figure.axes
    training, validation = loss.lines
    np.testing.assert_allclose(training.get_xydata(), [[10, 0.5], [20, 0.25], [30, 5 / 30]])
    np.testing.assert_allclose(validation.get_xydata(), [[30, 0.02]])
    np.testing.assert_allclose(rate.lines[0].get_xydata(), [[10, 1.0], [20, 2.0], [30, 3.0]])
    assert (
        texts(loss.get_legend().get_texts()) == ["training", "validation"]
        and loss.get_title() == "the title"
    )
    assert loss.get_ylabel() == "loss per token (nats)" and loss.get_yscale() == "log"
    assert (rate.get_ylabel(), rate.get_xlabel()) == ("learning rate", "step")
    assert is_drawn(tmp_path / "loss.png") and not overlap(draw(None))
    assert "0.1" in texts(loss.get_yticklabels())  # plain numbers


def test_a_loss_within_a_decade_has_numbers_on_its_axis() -> None:
    figure = plots.loss_curve([{"step": s, "loss": 0.9 - 0.1 * s} for s in range(4)])
    FigureCanvasAgg(figure).draw()
    assert {"0.6", "0.7", "0.8", "0.9"} <= set(texts(figure.axes[0].get_yticklabels(which="minor")))


@pytest.mark.parametrize("halves", [False, True])
def test_positions(halves: bool, tmp_path: Path) -> None:
    draw = lambda path: plots.position_picture(50, 16, halves, path)
    figure = draw(tmp_path / "positions.png")
    axes, bar = figure.axes
    np.testing.assert_array_equal(axes.images[0].get_array(), sinusoidal_table(50, 16, halves))
    assert (axes.get_xlabel(), axes.get_ylabel(), bar.get_ylabel()) == (
        "dimension",
        "position",
        "value",
    )
    assert axes.get_title() == (
        "sines first, then cosines" if halves else "sines in even, cosines in odd dimensions"
    )
    assert is_drawn(tmp_path / "positions.png") and not overlap(draw(None))


def test_masks(tmp_path: Path) -> None:
    causal, padding = causal_mask(5), np.tile(np.arange(5) < 3, (5, 1))
    masks = {"causal": causal, "padding": padding, "both": causal & padding}
    draw = lambda path: plots.mask_picture(masks, path)
    figure = draw(tmp_path / "masks.png")
    assert [axes.get_title() for axes in figure.axes] == list(masks)
    for axes, mask in zip(figure.axes, masks.values()):
        np.testing.assert_array_equal(
            np.asarray(axes.collections[0].get_array()).reshape(mask.shape), mask
        )
        assert (axes.get_xlabel(), axes.get_ylabel()) == ("keys", "queries")
        low, high = axes.get_ylim()
        assert low > high  # the first query is at the top
    assert figure.get_supxlabel() == "filled: may attend"
    assert is_drawn(tmp_path / "masks.png") and not overlap(draw(None))


def test_schedules(tmp_path: Path) -> None:
    schedules = {"noam": noam_schedule(64, 10), "root": inverse_sqrt_schedule(5)}
    draw = lambda path: plots.schedule_curve(schedules, 40, path)
    figure = draw(tmp_path / "schedules.png")
    axes = figure.axes[0]
    for line, (name, schedule) in zip(axes.lines, schedules.items(), strict=True):
        assert line.get_label() == name
        np.testing.assert_allclose(line.get_xydata(), [[s, schedule(s)] for s in range(1, 41)])
    assert texts(axes.get_legend().get_texts()) == ["noam", "root"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("step", "learning rate")
    assert is_drawn(tmp_path / "schedules.png") and not overlap(draw(None))


def test_nothing_needs_a_display_or_leaves_a_figure_open() -> None:
    plots.mask_picture({"causal": causal_mask(3)})
    pyplot = sys.modules.get("matplotlib.pyplot", SimpleNamespace(get_fignums=list))
    assert pyplot.get_fignums() == []


@pytest.mark.parametrize(
    "draw",
    [
        lambda: plots.attention_heatmap(rows(1, 1), ["a"], ["b"]),
        lambda: plots.attention_grid([rows(1, 1, 1)], ["a"], ["b"]),
        lambda: plots.loss_curve([]),
        lambda: plots.position_picture(),
        lambda: plots.mask_picture({"causal": causal_mask(2)}),
        lambda: plots.schedule_curve({}, 3),
    ],
)
def test_without_matplotlib_the_extra_is_named(draw: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(
        MissingExtraError, match=r"^plotting needs matplotlib: pip install matplotlib$"
    ):
        draw()


# -- in a terminal -----------------------------------------------------------------------------------


def test_text_heatmap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # it needs none
    weights = mg.Tensor([[0.0, 0.2, 0.4], [0.6, 0.8, 1.0], [0.19, 0.39, 0.59]], requires_grad=True)
    assert plots.text_heatmap(weights, ["I", "see", "it"], ["我", "a", "看见"]).split("\n") == [
        "     我 a  看见",
        "  I │   ░░ ▒▒▒▒",
        "see │▓▓ ██ ████",
        " it │   ░░ ▒▒▒▒",
    ]
    assert plots.text_heatmap(np.eye(2), ["我", "ab"], ["x", "y"]).split("\n") == [
        "    x  y ",
        "我 │██   ",
        "ab │   ██",
    ]
    with pytest.raises(
        ValueError, match=r"weights of shape \(2, 2\) do not fit 1 queries and 2 keys"
    ):
        plots.text_heatmap(np.eye(2), ["a"], ["x", "y"])


def test_text_from_data_is_drawn_as_text(tmp_path: Path) -> None:
    """A dollar begins no formula: neither an error nor another look than that of its characters."""
    odd = ["$5 and $6", "\udcffa", "\ud83d", "$^$", "$\\frac{", "a_b^c", "\\alpha", "100 % of $x$"]
    weights, title = np.eye(len(odd)), "; ".join(odd)
    figures = {
        plots.attention_heatmap(weights, odd, odd[::-1], title, tmp_path / "a.png"): [
            *odd,
            *odd,
            title,
        ],
        plots.attention_grid([weights[None]], odd, odd[::-1], title, tmp_path / "b.png"): [
            *odd,
            *odd,
            title,
        ],
        plots.loss_curve(
            [{"step": 1, "loss": 1.0}, {"step": 2, "loss": 0.5}], title, tmp_path / "c.png"
        ): [title],
        plots.mask_picture({text: np.eye(2) for text in odd}, tmp_path / "d.png"): odd,
        plots.schedule_curve({text: lambda step: 1.0 for text in odd}, 3, tmp_path / "e.png"): odd,
    }
    for figure, expected in figures.items():
        for text in expected:
            shown = "".join(
                "\ufffd" if 0xD800 <= ord(c) < 0xE000 else c for c in text
            )  # half a character is none
            own = [found for found in figure.findobj(Text) if found.get_text() == shown]
            assert len(own) >= expected.count(text) and not any(
                found.get_parse_math() for found in own
            ), text


def test_levels_of_the_loss() -> None:
    figure = plots.loss_curve([{"step": 1, "loss": 3.0}], vocabulary=50, label_smoothing=0.1)
    levels = [line.get_ydata()[0] for line in figure.axes[0].lines if line.get_linestyle() == "--"]
    target = np.full(50, 0.1 / 50)
    target[7] += 0.9
    np.testing.assert_allclose(levels, [np.log(50), -(target * np.log(target)).sum()], rtol=1e-12)
    assert plots.smoothing_floor(0.0, 50) == 0
    assert [text.get_va() for text in figure.axes[0].texts] == [
        "bottom",
        "top",
    ]  # losses lie between


def test_a_font_that_came_later_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The list that matplotlib made lacks it; it is looked for once more before tokens are numbered."""
    manager = pytest.importorskip("matplotlib.font_manager").fontManager
    wide = [font for font in manager.ttflist if font.name in plots._CJK_FONTS]
    if not wide:
        pytest.skip("no font for Chinese is installed")
    files = {font.fname for font in wide}
    monkeypatch.setattr(
        manager, "ttflist", [font for font in manager.ttflist if font.fname not in files]
    )
    plots._rescanned.cache_clear()
    figure = plots.attention_heatmap(np.eye(2), ["我", "b"], ["我", "b"])
    assert figure.axes[0].get_yticklabels()[0].get_text() == "我"


def test_a_picture_is_whole_or_not_there(tmp_path: Path) -> None:
    curve = [{"step": 1, "loss": 2.0}, {"step": 2, "loss": 1.0}]
    plots.loss_curve(curve, path=tmp_path / "a.svg")
    whole = (tmp_path / "a.svg").read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))  # as a full disk
    try:
        with pytest.raises(OSError, match="a.svg") as found:
            plots.loss_curve(curve, path=tmp_path / "a.svg")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (
        found.value.filename == str(tmp_path / "a.svg")
        and (tmp_path / "a.svg").read_bytes() == whole
    )
    with pytest.raises(
        ValueError, match=f"^{tmp_path}/a.xyz: expected a picture that ends in one of .*svg"
    ):
        plots.loss_curve(curve, path=tmp_path / "a.xyz")
    assert [path.name for path in tmp_path.iterdir()] == ["a.svg"]
