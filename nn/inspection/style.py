"""Style of all pictures: sizes, lines, and colours that colour-blind readers can distinguish."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from minigrad.check.extras import require

# colours of Okabe and Ito
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#6B6B6B")
INK = "#15181d"
"""Colour of text, axes and ticks. A page that shows a picture as SVG can replace it."""
SHADES = "Blues"
"""Colours of weights from 0 (white) to 1."""
_INKED = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
_GROUND = ("figure.facecolor", "axes.facecolor", "savefig.facecolor")
_FOR_PAGE: ContextVar[bool] = ContextVar("for_page", default=False)


@contextmanager
def style(for_page: bool = False) -> Iterator[None]:
    """Return a context in which matplotlib has the style of all pictures of this project."""
    for_page |= _FOR_PAGE.get()
    context = require("matplotlib.style", "plotting").context
    cycler = require("cycler", "plotting").cycler
    colours: dict[str, Any] = dict.fromkeys(_INKED, INK)
    colours |= {"axes.prop_cycle": cycler(color=COLOURS)}
    colours |= dict.fromkeys(_GROUND if for_page else (), "none")
    with context([Path(__file__).with_name("minigrad.mplstyle"), colours]):
        token = _FOR_PAGE.set(for_page)
        try:
            yield
        finally:
            _FOR_PAGE.reset(token)
