"""Pictures of the course: one set of colours, and a figure that grows from step to step."""

from __future__ import annotations

import html
import re
import sys
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock, patch

import numpy as np
from labels import in_each, in_language, label, languages, wrapped

from minigrad.check.extras import require
from nn.inspection.style import COLOURS, INK, style

__all__ = ["COLOUR", "colour_map", "figure", "growing", "ramp", "show_one_of", "show_page"]

# The same thing has the same colour in every lesson.
COLOUR = {
    "x": COLOURS[6],
    "query": COLOURS[0],
    "key": COLOURS[1],
    "value": COLOURS[2],
    "weight": COLOURS[3],
    "output": COLOURS[4],
}


WIDEST = 9.2  # inches, which a page shows at four fifths
NARROW = 4.2  # inches, of a phone
NARROW_PAGE = "(max-width: 46em)"


@contextmanager
def figure(width: float, height: float, alt: str) -> Iterator[Any]:
    """Yield a matplotlib figure to draw in, and show it at the end; `alt` describes it in words.

    In a notebook the figure is SVG in the colours of the page, and the browser draws its text, so that
    matplotlib needs no font with Chinese characters. A phone shows its panels in rows of two. A script saves the
    figure below `runs/course`. Without matplotlib, nothing is drawn.
    """
    if find_spec("matplotlib") is None:
        yield MagicMock()  # accepts every call
        print(f"[{label(alt)} {label('Pictures need matplotlib: pip install matplotlib')}]")
        return
    matplotlib = require("matplotlib", "plotting")
    with (
        style(for_page=_in_notebook()),
        matplotlib.rc_context({"svg.fonttype": "none"}),
        warnings.catch_warnings(),
    ):
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        drawn = require("matplotlib.figure", "plotting").Figure(
            (min(width, WIDEST), height), layout="constrained"
        )
        yield drawn
        if not _in_notebook():
            path = _new_path(".png")
            drawn.savefig(path, dpi=120)
            print(f"[{path}: {label(alt)}]")
            return
        wide = _svg(drawn, label(alt))
        if width <= NARROW:
            _display(wide)
            return
        _make_narrow(drawn)
        narrow = _svg(drawn, label(alt))
    group = f"picture-{zlib.crc32(wide.encode())}"
    hidden = (
        f"<style>@media {NARROW_PAGE} {{ .{group}-wide {{ display: none }} }} "
        f"@media not all and {NARROW_PAGE} {{ .{group}-narrow {{ display: none }} }}</style>"
    )
    parts = (
        f'<div class="{group}-{name}">{svg}</div>'
        for name, svg in (("wide", wide), ("narrow", narrow))
    )
    _display(hidden + "".join(parts))


def _make_narrow(drawn: Any) -> None:
    """Arrange the panels of a figure in rows of two, for a phone; columns of a grid become rows.

    A panel with numbers in more than five columns has a row for itself.
    """
    for axes in [axes for axes in drawn.axes if not axes.axison]:
        axes.remove()  # an empty place
    panels = [axes for axes in drawn.axes if axes.get_subplotspec()]
    rows, columns = panels[0].get_subplotspec().get_gridspec().get_geometry() if panels else (1, 1)
    height, places = drawn.get_figheight() / rows, []
    row, column = 0, 0
    for i, axes in enumerate(panels):
        whole = columns == 1 or (rows == 1 and axes.texts and abs(np.ptp(axes.get_xlim())) > 5)
        if rows > 1 and columns > 1:
            row, column = divmod(i, columns)[::-1]
        elif column == 2 or (whole and column):
            row, column = row + 1, 0
        places.append((row, slice(None) if whole else column))
        column = 2 if whole else column + 1
    size = 1 + max((row for row, _ in places), default=0)
    grid = require("matplotlib.gridspec", "plotting").GridSpec(size, 2, figure=drawn)
    for axes, place in zip(panels, places):
        axes.set_subplotspec(grid[place])
        if place[1] != 1:
            axes.tick_params(labelleft=True)
        words = [word.get_text() for word in axes.get_xticklabels()]
        lengths = [len(in_language(w, language)) for w in words for language in languages()]
        if len(words) > 5 and max(lengths) > 3:
            axes.tick_params(axis="x", rotation=60)
    drawn.set_size_inches(NARROW, size * (height if columns == 1 else max(height, 1.4)))


def _svg(drawn: Any, alt: str) -> str:
    """Return a figure as SVG in the language of the reader."""
    from io import StringIO

    def saved(language: str) -> str:
        file = StringIO()
        with patch.object(Text, "get_text", lambda text: in_language(words(text), language)):
            drawn.savefig(file, format="svg", metadata={"Date": None})
        return _fitting(file.getvalue(), alt)

    Text = require("matplotlib.text", "plotting").Text
    words = Text.get_text
    return in_each(saved)


def _fitting(text: str, alt: str) -> str:
    """Return SVG of matplotlib that fits its column, in the colours of the page."""
    svg = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.S)
    prefix = f"f{zlib.crc32(svg.encode())}-"
    svg = re.sub(r'\b(id="|href="#|url\(#)', lambda m: m[1] + prefix, svg)
    size = re.search(r'width="([\d.]+)pt"', svg)
    svg = re.sub(r' (width|height)="[\d.]+pt"', "", svg, count=2).replace(INK, "currentColor")
    # Coloured text is mixed with the colour of the page's text, so that it has contrast in light and dark.
    mixed = r"\1color-mix(in srgb, \2 60%, currentColor)"
    svg = re.sub(r"(<text\b[^>]*? fill: )(#(?!000000|ffffff)[0-9a-f]{6})", mixed, svg)
    described = html.escape(alt, quote=True)
    width = float(size[1]) * 1.2 if size else 0
    fitting = f"width:100%;max-width:{width:.0f}px;min-width:0"
    return svg.replace("<svg", f'<svg role="img" aria-label="{described}" style="{fitting}"', 1)


FIT = """
const frame = this, root = frame.contentDocument.documentElement;
let width = 0;
new frame.contentWindow.ResizeObserver(() => {
  if (frame.offsetWidth === width && root.offsetHeight <= frame.offsetHeight) return;
  width = frame.offsetWidth;
  frame.style.height = `${root.offsetHeight}px`;
}).observe(root);
"""
"""Script of a frame that makes it as high as its page."""


def show_page(page_in: Callable[[str], str], title: str, height: int = 640) -> None:
    """Show the HTML page for a language inside a notebook; a script saves it below `runs/course`."""
    page = in_each(page_in)
    if _in_notebook():
        inside = html.escape(page, quote=True)
        frame = (
            f'<iframe title="{html.escape(title, quote=True)}" srcdoc="{inside}" onload="{FIT}" '
        )
        _display(frame + f'style="width:100%;height:{height}px;border:0"></iframe>')
        return
    path = Path("runs/course") / f"{Path(sys.argv[0]).stem}.html"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page, encoding="utf-8")
    print(f"[{path}: {title}]")


FRAMES = """<style>
.one-of { position: relative; display: flex; flex-wrap: wrap; gap: .35rem; align-items: center; }
.one-of input { position: absolute; opacity: 0; }
.one-of label {
  min-width: 2.2rem; padding: .1rem .5rem; border: 1px solid; border-radius: .4rem;
  text-align: center; cursor: pointer;
}
.one-of input:checked + label { background: #0072B2; color: #fff; }
.one-of input:focus-visible + label { outline: 2px solid #0072B2; outline-offset: 2px; }
.one-of div { display: none; order: 1; flex: 0 0 100%; margin-top: .5rem; }
.one-of input:checked + label + div { display: block; }
</style>
"""


def show_one_of(title: str, pictures: Mapping[str, str]) -> None:
    """Show one of several pictures, which the reader chooses by its name, also by arrow keys.

    Parameters
    ----------
    title : str
        Describes the names, as "step".
    pictures : mapping of str to str
        SVG of each picture, by its name. The first one is shown first.
    """
    group = f"one-of-{zlib.crc32(repr(pictures).encode())}"
    parts = []
    for i, (name, picture) in enumerate(pictures.items()):
        checked = "" if i else " checked"
        parts.append(
            f'<input type="radio" name="{group}" id="{group}-{i}"{checked}>'
            f'<label for="{group}-{i}">{html.escape(name)}</label><div>{picture}</div>'
        )
    heading = html.escape(title, quote=True)
    page = (
        f'{FRAMES}<div class="one-of" role="radiogroup" aria-label="{heading}">'
        f"<span>{heading}:</span>{''.join(parts)}</div>"
    )
    if _in_notebook():
        _display(page)
        return
    path = _new_path(".html")
    start = (
        '<!doctype html><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    )
    path.write_text(start + page, encoding="utf-8")
    print(f"[{path}: {title}]")


def ramp(kind: str) -> Any:
    """Return a colour map from white to the colour of a kind."""
    return colour_map("white", COLOUR[kind])


def colour_map(*colours: str) -> Any:
    """Return a colour map between colours; None without matplotlib."""
    if find_spec("matplotlib") is None:
        return None
    return require("matplotlib.colors", "plotting").LinearSegmentedColormap.from_list("", colours)


def growing(
    drawn: Any, words: Sequence[str], steps: Sequence[tuple[str, Any, str]], numbers: bool = False
) -> None:
    """Draw matrices side by side, a row for each word: (kind, matrix, title) in the colour of the kind.

    White is 0; the darker a value, the further it is from 0. `numbers` writes the values into the cells.
    """
    ratios = [matrix.shape[1] + 2 for _, matrix, _ in steps]
    panels = drawn.subplots(1, len(steps), width_ratios=ratios, squeeze=False)[0]
    for axes, (kind, matrix, title) in zip(panels, steps):
        shades = np.abs(matrix) / (np.abs(matrix).max() or 1)
        axes.imshow(shades, cmap=ramp(kind), aspect="auto", vmin=0, vmax=2 if numbers else 1)
        if numbers:
            for (row, column), value in np.ndenumerate(matrix):
                digits = 2 if abs(value) < 10 else 1
                text = f"{value:.{digits}f}".rstrip("0").rstrip(".").replace("-", "−")
                axes.text(column, row, text, ha="center", va="center", color="black", fontsize=9)
        axes.set_title(wrapped(title, 16 if len(steps) > 3 else 40), color=COLOUR[kind])
        axes.set_xticks([])
        axes.set_yticks(range(len(words)), words)
        axes.tick_params(length=0, labelleft=axes is panels[0])
        for side in axes.spines.values():
            side.set(visible=True, color=COLOUR[kind])


def _new_path(suffix: str) -> Path:
    """Return the path of a new file of a script."""
    folder = Path("runs/course")
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{Path(sys.argv[0]).stem}-{len(list(folder.iterdir()))}{suffix}"


def _in_notebook() -> bool:
    return "ipykernel" in sys.modules or "pyodide_kernel" in sys.modules


def _display(text: str) -> None:
    from IPython.display import display

    display({"text/html": text}, raw=True)
