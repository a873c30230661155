"""Pictures without matplotlib: the drawings that stand-ins for its objects are asked for."""

from __future__ import annotations

import math
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import MagicMock

import numpy as np
import pytest

from nn.inspection import plots, style

MISSING = "猫"
"""Character that is in no font."""


@pytest.fixture
def figure(monkeypatch: pytest.MonkeyPatch) -> MagicMock:
    """Return the stand-in of a figure, whose `axes` are made in order."""
    made, matplotlib = MagicMock(axes=[]), MagicMock()
    made.add_subplot.side_effect = lambda *place: made.axes.append(MagicMock()) or made.axes[-1]
    made.subplots.return_value = made.axes = [MagicMock(), MagicMock()]
    made.canvas.get_supported_filetypes.return_value = {"png": "", "svg": ""}
    made.savefig.side_effect = lambda part, **options: Path(part).write_text("drawn")
    matplotlib.Figure.return_value = made
    matplotlib.context.side_effect = lambda settings: nullcontext(made.settings.append(settings))
    made.settings, made.size = [], matplotlib.Figure
    for module in (plots, style):
        monkeypatch.setattr(module, "require", lambda name, extra: matplotlib)
    monkeypatch.setattr(plots, "_has_font", lambda text: MISSING not in text)
    return made


@pytest.mark.parametrize(("heads", "layers"), [(1, 2), (6, 1), (7, 2), (8, 1)])
def test_grid_has_rows_of_up_to_six_heads_or_four(
    heads: int, layers: int, figure: MagicMock
) -> None:
    figure.axes = []
    maps = np.random.default_rng(0).random((layers, heads, 2, 3))
    plots.attention_grid(list(maps), ["a", "b"], ["c", "d", "e"], "title")
    columns = heads if heads <= 6 else 4
    lines = math.ceil(heads / columns)
    places = [call.args for call in figure.add_subplot.call_args_list]
    assert places == [
        (lines * layers, columns, (i * lines + j // columns) * columns + j % columns + 1)
        for i in range(layers)
        for j in range(heads)
    ]
    for n, axes in enumerate(figure.axes):
        i, j = divmod(n, heads)
        (weights,), options = axes.imshow.call_args
        np.testing.assert_array_equal(weights, maps[i, j])
        assert (options["vmin"], options["vmax"]) == (0, 1)
        assert axes.set_xticks.call_args.args == (range(3), ["c", "d", "e"])
        assert axes.set_yticks.call_args.args == (range(2), ["a", "b"])
        is_first, is_last = j % columns == 0, i == layers - 1 and j + columns >= heads
        assert axes.set_ylabel.called == is_first and axes.set_yticklabels.called != is_first
        assert not is_first or axes.set_ylabel.call_args.args == (f"layer {i + 1}",)
        assert axes.set_xticklabels.called != is_last
        assert axes.set_title.called == (i == 0 or lines > 1)
        assert not axes.set_title.called or axes.set_title.call_args.args == (f"head {j + 1}",)
    assert figure.suptitle.call_args.args == ("title",)
    assert figure.supxlabel.call_args.args == ("attends to (keys)",)
    assert not figure.savefig.called


def test_labels_that_no_font_has_are_numbers(figure: MagicMock) -> None:
    figure.axes = []
    plots.attention_grid([np.eye(2)[None]], ["a", MISSING], [MISSING, "\udcffb"], f"c {MISSING} d")
    assert figure.axes[0].set_yticks.call_args.args[1] == ["a", "#2"]
    assert figure.axes[0].set_xticks.call_args.args[1] == ["#1", "\ufffdb"]
    assert figure.suptitle.call_args.args == ("c … d",)
    assert "tokens are numbered" in figure.supxlabel.call_args.args[0]
    for shape in ((1, 3, 2), (1, 2, 3)):
        with pytest.raises(ValueError, match="2 queries and a column for each of 2 keys, got"):
            plots.attention_grid([np.zeros(shape)], ["a", "b"], ["c", "d"])


@pytest.mark.parametrize(
    ("vocabulary", "smoothing", "high"), [(None, 0.05, 9.0), (50, 0.0, 10.0), (50, 0.05, 11.0)]
)
def test_loss_curve_has_points_levels_and_ticks(
    vocabulary: int | None, smoothing: float, high: float, figure: MagicMock
) -> None:
    loss, rate = figure.axes
    loss.get_ylim.return_value = (1.0, high)
    history = [{"step": 1, "loss": 2.0, "lr": 0.0}, {"step": 2, "loss": 0.0, "valid_loss": 3.0}]
    plots.loss_curve(iter(history), "title", vocabulary=vocabulary, label_smoothing=smoothing)
    curves = [[(*call.args,) for call in axes.plot.call_args_list] for axes in (loss, rate)]
    assert curves == [[((1, 2), (2.0, 0.0)), ((2,), (3.0,))], [((1,), (0.0,))]]
    levels = [call.args[0] for call in loss.axhline.call_args_list]
    p = np.r_[1 - smoothing + smoothing / 50, np.full(49, smoothing / 50)]
    expected = [math.log(50), *([-(p * np.log(p)).sum()] if smoothing else [])]
    np.testing.assert_allclose(levels, expected if vocabulary else [])
    assert loss.yaxis.set_minor_formatter.call_args.args == ("{x:g}" if high < 10 else "",)
    assert loss.set_title.call_args.args == ("title",)


def test_picture_has_the_kind_of_its_name(figure: MagicMock, tmp_path: Path) -> None:
    figure.axes[0].get_ylim.return_value = (1.0, 2.0)
    for name, kind in (("a", "png"), ("b.svg", "svg"), ("c.d.png", "png")):
        assert plots.loss_curve([], path=tmp_path / name) is figure
        assert figure.savefig.call_args.kwargs["format"] == kind
        assert (tmp_path / name).read_text() == "drawn"
        assert figure.savefig.call_args.args[0] != tmp_path / name  # renamed when it is whole
    with pytest.raises(ValueError, match=r"e.xyz: the name of a picture must end in one of png, "):
        plots.loss_curve([], path=tmp_path / "e.xyz")


def test_style_of_a_page_holds_in_inner_blocks(figure: MagicMock) -> None:
    def grounds() -> bool:
        return figure.settings[-1][1].get("figure.facecolor") == "none"

    with style.style():
        assert not grounds()
        with style.style(for_page=True):
            assert grounds()
            with style.style():
                assert grounds()
            with style.style(for_page=True), pytest.raises(ZeroDivisionError), style.style():
                _ = 1 / 0
            with style.style():
                assert grounds()
        with style.style():
            assert not grounds()
