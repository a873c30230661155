"""Pictures: their drawings and labels, missing fonts, and missing matplotlib."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import hide_packages
from numpy.testing import assert_allclose, assert_array_equal

import minigrad as mg
from minigrad import MissingExtraError
from minigrad.optim import inverse_sqrt_schedule, noam_schedule
from nn import causal_mask, plots, sinusoidal_table
from nn.inspection.style import style

pytest.importorskip("matplotlib")
from matplotlib import font_manager
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.image import imread
from matplotlib.text import Text

CHINESE = ["我", "有", "一只", "猫"]
ENGLISH = ["I", "have", "<eos>"]
KEYS = ["we", "see", "it", "now", "."]


def rows(*shape: int) -> np.ndarray:
    """Return random rows with sum 1."""
    x = np.exp(2 * np.random.default_rng(0).standard_normal(shape))
    return x / x.sum(-1, keepdims=True)


def texts(labels: Any) -> list[str]:
    return [label.get_text() for label in labels]


HISTORY = [{"step": s, "loss": 5.0 / s, "lr": 0.1 * s} for s in (10, 20, 30)]
HISTORY += [{"step": 30, "valid_loss": 0.02}]
MASKS = {"causal": causal_mask(5), "padding": np.tile(np.arange(5) < 3, (5, 1))}
SCHEDULES = {"noam": noam_schedule(64, 10), "root": inverse_sqrt_schedule(5)}
PICTURES: dict[str, Callable[..., Any]] = {
    "attention_heatmap": lambda **path: plots.attention_heatmap(mg.Tensor(rows(3, 5), True), ENGLISH, KEYS, "a title", **path),
    "attention_grid": lambda **path: plots.attention_grid([rows(3, 3, 5), rows(3, 3, 5) ** 2], ENGLISH, KEYS, "a title", **path),
    "loss_curve": lambda **path: plots.loss_curve(HISTORY, "a title", **path),
    "position_picture": lambda **path: plots.position_picture(50, 16, **path),
    "mask_picture": lambda **path: plots.mask_picture(MASKS, **path),
    "schedule_curve": lambda **path: plots.schedule_curve(SCHEDULES, 40, **path),
}  # fmt: skip


@pytest.mark.parametrize("name", PICTURES)
def test_picture_is_written_to_a_file(name: str, tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.png"
    PICTURES[name](path=path)
    assert imread(path)[..., :3].std() > 0.05  # not blank


@pytest.mark.parametrize("name", PICTURES)
def test_picture_without_matplotlib_raises_with_command(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hide_packages(monkeypatch, "matplotlib")
    with pytest.raises(
        MissingExtraError, match="^plotting needs matplotlib: pip install matplotlib$"
    ):
        PICTURES[name]()


# -- attention ---------------------------------------------------------------------------------------


def test_attention_heatmap_draws_weights_and_labels() -> None:
    axes, _ = PICTURES["attention_heatmap"]().axes
    assert_array_equal(axes.images[0].get_array(), rows(3, 5))
    assert axes.images[0].get_clim() == (0, 1)  # one shade is one weight in every picture
    assert texts(axes.get_xticklabels()) == KEYS and texts(axes.get_yticklabels()) == ENGLISH
    labels = axes.get_title(), axes.get_xlabel(), axes.get_ylabel()
    assert labels == ("a title", "attends to (keys)", "queries")


def test_attention_grid_has_row_for_each_layer_and_column_for_each_head() -> None:
    *maps, _ = PICTURES["attention_grid"]().axes
    drawn = np.array([axes.images[0].get_array() for axes in maps]).reshape(2, 3, 3, 5)
    assert_array_equal(drawn, [rows(3, 3, 5), rows(3, 3, 5) ** 2])
    assert [axes.get_title() for axes in maps] == ["head 1", "head 2", "head 3", "", "", ""]
    assert [axes.get_ylabel() for axes in maps] == ["layer 1", "", "", "layer 2", "", ""]
    assert texts(maps[3].get_xticklabels()) == KEYS and texts(maps[3].get_yticklabels()) == ENGLISH


def test_attention_grid_of_many_heads_has_several_lines() -> None:
    *maps, _ = plots.attention_grid([rows(7, 3, 5), rows(7, 3, 5)], ENGLISH, KEYS).axes
    assert [axes.get_subplotspec().num1 for axes in maps] == [*range(7), *range(8, 15)]
    labelled = [any(texts(axes.get_xticklabels())) for axes in maps]
    assert labelled == [False] * 10 + [True] * 4  # those without a picture below


@pytest.mark.parametrize(
    "draw",
    [plots.attention_heatmap, lambda w, *x: plots.attention_grid([[w]], *x), plots.text_heatmap],
)
def test_attention_picture_with_wrong_labels_raises(draw: Callable[..., Any]) -> None:
    message = r"a row for each of 2 queries and a column for each of 4 keys, got shape \(3, 4\)"
    with pytest.raises(ValueError, match=message):
        draw(rows(3, 4), ["a", "b"], CHINESE)


def test_text_heatmap_shades_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # it needs none
    weights = mg.Tensor([[0.0, 0.2, 0.4], [0.6, 0.8, 1.0], [0.19, 0.39, 0.59]], requires_grad=True)
    assert plots.text_heatmap(weights, ["I", "see", "我"], ["我", "a", "看见"]).split("\n") == [
        "     我 a  看见",
        "  I │   ░░ ▒▒▒▒",
        "see │▓▓ ██ ████",
        " 我 │   ░░ ▒▒▒▒",
    ]


# -- characters --------------------------------------------------------------------------------------


@pytest.fixture
def chinese_font() -> str:
    """Return an installed font with Chinese characters, or skip the test."""
    installed = {f.name for f in font_manager.fontManager.ttflist}
    names = [name for name in plots._CJK_FONTS if name in installed]
    if not names:
        pytest.skip("no font with Chinese characters is installed")
    return names[0]


def test_chinese_labels_use_installed_font(chinese_font: str) -> None:
    """A missing glyph would be a warning, which is an error in tests."""
    figure = plots.attention_heatmap(rows(3, 4), ENGLISH, CHINESE, "我 → I")
    for picture in (
        figure,
        plots.attention_grid([rows(2, 4, 4)], CHINESE, CHINESE, "我 有 猫"),
        plots.mask_picture({"猫": causal_mask(2)}),
        plots.loss_curve(HISTORY, "猫"),
    ):
        FigureCanvasAgg(picture).draw()
    axes = figure.axes[0]
    assert texts(axes.get_xticklabels()) == CHINESE and axes.get_title() == "我 → I"
    assert axes.title.get_fontfamily()[1] == chinese_font  # for what the first font lacks


def test_chinese_labels_without_font_are_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plots, "_CJK_FONTS", ())
    axes = plots.attention_heatmap(
        rows(4, 3), CHINESE, ["有", "a", "猫"], "我 有 猫  →  I have"
    ).axes[0]
    assert texts(axes.get_yticklabels()) == ["#1", "#2", "#3", "#4"]
    assert texts(axes.get_xticklabels()) == ["#1", "a", "#3"] and axes.get_title() == "… →  I have"
    note = "attends to (keys)\nthe fonts lack these characters: tokens are numbered"
    grid = plots.attention_grid([rows(2, 3, 4)], ENGLISH, CHINESE, "猫")
    assert axes.get_xlabel() == grid.get_supxlabel() == note and grid.get_suptitle() == "…"


def test_labels_of_other_scripts_without_font_are_numbers() -> None:
    """Draw what the fonts have, such as an emoji of DejaVu Sans, and number the rest."""
    tokens = ["हिन्दी", "ไทย", "🇩🇪", "déjà", "мир", "😀"]
    shown = ["#1", "#2", "#3", *tokens[3:]]
    picture = plots.attention_heatmap(np.eye(6), tokens, tokens, "हिन्दी is мир")
    for figure in (
        picture,
        plots.attention_grid([rows(1, 6, 6)], tokens, tokens, "ไทย"),
        plots.mask_picture({"🇩🇪": causal_mask(2)}),
        plots.schedule_curve({"ไทย": SCHEDULES["noam"]}, 3),
        plots.loss_curve(HISTORY, "हिन्दी"),
    ):
        FigureCanvasAgg(figure).draw()
    axes = picture.axes[0]
    assert texts(axes.get_xticklabels()) == texts(axes.get_yticklabels()) == shown
    assert axes.get_title() == "… is мир" and "tokens are numbered" in axes.get_xlabel()


def test_chinese_labels_use_font_installed_later(
    chinese_font: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read the list of fonts again before tokens are numbered."""
    manager = font_manager.fontManager
    files = {font.fname for font in manager.ttflist if font.name in plots._CJK_FONTS}
    others = [font for font in manager.ttflist if font.fname not in files]
    monkeypatch.setattr(manager, "ttflist", others)
    plots._rescanned.cache_clear()
    [axes, _] = plots.attention_heatmap(np.eye(1), ["我"], ["b"]).axes
    assert texts(axes.get_yticklabels()) == ["我"]


ODD = ["$5 and $6", "\udcffa", "\ud83d", "$^$", "$\\frac{", "a_b^c", "\\alpha", "100 % of $x$"]


@pytest.mark.parametrize(
    "draw",
    [
        lambda: plots.attention_heatmap(np.eye(8), ODD, ODD, "; ".join(ODD)),
        lambda: plots.mask_picture({text: np.eye(2) for text in ODD}),
    ],
    ids=["heatmap", "masks"],
)
def test_picture_of_odd_texts_draws_them_as_they_are(draw: Callable[[], Any]) -> None:
    """A dollar sign does not begin a formula; half a character is drawn as a replacement."""
    figure = draw()
    FigureCanvasAgg(figure).draw()
    drawn = {text.get_text() for text in figure.findobj(Text) if not text.get_parse_math()}
    assert {re.sub("[\ud800-\udfff]", "\ufffd", text) for text in ODD} <= drawn


# -- the others --------------------------------------------------------------------------------------


def test_loss_curve_draws_losses_and_rates() -> None:
    loss, rate = PICTURES["loss_curve"]().axes
    training, validation = loss.lines
    assert_allclose(training.get_xydata(), [[10, 0.5], [20, 0.25], [30, 5 / 30]])
    assert_allclose(validation.get_xydata(), [[30, 0.02]])
    assert_allclose(rate.lines[0].get_xydata(), [[10, 1.0], [20, 2.0], [30, 3.0]])
    assert texts(loss.get_legend().get_texts()) == ["training", "validation"]
    assert loss.get_title() == "a title" and loss.get_yscale() == "log"


@pytest.mark.parametrize(
    "losses, which, expected",
    [([5.0, 0.02], "major", "0.1"), ([0.9, 0.6], "minor", "0.7")],
    ids=["decades", "within a decade"],
)
def test_loss_curve_has_numbers_on_axis(losses: Any, which: Any, expected: str) -> None:
    figure = plots.loss_curve([{"step": s, "loss": loss} for s, loss in enumerate(losses)])
    FigureCanvasAgg(figure).draw()
    assert expected in texts(figure.axes[0].get_yticklabels(which=which))


def test_loss_curve_with_vocabulary_draws_levels() -> None:
    """Guessing, and the entropy of a smoothed target."""
    [axes, _] = plots.loss_curve(HISTORY, vocabulary=50, label_smoothing=0.1).axes
    levels = [line.get_ydata()[0] for line in axes.lines if line.get_linestyle() == "--"]
    target = np.array([0.9 + 0.1 / 50, *[0.1 / 50] * 49])
    assert_allclose(levels, [np.log(50), -(target * np.log(target)).sum()], rtol=1e-12)


def test_position_picture_draws_table() -> None:
    axes, _ = plots.position_picture(50, 16, True).axes
    assert_array_equal(axes.images[0].get_array(), sinusoidal_table(50, 16, True))
    assert "sines first" in axes.get_title()


def test_mask_picture_draws_each_mask() -> None:
    axes = PICTURES["mask_picture"]().axes
    assert [a.get_title() for a in axes] == list(MASKS)
    drawn = [np.asarray(a.collections[0].get_array()).reshape(5, 5) for a in axes]
    assert_array_equal(drawn, list(MASKS.values()))
    assert all(a.yaxis_inverted() for a in axes)  # the first query is at the top


def test_schedule_curve_draws_each_schedule() -> None:
    lines = PICTURES["schedule_curve"]().axes[0].lines
    assert [line.get_label() for line in lines] == list(SCHEDULES)
    for line, schedule in zip(lines, SCHEDULES.values()):
        assert_allclose(line.get_xydata(), [[s, schedule(s)] for s in range(1, 41)])


def test_style_for_page_draws_no_background(tmp_path: Path) -> None:
    """On a dark page, light words must not be drawn on white."""
    path = tmp_path / "p.svg"
    for for_page in (True, False):
        with style(for_page):
            plots.position_picture(8, 8, path=path)
        assert ("fill: #ffffff" in path.read_text(encoding="utf-8")) != for_page


def test_picture_with_failing_write_keeps_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def savefig(figure: Figure, path: Path, **options: Any) -> None:
        path.write_text("half")
        raise OSError(28, "No space left on device")

    (tmp_path / "a.svg").write_text("precious")
    monkeypatch.setattr(Figure, "savefig", savefig)
    with pytest.raises(OSError, match="No space left on device"):
        plots.loss_curve(HISTORY, path=tmp_path / "a.svg")
    assert (tmp_path / "a.svg").read_text() == "precious"


def test_picture_with_unknown_kind_of_file_raises(tmp_path: Path) -> None:
    message = f"^{tmp_path}/a.xyz: the name of a picture must end in one of .*svg"
    with pytest.raises(ValueError, match=message):
        plots.loss_curve(HISTORY, path=tmp_path / "a.xyz")
