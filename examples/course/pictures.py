"""Pictures of the course: one set of colours, and a figure that grows from step to step."""

from __future__ import annotations

import html
import os
import re
import sys
import warnings
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from labels import label

from minigrad.check.extras import require
from nn.inspection.style import COLOURS, INK, style

__all__ = ["COLOUR", "figure", "growing", "ramp", "show_one_of", "show_page"]

# The same thing has the same colour in every lesson.
COLOUR = {
    "x": COLOURS[6],
    "query": COLOURS[0],
    "key": COLOURS[1],
    "value": COLOURS[2],
    "weight": COLOURS[3],
    "output": COLOURS[4],
}


@contextmanager
def figure(width: float, height: float, alt: str) -> Iterator[Any]:
    """Yield a matplotlib figure to draw in, and show it at the end; `alt` describes it in words.

    In a notebook the figure is SVG in the colours of the page, and the browser draws its text, so that
    matplotlib needs no font with Chinese characters. A script saves it below `runs/course`.
    """
    matplotlib = require("matplotlib", "plotting")
    with (
        style(for_page=_in_notebook()),
        matplotlib.rc_context({"svg.fonttype": "none"}),
        warnings.catch_warnings(),
    ):
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        drawn = require("matplotlib.figure", "plotting").Figure(
            (width, height), layout="constrained"
        )
        yield drawn
        if not _in_notebook():
            path = _new_path(".png")
            drawn.savefig(path, dpi=120)
            print(f"[{path}: {label(alt)}]")
            return
        from io import StringIO

        text = StringIO()
        drawn.savefig(text, format="svg", metadata={"Date": None})
    svg = text.getvalue()
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.S)
    prefix = f"f{abs(hash(svg)) % 10**8}-" if os.environ.get("PYTHONHASHSEED") else ""
    svg = re.sub(r'\b(id="|href="#|url\(#)', lambda m: m[1] + prefix, svg)
    size = re.search(r'width="([\d.]+)pt"', svg)
    svg = re.sub(r' (width|height)="[\d.]+pt"', "", svg, count=2).replace(INK, "currentColor")
    # Coloured text is mixed with the colour of the page's text, so that it has contrast in light and dark.
    mixed = r"\1color-mix(in srgb, \2 60%, currentColor)"
    svg = re.sub(r"(<text\b[^>]*? fill: )(#(?!000000|ffffff)[0-9a-f]{6})", mixed, svg)
    described = html.escape(label(alt), quote=True)
    width = float(size[1]) * 1.2 if size else 0  # a phone scrolls a wide picture sideways
    wide = f"width:100%;max-width:{width:.0f}px;min-width:{0.9 * width:.0f}px"
    _display(svg.replace("<svg", f'<svg role="img" aria-label="{described}" style="{wide}"', 1))


def show_page(page: str, title: str, height: int = 640) -> None:
    """Show an HTML page inside a notebook; a script saves it below `runs/course`."""
    if _in_notebook():
        inside = html.escape(page, quote=True)
        frame = f'<iframe title="{html.escape(title, quote=True)}" srcdoc="{inside}" '
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
    colours = require("matplotlib.colors", "plotting")
    return colours.LinearSegmentedColormap.from_list(kind, ["white", COLOUR[kind]])


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
                text = f"{value:.2f}".rstrip("0").rstrip(".").replace("-", "−")
                axes.text(column, row, text, ha="center", va="center", color="black", fontsize=9)
        axes.set_title(label(title), color=COLOUR[kind])
        axes.set_xticks([])
        axes.set_yticks(range(len(words)), words if axes is panels[0] else [""] * len(words))
        axes.tick_params(length=0)
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
