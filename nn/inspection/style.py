"""One style for all pictures: sizes, lines, and colours that the colour-blind can tell apart."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from minigrad.extras import require

__all__ = ["COLOURS", "INK", "SHADES", "style"]

COLOURS = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#6B6B6B",
)  # of Okabe and Ito
# text, axes and ticks; a page that shows the picture as SVG can give this colour another value
INK = "#15181d"
SHADES = "Blues"  # weights from 0 (white) to 1

_SETTINGS: dict[str, Any] = {
    "font.size": 10, "axes.titlesize": 11, "axes.labelsize": 10, "xtick.labelsize": 9, "ytick.labelsize": 9,
    "axes.spines.top": False, "axes.spines.right": False, "axes.axisbelow": True,
    "grid.alpha": 0.25, "grid.linewidth": 0.8, "lines.linewidth": 1.6, "lines.markersize": 5, "legend.frameon": False,
    "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": INK, "xtick.color": INK, "ytick.color": INK,
    "figure.facecolor": "white", "savefig.facecolor": "white", "image.cmap": SHADES, "svg.hashsalt": "minigrad",
}  # fmt: skip


_FOR_PAGE: ContextVar[bool] = ContextVar("for_page", default=False)


@contextmanager
def style(for_page: bool = False) -> Iterator[None]:
    """The settings of matplotlib within which all pictures of this project are drawn.

    `for_page` leaves the background out, here and in what is drawn within: it is the page's, light
    or dark.
    """
    for_page |= _FOR_PAGE.get()
    matplotlib = require("matplotlib", "plotting")
    cycler = require("cycler", "plotting").cycler
    ground = (
        dict.fromkeys(("figure.facecolor", "axes.facecolor", "savefig.facecolor"), "none")
        if for_page
        else {}
    )
    with matplotlib.rc_context({**_SETTINGS, **ground, "axes.prop_cycle": cycler(color=COLOURS)}):
        token = _FOR_PAGE.set(for_page)
        try:
            yield
        finally:
            _FOR_PAGE.reset(token)
