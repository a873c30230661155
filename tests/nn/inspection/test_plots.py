"""Pictures: their drawings and labels, missing fonts, and missing matplotlib."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from support.commands import hide_packages
from support.environment import needs

import minigrad as mg
from minigrad import MissingExtraError
from nn import plots
from nn.inspection.style import style

needs("matplotlib")
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
PICTURES: dict[str, Callable[..., Any]] = {
    "attention_grid": lambda **path: plots.attention_grid([mg.Tensor(rows(3, 3, 5), True), rows(3, 3, 5) ** 2], ENGLISH, KEYS, "a title", **path),
    "loss_curve": lambda **path: plots.loss_curve(HISTORY, "a title", **path),
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


def test_attention_grid_has_row_for_each_layer_and_column_for_each_head() -> None:
    *maps, _ = PICTURES["attention_grid"]().axes
    drawn = np.array([axes.images[0].get_array() for axes in maps]).reshape(2, 3, 3, 5)
    assert_array_equal(drawn, [rows(3, 3, 5), rows(3, 3, 5) ** 2])
    assert [axes.get_title() for axes in maps] == ["head 1", "head 2", "head 3", "", "", ""]
    assert [axes.get_ylabel() for axes in maps] == ["layer 1", "", "", "layer 2", "", ""]
    assert {axes.images[0].get_clim() for axes in maps} == {(0, 1)}  # one shade is one weight
    assert texts(maps[3].get_xticklabels()) == KEYS and texts(maps[3].get_yticklabels()) == ENGLISH
    figure = maps[0].figure
    labels = figure.get_suptitle(), figure.get_supxlabel(), figure.get_supylabel()
    assert labels == ("a title", "attends to (keys)", "queries")


def test_attention_grid_of_many_heads_has_several_lines() -> None:
    *maps, _ = plots.attention_grid([rows(7, 3, 5), rows(7, 3, 5)], ENGLISH, KEYS).axes
    assert [axes.get_subplotspec().num1 for axes in maps] == [*range(7), *range(8, 15)]
    labelled = [any(texts(axes.get_xticklabels())) for axes in maps]
    assert labelled == [False] * 10 + [True] * 4  # those without a picture below


def test_attention_grid_with_wrong_labels_raises() -> None:
    message = r"a row for each of 2 queries and a column for each of 4 keys, got shape \(3, 4\)"
    with pytest.raises(ValueError, match=message):
        plots.attention_grid([[rows(3, 4)]], ["a", "b"], CHINESE)


# -- characters --------------------------------------------------------------------------------------


@pytest.fixture
def chinese_font() -> str:
    """Return an installed font with Chinese characters, or skip the test."""
    installed = {f.name for f in font_manager.fontManager.ttflist}
    names = [name for name in plots._CJK_FONTS if name in installed]
    if not names:
        pytest.skip("needs a font with Chinese characters")
    return names[0]


def test_chinese_labels_use_installed_font(chinese_font: str) -> None:
    """A missing glyph would be a warning, which is an error in tests."""
    figure = plots.attention_grid([rows(2, 3, 4)], ENGLISH, CHINESE, "我 → I")
    for picture in (figure, plots.loss_curve(HISTORY, "猫")):
        FigureCanvasAgg(picture).draw()
    axes = figure.axes[0]
    assert texts(axes.get_xticklabels()) == CHINESE and figure.get_suptitle() == "我 → I"
    assert axes.title.get_fontfamily()[1] == chinese_font  # for what the first font lacks


def test_chinese_labels_without_font_are_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plots, "_CJK_FONTS", ())
    grid = plots.attention_grid([rows(1, 4, 3)], CHINESE, ["有", "a", "猫"], "我 有 猫  →  I have")
    axes = grid.axes[0]
    assert texts(axes.get_yticklabels()) == ["#1", "#2", "#3", "#4"]
    assert texts(axes.get_xticklabels()) == ["#1", "a", "#3"]
    assert grid.get_suptitle() == "… →  I have"
    note = "attends to (keys)\nthe fonts lack these characters: tokens are numbered"
    assert grid.get_supxlabel() == note


def test_labels_of_other_scripts_without_font_are_numbers() -> None:
    """Draw what the fonts have, such as an emoji of DejaVu Sans, and number the rest."""
    tokens = ["हिन्दी", "ไทย", "🇩🇪", "déjà", "мир", "😀"]
    shown = ["#1", "#2", "#3", *tokens[3:]]
    picture = plots.attention_grid([[np.eye(6)]], tokens, tokens, "हिन्दी is мир")
    for figure in (picture, plots.loss_curve(HISTORY, "हिन्दी")):
        FigureCanvasAgg(figure).draw()
    axes = picture.axes[0]
    assert texts(axes.get_xticklabels()) == texts(axes.get_yticklabels()) == shown
    assert picture.get_suptitle() == "… is мир"
    assert "tokens are numbered" in picture.get_supxlabel()


def test_chinese_labels_use_font_installed_later(
    chinese_font: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read the list of fonts again before tokens are numbered."""
    manager = font_manager.fontManager
    files = {font.fname for font in manager.ttflist if font.name in plots._CJK_FONTS}
    others = [font for font in manager.ttflist if font.fname not in files]
    monkeypatch.setattr(manager, "ttflist", others)
    plots._rescanned.cache_clear()
    [axes, _] = plots.attention_grid([[np.eye(1)]], ["我"], ["b"]).axes
    assert texts(axes.get_yticklabels()) == ["我"]


ODD = ["$5 and $6", "\udcffa", "\ud83d", "$^$", "$\\frac{", "a_b^c", "\\alpha", "100 % of $x$"]


def test_picture_of_odd_texts_draws_them_as_they_are() -> None:
    """A dollar sign does not begin a formula; half a character is drawn as a replacement."""
    figure = plots.attention_grid([[np.eye(8)]], ODD, ODD, "; ".join(ODD))
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


def test_loss_curve_draws_values_of_zero() -> None:
    zero = {"step": 1, "loss": 0.0, "valid_loss": 0.0, "lr": 0.0}
    figure = plots.loss_curve([zero, {name: x + 1 for name, x in zero.items()}])
    assert [len(line.get_xydata()) for axes in figure.axes for line in axes.lines] == [2, 2, 2]


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


def test_style_for_page_draws_no_background(tmp_path: Path) -> None:
    """On a dark page, light words must not be drawn on white."""
    path = tmp_path / "p.svg"
    for for_page in (True, False):
        with style(for_page):
            plots.loss_curve(HISTORY, path=path)
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
